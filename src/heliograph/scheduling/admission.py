"""The scheduling service: subscriptions that say how often they run and how long, admitted or refused.

    schedule = station.schedule()

    @schedule.task(tracks, period=0.010, cost=0.002)
    def on_track(track): ...

    @schedule.task(weather, period=0.040, where="wind > 20")       # its cost is measured
    def on_storm(storm): ...

    print(schedule.admit())          # the proof: each task with its worst response, deadline and laxity
    print(schedule.compare())        # and beside it what was seen so far

A task whose cost is stated is admitted when it is subscribed, or refused with NotSchedulable, which names the
task that would be late and the numbers; then nothing has changed. One without a cost runs on trial, at the
lowest priority, until `admit` is called: its cost is then the 99.9th percentile of its runs.

Rates become priorities (`heliograph.scheduling.analysis`), and each admitted subscription is given its own;
with `dispatch="ranked"` also a sub-priority, so that the more important of one rate goes first. A job is
released at the event's `source_ts` and ends when the callback returns; its cost is the time between call and
return, with whatever ran in between, which is on the safe side.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast, overload

import msgspec

from heliograph.channel.receive.subscription import QueuedReceiver, takes_header
from heliograph.channel.selection import ReceiverOptions, check_options
from heliograph.errors import InvalidTask, NotPossible
from heliograph.qos.dispatch_order import MAX_SUB_PRIORITY
from heliograph.qos.policies import LOWEST_PRIORITY
from heliograph.runtime.durations import Durations
from heliograph.scheduling.analysis import PeriodicTask, Proof, admit, check_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Header
    from heliograph.runtime.ports import Clock, Tasks

RUNS: Final = 1_000
"""Runs after which the cost of a task is known: fewer have no 99.9th percentile."""


Callback = TypeVar("Callback", bound="Callable[..., object]")


class Statement(ReceiverOptions, total=False):
    """What is said of a task, beside the options of a subscription; times are in seconds.

    Attributes:
        name: of the task and the subscription; else the function's own.
        period: the shortest time between two of its events; without it, that of the slowest task in `after`.
        cost: the longest time that one call takes; without it, it is measured.
        deadline: how long after its release a job must have ended; without it, its period.
        importance: the higher goes first among tasks of one rate.
        after: names of the tasks whose jobs release this one.
    """

    name: str | None
    period: float | None
    cost: float | None
    deadline: float | None
    importance: int
    after: tuple[str, ...]


LEAST_COST: Final = 1e-9
"""Seconds, of a task on trial as long as only its statement is checked."""
_STATED: Final = ("period", "deadline", "importance", "after")


class Seen(msgspec.Struct, frozen=True):
    """One task as it was admitted, beside what was seen of it; times are in seconds.

    Attributes:
        runs: how often it has run.
        cost: what it was admitted with; None while it is on trial.
        cost_seen: the 99.9th percentile of its runs.
        overruns: runs that took longer than `cost`.
        deadline: how long after its release a job must have ended.
        proved: the worst response that the analysis allows; None while it is on trial.
        worst: the worst response that was seen.
        laxity: what was left of the deadline at the least, on average and at the most.
        missed: jobs that ended behind their deadline.
    """

    name: str
    runs: int
    cost: float | None
    cost_seen: float
    overruns: int
    deadline: float | None
    proved: float | None
    worst: float
    laxity: tuple[float, float, float] | None
    missed: int

    @property
    def holds(self) -> bool:
        """Whether nothing was seen that the proof rules out."""
        return self.proved is None or self.worst <= self.proved

    def __str__(self) -> str:
        least = None if self.laxity is None else self.laxity[0]
        times = (self.cost, self.cost_seen, self.proved, self.worst, least)
        text = "".join(f"{'-':>11}" if time is None else f"{time * 1e3:>11.3f}" for time in times)
        return f"{self.name:<20}{self.runs:>9}{text}{self.overruns:>9}{self.missed:>9}"


class ScheduleReport(tuple[Seen, ...]):
    """All tasks, in the order of priority; those on trial last. Prints as a table."""

    __slots__ = ()

    @property
    def holds(self) -> bool:
        return all(seen.holds for seen in self)

    def __str__(self) -> str:
        columns = ("cost", "p99.9", "proved", "worst", "laxity")
        titles = "".join(f"{title:>11}" for title in columns)
        return "\n".join(
            [f"{'task (ms)':<20}{'runs':>9}{titles}{'overruns':>9}{'missed':>9}", *map(str, self)]
        )


class _Member:
    """A subscription under watch."""

    def __init__(self, name: str, statement: dict[str, Any]) -> None:
        self.name = name
        self.task: PeriodicTask | None = None
        """None: on trial."""
        self.statement = statement
        self.receiver: QueuedReceiver | None = None
        self.costs = Durations()
        self.responses = Durations()
        self.cost_ns: int | None = None
        self.deadline_ns: int | None = None
        self.overruns = 0
        self.missed = 0

    @property
    def gone(self) -> bool:
        return self.receiver is not None and self.receiver.queue.closed

    def timed(self, callback: Callable[..., object], clock: Clock) -> Callable[[Any, Header], None]:
        with_header = takes_header(callback)
        monotonic, now = clock.monotonic_ns, clock.time_ns

        def run(event: Any, header: Header) -> None:
            began = monotonic()
            try:
                if with_header:
                    callback(event, header)
                else:
                    callback(event)
            finally:
                self._ran(monotonic() - began, now() - header.source_ts)

        return run

    def _ran(self, cost: int, response: int) -> None:
        self.costs.add(cost)
        self.responses.add(response)
        self.overruns += self.cost_ns is not None and cost > self.cost_ns
        self.missed += self.deadline_ns is not None and response > self.deadline_ns


class Schedule:
    """The tasks of one station; see the module. Made by `station.schedule`."""

    def __init__(self, clock: Clock, tasks: Tasks, *, preemptive: bool, blocking: float) -> None:
        self._clock = clock
        self.preemptive = preemptive
        self.blocking = blocking
        self._lock = tasks.lock("schedule")
        self._members: dict[str, _Member] = {}
        self.proof: Proof = admit([], preemptive=preemptive, blocking=blocking)
        """Of the tasks that are admitted."""

    @overload
    def task(
        self, channel: Channel[Any], callback: Callable[..., object], **statement: Unpack[Statement]
    ) -> QueuedReceiver: ...
    @overload
    def task(
        self, channel: Channel[Any], **statement: Unpack[Statement]
    ) -> Callable[[Callback], Callback]: ...
    def task(self, channel: Channel[Any], callback: Any = None, **statement: Unpack[Statement]) -> Any:
        """Subscribe a callback that runs at most once every period; also as a decorator.

        Args:
            channel: whose events release it.
            callback: as in `channel.subscribe`, but not `async def`: its loop runs that in its own order.
            **statement: see `Statement`, and the options of `channel.subscribe` without `priority`: that
                follows from the rates.

        Raises NotSchedulable when the set would not fit any more, or InvalidTask; nothing has changed then.
        """
        check_options("task", statement, *Statement.__annotations__, refused="priority")
        if callback is not None:
            return self._subscribe(channel, callback, dict(statement))

        def decorate(given: Callback) -> Callback:
            self._subscribe(channel, given, dict(statement))
            return given

        return decorate

    def admit(self) -> Proof:
        """Analyse all tasks, those on trial with the cost that was measured, and give each its priority.

        Raises InvalidTask for one that has not run often enough, NotSchedulable when the set does not fit.
        """
        with self._lock:
            self._forget_closed()
            tasks = {member.name: member.task or self._measured(member) for member in self._members.values()}
            self._take(tasks)
            return self.proof

    def compare(self) -> ScheduleReport:
        """What was proved of each task beside what was seen."""
        with self._lock:
            self._forget_closed()
            order = {admitted.task.name: admitted.order for admitted in self.proof.tasks}
            members = sorted(self._members.values(), key=lambda m: order.get(m.name, len(order)))
            return ScheduleReport(self._seen(member) for member in members)

    # Inside

    def _subscribe(
        self, channel: Channel[Any], callback: Callable[..., object], said: dict[str, Any]
    ) -> QueuedReceiver:
        if inspect.iscoroutinefunction(callback):
            raise NotPossible(channel.name, "a task that is async def: its loop runs it in its own order")
        if said.get("priority") is not None:
            raise NotPossible(channel.name, "priority= of a task: it follows from the periods")
        order = said.get("dispatch") or channel.qos.dispatch
        if order not in ("strict", "ranked"):
            raise NotPossible(channel.name, f"dispatch={order!r:.60} of a task: the analysis is of 'strict'")
        if channel.qos.threads.kind == "inline":
            raise NotPossible(channel.name, "a task where callbacks are inline: each runs when it is pushed")
        if said.get("group") is not None and (channel.qos.journalled or channel.monitor is not None):
            raise NotPossible(
                channel.name, "group= of a task: such a group hands out one event at a time, in its own order"
            )
        name = said.pop("name", None) or getattr(callback, "__name__", type(callback).__name__)
        cost = said.pop("cost", None)
        stated: dict[str, Any] = {field: said.pop(field) for field in _STATED if field in said}
        stated["after"] = tuple(stated.get("after", ()))
        member = _Member(name, stated)
        with self._lock:
            self._forget_closed()
            if name in self._members:
                raise InvalidTask(name, "is there twice; names are unique")
            proof = self.proof
            if cost is None:
                check_tasks(map(_as_stated, [*self._members.values(), member]))
            else:
                member.task = PeriodicTask(name, cost, **stated)
                proof = self._analysed({**self._admitted(), name: member.task})
            timed = member.timed(callback, self._clock)
            said["priority"] = LOWEST_PRIORITY if cost is None else proof[name].priority
            timed.__name__ = name  # not name=, which is durable on a persistent channel
            receiver: Any = channel.subscribe(timed, **said)
            receiver.callback = callback  # `channel.unsubscribe` looks for it
            member.receiver = receiver
            self._members[name] = member
            self._apply(proof)
        return cast("QueuedReceiver", receiver)

    def _admitted(self) -> dict[str, PeriodicTask]:
        return {member.name: member.task for member in self._members.values() if member.task is not None}

    def _analysed(self, tasks: dict[str, PeriodicTask]) -> Proof:
        return admit(tasks.values(), preemptive=self.preemptive, blocking=self.blocking)

    def _take(self, tasks: dict[str, PeriodicTask]) -> None:
        proof = self._analysed(tasks)
        for name, task in tasks.items():
            self._members[name].task = task
        self._apply(proof)

    def _apply(self, proof: Proof) -> None:
        self.proof = proof
        for admitted in proof.tasks:
            member = self._members[admitted.task.name]
            member.cost_ns = round(admitted.task.cost * 1e9)
            member.deadline_ns = round(admitted.deadline * 1e9)
            assert member.receiver is not None
            member.receiver.queue.place(admitted.priority, max(0, MAX_SUB_PRIORITY - admitted.order))

    def _measured(self, member: _Member) -> PeriodicTask:
        if member.costs.count < RUNS:
            runs = member.costs.count
            raise InvalidTask(member.name, f"has run {runs:,} times; its cost is known after {RUNS:,}")
        return PeriodicTask(member.name, member.costs.percentile(0.999) / 1e9, **member.statement)

    def _forget_closed(self) -> None:
        """A subscription that was closed runs no more; what came after it goes on at its rate."""
        gone = {name for name, member in self._members.items() if member.gone}
        if not gone:
            return
        self._members = {name: member for name, member in self._members.items() if name not in gone}
        for member in self._members.values():
            if gone & set(member.statement["after"]):
                member.statement["after"] = tuple(n for n in member.statement["after"] if n not in gone)
                if member.task is not None:
                    member.statement["period"] = self.proof[member.name].period
                    member.task = PeriodicTask(member.name, member.task.cost, **member.statement)
        self._apply(self._analysed(self._admitted()))

    def _seen(self, member: _Member) -> Seen:
        responses, laxity = member.responses, None
        deadline = None if member.deadline_ns is None else member.deadline_ns / 1e9
        if deadline is not None and responses.count:
            mean = responses.total / responses.count
            laxity = (
                deadline - responses.most / 1e9,
                deadline - mean / 1e9,
                deadline - responses.least / 1e9,
            )
        return Seen(
            member.name,
            member.costs.count,
            None if member.task is None else member.task.cost,
            member.costs.percentile(0.999) / 1e9,
            member.overruns,
            deadline,
            None if member.task is None else self.proof[member.name].response,
            responses.most / 1e9,
            laxity,
            member.missed,
        )


def _as_stated(member: _Member) -> PeriodicTask:
    return member.task or PeriodicTask(member.name, LEAST_COST, **member.statement)
