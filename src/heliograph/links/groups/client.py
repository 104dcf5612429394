"""The client of a group whose coordinator is in another station.

`RemoteCoordinator` is what such a member has in place of a desk. Its seat asks for events, some at a time,
and tells what is settled. An event is in one member's hands at a time, wherever that is: leases, delays,
`max_in_flight` and order by key are kept by the one desk. A member whose desk does not know it any more, or
was away for `HOST_LIMIT` seconds, has lost its seat and looks for another
(`heliograph.channel.receive.coordinator_failover`).
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from heliograph.channel.history.positions import NOW
from heliograph.channel.receive.ack_protocol import (
    Acking,
    AckOptions,
    Handed,
    JoinRequest,
    numbered,
    place_of,
    stream_of,
)
from heliograph.errors import QueryFailed
from heliograph.links.history.pages import Page, PageReader
from heliograph.links.interest.filters import to_data
from heliograph.links.session import messages as m
from heliograph.model.event import Count, Name, info_of
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.receive.options import Selection
    from heliograph.errors import HeliographError
    from heliograph.links.session.rpc import Outcome
    from heliograph.model.event import Event
    from heliograph.qos.policies import Missing
    from heliograph.runtime.ports import Clock, Tasks

log = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Events that a member takes from the keeper at a time, at most."""
PACE: Final = 0.05
"""Seconds of its own work that a member takes at a time: what it has not begun, nobody else can do."""
AWAY: Final = 0.25
"""Seconds between two looks for a keeper that is away."""
HOST_LIMIT: Final = 2.0
"""Seconds after which a member leaves a desk whose keeper is away, and looks for another one."""


Spot: TypeAlias = tuple[Name, Count]
"""Names an event by its partition and offset, which outlive the desk that hands it out."""
spot_of: Final[Callable[[Any], Spot]] = attrgetter("partition", "offset")


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
    known: list[Name] = []
    """Partitions within its reach: without all of these the group is not opened."""


class Take(msgspec.Struct, array_like=True):
    number: Count
    most: Annotated[int, Meta(ge=0, le=AT_ONCE)]
    """0: nothing, it only tells what is settled."""
    settled: list[Spot]
    withdrawn: list[Spot] = []
    """Acknowledged without an answer in time: the member was told that this failed, so it comes again."""
    asked: Count = 0
    """Counts the questions of one seat that want events."""
    heard: Count = 0
    """The last of them whose answer came: what another answer handed out, the member has never seen."""


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
    withdrawn: list[Spot] = []


read_join: Final = msgspec.msgpack.Decoder(Join).decode
_terms: Final = msgspec.msgpack.Decoder(AckOptions).decode
read_take: Final = msgspec.msgpack.Decoder(Take).decode
_handout: Final = msgspec.msgpack.Decoder(Handout | None).decode
read_settle: Final = msgspec.msgpack.Decoder(Settle).decode
_settled: Final = msgspec.msgpack.Decoder(bool | None).decode
read_leave: Final = msgspec.msgpack.Decoder(Leave).decode
read_number: Final = msgspec.msgpack.Decoder(int).decode


_seat_numbers: Final = count(1)


class Way(NamedTuple):
    """How a member reaches the station that keeps its channel: what `heliograph.links.history.server` knows
    of it."""

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


class RemoteCoordinator:
    """The desk of a group in another station, for one member; see
    `heliograph.channel.receive.ack_protocol.Coordinator`."""

    def __init__(self, way: Way, wish: JoinRequest, selection: Selection, acking: Acking) -> None:
        """Sit down at the keeper's desk; NotPossible with its reason when it refuses."""
        assert selection.group is not None
        self._way = way
        self._member = wish.member
        self._partitions: list[str] = []
        self.number, chosen = next(_seat_numbers), selection
        ask = Join(
            self.number,
            self._way.channel,
            selection.group,
            wish.member,
            _wants(chosen),
            chosen.all_types,
            chosen.priority,
            chosen.span.begins,
            chosen.span.ends,
            chosen.span.start in NOW,
            chosen.span.start if isinstance(chosen.span.start, datetime) else None,
            wish.raises_gaps,
            dict(acking),  # type: ignore[arg-type]  # plain values
            list(wish.known),
        )
        try:
            answer = self._way.ask("group.join", ask, wish.patient)
        except QueryFailed:
            # It may be read all the same, by a station that hangs: nobody would ever ask from that seat.
            self._way.ask_later("group.leave", Leave(self.number, [], []), lambda _: None)
            raise
        self.terms: AckOptions = m.decoded(_terms, answer, self._way.channel)

    def sit(self, member: str, ring: Callable[[], object]) -> RemoteMembership:  # noqa: ARG002 - named when it joined
        return RemoteMembership(self, self._way, ring)

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


class RemoteMembership:
    """A member's place at the keeper's desk; see `heliograph.channel.receive.ack_protocol.GroupMembership`.

    Only one thread takes at a time; any may acknowledge.
    """

    def __init__(self, desk: RemoteCoordinator, way: Way, ring: Callable[[], object]) -> None:
        self._desk = desk
        self._way = way
        self._ring = ring
        self._reader = PageReader(way.channel, way.clock, way.missing)
        self._taken: deque[tuple[Handed, int]] = deque()
        """What nobody has seen yet, and until when it is this member's."""
        self._settled: list[Spot] = []
        self._withdrawn: list[Spot] = []
        self._most = 1
        self._asked = self._heard = 0
        """Questions for events so far, and the last one that was answered."""
        self._asked_at = 0
        self._told_at = 0
        self._got = 0
        self._is_waiting = False
        self._look_at: int | None = None
        self._ended = False
        self._left = False
        self._is_forgotten = False
        self._away_since: int | None = None
        self._failure: HeliographError | None = None
        """Why it leaves when all before that is taken: an event that this station cannot read."""
        self._unread: list[Spot] = []
        """That event and those behind it, which go to other members."""

    @property
    def lost(self) -> bool:
        return self._is_forgotten or (
            self._away_since is not None and self._seconds_since(self._away_since) > HOST_LIMIT
        )

    def unsent(self) -> list[Spot]:
        return self._settled

    def withdrawn(self) -> list[Spot]:
        return self._withdrawn

    def take(self, most: int = 1) -> list[Handed]:
        handed = self._next(most)
        if not handed and self._failure is not None:
            self.leave()
            raise self._failure
        if not handed and self._should_ask():
            self._fetch()
            handed = self._next(most)
            if not handed and self._failure is not None:
                self.leave()
                raise self._failure
        elif self._settled and self._seconds_since(self._told_at) > PACE:
            self._tell()
        return handed

    def ack(self, number: int) -> bool:
        spot = self._desk.spot_of(number)
        try:
            settled = self._insist(spot, None)
        except BaseException:
            self.withdraw(number)  # the keeper may have it, or may read it when it goes on
            raise
        with suppress(ValueError):
            self._withdrawn.remove(spot)
        return settled

    def withdraw(self, number: int) -> None:
        self._withdrawn.append(self._desk.spot_of(number))

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
        with suppress(QueryFailed):  # a keeper that is away has let go of it
            self._way.ask("group.leave", self._leaving(), False)

    def leave_behind(self) -> None:
        if self._left:
            return
        self._left = True
        # Not waited for: its keeper may hang, and would keep the seat when it goes on.
        self._way.ask_later("group.leave", self._leaving(), lambda _: None)

    # Inside

    def _leaving(self) -> Leave:
        unseen = [*(spot_of(handed.header) for handed, _ in self._taken), *self._unread]
        return Leave(self._desk.number, self._settled, unseen, self._withdrawn)

    def _next(self, most: int) -> list[Handed]:
        """From what has been fetched; what was left too long is somebody else's by now."""
        now = self._way.clock.monotonic_ns()
        handed: list[Handed] = []
        while self._taken and len(handed) < most:
            one, until = self._taken.popleft()
            if now < until:
                handed.append(one)
        return handed

    def _should_ask(self) -> bool:
        """Not while the keeper has said that it will ring."""
        if not self._is_waiting or self._settled or self._withdrawn:
            return True
        return self._look_at is not None and self._way.clock.monotonic_ns() >= self._look_at

    def _fetch(self) -> None:
        self._find_pace()
        settled, withdrawn = list(self._settled), list(self._withdrawn)
        self._asked_at = self._told_at = self._way.clock.monotonic_ns()
        self._asked += 1
        take = Take(self._desk.number, self._most, settled, withdrawn, self._asked, self._heard)
        try:
            answer = self._way.ask("group.take", take, False)
            handout: Handout | None = m.decoded(_handout, answer, self._way.channel)
        except QueryFailed:
            self._away_since = self._away_since or self._asked_at
            self._look_in(AWAY)
            return
        self._away_since, self._heard = None, self._asked
        if handout is None:
            self._is_forgotten = True
            self._look_in(AWAY)
            return
        del self._settled[: len(settled)]
        self._withdrawn = [spot for spot in self._withdrawn if spot not in withdrawn]
        self._use(handout)

    def _use(self, handout: Handout) -> None:
        if handout.failure is not None:
            raise QueryFailed(f"the keeper of {self._way.channel!r}", handout.failure)
        items, refused = self._reader.read(handout.page, self._way.types(), self._way.channel)
        if refused:
            spots = [spot for spot, _ in handout.attempts]
            bad = spot_of(refused[0].header)
            first = spots.index(bad) if bad in spots else 0
            self._failure, self._unread = refused[0].error, spots[first:]
            items = [item for item in items if spot_of(item[1]) in spots[:first]]
        lease = self._desk.terms.lease
        until = self._asked_at + (round(lease * 1e9) if lease is not None else 1 << 62)
        attempts = dict(handout.attempts)
        for event, header, deadline in items:
            spot = spot_of(header)
            handed = Handed(self._desk.number_of(*spot), event, header, attempts.get(spot, 1))
            # The keeper counts what nobody acknowledges: it has expired when its lease is over.
            self._taken.append((handed, min(until, deadline or until)))
        self._got = len(items)
        self._ended = handout.ended
        if items or refused:
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

    def _insist(self, spot: Spot, delay: float | None) -> bool:
        """Tell the keeper of one event, and wait for one that is away, for a while; False: it was settled."""
        asked_at = self._way.clock.monotonic_ns()
        try:
            answer = self._way.ask("group.settle", Settle(self._desk.number, spot, delay), True)
        except QueryFailed:
            self._away_since = self._away_since or asked_at
            raise
        done: bool | None = m.decoded(_settled, answer, self._way.channel)
        self._is_forgotten = self._is_forgotten or done is None
        return bool(done)

    def _look_in(self, seconds: float) -> None:
        self._look_at = self._way.clock.monotonic_ns() + round(seconds * 1e9)

    def _seconds_since(self, instant: int) -> float:
        return (self._way.clock.monotonic_ns() - instant) / 1e9


def _wants(selection: Selection) -> list[m.Want]:
    tree = None if selection.tree is None else to_data(selection.tree.tree)
    sources = None if selection.sources is None else tuple(sorted(selection.sources))
    infos = [info_of(cls) for cls in selection.conditions]
    return [m.Want(info.name, info.format.id, tree, sources) for info in infos]
