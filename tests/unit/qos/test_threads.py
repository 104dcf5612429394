"""Thread arrangements: where callbacks run, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from queue import SimpleQueue
from typing import Any

import pytest

import heliograph as hg
from heliograph.channel.dispatch import pool as dispatch
from tests.e2e.link_support import wait_until

LIMIT = 10.0


class Note(hg.Event):
    text: str


def test_a_higher_band_runs_while_a_lower_one_is_inside_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)  # nobody helps out
    begun, free = threading.Event(), threading.Event()
    heard: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def low(_: Note) -> None:
        begun.set()
        assert free.wait(LIMIT)
        heard.put(("low", threading.current_thread().name))

    with hg.Station() as station:
        channel = station.channel("c", Note, qos=hg.QoS(threads=hg.Threads("bands")))
        channel.subscribe(low, priority=1)
        channel.subscribe(lambda _: heard.put(("high", threading.current_thread().name)), priority=5)
        channel.push(Note("n"))
        assert begun.wait(LIMIT)
        assert heard.get(timeout=LIMIT) == ("high", "band 5-1")
        free.set()
        assert heard.get(timeout=LIMIT) == ("low", "band 1-1")


def test_a_high_event_waits_for_no_lock_of_the_low_though_the_middle_keeps_every_other_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Priority inversion: the low is stopped in mid-push, in a callback that pushes on, by the middle."""
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)
    inside, free = threading.Semaphore(0), threading.Event()
    heard: SimpleQueue[str] = SimpleQueue()

    def stopped(_: Note) -> None:
        inside.release()
        assert free.wait(3 * LIMIT)

    def relay(_: Note) -> None:
        relayed.push(Note("from the low"))  # stays inside this push until the middle lets go

    with hg.Station() as station:
        qos = hg.QoS(threads=hg.Threads("bands"))
        channel, relayed = station.channel("c", Note, qos=qos), station.channel("relayed", Note, qos=qos)
        relayed.subscribe(stopped, inline=True, where="text = 'from the low'")
        relayed.subscribe(lambda note: heard.put(f"relayed {note.text}"), priority=5, where="text = 'urgent'")
        channel.subscribe(relay, priority=1, where="text = 'low'")
        channel.subscribe(stopped, priority=3, where="text = 'middle'")
        channel.subscribe(lambda note: heard.put(note.text), priority=5, where="text = 'urgent'")
        channel.push(Note("low"))
        channel.push(Note("middle"))
        for _ in range(2):
            assert inside.acquire(timeout=LIMIT)
        for _ in range(20):
            channel.push(Note("urgent"))
            assert heard.get(timeout=LIMIT) == "urgent"
            relayed.push(Note("urgent"))  # the channel that the low is inside of
            assert heard.get(timeout=LIMIT) == "relayed urgent"
        assert channel.stats().balanced
        free.set()


def test_one_consumer_is_called_in_the_band_of_each_event_and_never_twice_at_a_time() -> None:
    calls: list[tuple[str, str]] = []
    inside = threading.Lock()
    begun, free = threading.Event(), threading.Event()

    def take(note: Note) -> None:
        assert inside.acquire(blocking=False)
        calls.append((note.text, threading.current_thread().name))
        begun.set()
        assert free.wait(LIMIT)
        inside.release()

    with hg.Station() as station:
        channel = station.channel("c", Note, qos=hg.QoS(threads=hg.Threads("bands")))
        channel.subscribe(take)
        channel.push_many([Note("0"), Note("1")])
        assert begun.wait(LIMIT)
        channel.push(Note("high"), priority=5)
        free.set()
        assert channel.settle(LIMIT)
        assert channel.stats().balanced
    assert calls == [("0", "band 3-1"), ("high", "band 5-1"), ("1", "band 3-1")]


def test_a_pool_has_as_many_workers_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)
    together = threading.Barrier(4)
    with hg.Station() as station:
        channel = station.channel("c", Note, qos=hg.QoS(threads=hg.Threads("pool", workers=3)))
        for _ in range(3):
            channel.subscribe(lambda _: together.wait(LIMIT))
        channel.push(Note("n"))
        assert together.wait(LIMIT) is not None


def test_on_an_inline_channel_callbacks_run_inside_push_unless_they_say_otherwise() -> None:
    threads: list[int] = []
    with hg.Station() as station:
        channel = station.channel("c", Note, qos=hg.QoS(threads=hg.Threads("inline")))
        channel.subscribe(lambda _: threads.append(threading.get_ident()))
        channel.push(Note("n"))
        assert threads == [threading.get_ident()]
        channel.subscribe(lambda _: threads.append(threading.get_ident()), inline=False)
        channel.push(Note("n"))
        assert channel.settle(LIMIT)
    assert sorted(thread == threading.get_ident() for thread in threads) == [False, True, True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "fibres"}, "one of pool, bands, inline"),
        ({"workers": 0}, "a whole number from 1 to 64"),
        ({"kind": "bands", "workers": 2}, "None unless threads are a 'pool'"),
        ({"os_priorities": True}, "False unless threads are 'bands'"),
        ({"kind": "bands", "os_priorities": 1}, "True or False"),
        ({"kind": "bands", "core": 1}, "None unless os_priorities=True"),
        ({"kind": "bands", "background": True}, "False unless os_priorities=True"),
        ({"kind": "bands", "os_priorities": True, "background": 1}, "True or False"),
    ],
)
def test_an_arrangement_that_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hg.InvalidQoS, match=sentence):
        hg.Threads(**options)


@pytest.mark.parametrize(
    ("qos", "sentence"),
    [
        ({"threads": "bands"}, r"hg\.Threads"),
        ({"threads": hg.Threads("bands"), "dispatch": "aged"}, "unless dispatch='strict'"),
        ({"threads": hg.Threads("inline"), "durability": "persistent"}, "'pool' or 'bands' where push waits"),
    ],
)
def test_an_arrangement_that_does_not_go_with_the_rest_is_refused(qos: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hg.InvalidQoS, match=sentence):
        hg.QoS(**qos)


REAL_TIME = """
import os, sys, threading
import heliograph as hg
from heliograph.errors import RealTimeRefused

class Note(hg.Event):
    text: str

def state():
    return os.sched_getscheduler(0), os.sched_getaffinity(0), sys.getswitchinterval()

before, seen = state(), {}
done = threading.Semaphore(0)

def take(note, header):
    priority = os.sched_getparam(0).sched_priority
    seen[header.priority] = (os.sched_getscheduler(0), priority, len(os.sched_getaffinity(0)))
    done.release()

try:
    with hg.Station() as station:
        background = "background" in sys.argv
        qos = hg.QoS(threads=hg.Threads("bands", os_priorities=True, background=background))
        channel = station.channel("c", Note, qos=qos)
        channel.subscribe(take)
        for priority in (1, 5):
            channel.push(Note("n"), priority=priority)
            assert done.acquire(timeout=10)
        lowest = (os.SCHED_OTHER, 0, 1) if background else (os.SCHED_FIFO, 11, 1)
        assert seen == {1: lowest, 5: (os.SCHED_FIFO, 15, 1)}, seen
        assert len(os.sched_getaffinity(0)) == 1 and sys.getswitchinterval() < 0.001
    print("ran")
except RealTimeRefused as error:
    print(error)
assert state() == before, (state(), before)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "SCHED_FIFO"), reason="this system has no SCHED_FIFO")
@pytest.mark.parametrize("lowest", ["real-time", "background"])
def test_os_priorities_are_given_on_request_and_taken_back_or_refused_with_the_remedy(lowest: str) -> None:
    command = [sys.executable, "-c", REAL_TIME, lowest]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    said = run.stdout.strip()
    assert said == "ran" or ("SCHED_FIFO" in said and "CAP_SYS_NICE" in said)


def test_a_system_that_forbids_them_is_told_how_to_allow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    realtime = pytest.importorskip("heliograph.runtime.realtime")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(realtime.os, "sched_setscheduler", refuse)
    with hg.Station() as station:
        with pytest.raises(hg.HeliographError, match=r"SCHED_FIFO: the OS forbids it .* CAP_SYS_NICE"):
            station.channel("c", Note, qos=hg.QoS(threads=hg.Threads("bands", os_priorities=True)))
        assert station.channels() == ()


def test_a_core_that_this_process_may_not_use_is_refused() -> None:
    with hg.Station() as station:
        threads = hg.Threads("bands", os_priorities=True, core=60_000)
        with pytest.raises(hg.HeliographError, match="core 60000: this process may use"):
            station.channel("c", Note, qos=hg.QoS(threads=threads))


class TwoAndOne:
    """Two workers for the highest priority, one for each other; notes which of them began and ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.ended: list[tuple[int, str]] = []

    def workers(self, priority: int) -> int:
        return 2 if priority == 5 else 1

    def begin(self, priority: int) -> None:
        self.begun.append((priority, threading.current_thread().name))

    def end(self, priority: int) -> None:
        self.ended.append((priority, threading.current_thread().name))


def test_a_strategy_of_ones_own_decides_how_many_threads_each_priority_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "WATCH_EVERY", 60.0)  # no worker is added for those that wait
    strategy, together = TwoAndOne(), threading.Barrier(3)
    with hg.Station() as station:
        qos = hg.QoS(threads=hg.Threads("bands", strategy=strategy))
        channel = station.channel("c", Note, qos=qos)
        for _ in range(2):
            channel.subscribe(lambda _: together.wait(LIMIT), priority=5)
        channel.push(Note("n"))
        assert together.wait(LIMIT) is not None  # both are inside their callbacks at once
        assert channel.settle(LIMIT)
    assert wait_until(lambda: sorted(strategy.begun) == sorted(strategy.ended))
    assert {name for priority, name in strategy.begun if priority == 5} == {"band 5-1", "band 5-2"}


def test_a_strategy_that_raises_in_its_thread_costs_no_callback(caplog: pytest.LogCaptureFixture) -> None:
    class Refused(TwoAndOne):
        def begin(self, priority: int) -> None:
            raise PermissionError(priority)

    heard = threading.Event()
    with hg.Station() as station:
        qos = hg.QoS(threads=hg.Threads("bands", strategy=Refused()))
        channel = station.channel("c", Note, qos=qos)
        channel.subscribe(lambda _: heard.set())
        channel.push(Note("n"))
        assert heard.wait(LIMIT)
    assert "Refused.begin(3) raised; its worker goes on" in caplog.text


def test_a_strategy_that_cannot_be_is_refused_by_name() -> None:
    class None0(TwoAndOne):
        def workers(self, priority: int) -> int:
            return priority - 1

    with pytest.raises(hg.InvalidQoS, match="workers, begin and end"):
        hg.Threads("bands", strategy=object())  # type: ignore[arg-type]  # as a user might
    with pytest.raises(hg.InvalidQoS, match="'bands' without os_priorities"):
        hg.Threads("pool", strategy=TwoAndOne())
    qos = hg.QoS(threads=hg.Threads("bands", strategy=None0()))
    with hg.Station() as station, pytest.raises(hg.NotPossible, match=r"workers\(1\) is 0"):
        station.channel("c", Note, qos=qos)
