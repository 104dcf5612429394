"""Whatever happens meanwhile, events by broadcast and by link arrive once and in order; ledgers balance."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heliograph as hg
from tests.conformance.link_contract import LIMIT, Track, wait_until
from tests.ring_support import PORTS, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.channel.receive.subscription import Receiver

pytestmark = needs_rings

TRANSPORTS: tuple[Any, ...] = ("ring", "spinning-ring", "socket")
"""Of the stations; each of them pushes, and each receives."""
places = st.integers(0, len(TRANSPORTS) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), places, st.integers(1, 40)),
        st.tuples(st.just("push_many"), places, st.integers(1, 400)),
        st.tuples(st.just("cut"), places, st.integers(1, len(TRANSPORTS) - 1)),
        st.tuples(st.just("subscribe"), places, st.integers(0, 3)),
        st.tuples(st.just("leave"), places, st.just(0)),
    ),
    min_size=1,
    max_size=14,
)


class Station:
    """A station that pushes numbers from its own range, and what its receiver has seen of each range."""

    def __init__(self, place: int, domain: str) -> None:
        self.station = hg.Station(domain=domain, transport=TRANSPORTS[place])
        self.channel = self.station.channel("tracks", Track)
        self.seen: dict[str, list[int]] = {}
        self.channel.subscribe(self._take, inline=place % 2 == 0)
        self.others: list[Receiver] = []
        self.pushed = 0

    def _take(self, track: Track, header: Any) -> None:
        self.seen.setdefault(header.supplier, []).append(track.id)

    def push(self, number: int, *, together: bool) -> None:
        events = [Track(self.pushed + i, float(i % 4)) for i in range(number)]
        self.pushed += number
        if together:
            self.channel.push_many(events)
        else:
            for event in events:
                self.channel.push(event)

    def has(self, pushed: list[int]) -> bool:
        """Whether its receiver has seen so many events of each station."""
        return sorted(map(len, self.seen.values())) == pushed

    def cut(self, other: hg.Station) -> None:
        assert self.station.mesh is not None
        peer = self.station.mesh._peers.get(other.id)
        connection = None if peer is None else peer.link._connection
        if connection is not None:
            connection.close()


def play(all_of_them: list[Station], story: list[tuple[str, int, int]]) -> None:
    for what, place, number in story:
        one = all_of_them[place]
        match what:
            case "push" | "push_many":
                one.push(number, together=what == "push_many")
            case "cut":
                one.cut(all_of_them[(place + number) % len(all_of_them)].station)
            case "subscribe":
                one.others.append(one.channel.subscribe(lambda _: None, where=f"speed >= {number}"))
            case "leave" if one.others:
                one.others.pop().close()


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=steps)
def test_every_station_gets_every_event_once_and_in_order(story: list[tuple[str, int, int]]) -> None:
    with ExitStack() as stack:
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-test-"))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_RUNTIME_DIR", str(Path(runtime)))
        domain = f"test-{PORTS.random.id64():016x}"
        stations = [Station(place, domain) for place in range(len(TRANSPORTS))]
        for one in stations:
            stack.callback(one.station.close, 1.0)
        assert all(one.channel.wait_matched(len(stations), LIMIT) for one in stations)
        play(stations, story)
        pushed = sorted(one.pushed for one in stations if one.pushed)
        for one in stations:
            assert wait_until(lambda: one.has(pushed)), (one.seen, pushed)  # noqa: B023 - called at once
            assert all(numbers == list(range(len(numbers))) for numbers in one.seen.values())
        for one in stations:
            assert one.channel.settle(LIMIT)
            assert one.channel.stats().balanced
