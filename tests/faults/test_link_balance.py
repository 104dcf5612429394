"""Random kills, stops and lost connections: an oracle that counts in both processes agrees with the ledger.

Each process that receives writes down every event that its callback was called with, so that this survives
a kill. At the end, when all who live have been heard:

    got by those who live  <=  delivered at the source  <=  got by all
    matched  ==  delivered + dropped + pending, in every snapshot

A process that is killed may have taken in events that it had not reported: these count as lost. Nothing else
may differ, so without kills both sides are equal.
"""

from __future__ import annotations

import signal
from random import Random
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, TRANSPORT, Track, own_meeting_folder, transport, wait_until
from tests.faults.test_link_ledger import BY_BROADCAST, BY_LINK, stop
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

IN_HAND = 64
"""Events that a process may have given to a callback, and reported, when it is killed before the callback
has begun with them: `heliograph.channel.queueing.queue.BATCH`."""


class Balance:
    """A source in this process, one process that receives at a time, and what both have counted."""

    def __init__(self, station: hg.Station, qos: hg.QoS, folder: Path) -> None:
        self.station = station
        self.tracks = station.channel("x", Track, qos=qos)
        self.pushed = 0
        self.kills = 0
        self._folder = folder
        self._killed: list[Path] = []
        self.start()

    def start(self) -> None:
        self._file = self._folder / f"got-{len(self._killed)}"
        self._file.touch()
        self._program = Program("tally", "x", str(self._file))
        assert self.tracks.wait_matched(1, 2 * LIMIT)

    def push(self, chance: Random) -> None:
        number = chance.randrange(1, 200)
        if chance.random() < 0.5:
            self.tracks.push_many([Track(self.pushed + i) for i in range(number)])
        else:
            for i in range(number):
                self.tracks.push(Track(self.pushed + i))
        self.pushed += number
        assert self.tracks.stats().balanced

    def kill(self, chance: Random) -> None:
        if chance.random() < 0.5:
            stop(self._program)
        self.push(chance)
        self._program.kill()
        self._program.clean_up()
        self._killed.append(self._file)
        self.kills += 1
        self.push(chance)
        self.start()

    def stop_for_a_moment(self, chance: Random) -> None:
        stop(self._program)
        self.push(chance)
        self._program.process.send_signal(signal.SIGCONT)

    def stop_until_it_is_given_up(self, chance: Random) -> None:
        stop(self._program)
        self.push(chance)
        assert wait_until(lambda: not self.tracks.stats().consumers)
        self.push(chance)
        self._program.process.send_signal(signal.SIGCONT)
        assert self.tracks.wait_matched(1, 2 * LIMIT)

    def disconnect(self, chance: Random) -> None:
        assert self.station.mesh is not None
        self.push(chance)
        for peer in tuple(self.station.mesh._peers.values()):
            peer.link.drop_connection()
        self.push(chance)

    def agrees(self) -> bool:
        """Whether both sides say the same by now."""
        stats = self.tracks.stats()
        assert stats.balanced, stats
        lives, killed = len(got(self._file)), sum(len(got(file)) for file in self._killed)
        most = lives + killed + IN_HAND * self.kills
        return not stats.total.pending and lives <= stats.total.delivered <= most

    def check_order(self) -> None:
        for file in (*self._killed, self._file):
            ids = got(file)
            assert ids == sorted(set(ids)), "each once, in the order of its supplier"

    def said(self) -> str:
        files = [len(got(file)) for file in (*self._killed, self._file)]
        return f"{files} got by those killed and the last one: {self.tracks.stats()}"

    def close(self) -> None:
        self._program.clean_up()


def got(file: Path) -> list[int]:
    whole, _, _ = file.read_bytes().rpartition(b"\n")
    return [int(line) for line in whole.splitlines()]


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def _transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)


CARRIED = pytest.mark.parametrize("qos", [BY_BROADCAST, BY_LINK], ids=["broadcast", "link"])


@pytest.mark.timeout(examples(300))
@pytest.mark.usefixtures("_transport")
@pytest.mark.parametrize("kills", [False, True], ids=["without kills", "with kills"])
@CARRIED
def test_an_oracle_that_counts_in_both_processes_agrees_with_the_ledger(
    tmp_path: Path, qos: hg.QoS, *, kills: bool
) -> None:
    for seed in range(examples(1)):
        chance = Random(f"{seed} {kills} {transport()}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        with hg.Station(
            domain="e2e", transport=transport(), peer_limit=1.0, on_error=lambda *_: None
        ) as station:
            balance = Balance(station, qos, folder)
            actions = [
                balance.push,
                balance.stop_for_a_moment,
                balance.stop_until_it_is_given_up,
                balance.disconnect,
                *([balance.kill] if kills else []),
            ]
            try:
                for act in chance.sample(actions, len(actions)):
                    act(chance)
                for _ in range(3):
                    chance.choice(actions)(chance)
                assert wait_until(balance.agrees), balance.said()
                balance.check_order()
                if not kills:
                    total = station.channel("x", Track).stats().total
                    assert total.delivered == len(got(balance._file))
            finally:
                balance.close()
