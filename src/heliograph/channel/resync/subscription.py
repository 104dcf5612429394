"""A subscription that heals by state: the shell around `heliograph.channel.resync.machine`.

It receives everything, so that no number is missing that was only filtered, and lets through what is news and
what its own filter wants. Rows of a snapshot go through the subscription's own queue, so its function is
called with one event after the other, whether they are live or not. The next page of a snapshot is asked for
when there is room in that queue, so a resynchronisation is as fast as its receiver and loses nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

import msgspec

from heliograph.channel.history.memory import meets
from heliograph.channel.receive.subscription import QueuedReceiver, Receiver, takes_header
from heliograph.channel.resync.machine import AskForState, Check, ResyncCounts, ResyncMachine, Version
from heliograph.channel.resync.offer import STATE_SUFFIX, StateSnapshot, as_row, key_of
from heliograph.errors import HeliographError, NoState, NotPossible, QueryFailed
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.resync.machine import Source
    from heliograph.channel.selection import Selection
    from heliograph.model.event import Event, Header

log = logging.getLogger(__name__)

By: TypeAlias = Literal["state", "history", "cheaper"]

HERE: Final = 0
"""In place of a station's id: this one."""
OFFER_BITS: Final = 64
PAGE: Final = 512
"""Rows that wait in a queue before the next page of a snapshot is asked for."""
STATE_TIMEOUT: Final = 5.0
"""Seconds that a page of a snapshot is waited for."""
ROOM_SECONDS: Final = 0.002
"""Between two looks at whether there is room in the queue."""


class Resync(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscription heals; `hg.Resync(...)`, given as `subscribe(..., resync=...)`.

    Times are seconds.
    """

    by: By = "state"
    """"state": by what suppliers offer with `channel.state`; "history": by the events that are kept;
    "cheaper": by whichever needs fewer rows when the subscription is opened."""
    grace: float = 0.1
    """How long an event may be missing before it counts as lost: those out of order come by then."""
    check: float = 1.0
    """After how much silence suppliers are asked how far they are, so that a lost tail is found."""
    pause: float = 0.1
    """Between two snapshots of one station; doubled up to 5 seconds while they heal nothing."""
    rate: float | None = None
    """Rows a second at most; None: as fast as the function takes them."""

    def check_values(self, channel: str) -> None:
        if self.by not in get_args(By):
            raise NotPossible(channel, f"resync={self.by!r:.60}: allowed are {', '.join(get_args(By))}")
        for name in ("grace", "check", "pause"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0.001 <= value <= 3600:
                raise NotPossible(channel, f"hg.Resync({name}={value!r:.60}): seconds from 0.001 to 3600")
        if self.rate is not None and (type(self.rate) not in (int, float) or not 0 < self.rate <= 1e9):
            raise NotPossible(channel, f"hg.Resync(rate={self.rate!r:.60}): rows a second, above 0")


LONGEST_PAUSE: Final = 5.0


class StatePage(NamedTuple):
    """Some rows of a snapshot."""

    marks: dict[Source, int]
    items: list[Item]
    rest: int
    """What to ask for to get the next page; 0: there is none."""


class RemoteStates(Protocol):
    """The states that linked stations offer."""

    def offers(self, channel: str) -> dict[int, int]:
        """The linked stations that offer the state of a channel, and the numbers of their offers."""
        ...

    def page(self, station: int, channel: Channel[Any], rest: int, timeout: float) -> StatePage:
        """A page of a station's state; QueryFailed when it does not answer."""
        ...

    def marks(self, station: int, channel: Channel[Any], timeout: float) -> dict[Source, int]: ...

    def rows(self, station: int, channel: Channel[Any], timeout: float) -> int:
        """How many rows its state has."""
        ...

    def meet(self, timeout: float) -> None: ...


class ResyncStats(msgspec.Struct, frozen=True):
    """What a subscription that heals has done, and what healing costs."""

    by: str
    """"state" or "history": what was chosen."""
    state_rows: int | None
    """Rows of the state when it was opened, if that was looked up."""
    history_rows: int | None
    """Events of the history when it was opened, if there is one."""
    counts: ResyncCounts
    keys: int
    """Keys of which it knows the latest event."""
    settled: bool
    """Whether nothing is missing as far as it knows, and no snapshot is under way."""


def resync_options(channel: str, said: Any) -> Resync | None:
    """What `resync=` says, checked."""
    if said is None:
        return None
    options = said if isinstance(said, Resync) else Resync(by=said)
    options.check_values(channel)
    return options


class StateResync:
    """See the module. Reached as `subscription.resync`."""

    def __init__(
        self, channel: Channel[Any], services: ChannelContext, options: Resync, wanted: Selection
    ) -> None:
        self._channel = channel
        self._services = services
        self._options = options
        self._wanted = wanted.conditions
        self._clock = channel.ports.clock
        self._lock = channel.ports.tasks.lock(f"resync of {channel.name}")
        self._machine = ResyncMachine(
            grace=round(options.grace * 1e9),
            check=round(options.check * 1e9),
            pause=round(options.pause * 1e9),
            longest=round(max(LONGEST_PAUSE, options.pause) * 1e9),
        )
        self._rows: dict[int, tuple[Header, AskForState, dict[Source, int]]] = {}
        """Rows that wait in the queue, by the id of their header: of which snapshot, and its marks."""
        self._waiting: Counter[int] = Counter()
        """How many of them are of each snapshot, by the number of the question."""
        self._receiver: QueuedReceiver | None = None
        self._timer: Any = None
        self.by: By = "state"
        self.state_rows: int | None = None
        self.history_rows: int | None = None

    # The face

    def stats(self) -> ResyncStats:
        with self._lock:
            machine = self._machine
            counts = msgspec.structs.replace(machine.counts)
            return ResyncStats(
                self.by,
                self.state_rows,
                self.history_rows,
                counts,
                len(machine.known),
                machine.is_settled and not self._rows,
            )

    def state(self) -> dict[Any, Event]:
        """The latest event of each key, as far as it has come: by key, or by (type, key) where there are
        several types; keys that the supplier has no more are not in it."""
        one = len(self._channel.types) == 1
        with self._lock:
            known = dict(self._machine.known)
        return {_plain(key, alone=one): value.event for key, value in known.items()}

    # Of the subscription

    def wrapped(self, callback: Callable[..., Any]) -> Callable[[Event, Header], Any]:
        """What is called with every event: calls the function with those that are news."""
        with_header = takes_header(callback)

        def call(event: Event, header: Header) -> None:
            if self._is_news(event, header):
                callback(event, header) if with_header else callback(event)

        async def call_async(event: Event, header: Header) -> None:
            if self._is_news(event, header):
                await (callback(event, header) if with_header else callback(event))

        called: Any = call_async if inspect.iscoroutinefunction(callback) else call
        called.__name__ = getattr(callback, "__name__", type(callback).__name__)
        return called  # type: ignore[no-any-return]  # one of the two

    def begin(self, receiver: Receiver) -> None:
        assert isinstance(receiver, QueuedReceiver)
        self._receiver = receiver
        receiver.resync = self
        period = max(0.01, min(self._options.grace / 2, 0.25))
        self._timer = self._services.timers.every(period, self._tick)
        self._tick()

    def _is_news(self, event: Event, header: Header) -> bool:
        key = key_of(header)
        row = self._rows.pop(id(header), None)
        version = Version(header.supplier, header.epoch, header.sequence)
        with self._lock:
            if row is not None:
                is_state = header.supplier.endswith(STATE_SUFFIX) and not header.sequence
                _, ask, marks = row
                self._waiting[ask.number] -= 1
                news = self._machine.row(ask.station, marks, key, None if is_state else version, event)
            else:
                news = self._machine.event(self._clock.monotonic_ns(), version, key, event)
        return news and meets(self._wanted, (event, header, 0))

    # Of timers, which do not wait

    def _tick(self) -> None:
        receiver = self._receiver
        if receiver is None or receiver.queue.closed:
            if self._timer is not None:
                self._timer.cancel()
            return
        now = self._clock.monotonic_ns()
        stations = self._stations()
        with self._lock:
            self._machine.offers(now, stations)
            actions = self._machine.due(now)
        for action in actions:
            call = (
                partial(self._fetch, action)
                if isinstance(action, AskForState)
                else partial(self._check, action)
            )
            self._channel.ports.tasks.spawn_soon(f"resync of {self._channel.name}", call)

    def _stations(self) -> list[int]:
        remote = self._services.remote_states
        offer = self._channel.offered_state
        own = [] if offer is None else [_place(HERE, offer.number)]
        linked = {} if remote is None else remote.offers(self._channel.name)
        return [*own, *(_place(station, number) for station, number in linked.items())]

    # In tasks of their own

    def _check(self, check: Check) -> None:
        marks: dict[Source, int] | None = None
        station = check.station >> OFFER_BITS
        try:
            marks = self._marks(station)
        except HeliographError as error:
            log.debug("%s: station %016x does not say how far it is: %s", self._channel.name, station, error)
        receiver = self._receiver
        if receiver is None or receiver.queue.counts().pending:
            marks = None  # it has not looked at all that has come: what is missing may be among that
        with self._lock:
            self._machine.told(self._clock.monotonic_ns(), check.station, marks)

    def _marks(self, station: int) -> dict[Source, int]:
        if station == HERE:
            offer = self._channel.offered_state
            return {} if offer is None else offer.marks()
        assert self._services.remote_states is not None
        return self._services.remote_states.marks(station, self._channel, STATE_TIMEOUT)

    def _fetch(self, ask: AskForState) -> None:
        is_first = True
        try:
            for page in self._pages(ask.station >> OFFER_BITS):
                if is_first and not self._begun(ask, page.marks):
                    return
                is_first = False
                if not self._put(ask, page):
                    return
        except HeliographError as error:
            log.info("%s: a resynchronisation failed and is repeated: %s", self._channel.name, error)
            with self._lock:
                self._machine.failed(self._clock.monotonic_ns(), ask.station, ask.number)
        else:
            with self._lock:
                self._waiting.pop(ask.number, None)
                self._machine.end(self._clock.monotonic_ns(), ask.station, ask.number)

    def _pages(self, station: int) -> Iterator[StatePage]:
        if station == HERE:
            snapshot = snapshot_here(self._channel, STATE_TIMEOUT)
            for start in range(0, max(1, len(snapshot.items)), PAGE):
                yield StatePage(snapshot.marks, snapshot.items[start : start + PAGE], 0)
            return
        assert self._services.remote_states is not None
        rest = 0
        while True:
            page = self._services.remote_states.page(station, self._channel, rest, STATE_TIMEOUT)
            yield page
            rest = page.rest
            if not rest:
                return

    def _begun(self, ask: AskForState, marks: dict[Source, int]) -> bool:
        with self._lock:
            return self._machine.begin(self._clock.monotonic_ns(), ask.station, ask.number, marks)

    def _put(self, ask: AskForState, page: StatePage) -> bool:
        """Have rows wait in the queue, once there is room for them; False when nobody wants them."""
        receiver = self._receiver
        assert receiver is not None
        items = [(event, as_row(header), deadline) for event, header, deadline in page.items]
        begun = self._clock.monotonic_ns()
        with self._lock:
            if not self._machine.coming(ask.station, ask.number, [key_of(header) for _, header, _ in items]):
                return False
            marks = page.marks
            self._rows.update({id(header): (header, ask, marks) for _, header, _ in items})
            self._waiting[ask.number] += len(items)
        self._channel.put_rows(receiver, items)
        self._wait_taken(ask, PAGE if page.rest else 0)
        if self._options.rate is not None:
            due = begun + round(len(items) / self._options.rate * 1e9)
            self._channel.ports.tasks.sleep(max(0.0, seconds_until(self._clock, due)))
        return not receiver.queue.closed

    def _wait_taken(self, ask: AskForState, most: int) -> None:
        """Wait until at most so many rows of a snapshot wait; QueryFailed when the queue has dropped some.

        A queue that is empty has none of them, and one that holds them takes one now and then.
        """
        assert self._receiver is not None
        queue, left, since = self._receiver.queue, self._waiting[ask.number], self._clock.monotonic_ns()
        while self._waiting[ask.number] > most and not queue.closed:
            is_empty = queue.wait_empty(ROOM_SECONDS)
            now, waiting = self._clock.monotonic_ns(), self._waiting[ask.number]
            if waiting < left:
                left, since = waiting, now
            elif (is_empty and waiting) or now - since > STATE_TIMEOUT * 1e9:
                self._forget_rows(ask)
                raise QueryFailed("this receiver", f"dropped {waiting} rows of a snapshot from its queue")

    def _forget_rows(self, ask: AskForState) -> None:
        with self._lock:
            self._rows = {place: row for place, row in self._rows.items() if row[1] != ask}
            del self._waiting[ask.number]


class HistoryResync:
    """In place of `StateResync`, where a subscription heals by the history of its channel."""

    def __init__(self, state_rows: int | None, history_rows: int | None) -> None:
        self._rows = state_rows, history_rows

    def stats(self) -> ResyncStats:
        return ResyncStats("history", *self._rows, ResyncCounts(), 0, settled=True)


def open_healing(
    channel: Channel[Any],
    services: ChannelContext,
    options: Resync,
    callback: Callable[..., Any],
    asked: dict[str, Any],
) -> Receiver:
    """A subscription that heals; `asked` is what else `subscribe` was given."""
    _check(channel, asked)
    start = asked.pop("start")
    state_rows = history_rows = None
    if options.by != "state":
        history_rows = history_size(channel)
    if options.by == "cheaper":
        state_rows = _state_size(channel, services)
    if options.by == "history" or (
        history_rows is not None
        and (state_rows is None or history_rows <= state_rows)
        and options.by != "state"
    ):
        if history_rows is None:
            raise NotPossible(
                channel.name, "resync='history': it keeps none; hg.QoS(durability=...), or resync='state'"
            )
        receiver: Receiver = channel.subscribe(
            callback, start="earliest" if start is None else start, **asked
        )
        receiver.resync = HistoryResync(state_rows, history_rows)
        return receiver
    if options.by == "cheaper" and state_rows is None:
        raise NotPossible(
            channel.name,
            "resync='cheaper': it keeps no history, and no station offers its state: channel.state",
        )
    if start not in (None, "now", "latest"):
        raise NotPossible(
            channel.name, f"start={start!r:.60}: who heals by state begins with that; leave it out"
        )
    wanted = channel.select(**{name: asked.pop(name) for name in FILTERS if name in asked})
    healing = StateResync(channel, services, options, wanted)
    healing.state_rows, healing.history_rows = state_rows, history_rows
    begins = "now" if channel.store is not None or channel.keeps_history else None
    receiver = channel.subscribe(healing.wrapped(callback), start=begins, **asked)
    receiver.callback = callback  # type: ignore[attr-defined]  # by which it is unsubscribed
    healing.begin(receiver)
    return receiver


FILTERS: Final = ("where", "params", "types", "sources")


def _check(channel: Channel[Any], asked: dict[str, Any]) -> None:
    if asked.get("inline"):
        raise NotPossible(channel.name, "resync= with inline=True: who heals has a queue; leave one out")
    asked.pop("inline", None)
    asked.pop("views", None)
    for option in ("group", "separation"):
        if asked.get(option) is not None:
            raise NotPossible(
                channel.name,
                f"resync= with {option}=: what it leaves out would look like a loss; leave one out",
            )
    if (asked.get("overflow") or channel.qos.overflow_policy) == "coalesce":
        raise NotPossible(channel.name, "resync= with overflow='coalesce': that keeps the latest by itself")
    if asked.get("name") is not None and channel.qos.journalled:
        raise NotPossible(
            channel.name, "resync= with name=: a durable subscription heals by its history; leave one out"
        )


def history_size(channel: Channel[Any]) -> int | None:
    """How many events its history has; None when it keeps none."""
    if channel.store is not None:
        return sum(max(0, part.watermark - part.earliest) for part in channel.partitions())
    return channel.stats().kept if channel.keeps_history else None


def _state_size(channel: Channel[Any], services: ChannelContext) -> int | None:
    """How many rows the states have that stations offer; None when none does."""
    sizes: list[int] = []
    if channel.offered_state is not None:
        sizes.append(len(snapshot_here(channel, STATE_TIMEOUT).items))
    remote = services.remote_states
    if remote is not None:
        remote.meet(STATE_TIMEOUT)
        sizes += [remote.rows(one, channel, STATE_TIMEOUT) for one in remote.offers(channel.name)]
    return sum(sizes) if sizes else None


def fetch_state(channel: Channel[Any], services: ChannelContext, timeout: float) -> list[Item]:
    """What all stations offer as the state of a channel, once."""
    clock = channel.ports.clock
    deadline = clock.monotonic_ns() + round(timeout * 1e9)
    found = [] if channel.offered_state is None else list(snapshot_here(channel, timeout).items)
    remote = services.remote_states
    if remote is not None:
        remote.meet(timeout / 2)  # one that was killed a moment ago must not take all of the time
    stations = [] if remote is None else list(remote.offers(channel.name))
    if not stations and channel.offered_state is None:
        raise NoState(channel.name)
    for station in stations:
        assert remote is not None
        try:
            found += _whole(remote, station, channel, lambda: seconds_until(clock, deadline))
        except QueryFailed:
            if station in remote.offers(channel.name):
                raise  # it is there, and its state is missing; one that has gone offers nothing
    return found


def _whole(
    remote: RemoteStates, station: int, channel: Channel[Any], left: Callable[[], float]
) -> list[Item]:
    """All pages of a station's state."""
    found: list[Item] = []
    rest, is_first = 0, True
    while rest or is_first:
        page = remote.page(station, channel, rest, left())
        found += page.items
        rest, is_first = page.rest, False
    return found


def snapshot_here(channel: Channel[Any], timeout: float) -> StateSnapshot:
    """A snapshot of what this station offers."""
    offer = channel.offered_state
    if offer is None:
        raise QueryFailed("this station", f"offers no state of {channel.name} any more")
    done = channel.ports.tasks.event("state")
    taken: list[StateSnapshot | HeliographError] = []

    def told(snapshot: StateSnapshot | HeliographError) -> None:
        taken.append(snapshot)
        done.set()

    offer.ask(told)
    if not done.wait(timeout):
        raise QueryFailed("this station", f"has not told its state of {channel.name} within {timeout:g} s")
    (snapshot,) = taken
    if isinstance(snapshot, HeliographError):
        raise snapshot
    return snapshot


def _place(station: int, offer: int) -> int:
    """What the machine knows an offer by: one that is made anew is another."""
    return (station << OFFER_BITS) | offer


def _plain(key: Any, *, alone: bool) -> Any:
    """A key as users write it."""
    type_name, values = key
    plain = values[0] if len(values) == 1 else values
    return plain if alone else (type_name, plain)
