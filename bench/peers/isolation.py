"""What consumers and filters that misbehave cost the others: times on the wall, each call by itself.

    push           one push, to a consumer that counts; beside it on the same channel one that sleeps a second
    to a callback  from `push` to a queued callback; beside it consumers that raise, and one that hangs
    another stream from `push` to a queued callback, while a thread pushes into another channel whose filter
                   takes long
    same channel   one push of another supplier into the channel whose filter takes long

The same is measured without the others, in turns, so that a slow machine is slow for both. What is compared
is the median over the turns of the 99th percentile of each.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from statistics import median, quantiles
from typing import TYPE_CHECKING

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 30.0
TURNS = 15
CALLS = 400
"""Calls of each kind in one turn."""
MORE = 1.2
"""How much longer a call may take because of others."""
TEXT = "a" * 2_000_000
PIECES = 120
"""Patterns that the long filter looks for in a text of two million characters."""


class Note(hg.Event, name="bench.note"):
    n: int
    text: str = ""


class Answering:
    """A channel, a queued callback that tells when it was called, and others beside it."""

    def __init__(self, station: hg.Station, name: str, *others: Callable[[Note], object]) -> None:
        self.channel = station.channel(name, Note)
        self._there = threading.Event()
        self.channel.subscribe(lambda _: self._there.set(), name="answers", priority=5)
        for other in others:
            self.channel.subscribe(other)

    def push(self) -> None:
        self.channel.push(Note(1))

    def to_the_callback(self) -> None:
        self._there.clear()
        self.channel.push(Note(1))
        if not self._there.wait(LIMIT):
            raise TimeoutError("not called")


def p99(call: Callable[[], object]) -> float:
    """Microseconds of the slowest of a hundred."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return quantiles(times, n=100, method="inclusive")[98]


def beside(turns: int, alone: Callable[[], object], with_others: Callable[[], object]) -> tuple[float, float]:
    """The medians of both, measured in turns."""
    return medians([(p99(alone), p99(with_others)) for _ in range(turns)])


def medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(first for first, _ in pairs), median(second for _, second in pairs)


def behaving(_: Note) -> None:
    """A callback as others are."""


def raising(_: Note) -> None:
    raise ValueError("on purpose")


class LongFilter:
    """Pushes, in a thread of its own, events into a channel whose filter looks through a long text."""

    def __init__(self, station: hg.Station) -> None:
        where = " OR ".join(f"text LIKE '%b{n}%'" for n in range(PIECES))
        self._channel = station.channel("long.filter", Note)
        self._channel.subscribe(lambda _: None, where=where)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        start = time.perf_counter_ns()
        self._channel.push(Note(0, TEXT))
        self.seconds = (time.perf_counter_ns() - start) / 1e9

        self.other = self._channel.supplier()

    def push(self) -> None:
        self.other.push(Note(1))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._channel.push(Note(0, TEXT))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def with_long_filter(
    station: hg.Station, turns: int, quiet: Answering
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """99th percentiles without and with it, of another stream and of another supplier; its seconds."""
    stream, supplier = [], []
    for _ in range(turns):
        busy = LongFilter(station)
        alone = p99(quiet.to_the_callback), p99(busy.push)
        with busy:
            stream.append((alone[0], p99(quiet.to_the_callback)))
            supplier.append((alone[1], p99(busy.push)))
    return medians(stream), medians(supplier), busy.seconds


@benchmark("channels-isolation", "A push, beside consumers that sleep, raise or hang")
def isolation(size: Size) -> Benchmark:
    started = ExitStack()
    station = hg.Station(callback_limit=3600.0, on_error=lambda *_: None)
    started.callback(station.close, 0.0)
    free = threading.Event()
    started.callback(free.set)
    turns = 2 if size.quick else TURNS
    two, five = Answering(station, "two", behaving), Answering(station, "five", *[behaving] * 4)
    sleeping = Answering(station, "sleeping", lambda _: free.wait(1.0))
    broken = Answering(station, "broken", raising, raising, raising, lambda _: free.wait())
    pushes = beside(turns, two.push, sleeping.push)
    calls = beside(turns, five.to_the_callback, broken.to_the_callback)
    stream, supplier, seconds = with_long_filter(station, max(2, turns // 5), two)

    def fact(what: str, figures: tuple[float, float]) -> Fact:
        figure = figures[1] / figures[0]
        sentence = (
            f"{what}: p99 {figures[1]:.1f} µs beside {figures[0]:.1f} µs, {figure:.2f}x (at most {MORE}x)"
        )
        return Fact(sentence, size.quick or figure <= MORE)

    def rise(what: str, figures: tuple[float, float]) -> Fact:
        rise = figures[1] - figures[0]
        sentence = (
            f"{what} beside a filter of {seconds * 1e3:.0f} ms: p99 rises by {rise / 1e3:.2f} ms "
            "(less than one evaluation)"
        )
        return Fact(sentence, size.quick or rise < seconds * 1e6)

    return Benchmark(
        cases=(
            Case("to a callback, beside one that behaves", two.to_the_callback, ((),), wall=True),
            Case("to a callback, beside four that behave", five.to_the_callback, ((),), wall=True),
        ),
        baseline="to a callback, beside one that behaves",
        facts=(
            fact("a push beside a consumer that sleeps a second", pushes),
            fact("to a callback beside three that raise and one that hangs", calls),
            rise("another stream", stream),
            rise("a push of another supplier of that channel", supplier),
        ),
        close=started.close,
        note="The facts compare times on the wall, of as many consumers that behave and that do not.",
    )
