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
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from heliograph.channel.ack_protocol import (
    MAX_REASON,
    Acking,
    AckOptions,
    Handed,
    JoinRequest,
    Spot,
    SpotNumbers,
    spot_of,
)
from heliograph.channel.selection import NOW
from heliograph.errors import QueryFailed
from heliograph.links.history.pages import Page, PageReader
from heliograph.links.interest.filter_wire import to_data
from heliograph.links.session import messages as m
from heliograph.model.event import Count, Name, info_of
from heliograph.model.history_epochs import ID_BYTES
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.channel.selection import Selection
    from heliograph.errors import HeliographError
    from heliograph.links.session.rpc import Outcome
    from heliograph.model.event import Event, Header
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

SpotData: TypeAlias = tuple[Name, Count]
"""The partition and offset of an event. Its epoch is in a list of its own, behind all that earlier versions
know: they leave out what they do not know at the end of a message, and nothing else."""
EpochId: TypeAlias = Annotated[bytes, Meta(max_length=ID_BYTES)]


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
    settled: list[SpotData]
    withdrawn: list[SpotData] = []
    """Acknowledged without an answer in time: the member was told that this failed, so it comes again."""
    asked: Count = 0
    """Counts the questions of one seat that want events."""
    heard: Count = 0
    """The last of them whose answer came: what another answer handed out, the member has never seen."""
    epochs: list[EpochId] = []
    """Of all that is settled, then of all that is withdrawn."""


class Handout(msgspec.Struct, array_like=True):
    """What a member gets, and which attempt it is; None when it has no seat, because the keeper was away."""

    page: Page
    attempts: list[tuple[SpotData, int]] = []
    due: float | None = None
    """Seconds after which to ask again, though no bell rang."""
    ended: bool = False
    failure: str | None = None
    """Why there is nothing to be had any more."""
    epochs: list[EpochId] = []
    """Of each event in `attempts`."""


class Settle(msgspec.Struct, array_like=True):
    """An event is acknowledged; with a delay it is refused, below 0 for ever; or its lease is extended."""

    number: Count
    spot: SpotData
    delay: float | None = None
    epoch: EpochId = b""
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    extend: float | None = None


class Leave(msgspec.Struct, array_like=True):
    number: Count
    settled: list[SpotData]
    unseen: list[SpotData]
    withdrawn: list[SpotData] = []
    epochs: list[EpochId] = []
    """Of all that is settled, then of all that is unseen, then of all that is withdrawn."""


read_join: Final = msgspec.msgpack.Decoder(Join).decode
_terms: Final = msgspec.msgpack.Decoder(AckOptions).decode
read_take: Final = msgspec.msgpack.Decoder(Take).decode
_handout: Final = msgspec.msgpack.Decoder(Handout | None).decode
read_settle: Final = msgspec.msgpack.Decoder(Settle).decode
_settled: Final = msgspec.msgpack.Decoder(bool | None).decode
read_leave: Final = msgspec.msgpack.Decoder(Leave).decode
read_number: Final = msgspec.msgpack.Decoder(int).decode


_seat_numbers: Final = count(1)


def to_wire(*lists: Sequence[Spot]) -> tuple[list[list[SpotData]], list[bytes]]:
    """Lists of spots as a message has them, and the epochs of all of them."""
    epochs = [spot.epoch for spots in lists for spot in spots]
    return [[spot[:2] for spot in spots] for spots in lists], epochs


def from_wire(epochs: list[bytes], *lists: list[SpotData]) -> list[list[Spot]]:
    """The other way round. A station that knows of no epochs says none."""
    of_each = chain(epochs, repeat(b""))
    return [[Spot(*spot, next(of_each)) for spot in spots] for spots in lists]


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
    `heliograph.channel.ack_protocol.CoordinatorPort`."""

    def __init__(self, way: Way, wish: JoinRequest, selection: Selection, acking: Acking) -> None:
        """Sit down at the keeper's desk; NotPossible with its reason when it refuses."""
        assert selection.group is not None
        self._way = way
        self._member = wish.member
        self.numbers = SpotNumbers()
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

    def number_of(self, spot: Spot) -> int:
        """Of this member alone. Whether there still is such an event, the keeper finds when it is told."""
        return self.numbers.number_of(spot)

    def ready(self, queue: object) -> None:
        """The keeper's queue tells the keeper's desk."""

    def members(self) -> tuple[str, ...]:
        return (self._member,)

    def close(self) -> None:
        """It is the keeper's; a member leaves by its seat."""


class RemoteMembership:
    """A member's place at the keeper's desk; see `heliograph.channel.ack_protocol.GroupMembership`.

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
        spot = self._desk.numbers.spot_of(number)
        try:
            settled = self._insist(spot, None)
        except BaseException:
            self.withdraw(number)  # the keeper may have it, or may read it when it goes on
            raise
        with suppress(ValueError):
            self._withdrawn.remove(spot)
        return settled

    def withdraw(self, number: int) -> None:
        self._withdrawn.append(self._desk.numbers.spot_of(number))

    def extend(self, number: int, seconds: float) -> bool:
        try:
            return self._insist(self._desk.numbers.spot_of(number), None, extend=seconds)
        except QueryFailed:
            return False  # who keeps it is away, and its lease ends as it would

    def nak(self, number: int, delay: float, reason: str = "") -> None:
        try:
            self._insist(self._desk.numbers.spot_of(number), delay, reason)
        except QueryFailed:
            log.warning("%s: refused while the keeper is away; it comes again", self._way.channel)

    def settle(self, number: int) -> None:
        self._settled.append(self._desk.numbers.spot_of(number))

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
        unseen = [*(spot_of(handed) for handed, _ in self._taken), *self._unread]
        (settled, unseen_, withdrawn), epochs = to_wire(self._settled, unseen, self._withdrawn)
        return Leave(self._desk.number, settled, unseen_, withdrawn, epochs)

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
        (done, undone), epochs = to_wire(settled, withdrawn)
        take = Take(self._desk.number, self._most, done, undone, self._asked, self._heard, epochs)
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
        (spots,) = from_wire(handout.epochs, [spot for spot, _ in handout.attempts])
        by_place = {spot[:2]: spot for spot in spots}
        if refused:
            bad = by_place.get(_place(refused[0].header))
            first = 0 if bad is None else spots.index(bad)
            self._failure, self._unread = refused[0].error, spots[first:]
            items = [item for item in items if by_place.get(_place(item[1])) in spots[:first]]
        lease = self._desk.terms.lease
        until = self._asked_at + (round(lease * 1e9) if lease is not None else 1 << 62)
        attempts = dict(handout.attempts)
        for event, header, deadline in items:
            place = _place(header)
            spot = by_place.get(place) or Spot(*place)
            handed = Handed(
                self._desk.number_of(spot), event, header, attempts.get(place, 1), epoch=spot.epoch
            )
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
        (said,), epochs = to_wire(settled)
        take = Take(self._desk.number, 0, said, epochs=epochs)
        self._way.ask_later("group.take", take, lambda _: None)

    def _insist(
        self, spot: Spot, delay: float | None, reason: str = "", *, extend: float | None = None
    ) -> bool:
        """Tell the keeper of one event, and wait for one that is away, for a while; False: it was settled."""
        asked_at = self._way.clock.monotonic_ns()
        try:
            settle = Settle(self._desk.number, spot[:2], delay, spot.epoch, reason, extend)
            answer = self._way.ask("group.settle", settle, True)
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


def _place(header: Header) -> SpotData:
    assert header.partition is not None
    assert header.offset is not None
    return header.partition, header.offset


def _wants(selection: Selection) -> list[m.Want]:
    tree = None if selection.tree is None else to_data(selection.tree.tree)
    sources = None if selection.sources is None else tuple(sorted(selection.sources))
    infos = [info_of(cls) for cls in selection.conditions]
    return [m.Want(info.name, info.format.id, tree, sources) for info in infos]
