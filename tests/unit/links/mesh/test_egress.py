"""What a band worker tells others of its channels, and what its station keeps for it while it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.links.interest.advertisement import describe
from heliograph.links.mesh.egress import Egress
from heliograph.links.mesh.peer import Peer
from heliograph.links.mesh.worker_redelivery import RedeliveringGateway, WorkerRedelivery
from heliograph.model.event import EventId, info_of
from heliograph.runtime.ports import system_ports
from tests.unit.links.mesh.test_worker_redelivery import FakeLink, High, Low, sent, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel
    from heliograph.links.session.messages import ChannelState

SUPERVISOR, OTHER, OWN_WORKER = 1, 2, 3


class Worker:
    """The gates of a worker's station, of which the station that supervises it hands on what others push."""

    def __init__(self, station: hg.Station) -> None:
        self.station = station
        self.peers: dict[int, Any] = {
            number: SimpleNamespace(
                link=SimpleNamespace(station=number, peer=SimpleNamespace(derives=True)),
                advertised=SimpleNamespace(channels={}),
                worker=None,
            )
            for number in (SUPERVISOR, OTHER, OWN_WORKER)
        }
        self.peers[OWN_WORKER].worker = object()
        self.gates = Egress(lambda _: None, lambda _: None, system_ports().tasks, self.peers.get)
        self.gates.supervisor = SUPERVISOR
        self.gates.is_relayed = True

    def opens(self, *types: type[hg.Event]) -> Channel[Any]:
        channel: Channel[Any] = self.station.channel("c", *types)
        channel.settling = self.gates.settling(channel.qos)
        return channel

    def supervisor_has(self, *types: type[hg.Event], qos: hg.QoS | None = None) -> None:
        with hg.Station() as there:
            self.peers[SUPERVISOR].advertised.channels["c"] = describe(there.channel("c", *types, qos=qos))

    def tells(self, channel: Channel[Any], number: int) -> ChannelState:
        return self.gates.for_peer(self.peers[number], channel, describe(channel))


@pytest.fixture
def worker() -> Iterator[Worker]:
    with hg.Station() as station:
        yield Worker(station)


def test_what_comes_by_the_supervisor_is_asked_of_nobody_else(worker: Worker) -> None:
    """Of a worker that this worker has started neither: that one sends it to the supervisor, too."""
    worker.supervisor_has(Low)
    channel = worker.opens(Low)
    channel.subscribe(print)
    told = {number: worker.tells(channel, number) for number in worker.peers}
    assert [(state.relayed, len(state.wants), state.consumers) for state in told.values()] == [
        (True, 1, 1),
        (False, 0, 0),
        (False, 0, 0),
    ]


def test_what_the_supervisor_has_not_open_is_asked_of_all(worker: Worker) -> None:
    channel = worker.opens(Low)
    channel.subscribe(print)
    assert {(worker.tells(channel, n).relayed, worker.tells(channel, n).consumers) for n in worker.peers} == {
        (False, 1)
    }


def test_a_way_that_has_begun_stays_whatever_either_station_carries_besides(worker: Worker) -> None:
    """Between two ways events would be missing, or come twice."""
    worker.supervisor_has(Low)
    channel = worker.opens(Low)
    assert not worker.tells(channel, OTHER).wants
    channel.subscribe(print)
    assert worker.tells(channel, SUPERVISOR).relayed
    assert worker.opens(High) is channel
    assert worker.tells(channel, SUPERVISOR).relayed
    assert not worker.tells(channel, OTHER).wants


def test_a_way_that_nothing_was_wanted_by_may_still_change(worker: Worker) -> None:
    channel = worker.opens(Low)
    assert not worker.tells(channel, SUPERVISOR).relayed
    worker.supervisor_has(Low)
    channel.subscribe(print)
    assert worker.tells(channel, SUPERVISOR).relayed


def test_what_this_station_refuses_is_settled_where_the_supervisor_sent_it_only(worker: Worker) -> None:
    told: list[tuple[str, int]] = []
    for peer in worker.peers.values():
        peer.settled = SimpleNamespace(settled=lambda name, event, _: told.append((name, event.sequence)))
    channel = worker.opens(Low)
    for number in (OTHER, SUPERVISOR):
        worker.gates.refused(worker.peers[number], channel, [EventId("s", 1, number)])
    assert told == [("c", SUPERVISOR)]


class Supervisor:
    """The gates of a station with a worker, whose processes come one after the other."""

    def __init__(self, station: hg.Station) -> None:
        self.channel: Channel[Any] = station.channel("c", Low, High)
        self.gates = Egress(
            lambda _: None if self.channel.closed else self.channel,
            lambda _: None,
            system_ports().tasks,
            lambda _: None,
        )
        self.gates.retell = lambda _: None
        self.handed = WorkerRedelivery(
            "w", self.gates.lock, on_lost=lambda *_: None, retell=self.gates.retell
        )

    def begins(self, process: int) -> Peer:
        link: Any = FakeLink(process)
        link.process = SimpleNamespace(pid=process)
        link.peer = SimpleNamespace(session=process, derives=True)
        self.gates.supervise(process, self.handed)
        peer = Peer(link, system_ports().tasks)
        self.gates.greet(peer, process)
        for cls in (Low, High):
            peer.advertised.learn(info_of(cls).format.id, info_of(cls).format.description)
        return peer

    def wants(self, peer: Peer, *types: type[hg.Event]) -> RedeliveringGateway:
        self.gates.channel_told(peer, wanted(*types)[1])
        gateway = peer.carriers["c"].gateway
        assert isinstance(gateway, RedeliveringGateway)
        return gateway

    def hands_over_one(self) -> RedeliveringGateway:
        """The first process is ready, and was sent an event."""
        gateway = self.wants(self.begins(1), Low)
        self.handed.resume(1)
        self.channel.push(Low(1))
        assert sent(gateway) == [(1, False)]
        return gateway


def test_a_process_that_subscribes_and_closes_while_it_begins_loses_nothing_that_waits() -> None:
    with hg.Station() as station:
        supervisor = Supervisor(station)
        first = supervisor.hands_over_one()
        second = supervisor.begins(2)
        assert supervisor.wants(second, Low) is first
        supervisor.wants(second)
        supervisor.channel.push(Low(2))
        supervisor.gates.channel_gone(second, "c")
        assert supervisor.wants(second, Low) is first
        supervisor.handed.resume(2)
        assert sent(first) == [(1, True), (2, False)]


def test_a_process_that_wants_nothing_when_it_is_ready_is_handed_nothing() -> None:
    with hg.Station() as station:
        supervisor = Supervisor(station)
        gateway = supervisor.hands_over_one()
        second = supervisor.begins(2)
        supervisor.wants(second, Low)
        supervisor.gates.channel_gone(second, "c")
        supervisor.handed.resume(2)
        supervisor.channel.push(Low(2))
        assert sent(gateway) == []
        assert supervisor.handed.unacknowledged == 0
        assert supervisor.channel.stats().balanced


def test_what_was_handed_over_of_a_channel_that_is_closed_waits_no_more_and_is_lost_with_the_process() -> (
    None
):
    with hg.Station() as station:
        supervisor = Supervisor(station)
        peer = supervisor.begins(1)
        gateway = supervisor.wants(peer, Low)
        supervisor.handed.resume(1)
        supervisor.channel.push(Low(1))
        assert sent(gateway) == [(1, False)]
        supervisor.channel.close(0.0)
        supervisor.gates.fit(peer, "c")
        assert supervisor.handed.unacknowledged == 0
        supervisor.begins(2)
        supervisor.handed.resume(2)
        assert supervisor.handed.lost == 1
