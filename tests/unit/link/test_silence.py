"""Who says nothing, and for how long that is nobody's fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import heliograph as hg
from heliograph.link.silence import LOOKS, Silence
from heliograph.ports import system_ports


class Watched:
    """One link, and whether its station was struck off."""

    def __init__(self) -> None:
        self.link = SimpleNamespace(station=7, name="7", peer=SimpleNamespace(pid=1), waits_behind=0)
        self.struck: list[int] = []
        peers = {7: cast("Any", SimpleNamespace(link=self.link))}
        self._silence = Silence(1.0, system_ports().tasks, peers, self.struck.append)

    def look(self, times: int) -> list[int]:
        for _ in range(times):
            self._silence.look()
        return self.struck


def test_a_station_that_says_nothing_is_struck_off_after_so_many_looks() -> None:
    watched = Watched()
    assert watched.look(LOOKS) == []
    assert watched.look(1) == [7]


def test_whatever_is_heard_begins_it_anew() -> None:
    watched = Watched()
    watched.look(LOOKS)
    watched.link.waits_behind = 25
    assert watched.look(LOOKS) == []
    assert watched.look(1) == [7]


def test_nobody_is_silent_while_this_station_does_not_read() -> None:
    """Its reader may be inside a callback: what the other has said since waits to be read."""
    watched = Watched()
    watched.look(LOOKS)
    watched.link.waits_behind = cast("Any", None)
    assert watched.look(10) == []
    watched.link.waits_behind = 0
    assert watched.look(LOOKS) == []


@pytest.mark.parametrize("limit", [0.0, 0.9, -1.0, float("nan"), float("inf"), 1e12, "5", True])
def test_a_limit_that_a_healthy_station_could_miss_or_no_clock_could_wait_is_refused(limit: Any) -> None:
    with pytest.raises(hg.NotPossible, match=r"it is 1 to 1,000,000,000 seconds"):
        hg.Station(domain="d", peer_limit=limit)


def test_without_a_domain_there_is_nobody_to_strike_off() -> None:
    with pytest.raises(hg.NotPossible, match="add domain="):
        hg.Station(peer_limit=2.0)
