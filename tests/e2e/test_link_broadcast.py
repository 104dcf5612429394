"""Stations of one host that hear each other by broadcast: what goes by ring, and what by link."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes are resolved at run time

import heliograph as hg
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.links.broadcast import carrier_choice
from heliograph.links.broadcast import reader_admission as airing
from heliograph.links.broadcast.gateway import BroadcastGateway, ReaderSession
from heliograph.links.broadcast.large_events import LARGE
from heliograph.links.broadcast.queue import MOST_ROWS
from heliograph.links.broadcast.shared_memory import NOT_ASKED_FOR
from heliograph.ring.writer import SHORT_LEASE
from tests.e2e.link_support import (
    LIMIT,
    Track,
    domain_with_rings,
    own_meeting_folder,
    push_until_full,
    ring_station,
    wait_until,
)
from tests.ring_support import Later, needs_rings, without_room_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.links.broadcast.publisher import Broadcast
    from heliograph.model.event import Header

pytestmark = needs_rings

AIR = "link to all who read the ring"


class Image(hg.Event, name="air.image"):
    id: int
    pixels: NDArray[np.float32]


class Picture(hg.Event, name="air.picture"):
    id: int
    data: NDArray[np.uint8]


class NativePicture(hg.Event, name="air.native-picture", body="native"):
    id: int
    data: NDArray[np.uint8]


class Blob(hg.Event, name="air.blob"):
    id: int
    data: bytes


class Numbers(hg.Event, name="air.numbers"):
    id: int
    all: list[int]


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    own_meeting_folder(monkeypatch, tmp_path)
    yield from domain_with_rings()


def carriers(station: hg.Station, channel: str) -> list[tuple[str, str]]:
    assert station.mesh is not None
    return sorted((one.carrier, one.reason) for one in station.mesh.carriers(channel))


def broadcast_of(station: hg.Station) -> Broadcast:
    assert station.mesh is not None
    return station.mesh._airing._broadcasts[carrier_choice.NORMAL]


def test_how_a_channel_is_carried_is_known_only_where_it_is_open(domain: str) -> None:
    with ring_station(domain) as a, pytest.raises(hg.NotPossible, match="is not open in this station"):
        carriers(a, "air.tracks")


def test_a_carrier_without_a_domain_is_refused() -> None:
    with pytest.raises(hg.NotPossible, match=r"transport='ring': .* add domain="):
        hg.Station(transport="ring")


def test_an_event_is_written_once_for_all_stations_that_read_the_ring(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours = a.channel("air.tracks", Track)
        consumers = [station.channel("air.tracks", Track).consumer() for station in (b, c)]
        assert ours.wait_matched(2, LIMIT)
        assert carriers(a, "air.tracks") == [("ring", "")] * 2
        for i in range(100):
            ours.push(Track(i))
        for consumer in consumers:
            assert [consumer.pull(LIMIT) for _ in range(100)] == [Track(i) for i in range(100)]
        assert wait_until(lambda: not ours.stats().total.pending), "both say that they have taken it in"
        stats = ours.stats()
        assert stats.balanced
        assert {name: counts.delivered for name, counts in stats.consumers.items()} == {AIR: 100}
        assert a.mesh is not None
        assert [link.events_sent for link in a.mesh.stats()] == [100, 100]


def test_each_station_gets_what_its_consumers_want_and_no_more(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        ours = a.channel("air.tracks", Track)
        low, high = b.channel("air.tracks", Track), c.channel("air.tracks", Track)
        slow, fast = low.consumer(where="speed < 10"), high.consumer(where="speed > 90")
        assert ours.wait_matched(2, LIMIT)
        for i in range(101):
            ours.push(Track(i, float(i)))
        assert [slow.pull(LIMIT) for _ in range(10)] == [Track(i, float(i)) for i in range(10)]
        assert [fast.pull(LIMIT) for _ in range(10)] == [Track(i, float(i)) for i in range(91, 101)]
        assert (slow.pull(0), fast.pull(0)) == (None, None)
        assert wait_until(lambda: not ours.stats().total.pending)
        assert ours.stats().consumers[AIR].delivered == 20, "what nobody wants is not written"
        assert low.stats().balanced
        assert high.stats().balanced


def test_stations_with_and_without_rings_get_every_event_once_and_in_order(domain: str) -> None:
    with (
        ring_station(domain) as a,
        ring_station(domain) as b,
        hg.Station(domain=domain, transport="socket") as c,
    ):
        ours = a.channel("air.tracks", Track)
        consumers = [station.channel("air.tracks", Track).consumer() for station in (b, c)]
        assert ours.wait_matched(2, LIMIT)
        assert c.mesh is not None
        assert c.mesh.meet_all(LIMIT)
        assert carriers(a, "air.tracks") == [("ring", ""), ("socket", airing.NOT_THERE)]
        assert carriers(c, "air.tracks") == [("socket", NOT_ASKED_FOR)] * 2
        for i in range(0, 1_000, 10):
            ours.push(Track(i))
            ours.push_many([Track(i + j) for j in range(1, 10)])
        for consumer in consumers:
            assert [consumer.pull(LIMIT) for _ in range(1_000)] == [Track(i) for i in range(1_000)]
            assert consumer.pull(0) is None
        assert ours.stats().balanced


@pytest.mark.parametrize(
    ("qos", "reason"),
    [
        (hg.QoS(durability="transient"), "its events are kept"),
        (hg.QoS(ack="delivered"), "its receivers acknowledge"),
        (
            hg.QoS(overflow="drop_oldest"),
            "it is reliable and may lose events, and then every station loses others",
        ),
        (
            hg.QoS(reliability="best-effort", overflow="coalesce"),
            "of each key only the newest event waits",
        ),
    ],
)
def test_what_needs_more_than_a_broadcast_goes_by_link_and_says_why(
    domain: str, qos: hg.QoS, reason: str
) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("x", Track, qos=qos), b.channel("x", Track, qos=qos).consumer()
        assert ours.wait_matched(1, LIMIT)
        pushing = Thread(target=ours.push, args=(Track(1),))  # with `delivered` it waits for the consumer
        pushing.start()
        assert consumer.pull(LIMIT) == Track(1)
        consumer.pull(0)
        pushing.join(LIMIT)
        assert [why for _, why in carriers(a, "x")] == [reason]


def test_every_field_of_a_header_survives(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Track)
        seen: list[tuple[Track, Header]] = []
        theirs.subscribe(lambda track, header: seen.append((track, header)), inline=True)
        assert ours.wait_matched(1, LIMIT)
        with ours.supplier("radar-1") as radar:
            said: dict[str, Any] = {
                "priority": 5,
                "source_ts": 7,
                "correlation_id": "c",
                "headers": {"traceparent": "1"},
            }
            receipt = radar.push_nowait(Track(1))
            assert wait_until(lambda: len(seen) == 1)
            rich = radar.push_nowait(Track(2), **said)
            assert wait_until(lambda: len(seen) == 2)
        for (_, arrived), sent in zip(seen, (receipt, rich), strict=True):
            assert arrived.hops == 1
            for field in ("supplier", "epoch", "sequence", "source_ts", "format_id", "priority", "key"):
                assert getattr(arrived, field) == getattr(sent.header, field)
            for field in ("channel", "type", "station_seq", "correlation_id", "headers", "lifetime_ns"):
                assert getattr(arrived, field) == getattr(sent.header, field)


def test_a_lifespan_goes_on_and_a_filter_of_the_header_holds(domain: str) -> None:
    qos = hg.QoS(lifespan=60.0)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, theirs = a.channel("x", Track, qos=qos), b.channel("x", Track, qos=qos)
        seen: list[tuple[int, int | None]] = []
        theirs.subscribe(
            lambda track, header: seen.append((track.id, header.lifetime_ns)), where="header.sequence > 1"
        )
        assert ours.wait_matched(1, LIMIT)
        for i in range(3):
            ours.push(Track(i))
        assert wait_until(lambda: len(seen) == 2)
        assert [track for track, _ in seen] == [1, 2]
        assert all(left is not None and 0 < left < 60e9 for _, left in seen)


@pytest.mark.parametrize("size", [10, 100_000, 2_000_000])
def test_arrays_cross_also_when_they_are_larger_than_the_ring(domain: str, size: int) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("images", Image), b.channel("images", Image).consumer()
        assert ours.wait_matched(1, LIMIT)
        for i in range(3):
            ours.push(Image(i, np.arange(i, size + i, dtype=np.float32)))
        for i in range(3):
            got = consumer.pull(LIMIT)
            assert got is not None
            assert got.id == i
            assert got.pixels.shape == (size,)
            assert (got.pixels == np.arange(i, size + i)).all()


@pytest.mark.parametrize("reliability", ["reliable", "best-effort"])
@pytest.mark.parametrize("kind", [Picture, NativePicture, Blob])
def test_large_and_small_events_come_whole_and_in_order_around_every_limit(
    domain: str, monkeypatch: pytest.MonkeyPatch, kind: type[Any], reliability: Any
) -> None:
    """Through a ring of 512 KiB, or of 128 for best effort; in pieces if they are larger than half of it."""
    monkeypatch.setattr(airing, "SLOTS", 1 << 13)
    half = (1 << 18) if reliability == "reliable" else (1 << 16)
    sizes = [10, *(limit + by for limit in (LARGE, half) for by in (-200, -96, -60, -32, 0, 40))] * 2
    if reliability == "reliable":
        sizes.append(3 * half)
    qos = hg.QoS(reliability=reliability)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("images", kind, qos=qos), b.channel("images", kind, qos=qos).consumer()
        assert ours.wait_matched(1, LIMIT)
        for i, size in enumerate(sizes):
            data = np.full(size, i, dtype=np.uint8)
            ours.push(kind(i, data.tobytes() if kind is Blob else data))
            got = consumer.pull(LIMIT)
            assert got is not None
            assert (got.id, len(got.data), set(bytes(got.data))) == (i, size, {i})
        assert b_missed(b, a) == 0


def test_a_full_queue_pauses_its_channel_and_no_other(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        qos = hg.QoS(queue=10, max_blocking=0.05)
        full, free = a.channel("full", Track, qos=qos), a.channel("free", Track)
        stalled = b.channel("full", Track, qos=qos).consumer()
        flowing = [station.channel("free", Track).consumer() for station in (b, c)]
        assert full.wait_matched(1, LIMIT)
        assert free.wait_matched(2, LIMIT)
        pushed = push_until_full(full)
        with pytest.raises(hg.QueueFull, match=f"^link to {b.id:016x} has 10 events waiting"):
            full.push(Track(pushed))
        free.push(Track(1))
        assert [consumer.pull(LIMIT) for consumer in flowing] == [Track(1)] * 2
        assert [stalled.pull(LIMIT) for _ in range(pushed)] == [Track(i) for i in range(pushed)]
        assert full.stats().balanced


def test_a_full_ring_holds_the_supplier_back_until_its_reader_goes_on(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 8)
    qos = hg.QoS(queue=10, max_blocking=0.05)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, go_on, seen = a.channel("x", Track, qos=qos), Event(), []

        def slow(track: Track) -> None:
            seen.append(track.id)
            go_on.wait(LIMIT)

        b.channel("x", Track, qos=qos).subscribe(slow, inline=True)
        assert ours.wait_matched(1, LIMIT)
        pushed = push_until_full(ours)
        with pytest.raises(hg.QueueFull, match=f"^link to {b.id:016x} has 10 events waiting"):
            ours.push(Track(pushed))
        go_on.set()
        assert wait_until(lambda: len(seen) == pushed)
        assert seen == list(range(pushed))


@pytest.mark.parametrize("slots", [1 << 8, 1 << 15])
def test_suppliers_in_many_threads_keep_their_order_and_the_ledger_balances(
    domain: str, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr(airing, "SLOTS", slots)
    qos = hg.QoS(queue=300, max_blocking=LIMIT)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, theirs = a.channel("x", Track, qos=qos), b.channel("x", Track, qos=qos)
        seen: dict[str, list[int]] = {}
        theirs.subscribe(
            lambda track, header: seen.setdefault(header.supplier, []).append(track.id), inline=True
        )
        assert ours.wait_matched(1, LIMIT)

        def supply(name: str) -> None:
            with ours.supplier(name) as supplier:
                for i in range(0, 4_000, 20):
                    for j in range(18):
                        supplier.push(Track(i + j))
                    supplier.push(Track(i + 18), priority=3)
                    supplier.push_many([Track(i + 19)])

        threads = [Thread(target=supply, args=(f"radar-{i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert ours.stats().balanced
        assert wait_until(lambda: sum(map(len, seen.values())) >= 12_000)
        assert seen == {f"radar-{i}": list(range(4_000)) for i in range(3)}
        assert ours.settle(LIMIT)
        assert ours.stats().balanced
        assert ours.stats().matched == 12_000


@pytest.mark.parametrize("others", [0, 1])
def test_a_reader_that_stands_still_for_too_long_knows_what_it_missed_and_is_linked_without_the_ring(
    domain: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 8)
    monkeypatch.setattr(airing, "LEASE", 3_600.0)
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.1)
    qos = hg.QoS(queue=300, max_blocking=0.05)
    with ExitStack() as stack:
        a, b = (stack.enter_context(ring_station(domain)) for _ in range(2))
        ours, theirs, go_on, seen = (
            a.channel("x", Track, qos=qos),
            b.channel("x", Track, qos=qos),
            Event(),
            [],
        )

        def stuck(track: Track) -> None:
            seen.append(track.id)
            go_on.wait(LIMIT)

        theirs.subscribe(stuck, inline=True)
        heard: list[int] = []
        for _ in range(others):
            c = stack.enter_context(ring_station(domain))
            c.channel("x", Track, qos=qos).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(1 + others, LIMIT)
        later = Later.of(broadcast_of(a).ring)
        pushed = push_until_full(ours)
        later.by_ns = 3_600 * 10**9
        assert wait_until(lambda: missed_by(a, b)), "its writer drops it without a word from it"
        assert ours.settle(LIMIT)
        assert wait_until(lambda: len(heard) == others * pushed)
        assert heard == list(range(others * pushed))
        stats = ours.stats()
        assert stats.balanced
        counts = stats.total
        assert counts.dropped["overtaken"] > 0
        # What waited for room when it left: the others still got it, and without any it was dropped.
        waited = missed_by(a, b)["x"] - counts.dropped["overtaken"]
        assert counts.dropped.get("closed", 0) == (0 if others else waited)
        go_on.set()
        assert wait_until(lambda: len(seen) + b_missed(b, a) == pushed), (seen, b_missed(b, a), pushed)
        assert seen == list(range(len(seen)))
        assert ours.wait_matched(1 + others, LIMIT)
        assert airing.OVERTAKEN in [reason for _, reason in carriers(a, "x")]
        ours.push(Track(1_000_000))
        assert wait_until(lambda: seen[-1:] == [1_000_000])
        assert len(seen) - 1 + b_missed(b, a) == pushed
    assert "the broadcast of station" in caplog.text


def test_a_reader_that_would_miss_nothing_is_waited_for_only_shortly_and_reads_again(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 8)
    monkeypatch.setattr(airing, "LEASE", 3_600.0)
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.1)
    with ring_station(domain) as a, ring_station(domain) as b, ring_station(domain) as c:
        qos = hg.QoS(queue=10, max_blocking=0.05)
        ours, other = a.channel("x", Track, qos=qos), a.channel("y", Track, qos=qos)
        go_on, seen, heard = Event(), [], []

        def stuck(track: Track) -> None:
            seen.append(track.id)
            go_on.wait(LIMIT)

        b.channel("y", Track, qos=qos).subscribe(stuck, inline=True)
        c.channel("x", Track, qos=qos).subscribe(lambda track: heard.append(track.id), inline=True)
        assert ours.wait_matched(1, LIMIT)
        assert other.wait_matched(1, LIMIT)
        later = Later.of(broadcast_of(a).ring)
        other.push(Track(0))
        assert wait_until(lambda: seen == [0])
        pushed = push_until_full(ours)
        later.by_ns = round(SHORT_LEASE * 1e9)
        assert wait_until(lambda: len(heard) == pushed), "it is not waited for, for it takes nothing of this"
        go_on.set()
        assert wait_until(lambda: other.wait_matched(1, 0) and carriers(a, "y") == [("ring", "")] * 2)
        other.push(Track(1))
        assert wait_until(lambda: seen == [0, 1])
        assert (missed_by(a, b), b_missed(b, a)) == ({}, 0)
        assert ours.stats().total.dropped == other.stats().total.dropped == {}


def missed_by(station: hg.Station, other: hg.Station) -> dict[str, int]:
    """What a station says that another one did not get of its broadcast."""
    assert station.mesh is not None
    (stats,) = (link for link in station.mesh.stats() if link.peer == f"{other.id:016x}")
    return dict(stats.overtaken)


def b_missed(station: hg.Station, other: hg.Station) -> int:
    """What a station knows that it did not get of another one's broadcast."""
    assert station.mesh is not None
    (stats,) = (link for link in station.mesh.stats() if link.peer == f"{other.id:016x}")
    return sum(stats.missed.values())


def test_a_slow_inline_callback_loses_nothing_and_pauses_only_its_channel(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "SLOTS", 1 << 10)
    monkeypatch.setattr(airing, "LEASE", 1.0)
    qos = hg.QoS(max_blocking=LIMIT)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, other = a.channel("x", Track, qos=qos), a.channel("other", Track)
        seen: list[int] = []
        pause = Event()

        def slow(track: Track) -> None:
            seen.append(track.id)
            if len(seen) < 1_500:
                pause.wait(0.002)  # what the ring holds takes longer than the lease

        b.channel("x", Track, qos=qos).subscribe(slow, inline=True)
        quick = b.channel("other", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        assert other.wait_matched(1, LIMIT)
        for i in range(0, 10_000, 2):
            ours.push(Track(i))
            ours.push_many([Track(i + 1)])
        other.push(Track(7))
        assert quick.pull(LIMIT) == Track(7)
        assert wait_until(lambda: len(seen) >= 10_000)
        assert seen == list(range(10_000))
        assert carriers(a, "x") == [("ring", "")]


@pytest.mark.parametrize("transport", ["ring", "socket"])
@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
def test_a_callback_that_wants_to_exit_ends_neither_the_link_nor_the_broadcast(
    domain: str, transport: Any, raised: type[BaseException]
) -> None:
    told: list[BaseException] = []
    with (
        hg.Station(domain=domain, transport=transport) as a,
        hg.Station(domain=domain, transport=transport, on_error=lambda _, __, error: told.append(error)) as b,
    ):
        ours, seen = a.channel("x", Track), []

        def leave(track: Track) -> None:
            seen.append(track.id)
            raise raised(track.id)

        theirs = b.channel("x", Track)
        theirs.subscribe(leave, inline=True)
        assert ours.wait_matched(1, LIMIT)
        for i in range(5):
            ours.push(Track(i))
        ours.push_many([Track(i) for i in range(5, 10)])
        assert wait_until(lambda: len(told) >= 10)
        assert seen == list(range(10))
        # Counted when it has been told.
        assert wait_until(lambda: theirs.stats().total.failed == 10)
        assert theirs.stats().balanced


@pytest.mark.parametrize("record", [b"", b"\x03", b"\xff" * 40])
def test_whatever_ends_the_reading_the_link_serves_from_then_on(domain: str, record: bytes) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("x", Track), b.channel("x", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        broadcast = broadcast_of(a)
        with broadcast._sending:
            broadcast.ring.append(record)
        assert wait_until(lambda: carriers(a, "x") == [("socket", f"the other station: {airing.FAILED}")])
        assert wait_until(lambda: any(name != AIR for name in ours.stats().consumers))
        ours.push(Track(1))
        assert consumer.pull(LIMIT) == Track(1)


def test_a_station_that_comes_while_the_last_one_leaves_is_heard(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        other = a.channel("other", Track)
        b.channel("other", Track).consumer()
        assert other.wait_matched(1, LIMIT)
        broadcast, ours, joined = broadcast_of(a), a.channel("x", Track), []
        wanted: dict[type[hg.Event], ReceiverCondition] = {Track: ReceiverCondition()}
        first, second = ReaderSession(1, 1), ReaderSession(2, 2)
        coming = Thread(target=lambda: joined.append(broadcast.admit(second, ours, wanted)))
        drop = BroadcastGateway.drop

        def drop_slowly(self: BroadcastGateway, reason: str) -> None:
            coming.start()
            coming.join(0.2)  # the time in which it could come between
            drop(self, reason)

        last = broadcast.admit(first, ours, wanted)
        with monkeypatch.context() as patched:
            patched.setattr(BroadcastGateway, "drop", drop_slowly)
            broadcast.leave(first, last)
        coming.join(LIMIT)
        assert ours.receivers() == tuple(joined)
        ours.push(Track(1))
        assert ours.stats().balanced
        broadcast.leave(second, joined[0])


def test_nothing_is_counted_for_stations_that_are_gone(domain: str) -> None:
    with ring_station(domain) as a:
        ours = a.channel("x", Track)
        for _ in range(2):
            with ring_station(domain) as b:
                consumer = b.channel("x", Track).consumer()
                assert ours.wait_matched(1, LIMIT)
                ours.push(Track(1))
                assert consumer.pull(LIMIT) == Track(1)
            assert a.mesh is not None
            assert wait_until(lambda: a.mesh is not None and not a.mesh.stats())
            assert wait_until(lambda: not broadcast_of(a)._gateways)


def test_without_room_for_a_broadcast_links_serve_and_say_why(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = without_room_for(carrier_choice.NORMAL, monkeypatch)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("x", Track), b.channel("x", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        ours.push(Track(1))
        assert consumer.pull(LIMIT) == Track(1)
        assert wait_until(lambda: carriers(a, "x") == [("socket", str(error))])


def test_a_channel_that_nobody_wants_is_written_no_more_until_somebody_does(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, theirs = a.channel("x", Track), b.channel("x", Track)
        for i in range(3):
            with theirs.consumer() as consumer:
                assert ours.wait_matched(1, LIMIT)
                ours.push(Track(i))
                assert consumer.pull(LIMIT) == Track(i)
                assert consumer.pull(0) is None
            assert wait_until(lambda: not ours.stats().consumers)
            ours.push(Track(-1))
        assert a.mesh is not None
        assert a.mesh.stats()[0].events_sent == 3
        assert ours.stats().balanced


def test_what_was_pushed_before_a_station_leaves_still_arrives(domain: str) -> None:
    with ring_station(domain) as b:
        seen: list[int] = []
        b.channel("x", Track).subscribe(lambda track: seen.append(track.id), inline=True)
        with ring_station(domain) as a:
            ours = a.channel("x", Track)
            assert ours.wait_matched(1, LIMIT)
            for i in range(5_000):
                ours.push(Track(i))
        assert wait_until(lambda: len(seen) >= 5_000)
        assert seen == list(range(5_000))


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_what_was_put_aside_still_arrives_when_its_station_has_left(domain: str, transport: Any) -> None:
    qos = hg.QoS(queue=10, max_blocking=LIMIT)
    with hg.Station(domain=domain, transport=transport) as b:
        theirs = b.channel("x", Track, qos=qos)
        consumer = theirs.consumer()
        with hg.Station(domain=domain, transport=transport) as a:
            ours = a.channel("x", Track, qos=hg.QoS(max_blocking=LIMIT))
            assert ours.wait_matched(1, LIMIT)
            ours.push_many([Track(i) for i in range(50)])
        assert b.mesh is not None
        assert wait_until(lambda: b.mesh is not None and not b.mesh.stations())
        assert [consumer.pull(LIMIT) for _ in range(50)] == [Track(i) for i in range(50)]
        assert theirs.stats().balanced


def test_what_is_in_the_ring_arrives_after_its_station_has_left_however_slow_the_reader(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.3)
    with ring_station(domain) as b:
        seen: list[int] = []
        pause = Event()

        def slow(track: Track) -> None:
            seen.append(track.id)
            pause.wait(0.003)

        b.channel("x", Track).subscribe(slow, inline=True)
        with ring_station(domain) as a:
            ours = a.channel("x", Track)
            assert ours.wait_matched(1, LIMIT)
            for i in range(400):
                ours.push(Track(i))
        assert wait_until(lambda: len(seen) >= 400)
        assert seen == list(range(400))


def test_what_is_left_out_when_a_station_begins_anew_is_counted(
    domain: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(airing, "DRAIN_LIMIT", 0.1)
    with ring_station(domain) as b:
        seen: list[int] = []
        go_on = Event()

        def stuck(track: Track) -> None:
            seen.append(track.id)
            go_on.wait(LIMIT)

        b.channel("x", Track).subscribe(stuck, inline=True)
        with ring_station(domain) as a:
            ours = a.channel("x", Track)
            assert ours.wait_matched(1, LIMIT)
            ours.push(Track(0))
            assert wait_until(lambda: bool(seen))
            ours.push_many([Track(i) for i in range(1, 20)])
            assert ours.settle(LIMIT), "they are in the ring"
            assert b.mesh is not None
            peer = b.mesh._peers[a.id]
            listening = peer.rings.listening[carrier_choice.NORMAL]
            peer.link.begin_anew()
            assert wait_until(
                lambda: peer.rings.listening.get(carrier_choice.NORMAL) not in (None, listening)
            )
            go_on.set()
            assert wait_until(lambda: "19 events of station" in caplog.text)
            assert ours.wait_matched(1, LIMIT)
            ours.push(Track(20))
            assert wait_until(lambda: seen == [0, 20])


@pytest.mark.plain_locks
@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_an_event_that_was_changed_after_its_push_harms_no_other(domain: str, transport: Any) -> None:
    with (
        hg.Station(domain=domain, transport=transport) as a,
        hg.Station(domain=domain, transport=transport) as b,
    ):
        ours, other = a.channel("x", Numbers), a.channel("other", Track)
        consumer, quick = b.channel("x", Numbers).consumer(), b.channel("other", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        assert other.wait_matched(1, LIMIT)
        assert a.mesh is not None
        events = [Numbers(i, [i]) for i in range(6)]
        link = a.mesh._peers[b.id].link
        with broadcast_of(a)._sending if transport == "ring" else nullcontext():
            link._is_sending = True  # as while another thread sends: they wait
            for event in events:
                ours.push(event)
            events[2].all.append(object())  # type: ignore[arg-type]  # it is wrong
            link._is_sending = False
        link.pump()
        assert [consumer.pull(LIMIT) for _ in range(5)] == [Numbers(i, [i]) for i in (0, 1, 3, 4, 5)]
        other.push(Track(7))
        assert quick.pull(LIMIT) == Track(7)
        stats = ours.stats()
        assert stats.balanced
        assert [dict(counts.dropped) for counts in stats.consumers.values()] == [{"unwritable": 1}]


def test_many_suppliers_together_have_little_more_waiting_than_the_queue_holds(domain: str) -> None:
    qos = hg.QoS(queue=256, max_blocking=0.01)
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("x", Track, qos=qos), b.channel("x", Track, qos=qos).consumer()
        assert ours.wait_matched(1, LIMIT)
        suppliers = [ours.supplier() for _ in range(10)]
        pushed = 0
        while suppliers:
            for supplier in tuple(suppliers):
                try:
                    supplier.push(Track(pushed))
                    pushed += 1
                except hg.QueueFull:
                    suppliers.remove(supplier)
        # What is pushed within 50 µs after a record comes on top: it is not looked at one by one.
        (gateway,) = ours.receivers()
        assert isinstance(gateway, BroadcastGateway)
        assert gateway.queue.counts().pending <= 2 * MOST_ROWS
        for _ in range(pushed):
            assert consumer.pull(LIMIT) is not None
        assert ours.stats().balanced


def test_a_new_session_is_broadcast_anew_without_a_repetition(domain: str) -> None:
    with ring_station(domain) as a, ring_station(domain) as b:
        ours, consumer = a.channel("x", Track), b.channel("x", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        assert a.mesh is not None
        peer = a.mesh._peers[b.id]
        for i in range(3):
            ours.push(Track(i))
            assert consumer.pull(LIMIT) == Track(i)
            before = peer.carriers["x"]
            assert isinstance(before.gateway, BroadcastGateway)
            peer.link.begin_anew()
            assert wait_until(lambda: peer.carriers.get("x") not in (None, before))  # noqa: B023 - called at once
        assert consumer.pull(0) is None
