"""Ctrl-C ends whatever a program waits for, and leaving afterwards is clean."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.link_support import wait_until
from tests.support import examples

LIMIT = 30

PROGRAM = """
import sys
import heliograph as hg


class Track(hg.Event, name="interrupt.track"):
    id: int


with hg.Station(sys.argv[1]) as station:
    tracks = station.channel("tracks", Track, qos=hg.QoS(queue=1, max_blocking=60.0))
    kept = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    watched = station.channel("watched", Track, qos=hg.QoS(ack="delivered", ack_timeout=60.0))
    consumer = tracks.consumer()
    tracks.push(Track(0))
    never = watched.consumer(ack="manual")
    try:
        print("ready", flush=True)
        {wait}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("came back by itself", flush=True)
print("left", flush=True)
"""

WAITS = {
    "pull": "kept.consumer().pull()",
    "iterating": "list(kept.consumer())",
    "a full queue": "tracks.push(Track(1))",
    "acknowledgements": "watched.push(Track(1))",
    "somebody to come": "kept.wait_matched(3)",
    "callbacks to end": "consumer.queue.wait_empty(None)",
}


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_a_wait_and_the_station_closes(wait: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM.format(wait=WAITS[wait]), str(tmp_path / "data")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert wait_until(lambda: is_asleep(process.pid))
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LIMIT)
    assert said == "interrupted\nleft\n"


PUSHING = """
import os, signal, sys, threading, time
import heliograph as hg


class Track(hg.Event, name="interrupt.track"):
    id: int


station = hg.Station()
tracks = station.channel("tracks", Track)
got = []
tracks.subscribe(lambda track: got.append(track.id))
tracks.push(Track(-1))
pushing = False


def interrupt(*_):
    global pushing
    if pushing:
        pushing = False
        raise KeyboardInterrupt


def hit():
    while True:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.0005)


signal.signal(signal.SIGINT, interrupt)
threading.Thread(target=hit, daemon=True).start()
interrupts = pushed = 0
while interrupts < int(sys.argv[1]):
    try:
        pushing = True
        while True:
            pushed += 1
            tracks.push(Track(pushed))
    except KeyboardInterrupt:
        interrupts += 1
tracks.push(Track(-2))
ledger = tracks.stats()
left = station.close()
assert not left, left
assert ledger.balanced, ledger
assert tracks.stats().balanced
assert got == [*got[:1], *sorted(got[1:-1]), -2], "the order of the supplier"
print("fine", flush=True)
"""


def test_interrupts_while_pushing_leave_locks_free_and_the_ledger_balanced() -> None:
    """Ctrl-C again and again, wherever the interpreter happens to be."""
    program = [sys.executable, "-c", PUSHING, str(examples(300))]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, timeout=4 * LIMIT, check=False)
    assert done.stdout == "fine\n"
