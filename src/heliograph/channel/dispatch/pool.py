"""The pool of dispatch threads that call queued callbacks, and the watch over callbacks that do not return.

A queue with something to take is *ready*. Ready queues wait by priority; a worker takes the first of the
highest, delivers one batch and puts it back if more waits. A queue is ready once at most, so one callback
never runs twice at the same time and its events keep their order. When a queue gets ready that is higher than
one that is being delivered, and every worker is busy, that one stops after its callback and waits again.
With an order other than `strict` (`heliograph.qos.dispatch_order`) that chooses among the heads of all ready
queues.

Few workers are best under CPython's one interpreter lock. The watch adds one when ready queues wait while
every worker is inside a callback (a sleep, a slow request), and reports and detaches a subscription whose
callback has not come back for `callback_limit` seconds. Before that, if the queue of one is full, what comes
for it is dropped and counted until it returns, so that the other receivers of its channel go on. When nothing
is ready nothing runs at all.

Threads that read links run what they have made ready themselves
(`heliograph.channel.dispatch.reader_handover`). While they do, the watch looks at them more often, and has
another thread read on where a callback takes long.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import get_ident  # only to know a thread again; threads themselves come from the port
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from heliograph.channel.dispatch.reader_handover import (
    HAND_OVER_NS,
    LOOK_EVERY,
    HandedOver,
    SlowReceivers,
    Worker,
)
from heliograph.channel.dispatch.station_pools import SUSPEND_AFTER
from heliograph.errors import QueueClosed
from heliograph.qos.dispatch_order import choose
from heliograph.qos.policies import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.qos.dispatch_order import Order, Waiting
    from heliograph.runtime.ports import Clock, Queue, Tasks

WORKERS: Final = 2
"""Workers at rest."""
MAX_WORKERS: Final = 256
"""Workers when callbacks block; each is a thread that mostly sleeps."""
WATCH_EVERY: Final = 0.02
"""Seconds: how long ready queues wait behind blocked callbacks before a worker is added."""
LINGER: Final = 5.0
"""Seconds that an extra worker waits for work before it ends."""
LOOKS_IN_VAIN: Final = 20
"""Looks at threads that read, none of which runs a callback, after which the watch rests."""


class ReadyQueue(Protocol):
    """What the pool asks of the queue of what it runs."""

    announced: bool
    halted: bool
    level: int

    @property
    def suspended(self) -> bool: ...

    def highest(self) -> int: ...

    def head(self) -> Waiting | None: ...

    def suspend(self) -> bool: ...

    def resume(self) -> None: ...


class Runnable(Protocol):
    """What the pool runs: a subscription whose queue is ready."""

    @property
    def queue(self) -> ReadyQueue: ...

    @property
    def progress(self) -> int:
        """Goes up with every callback that came back."""
        ...

    def run_batch(self) -> bool:
        """Deliver one batch; whether to come back for more."""
        ...

    def stuck(self, seconds: float) -> None:
        """The callback has not returned for so long: report, detach."""
        ...

    def suspended(self, seconds: float) -> None:
        """The same while its queue was full, and so its queue takes nothing in for now: report."""
        ...


class _ByPriority:
    """Ready queues, those of the highest priority first."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock("ready")
        self._bands: list[deque[Runnable]] = [deque() for _ in range(HIGHEST_PRIORITY + 1)]

    def add(self, run: Runnable, priority: int) -> None:
        append = self._bands[priority].append
        # An interrupt finds both done, or neither: it comes after a call at the earliest.
        run.queue.announced = True
        append(run)

    def remove(self, run: Runnable) -> bool:
        """Whether it was there."""
        with self._lock:
            for band in self._bands:
                with suppress(ValueError):
                    band.remove(run)
                    run.queue.announced = False
                    return True
        return False

    def raise_to(self, run: Runnable, priority: int) -> None:
        """Something higher waits in a queue that may be ready."""
        with self._lock:
            for band in self._bands[:priority]:
                if run in band:
                    self._move(run, band, self._bands[priority])
                    return

    def _move(self, run: Runnable, band: deque[Runnable], higher: deque[Runnable]) -> None:
        try:
            band.remove(run)
            higher.append(run)
        except BaseException:
            # Nobody takes any meanwhile: it is in both, in one of them, or in none.
            with suppress(ValueError):
                band.remove(run)
            if run not in higher:
                higher.append(run)
            raise

    def pop(self) -> Runnable | None:
        with self._lock:
            for band in reversed(self._bands):
                if band:
                    return band.popleft()
        return None


class _ByOrder:
    """Ready queues, of which an order chooses by what stands first in each."""

    def __init__(self, order: Order, clock: Clock, tasks: Tasks) -> None:
        self._order = order
        self._clock = clock
        self._lock = tasks.lock("ready")
        self._runs: list[Runnable] = []

    def add(self, run: Runnable, priority: int) -> None:  # noqa: ARG002 - the order decides
        with self._lock:
            append = self._runs.append
            run.queue.announced = True
            append(run)

    def raise_to(self, run: Runnable, priority: int) -> None:
        """The order looks at each queue when it chooses."""

    def remove(self, run: Runnable) -> bool:
        """Whether it was there."""
        with self._lock:
            found = run in self._runs
            if found:
                self._runs.remove(run)
                run.queue.announced = False
        return found

    def pop(self) -> Runnable | None:
        """No lock is held while the order chooses."""
        while True:
            with self._lock:
                runs = list(self._runs)
            if not runs:
                return None
            chosen = self._chosen(runs) if len(runs) > 1 else runs[0]
            with self._lock:
                if chosen in self._runs:
                    self._runs.remove(chosen)
                    return chosen

    def _chosen(self, runs: list[Runnable]) -> Runnable:
        """A queue that was emptied meanwhile, or has to read the journal, goes first: it is no work."""
        heads = []
        for run in runs:
            head = run.queue.head()
            if head is None:
                return run
            heads.append((head, run))
        heads.sort(key=lambda pair: pair[0].arrival)
        return heads[choose(self._order, [head for head, _ in heads], self._clock.monotonic_ns())][1]


class Band(NamedTuple):
    """What a pool must know that has one priority among several pools."""

    priority: int
    schedule: Callable[[Runnable, int], object]
    """Gives a queue back whose priority may have changed."""
    enter: Callable[[], object]
    """Called by each worker when it begins, and `leave` when it ends."""
    leave: Callable[[], object]


class DispatchPool:
    """See the module."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        *,
        name: str = "dispatch",
        callback_limit: float,
        order: Order | None = None,
        workers: int | None = None,
        band: Band | None = None,
        readers: dict[int, Reader] | None = None,
    ) -> None:
        tasks.prepare()  # whoever subscribes is told that there is no thread, and no push is
        self._clock = clock
        self._tasks = tasks
        self._name = name
        self._callback_limit = callback_limit
        self._at_rest = workers
        self._band = band
        self._again = self.schedule if band is None else band.schedule
        self._lock = tasks.lock("dispatch")
        self._ready = _ByPriority(tasks) if order is None else _ByOrder(order, clock, tasks)
        self.raise_to = self._ready.raise_to
        self._tokens: Queue[int] = tasks.queue("ready queues", 1 << 30)
        """One per ready entry, or more when one was withdrawn."""
        self._waiting = self._tokens.items
        self._workers: list[Worker] = []
        self._readers: dict[int, Reader] = {} if readers is None else readers
        self._relieved: list[Worker] = []
        """Threads that read until a callback took long, and are still inside it."""
        self._slow = SlowReceivers()
        self.is_watch_asleep = True
        """Whether who begins to run callbacks in a thread that reads has to wake the watch."""
        self._idle = 0
        self._work_came = tasks.signal("work for the watch")
        self._reader_began = tasks.signal("callbacks of a thread that reads")
        self._watching = False
        self._closed = False

    def schedule(self, run: Runnable, priority: int) -> None:
        """Have a worker run a batch. The caller sees to it that it is not scheduled twice at a time.

        Except one that was interrupted in this call: it calls again, and what was done stays done once.
        """
        reader = self._readers.get(get_ident())
        if reader is not None and reader.is_taking and self.is_free_for(run):
            self._claim(reader, run)
            return
        if not run.queue.announced:
            self._ready.add(run, priority)
        try:
            self._tokens.put(1)
        except QueueClosed:
            return
        if self._idle == 0:
            self._halt_below(priority)
            self._add_worker(self._at_rest or WORKERS)
        self._work_came.notify()

    def withdraw(self, run: Runnable) -> bool:
        """Whether it was ready, and is no more."""
        return self._ready.remove(run)

    def _halt_below(self, priority: int) -> None:
        """Every worker is busy: one that delivers something lower gives way after its callback.

        It looks for a token when it has stopped. So one that goes on with its next batch at this very instant
        finds this one.
        """
        running = [run.queue for worker in self._running() if (run := worker.running) is not None]
        lowest = min(running, key=lambda queue: queue.level, default=None)
        if lowest is not None and lowest.level < priority:
            lowest.halted = True

    def runs_here(self, queue: EventQueue) -> bool:
        """Whether the calling thread is just delivering from this queue."""
        here = get_ident()
        return any(
            w.thread == here and w.running is not None and w.running.queue is queue for w in self._running()
        )

    # For threads that read links

    def is_free_for(self, run: Runnable) -> bool:
        """Whether nobody waits before a receiver, and it was not slow of late."""
        return not (self._waiting or run in self._slow.until)

    def begin_run(self, reader: Reader, run: Runnable, now: int) -> None:
        """A thread that reads begins to run callbacks."""
        reader.is_taking = False  # what callbacks push is no work of this thread
        reader.worker.running = run
        reader.worker.marks.append(now)
        if self.is_watch_asleep:
            self.wake_watch()

    def end_run(self, worker: Worker) -> None:
        """They have returned; HandedOver when another thread reads by now."""
        worker.running = None
        try:
            worker.marks.pop()
        except IndexError:
            raise self.handed_over(worker) from None

    def handed_over(self, worker: Worker) -> HandedOver:
        """What a thread raises whose callback has returned when another thread reads."""
        with self._lock:
            if worker in self._relieved:  # else it was given up
                self._relieved.remove(worker)
        return HandedOver()

    def run_claims(self, reader: Reader) -> None:
        """Run what a reader's thread has made ready, the highest first; see `Reader.run_claims`."""
        worker, claims = reader.worker, reader.claims
        begun = reader.now()
        while claims:
            try:
                run = claims.popleft() if len(claims) == 1 else _highest_of(claims)
            except (IndexError, ValueError):  # the watch has given them to workers
                return
            again = True
            self.begin_run(reader, run, reader.now())
            try:
                while again and not worker.replaced:
                    again = run.run_batch()
                    if len(self._tokens) or not reader.renew_mark(worker, begun):
                        break
            finally:
                try:
                    self.end_run(worker)
                finally:
                    if again:
                        run.queue.announced = False
                        self.schedule(run, run.queue.highest())

    def _claim(self, reader: Reader, run: Runnable) -> None:
        if not reader.claims:
            reader.begun_ns = reader.now()
            reader.pool = self
        reader.claims.append(run)
        if self.is_watch_asleep:
            self.wake_watch()

    def wake_watch(self) -> None:
        self._reader_began.notify()
        self._work_came.notify()
        self._start_watch()

    def _start_watch(self) -> None:
        with self._lock:
            is_first, self._watching = not self._watching and not self._closed, True
        if is_first:
            self._tasks.spawn_soon(f"{self._name}-watch", self._watch)

    def _running(self) -> list[Worker]:
        """Everybody who may be inside a callback."""
        readers = [reader.worker for reader in tuple(self._readers.values())]
        return [*self._workers, *self._relieved, *readers] if readers or self._relieved else self._workers

    def close(self) -> None:
        """Let workers end when nothing is ready; those inside a stuck callback end with the process."""
        with self._lock:
            self._closed = True
        self._tokens.close()
        self.wake_watch()

    def workers(self) -> int:
        with self._lock:
            return len(self._workers)

    def busy_ns(self) -> int:
        """How long the callback has been running that runs longest, as far as the watch has seen."""
        now = self._clock.monotonic_ns()
        with self._lock:
            since = [w.since_ns for w in self._running() if w.running is not None and w.seen is not None]
        return now - min(since, default=now)

    def _add_worker(self, most: int) -> None:
        with self._lock:
            if len(self._workers) >= most or self._closed:
                return
            worker = Worker()
            self._workers.append(worker)
            number = len(self._workers)
        extra = number > (self._at_rest or WORKERS)
        self._tasks.spawn_soon(f"{self._name}-{number}", lambda: self._work(worker, extra))
        self._start_watch()

    def _work(self, worker: Worker, extra: bool) -> None:
        worker.thread = get_ident()
        if self._band is not None:
            self._band.enter()
        try:
            while not worker.replaced and self._next_token(extra):
                run = worker.running = self._ready.pop()
                if run is not None:
                    self._deliver(worker, run)
        finally:
            if self._band is not None:
                self._band.leave()
            with self._lock:
                if worker in self._workers:
                    self._workers.remove(worker)

    def _deliver(self, worker: Worker, run: Runnable) -> None:
        # It was empty when it came here, and what has come since may belong to another band.
        again = run.run_batch() if self._is_mine(run) else True
        while again and not len(self._tokens) and not worker.replaced and self._is_mine(run):
            again = run.run_batch()  # nobody else waits: going round by the queue would only cost
        worker.running = None
        if again:
            run.queue.announced = False
            self._again(run, run.queue.highest())

    def _is_mine(self, run: Runnable) -> bool:
        return self._band is None or run.queue.highest() == self._band.priority

    def _next_token(self, extra: bool) -> bool:
        with self._lock:
            self._idle += 1
        try:
            return self._tokens.get(LINGER if extra else None) is not None
        except QueueClosed:
            return False
        finally:
            with self._lock:
                self._idle -= 1

    def _watch(self) -> None:
        in_vain = slept = 0.0
        self.is_watch_asleep = False
        while not self._closed:
            in_vain = 0 if self._is_reader_busy() else in_vain + 1
            if self._readers and in_vain <= LOOKS_IN_VAIN:
                self._tasks.sleep(LOOK_EVERY)
                slept += LOOK_EVERY
            elif self._rest():
                in_vain = 0
            else:
                slept = WATCH_EVERY
            self._relieve_readers()
            if slept >= WATCH_EVERY:
                slept = 0.0
                self._look()

    def _rest(self) -> bool:
        """Until it is time for the next look; whether a thread that reads has begun to run callbacks."""
        self.is_watch_asleep = True
        try:
            if self._is_reader_busy():  # who begins after this look sees that it rests
                return True
            if self._all_quiet():
                self._work_came.wait()
            return self._reader_began.wait(WATCH_EVERY)
        finally:
            self.is_watch_asleep = False

    def _all_quiet(self) -> bool:
        with self._lock:
            running = any(worker.running for worker in self._workers) or self._relieved
            return not len(self._tokens) and not running

    def _is_reader_busy(self) -> bool:
        return any(reader.worker.marks or reader.claims for reader in tuple(self._readers.values()))

    def _relieve_readers(self) -> None:
        """Have other threads read on where a callback takes long."""
        now = self._clock.monotonic_ns()
        self._slow.forget(now)
        for reader in tuple(self._readers.values()):
            worker, claims = reader.worker, reader.claims
            if claims and now - reader.begun_ns >= HAND_OVER_NS:
                reader.release_claims()
            try:
                if now - worker.marks[0] < HAND_OVER_NS:
                    continue
                slow = worker.running
                with self._lock:
                    self._relieved.append(worker)
                    try:
                        worker.marks.pop()
                    except IndexError:  # it has just returned
                        self._relieved.remove(worker)
                        continue
            except IndexError:
                continue
            if slow is not None:
                self._slow.add(slow, now)
            reader.relieve()

    def _look(self) -> None:
        now, are_blocked = self._clock.monotonic_ns(), True
        with self._lock:
            workers = list(self._running())
        for worker in workers:
            run = worker.running
            seen = None if run is None else (run, run.progress)
            seconds = (now - worker.since_ns) / 1e9
            if run is None or seen != worker.seen:
                are_blocked = False
                if worker.seen is not None and worker.seen[0].queue.suspended:
                    worker.seen[0].queue.resume()
                worker.seen, worker.since_ns = seen, now
            elif seconds > self._callback_limit:
                self._give_up(worker, run, seconds)
            elif seconds > SUSPEND_AFTER and run.queue.suspend():
                run.suspended(seconds)
        # One that has not begun waits for a thread; more of them would help nobody.
        if len(self._tokens) and self._idle == 0 and all(worker.thread for worker in workers):
            # Where all of them are inside of one call since the last look, many more may be about to be.
            for _ in range(min(len(self._tokens), len(workers)) if are_blocked else 1):
                self._add_worker(MAX_WORKERS)

    def _give_up(self, worker: Worker, run: Runnable, seconds: float) -> None:
        """Leave a worker to its callback: it ends when that returns, if ever."""
        worker.replaced = True
        with self._lock:
            for those in (self._workers, self._relieved):
                if worker in those:
                    those.remove(worker)
        run.stuck(seconds)


def _highest_of(claims: deque[Runnable]) -> Runnable:
    """Taken from what is claimed; ValueError when the watch was faster."""
    run = max(tuple(claims), key=lambda one: one.queue.highest())
    claims.remove(run)
    return run
