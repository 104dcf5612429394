"""The ledger between processes: what the source calls delivered is what the other station took in."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import PeerLost
from heliograph.links.broadcast.gateway import BroadcastGateway
from heliograph.links.mesh.mesh import Mesh
from heliograph.links.session.confirmation import Owed
from tests.e2e.link_programs import Program
from tests.e2e.link_support import (
    LIMIT,
    TRANSPORT,
    Track,
    own_meeting_folder,
    push_until_full,
    transport,
    wait_until,
)
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.ledger import QueueCounts
    from heliograph.links import Carrier
    from heliograph.links.session.confirmation import Account

BY_BROADCAST = hg.QoS()
"""On rings, where both stations use them."""
BY_LINK = hg.QoS(durability="transient-local", history=1)
"""What is kept goes by the link, on rings too."""
A_MOMENT = 0.3
"""Seconds for which somebody reads the ledger, who is to wait."""
SOCKET_AND_RING = ["socket", pytest.param("ring", marks=needs_rings)]


@pytest.fixture(params=SOCKET_AND_RING)
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def stop(program: Program) -> None:
    """Stop a process, and wait until it is: it reads nothing more."""
    program.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{program.process.pid}/stat")
    assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


def seen_by(program: Program) -> dict[str, int]:
    """How many events of each channel a program's callbacks have been called with."""
    before = len(program.said)
    assert program.process.stdin is not None
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    assert wait_until(lambda: len(program.said) > before)
    counts: dict[str, int] = json.loads(program.said[-1].removeprefix("heard "))[0]
    return counts


@pytest.mark.parametrize("qos", [BY_BROADCAST, BY_LINK], ids=["broadcast", "link"])
def test_what_a_stopped_process_had_not_taken_in_when_it_is_killed_is_dropped_and_told(
    run: Callable[..., Program], qos: hg.QoS
) -> None:
    lost: list[tuple[str, PeerLost]] = []

    def on_error(receiver: str, _: object, error: BaseException) -> None:
        assert isinstance(error, PeerLost), error
        lost.append((receiver, error))

    with hg.Station(domain="e2e", transport=transport(), on_error=on_error) as station:
        tracks = station.channel("x", Track, qos=qos)
        program = run("hear", "x")
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(0))
        assert wait_until(lambda: tracks.stats().total.delivered == 1)
        stop(program)
        for i in range(1, 1_001):
            tracks.push(Track(i))
        stopped = tracks.stats()
        assert stopped.balanced
        assert (stopped.total.delivered, stopped.total.pending) == (1, 1_000)
        assert not stopped.total.dropped
        program.process.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not tracks.stats().total.pending)
        killed = tracks.stats()
        assert killed.balanced
        assert (killed.matched, killed.total.delivered) == (1_001, 1)
        assert killed.total.dropped == {"peer-lost": 1_000}
        assert wait_until(lambda: lost)
        assert [(error.name, error.events) for _, error in lost] == [("x", 1_000)]


@pytest.mark.parametrize("run", SOCKET_AND_RING[1:], indirect=True)
def test_what_a_killed_process_did_not_read_is_in_no_snapshot_twice(
    run: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had not confirmed becomes what it had not read: a ledger that is read in between waits."""
    seen: list[QueueCounts] = []
    readers: list[threading.Thread] = []
    with hg.Station(domain="e2e", transport=transport(), on_error=lambda *_: None) as station:
        tracks = station.channel("x", Track)
        program = run("hear", "x")
        settle = Owed.settle

        def settle_while_somebody_reads(owed: Owed, account: Account, events: int) -> None:
            reader = threading.Thread(target=lambda: seen.append(tracks.stats().total))
            reader.start()
            readers.append(reader)
            reader.join(A_MOMENT)
            settle(owed, account, events)

        monkeypatch.setattr(Owed, "settle", settle_while_somebody_reads)
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(0))
        assert wait_until(lambda: tracks.stats().total.delivered == 1)
        stop(program)
        for i in range(1, 101):
            tracks.push(Track(i))
        program.process.send_signal(signal.SIGKILL)
        assert wait_until(lambda: readers)
        for reader in readers:
            reader.join(LIMIT)
        assert [(counts.delivered, counts.dropped) for counts in seen] == [(1, {"peer-lost": 100})]


@pytest.mark.parametrize("run", SOCKET_AND_RING[1:], indirect=True)
def test_what_waits_for_the_last_reader_is_not_written_when_that_is_gone(
    run: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy broadcast finds at once that a station takes a channel and takes it no more, and what waited."""
    drop, may_write, is_held = BroadcastGateway.drop, threading.Event(), threading.Event()

    def drop_when_all_is_written(gateway: BroadcastGateway, reason: str) -> None:
        may_write.set()
        wait_until(lambda: not gateway.waiting(), A_MOMENT)
        drop(gateway, reason)

    def keep_from_writing() -> None:
        with broadcast._sending:
            is_held.set()
            may_write.wait(LIMIT)

    with hg.Station(domain="e2e", transport=transport(), on_error=lambda *_: None) as station:
        known = station.channel("y", Track)
        program = run("hear", "x", "y")
        assert known.wait_matched(1, LIMIT)
        (gateway,) = (one for one in known.receivers() if isinstance(one, BroadcastGateway))
        broadcast = gateway.broadcast
        holding = threading.Thread(target=keep_from_writing)
        holding.start()
        assert is_held.wait(LIMIT)
        tracks = station.channel("x", Track)
        assert tracks.wait_matched(1, LIMIT)
        stop(program)
        for i in range(100):
            tracks.push(Track(i))
        monkeypatch.setattr(BroadcastGateway, "drop", drop_when_all_is_written)
        program.process.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not tracks.stats().total.pending)
        assert (tracks.stats().total.delivered, tracks.stats().total.dropped) == (0, {"peer-lost": 100})
        holding.join(LIMIT)


def test_of_a_killed_process_only_what_it_wanted_is_dropped_and_others_have_all(
    run: Callable[..., Program],
) -> None:
    with (
        hg.Station(domain="e2e", transport=transport(), on_error=lambda *_: None) as station,
        hg.Station(domain="e2e", transport=transport()) as other,
    ):
        tracks, there = station.channel("x", Track), other.channel("x", Track)
        seen: list[int] = []
        there.subscribe(lambda track: seen.append(track.id), inline=True)
        program = run("consume", "x", "1000000", "speed >= 900")
        assert tracks.wait_matched(2, LIMIT)
        stop(program)
        for i in range(1_000):
            tracks.push(Track(i, float(i)))
        assert wait_until(lambda: len(seen) == 1_000)
        program.process.send_signal(signal.SIGKILL)
        assert wait_until(lambda: tracks.stats().total.dropped == {"peer-lost": 100}), tracks.stats()
        assert wait_until(lambda: not tracks.stats().total.pending)
        total = tracks.stats().total
        assert tracks.stats().balanced
        by_broadcast = transport() == "ring"  # both stations are one receiver there
        assert total.delivered == (900 if by_broadcast else 1_000)


def test_what_waits_for_room_in_another_station_is_pending_until_it_is_queued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="e2e") as station, hg.Station(domain="e2e") as other:
        tracks = station.channel("x", Track, qos=hg.QoS(queue=1_000))
        there = other.channel("x", Track, qos=hg.QoS(queue=100)).consumer()
        assert tracks.wait_matched(1, LIMIT)
        tracks.push_many([Track(i) for i in range(500)])
        assert wait_until(lambda: tracks.stats().total.delivered == 100)
        assert tracks.stats().total.pending == 400
        taken = 0
        while taken < 500:
            taken += len(there.read(1_000, LIMIT))
        assert wait_until(lambda: tracks.stats().total.delivered == 500)
        assert tracks.stats().balanced


@pytest.mark.parametrize("carrier", ["ring", "socket"])
@pytest.mark.parametrize("others", [0, 1])
def test_what_a_closed_channel_elsewhere_refuses_is_dropped_at_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, carrier: Carrier, others: int
) -> None:
    """Beside it another station may get all of them; by ring both are one receiver."""
    own_meeting_folder(monkeypatch, tmp_path)
    with (
        hg.Station(domain="e2e", transport=carrier) as station,
        hg.Station(domain="e2e", transport=carrier) as other,
        hg.Station(domain="e2e", transport=carrier) as third,
    ):
        tracks = station.channel("x", Track)
        there = other.channel("x", Track)
        seen: list[int] = []

        def close_at_the_first(track: Track) -> None:
            seen.append(track.id)
            if len(seen) == 1:
                there.close(0)

        there.subscribe(close_at_the_first, inline=True)
        elsewhere = [third.channel("x", Track).consumer() for _ in range(others)]
        assert tracks.wait_matched(1 + others, LIMIT)
        tracks.push_many([Track(i) for i in range(100)])
        for consumer in elsewhere:
            assert [consumer.pull(LIMIT) for _ in range(100)] == [Track(i) for i in range(100)]
        assert wait_until(lambda: not tracks.stats().total.pending)
        assert wait_until(lambda: tracks.stats().total.dropped.get("refused") == 100 - len(seen))
        stats = tracks.stats()
        assert stats.balanced
        by_ring = carrier == "ring"
        assert stats.total.delivered == len(seen) + (0 if by_ring else 100 * others)


@pytest.mark.parametrize("qos", [BY_BROADCAST, BY_LINK], ids=["broadcast", "link"])
def test_a_peer_that_was_struck_off_and_comes_back_makes_the_counts_exact(
    run: Callable[..., Program], qos: hg.QoS
) -> None:
    with hg.Station(domain="e2e", transport=transport(), peer_limit=1.0, on_error=lambda *_: None) as station:
        tracks = station.channel("x", Track, qos=qos)
        program = run("hear", "x")
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(0))
        assert wait_until(lambda: tracks.stats().total.delivered == 1)
        stop(program)
        for i in range(1, 51):
            tracks.push(Track(i))
        assert wait_until(lambda: tracks.stats().total.dropped == {"peer-lost": 50})
        program.process.send_signal(signal.SIGCONT)
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(1_000))

        def agrees() -> bool:
            stats = tracks.stats()
            assert stats.balanced
            return stats.total.delivered == seen_by(program)["x"] and not stats.total.pending

        assert wait_until(agrees), (tracks.stats(), seen_by(program))
        assert tracks.stats().matched == 52


def test_what_waits_for_a_station_that_is_given_up_is_its_loss_though_others_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with (
        hg.Station(domain="e2e", on_error=lambda *_: None) as station,
        hg.Station(domain="e2e") as full,
        hg.Station(domain="e2e") as other,
    ):
        tracks = station.channel("x", Track)
        patient = hg.QoS(queue=10, max_blocking=60.0)  # else the consumer may be suspended meanwhile
        never_asked = full.channel("x", Track, qos=patient).consumer(where="speed < 1")
        got: list[int] = []
        other.channel("x", Track).subscribe(lambda track: got.append(track.id))
        assert tracks.wait_matched(2, LIMIT)
        assert station.mesh is not None
        (gateway,) = (one for one in tracks.receivers() if isinstance(one, BroadcastGateway))
        pushed = 0
        while not gateway.paused:
            tracks.push(Track(pushed))
            pushed += 1
        tracks.push_many([Track(pushed + i) for i in range(40)])
        tracks.push_many([Track(i, 2.0) for i in range(40)])  # not for that one
        pushed += 40
        assert wait_until(lambda: tracks.stats().total.delivered == 10)
        with monkeypatch.context() as apart:
            apart.setattr(
                Mesh, "_serve", lambda _, connection, __: connection.close()
            )  # it does not come back
            station.mesh._gone(full.id)
            assert wait_until(lambda: len(got) == pushed + 40)
            assert wait_until(lambda: tracks.stats().total.delivered == 50)
            stats = tracks.stats()
            assert stats.balanced
            assert stats.total.dropped == {"peer-lost": pushed - 10}
            never_asked.close()


def test_what_waited_for_a_stopped_process_is_its_loss_at_the_source_though_others_get_it(
    run: Callable[..., Program],
) -> None:
    with hg.Station(domain="e2e", transport=transport(), peer_limit=4.0, on_error=lambda *_: None) as station:
        tracks = station.channel("x", Track, qos=hg.QoS(queue=500, max_blocking=0.05))
        healthy, stopped = run("hear", "x"), run("hear", "x")
        assert tracks.wait_matched(2, LIMIT)
        assert station.mesh is not None
        mesh = station.mesh
        stop(stopped)
        pushed = push_until_full(tracks)
        assert wait_until(lambda: mesh.suspected)
        stopped.process.send_signal(signal.SIGCONT)
        assert tracks.wait_matched(2, LIMIT)
        assert wait_until(lambda: seen_by(healthy)["x"] == pushed)
        assert wait_until(lambda: not tracks.stats().total.pending)

        elsewhere = 0 if transport() == "ring" else pushed  # by ring both stations are one receiver

        def agrees() -> bool:
            total, seen = tracks.stats().total, seen_by(stopped)["x"]
            return total.delivered == seen + elsewhere and sum(total.dropped.values()) == pushed - seen

        assert wait_until(agrees), (tracks.stats(), seen_by(stopped), pushed)
        assert tracks.stats().total.dropped["peer-lost"] >= 500
        assert tracks.stats().balanced
