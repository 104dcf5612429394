"""A filter that takes long: whoever pushes what it looks at waits for it, and nobody else does.

On a persistent channel too, where events are handed on by the thread that has synced them.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

import pytest

import heliograph as hg
from heliograph.channel.publish.queue_sink import TOGETHER
from heliograph.channel.routing.filter_index import MERGED
from heliograph.filters import python_codegen as emit
from heliograph.filters import python_operations
from heliograph.model.event import Header, info_of
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.qos.policies import Durability
    from heliograph.station import Station
    from heliograph.testing import Rig

Receive: TypeAlias = "Callable[[Channel[Note], SimpleQueue[str]], None]"

LIMIT = 10.0
"""Seconds that nothing here takes."""
FILTER = "upper(text) <> ''"


class Note(hg.Event, name="note"):
    text: str


class LongFilter:
    """`upper` of the text "slow" takes until somebody says that it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def upper(self, text: str) -> str:
        if text == "slow":
            self.begun.set()
            assert self.may_end.wait(LIMIT)
        return python_operations.upper(text)


@pytest.fixture
def long_filter(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongFilter]:
    filtering = LongFilter()
    monkeypatch.setitem(emit._RUNTIME, "upper", filtering.upper)
    yield filtering
    filtering.may_end.set()


def in_a_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def alone(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    channel.subscribe(lambda note: heard.put(note.text), where=FILTER)


def beside_others(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    channel.subscribe(lambda _: None)
    channel.subscribe(lambda _: None, where="header.priority = 3")
    channel.subscribe(lambda note: heard.put(note.text), where=FILTER)


def in_a_group(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    for _ in range(2):
        channel.subscribe(lambda note: heard.put(note.text), where=FILTER, group="g")


def asking_for_the_header(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    where = f"{FILTER} AND header.priority = 3 AND header.channel = 'c' AND header.user['k'] IS NULL"
    channel.subscribe(lambda note: heard.put(note.text), where=where)


def asking_for_suppliers(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    where = f"{FILTER} OR header.supplier = 'nobody'"
    channel.subscribe(lambda note: heard.put(note.text), where=where)
    channel.subscribe(lambda _: None, where="header.epoch = 0")


def asking_for_the_place(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    """Only what asks for it waits until an event has it."""
    channel.subscribe(lambda note: heard.put(note.text), where=f"{FILTER} AND header.sequence > 0")


def asking_for_the_place_beside_others(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    channel.subscribe(lambda _: None)
    channel.subscribe(lambda _: None, where=f"{FILTER} AND header.sequence < 0")
    channel.subscribe(lambda _: None, where="header.station_seq < 0 OR header.offset < 0")
    asking_for_the_place(channel, heard)
    for _ in range(2):
        channel.subscribe(lambda _: None, where=f"{FILTER} AND header.sequence < 0", group="g")


def in_a_crowd(channel: Channel[Note], heard: SimpleQueue[str]) -> None:
    """Those beyond the hundredth are found through an index."""
    for n in range(MERGED):
        channel.subscribe(lambda _: None, where=f"text = '{n}'")
    channel.subscribe(lambda _: None, where="header.priority = 1")
    channel.subscribe(lambda note: heard.put(note.text), where=FILTER)


RECEIVERS = [
    alone,
    beside_others,
    in_a_group,
    asking_for_the_header,
    asking_for_suppliers,
    asking_for_the_place,
    asking_for_the_place_beside_others,
    in_a_crowd,
]


def one(channel: Channel[Note]) -> None:
    channel.supplier().push(Note("slow"))


def not_waiting(channel: Channel[Note]) -> None:
    channel.supplier().push_nowait(Note("slow"))


def saying_something(channel: Channel[Note]) -> None:
    channel.supplier().push(Note("slow"), priority=3)


def repeatably(channel: Channel[Note]) -> None:
    channel.supplier().push(Note("slow"), id="once")


def together(channel: Channel[Note]) -> None:
    channel.supplier().push_many([Note("slow")])


def from_elsewhere(channel: Channel[Note]) -> None:
    header = Header("c", "note", "there", 1, 1, 0, info_of(Note).format.id)
    channel.neighbours.intake("there").take_in([(Note("slow"), header, 0)])


@pytest.mark.parametrize("receive", RECEIVERS)
@pytest.mark.parametrize("push", [one, not_waiting, saying_something, together, from_elsewhere])
def test_other_suppliers_of_its_channel_push_meanwhile(
    station: Station, long_filter: LongFilter, receive: Receive, push: Callable[[Channel[Note]], None]
) -> None:
    check_that_others_push(station.channel("c", Note), long_filter, receive, push)


@pytest.mark.parametrize("receive", RECEIVERS)
@pytest.mark.parametrize("push", [one, not_waiting, saying_something, repeatably, together])
def test_so_they_do_where_events_are_kept(
    helio: Rig, long_filter: LongFilter, receive: Receive, push: Callable[[Channel[Note]], None]
) -> None:
    """What they push is synced, acknowledged and delivered meanwhile."""
    channel = helio.station.channel("c", Note, qos=QoS(durability="persistent"))
    check_that_others_push(channel, long_filter, receive, push)
    assert channel.stats().balanced


def check_that_others_push(
    channel: Channel[Note],
    long_filter: LongFilter,
    receive: Receive,
    push: Callable[[Channel[Note]], None],
) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    receive(channel, heard)
    slow = in_a_thread(lambda: push(channel))
    assert long_filter.begun.wait(LIMIT)
    other = in_a_thread(lambda: channel.push(Note("quick")))
    other.join(LIMIT)
    assert not other.is_alive()
    assert heard.get(timeout=LIMIT) == "quick"
    long_filter.may_end.set()
    assert heard.get(timeout=LIMIT) == "slow"
    slow.join(LIMIT)


@pytest.mark.parametrize("durability", ["volatile", "persistent"])
def test_so_they_do_where_push_waits_for_acknowledgements(
    helio: Rig, long_filter: LongFilter, durability: Durability
) -> None:
    channel = helio.station.channel("c", Note, qos=QoS(ack="delivered", durability=durability))
    heard: SimpleQueue[str] = SimpleQueue()
    alone(channel, heard)
    slow = in_a_thread(lambda: channel.supplier().push(Note("slow")))
    assert long_filter.begun.wait(LIMIT)
    other = in_a_thread(lambda: channel.push(Note("quick")))
    other.join(LIMIT)
    assert not other.is_alive()
    long_filter.may_end.set()
    slow.join(LIMIT)
    assert [heard.get(timeout=LIMIT) for _ in range(2)] == ["quick", "slow"]


def test_a_batch_that_waits_for_room_is_not_looked_at_anew_for_each_event(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def upper(text: str) -> str:
        asked.append(text)
        return text

    monkeypatch.setitem(emit._RUNTIME, "upper", upper)
    channel = station.channel("c", Note)
    notes = [Note(str(n)) for n in range(400)]
    with channel.consumer(where=FILTER, queue=1) as consumer:
        pushing = in_a_thread(lambda: channel.push_many(notes))
        assert [consumer.pull(timeout=LIMIT) for _ in notes] == notes
        pushing.join(LIMIT)
    assert len(asked) < TOGETHER + 6 * len(notes)


@pytest.mark.parametrize("others", [0, MERGED])
@pytest.mark.parametrize("durability", ["volatile", "persistent"])
def test_who_joins_while_it_is_evaluated_gets_the_event_too(
    helio: Rig, long_filter: LongFilter, durability: Durability, others: int
) -> None:
    """An event is pushed when it enters the queues, and goes by the routes of that instant."""
    channel = helio.station.channel("c", Note, qos=QoS(durability=durability))
    heard: SimpleQueue[str] = SimpleQueue()
    for n in range(others):
        channel.subscribe(lambda _: None, where=f"text = '{n}'")
    changed = channel.subscribe(lambda note: heard.put(f"before {note.text}"), where=FILTER)
    slow = in_a_thread(lambda: one(channel))
    assert long_filter.begun.wait(LIMIT)
    channel.subscribe(lambda note: heard.put(f"joined {note.text}"), where="text = 'slow'")
    changed.change(where="text = 'quick'")
    long_filter.may_end.set()
    slow.join(LIMIT)
    channel.push(Note("quick"))
    assert sorted(heard.get(timeout=LIMIT) for _ in range(2)) == ["before quick", "joined slow"]
    assert channel.settle(LIMIT)
    assert heard.empty()


@pytest.mark.parametrize("together", [False, True])
def test_a_filter_for_which_there_is_no_memory_costs_no_event_that_is_kept(
    helio: Rig, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    tries: list[str] = []

    def upper(text: str) -> str:
        tries.append(text)
        if len(tries) == 1:
            raise MemoryError
        return python_operations.upper(text)

    monkeypatch.setitem(emit._RUNTIME, "upper", upper)
    channel = helio.station.channel("notes", Note, qos=QoS(durability="persistent"))
    with channel.consumer(where=FILTER) as filtered, channel.consumer() as other:
        assert channel.push_many([Note("huge")]) if together else channel.push(Note("huge"))
        for consumer in (filtered, other):
            assert consumer.pull(LIMIT) == Note("huge")
    assert len(tries) > 1
