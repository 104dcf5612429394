"""How everything in bench/ is measured.

A benchmark is a handful of cases that do the same job in different ways, and targets that compare two of
them. All cases of a benchmark run in one process, in rounds: every round takes one sample of each case, one
right after the other, in a new order. Targets are judged on the median over the rounds of the ratio within
a round, so that a machine that is slow for a while slows both sides.

    @benchmark("records", "…")
    def records(size: Size) -> Benchmark: ...

Times are processor time of the measuring thread, so that other processes do not count by what they take away,
only by the caches they spoil; where other threads, processes or the disk do the work, time on the wall. The
spread that is kept beside every median is the 10th and the 90th percentile.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, field
from itertools import repeat
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Direction = Literal["at most", "at least"]


EVENTS = 1_000_000
"""Events in a history, unless `--events` says otherwise."""


@dataclass(frozen=True)
class Size:
    """How much to measure. `quick` is a small share that shows that everything runs, and no more."""

    quick: bool
    seed: int
    events: int = EVENTS
    """Events in a history that is read; `--events` sets it, for the slope."""
    histories: Path | None = None
    """Where histories of such sizes are kept from run to run; None: they are made anew."""

    def fewer(self, rounds: int) -> int:
        """Rounds for a history of this size: two when one takes minutes."""
        return rounds if self.events <= EVENTS else 2

    def label(self, name: str) -> str:
        """Under which name a result is kept: a history of another size has its own."""
        return name if self.events == EVENTS else f"{name}-{self.events // EVENTS}m"

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 31

    @property
    def sample_s(self) -> float:
        """How long one sample of one case should take."""
        return 0.001 if self.quick else 0.02

    def scaled(self, n: int) -> int:
        """A number of things, or a hundredth of it when quick."""
        return max(10, n // 100) if self.quick else n


@dataclass(frozen=True)
class Case:
    """One way to do the job: `function(*input)` for each of `inputs`.

    With `alone`, each call is timed by itself and the spread is over calls; for calls that change something
    and where the slow ones matter. With `wall`, time is that on the wall: for work that other threads, other
    processes or the disk do. `events` is how many events one call stands for; figures are per event.
    """

    name: str
    function: Callable[..., object]
    inputs: Sequence[tuple[Any, ...]]
    note: str = ""
    alone: bool = False
    wall: bool = False
    events: int = 1


@dataclass(frozen=True)
class Target:
    """What a benchmark is held against.

    With `base` the figure is the ratio of two cases; without it, the milliseconds that 99 of 100 calls stay
    within, of a case that is timed alone, or the microseconds per event of one that is not.
    """

    sentence: str
    case: str
    direction: Direction
    limit: float
    base: str | None = None


@dataclass(frozen=True)
class Fact:
    """Something that holds or does not, found without a clock."""

    sentence: str
    holds: bool


@dataclass(frozen=True)
class Benchmark:
    """Cases that do one job, the one that the table's ratios refer to, and what is asked of them."""

    cases: tuple[Case, ...]
    baseline: str
    targets: tuple[Target, ...] = ()
    facts: tuple[Fact, ...] = ()
    note: str = ""
    rounds: int | None = None
    """Fewer than usual, for cases of seconds each; a quick run has no more than any other."""
    close: Callable[[], object] = lambda: None
    """Ends what was started for it: stations, processes, files."""


@dataclass(frozen=True)
class Registered:
    name: str
    title: str
    build: Callable[[Size], Benchmark]


REGISTRY: dict[str, Registered] = {}


def benchmark(name: str, title: str) -> Callable[[Callable[[Size], Benchmark]], Callable[[Size], Benchmark]]:
    """Register what builds a benchmark."""

    def register(build: Callable[[Size], Benchmark]) -> Callable[[Size], Benchmark]:
        REGISTRY[name] = Registered(name, title, build)
        return build

    return register


@dataclass(frozen=True)
class Spread:
    """A median and how far the values lie around it."""

    median: float
    p10: float
    p90: float
    p99: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        # Between equal values rounding can put a cut a hair above the next one.
        cuts = sorted(quantiles(values, n=100, method="inclusive"))
        return Spread(cuts[49], cuts[9], cuts[89], cuts[98], max(values))


@dataclass(frozen=True)
class Measured:
    """One case after all rounds: nanoseconds per call, and the ratio to the baseline within each round."""

    name: str
    note: str
    ns: Spread
    ratio: Spread
    calls: int


@dataclass(frozen=True)
class Judged:
    """One target after all rounds."""

    sentence: str
    direction: Direction
    limit: float
    unit: Literal["x", "ms", "µs"]
    figure: Spread
    reached: bool


@dataclass(frozen=True)
class Outcome:
    """Everything that one benchmark gave."""

    name: str
    title: str
    note: str
    baseline: str
    rounds: int
    cases: tuple[Measured, ...]
    targets: tuple[Judged, ...]
    facts: tuple[Fact, ...]


@dataclass
class _Samples:
    """What the rounds of one case have given so far: one mean per round, or one time per call when alone."""

    loops: int = 1
    calls: int = 0
    per_round: list[float] = field(default_factory=list)
    per_call: list[float] = field(default_factory=list)


def run(registered: Registered, size: Size) -> Outcome:
    """Build a benchmark, take its rounds, judge its targets."""
    bench = registered.build(size)
    # What was built stays; without this every collection would walk through all of it.
    gc.freeze()
    try:
        rounds = min(bench.rounds or size.rounds, size.rounds)
        samples = _take_rounds(bench, size, rounds)
    finally:
        gc.unfreeze()
        bench.close()
    return Outcome(
        name=size.label(registered.name),
        title=registered.title,
        note=bench.note,
        baseline=bench.baseline,
        rounds=rounds,
        cases=tuple(_measured(case, bench.baseline, samples) for case in bench.cases),
        targets=tuple(_judged(target, samples) for target in bench.targets),
        facts=bench.facts,
    )


def _take_rounds(bench: Benchmark, size: Size, rounds: int) -> dict[str, _Samples]:
    samples = {case.name: _Samples() for case in bench.cases}
    for case in bench.cases:
        if not case.alone:
            samples[case.name].loops = _loops_for(case, size.sample_s)
    chance = random.Random(size.seed)
    for _ in range(rounds):
        for case in chance.sample(bench.cases, len(bench.cases)):
            _sample(case, samples[case.name])
    return samples


def _loops_for(case: Case, seconds: float) -> int:
    """How often to go through the inputs so that a sample takes about that long."""
    loops = 1
    while (taken := _time(case, loops)) < seconds / 2 and loops < 1 << 24:
        loops = max(loops * 2, int(loops * seconds / max(taken, 1e-9) / 2))
    return loops


def _sample(case: Case, into: _Samples) -> None:
    if case.alone:
        times = _time_each(case)
        into.per_call += times
        into.per_round.append(sum(times) / len(times))
        into.calls += len(times)
    else:
        calls = into.loops * len(case.inputs) * case.events
        into.per_round.append(_time(case, into.loops) * 1e9 / calls)
        into.calls += calls


def _time(case: Case, loops: int) -> float:
    """Seconds for going through all inputs `loops` times, without a cost for taking arguments apart."""
    function, inputs = case.function, case.inputs
    clock = time.perf_counter if case.wall else time.thread_time
    gc.disable()
    try:
        match len(inputs[0]):
            case 0:
                start = clock()
                for _ in repeat(None, loops * len(inputs)):
                    function()
            case 1:
                singles = [a for (a,) in inputs]
                start = clock()
                for _ in repeat(None, loops):
                    for a in singles:
                        function(a)
            case _:
                start = clock()
                for _ in repeat(None, loops):
                    for a, b in inputs:
                        function(a, b)
        return clock() - start
    finally:
        gc.enable()


def _time_each(case: Case) -> list[float]:
    """Nanoseconds of each call."""
    clock = time.perf_counter_ns if case.wall else time.thread_time_ns
    times = []
    gc.disable()
    try:
        for arguments in case.inputs:
            start = clock()
            case.function(*arguments)
            times.append(float(clock() - start))
    finally:
        gc.enable()
    return times


def _measured(case: Case, baseline: str, samples: dict[str, _Samples]) -> Measured:
    own = samples[case.name]
    return Measured(
        name=case.name,
        note=case.note,
        ns=Spread.of(own.per_call or own.per_round),
        ratio=_ratio(own, samples[baseline]),
        calls=own.calls,
    )


def _judged(target: Target, samples: dict[str, _Samples]) -> Judged:
    own = samples[target.case]
    unit: Literal["x", "ms", "µs"]
    if target.base is not None:
        unit, figure = "x", _ratio(own, samples[target.base])
    elif own.per_call:
        unit, figure = "ms", Spread.of([ns / 1e6 for ns in own.per_call])
    else:
        unit, figure = "µs", Spread.of([ns / 1e3 for ns in own.per_round])
    value = figure.p99 if unit == "ms" else figure.median
    reached = value <= target.limit if target.direction == "at most" else value >= target.limit
    return Judged(target.sentence, target.direction, target.limit, unit, figure, reached)


def _ratio(own: _Samples, base: _Samples) -> Spread:
    return Spread.of([a / b for a, b in zip(own.per_round, base.per_round, strict=True)])
