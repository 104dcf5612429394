"""What a band worker's station tells others of its channels: who is to send it what others push."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.link.describing import describe
from heliograph.link.gates import Gates
from heliograph.ports import system_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.core import Channel
    from heliograph.link.messages import ChannelState

SUPERVISOR, OTHER, OWN_WORKER = 1, 2, 3


class Low(hg.Event, name="gates.low"):
    n: int


class Worker:
    """The gates of a worker's station, of which the station that supervises it hands on what others push."""

    def __init__(self, station: hg.Station) -> None:
        self.station = station
        self.peers: dict[int, Any] = {
            number: SimpleNamespace(link=SimpleNamespace(station=number), channels={}, worker=None)
            for number in (SUPERVISOR, OTHER, OWN_WORKER)
        }
        self.peers[OWN_WORKER].worker = object()
        self.gates = Gates(lambda _: None, lambda _: None, system_ports().tasks, self.peers.get)
        self.gates.supervisor = SUPERVISOR
        self.gates.is_relayed = True

    def opens(self, *types: type[hg.Event]) -> Channel[Any]:
        channel: Channel[Any] = self.station.channel("c", *types)
        channel.settling = self.gates.settling(channel.qos)
        return channel

    def supervisor_has(self, *types: type[hg.Event], qos: hg.QoS | None = None) -> None:
        with hg.Station() as there:
            self.peers[SUPERVISOR].channels["c"] = describe(there.channel("c", *types, qos=qos))

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
