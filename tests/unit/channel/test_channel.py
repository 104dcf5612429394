"""Channels inside one process, through the face that users see."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import heliograph as hg
from heliograph.codec.columnar import columns
from heliograph.errors import (
    CallbackStuck,
    ChannelExists,
    Closed,
    NoSuchChannel,
    NotPossible,
    QueueFull,
    WouldDeadlock,
    WrongEventType,
)
from heliograph.qos.policies import QoS
from heliograph.station import Station
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Header

LIMIT = 10.0
"""Seconds after which a wait counts as a hang."""


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "unknown"


class Weather(hg.Event, name="air.weather"):
    region: str
    wind: float


@pytest.fixture
def tracks(station: Station) -> Channel[Track]:
    return station.channel("air.tracks", Track)


class Inbox:
    """A callback that keeps what it was given and can be waited for."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, event: Any) -> None:
        self._queue.put(event)

    def get(self, n: int) -> list[Any]:
        return [self._queue.get(timeout=LIMIT) for _ in range(n)]

    def __len__(self) -> int:
        return self._queue.qsize()


class TestSubscribing:
    def test_a_function_gets_what_its_filter_wants(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        tracks.subscribe(inbox, where="speed > :limit AND region = 'north'", params={"limit": 300})
        for n, (speed, region) in enumerate([(410, "north"), (410, "south"), (10, "north"), (301, "north")]):
            assert tracks.push(Track(n, speed, region))
        assert [track.id for track in inbox.get(2)] == [0, 3]

    def test_a_decorated_function_stays_itself_and_can_be_unsubscribed(self, tracks: Channel[Track]) -> None:
        seen = Inbox()

        @tracks.subscribe(where="id = 1")
        def on_one(track: Track) -> None:
            seen(track)

        tracks.push(Track(1))
        assert seen.get(1) == [Track(1)]
        tracks.unsubscribe(on_one)
        tracks.push(Track(1))
        assert tracks.stats().matched == 1

    def test_unsubscribing_a_stranger_is_refused(self, tracks: Channel[Track]) -> None:
        with pytest.raises(NotPossible, match="not subscribed"):
            tracks.unsubscribe(print)

    def test_a_callback_with_two_parameters_gets_the_header_too(self, tracks: Channel[Track]) -> None:
        inbox: SimpleQueue[Header] = SimpleQueue()
        tracks.subscribe(lambda track, header: inbox.put(header))
        tracks.push(Track(7), priority=4, correlation_id="c-1", headers={"traceparent": "00-ab"})
        header = inbox.get(timeout=LIMIT)
        assert (header.channel, header.type, header.key) == ("air.tracks", "air.track", (7,))
        assert (header.priority, header.correlation_id, header.headers) == (
            4,
            "c-1",
            {"traceparent": "00-ab"},
        )
        assert header.format_id == hg.format_of(Track).id
        assert header.sequence == 1

    def test_one_object_pushed_twice_has_two_headers(self, tracks: Channel[Track]) -> None:
        inbox: SimpleQueue[tuple[Track, Header]] = SimpleQueue()
        tracks.subscribe(lambda track, header: inbox.put((track, header)))
        track = Track(1)
        tracks.push(track)
        tracks.push(track)
        (first, one), (second, two) = inbox.get(timeout=LIMIT), inbox.get(timeout=LIMIT)
        assert first is second is track, "in one process events are shared, not copied"
        assert (one.sequence, two.sequence) == (1, 2)
        assert one.id != two.id

    def test_an_inline_callback_runs_inside_push(self, tracks: Channel[Track]) -> None:
        threads: list[int] = []
        tracks.subscribe(lambda _: threads.append(threading.get_ident()), inline=True)
        tracks.push(Track(1))
        assert threads == [threading.get_ident()]

    def test_a_queued_callback_runs_in_another_thread(self, tracks: Channel[Track]) -> None:
        inbox: SimpleQueue[int] = SimpleQueue()
        tracks.subscribe(lambda _: inbox.put(threading.get_ident()))
        tracks.push(Track(1))
        assert inbox.get(timeout=LIMIT) != threading.get_ident()

    def test_sources_choose_suppliers(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        tracks.subscribe(inbox, sources=["radar-1"])
        with tracks.supplier("radar-1") as first, tracks.supplier("radar-2") as second:
            second.push(Track(2))
            first.push(Track(1))
        assert inbox.get(1) == [Track(1)]
        assert tracks.stats().matched == 1

    def test_a_filter_can_look_at_the_header(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        tracks.subscribe(inbox, where="header.priority >= 4")
        tracks.push(Track(1))
        tracks.push(Track(2), priority=5)
        assert inbox.get(1) == [Track(2)]

    def test_a_built_filter_is_the_same_as_its_text(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        tracks.subscribe(
            inbox,
            where=(hg.col("speed") > hg.param("limit")) & (hg.col("region") == "north"),
            params={"limit": 300},
        )
        tracks.push_many([Track(1, 400.0, "north"), Track(2, 400.0, "south"), Track(3, 200.0, "north")])
        assert inbox.get(1) == [Track(1, 400.0, "north")]
        assert tracks.stats().matched == 1

    def test_a_mistake_in_a_filter_fails_where_it_is_written(self, tracks: Channel[Track]) -> None:
        with pytest.raises(hg.ExpressionError, match="sped"):
            tracks.subscribe(print, where="sped > 300")

    def test_options_that_do_not_go_together_are_refused(self, tracks: Channel[Track]) -> None:
        with pytest.raises(NotPossible, match="inline"):
            tracks.subscribe(print, inline=True, queue=5)

        async def later(_: Track) -> None: ...

        with pytest.raises(NotPossible, match="async def"):
            tracks.subscribe(later, inline=True)
        with pytest.raises(NotPossible, match="allowed is one of block"):
            tracks.subscribe(print, overflow="spill")  # type: ignore[call-overload]  # the mistake under test
        with pytest.raises(TypeError, match="has no option 'filter'; it has where, params"):
            tracks.subscribe(print, filter="id = 1")  # type: ignore[call-overload]  # likewise
        with pytest.raises(TypeError, match="a filter goes into where="):
            tracks.subscribe("id = 1")  # type: ignore[call-overload]  # likewise
        with pytest.raises(NotPossible, match="without where="):
            tracks.subscribe(print, params={"limit": 300})
        with pytest.raises(NotPossible, match="a group's name"):
            tracks.consumer(group=3)  # type: ignore[arg-type]  # likewise
        with pytest.raises(NotPossible, match="priority"):
            tracks.subscribe(print, priority=6)
        with pytest.raises(TypeError, match="or with the event and its header"):
            tracks.subscribe(lambda a, b, c: None)

    def test_a_type_without_a_key_is_refused_where_a_receiver_coalesces(self, station: Station) -> None:
        """Whoever named its types is not given this one, and nothing has changed when it is refused."""
        tracks = station.channel("air", Track)
        first = tracks.consumer()
        all_of_them = tracks.consumer(overflow="coalesce", name="latest")
        with pytest.raises(NotPossible, match=r"latest has overflow='coalesce' .*'air\.weather'.*no key"):
            station.channel("air", Weather)
        assert tracks.types == (Track,)
        assert list(first.selection.conditions) == [Track]
        all_of_them.close()
        tracks.consumer(overflow="coalesce", types=[Track])
        station.channel("air", Weather)
        assert set(tracks.type_names) == {"air.track", "air.weather"}

    @pytest.mark.parametrize("first", [Weather, Track])
    def test_a_channel_that_coalesces_carries_types_with_a_key(
        self, station: Station, first: type[hg.Event]
    ) -> None:
        with pytest.raises(NotPossible, match=r"overflow='coalesce' and .* has no key: class Weather\(hg"):
            station.channel("air", first, Weather, qos=QoS(overflow="coalesce"))
        assert station.channels() == ()
        tracks = station.channel("air", Track, qos=QoS(overflow="coalesce"))
        with pytest.raises(NotPossible, match="has no key"):
            station.channel("air", Weather)
        assert tracks.types == (Track,)

    def test_none_is_no_function_to_subscribe(self, station: Station) -> None:
        tracks = station.channel("air.tracks", Track)
        for subscribe in (tracks.subscribe, tracks.for_consumers().subscribe):
            with pytest.raises(TypeError, match="None cannot be called"):
                subscribe(None)  # type: ignore[call-overload]  # the test

    @pytest.mark.parametrize(
        ("types", "sentence"), [("air.track", "'air.track' is text, no event class"), (3, "3 is no event")]
    )
    def test_types_are_classes(self, station: Station, types: Any, sentence: str) -> None:
        tracks = station.channel("air.tracks", Track)
        with pytest.raises(hg.FormatError, match=sentence):
            tracks.consumer(types=types)

    @pytest.mark.parametrize("timeout", ["1", "", -1, float("nan"), float("inf"), 1e300, True])
    @pytest.mark.parametrize("waiting", [0, 1])
    def test_a_timeout_is_seconds_whatever_waits(self, station: Station, timeout: Any, waiting: int) -> None:
        tracks = station.channel("air.tracks", Track)
        consumer = tracks.consumer()
        for n in range(waiting):
            tracks.push(Track(n))
        calls = (consumer.pull, consumer.deliveries, tracks.settle, partial(tracks.wait_matched, 1))
        sentence = r"timeout=.*: seconds from 0 on, up to 1,000,000,000, or None"
        for call in (*calls, partial(consumer.read, 3)):
            with pytest.raises(NotPossible, match=sentence):
                call(timeout=timeout)
        assert consumer.counts().pending == waiting

    def test_coalescing_needs_a_key(self, station: Station) -> None:
        weather = station.channel("air.weather", Weather)
        with pytest.raises(NotPossible, match="key="):
            weather.subscribe(print, overflow="coalesce")


class TestTypes:
    def test_one_channel_carries_several_types(self, station: Station) -> None:
        both = station.channel("air", Track, Weather)
        everything, only_weather = Inbox(), Inbox()
        both.subscribe(everything)
        both.subscribe(only_weather, types=[Weather])
        both.push(Track(1))
        both.push(Weather("north", 3.0))
        assert everything.get(2) == [Track(1), Weather("north", 3.0)]
        assert only_weather.get(1) == [Weather("north", 3.0)]

    def test_a_filter_applies_to_the_types_that_have_its_fields(self, station: Station) -> None:
        both = station.channel("air", Track, Weather)
        windy = Inbox()
        both.subscribe(windy, where="wind > 2")
        both.push(Track(1))
        both.push(Weather("north", 3.0))
        assert windy.get(1) == [Weather("north", 3.0)]

    def test_a_type_that_the_channel_does_not_carry_is_refused(self, tracks: Channel[Track]) -> None:
        with pytest.raises(
            WrongEventType, match=r"carries air\.track \(Track\), not air\.weather \(Weather\)"
        ):
            tracks.push(Weather("north", 1.0))  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(WrongEventType, match="not 3"):
            tracks.push(3)  # type: ignore[arg-type]  # likewise

    def test_two_classes_of_one_name_are_refused(self, station: Station) -> None:
        class Other(hg.Event, name="air.track"):
            id: int

        with pytest.raises(NotPossible, match=r"both called 'air\.track'"):
            station.channel("twice", Track, Other)
        tracks = station.channel("once", Track)
        with pytest.raises(NotPossible, match=r"both called .*: give one of them another name="):
            station.channel("once", Other)
        assert tracks.types == (Track,)

    def test_one_type_need_not_stand_in_a_list(self, station: Station) -> None:
        both = station.channel("air", Track, Weather)
        consumer = both.consumer(types=Weather)  # type: ignore[arg-type]  # a convenience at run time
        both.push(Track(1))
        both.push(Weather("north", 1.0))
        assert consumer.read(timeout=0.0) == [Weather("north", 1.0)]

    def test_opening_with_a_further_type_adds_it(self, station: Station) -> None:
        inbox = Inbox()
        station.channel("air", Track).subscribe(inbox)
        station.channel("air", Weather).push(Weather("north", 1.0))
        assert inbox.get(1) == [Weather("north", 1.0)]

    def test_a_bad_value_is_refused_and_nobody_gets_it(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        tracks.subscribe(inbox)
        with pytest.raises(hg.InvalidEvent, match=r"\$\.id"):
            tracks.push(Track("seven"))  # type: ignore[arg-type]  # the mistake under test
        assert tracks.stats().pushed == 0

    def test_push_many_checks_all_before_it_pushes_one(self, tracks: Channel[Track]) -> None:
        with pytest.raises(hg.InvalidEvent):
            tracks.push_many([Track(1), Track(2), Track(None)])  # type: ignore[arg-type]  # likewise
        assert tracks.stats().pushed == 0


class TestColumns:
    def test_a_mapping_of_columns_becomes_events(self, tracks: Channel[Track]) -> None:
        consumer = tracks.consumer()
        tracks.push_many({"id": np.arange(3), "speed": [1.0, 2.5, 3.0]})
        assert consumer.read(timeout=0.0) == [Track(0, 1.0), Track(1, 2.5), Track(2, 3.0)]

    def test_an_arrow_batch_or_table_becomes_events(self, tracks: Channel[Track]) -> None:
        events = [Track(1, 1.0, "north"), Track(2, 2.0, "south")]
        batch = columns.to_batch(hg.format_of(Track), events)
        consumer = tracks.consumer()
        tracks.push_many(batch)
        tracks.push_many(pa.Table.from_batches([batch]))
        assert consumer.read(timeout=0.0) == [*events, *events]

    @pytest.mark.parametrize(
        "bad",
        [{"id": [1, 2], "speed": [1.0]}, {"id": ["x"]}, {"speed": [1.0]}, {"id": [1], "height": [2.0]}],
    )
    def test_columns_that_do_not_fit_push_nothing(self, tracks: Channel[Track], bad: dict[str, Any]) -> None:
        with pytest.raises(hg.InvalidEvent):
            tracks.push_many(bad)
        assert tracks.stats().pushed == 0

    def test_columns_need_a_channel_of_one_type(self, station: Station) -> None:
        both = station.channel("air", Track, Weather)
        with pytest.raises(NotPossible, match="several types"):
            both.push_many({"id": [1]})


class TestConsumers:
    def test_iterating_ends_when_the_consumer_is_closed(self, tracks: Channel[Track]) -> None:
        with tracks.consumer() as consumer:
            tracks.push_many([Track(n) for n in range(3)])
            seen = []
            for track in consumer:
                seen.append(track.id)
                if len(seen) == 3:
                    consumer.close()
        assert seen == [0, 1, 2]

    def test_pull_gives_none_when_nothing_came_in_time(self, tracks: Channel[Track]) -> None:
        with tracks.consumer() as consumer:
            assert consumer.pull(timeout=0.0) is None
            assert consumer.pull(timeout=0.001) is None
            tracks.push(Track(1))
            assert consumer.pull(timeout=LIMIT) == Track(1)

    def test_read_takes_what_is_there_up_to_a_number(self, tracks: Channel[Track]) -> None:
        with tracks.consumer() as consumer:
            tracks.push_many([Track(n) for n in range(5)])
            assert [t.id for t in consumer.read(max=3, timeout=LIMIT)] == [0, 1, 2]
            assert [t.id for t in consumer.read(max=3, timeout=LIMIT)] == [3, 4]
            assert consumer.read(max=3, timeout=0.0) == []

    def test_deliveries_bring_headers(self, tracks: Channel[Track]) -> None:
        with tracks.consumer() as consumer:
            tracks.push(Track(1))
            delivery = next(iter(consumer.deliveries()))
            assert (delivery.event, delivery.header.sequence) == (Track(1), 1)

    def test_a_waiting_pull_is_woken_by_close(self, tracks: Channel[Track]) -> None:
        consumer = tracks.consumer()
        results: SimpleQueue[Track | None] = SimpleQueue()
        waiter = threading.Thread(target=lambda: results.put(consumer.pull()))
        waiter.start()
        consumer.close()
        assert results.get(timeout=LIMIT) is None
        waiter.join(LIMIT)

    def test_async_iteration(self, tracks: Channel[Track]) -> None:
        async def main() -> list[int]:
            seen = []
            with tracks.consumer() as consumer:
                pusher = threading.Thread(target=lambda: tracks.push_many([Track(n) for n in range(100)]))
                pusher.start()
                async for track in consumer:
                    seen.append(track.id)
                    if len(seen) == 100:
                        break
                pusher.join()
            return seen

        assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == list(range(100))

    def test_a_consumer_is_closed_at_the_end_of_async_with(self, tracks: Channel[Track]) -> None:
        async def main() -> list[int]:
            async with tracks.consumer() as consumer:
                tracks.push(Track(1))
                async for track in consumer:
                    return [track.id, len(tracks.stats().consumers)]
            return []

        assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == [1, 1]
        assert tracks.stats().consumers == {}

    def test_deliveries_can_be_awaited(self, tracks: Channel[Track]) -> None:
        async def main() -> list[tuple[int, int, bool]]:
            with tracks.consumer() as consumer:
                found = []
                tracks.push(Track(1))
                async for delivery in consumer.deliveries():
                    found.append((delivery.event.id, delivery.header.sequence, delivery.ack()))
                    if delivery.event.id == 2:
                        break
                    # Pushed by another thread, while this task waits.
                    threading.Timer(0.01, tracks.push, (Track(2),)).start()
                return found

        assert asyncio.run(main()) == [(1, 1, True), (2, 2, True)]

    def test_awaited_deliveries_end_when_none_came_in_time_or_it_is_closed(
        self, tracks: Channel[Track]
    ) -> None:
        async def main() -> list[int]:
            consumer = tracks.consumer()
            tracks.push_many([Track(1), Track(2)])
            found = [delivery.event.id async for delivery in consumer.deliveries(timeout=0.01)]
            threading.Timer(0.01, consumer.close).start()
            found += [delivery.event.id async for delivery in consumer.deliveries()]
            return found

        assert asyncio.run(main()) == [1, 2]

    def test_a_refused_delivery_comes_again_to_a_task(self, tracks: Channel[Track]) -> None:
        async def main() -> list[bool]:
            with tracks.consumer(ack="manual") as consumer:
                tracks.push(Track(1))
                found = []
                async for delivery in consumer.deliveries():
                    found.append(delivery.redelivered)
                    if delivery.redelivered:
                        delivery.ack()
                        break
                    delivery.nak(delay=0.01)
                return found

        assert asyncio.run(main()) == [False, True]

    def test_the_first_use_binds_the_way(self, tracks: Channel[Track]) -> None:
        consumer = tracks.consumer()
        consumer.pull(timeout=0.0)

        async def main() -> None:
            async for _ in consumer:
                pass

        with pytest.raises(NotPossible, match="blocking way"):
            asyncio.run(main())

    def test_apush_and_async_callbacks(self, tracks: Channel[Track]) -> None:
        async def main() -> list[int]:
            done = asyncio.Event()
            seen: list[int] = []

            async def on_track(track: Track) -> None:
                await asyncio.sleep(0)
                seen.append(track.id)
                if len(seen) == 10:
                    done.set()

            tracks.subscribe(on_track)
            for n in range(10):
                await tracks.apush(Track(n))
            await asyncio.wait_for(done.wait(), LIMIT)
            return seen

        assert asyncio.run(main()) == list(range(10))

    def test_leaving_a_station_inside_asyncio_delivers_what_waits(self) -> None:
        async def main() -> list[int]:
            seen: list[int] = []

            async def on_track(track: Track) -> None:
                await asyncio.sleep(0)
                seen.append(track.id)

            async with Station() as station:
                tracks = station.channel("air.tracks", Track)
                tracks.subscribe(on_track)
                for n in range(50):
                    await tracks.apush(Track(n), priority=3)
            return seen

        assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == list(range(50))

    def test_an_async_callback_without_a_loop_runs_on_the_stations(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()

        async def on_track(track: Track) -> None:
            inbox(track)

        tracks.subscribe(on_track)
        tracks.push(Track(5))
        assert inbox.get(1) == [Track(5)]


class TestGroups:
    def test_each_event_goes_to_one_member(self, tracks: Channel[Track]) -> None:
        members = [Inbox() for _ in range(3)]
        for inbox in members:
            tracks.subscribe(inbox, group="workers")
        alone = Inbox()
        tracks.subscribe(alone)
        for n in range(300):
            tracks.push(Track(n % 50))
        assert len(alone.get(300)) == 300
        station_stats = tracks.stats()
        assert station_stats.matched == 600
        assert station_stats.balanced

    def test_a_key_sticks_to_its_member(self, tracks: Channel[Track]) -> None:
        consumers = [tracks.consumer(group="workers") for _ in range(3)]
        for n in range(300):
            tracks.push(Track(n % 100))
        owner: dict[int, int] = {}
        total = 0
        for i, consumer in enumerate(consumers):
            for track in consumer.read(max=1000, timeout=0.0):
                assert owner.setdefault(track.id, i) == i
                total += 1
        assert total == 300
        assert set(owner.values()) == {0, 1, 2}, "100 keys leave none of three members without work"

    def test_what_waits_for_a_leaving_member_goes_to_the_others(self, tracks: Channel[Track]) -> None:
        first, second = (tracks.consumer(group="workers") for _ in range(2))
        tracks.push_many([Track(n) for n in range(100)])
        first.close()
        assert sorted(t.id for t in second.read(max=1000, timeout=0.0)) == list(range(100))
        assert tracks.stats().balanced


class TestCrowds:
    """So many receivers that an index finds them instead of one merged function."""

    def test_each_gets_what_it_wants_and_no_more(self, tracks: Channel[Track]) -> None:
        consumers = [tracks.consumer(where=f"id = {n % 500} AND speed >= {n % 3}") for n in range(1000)]
        for n in range(500):
            tracks.push(Track(n, speed=float(n % 3)))
        for n, consumer in enumerate(consumers):
            wanted = [Track(n % 500, float(n % 500 % 3))] if n % 500 % 3 >= n % 3 else []
            assert consumer.read(timeout=0.0) == wanted
        assert tracks.stats().balanced

    def test_leaving_and_types_that_come_later_are_seen(self, station: Station) -> None:
        channel = station.channel("air", Track)
        consumers = [channel.consumer(where="region = 'north'") for _ in range(150)]
        consumers[149].close()
        consumers[0].close()
        station.channel("air", Weather).push(Weather("north", 1.0))
        channel.push(Track(1, region="north"))
        for consumer in consumers[1:149]:
            assert consumer.read(timeout=0.0) == [Weather("north", 1.0), Track(1, region="north")]
        stats = channel.stats()
        assert (stats.matched, stats.balanced) == (2 * 148, True)


class TestFullQueues:
    def test_a_full_queue_blocks_then_raises_and_nobody_got_the_event(self, station: Station) -> None:
        tracks = station.channel("slow", Track, qos=QoS(queue=2, max_blocking=0.01))
        full = tracks.consumer(name="full")
        other = tracks.consumer(name="other", queue=10)
        tracks.push_many([Track(1), Track(2)])
        with pytest.raises(QueueFull, match="full has 2 events waiting") as caught:
            tracks.push(Track(3))
        assert caught.value.retriable
        assert [t.id for t in other.read(timeout=0.0)] == [1, 2]
        assert [t.id for t in full.read(timeout=0.0)] == [1, 2]
        assert tracks.push(Track(3))
        assert [t.id for t in other.read(timeout=0.0)] == [3]

    def test_a_blocked_push_goes_on_when_there_is_room(self, station: Station) -> None:
        tracks = station.channel("slow", Track, qos=QoS(queue=1, max_blocking=LIMIT))
        consumer = tracks.consumer()
        tracks.push(Track(1))
        pusher = threading.Thread(target=tracks.push, args=(Track(2),))
        pusher.start()
        assert consumer.pull(LIMIT) == Track(1)
        assert consumer.pull(LIMIT) == Track(2)
        pusher.join(LIMIT)
        assert not pusher.is_alive()

    def test_push_nowait_does_not_wait(self, station: Station) -> None:
        tracks = station.channel("slow", Track, qos=QoS(queue=1, max_blocking=1000.0))
        tracks.consumer()
        assert tracks.push_nowait(Track(1)).result(timeout=1.0)
        with pytest.raises(QueueFull):
            tracks.push_nowait(Track(2))

    def test_push_many_says_how_many_went_before(self, station: Station) -> None:
        tracks = station.channel("slow", Track, qos=QoS(queue=3, max_blocking=0.0))
        tracks.consumer()
        with pytest.raises(QueueFull) as caught:
            tracks.push_many([Track(n) for n in range(5)])
        assert caught.value.pushed == 3

    def test_waiting_for_a_queue_that_this_thread_drains_is_refused(self, station: Station) -> None:
        tracks = station.channel("loop", Track, qos=QoS(queue=1, max_blocking=1000.0))
        errors: SimpleQueue[BaseException] = SimpleQueue()
        ready = threading.Event()

        def push_back(track: Track) -> None:
            ready.wait(LIMIT)
            try:
                for _ in range(3):
                    tracks.push(Track(track.id + 1))
            except WouldDeadlock as error:
                errors.put(error)

        tracks.subscribe(push_back)
        tracks.push(Track(1))
        ready.set()
        assert isinstance(errors.get(timeout=LIMIT), WouldDeadlock)

    def test_best_effort_drops_the_oldest_and_counts(self, station: Station) -> None:
        tracks = station.channel("lossy", Track, qos=QoS(reliability="best-effort", queue=2))
        consumer = tracks.consumer()
        tracks.push_many([Track(n) for n in range(5)])
        assert [t.id for t in consumer.read(timeout=0.0)] == [3, 4]
        assert tracks.stats().total.dropped == {"oldest": 3}

    def test_a_consumer_chooses_its_own_policy(self, tracks: Channel[Track]) -> None:
        latest = tracks.consumer(overflow="coalesce")
        for n in range(10):
            tracks.push(Track(n % 2, speed=float(n)))
        assert [(t.id, t.speed) for t in latest.read(timeout=0.0)] == [(0, 8.0), (1, 9.0)]


class TestIsolation:
    def test_a_callback_that_waits_does_not_hold_up_push_or_others(self, tracks: Channel[Track]) -> None:
        let_go = threading.Event()
        others = [Inbox() for _ in range(5)]
        tracks.subscribe(lambda _: let_go.wait(LIMIT), name="waits")
        for inbox in others:
            tracks.subscribe(inbox)
        for n in range(100):
            tracks.push(Track(n))
        for inbox in others:
            assert [t.id for t in inbox.get(100)] == list(range(100))
        assert tracks.stats().consumers["waits"].delivered == 0
        let_go.set()

    def test_many_blocked_callbacks_do_not_starve_the_others(self, tracks: Channel[Track]) -> None:
        let_go = threading.Event()
        for _ in range(10):
            tracks.subscribe(lambda _: let_go.wait(LIMIT))
        inbox = Inbox()
        tracks.subscribe(inbox)
        tracks.push(Track(1))
        assert inbox.get(1) == [Track(1)]
        let_go.set()

    def test_a_callback_that_raises_is_reported_and_goes_on(self) -> None:
        reported: SimpleQueue[tuple[str, BaseException]] = SimpleQueue()
        with Station(on_error=lambda name, _, error: reported.put((name, error))) as station:
            tracks = station.channel("air.tracks", Track)
            inbox = Inbox()

            def fails_on_one(track: Track) -> None:
                if track.id == 1:
                    raise RuntimeError("no ones here")
                inbox(track)

            tracks.subscribe(fails_on_one)
            tracks.subscribe(fails_on_one, name="inline", inline=True)
            tracks.push_many([Track(1), Track(2)])
            assert inbox.get(2) == [Track(2), Track(2)]
            names = {reported.get(timeout=LIMIT)[0] for _ in range(2)}
            assert names == {"fails_on_one", "inline"}
            assert tracks.close() == {}
            stats = tracks.stats()
            assert (stats.total.failed, stats.total.delivered, stats.balanced) == (2, 2, True)

    def test_a_callback_that_never_returns_is_detached_and_close_returns(self) -> None:
        never = threading.Event()
        told: SimpleQueue[tuple[str, BaseException]] = SimpleQueue()
        with Station(callback_limit=1.0, on_error=lambda name, _, error: told.put((name, error))) as station:
            tracks = station.channel("air.tracks", Track)
            inbox = Inbox()
            stuck = tracks.subscribe(lambda _: never.wait(), name="stuck")
            tracks.subscribe(inbox)
            tracks.push_many([Track(n) for n in range(10)])
            assert len(inbox.get(10)) == 10
            name, error = told.get(timeout=LIMIT)
            assert name == stuck.name
            assert isinstance(error, CallbackStuck)
            assert name not in tracks.stats().consumers
            assert station.close(timeout=1.0) == {}
            assert tracks.stats().total.pending + tracks.stats().total.dropped.get("stuck", 0) == 10
            never.set()
            assert wait_until(lambda: not tracks.stats().total.pending)
            assert tracks.stats().total.dropped == {"stuck": 9}
            assert tracks.stats().balanced

    def test_subscribing_and_closing_inside_callbacks(self, tracks: Channel[Track]) -> None:
        inbox = Inbox()
        subscriptions: list[Any] = []

        def once(track: Track) -> None:
            subscriptions[0].close()
            tracks.subscribe(inbox, name="second")
            tracks.push(Track(track.id + 1))

        subscriptions.append(tracks.subscribe(once))
        tracks.push(Track(1))
        assert inbox.get(1) == [Track(2)]

    def test_the_same_inside_inline_callbacks(self, tracks: Channel[Track]) -> None:
        seen: list[int] = []
        subscriptions: list[Any] = []

        def once(track: Track) -> None:
            subscriptions[0].close()
            tracks.subscribe(lambda t: seen.append(t.id), inline=True)
            tracks.push(Track(track.id + 1))

        subscriptions.append(tracks.subscribe(once, inline=True))
        tracks.push(Track(1))
        assert seen == [2]
        assert tracks.stats().balanced


class TestHistory:
    def test_a_late_joiner_gets_the_kept_depth_per_key(self, station: Station) -> None:
        tracks = station.channel("kept", Track, qos=QoS(durability="transient", history=2))
        for n in range(5):
            tracks.push(Track(1, speed=float(n)))
            tracks.push(Track(2, speed=float(n)))
        late = tracks.consumer(start="earliest", where="id = 1")
        tracks.push(Track(1, speed=99.0))
        assert [t.speed for t in late.read(timeout=0.0)] == [3.0, 4.0, 99.0]
        assert tracks.stats().balanced

    def test_transient_local_history_leaves_with_its_supplier(self, station: Station) -> None:
        tracks = station.channel("kept", Track, qos=QoS(durability="transient-local"))
        with tracks.supplier("gone") as supplier:
            supplier.push(Track(1))
        tracks.push(Track(2))
        assert [t.id for t in tracks.consumer(start="earliest").read(timeout=0.0)] == [2]

    def test_what_was_kept_goes_to_the_first_of_a_group(self, station: Station) -> None:
        tracks = station.channel("kept", Track, qos=QoS(durability="transient"))
        tracks.push_many([Track(n) for n in range(10)])
        first, second = (tracks.consumer(group="g") for _ in range(2))
        assert len(first.read(timeout=0.0)) == 10
        assert second.read(timeout=0.0) == []

    def test_a_volatile_channel_keeps_nothing(self, tracks: Channel[Track]) -> None:
        tracks.push(Track(1))
        assert tracks.consumer(start="earliest", until="now").read(timeout=LIMIT) == []

    def test_until_now_ends_after_the_history(self, station: Station) -> None:
        tracks = station.channel("kept", Track, qos=QoS(durability="transient"))
        tracks.push_many([Track(1), Track(2)])
        assert [t.id for t in tracks.consumer(start="earliest", until="now")] == [1, 2]

    def test_expired_events_are_not_replayed(self, station: Station) -> None:
        tracks = station.channel("short", Track, qos=QoS(durability="transient", lifespan=1e-6))
        tracks.push(Track(1))
        assert tracks.consumer(start="earliest").read(timeout=0.0) == []


class TestClosing:
    def test_leaving_the_station_delivers_what_waits(self) -> None:
        seen: list[int] = []
        with Station() as station:
            tracks = station.channel("air.tracks", Track)
            tracks.subscribe(lambda track: seen.append(track.id))
            tracks.push_many([Track(n) for n in range(1000)])
        assert seen == list(range(1000))

    def test_close_reports_what_could_not_be_delivered_in_time(self) -> None:
        let_go = threading.Event()
        station = Station()
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(lambda _: let_go.wait(LIMIT), name="slow")
        tracks.push_many([Track(n) for n in range(3)])
        assert station.close(timeout=0.01) == {"air.tracks/slow": 3}
        let_go.set()

    def test_after_close_everything_says_so(self) -> None:
        station = Station()
        tracks = station.channel("air.tracks", Track)
        consumer = tracks.consumer()
        station.close()
        for call in (
            lambda: tracks.push(Track(1)),
            lambda: tracks.subscribe(print),
            lambda: station.channel("other", Track),
        ):
            with pytest.raises(Closed):
                call()
        assert consumer.pull() is None
        assert station.close() == {}

    def test_a_closed_supplier_refuses(self, tracks: Channel[Track]) -> None:
        supplier = tracks.supplier("radar-1")
        supplier.push(Track(1))
        supplier.close()
        with pytest.raises(Closed, match="radar-1"):
            supplier.push(Track(2))
        assert tracks.stats().pushed == 1

    def test_a_forked_child_is_told_instead_of_hanging(self, tracks: Channel[Track]) -> None:
        gc.collect()
        pid = os.fork()
        if pid == 0:
            try:
                tracks.push(Track(1))
            except hg.HeliographError as error:
                os._exit(0 if type(error).__name__ == "ForkedStation" else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TestStation:
    def test_mode_insists(self, station: Station) -> None:
        with pytest.raises(NoSuchChannel):
            station.channel("air.tracks", Track, mode="open")
        station.channel("air.tracks", Track, mode="create")
        with pytest.raises(ChannelExists):
            station.channel("air.tracks", Track, mode="create")
        assert station.channel("air.tracks", mode="open").type_names == ("air.track",)

    def test_another_quality_of_service_is_refused(self, station: Station) -> None:
        station.channel("air.tracks", Track, qos=QoS(queue=7))
        with pytest.raises(NotPossible, match="is open with queue=7, not 5; leave out qos="):
            station.channel("air.tracks", Track, qos=QoS(queue=5))

    @pytest.mark.parametrize("name", ["", ".", "a..b", "a/b", "../x", "a b", "a\0b", "x" * 256, "*", "a.*"])
    def test_names_that_could_be_something_else_are_refused(self, station: Station, name: str) -> None:
        with pytest.raises(NotPossible, match="name"):
            station.channel(name, Track)

    def test_a_new_channel_needs_its_types(self, station: Station) -> None:
        with pytest.raises(NotPossible, match="event types"):
            station.channel("air.tracks")
        with pytest.raises(hg.FormatError, match="no event class"):
            station.channel("air.tracks", int)  # type: ignore[type-var]  # the mistake under test

    def test_a_pattern_meets_channels_of_now_and_later(self, station: Station) -> None:
        inbox = Inbox()
        tracks = station.channel("air.tracks", Track)
        subscription = station.subscribe("air.*", inbox)
        late = station.channel("air.late", Track)
        station.channel("sea.tracks", Track).push(Track(3))
        tracks.push(Track(1))
        late.push(Track(2))
        assert sorted(t.id for t in inbox.get(2)) == [1, 2]
        subscription.close()
        late.push(Track(4))
        assert late.stats().matched == 1

    def test_a_pattern_passes_over_channels_that_its_filter_is_not_about(self, station: Station) -> None:
        inbox = Inbox()
        station.subscribe("**", inbox, where="speed > 1")
        station.channel("weather", Weather).push(Weather("north", 1.0))
        station.channel("tracks", Track).push(Track(1, 2.0))
        assert inbox.get(1) == [Track(1, 2.0)]

    def test_what_is_no_quality_of_service_or_mode_is_refused(self, station: Station) -> None:
        with pytest.raises(NotPossible, match="qos is a hg"):
            station.channel("x", Track, qos={})  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(NotPossible, match="mode='w'"):
            station.channel("x", Track, mode="w")  # type: ignore[arg-type]  # likewise

    @pytest.mark.parametrize("pattern", ["", "air*", "a.**b"])
    def test_a_bad_pattern_is_refused(self, station: Station, pattern: str) -> None:
        with pytest.raises(NotPossible):
            station.subscribe(pattern, print)

    def test_wait_matched_sees_a_consumer_that_joins_later(self, tracks: Channel[Track]) -> None:
        assert not tracks.wait_matched(timeout=0.0)
        joiner = threading.Thread(target=tracks.consumer)
        joiner.start()
        assert tracks.wait_matched(consumers=1, timeout=LIMIT)
        joiner.join()


@pytest.fixture(autouse=True)
def no_threads_stay(station: Station) -> Iterator[None]:
    yield
    station.close(timeout=1.0)


def test_a_channel_that_is_open_with_less_than_is_asked_for_is_explained() -> None:
    with hg.Station() as station:
        station.channel("explained", Track, qos=hg.QoS(reliability="best-effort"))
        asked = hg.QoS(reliability="reliable")
        with pytest.raises(NotPossible) as refused:
            station.channel("explained", Track, qos=asked)
    assert str(hg.explain(hg.QoS(reliability="best-effort"), asked)) in str(refused.value)


def test_a_word_that_is_none_of_those_allowed_gets_the_one_that_was_meant() -> None:
    with hg.Station() as station:
        channel = station.channel("hinted", Track)
        with pytest.raises(hg.HeliographError, match=r"did you mean drop_oldest\?"):
            channel.consumer(overflow="drop-oldest")  # type: ignore[arg-type]
    with pytest.raises(hg.InvalidQoS, match=r"did you mean transient-local\?"):
        hg.QoS(durability="transient_local")  # type: ignore[arg-type]


def test_a_start_at_the_beginning_is_no_use_where_nothing_is_kept_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with hg.Station() as station:
        station.channel("kept", Track, qos=hg.QoS(durability="transient")).consumer(
            name="one", start="earliest"
        ).close()
        assert caplog.text == ""
        station.channel("unkept", Track).consumer(name="one", start="earliest").close()
    assert "unkept keeps no events: start='earliest' begins with the next one" in caplog.text
