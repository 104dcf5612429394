"""A flight recorder: what was around each trigger is kept in full, everything else thinned or not at all.

    alarms = station.channel("alarms.tracks", Track, qos=hg.QoS(durability="persistent"))
    recorder = hg.FlightRecorder(station, tracks, alarms, when="speed > 900", before=10, after=5)
    recorder.trigger()                                               by hand, too

The last seconds of a channel are held in memory, bounded in events and in bytes. A trigger writes them into a
persistent channel, and what comes for some seconds after it; triggers whose windows overlap are one cut-out.
Each event has the cut-out in its header `cut`, and a channel beside tells of every cut-out when it begins and
when it has ended. What was in memory is lost with the process: a cut-out that has begun and never ended is
one that was cut off.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from heliograph.channel.replay import said_before
from heliograph.codec.sizes import size_of
from heliograph.errors import NotPossible
from heliograph.filters.check import check
from heliograph.filters.parser import parse
from heliograph.filters.python import compile_one
from heliograph.model.event import Event, format_of, info_of
from heliograph.patterns.pattern import Pattern
from heliograph.qos.policies import QoS
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.supplier import Receipt
    from heliograph.model.event import Header
    from heliograph.station import Station

CUT: Final = "cut"
"""The header of an event that names its cut-out."""
RING_EVENTS: Final = 100_000
RING_BYTES: Final = 64 << 20
MAX_THINNED_KEYS: Final = 100_000
"""Keys of which it is known when one of their events was kept last; of the others the oldest is forgotten."""
SLOTS: Final = 256
"""Into so many parts the time before a trigger is divided to count what is missing; one may be too many."""
UNDER_WAY: Final = 500
"""Events that are pushed and not yet on disk, at most."""
LIMIT: Final = 60.0
"""Seconds for the disk to keep one."""


class CutOut(Event, name="helio.cutout"):
    """Told of a cut-out, in the channel beside the one that has its events."""

    cut: int
    """The time of its first trigger, in nanoseconds since 1970; its events have it in the header `cut`."""
    state: str
    """begun, or ended: no more will come."""
    channel: str
    triggers: int
    events: int
    """Kept so far."""
    missing: int
    """Events within its window that the ring had to let go, because it was full."""


class RecorderStats(NamedTuple):
    """What a recorder has done so far."""

    cuts: int
    kept: int
    """In cut-outs."""
    thinned: int
    """Kept outside of cut-outs."""
    seen: int
    waiting: int
    """In the ring."""
    waiting_bytes: int


class _Held(NamedTuple):
    at: int
    size: int
    is_kept: bool
    item: Any


class _Cut:
    """The cut-out that is open."""

    def __init__(self, name: int, until: int, missing: int) -> None:
        self.name, self.until, self.missing = name, until, missing
        self.triggers = 1
        self.events = 0


class Ring:
    """The last seconds of a channel and the cut-out that is open: a state machine, which is told the time.

    Args:
        before: nanoseconds that are kept before a trigger.
        after: those after it.
        events: at most in memory.
        most_bytes: of events in memory, at most.
        thin: nanoseconds after which an event of the same key is kept outside of cut-outs; None: none is.
    """

    def __init__(self, before: int, after: int, events: int, most_bytes: int, thin: int | None) -> None:
        self._before, self._after = before, after
        self._events, self._most_bytes, self._thin = events, most_bytes, thin
        self._held: deque[_Held] = deque()
        self._thinned: OrderedDict[Any, int] = OrderedDict()
        self._slot = before // SLOTS + 1
        self._let_go: deque[tuple[int, int]] = deque()
        """How many events had to go though they were young enough, by the slot of time in which they came."""
        self.bytes = 0
        self.cut: _Cut | None = None
        self.ended: list[_Cut] = []

    def __len__(self) -> int:
        return len(self._held)

    def take(self, now: int, item: Any, size: int, key: Any) -> int | None:
        """An event has come; the cut-out that it is to be kept in, 0 for a thinned one, None: not yet."""
        self.tick(now)
        cut = self.cut
        if cut is not None and now <= cut.until:
            cut.events += 1
            return cut.name
        is_kept = self._is_thinned(now, key)
        self._held.append(_Held(now, size, is_kept, item))
        self.bytes += size
        self._forget(now)
        return 0 if is_kept else None

    def trigger(self, now: int, name: int) -> list[Any]:
        """Something has happened: what is to be kept of the past, oldest first, in the cut-out `self.cut`."""
        self.tick(now)
        self._forget(now)
        cut = self.cut
        missing = sum(count for _, count in self._let_go)
        if cut is None:
            cut = self.cut = _Cut(name, now + self._after, missing)
        else:
            cut.triggers += 1
            cut.until = max(cut.until, now + self._after)
            cut.missing += missing
        found = [held.item for held in self._held if not held.is_kept]
        cut.events += len(found)
        self._held.clear()
        self._let_go.clear()
        self.bytes = 0
        return found

    def tick(self, now: int) -> None:
        """Time has passed. A cut-out is over when no trigger could belong to it any more."""
        if self.cut is not None and now > self.cut.until + self._before:
            self.end()

    def end(self) -> None:
        """End the cut-out that is open."""
        if self.cut is not None:
            self.ended.append(self.cut)
            self.cut = None

    def over_at(self) -> int | None:
        """When the cut-out that is open is over, unless it is triggered again."""
        return None if self.cut is None else self.cut.until + self._before + 1

    def _forget(self, now: int) -> None:
        held = self._held
        while held and held[0].at < now - self._before:
            self.bytes -= held.popleft().size
        while held and (len(held) > self._events or self.bytes > self._most_bytes):
            gone = held.popleft()
            self.bytes -= gone.size
            if not gone.is_kept:
                self._miss(gone.at // self._slot)
        while self._let_go and (self._let_go[0][0] + 1) * self._slot <= now - self._before:
            self._let_go.popleft()

    def _miss(self, slot: int) -> None:
        let_go = self._let_go
        before = let_go.pop()[1] if let_go and let_go[-1][0] == slot else 0
        let_go.append((slot, before + 1))

    def _is_thinned(self, now: int, key: Any) -> bool:
        if self._thin is None:
            return False
        last = self._thinned.get(key)
        if last is not None and now - last < self._thin:
            return False
        self._thinned[key] = now
        self._thinned.move_to_end(key)
        if len(self._thinned) > MAX_THINNED_KEYS:
            self._thinned.popitem(last=False)
        return True


class FlightRecorder:
    """Records a channel until it is closed, or its station is.

    Args:
        station: of both channels.
        source: the channel to watch; it need not be persistent.
        to: a persistent channel of the same events, for what is kept.
        when: a filter, for each event of the source; or a pattern such as `hg.all_of(...)`; None: only
            `trigger()`.
        params: values for `:name` and `%0` in the filter.
        before: seconds that are kept before a trigger, by when events came here.
        after: seconds that are kept after it.
        events: held in memory, at most.
        bytes: of their values, at most.
        thin: outside of cut-outs, keep one event of each key in so many seconds; None: none.
    """

    @names_options
    def __init__(
        self,
        station: Station,
        source: Channel[Any],
        to: Channel[Any],
        *,
        when: str | Pattern | None = None,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        before: float = 10.0,
        after: float = 5.0,
        events: int = RING_EVENTS,
        bytes: int = RING_BYTES,  # noqa: A002 - as queues call it
        thin: float | None = None,
    ) -> None:
        _insist(source, to, before=before, after=after, events=events, bytes=bytes, thin=thin)
        self._tests = _tests(source, when, params) if isinstance(when, str) else {}
        self._source, self._to, self._clock = source, to, source.ports.clock
        self._keys = {cls: _key_function(cls) for cls in source.types}
        self._cuts = station.channel(f"{to.name}.cuts", CutOut, qos=QoS(durability="persistent"))
        self._ring = Ring(_ns(before), _ns(after), events, bytes, None if thin is None else _ns(thin))
        self._lock = source.ports.tasks.lock("flight recorder", outer=True)
        self._under_way: deque[Receipt] = deque()
        self._timers, self._is_timed, self._is_closed = station.timers, False, False
        self._count = dict.fromkeys(("cuts", "kept", "thinned", "seen"), 0)
        self._receivers: list[Any] = [source.subscribe(self._take)]
        if isinstance(when, Pattern):
            self._receivers.append(station.subscribe(when, lambda _: self.trigger()))

    def trigger(self) -> int:
        """Keep what came in the last seconds, and what comes in the next ones; returns the cut-out's name."""
        with self._lock:
            return self._trigger()

    def stats(self) -> RecorderStats:
        with self._lock:
            return RecorderStats(**self._count, waiting=len(self._ring), waiting_bytes=self._ring.bytes)

    def settle(self) -> None:
        """Return when all that was kept so far is on disk."""
        with self._lock:
            self._settle(0)

    def close(self) -> None:
        """Watch no more. A cut-out that is open ends here; all that was kept is on disk when this returns."""
        for receiver in self._receivers:
            receiver.close()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._ring.end()
            self._tell_ended()
            self._settle(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, event: Event, header: Header) -> None:
        key = self._keys[type(event)](event)
        test = self._tests.get(type(event))
        is_trigger = test is not None and test(event, header) is True
        with self._lock:
            if self._is_closed:
                return
            self._count["seen"] += 1
            cut = self._ring.take(self._clock.monotonic_ns(), (event, header), size_of(event), key)
            if cut is not None:
                self._keep(event, header, cut)
            if is_trigger:
                self._trigger()
            self._tell_ended()

    def _trigger(self) -> int:
        now = self._clock.monotonic_ns()
        begins = self._ring.cut
        past = self._ring.trigger(now, self._clock.time_ns())
        cut = self._ring.cut
        assert cut is not None
        if cut is not begins:
            self._count["cuts"] += 1
            self._tell(cut, "begun")
        for event, header in past:
            self._keep(event, header, cut.name)
        self._tell_ended()
        if not self._is_timed:
            self._is_timed = True
            self._wake_at()
        return cut.name

    def _wake_at(self) -> None:
        at = self._ring.over_at()
        assert at is not None
        self._timers.after(max(0, at - self._clock.monotonic_ns()) / 1e9, self._wake)

    def _wake(self) -> None:
        """No event may come that would show that a cut-out is over."""
        with self._lock:
            self._ring.tick(self._clock.monotonic_ns())
            if not self._is_closed:
                self._tell_ended()
            self._is_timed = self._ring.cut is not None and not self._is_closed
            if self._is_timed:
                self._wake_at()

    def _keep(self, event: Event, header: Header, cut: int) -> None:
        said = said_before(header)
        if cut:
            said["headers"] = {**said.get("headers", {}), CUT: str(cut)}
        # Nothing is kept twice, though it be delivered again or watched by two recorders.
        said["id"] = f"cut/{header.supplier}/{header.epoch}/{header.sequence}"
        self._under_way.append(self._to.push_nowait(event, **said))
        self._count["kept" if cut else "thinned"] += 1
        self._settle(UNDER_WAY)

    def _settle(self, most: int) -> None:
        while len(self._under_way) > most:
            self._under_way.popleft().result(LIMIT)

    def _tell_ended(self) -> None:
        while self._ring.ended:
            self._tell(self._ring.ended.pop(0), "ended")

    def _tell(self, cut: _Cut, state: str) -> None:
        told = CutOut(cut.name, state, self._to.name, cut.triggers, cut.events, cut.missing)
        self._under_way.append(self._cuts.push_nowait(told))


def _insist(source: Channel[Any], to: Channel[Any], **options: Any) -> None:
    for name, value in options.items():
        least = 1 if name in ("events", "bytes") else 0
        if value is not None and (isinstance(value, bool) or not value >= least):
            raise NotPossible(source.name, f"{name}={value!r}: a number from {least}")
    if to.name == source.name:
        raise NotPossible(source.name, "a recorder cannot keep events in the channel that it watches")
    if not to.qos.journalled:
        raise NotPossible(to.name, "it keeps nothing: a recorder needs hg.QoS(durability='persistent')")
    if missing := [info_of(cls).name for cls in source.types if cls not in to.types]:
        raise NotPossible(to.name, f"it does not carry {', '.join(missing)}, which {source.name} does")


def _tests(
    source: Channel[Any], when: str, params: Mapping[str, Any] | Sequence[Any] | None
) -> dict[type, Callable[..., Any]]:
    """The filter for each class that it fits; ExpressionError when it fits none."""
    source.select(where=when, params=params)
    tree = parse(when, params)
    return dict(_fitting(source, tree))


def _fitting(source: Channel[Any], tree: Any) -> Iterator[tuple[type, Callable[..., Any]]]:
    from heliograph.errors import ExpressionError  # noqa: PLC0415 - only here

    for cls in source.types:
        try:
            yield cls, compile_one(check(tree, format_of(cls)))
        except ExpressionError:
            continue


def _key_function(cls: type[Event]) -> Callable[[Event], Any]:
    names = info_of(cls).key
    return lambda event: (cls, *(getattr(event, name) for name in names))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
