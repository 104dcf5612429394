"""Gateways to a band worker, whose processes come and go: what each of them gets, and from when on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.channel.routing.forwarding import Origin
from heliograph.links.interest.advertisement import describe
from heliograph.links.mesh.worker_redelivery import RedeliveringGateway, WorkerRedelivery
from heliograph.links.session.confirmation import Owed
from heliograph.links.session.messages import ChannelState, Want
from heliograph.model.event import Header, info_of
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.session.gateway import PeerGateway


class Low(hg.Event, name="handed.low"):
    n: int


class High(hg.Event, name="handed.high"):
    n: int


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station() as made:
        yield made


class FakeLink:
    """A link that sends nothing by itself."""

    def __init__(self, station: int) -> None:
        self.station = station
        self.name = f"{station:016x}"
        self.closed = False
        self.session = station

    def ready(self, gateway: PeerGateway) -> None: ...

    def send_now(self, gateway: PeerGateway, item: Item) -> bool:
        return False

    def send_bulk(self, gateway: PeerGateway, bulk: OutgoingBatch) -> bool:
        return False

    def ask(self) -> None: ...

    def quiesce(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def pause(self, gateway: PeerGateway, *, paused: bool) -> None:
        gateway.paused = paused


class Worker:
    """One worker of a station with one channel."""

    def __init__(self, station: hg.Station, qos: hg.QoS | None = None) -> None:
        self.channel: Channel[Any] = station.channel("c", Low, High, qos=qos)
        self.told: list[Channel[Any]] = []
        self.handed = WorkerRedelivery(
            "w", system_ports().tasks.lock(), on_lost=lambda *_: None, retell=self.told.append
        )

    def joins(
        self, process: int | FakeLink, *types: type[hg.Event], relayed: bool = True
    ) -> RedeliveringGateway:
        """A process wants events of these types."""
        link: Any = process if isinstance(process, FakeLink) else FakeLink(process)
        conditions, state = wanted(*types)
        state = msgspec.structs.replace(state, relayed=relayed)
        return self.handed.join(self.channel, link, conditions, state, Owed(system_ports().tasks))

    def from_elsewhere(self, *events: Low | High, behind: object | None = None) -> None:
        headers = [
            Header("c", info_of(type(e)).name, "there", 1, e.n, 0, info_of(type(e)).format.id) for e in events
        ]
        intake = self.channel.neighbours.intake("link", origin=Origin(is_here=False, worker=behind))
        items = list(zip(events, headers, [0] * len(events), strict=True))
        assert intake.take_in(items) == len(events)


def wanted(*types: type[hg.Event]) -> tuple[dict[type[hg.Event], Any], ChannelState]:
    """What a process says that it wants, by way of its station."""
    wants = tuple(Want(info_of(cls).name, info_of(cls).format.id) for cls in types)
    state = ChannelState("c", (), "reliable", "volatile", len(types), wants, relayed=True)
    return {cls: ReceiverCondition(None) for cls in types}, state


def sent(gateway: RedeliveringGateway) -> list[tuple[int, bool]]:
    """What the link takes of a gateway: numbers, and whether they come again."""
    assert not gateway.paused
    _, items = gateway.queue.drain(100)  # type: ignore[attr-defined] # a gateway's lane
    return [(event.n, header.redelivered) for event, header, _ in items]


def test_what_others_push_is_handed_on_and_comes_again_to_the_next_process(station: hg.Station) -> None:
    worker = Worker(station)
    first = worker.joins(1, Low)
    worker.handed.resume(1)
    worker.from_elsewhere(Low(1), Low(2), High(3))
    assert sent(first) == [(1, False), (2, False)]
    assert worker.handed.unacknowledged == 2
    first.paused = True
    worker.from_elsewhere(Low(4))
    assert worker.joins(2, Low) is first
    assert first.paused
    worker.handed.resume(2)
    assert sent(first) == [(1, True), (2, True), (4, False)]
    assert worker.handed.redelivered == 2
    assert worker.channel.stats().balanced


def test_what_a_process_had_in_hand_of_a_closed_channel_when_it_died_is_counted_as_lost(
    station: hg.Station,
) -> None:
    worker = Worker(station)
    gateway = worker.joins(1, Low)
    worker.handed.resume(1)
    supplier = worker.channel.supplier()
    for n in range(3):
        supplier.push(Low(n))
    assert len(sent(gateway)) == 3
    first, *_ = gateway.book.events()
    worker.channel.close(0)
    worker.handed.channel_closed(gateway)
    assert worker.handed.lost == 0, "the process may still deal with it"
    worker.handed.acked("c", [first])
    worker.handed.resume(2)
    assert worker.handed.lost == 2


def test_what_the_worker_itself_or_nobody_asked_for_is_not_handed_on(station: hg.Station) -> None:
    worker = Worker(station)
    gateway = worker.joins(1, Low)
    worker.from_elsewhere(Low(1), behind=worker.handed)
    other = Worker(station)
    apart = other.joins(7, Low, relayed=False)
    worker.from_elsewhere(Low(2))
    assert (sent(gateway), sent(apart)) == ([(2, False)], [])


def test_others_are_told_what_a_worker_wants_and_the_worker_is_not(station: hg.Station) -> None:
    worker = Worker(station)
    worker.channel.subscribe(print, types=[High])
    worker.joins(1, Low)
    told = describe(worker.channel)
    assert ({want.type for want in told.wants}, told.consumers) == ({"handed.low", "handed.high"}, 2)
    told = describe(worker.channel, apart_from=worker.handed)
    assert ({want.type for want in told.wants}, told.consumers) == ({"handed.high"}, 1)
    worker.handed.end(is_lost=True)
    assert worker.told == [worker.channel]
    assert {want.type for want in describe(worker.channel).wants} == {"handed.high"}


def test_what_the_last_process_wanted_stands_until_the_next_one_is_ready(station: hg.Station) -> None:
    """It subscribes to one thing after the other; what is pushed meanwhile must not be missing."""
    worker = Worker(station)
    gateway = worker.joins(1, Low, High)
    worker.handed.resume(1)
    second = FakeLink(2)
    worker.joins(second, Low)
    worker.channel.push(High(1))
    worker.from_elsewhere(High(2))
    assert {want.type for want in describe(worker.channel).wants} == {"handed.low", "handed.high"}
    gateway.want(*wanted(Low, High))
    worker.handed.resume(2)
    assert sent(gateway) == [(1, False), (2, False)]


def test_what_the_next_process_does_not_want_is_not_sent_from_then_on(station: hg.Station) -> None:
    worker = Worker(station)
    gateway = worker.joins(1, Low, High)
    worker.handed.resume(1)
    worker.channel.push(High(1))
    assert sent(gateway) == [(1, False)]
    worker.joins(2, Low, relayed=False)
    worker.handed.resume(2)
    worker.channel.push_many([High(2), Low(3)])
    worker.from_elsewhere(Low(4))
    assert sent(gateway) == [(3, False)]
    assert describe(worker.channel).wants == ()


def test_a_process_whose_link_begins_anew_gets_what_may_not_have_come(station: hg.Station) -> None:
    worker = Worker(station)
    link = FakeLink(1)
    gateway = worker.joins(link, Low)
    worker.handed.resume(1)
    worker.channel.push_many([Low(1), Low(2)])
    assert sent(gateway) == [(1, False), (2, False)]
    gateway.book.settle(next(iter(gateway.book._entries)))
    gateway.paused = True  # as when it leaves
    worker.joins(link, Low)
    assert sent(gateway) == [(2, True)]
    assert not link.closed
    gateway.paused = True
    worker.joins(FakeLink(1), Low)
    assert sent(gateway) == [(2, True)]
    assert link.closed


def test_what_a_running_process_asks_for_later_is_sent_at_once(station: hg.Station) -> None:
    worker = Worker(station)
    worker.handed.resume(1)
    gateway = worker.joins(1, Low)
    worker.channel.push(Low(1))
    assert sent(gateway) == [(1, False)]


def test_what_was_sent_while_the_first_process_began_is_not_sent_twice(station: hg.Station) -> None:
    worker = Worker(station)
    gateway = worker.joins(1, Low)
    worker.channel.push(Low(1))
    assert sent(gateway) == [(1, False)]
    worker.handed.resume(1)
    assert sent(gateway) == []


def test_only_what_was_begun_before_a_process_hung_is_given_up_with_it(station: hg.Station) -> None:
    """Others are begun beside it, later: a consumer may wait for them before it is done with one."""
    worker = Worker(station)
    gateway = worker.joins(1, Low)
    worker.handed.resume(1)
    worker.channel.push_many([Low(1), Low(2), Low(3)])
    assert len(sent(gateway)) == 3
    for process, since in ((2, 105), (3, 0)):  # the second is heard of late
        worker.joins(process, Low)
        worker.handed.resume(process)
        assert sent(gateway) == [(1, True), (2, True), (3, True)]
        for number, event in enumerate(sorted(gateway.book.events(), key=lambda one: one.sequence)):
            worker.handed.begun("c", event, 100 + 10 * number)
        worker.handed.hung(since)
    worker.joins(4, Low)
    worker.handed.resume(4)
    assert sent(gateway) == [(2, True), (3, True)]
    assert worker.handed.lost == 1


def test_what_is_kept_for_a_process_that_joins_late_is_without_what_waits_for_it(station: hg.Station) -> None:
    worker = Worker(station, hg.QoS(durability="transient-local", history=2))
    worker.channel.push_many([Low(1), Low(2)])
    gateway = worker.joins(1, Low)
    worker.handed.resume(1)
    worker.channel.push(Low(3))
    assert sent(gateway) == [(3, False)]
    kept, floors = worker.channel.neighbours.kept(gateway.conditions, lambda: gateway.to_come)
    assert ([header.sequence for _, header, _ in kept], set(floors.values())) == ([2, 3], {3})
    worker.joins(2, Low)
    worker.channel.push(Low(4))
    kept, floors = worker.channel.neighbours.kept(gateway.conditions, lambda: gateway.to_come)
    assert (kept, set(floors.values())) == ([], {2})
    worker.handed.resume(2)
    assert sent(gateway) == [(3, True), (4, False)]
