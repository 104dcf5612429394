"""Suppliers, consumers and the channel between them: what each knows of the others, and what they share."""

from __future__ import annotations

import ast
import asyncio
import gc
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph import codec
from heliograph.channel.publish import supplier as supplier_room
from heliograph.channel.receive import consumer as consumer_room
from heliograph.channel.receive import subscription as receiver_room
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks
from heliograph.sim import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from heliograph.runtime.ports import Lock
    from heliograph.station import Station
    from heliograph.testing import Rig

LIMIT = 10.0


class Note(hg.Event):
    text: str
    data: bytes = b""


def imported_by(room: ModuleType) -> set[str]:
    assert room.__file__ is not None
    tree = ast.parse(Path(room.__file__).read_text())
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_suppliers_and_consumers_import_nothing_of_each_other() -> None:
    """Not for type checkers either."""
    assert consumer_room.__name__ not in imported_by(supplier_room)
    assert receiver_room.__name__ not in imported_by(supplier_room)
    assert supplier_room.__name__ not in imported_by(consumer_room) | imported_by(receiver_room)
    assert "heliograph.model.event" in imported_by(supplier_room) & imported_by(consumer_room)


def said_by(one: object) -> str:
    """All that its public attributes say in words."""
    names = [name for name in dir(one) if not name.startswith("_")]
    return " ".join(repr(getattr(one, name)) for name in names)


def test_neither_side_is_told_who_the_other_is(station: Station) -> None:
    channel = station.channel("c", Note)
    supplier = channel.supplier("radar-7")
    answers = [supplier.push(Note("to nobody"))]
    receivers: list[Any] = [channel.subscribe(lambda _: None, name=f"display-{n}") for n in range(3)]
    receivers.append(channel.consumer(name="display-3"))
    answers.append(supplier.push(Note("to four")))
    receipt = supplier.push_nowait(Note("to four"))
    for receiver in receivers:
        receiver.close()
    answers.append(supplier.push(Note("to nobody again")))
    assert answers == [True, True, True]
    assert "radar-7" in said_by(supplier)
    assert "display" not in said_by(supplier) + said_by(receipt) + repr(receipt.header)
    assert not any("radar" in said_by(receiver) for receiver in receivers)


def test_either_may_come_first_and_go_first(station: Station) -> None:
    channel = station.channel("c", Note)
    with channel.supplier() as early:
        assert early.push(Note("nobody is there"))
    with channel.consumer() as consumer:
        assert consumer.pull(0) is None
        with channel.supplier() as supplier:
            supplier.push(Note("there"))
        assert consumer.pull(LIMIT) == Note("there")


@pytest.mark.parametrize("inline", [True, False])
def test_who_disconnects_gets_nothing_until_it_connects_again(station: Station, inline: bool) -> None:
    channel = station.channel("c", Note)
    seen: list[str] = []

    def take(note: Note) -> None:
        seen.append(note.text)

    for text, connected in (("1", True), ("2", False), ("3", True), ("4", False)):
        subscription = channel.subscribe(take, inline=inline) if connected else None
        channel.push(Note(text))
        assert channel.settle(LIMIT)
        if subscription is not None:
            subscription.close()
    assert seen == ["1", "3"]


def test_each_event_enters_once_however_many_get_it(station: Station) -> None:
    """`station_seq` is taken where events enter: it has a number for each push and no other."""
    channel = station.channel("c", Note)
    headers: list[list[hg.Header]] = [[] for _ in range(7)]
    for n, seen in enumerate(headers):
        channel.subscribe(lambda _, header, seen=seen: seen.append(header), inline=n % 2 == 0)
    suppliers = [channel.supplier() for _ in range(3)]
    for n in range(30):
        suppliers[n % 3].push(Note(str(n)))
    assert channel.settle(LIMIT)
    entered = [header.station_seq for header in headers[0]]
    assert entered == list(range(entered[0], entered[0] + 30))
    assert all([header.station_seq for header in seen] == entered for seen in headers)
    assert (channel.stats().pushed, channel.stats().matched) == (30, 210)


def test_without_filters_everybody_gets_everything(tmp_path: Path) -> None:
    """The standard's broadcast: seven consumers and eleven events are 77 deliveries."""
    file = tmp_path / "helio.toml"
    file.write_text("configuration = 'erm'")
    calls: list[str] = []
    with hg.Station(config=file) as station:
        channel = station.channel("c", Note)
        for _ in range(7):
            channel.subscribe(lambda note: calls.append(note.text))
        channel.push_many([Note(str(n)) for n in range(11)])
    assert sorted(calls, key=int) == [str(n) for n in range(11) for _ in range(7)]


def test_a_push_may_say_a_priority_from_one_to_five(station: Station) -> None:
    channel = station.channel("c", Note)
    seen: list[int] = []
    channel.subscribe(lambda _, header: seen.append(header.priority), inline=True)
    channel.push(Note("as the channel says"))
    for priority in range(1, 6):
        channel.push(Note("n"), priority=priority)
    for wrong in (0, 6, -1, 2.5, True):
        with pytest.raises(hg.InvalidEvent, match="priority"):
            channel.push(Note("n"), priority=wrong)  # type: ignore[arg-type]  # on purpose
    assert seen == [3, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("durability", ["volatile", "persistent"])
def test_a_station_that_joined_to_consume_cannot_push(helio: Rig, durability: Any) -> None:
    channel = helio.station.channel("c", Note, qos=hg.QoS(durability=durability), access="consume")
    channel.subscribe(lambda _: None)
    supplier = channel.supplier("late")
    pushes: list[Callable[[], object]] = [
        lambda: channel.push(Note("n")),
        lambda: channel.push_nowait(Note("n")),
        lambda: channel.push_many([Note("n")]),
        lambda: channel.push(Note("n"), deliver_after=1.0),
        lambda: asyncio.run(channel.apush(Note("n"))),
        lambda: supplier.push(Note("n")),
        lambda: channel.for_suppliers(where="text > ''").supplier().push(Note("n")),
    ]
    for push in pushes:
        with pytest.raises(hg.NotPossible, match="only consumes here"):
            push()
    assert channel.stats().pushed == 0


def test_a_station_that_joined_to_supply_cannot_receive(station: Station) -> None:
    channel = station.channel("c", Note, access="supply")
    assert channel.push(Note("n"))
    receiving: list[Callable[[], object]] = [
        lambda: channel.subscribe(print),
        channel.consumer,
        channel.for_consumers,
        lambda: channel.where("text = 'n'"),
    ]
    for receive in receiving:
        with pytest.raises(hg.NotPossible, match="only supplies here"):
            receive()
    assert station.channel("c", Note) is channel
    with pytest.raises(hg.NotPossible, match="open with access='supply'"):
        station.channel("c", Note, access="both")
    with pytest.raises(hg.NotPossible, match="allowed are both, consume, supply"):
        station.channel("d", Note, access="read")  # type: ignore[arg-type]  # on purpose


class Taken(ThreadTasks):
    """Remembers which thread took which of the locks that have a name."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, str]] = set()
        super().__init__()

    def lock(self, name: str = "lock", *, outer: bool = False) -> Lock:
        inner, taken = super().lock(name, outer=outer), self.taken

        class Noted:
            def acquire(self, *said: Any, **options: Any) -> bool:
                taken.add((threading.current_thread().name, name))
                return inner.acquire(*said, **options)

            def release(self) -> None:
                inner.release()

            def mine(self) -> bool:
                return inner.mine()

            def __enter__(self) -> bool:
                return self.acquire()

            def __exit__(self, *_: object) -> None:
                self.release()

        return Noted()  # type: ignore[return-value]  # as much of a lock as is used

    def of(self, thread: str) -> set[str]:
        return {name for who, name in self.taken if who == thread}


def locks_of_two_suppliers(durability: Any, *, inline: bool) -> tuple[set[str], set[str]]:
    """The locks that two suppliers take while they push ten events each, in threads of their own."""
    tasks = Taken()
    with hg.Station(ports=Ports(SystemClock(), tasks, SystemRandom(), SimDisk())) as station:
        channel = station.channel("c", Note, qos=hg.QoS(durability=durability))
        channel.subscribe(lambda _: None, inline=inline)
        suppliers = [channel.supplier(name) for name in ("one", "two")]
        for supplier in suppliers:
            supplier.push(Note("the first makes the way"))
        tasks.taken.clear()
        threads = [
            threading.Thread(name=s.name, target=lambda s=s: [s.push(Note("n")) for _ in range(10)])
            for s in suppliers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    return tasks.of("one"), tasks.of("two")


def test_suppliers_whose_events_are_queued_nowhere_take_no_lock() -> None:
    assert locks_of_two_suppliers("volatile", inline=True) == (set(), set())


def test_on_a_persistent_channel_each_supplier_has_a_lock_of_its_own() -> None:
    """What they have in common is the line to the disk."""
    one, two = locks_of_two_suppliers("persistent", inline=False)
    assert (one - two, two - one) == ({"supplier one"}, {"supplier two"})
    assert not any("entry" in name or "supplier" in name for name in one & two)


def test_nothing_is_encoded_for_who_is_in_the_same_process(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fresh(hg.Event):
        """Of which nobody has made an encoder yet."""

        data: bytes

    encoders: list[type] = []
    monkeypatch.setattr(codec.Encoder, "__init__", lambda _, cls: encoders.append(cls))
    channel = station.channel("c", Fresh)
    seen: list[Fresh] = []
    channel.subscribe(seen.append)
    channel.subscribe(seen.append, inline=True)
    with channel.consumer() as consumer:
        event = Fresh(b"x")
        channel.push(event)
        assert channel.settle(LIMIT)
        assert consumer.pull(LIMIT) is event
    assert [one is event for one in seen] == [True, True]
    assert encoders == []


def test_an_event_that_everybody_has_acknowledged_leaves_no_memory_behind(station: Station) -> None:
    channel = station.channel("c", Note, qos=hg.QoS(ack="delivered"))
    channel.subscribe(lambda _: None)
    channel.subscribe(lambda _: None, where="text LIKE 'n%'")

    def push(events: int) -> None:
        for n in range(events):
            assert channel.push(Note(f"n{n}", b"x" * 10_000 + b"%d" % n))

    push(50)
    gc.collect()
    tracemalloc.start()
    try:
        push(200)
        assert channel.settle(LIMIT)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert channel.monitor is not None
    assert channel.monitor.array() == ()
    assert grown < 200_000, "of two million bytes"


SHARED = """
import threading
import heliograph as hg

class Blob(hg.Event):
    data: bytes

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

CONSUMERS = 20
seen, all_there = [], threading.Semaphore(0)

def take(blob):
    seen.append(blob)
    all_there.release()

def push(size):
    seen.clear()
    blob = Blob(bytes([7]) * size)
    channel.push(blob)
    for _ in range(CONSUMERS):
        assert all_there.acquire(timeout=10)
    return blob

with hg.Station() as station:
    channel = station.channel("c", Blob)
    for n in range(CONSUMERS):
        channel.subscribe(take, inline=n % 2 == 0)
    for _ in range(3):
        push(10)
    before = resident()
    blob = push(1 << 20)
    grown = resident() - before
    print(len(seen), len({id(one) for one in seen}), len({id(one.data) for one in seen}), grown)
"""


def test_a_large_event_is_shared_by_all_who_get_it() -> None:
    """One mebibyte and twenty consumers: one object, one buffer, and no second mebibyte."""
    command = [sys.executable, "-W", "error", "-c", SHARED]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    deliveries, objects, buffers, grown = map(int, ran.stdout.split())
    assert (deliveries, objects, buffers) == (20, 1, 1)
    assert grown < 2 << 20
