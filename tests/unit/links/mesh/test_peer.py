"""What a peer has said and was told: bounded, each thing said once in a session."""

from __future__ import annotations

from typing import Any

import pytest

import heliograph as hg
from heliograph.errors import BadFrame
from heliograph.links.interest.advertisement import describe
from heliograph.links.mesh import peer as module
from heliograph.links.mesh.peer import Peer
from heliograph.links.session import messages as m
from heliograph.model.event import info_of
from heliograph.runtime.ports import system_ports
from tests.unit.links.mesh.test_worker_redelivery import FakeLink, Low


class Recording(FakeLink):
    """A link that keeps what is posted."""

    def __init__(self) -> None:
        super().__init__(1)
        self.posted: list[m.Message] = []

    def post(self, *posted: m.Message) -> None:
        self.posted += posted


def test_a_channel_and_its_format_are_told_once_in_a_session() -> None:
    link: Any = Recording()
    peer = Peer(link, system_ports().tasks)
    with hg.Station() as station:
        channel = station.channel("c", Low)
        for _ in range(2):
            peer.told.tell(channel, describe(channel))
        assert [type(message) for message in link.posted] == [m.FormatNote, m.ChannelState]
        peer.begin()
        peer.told.tell(channel, describe(channel))
    assert [type(message) for message in link.posted[2:]] == [m.FormatNote, m.ChannelState]


def test_a_station_that_announces_too_many_streams_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHANNELS", 1)
    link: Any = Recording()
    link.clock = type("Clock", (), {"deadline": staticmethod(lambda left: left)})
    peer = Peer(link, system_ports().tasks)
    fmt = info_of(Low).format
    for number in range(2):
        peer.advertised.announced(m.Announce(number, "c", fmt.id, fmt.description))
    with pytest.raises(BadFrame, match="more than 1 channels or streams"):
        peer.advertised.announced(m.Announce(2, "c", fmt.id, fmt.description))
