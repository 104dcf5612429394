"""Inside one process: a push to inline callbacks against the least that a push can do, twenty filters against
the same written by hand, and queued delivery against bare queues.
"""

from __future__ import annotations

import queue
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph.model.event import Header

if TYPE_CHECKING:
    from collections.abc import Callable


class Track(hg.Event, name="air.track"):
    id: int
    lat: float
    lon: float
    speed: float
    region: str


TRACK = Track(7, 48.1, 11.6, 410.0, "north")
LANES = 4


def take(_: Track) -> None:
    """The callback: nothing, so that all of the time is ours."""


def least_push() -> Callable[[Track], bool]:
    """What no push can do without: a lock, a sequence, a clock, a header, a count and the call."""
    lock = threading.Lock()
    next_sequence = count(1).__next__
    format_id = hg.format_of(Track).id
    counts = {"pushed": 0}

    def push(event: Track) -> bool:
        with lock:
            header = Header("air", "air.track", "s", 1, next_sequence(), time.time_ns(), format_id)
            counts["pushed"] += 1
        take(event)
        return header is not None

    return push


@benchmark("channels-push", "A push to one inline callback")
def push_inline(_: Size) -> Benchmark:
    station = hg.Station()
    nobody, one = station.channel("nobody", Track), station.channel("one", Track)
    one.subscribe(take, inline=True)
    inputs = ((TRACK,),)
    return Benchmark(
        cases=(
            Case(
                "the least",
                least_push(),
                inputs,
                "lock, sequence, clock, header, count, call: by hand, unchecked",
            ),
            Case("to nobody", nobody.push, inputs),
            Case("to one callback", one.push, inputs, "values checked, ledger kept"),
            Case("built, with floats", lambda: one.push(Track(7, 48.0, 11.0, 410.0, "north")), ((),)),
            Case("built, with an int for each", lambda: one.push(Track(7, 48, 11, 410, "north")), ((),)),
        ),
        baseline="the least",
        close=station.close,
        targets=(
            # 0.6 µs where the least takes 0.5, as it did on the machine that the target was set on.
            Target(
                "a push to one callback against the least", "to one callback", "at most", 1.2, "the least"
            ),
            Target(
                "an int for each of three floats against floats",
                "built, with an int for each",
                "at most",
                2.0,
                "built, with floats",
            ),
        ),
    )


WHERE = [f"speed > {50 * n} AND region = '{'north' if n % 2 else 'south'}'" for n in range(20)]


def by_hand() -> Callable[[Track, Any], None]:
    """The same twenty tests and calls in one function."""
    lines = ["def route(event, header):"]
    for n in range(20):
        lines.append(
            f"    if event.speed > {50.0 * n} and event.region == '{'north' if n % 2 else 'south'}':"
        )
        lines.append("        take(event)")
    scope: dict[str, Any] = {"take": take}
    exec("\n".join(lines), scope)  # the text is above
    function: Callable[[Track, Any], None] = scope["route"]
    return function


@benchmark("channels-filters", "Twenty inline callbacks with a filter each")
def twenty_inline(_: Size) -> Benchmark:
    station = hg.Station()
    channel = station.channel("twenty", Track)
    for where in WHERE:
        channel.subscribe(take, inline=True, where=where)
    inline = channel._members.routes[Track].inline  # noqa: SLF001 - what runs inside push
    assert inline is not None
    inputs: tuple[tuple[Any, ...], ...] = ((TRACK, None),)
    return Benchmark(
        cases=(
            Case("by hand", by_hand(), inputs),
            Case(
                "heliograph", inline, inputs, "NaN rules, isolation of errors and the ledger's bits included"
            ),
        ),
        baseline="by hand",
        close=station.close,
        targets=(
            Target("each consumer against a test and call by hand", "heliograph", "at most", 1.2, "by hand"),
        ),
    )


def bare_queues(events: int) -> Callable[[], None]:
    """Four threads that drain a bare queue each."""
    queues: list[queue.SimpleQueue[Track | None]] = [queue.SimpleQueue() for _ in range(LANES)]
    done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def drain(own: queue.SimpleQueue[Track | None]) -> None:
        while True:
            event = own.get()
            if event is None:
                done.put(None)
            else:
                take(event)

    for own in queues:
        threading.Thread(target=drain, args=(own,), daemon=True).start()

    def run() -> None:
        for _ in range(events):
            for own in queues:
                own.put(TRACK)
        for own in queues:
            own.put(None)
        for _ in queues:
            done.get()

    return run


@benchmark("channels-queued", "Queued delivery to four callbacks; figures per delivery")
def queued(size: Size) -> Benchmark:
    events = size.scaled(5_000)
    station = hg.Station()
    channel = station.channel("queued", Track)
    for _ in range(LANES):
        channel.subscribe(take)
    batch = [TRACK] * events

    def one_by_one() -> None:
        for event in batch:
            channel.push(event)
        channel.settle()

    def together() -> None:
        channel.push_many(batch)
        channel.settle()

    deliveries = events * LANES
    return Benchmark(
        cases=(
            Case(
                "bare queues",
                bare_queues(events),
                ((),),
                "SimpleQueue and a thread each",
                wall=True,
                events=deliveries,
            ),
            Case("push", one_by_one, ((),), wall=True, events=deliveries),
            Case("push_many", together, ((),), wall=True, events=deliveries),
        ),
        baseline="bare queues",
        note="One million deliveries a second are 1 µs each.",
        targets=(
            Target("a delivery of events pushed one by one", "push", "at most", 1.0),
            Target("a delivery of events pushed together", "push_many", "at most", 1.0),
        ),
        close=station.close,
    )
