"""Stations in two processes, linked through shared memory; one of them is killed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.links.broadcast.carrier_choice import NORMAL
from heliograph.ring import RingFolder
from tests.conformance.link_contract import LIMIT, wait_until
from tests.ring_support import PORTS, needs_rings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

pytestmark = needs_rings


class Ping(hg.Event, name="ring.ping"):
    n: int


OTHER = """
import sys
import heliograph as hg
from tests.e2e.test_link_ring import Ping

with hg.Station(domain=sys.argv[1], transport="ring") as station:
    pongs = station.channel("pongs", Ping)
    station.channel("pings", Ping).subscribe(pongs.push, inline=True)
    sys.stdin.read()
"""


def test_a_station_that_is_killed_leaves_no_ring_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    domain = f"test-{PORTS.random.id64():016x}"
    folder = RingFolder(domain).path
    with hg.Station(domain=domain, transport="ring") as station:
        assert station.mesh is not None
        pings, pongs = station.channel("pings", Ping), station.channel("pongs", Ping).consumer()
        for generation in range(2):
            with subprocess.Popen([sys.executable, "-c", OTHER, domain], stdin=subprocess.PIPE) as other:
                try:
                    assert pings.wait_matched(1, LIMIT)
                    for i in range(100):
                        pings.push(Ping(generation * 1000 + i))
                    assert [pongs.pull(LIMIT) for _ in range(100)] == [
                        Ping(generation * 1000 + i) for i in range(100)
                    ]
                    assert [stats.carrier for stats in station.mesh.stats() if stats.connected] == ["ring"]
                finally:
                    other.kill()
            # What is left is the broadcast of the one that lives.
            assert wait_until(lambda: len(list(folder.iterdir())) == 1)
            assert [path.name[:18] for path in folder.iterdir()] == [f"{station.id:016x}-{NORMAL}"]
            assert wait_until(lambda: not pings.stats().consumers)
    assert not folder.exists()
