"""Derived channels between hosts: the columns cross, once for all receivers that ask for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.derived_process import NOTE, SELECT, WHERE, Row
from tests.e2e.link_support import LIMIT, free_endpoint, own_meeting_folder, wait_until
from tests.e2e.network_support import Hosts
from tests.e2e.test_derived import stats, tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Hosts(tmp_path)
    yield made
    made.clean_up()


@pytest.mark.parametrize("keeps", [False, True], ids=["live", "history"])
def test_another_host_derives_what_receivers_here_ask_for(hosts: Hosts, tmp_path: Path, keeps: bool) -> None:
    endpoint = free_endpoint()
    folder = [str(tmp_path / "data")] if keeps else []
    source = hosts.run("a", "supply", *folder, listen=endpoint, module="tests.e2e.derived_process")
    source.says("open")
    qos = hg.QoS(durability="persistent") if keeps else None
    with (
        hg.Station(domain="e2e", connect=[endpoint]) as one,
        hg.Station(domain="e2e", connect=[endpoint]) as two,
    ):
        for station in (one, two):
            assert station.mesh is not None
            assert station.mesh.wait_for(lambda mesh: len(mesh.stations()) == 2, LIMIT)
        got: dict[str, list[Any]] = {"one": [], "two": []}
        for name, station in (("one", one), ("two", two)):
            derived = station.channel("rows", Row, qos=qos).derive(SELECT, where=WHERE)
            derived.subscribe(
                lambda event, name=name: got[name].append((event.id, event.double)), start="now"
            )
        tell(source, "match 2", "matched")
        before = stats(source)["bytes"]
        tell(source, "2000", "pushed")
        wanted = [(n, 2.0 * n) for n in range(0, 2000, 10)]
        for received in got.values():
            assert wait_until(lambda received=received: len(received) >= len(wanted))  # type: ignore[misc]  # lambdas have no types
            assert received == wanted
        after = stats(source)
        assert after["derived"] == [len(wanted)]
        assert after["bytes"] - before < 2 * 2000 * len(NOTE) / 20
