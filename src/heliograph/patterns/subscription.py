"""Subscribes to a pattern over several channels: joins the correlator to channels, clock and dispatch.

    match = hg.all_of(t=tracks.where("speed > 300"), w=weather, within=1.0, by="region")
    station.subscribe(match, lambda m: print(m.t, m.w, m.key))

Every stream of the pattern is a queued subscription of its own; what they bring goes into one machine
(`heliograph.patterns.machine`), whose matches wait in a queue for the workers. So a callback is called for
one match at a time, at its priority, and never in the thread that pushes or that keeps the timers. It begins
with what comes next, whatever a channel has kept.

In a configuration without dispatching there are no workers: the thread that completes a match calls the
callback inside its push, and never while the machine's lock is held; for what the clock completes there is a
task each time. Matches that others complete meanwhile are called by the thread that is at it, so there, too,
it is one at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from heliograph.channel.queueing.queue import EventQueue
from heliograph.channel.receive.subscription import takes_header
from heliograph.errors import HeliographError, InvalidPattern, NotPossible
from heliograph.model import field_types as ft
from heliograph.model.event import info_of
from heliograph.patterns.machine import NOBODY, Correlator, Counts
from heliograph.patterns.pattern import After, AllOf, AnyOf, Every, Leaf, NoneOf, check, leaves_of, limited
from heliograph.patterns.recording import EVERY_KEY, INPUTS, Input, InputLog, check_streams, matches
from heliograph.qos.policies import QoS
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from heliograph.channel.context import ChannelContext
    from heliograph.channel.filtered_channel import FilteredChannel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.publish.supplier import Receipt
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.channel.selection import ReceiverOptions
    from heliograph.configuration import Bounds
    from heliograph.model.event import Header
    from heliograph.patterns.machine import Match
    from heliograph.patterns.pattern import Node, Pattern
    from heliograph.runtime.timers import Timer, Timers

log = logging.getLogger(__name__)

QUEUE: Final = 10_000
"""Matches that wait for their callback; beyond that the oldest is dropped, and counted."""


class PatternStats(msgspec.Struct, frozen=True):
    """What became of a pattern's events and matches.

    Attributes:
        matches: what became of the matches.
        keys: keys that have events waiting.
        superseded, expired, refuted, overflowed, evicted: as in `heliograph.patterns.machine.Counts`.
    """

    matches: QueueCounts
    keys: int
    superseded: int
    expired: int
    refuted: int
    overflowed: int
    evicted: int


class PatternSubscription:
    """A callback for the matches of a pattern. Made by `station.subscribe`."""

    def __init__(
        self,
        pattern: Pattern,
        callback: Callable[[Any], object],
        services: ChannelContext,
        timers: Timers,
        *,
        name: str | None = None,
        priority: int | None = None,
        replayable: bool = False,
        queue: int | None = None,
    ) -> None:
        check(pattern)
        if replayable:
            _check_replayable(name, pattern, services)
        if takes_header(callback, "match"):
            raise TypeError(f"{callback!r} must take one argument: the match")
        own_name: str = getattr(callback, "__name__", type(callback).__name__)
        self.name = name or own_name
        self._keys = _key_fields(pattern)
        self._match_class = _match_class(pattern)
        self._callback = callback
        self._loop = _loop_for(callback, services)
        if not services.pools.dispatching:
            _check_inside_push(self.name, replayable=replayable, awaited=self._loop is not None)
        self._services = services
        self._clock = services.ports.clock
        self._timers = timers
        self._lock = services.ports.tasks.lock(f"pattern {self.name}")
        self._inputs: InputLog | None = None
        self._now = self._clock.monotonic_ns
        if replayable:
            # Its clock is that of the histories.
            self._inputs, self._now = InputLog(self.name, services), self._clock.time_ns
        self._machine = Correlator(pattern, self._now())
        self._timer: Timer | None = None
        self._timer_due: int | None = None
        self._last_input: Receipt | None = None
        self._closed = False
        self._unattended = False  # whether a match waits that no worker knows of
        self.queue = EventQueue(
            self.name,
            clock=self._clock,
            tasks=services.ports.tasks,
            limit=queue or QUEUE,
            policy="drop_oldest",
            priority=priority or QoS().priority,
            on_ready=self._queued if services.pools.dispatching else self._left_here,
        )
        self._receivers: list[Receiver] = []
        if self._inputs is not None:
            try:
                self._kept(self._inputs.connect(self._machine.now, pattern, self._keys), [])
            except HeliographError:
                self._inputs.close()
                raise
        try:
            for number, leaf in enumerate(leaves_of(pattern)):
                if isinstance(leaf, Leaf):
                    self._receivers.append(self._joined(number, leaf.stream, priority))
        except BaseException:
            self.close()  # a part of a pattern would find what the whole does not mean
            raise
        with self._lock:
            self._set_timer()
        if self._closed:  # that it connects could not be kept, which came out meanwhile
            self.close()

    def __repr__(self) -> str:
        return f"<Together {self.name!r} over {', '.join(r.name for r in self._receivers)}>"

    def close(self) -> int:
        """Look for no more matches; how many had not been given to the callback: dropped, and counted."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for receiver in self._receivers:
            receiver.close()
        if self._inputs is not None:
            self._inputs.close()
        waiting = len(self.queue)
        self.queue.close()
        return waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until the callback was given all matches so far; False when the time ran out."""
        check_timeout("settle", timeout)
        with self._lock:
            last = self._last_input
        try:
            if last is not None:
                last.result(timeout)
        except HeliographError:
            return False
        return self.queue.wait_empty(timeout)

    @property
    def replayable(self) -> bool:
        """Whether what it takes in is kept, by now."""
        return self._inputs is not None and not self._closed

    def stats(self) -> PatternStats:
        with self._lock:
            counts: Counts = self._machine.counts
            return PatternStats(self.queue.counts(), self._machine.keys, **msgspec.structs.asdict(counts))

    # For the workers

    def run_batch(self) -> bool:
        items = self.queue.take()
        try:
            for match, _, _ in items:
                if self.queue.halted:
                    break
                self._call_and_count(match)
        finally:
            if items:
                self.queue.settle()
        return bool(items)

    def _call_and_count(self, match: Any) -> None:
        """Whatever a callback raises stays with it, but for Ctrl-C inside a push of the user's."""
        try:
            self._call(match)
        except BaseException as error:
            self.queue.failed_one()
            self._services.on_error(self.name, None, error)
            if not (self._services.pools.dispatching or isinstance(error, Exception)):
                raise
        else:
            self.queue.done += 1

    @property
    def progress(self) -> int:
        return self.queue.progress

    def suspended(self, seconds: float) -> None:
        """No supplier waits for it."""

    def stuck(self, seconds: float) -> None:
        log.error("%s has not returned for %.1f s; its pattern is closed", self.name, seconds)
        self.close()

    def _call(self, match: Any) -> None:
        if self._loop is None:
            self._callback(match)
        else:
            asyncio.run_coroutine_threadsafe(self._callback(match), self._loop).result()  # type: ignore[arg-type]  # checked when subscribed

    # From matches to the callback

    def _queued(self, queue: EventQueue) -> None:
        self._services.pools.strict.schedule(self, queue.highest())

    def _left_here(self, queue: EventQueue) -> None:  # noqa: ARG002 - there is one
        """Without workers. Whoever has put it calls the callback when it has let go of the lock."""
        self._unattended = True

    def _attend(self) -> None:
        """Call the callback with what waits, if nobody does. Outside the lock."""
        if not self._claim():
            return
        try:
            while self.run_batch():
                pass
        except BaseException:
            self._unattended = True  # the next to come goes on with what is left
            raise

    def _claim(self) -> bool:
        with self._lock:
            mine, self._unattended = self._unattended, False
        return mine

    # From streams and timers into the machine

    def _joined(self, number: int, stream: FilteredChannel, priority: int | None) -> Receiver:
        field = self._keys.get(number)

        def take(event: Any, header: Header) -> None:
            key = None if field is None else getattr(event, field)
            with self._lock:
                if self._closed:
                    return
                if self._inputs is not None:
                    self._offer_and_keep(self._inputs, number, key, event, header)
                    return
                self._give(self._machine.offer(number, key, event, self._now()))
            if self._unattended:
                self._attend()

        options: ReceiverOptions = {**stream.options}
        if priority is not None:
            options["priority"] = priority
        # What was kept comes all at once: by the clock of those who watch it would be within any time.
        take.__name__ = f"{self.name} {number}"  # not name=, which is durable on a persistent channel
        return stream.channel.subscribe(take, start="now", **options)

    def _offer_and_keep(self, inputs: InputLog, number: int, key: Any, event: Any, header: Header) -> None:
        matches = self._machine.offer(number, key, event, header.append_ts or 0)
        try:
            receipt = inputs.event(number, header, key, self._machine.now)
            if self._machine.evicted is not NOBODY:
                receipt = inputs.evict(self._machine.evicted, self._machine.now)
        except HeliographError as error:
            self._end_with(error)
        else:
            self._kept(receipt, matches)

    def _advance(self) -> None:
        with self._lock:
            self._timer = None
            if self._closed:
                return
            matches = self._machine.advance(self._now())
            if self._inputs is not None:
                self._keep_tick(self._inputs, matches)
                return
            self._give(matches)
        if self._unattended:  # the task of the timers has other things to do
            self._services.ports.tasks.spawn_soon(f"match of {self.name}", self._attend)

    def _keep_tick(self, inputs: InputLog, matches: list[Match]) -> None:
        try:
            receipt = inputs.tick(self._machine.now)
        except HeliographError as error:
            self._end_with(error)
        else:
            self._kept(receipt, matches)

    def _kept(self, receipt: Receipt, matches: list[Match]) -> None:
        """Give matches once what led to them is durable. Under the lock: that keeps them in order."""
        self._last_input = receipt
        receipt.when_kept(lambda error: self._give_kept(matches, error))
        self._set_timer()

    def _give_kept(self, matches: list[Match], error: BaseException | None) -> None:
        """In the task of the journal."""
        if error is None:
            for match in matches:
                self._put(match, 0)
        else:
            self._end_with(error)

    def _end_with(self, error: BaseException) -> None:
        """What could not be kept would be missing whenever this is replayed: take in nothing more."""
        self._closed = True

        def end() -> None:
            self._services.on_error(self.name, None, error)
            self.close()

        # A task of its own: whoever is told may close this, and here its lock may be held.
        self._services.ports.tasks.spawn_soon(f"end of {self.name}", end)

    def _give(self, matches: list[Match]) -> None:
        """Queue matches for the callback and see to the next timer. Under the lock."""
        wall = self._clock.time_ns() - self._clock.monotonic_ns()
        for match in matches:
            self._put(match, wall)
        self._set_timer()

    def _put(self, match: Match, wall: int) -> None:
        self.queue.put((self._match_class(match, wall), None, 0))  # type: ignore[arg-type]  # no event, no header

    def _set_timer(self) -> None:
        due = self._machine.due
        if self._timer is not None:
            if self._timer_due == due:
                return
            self._timer.cancel()
        self._timer, self._timer_due = None, due
        if due is not None:
            wait = max(0, due - self._now())
            self._timer = self._timers.at(self._clock.monotonic_ns() + wait, self._advance)


def _check_replayable(name: str | None, pattern: Pattern, services: ChannelContext) -> None:
    if name is None:
        raise NotPossible("subscribe", "replayable=True needs a name=, under which its inputs are kept")
    if services.open_later is None:
        raise NotPossible(name, "replayable=True needs a folder to keep what it took in: hg.Station('data')")
    check_streams(name, pattern)


def _check_inside_push(name: str, *, replayable: bool, awaited: bool) -> None:
    """What a pattern cannot be where its callback runs inside push."""
    if replayable:
        raise NotPossible(
            name, "replayable=True: on persistent channels nobody runs inside push; needs dispatching"
        )
    if awaited:
        raise NotPossible(name, "an async def cannot run inside push, and this station has no dispatching")


def look_for(
    pattern: Pattern,
    callback: Callable[[Any], object],
    services: ChannelContext,
    bounds: Bounds,
    others: Iterable[PatternSubscription],
    **options: Any,
) -> PatternSubscription:
    """Subscribe to a pattern, within bounds, beside others of the station."""
    unknown = sorted(options.keys() - {"name", "priority", "replayable"})
    if unknown:
        raise NotPossible(
            "subscribe",
            f"{unknown[0]}= is not for a pattern of events, which begins with what comes next; "
            "filters are said in channel.where()",
        )
    name = options.get("name")
    if options.get("replayable") and any(other.replayable and other.name == name for other in others):
        raise NotPossible(str(name), "is replayable and subscribed to already; close it first")
    within = limited(pattern, keys=bounds.keys, depth=bounds.depth)
    return PatternSubscription(within, callback, services, services.timers, queue=bounds.queue, **options)


def found_again(pattern: Pattern, services: ChannelContext, name: str, key: Any = EVERY_KEY) -> Iterator[Any]:
    """The matches of a replayable pattern, from what it took in, as its callback was given them."""
    check(pattern)
    _check_replayable(name, pattern, services)
    make = _match_class(pattern)
    inputs = services.open_kept(INPUTS + name, (Input,))
    if inputs is None:
        raise NotPossible(name, "nothing was kept under this name; it is the one given with replayable=True")
    for match in matches(pattern, inputs, _key_fields(pattern), key):
        yield make(match, 0)


def _loop_for(callback: Any, services: ChannelContext) -> asyncio.AbstractEventLoop | None:
    if not callable(callback):
        raise TypeError(f"{callback!r} cannot be called")
    if not inspect.iscoroutinefunction(callback):
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return services.loop()


def _key_fields(pattern: Pattern) -> dict[int, str]:
    """For each stream by number, the field that has the key; checked on every type that it carries."""
    by = pattern.by if isinstance(pattern, AllOf) else None
    if by is None:
        return {}
    names = list(_leaf_names(pattern))
    fields: dict[int, str] = {}
    for number, leaf in enumerate(leaves_of(pattern)):
        if isinstance(leaf, Leaf):
            fields[number] = by if isinstance(by, str) else by[names[number]]
            for cls in leaf.stream.options.get("types") or leaf.stream.channel.types:
                _check_key(cls, names[number], fields[number])
    return fields


def _leaf_names(node: Node) -> Any:
    if isinstance(node, AllOf | AnyOf | NoneOf):
        for name, part in node.parts.items():
            yield from _leaf_names(part) if isinstance(part, AllOf | AnyOf | NoneOf) else (name,)


def _check_key(cls: type[Any], name: str, field: str) -> None:
    info = info_of(cls)
    kind = next((f.type for f in info.format.fields if f.name == field), None)
    if kind is None:
        raise InvalidPattern(name, f"carries {info.name}, which has no field {field!r} to go by")
    if any(
        ft.holds(kind, unhashable) for unhashable in (ft.Array, ft.List, ft.Map, ft.Anything, ft.NestedEvent)
    ):
        raise InvalidPattern(name, f"goes by {field!r} of {info.name}, a {kind}; a key is a plain value")


def _match_class(pattern: Pattern) -> Callable[[Match, int], Any]:
    """Makes what the callback is given: events by name, and `key`, `at`, `missing`."""
    make_values = _values_maker("Match", pattern, key=(Any, None), at=(int, 0), missing=(tuple, ()))

    def make(match: Match, wall: int) -> Any:
        """`wall`: what has to be added to an instant to make it nanoseconds since 1970."""
        return make_values(match.values, wall, key=match.key, at=match.at + wall, missing=match.missing)

    return make


def _values_maker(name: str, node: Node, **more: tuple[Any, Any]) -> Callable[..., Any]:
    parts = node.parts if isinstance(node, AllOf | AnyOf | NoneOf) else {"tick": node}
    fields = [(part, _type_of(inner), None) for part, inner in parts.items()]
    cls = msgspec.defstruct(
        name, [*fields, *((n, kind, default) for n, (kind, default) in more.items())], frozen=True
    )
    makers = {part: _value_maker(part, inner) for part, inner in parts.items()}

    def make(values: dict[str, Any], wall: int, **said: Hashable) -> Any:
        named = values if "" not in values else {"tick": values[""]}
        return cls(**{part: makers[part](value, wall) for part, value in named.items()}, **said)

    return make


def _value_maker(name: str, node: Node) -> Callable[[Any, int], Any]:
    match node:
        case Leaf():
            return lambda event, _: event
        case Every() | After():
            return lambda instant, wall: instant + wall
        case _:
            return _values_maker(name, node)


def _type_of(node: Node) -> Any:
    match node:
        case Leaf(stream=stream):
            return reduce(or_, stream.options.get("types") or stream.channel.types, None)
        case Every() | After():
            return int | None
        case _:
            return Any
