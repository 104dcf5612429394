"""The way in: batches are as single pushes, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.publish import queue_sink
from heliograph.errors import QueueFull, WouldDeadlock
from heliograph.qos.policies import QoS
from heliograph.station import Station
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel

LIMIT = 10.0


class Reading(hg.Event, key="sensor"):
    sensor: int
    value: int


class Note(hg.Event):
    text: str


EVENTS = st.one_of(
    st.builds(Reading, sensor=st.integers(0, 3), value=st.integers(0, 9)), st.builds(Note, text=st.just("n"))
)
RECEIVERS = st.lists(
    st.tuples(
        st.sampled_from([None, "value > 4", "sensor = 1"]),
        st.sampled_from([None, "g"]),
        st.sampled_from(["block", "drop_oldest", "drop_newest"]),
        st.integers(1, 12),
    ),
    max_size=4,
)


@settings(max_examples=examples(150))
@given(st.lists(EVENTS, max_size=40), RECEIVERS, st.booleans(), st.sampled_from([3, 256]))
def test_a_batch_is_as_its_events_pushed_one_by_one(
    events: list[Any], receivers: list[tuple[Any, ...]], inline: bool, together: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, Station() as station:
        patch.setattr(queue_sink, "TOGETHER", together)
        outcomes = [_outcome(station, name, events, receivers, inline) for name in ("ones", "many")]
    assert outcomes[0] == outcomes[1]


def _outcome(
    station: Station, name: str, events: list[Any], receivers: list[tuple[Any, ...]], inline: bool
) -> tuple[Any, ...]:
    """What everybody got, and how many were pushed before a queue was full."""
    qos = QoS(max_blocking=0.0, durability="transient", history=2)
    channel: Channel[Any] = station.channel(name, Reading, Note, qos=qos)
    called: list[Any] = []
    if inline:
        channel.subscribe(called.append, inline=True)
    consumers = [
        channel.consumer(where=where, group=group, overflow=overflow, queue=queue, types=(Reading,))
        for where, group, overflow, queue in receivers
    ]
    pushed = len(events)
    if name == "many":
        try:
            channel.push_many(events)
        except QueueFull as error:
            pushed = error.pushed
    else:
        for number, event in enumerate(events):
            try:
                channel.push(event)
            except QueueFull:
                pushed = number
                break
    late = channel.consumer(start="earliest")
    stats = channel.stats()
    assert stats.balanced
    got = [consumer.read(max=100, timeout=0.0) for consumer in (*consumers, late)]
    return pushed, called, got, stats.matched, [c.dropped for c in stats.consumers.values()]


def test_events_pushed_together_have_headers_as_those_pushed_alone(station: Station) -> None:
    channel: Channel[Any] = station.channel("both", Reading, Note, qos=QoS(lifespan=60.0, priority=4))
    consumer = channel.consumer()
    channel.push_many([Reading(1, 2), Reading(3, 4), Note("n")])
    channel.push(Reading(5, 6))
    headers = [delivery.header for delivery in consumer.deliveries(timeout=0.0)]
    assert [h.sequence for h in headers] == [1, 2, 3, 4]
    assert [h.key for h in headers] == [(1,), (3,), (), (5,)]
    assert {(h.lifetime_ns, h.priority) for h in headers} == {(60 * 10**9, 4)}
    assert [h.station_seq for h in headers] == sorted({h.station_seq for h in headers})


@pytest.mark.parametrize("where", [None, "value >= 0"], ids=["everything", "filtered"])
@pytest.mark.parametrize("durability", ["volatile", "transient"])
def test_a_batch_finds_no_room_in_a_queue_that_is_filled_beyond_its_limit(
    station: Station, where: str | None, durability: Any
) -> None:
    """As one is by history, and by rows of a broadcast."""
    channel = station.channel("c", Reading, qos=QoS(queue=3, max_blocking=0.0, durability=durability))
    consumer = channel.consumer(where=where)
    header = channel.supplier("before").next_header(Reading(0, 0))
    for n in range(8):
        consumer.queue.put_extra((Reading(0, n), header, 0))
    for many in (2, 40):
        with pytest.raises(QueueFull) as caught:
            channel.push_many([Reading(1, n) for n in range(many)])
        assert caught.value.pushed == 0
    assert consumer.read(max=100, timeout=0.0) == [Reading(0, n) for n in range(8)]


class TestTurns:
    @pytest.fixture
    def crowded(self, station: Station) -> Channel[Reading]:
        return station.channel("crowded", Reading, qos=QoS(queue=1, max_blocking=LIMIT))

    def test_a_later_push_does_not_overtake_one_that_waits(self, crowded: Channel[Reading]) -> None:
        consumer = crowded.consumer(name="narrow", where="sensor = 1")
        others = crowded.consumer(name="others", where="sensor = 2")
        crowded.push(Reading(1, 1))
        first = threading.Thread(target=crowded.push, args=(Reading(1, 2),))
        first.start()
        _wait_until_one_waits(crowded)
        second = threading.Thread(target=crowded.push_many, args=([Reading(2, 3)],))
        second.start()
        assert others.pull(timeout=0.05) is None, "there is room for it, but it is not its turn"
        assert consumer.pull(LIMIT) == Reading(1, 1)
        assert others.pull(LIMIT) == Reading(2, 3)
        for thread in (first, second):
            thread.join(LIMIT)
        assert consumer.pull(LIMIT) == Reading(1, 2)

    def test_push_nowait_behind_one_that_waits_is_refused_at_once(self, crowded: Channel[Reading]) -> None:
        consumer = crowded.consumer(name="narrow")
        crowded.push(Reading(1, 1))
        first = threading.Thread(target=crowded.push, args=(Reading(1, 2),))
        first.start()
        _wait_until_one_waits(crowded)
        with pytest.raises(QueueFull, match="narrow"):
            crowded.push_nowait(Reading(1, 3))
        assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Reading(1, 1), Reading(1, 2)]
        first.join(LIMIT)

    def test_a_callback_behind_a_push_that_waits_for_it_is_told(self, crowded: Channel[Reading]) -> None:
        told: SimpleQueue[BaseException] = SimpleQueue()
        started, full = threading.Event(), threading.Event()

        def push_back(_: Reading) -> None:
            started.set()
            full.wait(LIMIT)
            try:
                crowded.push(Reading(9, 9))
            except WouldDeadlock as error:
                told.put(error)

        crowded.subscribe(push_back, where="sensor = 1")
        crowded.push(Reading(1, 1))
        assert started.wait(LIMIT)
        crowded.push(Reading(1, 2))
        waiting = threading.Thread(target=crowded.push, args=(Reading(1, 3),))
        waiting.start()
        _wait_until_one_waits(crowded)
        full.set()
        assert isinstance(told.get(timeout=LIMIT), WouldDeadlock)
        waiting.join(LIMIT)
        assert not waiting.is_alive()

    def test_routes_that_change_while_a_push_waits_are_used_when_it_goes_on(
        self, crowded: Channel[Reading]
    ) -> None:
        consumer = crowded.consumer(name="narrow", where="sensor = 1")
        crowded.push(Reading(1, 1))
        waiting = threading.Thread(target=crowded.push, args=(Reading(1, 2),))
        waiting.start()
        _wait_until_one_waits(crowded)
        late = crowded.consumer(name="late")
        with pytest.raises(QueueFull, match="narrow"):
            crowded.push_nowait(Reading(2, 3))
        assert consumer.pull(LIMIT) == Reading(1, 1)
        assert late.pull(LIMIT) == Reading(1, 2)
        waiting.join(LIMIT)


def _wait_until_one_waits(channel: Channel[Any]) -> None:
    ends = time.monotonic() + LIMIT
    while not channel._own.entry.barred:
        assert time.monotonic() < ends
        time.sleep(0.001)


def _one_by_one(channel: Channel[Reading], events: list[Reading]) -> None:
    for event in events:
        channel.push(event)


def _awaited(channel: Channel[Reading], events: list[Reading]) -> None:
    async def push() -> None:
        for event in events:
            await channel.apush(event)

    asyncio.run(push())


def _together(channel: Channel[Reading], events: list[Reading]) -> None:
    channel.push_many(events)


PUSHES = {"push": _one_by_one, "apush": _awaited, "push_many": _together}
WANTED: dict[str, dict[str, Any]] = {
    "everything": {},
    "some": {"where": "value >= 0"},
    "its place": {"where": "header.sequence > 0"},
    "in a group": {"group": "g"},
}
ASK_NO_PLACE = ("everything", "some")
"""To the others an event is shown with its number, so a try that found no room has used one up."""


@pytest.mark.parametrize("push", PUSHES)
@pytest.mark.parametrize("wanted", WANTED)
def test_events_that_wait_for_room_have_one_number_each_and_count_once(
    station: Station, push: str, wanted: str
) -> None:
    channel = station.channel("c", Reading, qos=QoS(queue=2, max_blocking=LIMIT))
    events = [Reading(0, n) for n in range(30)]
    with channel.consumer(**WANTED[wanted]) as consumer, channel.consumer(where="value < 0"):
        pushing = threading.Thread(target=PUSHES[push], args=(channel, events))
        pushing.start()
        numbers = []
        for delivery in consumer.deliveries(timeout=LIMIT):
            numbers.append(delivery.header.sequence)
            if len(numbers) == len(events):
                break
        pushing.join(LIMIT)
    assert channel.stats().pushed == len(events)
    if wanted in ASK_NO_PLACE or push == "push":
        assert numbers == list(range(1, len(events) + 1))
    else:
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("wanted", WANTED)
def test_a_push_that_is_refused_does_not_count(station: Station, wanted: str) -> None:
    channel = station.channel("c", Reading, qos=QoS(queue=2, max_blocking=0.0))
    with channel.consumer(**WANTED[wanted]) as consumer:
        channel.push_many([Reading(0, n) for n in range(2)])
        for push in (channel.push, channel.push_nowait):
            with pytest.raises(QueueFull):
                push(Reading(0, 2))
        assert channel.stats().pushed == 2
        assert len(consumer.read(max=2, timeout=LIMIT)) == 2
        channel.push(Reading(0, 3))
        assert channel.stats().pushed == 3
        (delivery,) = consumer.deliveries(timeout=0.0)
    if wanted in ASK_NO_PLACE:
        assert delivery.header.sequence == 3, "what was refused had no number"
