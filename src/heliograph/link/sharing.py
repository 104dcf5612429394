"""Groups on persistent channels whose members are in several stations: the one that keeps hands out.

`GroupHost` gives members of other stations a seat at the desk of their group, beside those of its own.
`RemoteDesk` is what such a member has in place of a desk; its seat asks the host for events, some at a time,
and tells it what is settled. An event is in one member's hands at a time, wherever that is: leases, delays,
`max_in_flight` and order by key are kept by the one desk.

A member whose process ends, or whose link is lost, has left: what it held goes to others, marked. When it is
the keeper that was away, members sit down again by themselves; what they hold can still be acknowledged, and
what they have not seen yet is handed out anew.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Meta

from heliograph.channel.handing import Acking, Handed, Terms
from heliograph.channel.places import NOW, Span
from heliograph.channel.selection import Selection, conditions_for
from heliograph.delivery.window import numbered, place_of, stream_of
from heliograph.errors import NotPossible, QueryFailed
from heliograph.event import Count, Name, info_of
from heliograph.link import messages as m
from heliograph.link.conditions import condition_for, from_data, to_data
from heliograph.link.pages import PAGE_BYTES, Page, PageReader, page_size, to_page
from heliograph.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.consumer import Shared
    from heliograph.channel.core import Channel
    from heliograph.channel.handing import HostSeat
    from heliograph.event import Event
    from heliograph.formats import Format
    from heliograph.link.questions import Outcome, Questions, Reply
    from heliograph.link.runs import EventWriter
    from heliograph.ports import Clock, Tasks
    from heliograph.qos import Missing

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Events that a member takes from the keeper at a time, at most."""
PACE: Final = 0.05
"""Seconds of its own work that a member takes at a time: what it has not begun, nobody else can do."""
AWAY: Final = 0.25
"""Seconds between two looks for a keeper that is away."""


Spot: TypeAlias = tuple[Name, Count]
"""Names an event by its partition and offset, which outlive the desk that hands it out."""
_spot: Final[Callable[[Any], Spot]] = attrgetter("partition", "offset")


class Join(msgspec.Struct, array_like=True):
    """A member wants a seat."""

    number: Count
    """Names the seat in all questions to come; never used twice by a station."""
    channel: Name
    group: Name
    member: Name
    wants: list[m.Want]
    all_types: bool
    priority: int | None
    begins: dict[Name, Count]
    """Where in each partition it begins, if the group has never been there."""
    ends: dict[Name, Count] | None
    from_now: bool
    since: datetime | None
    """Where it begins in partitions that the keeper meets later; without either, with the earliest event."""
    raises_gaps: bool
    acking: dict[str, str | int | float | None]


class Take(msgspec.Struct, array_like=True):
    number: Count
    most: Annotated[int, Meta(ge=0, le=AT_ONCE)]
    """0: nothing, it only tells what is settled."""
    settled: list[Spot]


class Handout(msgspec.Struct, array_like=True):
    """What a member gets, and which attempt it is; None when it has no seat, because the keeper was away."""

    page: Page
    attempts: list[tuple[Spot, int]] = []
    due: float | None = None
    """Seconds after which to ask again, though no bell rang."""
    ended: bool = False
    failure: str | None = None
    """Why there is nothing to be had any more."""


class Settle(msgspec.Struct, array_like=True):
    """An event is acknowledged; with a delay it is refused."""

    number: Count
    spot: Spot
    delay: float | None = None


class Leave(msgspec.Struct, array_like=True):
    number: Count
    settled: list[Spot]
    unseen: list[Spot]


_join: Final = msgspec.msgpack.Decoder(Join).decode
_terms: Final = msgspec.msgpack.Decoder(Terms).decode
_take: Final = msgspec.msgpack.Decoder(Take).decode
_handout: Final = msgspec.msgpack.Decoder(Handout | None).decode
_settle: Final = msgspec.msgpack.Decoder(Settle).decode
_settled: Final = msgspec.msgpack.Decoder(bool | None).decode
_leave: Final = msgspec.msgpack.Decoder(Leave).decode
_number: Final = msgspec.msgpack.Decoder(int).decode


# In the station that keeps


class _Member:
    """A member of another station, as the keeper knows it."""

    shared: Shared
    seat: HostSeat

    def __init__(self, channel: Channel[Any], group: str, tasks: Tasks) -> None:
        self.channel = channel
        self.group = group
        self._lock = tasks.lock(f"member of {group}")
        self._waiting: Reply | None = None
        self._rang = False

    def ring(self) -> None:
        """Tell it to ask, or remember that until it wants to be told."""
        with self._lock:
            reply, self._waiting = self._waiting, None
            self._rang = reply is None
        if reply is not None:
            reply(None)

    def wait(self, reply: Reply) -> None:
        """Have `reply` called at the next bell; at once when one has rung since it last looked."""
        with self._lock:
            if not self._rang:
                self._waiting = reply
                return
            self._rang = False
        reply(None)

    def look(self) -> None:
        """It takes what is there: bells before this are no news."""
        with self._lock:
            self._rang = False

    def number_of(self, spot: Spot) -> int:
        return self.shared.desk.number_of(*spot)

    def settle(self, spots: Iterable[Spot]) -> None:
        for number in map(self.number_of, spots):
            self.seat.settle(number)

    def leave(self) -> None:
        self.seat.leave()
        self.channel.asking.one_left(self.group)


class GroupHost:
    """Answers the members that other stations have in groups of channels that this one keeps.

    Args:
        questions: where it answers.
        channel: a channel of this station by its name, or None.
        writer: turns events into runs.
        format_of: a format that a station has told of, by its id.
    """

    def __init__(
        self,
        questions: Questions,
        channel: Callable[[str], Channel[Any] | None],
        writer: EventWriter,
        format_of: Callable[[int, bytes], Format | None],
        tasks: Tasks,
    ) -> None:
        self._channel = channel
        self._writer = writer
        self._format_of = format_of
        self._tasks = tasks
        self._members: dict[tuple[int, int], _Member] = {}
        for topic, responder in (
            ("join", self._join),
            ("take", self._take),
            ("wait", self._wait),
            ("settle", self._settle),
            ("leave", self._leave),
        ):
            questions.answer(f"group.{topic}", responder)
        questions.on_left(self._station_left)

    def _station_left(self, station: int) -> None:
        """Its members are gone; in tasks of their own, since what they held may have to be buried."""
        for key in [key for key in self._members if key[0] == station]:
            self._tasks.spawn("a member that is gone", self._members.pop(key).leave)

    def _join(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _join(body)
        channel = self._channel(ask.channel)
        if channel is None or channel.store is None or not channel.store.kept_here:
            raise QueryFailed("this station", f"does not keep the history of {ask.channel!r}")
        member = _Member(channel, ask.group, self._tasks)
        name = f"{ask.member} of {station:016x}, {ask.number}"
        member.shared, member.seat = channel.asking.sit(
            self._selection(station, channel, ask),
            _acking(ask),
            name,
            member.ring,
            raises_gaps=ask.raises_gaps,
        )
        self._members[station, ask.number] = member
        reply(member.shared.terms)

    def _selection(self, station: int, channel: Channel[Any], ask: Join) -> Selection:
        """What the member wants, in this station's classes; NotPossible when they differ too much."""
        carried = {info_of(cls).name: cls for cls in channel.types}
        peer = f"station {station:016x}"
        classes: list[type[Event]] = []
        for want in ask.wants:
            cls = carried.get(want.type)
            if cls is None:
                raise NotPossible(
                    ask.channel, f"the keeper does not carry {want.type[:80]!r}: open it there with that type"
                )
            condition = condition_for(want, cls, lambda fmt: self._format_of(station, fmt), peer)
            if want.tree is not None and condition.checked is None:
                raise NotPossible(
                    ask.channel,
                    f"the filter reads fields that {want.type[:80]!r} has otherwise at the keeper",
                )
            classes.append(cls)
        if not classes:
            raise NotPossible(ask.channel, "a member of a group wants at least one event type")
        first = ask.wants[0]
        tree = None if first.tree is None else from_data(first.tree, peer)
        sources = None if first.sources is None else frozenset(first.sources)
        return Selection(
            conditions_for(classes, tree, sources),
            tree,
            sources,
            ask.all_types,
            ask.priority,
            ask.group,
            span=Span("now" if ask.from_now else ask.since or "earliest", ask.begins, ask.ends),
        )

    def _take(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _take(body)
        member = self._members.get((station, ask.number))
        if member is None or (member.shared.lane.closed and member.shared.failure is None):
            reply(None)
            return
        member.settle(ask.settled)
        if ask.most:
            member.look()
            reply(self._handed(member, ask.most))
        else:
            reply(Handout(Page([])))

    def _handed(self, member: _Member, most: int) -> Handout:
        seat = member.seat
        handed = seat.take(most)  # a gap is raised there as it would be here
        page = self._page(handed)
        while len(handed) > 1 and page_size(page) > PAGE_BYTES:
            half = len(handed) // 2
            seat.give_back([one.number for one in handed[half:]])
            handed = handed[:half]
            page = self._page(handed)
        failure = member.shared.failure
        return Handout(
            page,
            [(_spot(one.header), one.attempt) for one in handed],
            seat.wait_seconds(),
            ended=not handed and seat.ended(),
            failure=None if failure is None or handed else str(failure),
        )

    def _page(self, handed: list[Handed]) -> Page:
        return to_page(self._writer, [(one.event, one.header, 0) for one in handed])

    def _wait(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        member = self._members.get((station, _number(body)))
        if member is None:
            reply(None)
        else:
            member.wait(reply)

    def _settle(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _settle(body)
        member = self._members.get((station, ask.number))
        if member is None:
            reply(None)
        elif ask.delay is None:
            member.seat.ack_later(member.number_of(ask.spot), reply)
        else:
            member.seat.nak(member.number_of(ask.spot), min(max(0.0, ask.delay), 1e9))
            reply(True)

    def _leave(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _leave(body)
        member = self._members.pop((station, ask.number), None)
        if member is not None:
            member.settle(ask.settled)
            member.seat.give_back([member.number_of(spot) for spot in ask.unseen])
            member.leave()
        reply(None)


def _acking(ask: Join) -> Acking:
    unknown = ask.acking.keys() - Acking.__annotations__.keys()
    if unknown:
        raise NotPossible(ask.channel, f"the keeper does not know {min(unknown)[:40]}=: is it older?")
    return cast("Acking", ask.acking)  # values are checked where terms are agreed


# In a station of a member

_seat_numbers: Final = count(1)


class Way(NamedTuple):
    """How a member reaches the station that keeps its channel: what `heliograph.link.kept` knows of it."""

    channel: str
    clock: Clock
    tasks: Tasks
    types: Callable[[], tuple[type[Event], ...]]
    """The classes that the channel carries here."""
    missing: Missing
    ask: Callable[[str, Any, bool], msgspec.Raw]
    """Puts a question to the keeper and waits for the answer, and, if the last argument says so, for a keeper
    that is away; QueryFailed when there is none."""
    ask_later: Callable[[str, Any, Outcome], None]
    """The same, without waiting: the last argument is told the answer, or why there is none."""


class RemoteDesk:
    """The desk of a group in another station, for one member; see `heliograph.channel.handing.Desk`."""

    def __init__(
        self, way: Way, member: str, selection: Selection, acking: Acking, *, raises_gaps: bool
    ) -> None:
        assert selection.group is not None
        self._way = way
        self._member = member
        self._selection = selection
        self._acking = acking
        self._raises_gaps = raises_gaps
        self.number = 0
        self._partitions: list[str] = []
        self.terms = self.join(patient=True)

    def join(self, *, patient: bool) -> Terms:
        """Sit down at the keeper's desk; NotPossible with its reason when it refuses."""
        number, chosen = next(_seat_numbers), self._selection
        ask = Join(
            number,
            self._way.channel,
            chosen.group or "",
            self._member,
            _wants(chosen),
            chosen.all_types,
            chosen.priority,
            chosen.span.begins,
            chosen.span.ends,
            chosen.span.start in NOW,
            chosen.span.start if isinstance(chosen.span.start, datetime) else None,
            self._raises_gaps,
            dict(self._acking),  # type: ignore[arg-type]  # plain values
        )
        terms: Terms = m.decoded(_terms, self._way.ask("group.join", ask, patient), self._way.channel)
        self.number = number
        return terms

    def sit(self, member: str, ring: Callable[[], object]) -> RemoteSeat:  # noqa: ARG002 - named when it joined
        return RemoteSeat(self, self._way, ring)

    def number_of(self, partition: str, offset: int) -> int:
        """Of this member alone: the keeper numbers by itself."""
        if partition not in self._partitions:
            self._partitions.append(partition)
        return numbered(self._partitions.index(partition), offset)

    def spot_of(self, number: int) -> Spot:
        return self._partitions[stream_of(number)], place_of(number)

    def ready(self, lane: object) -> None:
        """The keeper's lane tells the keeper's desk."""

    def members(self) -> tuple[str, ...]:
        return (self._member,)

    def close(self) -> None:
        """It is the keeper's; a member leaves by its seat."""


class RemoteSeat:
    """A member's place at the keeper's desk; see `heliograph.channel.handing.Seat`.

    Only one thread takes at a time; any may acknowledge.
    """

    def __init__(self, desk: RemoteDesk, way: Way, ring: Callable[[], object]) -> None:
        self._desk = desk
        self._way = way
        self._ring = ring
        self._reader = PageReader(way.channel, way.missing)
        self._joining = way.tasks.lock("seat elsewhere")
        self._taken: deque[tuple[Handed, int]] = deque()
        """What nobody has seen yet, and until when it is this member's."""
        self._settled: list[Spot] = []
        self._most = 1
        self._asked_at = 0
        self._told_at = 0
        self._got = 0
        self._is_waiting = False
        self._look_at: int | None = None
        self._ended = False
        self._left = False

    def take(self, most: int = 1) -> list[Handed]:
        handed = self._next(most)
        if not handed and self._should_ask():
            self._fetch()
            handed = self._next(most)
        elif self._settled and self._seconds_since(self._told_at) > PACE:
            self._tell()
        return handed

    def ack(self, number: int) -> bool:
        return bool(self._insist(self._desk.spot_of(number), None))

    def nak(self, number: int, delay: float) -> None:
        try:
            self._insist(self._desk.spot_of(number), delay)
        except QueryFailed:
            log.warning("%s: refused while the keeper is away; it comes again", self._way.channel)

    def settle(self, number: int) -> None:
        self._settled.append(self._desk.spot_of(number))

    def give_back(self, numbers: Iterable[int]) -> None:
        """Nothing is taken from here that is not seen."""

    def wait_seconds(self) -> float | None:
        return None if self._look_at is None else max(0.0, seconds_until(self._way.clock, self._look_at))

    def ended(self) -> bool:
        return self._ended and not self._taken

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        unseen = [_spot(handed.header) for handed, _ in self._taken]
        with suppress(QueryFailed):  # a keeper that is away has let go of it
            self._way.ask("group.leave", Leave(self._desk.number, self._settled, unseen), False)

    # Inside

    def _next(self, most: int) -> list[Handed]:
        """From what has been fetched; what was left too long is somebody else's by now."""
        now = self._way.clock.monotonic_ns()
        handed: list[Handed] = []
        taken = self._taken  # sitting down again, in another task, begins a new one
        while taken and len(handed) < most:
            one, until = taken.popleft()
            if now < until:
                handed.append(one)
        return handed

    def _should_ask(self) -> bool:
        """Not while the keeper has said that it will ring."""
        if not self._is_waiting or self._settled:
            return True
        return self._look_at is not None and self._way.clock.monotonic_ns() >= self._look_at

    def _fetch(self) -> None:
        self._find_pace()
        try:
            handout = self._ask() or self._ask()
        except QueryFailed:
            handout = None
        if handout is None:
            self._look_in(AWAY)
        else:
            self._use(handout)

    def _ask(self) -> Handout | None:
        """None when the keeper had forgotten this member, which is a new one then."""
        number, settled = self._desk.number, list(self._settled)
        self._asked_at = self._told_at = self._way.clock.monotonic_ns()
        answer = self._way.ask("group.take", Take(number, self._most, settled), False)
        handout: Handout | None = m.decoded(_handout, answer, self._way.channel)
        if handout is None:
            for spot in settled:
                self._insist(spot, None)
            self._sit_down_again(number)
        del self._settled[: len(settled)]
        return handout

    def _use(self, handout: Handout) -> None:
        if handout.failure is not None:
            raise QueryFailed(f"the keeper of {self._way.channel!r}", handout.failure)
        items = self._reader.items(handout.page, self._way.types(), self._way.channel)
        if len(items) < len(handout.attempts):
            log.error(
                "%s: %d events cannot be read here", self._way.channel, len(handout.attempts) - len(items)
            )
        lease = self._desk.terms.lease
        until = self._asked_at + (round(lease * 1e9) if lease is not None else 1 << 62)
        attempts = dict(handout.attempts)
        for event, header, _ in items:
            spot = _spot(header)
            handed = Handed(self._desk.number_of(*spot), event, header, attempts.get(spot, 1))
            self._taken.append((handed, until))
        self._got = len(items)
        self._ended = handout.ended
        if items:
            return
        self._look_at = None
        if handout.due is not None:
            self._look_in(handout.due)
        if not self._is_waiting:
            self._is_waiting = True
            self._way.ask_later("group.wait", self._desk.number, self._rang)

    def _rang(self, *_: object) -> None:
        self._is_waiting = False
        self._ring()

    def _find_pace(self) -> None:
        """Ask for as much as was lately done in `PACE` seconds, and for no more than twice the last."""
        if self._desk.terms.ack == "before" or not self._got:
            self._most = 1  # what is settled when it leaves the keeper must not be lost on the way
            return
        spent = max(self._seconds_since(self._asked_at), 1e-6)
        self._most = max(1, min(2 * self._most, round(self._got * PACE / spent), AT_ONCE))

    def _tell(self) -> None:
        """Say what is settled, before leases are over, without waiting."""
        settled, self._settled = self._settled, []
        self._told_at = self._way.clock.monotonic_ns()
        self._way.ask_later("group.take", Take(self._desk.number, 0, settled), lambda _: None)

    def _insist(self, spot: Spot, delay: float | None) -> bool | None:
        """Tell the keeper of one event; wait for one that is away, for a while."""
        for _ in range(2):
            number = self._desk.number
            answer = self._way.ask("group.settle", Settle(number, spot, delay), True)
            done: bool | None = m.decoded(_settled, answer, self._way.channel)
            if done is not None or self._left:
                return done
            self._sit_down_again(number)
        return False

    def _sit_down_again(self, number: int) -> None:
        """The keeper does not know this member, because it was away; what nobody has seen comes anew."""
        with self._joining:
            if self._desk.number == number and not self._left:
                self._taken = deque()
                self._desk.join(patient=False)

    def _look_in(self, seconds: float) -> None:
        self._look_at = self._way.clock.monotonic_ns() + round(seconds * 1e9)

    def _seconds_since(self, instant: int) -> float:
        return (self._way.clock.monotonic_ns() - instant) / 1e9


def _wants(selection: Selection) -> list[m.Want]:
    tree = None if selection.tree is None else to_data(selection.tree.tree)
    sources = None if selection.sources is None else tuple(sorted(selection.sources))
    infos = [info_of(cls) for cls in selection.conditions]
    return [m.Want(info.name, info.format.id, tree, sources) for info in infos]
