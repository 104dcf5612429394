"""Ctrl-C at any instant of a push to a linked station: each event comes there once, and is counted."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.links.broadcast import publisher
from heliograph.links.broadcast import queue as broadcast_queue
from heliograph.links.session import link as session
from heliograph.links.session import send_scheduler
from heliograph.links.session.gateway import PeerGateway
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.interrupts import Instants, Interrupt, interrupt
from tests.support import EXAMPLES_FACTOR, examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from heliograph.links import Carrier

pytestmark = pytest.mark.plain_locks

WELL = 10.0
"""Seconds within which all that was pushed must have come after an interrupt."""


class Pair:
    """Two stations that are linked: what is pushed into one, and what the other got."""

    def __init__(self, folder: Path, qos: hg.QoS, carrier: Carrier) -> None:
        kept = folder / "here" if qos.durability == "persistent" else None
        self.here = hg.Station(kept, domain="e2e", transport=carrier)
        self.there = hg.Station(domain="e2e", transport=carrier)
        self.tracks = self.here.channel("x", Track, qos=qos)
        self.far = self.there.channel("x", Track, qos=qos)
        self.got: list[int] = []
        self.far.subscribe(lambda track: self.got.append(track.id))
        assert self.tracks.wait_matched(1, LIMIT)
        self.next = 0
        self.priority = 3
        """Of all that is pushed: order is promised for each by itself."""

    def track(self) -> Track:
        self.next += 1
        return Track(self.next)

    def wrong(self) -> str:
        """What is not as it should be; empty when each event came once and in order, and is counted."""
        last = self.track()
        self.tracks.push(last, priority=self.priority)
        if not wait_until(lambda: self.got[-1:] == [last.id], WELL):
            return f"{last.id} does not come; {self.tracks.stats().total}"
        if self.got != sorted(set(self.got)):
            twice = {number for number in self.got if self.got.count(number) > 1}
            return f"twice or out of order: {twice or self.got[-10:]}"
        gateway = next(one for one in self.tracks.receivers() if isinstance(one, PeerGateway))
        if not gateway.wait_confirmed(WELL):
            return f"unconfirmed: {self.tracks.stats().total}"
        ledger = self.tracks.stats()
        if not ledger.balanced or ledger.total.pending or ledger.total.delivered != len(self.got):
            return f"got {len(self.got)}: {ledger}"
        assert self.here.mesh is not None
        (link,) = self.here.mesh.stats()
        return f"the link was lost: {link}" if link.connections != 1 else ""

    def close(self) -> None:
        self.here.close()
        self.there.close()


def one_by_one(pair: Pair) -> None:
    pair.tracks.push(pair.track())


def several(pair: Pair) -> None:
    for _ in range(10):
        pair.tracks.push(pair.track())


def of_priorities(pair: Pair) -> None:
    pair.priority = 2
    pair.tracks.push(pair.track(), priority=2)
    pair.tracks.push(pair.track(), priority=2)


def together(pair: Pair) -> None:
    pair.tracks.push_many([pair.track() for _ in range(3)])


def large(pair: Pair) -> None:
    """More than fits into the socket, so that frames are sent in parts, and more than fits into a frame."""
    pair.tracks.push(Track(pair.track().id, region="x" * 3_000_000))
    pair.tracks.push(Track(pair.track().id, region="x" * 5_000_000))


VOLATILE = hg.QoS()
PERSISTENT = hg.QoS(durability="persistent", ack="memory")

SCENES: dict[str, tuple[Callable[[Pair], None], hg.QoS, int]] = {
    "one by one": (one_by_one, VOLATILE, 1),
    "in a burst": (several, VOLATILE, 3),
    "in rows": (several, VOLATILE, 3),
    "in many rows": (several, VOLATILE, 3),
    "of another priority": (of_priorities, VOLATILE, 3),
    "together": (together, VOLATILE, 2),
    "large": (large, VOLATILE, 2),
    "kept": (one_by_one, PERSISTENT, 3),
}
"""What is done, in a channel of which quality, and every how many instants CI looks at one."""


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("carrier", ["socket", "ring"])
def test_an_interrupt_at_any_instant_of_a_push_loses_and_doubles_nothing_at_the_other_station(
    scene: str, carrier: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    if scene == "in a burst":  # under the trace a push takes long, and each would find the link quiet
        monkeypatch.setattr(session, "QUIET_NS", 1 << 62)
        monkeypatch.setattr(send_scheduler, "BURST", 4)
    elif scene == "in rows":  # written together, by who pushes or by the task
        monkeypatch.setattr(publisher, "TOGETHER_NS", 2_000_000)
    elif scene == "in many rows":  # so many that they go into the queue
        monkeypatch.setattr(publisher, "TOGETHER_NS", 1 << 62)
        monkeypatch.setattr(broadcast_queue, "MOST_ROWS", 4)
    assert list(broken(scene, tmp_path, carrier)) == []


def broken(scene: str, folder: Path, carrier: Carrier) -> Iterator[str]:
    """The instants at which an exception leaves something lost, doubled or pending."""
    act, qos, stride = SCENES[scene]
    stride = 1 if EXAMPLES_FACTOR > 1 else stride
    at, found = 0, 0
    pair = Pair(folder / "0", qos, carrier)
    act(pair)  # what is made once is made
    while found < 10:
        instants = Instants(at, interrupt)
        with suppress(Interrupt):
            instants.run(partial(act, pair))
        wrong = pair.wrong()
        if wrong:
            found += 1
            yield f"{at} {instants.where}: {wrong}"
            pair.close()
            pair = Pair(folder / str(at + 1), qos, carrier)
            act(pair)
        if instants.where is None:
            break
        at += stride
    pair.close()


PUSHING = """
import signal, sys
import heliograph as hg
from tests.e2e.link_support import Track

station = hg.Station(domain="e2e", transport=sys.argv[2])
tracks = station.channel("x", Track)
tracks.wait_matched(1)
pushing = False


def interrupt(*_):
    global pushing
    if pushing:
        pushing = False
        raise KeyboardInterrupt


signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0013)
interrupts = pushed = 0
while interrupts < int(sys.argv[1]):
    try:
        pushing = True
        while True:
            pushed += 1
            tracks.push(Track(pushed))
    except KeyboardInterrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
tracks.push(Track(-1))
gateway = next(one for one in tracks.receivers() if hasattr(one, "wait_confirmed"))
assert gateway.wait_confirmed(60.0), tracks.stats()
ledger = tracks.stats()
assert ledger.balanced and not ledger.total.pending, ledger
(link,) = station.mesh.stats()
assert link.connections == 1, link
print(ledger.total.delivered, flush=True)
sys.stdin.readline()
station.close()
"""


@pytest.mark.parametrize("carrier", ["socket", "ring"])
def test_interrupts_in_a_process_that_pushes_lose_and_double_nothing_in_another_one(
    carrier: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals again and again, wherever the interpreter happens to be."""
    own_meeting_folder(monkeypatch, tmp_path)
    got: list[int] = []
    done = threading.Event()

    def take(track: Any) -> None:
        got.append(track.id)
        if track.id < 0:
            done.set()

    with hg.Station(domain="e2e", transport=carrier) as station:
        station.channel("x", Track).subscribe(take)
        program = [sys.executable, "-c", PUSHING, str(examples(300)), carrier]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            delivered = process.stdout.readline()
            assert done.wait(LIMIT)
            process.communicate("\n", timeout=LIMIT)
    assert process.returncode == 0
    assert got == [*sorted(set(got[:-1])), -1], "each once, and in order"
    assert delivered == f"{len(got)}\n"
