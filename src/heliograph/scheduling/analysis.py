"""Admission of periodic work: rate-monotonic priorities and the worst response that each task can see.

    from heliograph.scheduling.analysis import PeriodicTask, admit

    proof = admit([
        PeriodicTask("radar", period=0.010, cost=0.002),
        PeriodicTask("display", period=0.040, cost=0.010, importance=1),
        PeriodicTask("log", after=("display",), cost=0.005),   # released when `display` ends, at its rate
    ])
    print(proof)                                           # each task with its response, deadline and laxity
    proof["radar"].priority                                # 5: what its consumer is subscribed with

`admit` raises NotSchedulable, which names the task that does not fit and the numbers, or returns the proof.
"Admitted under the stated cost" is all that it says: CPython gives no hard real time, so compare a proof with
what was measured (`Proof.against`).

The shorter the period the higher the priority; among tasks of one rate the more important go first, then
those that others wait for. There are five priorities: the slowest rates share the lowest when there are more.
Tasks of one priority do not preempt each other, which the analysis counts as blocking.

The analysis follows the busy period of each priority (Lehoczky 1990; Tindell, Burns and Wellings 1994;
without preemption Davis, Burns, Bril and Lukkien 2007). For independent tasks that do not share a priority it
is exact. A task that follows another inherits that one's response as jitter of its own release, and one that
shares a preemptive priority is taken to be preempted though it is not: both are safe and no longer exact,
which the proof says.
All arithmetic is in whole nanoseconds.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import InvalidTask, NotSchedulable
from heliograph.qos.policies import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_TASKS: Final = 1_000
"""Tasks in one set: the analysis is quadratic in their number."""
MAX_JOBS: Final = 100_000
"""Jobs of one task that are followed through a busy period; a longer one counts as never ending."""


class PeriodicTask(msgspec.Struct, frozen=True):
    """Work that comes again and again; times are in seconds.

    Attributes:
        name: what errors and the proof call it.
        cost: the longest time that one job takes.
        period: the shortest time between two releases; None: that of the slowest task that it comes after.
        deadline: how long after its release a job must have ended; None: its period. For a task that comes
            after others it counts from the release of the first of the chain.
        importance: the higher goes first among tasks of one rate.
        after: the tasks whose jobs must have ended before a job of this one is released.
    """

    name: str
    cost: float
    period: float | None = None
    deadline: float | None = None
    importance: int = 0
    after: tuple[str, ...] = ()


class Admitted(msgspec.Struct, frozen=True):
    """A task and what was proved of it; times are in seconds.

    Attributes:
        priority: 1 to 5, for its consumer.
        order: its place among all tasks, 0 is the first; also the order within one priority.
        response: the worst time from its release, or that of its chain, to its end.
        laxity: what is left of the deadline then.
        blocking: how much of the response is work of lower order that cannot be preempted.
    """

    task: PeriodicTask
    priority: int
    order: int
    period: float
    deadline: float
    response: float
    blocking: float

    @property
    def laxity(self) -> float:
        return self.deadline - self.response

    def __str__(self) -> str:
        times = (self.period, self.task.cost, self.blocking, self.response, self.deadline, self.laxity)
        return f"{self.task.name:<20} {self.priority:>4}" + "".join(f"{time * 1e3:>11.3f}" for time in times)


class TaskComparison(msgspec.Struct, frozen=True):
    """What was proved of one task beside what was seen."""

    name: str
    proved: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.proved


class Proof(msgspec.Struct, frozen=True):
    """That a set of tasks meets its deadlines, under the stated costs.

    Attributes:
        tasks: in the order of priority.
        preemptive: whether a higher priority interrupts a lower one.
        exact: whether some job can really take that long; False where the responses are a safe bound.
        utilisation: the share of one core that the set takes.
        bound: n(2^(1/n) - 1): a set below it is schedulable at any periods (Liu and Layland 1973).
    """

    tasks: tuple[Admitted, ...]
    preemptive: bool
    exact: bool
    utilisation: float
    bound: float

    def __getitem__(self, name: str) -> Admitted:
        for admitted in self.tasks:
            if admitted.task.name == name:
                return admitted
        raise KeyError(name)

    def against(self, responses: Mapping[str, float]) -> tuple[TaskComparison, ...]:
        """The worst responses that were measured, in seconds by name, beside the proved ones."""
        return tuple(TaskComparison(name, self[name].response, seen) for name, seen in responses.items())

    def __str__(self) -> str:
        how = "exact" if self.exact else "a safe bound"
        mode = "preemptive" if self.preemptive else "without preemption"
        head = f"utilisation {self.utilisation:.1%} (always enough: {self.bound:.1%}), {mode}, {how}"
        columns = ("period", "cost", "blocking", "response", "deadline", "laxity")
        titles = f"{'task (ms)':<20} prio" + "".join(f"{title:>11}" for title in columns)
        return "\n".join([head, titles, *map(str, self.tasks)])


class _Row(msgspec.Struct):
    """A task in the making, in nanoseconds and in the order of priority."""

    task: PeriodicTask
    period: int
    cost: int
    deadline: int
    priority: int = LOWEST_PRIORITY
    blocking: int = 0
    blocked_by: tuple[tuple[str, int], ...] = ()
    jitter: int = 0
    response: int = 0


def admit(tasks: Iterable[PeriodicTask], *, preemptive: bool = True, blocking: float = 0.0) -> Proof:
    """The proof that these tasks meet their deadlines on one core, or NotSchedulable.

    Args:
        tasks: at most 1,000, with unique names.
        preemptive: whether a higher priority interrupts a lower one, as band workers and SCHED_FIFO threads
            do; False for one worker that ends each callback first.
        blocking: seconds that anything of lower priority may hold up anything of higher, beside that: an
            interpreter lock's switch interval, a lock.
    """
    rows = _ordered(list(tasks))
    _set_priorities(rows)
    _set_blocking(rows, _ns(blocking), preemptive=preemptive)
    _solve(rows, preemptive=preemptive)
    n = len(rows)
    return Proof(
        tuple(_admitted(row, order) for order, row in enumerate(rows)),
        preemptive,
        _is_exact(rows, preemptive=preemptive),
        sum(row.cost / row.period for row in rows),
        n * (2 ** (1 / n) - 1) if n else 1.0,
    )


def check_tasks(tasks: Iterable[PeriodicTask]) -> None:
    """InvalidTask when they make no sense together; nothing is proved."""
    _ordered(list(tasks))


def _is_exact(rows: Sequence[_Row], *, preemptive: bool) -> bool:
    shared = len({row.priority for row in rows}) < len(rows)
    return not any(row.task.after for row in rows) and not (shared and preemptive)


def _admitted(row: _Row, order: int) -> Admitted:
    times = (row.period, row.deadline, row.response, row.blocking)
    return Admitted(row.task, row.priority, order, *(nanoseconds / 1e9 for nanoseconds in times))


def _ordered(tasks: Sequence[PeriodicTask]) -> list[_Row]:
    """The tasks, checked, by rate, then importance, then who is waited for."""
    if len(tasks) > MAX_TASKS:
        raise InvalidTask("the set", f"has {len(tasks):,} tasks; at most {MAX_TASKS:,} are analysed")
    by_name = {task.name: task for task in tasks}
    if len(by_name) < len(tasks):
        names = [task.name for task in tasks]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidTask(twice, "is there twice; names are unique")
    rows: dict[str, _Row] = {}
    depths: dict[str, int] = {}
    for name in _leaders_first(by_name):
        task = by_name[name]
        period = _period(task, rows)
        cost = _checked(task, "cost", task.cost)
        deadline = period if task.deadline is None else _checked(task, "deadline", task.deadline)
        rows[name] = _Row(task, period, cost, deadline)
        depths[name] = 1 + max((depths[leader] for leader in task.after), default=-1)
    return sorted(rows.values(), key=lambda r: (r.period, -r.task.importance, depths[r.task.name]))


def _leaders_first(by_name: Mapping[str, PeriodicTask]) -> Iterator[str]:
    """Names so that each comes after all that it waits for."""
    waiting = {name: set(task.after) for name, task in by_name.items()}
    for name, leaders in waiting.items():
        for unknown in sorted(leaders - by_name.keys()):
            raise InvalidTask(name, f"comes after {unknown!r}, which is not in the set")
    while waiting:
        ready = [name for name, leaders in waiting.items() if not leaders & waiting.keys()]
        if not ready:
            raise InvalidTask(min(waiting), f"waits for itself: {', '.join(sorted(waiting))} form a circle")
        for name in ready:
            del waiting[name]
        yield from ready


def _period(task: PeriodicTask, rows: Mapping[str, _Row]) -> int:
    inherited = max((rows[leader].period for leader in task.after), default=None)
    if task.period is None:
        if inherited is None:
            raise InvalidTask(task.name, "needs a period=, or after= a task that has one")
        return inherited
    period = _checked(task, "period", task.period)
    if inherited is not None and period != inherited:
        raise InvalidTask(
            task.name,
            f"has a period of {task.period} s but comes after tasks of {inherited / 1e9} s: leave it out",
        )
    return period


def _checked(task: PeriodicTask, field: str, value: Any) -> int:
    if type(value) not in (int, float) or not 1e-9 <= value <= 1e9:
        raise InvalidTask(task.name, f"has a {field} of {value!r}; it is seconds above 0")
    return _ns(value)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _set_priorities(rows: Sequence[_Row]) -> None:
    """A priority for each rate from the highest down; what is left shares the lowest."""
    rates = sorted({row.period for row in rows})
    priority = {rate: max(HIGHEST_PRIORITY - n, LOWEST_PRIORITY) for n, rate in enumerate(rates)}
    for row in rows:
        row.priority = priority[row.period]


def _set_blocking(rows: Sequence[_Row], extra: int, *, preemptive: bool) -> None:
    """The longest job of lower order that runs to its end first."""
    for i, row in enumerate(rows):
        stays = [(r.cost, r.task.name) for r in rows[i + 1 :] if not preemptive or r.priority == row.priority]
        longest, name = max(stays, default=(0, ""))
        row.blocking = extra + longest
        row.blocked_by = tuple(share for share in ((name, longest), ("blocking=", extra)) if share[1])


def _solve(rows: Sequence[_Row], *, preemptive: bool) -> None:
    """Responses and jitters until they agree: a response is the jitter of those that wait for it."""
    by_name = {row.task.name: row for row in rows}
    settled = False
    while not settled:
        settled = True
        for i, row in enumerate(rows):
            row.jitter = max((by_name[leader].response for leader in row.task.after), default=0)
            before, row.response = row.response, _response(row, rows[:i], preemptive=preemptive)
            settled = settled and before == row.response


def _response(row: _Row, higher: Sequence[_Row], *, preemptive: bool) -> int:
    """The worst response of any job of one busy period, in nanoseconds."""
    worst = 0
    busy_until = _busy_period(row, higher)
    for job in count():
        if job >= MAX_JOBS or busy_until is None:
            raise NotSchedulable(row.task.name, None, row.deadline / 1e9, _load([*higher, row]))
        end = _finish(row, higher, job, preemptive=preemptive)
        response = row.jitter + end - job * row.period
        if response > row.deadline:
            raise _late(row, higher, response, preemptive=preemptive)
        worst = max(worst, response)
        if (job + 1) * row.period >= busy_until + row.jitter:
            return worst
    raise AssertionError("count() does not end")


def _late(row: _Row, higher: Sequence[_Row], response: int, *, preemptive: bool) -> NotSchedulable:
    held_up = False
    if row.blocking:
        with suppress(NotSchedulable):
            _response(msgspec.structs.replace(row, blocking=0), higher, preemptive=preemptive)
            held_up = True
    shares = tuple((what, share / 1e9) for what, share in row.blocked_by)
    load = _load([*higher, row])
    return NotSchedulable(row.task.name, response / 1e9, row.deadline / 1e9, load, shares, held_up)


def _busy_period(row: _Row, higher: Sequence[_Row]) -> int | None:
    """How long this priority and those above can be busy at a stretch; None: for ever."""
    everybody = [*higher, row]
    if sum(Fraction(r.cost, r.period) for r in everybody) > 1:
        return None
    length = row.blocking + sum(r.cost for r in everybody)
    for _ in range(MAX_JOBS):
        longer = row.blocking + sum(-(-(length + r.jitter) // r.period) * r.cost for r in everybody)
        if longer == length:
            return length
        length = longer
    return None


def _finish(row: _Row, higher: Sequence[_Row], job: int, *, preemptive: bool) -> int:
    """When that job of a busy period ends, counted from the period's start."""
    if preemptive:
        own = row.blocking + (job + 1) * row.cost
        end = own
        while True:
            later = own + sum(-(-(end + r.jitter) // r.period) * r.cost for r in higher)
            if later == end:
                return end
            end = later
    own = row.blocking + job * row.cost
    start = own
    while True:
        later = own + sum(((start + r.jitter) // r.period + 1) * r.cost for r in higher)
        if later == start:
            return start + row.cost
        start = later


def _load(rows: Sequence[_Row]) -> float:
    return sum(row.cost / row.period for row in rows)
