"""Arrays of large events are shown where they lie in the ring, to those who ask, if nobody may keep them."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes are resolved at run time

import heliograph as hg
from heliograph.links.broadcast import carrier_choice
from heliograph.links.broadcast import reader_admission as airing
from heliograph.links.broadcast import record_handler as taking
from heliograph.links.broadcast.large_events import LARGE
from tests.e2e.link_support import (
    LIMIT,
    domain_with_rings,
    own_meeting_folder,
    push_until_full,
    ring_station,
    wait_until,
)
from tests.ring_support import Later, needs_rings, without_room_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from heliograph.model.event import Header
    from heliograph.ring import RingReader

pytestmark = needs_rings

SMALL_RING = 1 << 13
"""Slots, of 512 KiB: an event of 100,000 bytes is large in it, and four of them fit."""
SIZE = 100_000


class Picture(hg.Event, name="air.picture", key="id"):
    id: int
    data: NDArray[np.uint8]
    name: str = ""


class NativePicture(hg.Event, name="air.native-picture", body="native"):
    id: int
    data: NDArray[np.uint8]
    name: str = ""


class Wide(hg.Event, name="air.picture", key="id"):
    """The same events, as who wants wider numbers reads them."""

    id: int
    data: NDArray[np.uint16]


def picture(number: int, size: int = SIZE, kind: type[Any] = Picture) -> Any:
    return kind(number, np.full(size, number % 251, np.uint8), "x" * (number % 9))


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(airing, "SLOTS", SMALL_RING)
    yield from domain_with_rings()


def readers_of(station: hg.Station) -> list[RingReader]:
    """Of the rings of all neighbours."""
    assert station.mesh is not None
    return [
        listening._reader
        for peer in station.mesh._peers.values()
        for listening in peer.rings.listening.values()
    ]


class Viewer:
    """Looks at each event while it is called, and keeps a copy of what it saw."""

    def __init__(self, station: hg.Station) -> None:
        self._station = station
        self.seen: list[tuple[int, int, set[int]]] = []
        self.in_ring: list[bool] = []

    def __call__(self, event: Any) -> None:
        array = event.data
        assert not array.flags.writeable
        address = array.__array_interface__["data"][0]
        self.in_ring.append(
            any(
                0 <= address - reader._segment._address < len(reader._segment.memory)
                for reader in readers_of(self._station)
            )
        )
        assert array.flags.aligned
        self.seen.append((event.id, len(array), set(array.tolist())))

    def with_header(self, event: Any, header: Header) -> None:
        assert header.sequence == event.id + 1
        self(event)


@pytest.mark.parametrize("kind", [Picture, NativePicture])
@pytest.mark.parametrize("header", [False, True])
def test_arrays_of_large_events_are_shown_where_they_lie_and_come_whole(
    domain: str, kind: type[Any], header: bool
) -> None:
    half = SMALL_RING // 2 * 64
    sizes = [10, *(limit + by for limit in (LARGE, half) for by in (-200, -64, 0, 40)), 3 * half] * 2
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, viewer = a.channel("x", kind), Viewer(b)
        call: Callable[..., None] = viewer.with_header if header else viewer
        b.channel("x", kind).subscribe(call, inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        for i, size in enumerate(sizes):
            ours.push(picture(i, size, kind))
            assert wait_until(lambda i=i: len(viewer.seen) > i)  # type: ignore[misc]  # mypy cannot infer it
        assert viewer.seen == [(i, size, {i}) for i, size in enumerate(sizes)]
        # What is small, or in pieces, has memory of its own.
        assert viewer.in_ring == [LARGE <= size < half - 100 for size in sizes]
        assert b.channel("x").stats().balanced


def kept_unchanged(events: list[Picture]) -> bool:
    return all((event.data == event.id).all() for event in events)


@pytest.mark.parametrize("other", ["consumer", "queued", "inline", "pattern"])
def test_whoever_else_gets_an_event_may_keep_it_so_everybody_gets_a_copy(domain: str, other: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, theirs, viewer = a.channel("x", Picture), b.channel("x", Picture), Viewer(b)
        theirs.subscribe(viewer, inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        ours.push(picture(0))
        assert wait_until(lambda: len(viewer.seen) == 1)
        kept: list[Picture] = []
        match other:
            case "consumer":
                consumer = theirs.consumer()
            case "queued":
                theirs.subscribe(kept.append)
            case "inline":
                theirs.subscribe(kept.append, inline=True)
            case _:
                b.subscribe(hg.all_of(p=theirs), lambda match: kept.append(match.p))
        for i in range(1, 9):
            ours.push(picture(i))
            if other == "consumer":
                kept.append(consumer.pull(LIMIT))  # type: ignore[arg-type]  # it comes
            assert wait_until(lambda i=i: len(kept) == i == len(viewer.seen) - 1)  # type: ignore[misc]  # as above
        assert viewer.in_ring == [True, *[False] * 8]
        assert [event.id for event in kept] == list(range(1, 9))
        assert kept_unchanged(kept)
        assert [number for number, _, _ in viewer.seen] == list(range(9))
        if other == "consumer":
            consumer.close()
            ours.push(picture(9))
            assert wait_until(lambda: len(viewer.seen) == 10)
            assert viewer.in_ring[-1]


def test_an_array_that_is_kept_all_the_same_is_noticed_and_said_once(
    domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Any] = []
    with ring_station(domain) as a, ring_station(domain) as b:
        ours = a.channel("x", Picture)
        b.channel("x", Picture).subscribe(lambda p: kept.append(p.data[5:]), inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        for i in range(9):
            ours.push(picture(i))
        assert wait_until(lambda: len(kept) == 9)
        assert wait_until(lambda: said(caplog))
        assert kept[0][0] != 0, "another event lies there by now"
    assert said(caplog) == [taking.KEPT % "x"]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == taking.__name__]


def test_a_copy_of_a_view_may_be_kept_and_a_callback_that_raises_keeps_nothing(
    domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Any] = []
    told: list[str] = []

    def keep(event: Picture) -> None:
        kept.append(event.data.copy())
        raise ValueError(event.id)

    with (
        ring_station(domain) as a,
        ring_station(domain, on_error=lambda _name, _header, error: told.append(str(error))) as b,
    ):
        ours, theirs = a.channel("x", Picture), b.channel("x", Picture)
        theirs.subscribe(keep, inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        for i in range(9):
            ours.push(picture(i))
        assert wait_until(lambda: len(told) == 9)
        assert all((data == i).all() for i, data in enumerate(kept))
        # Counted when it has been told.
        assert wait_until(lambda: theirs.stats().total.failed == 9)
    assert not said(caplog)


def test_who_keeps_an_error_keeps_the_view_that_its_traceback_holds_and_is_told_so(
    domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[BaseException] = []

    def fail(event: Picture) -> None:
        raise ValueError(event.id)

    with (
        ring_station(domain) as a,
        ring_station(domain, on_error=lambda _name, _header, error: told.append(error)) as b,
    ):
        ours = a.channel("x", Picture)
        b.channel("x", Picture).subscribe(fail, inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        ours.push(picture(0))
        assert wait_until(lambda: told)
        assert wait_until(lambda: said(caplog))
    assert said(caplog) == [taking.KEPT % "x"]


def test_a_reader_that_loses_its_lease_while_it_shows_an_event_counts_it_as_missed(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "LEASE", 3_600.0)
    go_on, seen = Event(), []
    qos = hg.QoS(queue=5, max_blocking=0.05)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours = a.channel("x", Picture, qos=qos)

        def stuck(event: Picture) -> None:
            seen.append(event.id)
            go_on.wait(LIMIT)

        b.channel("x", Picture, qos=qos).subscribe(stuck, inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        assert a.mesh is not None
        later = Later.of(a.mesh._airing._broadcasts[carrier_choice.NORMAL].ring)
        ours.push(picture(0))
        assert wait_until(lambda: seen)  # from here on its reader stands still
        pushed = 1 + push_until_full(ours, lambda i: picture(i + 1))
        later.by_ns = 3_600 * 10**9
        assert b.mesh is not None
        assert wait_until(lambda: any(link.overtaken for link in a.mesh.stats()))  # type: ignore[union-attr]
        (missed,) = (link.overtaken["x"] for link in a.mesh.stats())
        assert missed == pushed, "the one that is shown, too: nobody vouches for what it sees from now on"
        go_on.set()
        assert wait_until(lambda: [link.missed.get("x") for link in b.mesh.stats()] == [missed])  # type: ignore[union-attr]
        assert ours.wait_matched(1, LIMIT)
        ours.push(picture(250))
        assert wait_until(lambda: seen == [0, 250])
        assert ours.stats().balanced


def test_a_station_that_closes_while_its_event_is_shown_leaves_it_as_it_is(domain: str) -> None:
    shown, go_on, found = Event(), Event(), []
    with ring_station(domain) as b:

        def look(event: Picture) -> None:
            shown.set()
            assert go_on.wait(LIMIT)
            found.append((event.data == event.id).all())

        b.channel("x", Picture).subscribe(look, inline=True, views=True)
        with ring_station(domain) as a:
            ours = a.channel("x", Picture)
            assert ours.wait_matched(1, LIMIT)
            ours.push(picture(7))
            assert shown.wait(LIMIT)
        go_on.set()
        assert wait_until(lambda: found)
        assert found == [True]


@pytest.mark.parametrize("why", ["best effort", "no room", "another class", "no ring"])
def test_where_nothing_can_be_shown_the_callback_gets_a_copy(
    domain: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no room":
        without_room_for(carrier_choice.NORMAL, monkeypatch)
    qos = hg.QoS(reliability="best-effort" if why == "best effort" else "reliable")
    theirs = Wide if why == "another class" else Picture
    carrier: Any = "socket" if why == "no ring" else "ring"
    kept: list[Any] = []
    with ring_station(domain) as a, hg.Station(domain=domain, transport=carrier) as b:
        ours = a.channel("x", Picture, qos=qos)
        b.channel("x", theirs, qos=qos).subscribe(lambda e: kept.append(e.data), inline=True, views=True)
        assert ours.wait_matched(1, LIMIT)
        for i in range(9):
            ours.push(picture(i, 50_000))  # in one record also of the smaller ring for best effort
            assert wait_until(lambda i=i: len(kept) == i + 1)  # type: ignore[misc]  # as above
        assert all((data == i).all() for i, data in enumerate(kept))


@pytest.mark.parametrize("views", [False, True])
def test_large_events_that_are_pushed_together_come_whole_and_in_order(domain: str, views: bool) -> None:
    kept: list[tuple[int, Any]] = []
    with ring_station(domain) as a, ring_station(domain) as b:
        ours = a.channel("x", Picture)
        b.channel("x", Picture).subscribe(
            lambda p: kept.append((p.id, p.data.copy() if views else p.data)), inline=True, views=views
        )
        assert ours.wait_matched(1, LIMIT)
        for first in range(0, 30, 3):
            ours.push_many([picture(first + i, 60_000) for i in range(3)])
        assert wait_until(lambda: len(kept) == 30)
        assert [number for number, _ in kept] == list(range(30))
        assert all((data == number).all() for number, data in kept)


def test_in_its_own_station_an_event_is_given_as_it_is() -> None:
    with hg.Station() as station:
        channel = station.channel("x", Picture)
        seen: list[Picture] = []
        channel.subscribe(seen.append, inline=True, views=True)
        event = picture(1)
        channel.push(event)
        assert seen[0] is event


def test_views_are_for_callbacks_inside_push() -> None:
    with hg.Station() as station:
        channel = station.channel("x", Picture)
        for inline in (None, False):
            with pytest.raises(hg.NotPossible, match="give inline=True as well"):
                channel.subscribe(print, inline=inline, views=True)
        seen: list[Picture] = []
        station.subscribe("x", seen.append, inline=True, views=True)

        @channel.subscribe(inline=True, views=True)
        def look(event: Picture) -> None:
            seen.append(event)

        channel.push(picture(1))
        assert len(seen) == 2
