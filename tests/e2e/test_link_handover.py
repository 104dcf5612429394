"""The thread that received an event calls its consumer, and hands the reading over when that takes long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import CallbackStuck
from heliograph.runtime.ports import ThreadSignal
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, TRANSPORT, Track, own_meeting_folder, wait_until
from tests.ring_support import needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOGETHER = 200
"""Events that are pushed at once."""
READERS = ("link reader", "broadcast of ")
"""How the threads are called that read links."""


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    return str(request.param)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts programs in processes of their own, which end with the test."""
    programs: list[Program] = []

    def run(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield run
    for program in programs:
        program.clean_up()


def here(carrier: Any, **more: Any) -> hg.Station:
    return hg.Station(domain="e2e", transport=carrier, **more)


def has_all(tracks: hg.Channel[Track], number: int) -> bool:
    stats = tracks.stats()
    return stats.balanced and sum(counts.delivered for counts in stats.consumers.values()) == number


def test_the_thread_that_received_an_event_calls_its_consumer(
    carrier: str, start: Callable[..., Program]
) -> None:
    threads: list[str] = []
    with here(carrier) as station:
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(lambda _: threads.append(threading.current_thread().name), where="id >= 0")
        start("supply", "air.tracks", "300")
        assert wait_until(lambda: has_all(tracks, 300))
    # On a busy machine a thread may stand still between two instructions for so long that others take over.
    assert any(name.startswith(READERS) for name in threads)


def test_several_consumers_of_one_event_are_called_by_the_thread_that_received_it(
    carrier: str, start: Callable[..., Program]
) -> None:
    threads: list[str] = []
    with here(carrier) as station:
        tracks = station.channel("air.tracks", Track)
        for _ in range(3):
            tracks.subscribe(lambda _: threads.append(threading.current_thread().name))
        start("supply", "air.tracks", "300")
        assert wait_until(lambda: has_all(tracks, 900))
    assert any(name.startswith(READERS) for name in threads)


def test_a_callback_that_does_not_return_delays_no_other_channel(
    carrier: str, start: Callable[..., Program]
) -> None:
    called: list[int] = []
    entered, free = threading.Event(), threading.Event()
    others: SimpleQueue[int] = SimpleQueue()

    def wait(track: Track) -> None:
        called.append(track.id)
        entered.set()
        assert free.wait(LIMIT)

    with here(carrier) as station:
        slow, fast = station.channel("air.slow", Track), station.channel("air.fast", Track)
        slow.subscribe(wait)
        start("supply", "air.slow", "50").says("pushed")
        assert entered.wait(LIMIT)
        fast.subscribe(lambda track: others.put(track.id))
        start("supply", "air.fast", "500")
        assert [others.get(timeout=LIMIT) for _ in range(500)] == list(range(500))
        assert called == [0]
        free.set()
        assert wait_until(lambda: has_all(slow, 50) and has_all(fast, 500))
        assert called == list(range(50))


def test_a_callback_that_hangs_on_a_full_queue_holds_up_no_other_receiver_of_the_channel(
    carrier: str, start: Callable[..., Program]
) -> None:
    free, others = threading.Event(), SimpleQueue[int]()
    with here(carrier, on_error=lambda *_: None) as station:
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(lambda _: free.wait(LIMIT), name="sick", queue=10)
        tracks.subscribe(lambda track: others.put(track.id), name="healthy")
        supplier = start("supply", "air.tracks", "2000")
        assert [others.get(timeout=LIMIT) for _ in range(2000)] == list(range(2000))
        supplier.says("pushed")
        sick = tracks.stats().consumers["sick"]
        assert sick.dropped["suspended"] + sick.pending == 2000
        free.set()
        assert wait_until(lambda: not tracks.stats().total.pending)
        assert tracks.stats().balanced


def test_order_and_counts_hold_and_no_callback_runs_twice_at_a_time_whoever_reads(
    carrier: str, start: Callable[..., Program]
) -> None:
    number = examples(600)
    came: defaultdict[str, list[int]] = defaultdict(list)
    running, together = 0, 0

    def take(track: Track, header: hg.Header) -> None:
        nonlocal running, together
        running += 1
        together = max(together, running)
        if track.id % 37 == 0:
            time.sleep(0.003)  # long enough that another thread reads on
        came[header.supplier].append(track.id)
        running -= 1

    with here(carrier) as station:
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(take)
        for _ in range(2):
            start("supply", "air.tracks", str(number))
        assert wait_until(lambda: has_all(tracks, 2 * number))
        assert sorted(map(len, came.values())) == [number, number]
        assert all(ids == list(range(number)) for ids in came.values())
        assert together == 1


def test_a_callback_that_never_returns_is_reported_and_its_link_goes_on(
    carrier: str, start: Callable[..., Program]
) -> None:
    errors: SimpleQueue[BaseException] = SimpleQueue()
    others: SimpleQueue[int] = SimpleQueue()
    free = threading.Event()
    with here(carrier, callback_limit=0.3, on_error=lambda *said: errors.put(said[2])) as station:
        tracks = station.channel("air.tracks", Track)

        def hang(_: Track) -> None:
            free.wait(LIMIT)

        tracks.subscribe(hang)
        start("supply", "air.tracks", "5")
        assert isinstance(errors.get(timeout=LIMIT), CallbackStuck)
        fast = station.channel("air.fast", Track)
        fast.subscribe(lambda track: others.put(track.id))
        start("supply", "air.fast", "5")
        assert [others.get(timeout=LIMIT) for _ in range(5)] == list(range(5))
        assert wait_until(lambda: tracks.stats().balanced)
        free.set()


def test_what_a_callback_pushes_is_delivered_while_it_waits_for_it(
    carrier: str, start: Callable[..., Program]
) -> None:
    heard, done = threading.Event(), threading.Event()
    with here(carrier) as station:
        tracks, notes = station.channel("air.tracks", Track), station.channel("notes", Track)
        notes.subscribe(lambda _: heard.set())

        def ask(track: Track) -> None:
            notes.push(track)
            assert heard.wait(LIMIT)
            done.set()

        tracks.subscribe(ask)
        start("supply", "air.tracks", "1")
        assert done.wait(LIMIT)


def test_a_callback_can_wait_for_what_has_to_be_read_from_the_same_link(
    carrier: str, start: Callable[..., Program]
) -> None:
    answers: SimpleQueue[bool] = SimpleQueue()
    with here(carrier) as station:
        tracks = station.channel("air.tracks", Track)
        assert station.mesh is not None
        mesh = station.mesh
        tracks.subscribe(lambda _: answers.put(mesh.meet_all(LIMIT)))
        start("supply", "air.tracks", "1")
        assert answers.get(timeout=LIMIT) is True


def test_a_callback_may_close_its_own_subscription_and_its_station(
    carrier: str, start: Callable[..., Program]
) -> None:
    called: SimpleQueue[int] = SimpleQueue()
    closed = threading.Event()
    station = here(carrier)
    tracks = station.channel("air.tracks", Track)

    def take(track: Track) -> None:
        called.put(track.id)
        subscription.close()
        station.close(LIMIT)
        closed.set()

    subscription = tracks.subscribe(take)
    start("supply", "air.tracks", "20").says("pushed")
    assert closed.wait(LIMIT)
    assert called.get(timeout=LIMIT) == 0
    assert called.empty()


def test_a_thread_that_waits_in_pull_is_woken_once_for_all_that_came_together(
    carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with here(carrier) as station, here(carrier) as other:
        consumer, pushed = station.channel("x", Track).consumer(), other.channel("x", Track)
        assert pushed.wait_matched(1, LIMIT)
        waits: list[str] = []
        wait = ThreadSignal.wait

        def counted(signal: ThreadSignal, timeout: float | None = None) -> bool:
            is_pulling = threading.current_thread().name == "pulling"
            waits.extend(["asleep"] if is_pulling else [])
            rang = wait(signal, timeout)
            waits.extend(["woken"] if is_pulling else [])
            return rang

        monkeypatch.setattr(ThreadSignal, "wait", counted)
        found: list[Track | None] = []
        pulling = threading.Thread(
            target=lambda: found.extend(consumer.pull(LIMIT) for _ in range(TOGETHER)), name="pulling"
        )
        pulling.start()
        assert wait_until(lambda: waits)
        pushed.push_many([Track(n) for n in range(TOGETHER)])
        pulling.join(LIMIT)
        assert [track.id for track in found if track is not None] == list(range(TOGETHER))
        assert waits == ["asleep", "woken"]


def test_a_loop_that_waits_in_async_for_is_woken_once_for_all_that_came_together(
    carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with here(carrier) as station, here(carrier) as other:
        consumer, pushed = station.channel("x", Track).consumer(), other.channel("x", Track)
        assert pushed.wait_matched(1, LIMIT)

        async def receive() -> tuple[list[int], int]:
            loop, wakes, found = asyncio.get_running_loop(), 0, []
            call_soon = loop.call_soon_threadsafe

            def counted(*args: Any, **more: Any) -> asyncio.Handle:
                nonlocal wakes
                wakes += 1
                return call_soon(*args, **more)

            monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
            # When this task waits: what it is woken by comes through the loop from another thread.
            loop.call_later(0, push.start)
            async for track in consumer:
                found.append(track.id)
                if len(found) == TOGETHER:
                    return found, wakes
            raise AssertionError("it ended")

        push = threading.Thread(target=lambda: pushed.push_many([Track(n) for n in range(TOGETHER)]))
        found, wakes = asyncio.run(receive())
        push.join(LIMIT)
        assert found == list(range(TOGETHER))
        assert wakes == 1
