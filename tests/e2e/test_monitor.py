"""The monitor of a channel, seen from another station."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def test_who_has_acknowledged_what_is_seen_from_elsewhere() -> None:
    begun, go_on = Event(), Event()
    arguments = ["monitor", "tracks", "--domain", "e2e"]
    with hg.Station(domain="e2e", name="tower") as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(ack="delivered", ack_timeout=LIMIT))
        tracks.subscribe(lambda _: None, name="quick")

        @tracks.subscribe(name="slow")
        def wait(_: Track) -> None:
            begun.set()
            go_on.wait(LIMIT)

        pushing = Thread(target=lambda: tracks.push(Track(1), timeout=LIMIT))
        pushing.start()
        assert begun.wait(LIMIT)
        (row,) = msgspec.json.decode(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
        assert row["state"]["slow"] is False
        assert row["station"] == f"{station.id:016x}"
        assert "slow" in CliRunner().invoke(app, arguments).stdout
        go_on.set()
        pushing.join(LIMIT)
        assert "no event of tracks waits" in CliRunner().invoke(app, arguments).stdout
