"""A crossing: one channel, one way over a gateway.

A consumer in one domain takes events, and a forwarder of the same channel in the other domain is given them.
An event that has been in the other domain, by the list of domains that it carries, does not go there again;
one that has been in as many domains as the gateway allows goes nowhere. Both are counted.

On a persistent channel the consumer is durable, and an event is acknowledged to its keeper only when the
journal of the other domain has it on disk (custody). Events are under way up to a limit and acknowledged in
order. What could not be kept is pushed again, in order, until it is; the journal drops what it had kept.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from heliograph.codec import decoder, encoder
from heliograph.errors import (
    AppendTimeout,
    CannotTell,
    Closed,
    DecodeError,
    ExpressionError,
    FormatError,
    HeliographError,
    JournalClosed,
    NotPossible,
    Suspended,
    WrongEventType,
)
from heliograph.model.event import MAX_USER_HEADER, VIA, info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.forwarder import Forwarded, Forwarder
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.delivery import Delivery
    from heliograph.model.event import Event, Header
    from heliograph.station import Station

log = logging.getLogger(__name__)

UNDER_WAY: Final = 256
"""Events that were given to the other domain and are not yet known to be on disk there, at most."""
NEXT: Final = 0.002
"""Seconds without a next event after which those under way are waited for."""
KEEP_LIMIT: Final = 10.0
"""Seconds for the other domain to keep an event; then it is given to it again."""
RETRY: Final = 0.25
"""Seconds until what could not be done is tried again."""
SEPARATOR: Final = ","
"""Between the domains that an event has been in."""


class CrossingOptions(msgspec.Struct, frozen=True):
    """What a crossing was told."""

    where: str | None = None
    params: Any = None
    hops: int = 8
    """Domains that an event may have been in, the one that it was pushed in among them."""
    name: str = ""
    """Of the durable consumer, on persistent channels."""
    start: Any = None
    """Where a durable consumer of a new name begins."""


class CrossingStats(msgspec.Struct, frozen=True):
    """What became of the events that a crossing took."""

    channel: str
    source: str
    """The domain in which they were taken."""
    target: str
    """The domain into which they were given."""
    forwarded: int
    """Given to the other domain; on a persistent channel kept there, by this gateway or by another before."""
    returned: int
    """Had been in the other domain before, by the domains that they name."""
    too_far: int
    """Had been in as many domains as the gateway allows."""
    repeated: int
    """Were in the channel there already: another gateway was faster. None on persistent channels."""
    untold: int
    """Too old to be told from those that were there; see `heliograph.model.event_id_set`."""
    expired: int
    """Their lifespan was over."""
    rejected: int
    """Cannot be events of the other domain's channel; refused here with the reason."""
    under_way: int
    """Given to the other domain, which has not said yet that it keeps them."""
    waits_for: str
    """Why nothing crosses at this moment; empty: it does."""

    @property
    def taken(self) -> int:
        """All of them."""
        return (
            self.forwarded
            + self.returned
            + self.too_far
            + self.repeated
            + self.untold
            + self.expired
            + self.rejected
            + self.under_way
        )


class _Sent(NamedTuple):
    delivery: Delivery[Any]
    forwarded: Forwarded


def domains_of(header: Header) -> tuple[str, ...]:
    """The domains that an event has been in before the one in which it is, the first one first."""
    via = (header.headers or {}).get(VIA)
    return tuple(via.split(SEPARATOR)) if via else ()


class Crossing:
    """See the module. It has a task of its own; `close` ends it."""

    def __init__(
        self, near: Channel[Any], source: Station, target: Station, options: CrossingOptions
    ) -> None:
        assert source.domain is not None
        assert target.domain is not None
        self.near = near
        self.source, self.target = source.domain, target.domain
        self.failure: HeliographError | None = None
        """What bars it for ever: its filter is about other events, for example."""
        self._options = options
        self._there = target
        self._clock = source.ports.clock
        self._bell = source.ports.tasks.signal(f"crossing of {near.name}")
        self._lock = source.ports.tasks.lock(f"crossing of {near.name}")
        self._closing = False
        self._tried = source.ports.tasks.event(f"crossing of {near.name} was tried")
        self._counts: Counter[str] = Counter()
        self._why = "is being opened"
        self._far: Channel[Any] | None = None
        self._consumer: Consumer[Any] | None = None
        self._forwarder: Forwarder[Any] | None = None
        self._under_way: deque[_Sent] = deque()
        self._converters: dict[tuple[type[Event], type[Event]], Callable[[Any], Event]] = {}
        self._last: Delivery[Any] | None = None
        """The last that is done with: acknowledging it has the disk keep all before it, too."""
        self._task = source.ports.tasks.spawn(f"gateway {near.name} to {self.target}", self._run)

    def wait_tried(self, timeout: float) -> bool:
        """Wait until it has been opened, or is known to wait for something."""
        return self._tried.wait(timeout)

    @property
    def is_over(self) -> bool:
        """Whether its channel is closed here, so that nothing more comes."""
        return self.near.closed

    def stats(self) -> CrossingStats:
        counts = self._counts
        return CrossingStats(
            self.near.name,
            self.source,
            self.target,
            counts["forwarded"],
            counts["returned"],
            counts["too_far"],
            counts["repeated"],
            counts["untold"],
            counts["expired"],
            counts["rejected"],
            len(self._under_way),
            self._why,
        )

    def close(self) -> None:
        """Take nothing more. What is not acknowledged is taken again by the next of its name."""
        with self._lock:
            self._closing = True
            consumer = self._consumer
        self._bell.notify()
        if consumer is not None:
            self._let_go(consumer)
        self._task.join()

    # The task

    def _run(self) -> None:
        while not self._closing and not self.near.closed:
            try:
                self._open()
                self._why = ""
                self._tried.set()
                self._pump()
            except (ExpressionError, WrongEventType) as error:
                self.failure = error
                log.warning(
                    "%s does not cross from %s to %s: %s", self.near.name, self.source, self.target, error
                )
                break
            except (Closed, JournalClosed) as error:
                if self._is_ended():
                    break
                self._wait_after(error)
            except HeliographError as error:
                self._wait_after(error)
            except Exception as error:
                log.exception("crossing of %s from %s to %s", self.near.name, self.source, self.target)
                self._wait_after(error)
            finally:
                self._shut()
        self._why = str(self.failure) if self.failure is not None else "is closed"
        self._tried.set()

    def _is_ended(self) -> bool:
        return self._closing or self.near.closed

    def _is_closing(self) -> bool:
        return self._closing  # which another task sets

    def _wait_after(self, error: Exception) -> None:
        """Say once what is in the way, and try again in a moment."""
        why = str(error)
        if why != self._why:
            self._why = why
            log.warning("%s from %s to %s waits: %s", self.near.name, self.source, self.target, error)
        self._tried.set()
        if not self._closing:
            self._bell.wait(RETRY)

    def _open(self) -> None:
        self._far = self._far_channel()
        options: dict[str, Any] = {"name": self._options.name}
        if self._options.where is not None:
            options |= {"where": self._options.where, "params": self._options.params}
        if self.near.qos.journalled:
            options |= {"ack": "manual", "max_in_flight": 4 * UNDER_WAY, "start": self._options.start}
            # One order for all: a queue would hand the urgent ones out first, and what is journalled is read
            # in the order of the history on the other side as well.
        consumer = self.near.consumer(**options)
        forwarder: Forwarder[Any] = self._far.forwarder(self._options.name)
        with self._lock:
            self._consumer, self._forwarder = consumer, forwarder
            if self._closing:
                raise Closed("this gateway")

    def _far_channel(self) -> Channel[Any]:
        """The channel in the other domain: as it is there, or as it is here if nobody has it there."""
        there, name = self._there, self.near.name
        is_there = any(channel.name == name for channel in there.channels())
        if is_there or there.keeps(name):
            return there.channel(name, *self.near.types)
        return there.channel(name, *self.near.types, qos=self.near.qos)

    def _shut(self) -> None:
        with self._lock:
            consumer, self._consumer = self._consumer, None
            forwarder, self._forwarder = self._forwarder, None
        if consumer is not None:
            self._let_go(consumer)
        if forwarder is not None:
            forwarder.close()
        self._under_way.clear()
        self._last = None

    def _let_go(self, consumer: Consumer[Any]) -> None:
        try:
            consumer.close()
        except HeliographError as error:
            log.info("consumer of a gateway: %s", error)  # its keeper is away: it forgets nothing

    def _pump(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        while not self._is_closing():
            first = next(consumer.deliveries(), None)
            if first is None:
                return  # the consumer is closed
            self._cross(first)
            for delivery in consumer.deliveries(NEXT):
                self._cross(delivery)
                self._settle(UNDER_WAY)
                if self._is_closing():
                    return
            self._settle(0)
            last, self._last = self._last, None
            if last is not None and not self._is_closing():
                last.ack()

    def _cross(self, delivery: Delivery[Any]) -> None:
        header = delivery.header
        been = domains_of(header)
        if self.target in been:
            self._done(delivery, "returned")
        elif len(been) + 1 > self._options.hops:
            self._done(delivery, "too_far")
        elif delivery.deadline_ns and delivery.deadline_ns <= self._clock.monotonic_ns():
            self._done(delivery, "expired")
        else:
            via = SEPARATOR.join((*been, self.source))
            if len(via) > MAX_USER_HEADER:
                self._done(delivery, "too_far")
                return
            self._give(delivery, via)

    def _give(self, delivery: Delivery[Any], via: str) -> None:
        try:
            forwarded = self._push(delivery, via)
        except CannotTell:
            self._done(delivery, "untold")
            return
        except (WrongEventType, NotPossible, FormatError, DecodeError) as error:
            self._reject(delivery, error)
            return
        if forwarded.kept is not None:
            self._under_way.append(_Sent(delivery, forwarded))
            return
        what = {"new": "forwarded", "known": "repeated"}.get(forwarded.verdict, "untold")
        self._done(delivery, what)

    def _push(self, delivery: Delivery[Any], via: str) -> Forwarded:
        """Give an event to the other domain; while that takes nothing in, it and all behind it wait here."""
        while True:
            try:
                forwarded = self._push_now(delivery, via)
            except HeliographError as error:
                if not self._is_waited_for(error):
                    raise
                if self._is_ended():
                    raise Closed("this gateway") from error
                self._wait_after(error)
            else:
                self._why = ""
                return forwarded

    def _is_waited_for(self, error: HeliographError) -> bool:
        """Whether the event that was refused is tried again, and what consumes here stays open meanwhile.

        A durable consumer loses nothing when it is closed; the queue of another one is gone with it.
        """
        if isinstance(error, CannotTell):
            return error.reason == "no room" and self.near.qos.journalled
        if isinstance(error, Suspended):
            return True
        if isinstance(error, NotPossible):  # not of this event, if nobody's is taken in
            return self._forwarder is not None and self._forwarder.why_barred() is not None
        is_away = error.retriable and not isinstance(error, Closed | JournalClosed)
        return is_away and not self.near.qos.journalled

    def _push_now(self, delivery: Delivery[Any], via: str) -> Forwarded:
        far, forwarder = self._far, self._forwarder
        assert far is not None
        assert forwarder is not None
        header = delivery.header
        marked = msgspec.structs.replace(header, headers={**(header.headers or {}), VIA: via})
        event = self._as_there(delivery.event, far)
        forwarded = forwarder.push(event, marked, delivery.deadline_ns, KEEP_LIMIT)
        if forwarded.verdict == "no room":
            raise CannotTell(far.name, str(header.id), forwarded.verdict)
        return forwarded

    def _as_there(self, event: Event, far: Channel[Any]) -> Event:
        """The event in the class that the other domain's channel has for its type; else with its own."""
        cls = event.__class__
        if cls in far.types:
            return event
        info = info_of(cls)
        there = next((one for one in far.types if info_of(one).name == info.name), None)
        if there is None:
            far.add_types((cls,))
            return event
        convert = self._converters.get((cls, there))
        if convert is None:
            encode, decode = encoder(cls).encode, decoder(info.format, there)
            convert = self._converters[cls, there] = lambda one: decode(encode(one))
        return convert(event)

    def _settle(self, most: int) -> None:
        """Acknowledge what is kept, in order, until at most so many are under way."""
        while len(self._under_way) > most and not self._closing:
            delivery, forwarded = self._under_way[0]
            assert forwarded.kept is not None
            what = "forwarded"
            try:
                forwarded.kept.result(KEEP_LIMIT)
            except CannotTell as error:
                if self._is_waited_for(error):
                    self._give_again(error)
                    continue
                what = "untold"
            except HeliographError as error:
                self._give_again(error)
                continue
            self._under_way.popleft()
            self._done(delivery, what)

    def _give_again(self, error: HeliographError) -> None:
        """What is under way was not kept, or nobody knows: give it all again, in order, until it is."""
        if isinstance(error, Closed | JournalClosed) and self._is_ended():
            raise error
        for sent in self._under_way:  # none of them may be kept behind one that is given again
            if sent.forwarded.kept is not None and not sent.forwarded.kept.done():
                self._outcome(sent)
        self._wait_after(error)
        again = list(self._under_way)
        for place, (delivery, _) in enumerate(again):
            if self._closing:
                return
            via = SEPARATOR.join((*domains_of(delivery.header), self.source))
            self._under_way[place] = _Sent(delivery, self._push(delivery, via))
        self._why = ""

    def _outcome(self, sent: _Sent) -> None:
        try:
            assert sent.forwarded.kept is not None
            sent.forwarded.kept.result(KEEP_LIMIT)
        except (AppendTimeout, HeliographError) as error:
            log.debug("given again: %s", error)

    def _done(self, delivery: Delivery[Any], what: str) -> None:
        self._counts[what] += 1
        if self.near.qos.journalled:
            if self._last is not None:
                self._last.settle()
            self._last = delivery

    def _reject(self, delivery: Delivery[Any], error: HeliographError) -> None:
        self._counts["rejected"] += 1
        self.near.report(f"gateway to {self.target}", delivery.header, error)
        if self.near.qos.journalled:
            delivery.reject(f"gateway to {self.target}: {error}")
