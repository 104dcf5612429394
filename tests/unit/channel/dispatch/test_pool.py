"""The workers: who goes first, who gives way, and that nobody hurts the others, whatever the order."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.dispatch import pool as dispatch
from heliograph.testing import rig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.qos.dispatch_order import Order, OrderName, Waiting
    from heliograph.station import Station

LIMIT = 10.0
"""Seconds that nothing here takes."""


USUAL = {"dispatch-1", "dispatch-2", "dispatch-watch"}
"""The threads of the usual pool."""


class Note(hg.Event):
    text: str


class RoundRobin:
    """The supplier whose turn it is: the one that was served longest ago."""

    by = ("supplier",)

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._turn = 0

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        del now_ns
        return min(range(len(heads)), key=lambda at: self._served.get(heads[at].supplier, 0))

    def taken(self, header: hg.Header) -> None:
        self._turn += 1
        self._served[header.supplier] = self._turn


ORDERS: tuple[OrderName | Order, ...] = ("strict", "ranked", "aged", "deadline", RoundRobin())


@pytest.fixture
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools with a single worker that nobody helps out, so that what is called follows one order."""
    monkeypatch.setattr(dispatch, "WORKERS", 1)
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)


class Held:
    """A worker that is inside a callback until it is let go."""

    def __init__(self, channel: hg.Channel[Note], **options: Any) -> None:
        self._entered, self._free = threading.Event(), threading.Event()
        channel.subscribe(self._call, where="text = 'hold'", **options)
        channel.push(Note("hold"))
        assert self._entered.wait(LIMIT)

    def _call(self, _: Note) -> None:
        self._entered.set()
        assert self._free.wait(LIMIT)

    def let_go(self) -> None:
        self._free.set()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def hearing(calls: list[str], name: str = "") -> Callable[[Note], None]:
    return lambda note: calls.append(name + note.text)


@pytest.mark.usefixtures("one_worker")
def test_a_higher_event_goes_next_though_its_consumer_has_begun_with_a_batch(station: Station) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []
    begun, free = threading.Event(), threading.Event()

    def take(note: Note) -> None:
        calls.append(note.text)
        begun.set()
        assert free.wait(LIMIT)

    channel.subscribe(take)
    channel.push_many([Note(str(n)) for n in range(4)])
    assert begun.wait(LIMIT)
    channel.push(Note("high"), priority=5)
    channel.push(Note("low"), priority=1)
    channel.push(Note("higher"), priority=4)
    free.set()
    assert channel.settle(LIMIT)
    assert calls == ["0", "high", "higher", "1", "2", "3", "low"]
    assert channel.stats().balanced


def test_a_consumer_that_is_asked_gets_the_higher_event_next(station: Station) -> None:
    channel = station.channel("c", Note)
    with channel.consumer() as consumer:
        channel.push_many([Note("0"), Note("1")])
        assert [note.text for note in consumer.read(max=1)] == ["0"]
        channel.push(Note("high"), priority=5)
        assert [note.text for note in consumer.read()] == ["high", "1"]
        assert channel.stats().consumers[consumer.name].delivered == 3


def test_an_async_callback_gets_the_higher_event_next(station: Station) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []

    async def take(note: Note) -> None:
        if not calls:
            channel.push(Note("high"), priority=5)
        calls.append(note.text)

    channel.subscribe(take)
    channel.push_many([Note("0"), Note("1"), Note("2")])
    assert channel.settle(LIMIT)
    assert calls == ["0", "high", "1", "2"]


@pytest.mark.usefixtures("one_worker")
def test_a_lower_consumer_gives_way_after_its_callback(station: Station) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []
    begun, free = threading.Event(), threading.Event()

    def low(note: Note) -> None:
        calls.append(f"low {note.text}")
        begun.set()
        assert free.wait(LIMIT)

    channel.subscribe(low, priority=1, where="text != 'x'")
    channel.subscribe(hearing(calls, "high "), priority=5, where="text = 'x'")
    channel.push_many([Note(str(n)) for n in range(3)])
    assert begun.wait(LIMIT)
    channel.push(Note("x"))
    free.set()
    assert channel.settle(LIMIT)
    assert calls == ["low 0", "high x", "low 1", "low 2"]


@pytest.mark.usefixtures("one_worker")
def test_a_consumer_that_waits_for_a_worker_is_raised_by_a_higher_event(station: Station) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []
    held = Held(channel, priority=5)
    channel.subscribe(hearing(calls, "a "), where="text LIKE 'a%'")
    channel.subscribe(hearing(calls, "b "), where="text LIKE 'b%'")
    channel.push(Note("a low"), priority=1)
    channel.push(Note("b"), priority=3)
    channel.push(Note("a high"), priority=4)
    held.let_go()
    assert channel.settle(LIMIT)
    assert calls == ["a a high", "b b", "a a low"]


@pytest.mark.usefixtures("one_worker")
def test_a_high_consumer_that_has_just_been_emptied_does_not_wait_behind_a_lower_one(
    station: Station,
) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []
    entered, free = threading.Semaphore(0), threading.Semaphore(0)

    def stepping(note: Note) -> None:
        calls.append(note.text)
        entered.release()
        assert free.acquire(timeout=LIMIT)

    channel.subscribe(stepping, where="text LIKE 'a%'")
    channel.subscribe(stepping, where="text LIKE 'b%'")
    channel.push(Note("a1"), priority=5)
    assert entered.acquire(timeout=LIMIT)
    channel.push_many([Note("b1"), Note("b2"), Note("b3")])  # it waits when the other has run empty
    free.release()
    assert entered.acquire(timeout=LIMIT)
    channel.push(Note("a2"), priority=5)
    free.release(4)
    assert channel.settle(LIMIT)
    assert calls == ["a1", "b1", "a2", "b2", "b3"]


@pytest.mark.usefixtures("one_worker")
def test_an_order_chooses_between_consumers_too(station: Station) -> None:
    """Two consumers of one event: the one that may wait less is called first, though it joined last."""
    channel = station.channel("c", Note, qos=hg.QoS(dispatch="deadline", latency=1.0))
    calls: list[str] = []
    held = Held(channel)
    channel.subscribe(hearing(calls, "patient "), latency=0.5)
    channel.subscribe(hearing(calls, "usual "))
    channel.subscribe(hearing(calls, "hasty "), latency=0.01)
    channel.push(Note("n"))
    held.let_go()
    assert channel.settle(LIMIT)
    assert calls == ["hasty n", "patient n", "usual n"]


@pytest.mark.usefixtures("one_worker")
def test_sub_priorities_order_consumers_of_one_priority(station: Station) -> None:
    channel = station.channel("c", Note, qos=hg.QoS(dispatch="ranked"))
    calls: list[str] = []
    held = Held(channel)
    channel.subscribe(hearing(calls, "e2"))
    channel.subscribe(hearing(calls, "e1"), sub_priority=7)
    channel.subscribe(hearing(calls, "top"), priority=5)
    channel.push(Note(""))
    held.let_go()
    assert channel.settle(LIMIT)
    assert calls == ["top", "e1", "e2"]


@pytest.mark.usefixtures("one_worker")
def test_what_a_push_says_decides_the_order_of_its_event(station: Station) -> None:
    channel = station.channel("c", Note)
    calls: list[str] = []
    for dispatch_order in ("ranked", "deadline"):
        held = Held(channel, dispatch=dispatch_order)
        subscription = channel.subscribe(hearing(calls), where="text != 'hold'", dispatch=dispatch_order)
        channel.push(Note("plain"))
        channel.push(Note("sub"), sub_priority=1)
        channel.push(Note("due"), latency=0.5)
        held.let_go()
        assert channel.settle(LIMIT)
        subscription.close()
    assert calls == ["sub", "plain", "due", "due", "plain", "sub"]


def test_what_a_push_says_survives_the_journal(tmp_path: Any) -> None:
    with hg.Station(tmp_path) as station:
        qos = hg.QoS(durability="persistent", dispatch="deadline", latency=9.0)
        channel = station.channel("c", Note, qos=qos)
        channel.push(Note("late"))
        channel.push(Note("soon"), latency=0.5)
        channel.push(Note("sooner"), latency=0.1)
        with channel.consumer(start="earliest", until="now") as consumer:
            assert [note.text for note in consumer] == ["sooner", "soon", "late"]


def test_how_a_process_dispatches_is_not_kept_with_the_history(tmp_path: Any) -> None:
    qos = hg.QoS(durability="persistent", dispatch=RoundRobin(), threads=hg.Threads("pool", workers=3))
    with hg.Station(tmp_path) as station:
        station.channel("c", Note, qos=qos).push(Note("n"))
    with hg.Station(tmp_path) as station:
        assert station.channel("c", Note).qos == hg.QoS(durability="persistent")


def test_what_a_push_said_does_not_keep_its_event_from_the_dead_letters(station: Station) -> None:
    channel = station.channel(
        "c", Note, qos=hg.QoS(ack="delivered", ack_timeout=0.05, resends=0, dead_letter="dead")
    )
    dead = station.channel("dead", Note)
    with dead.consumer() as consumer:
        channel.subscribe(lambda _: 1 / 0)
        assert not channel.push(Note("n"), latency=0.5, sub_priority=1)
        assert consumer.pull(timeout=LIMIT) == Note("n")


@pytest.mark.usefixtures("one_worker")
def test_an_order_of_ones_own_shares_a_consumer_between_suppliers(station: Station) -> None:
    channel = station.channel("c", Note, qos=hg.QoS(dispatch=RoundRobin()))
    calls: list[str] = []
    held = Held(channel)
    channel.subscribe(hearing(calls))
    with channel.supplier("loud") as loud, channel.supplier("quiet") as quiet:
        loud.push_many([Note(f"loud {n}") for n in range(3)])
        quiet.push(Note("quiet 0"))
    held.let_go()
    assert channel.settle(LIMIT)
    assert calls[:2] == ["loud 0", "quiet 0"]
    assert calls[2:] == ["loud 1", "loud 2"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_consumer_that_hangs_or_raises_leaves_the_others_alone(order: OrderName | Order) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    errors: SimpleQueue[BaseException] = SimpleQueue()
    free = threading.Event()

    def hang(_: Note) -> None:
        assert free.wait(LIMIT)

    def fail(note: Note) -> None:
        raise ValueError(note.text)

    with hg.Station(on_error=lambda *said: errors.put(said[2])) as station:
        channel = station.channel("c", Note, qos=hg.QoS(dispatch=order))
        for callback in (hang, hang, hang, fail, lambda note: heard.put(note.text)):
            channel.subscribe(callback, priority=5 if callback is hang else None)
        for n in range(50):
            channel.push(Note(str(n)))
        assert [heard.get(timeout=LIMIT) for _ in range(50)] == [str(n) for n in range(50)]
        assert [str(errors.get(timeout=LIMIT)) for _ in range(50)] == [str(n) for n in range(50)]
        assert channel.stats().balanced
        free.set()


def test_a_consumer_that_hangs_is_detached_within_two_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the station's clock: not before the period is over, and at the next look when it is."""
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 0.001)
    looks: list[None] = []
    look = dispatch.DispatchPool._look
    monkeypatch.setattr(dispatch.DispatchPool, "_look", lambda pool: looks.append(look(pool)))
    entered, free = threading.Event(), threading.Event()

    def hang(_: Note) -> None:
        entered.set()
        assert free.wait(LIMIT)

    def looked() -> None:
        before = len(looks)
        until(lambda: len(looks) >= before + 2)

    with rig(callback_limit=10.0) as helio:
        channel = helio.station.channel("c", Note)
        channel.subscribe(hang)
        channel.push(Note("n"))
        assert entered.wait(LIMIT)
        looked()
        helio.clock.advance(9.9)
        looked()
        assert "hang" in channel.stats().consumers
        helio.clock.advance(0.2)
        looked()
        assert channel.stats().consumers == {}
        assert channel.stats().balanced
        free.set()


def test_a_push_that_takes_long_in_one_channel_holds_up_no_other(station: Station) -> None:
    """A filter on the header is evaluated while its channel's entry is held; others have their own."""
    slow, other = station.channel("slow", Note), station.channel("other", Note)
    heard: SimpleQueue[str] = SimpleQueue()
    other.subscribe(lambda note: heard.put(note.text))
    with slow.entry:
        assert other.push(Note("through"))
        assert heard.get(timeout=LIMIT) == "through"


def test_an_inline_callback_waits_nowhere_so_it_has_no_order(station: Station) -> None:
    with pytest.raises(hg.NotPossible, match="inline=True has no queue"):
        station.channel("c", Note).subscribe(print, inline=True, dispatch="aged")


def test_workers_of_an_order_end_with_the_last_subscription_that_goes_by_it(station: Station) -> None:
    before = set(threading.enumerate())
    channel = station.channel("c", Note)
    heard: SimpleQueue[str] = SimpleQueue()
    channel.subscribe(lambda note: heard.put(note.text))
    channel.push(Note("first"))
    assert heard.get(timeout=LIMIT) == "first"
    for number in range(20):
        channel.reconfigure(dispatch=RoundRobin())
        with channel.subscribe(lambda note: heard.put(note.text), dispatch=RoundRobin()):
            channel.push(Note(str(number)))
            assert [heard.get(timeout=LIMIT) for _ in range(2)] == [str(number)] * 2
    channel.reconfigure(dispatch="strict")
    channel.push(Note("last"))
    assert heard.get(timeout=LIMIT) == "last"
    assert channel.settle(LIMIT)
    until(lambda: {t.name for t in set(threading.enumerate()) - before} <= USUAL)


def test_channels_of_one_order_share_their_workers(station: Station) -> None:
    own = RoundRobin()
    pools = station.channel("a", Note).pools
    usual = hg.Threads()
    assert pools.of("aged", usual) is pools.of("aged", usual)
    assert pools.of(own, usual) is pools.of(own, usual)
    assert len({id(pools.of(order, usual)) for order in (*ORDERS, own)}) == 6
    assert pools.of("strict", hg.Threads("bands")) is not pools.of("strict", usual)
