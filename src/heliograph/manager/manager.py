"""The channel manager: channels with an owner and participants, in the station that keeps their folder.

    manager = station.manager
    wing = manager.create("project.wing", Drawing, owner="anna")
    manager.join("project.wing", "bert", access="consume").subscribe(on_drawing)
    manager.suspend("project.wing", by="anna")

It asks the roster whether something may be, keeps the record that comes out of it in `_helio.activity`, and
only when that is synced does what the record says. Opened on a folder that has such a log, it reads it whole
and has channels, owners, suspensions and members as they were. So it does again after a call that was cut
off, by Ctrl-C for one, while its record was under way.

The log is compacted by itself, in steps any of which may be the last before a crash:

1. what there is is sealed, so that it is in files of its own;
2. one record with the whole roster is synced: from now on the records before it say nothing that it does not;
3. the files of before are dropped, whole. Where that did not come about, the next compaction drops them.

Lock order: that of destroying, the manager's, then the station's and those of channels. Whoever opens a
channel under the station's lock asks for its suspension without the manager's.
"""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from heliograph.channel.history.memory import meets
from heliograph.channel.names import check_channel, pattern_regex
from heliograph.channel.selection import check_name
from heliograph.delivery.records import RESERVED
from heliograph.errors import (
    BadJournalFile,
    Closed,
    CursorHeld,
    DiskError,
    EventChannelNotFound,
    EventsUnderWay,
    HeliographError,
    HistoryDamaged,
    NameAlreadyUsed,
    NotAMember,
    NotPossible,
    Suspended,
)
from heliograph.errors.sentences import listed
from heliograph.journal.format.channel_config import sync_name
from heliograph.journal.names import ACTIVITY, GROUP_PLACE
from heliograph.journal.store import READ_ROWS, JournalStore
from heliograph.manager.fence import ManagerFence
from heliograph.manager.member import Member, insist_on_access
from heliograph.manager.open_ends import OpenEnds, close_end
from heliograph.manager.roster import Activity, EventRecord, Roster
from heliograph.model.event import Event
from heliograph.qos.policies import QoS
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.members_only import Admission
    from heliograph.channel.registry import Access
    from heliograph.manager.roster import Managed, Membership
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

MAX_ABOUT: Final = 1_000
"""Characters of a channel's description, and of a name with its value among its attributes."""
COMPACT_RECORDS: Final = 1_000
"""Records after which the log is compacted, or twice as many as there are members, if that is more."""
MAX_ATTRIBUTES: Final = 64
"""Attributes of a channel."""

WITH_STATE: Final = frozenset({"left", "suspended", "transferred", "destroyed"})
"""Kinds of records that say how far members had acknowledged."""

T = TypeVar("T", bound=Event)
E = TypeVar("E")


class OpenChannel(Protocol):
    """`Station.channel`."""

    def __call__(self, name: str, *types: type[T], qos: QoS | None = ...) -> Channel[T]: ...


class NoteSuspension(Protocol):
    """`Keeping.note_suspension`."""

    def __call__(self, channel: str, owner: str | None, *, anew: bool) -> None: ...


class NoteMembersOnly(Protocol):
    """`Keeping.note_members_only`."""

    def __call__(self, channel: str, *, members_only: bool) -> None: ...


class Manager:
    """See the module; made by `station.manager`.

    Args:
        ports: of the station.
        open_channel: opens a channel of that station, or takes the one that is open.
        opened: the channel of that name, if it is open.
        check_usable: raises when the station is closed, or is another process's.
        note_suspension: has it known where batches from outside are taken in.
        note_members_only: likewise.
    """

    def __init__(
        self,
        ports: Ports,
        open_channel: OpenChannel,
        opened: Callable[[str], Channel[Any] | None],
        check_usable: Callable[[], None],
        *,
        note_suspension: NoteSuspension,
        note_members_only: NoteMembersOnly,
    ) -> None:
        self._ports = ports
        self._write_note = note_suspension
        self._note_members_only = note_members_only
        self._check_usable = check_usable
        self._open_channel = open_channel
        self._opened = opened
        # Outer ones: a record is synced by another task, however long that takes, while they are held.
        self._lock = ports.tasks.lock("manager", outer=True)
        self._ending = ports.tasks.lock("destroying", outer=True)
        """Held while a history is looked at: it is not closed meanwhile."""
        self._activity = open_channel(ACTIVITY, Activity, qos=QoS(durability="persistent"))
        if self._activity.qos.ack_level != "synced":
            level = self._activity.qos.ack_level
            raise NotPossible(
                ACTIVITY, f"is configured with ack={level!r}: who is in a channel must be synced"
            )
        assert ports.disk is not None
        self._roster = self._folded()
        self._fence = ManagerFence(ports.disk, ports.random, self._roster.term)
        self._unsettled = False
        """Whether a call was cut off, so that its record may be in the log and not in the roster."""
        self._types: dict[str, tuple[type[Any], ...]] = {}
        """Event classes that this program gave."""
        self._ends: OpenEnds[int] = OpenEnds()
        """What members have open, by the number of their membership."""
        self._leases: dict[int, int] = {}
        """Until when members with a lease are there, by the number of their membership."""
        self._is_compacting = False
        self._transfers = count(self._ports.clock.time_ns())
        self._unnoted: set[str] = set()
        """Channels beside which something else may be noted than the log says."""
        for managed in self._roster.channels():
            self._note_suspension(managed.name)  # a crash may have come between a record and that

    # Channels

    @names_options
    def create(
        self,
        name: str,
        *types: type[T],
        owner: str,
        access: Access = "both",
        qos: QoS | None = None,
        lease: float = 0.0,
        description: str = "",
        attributes: Mapping[str, str] | None = None,
        members_only: bool = False,
    ) -> Channel[T]:
        """A new persistent channel; its owner is its first member. NameAlreadyUsed when there is one.

        Args:
            name: as in `station.channel`.
            *types: event classes that it carries.
            owner: the user that may suspend, restart, transfer and destroy it.
            access: of the owner: "consume", "supply" or "both".
            qos: with durability="persistent", which is what it has when nothing is said.
            lease: seconds after which the owner is gone, unless it is heard of (`renew`): another member
                owns the channel then, or, without one, it is destroyed and its events kept; 0: it is not.
            description: what it is about, for `search`.
            attributes: likewise, a map of texts.
            members_only: whether linked stations may push and consume in it as members only.
        """
        check_channel(name, types, qos, None, access)
        _check_user(name, owner)
        _check_lease(name, lease)
        about = _checked_about(name, description, attributes, members_only)
        if name.startswith(RESERVED):
            raise NotPossible(name, f"names that begin with {RESERVED!r} are for channels about channels")
        qos = qos or QoS(durability="persistent")
        if not qos.journalled:
            raise NotPossible(name, "a channel with members is kept: qos=hg.QoS(durability='persistent')")
        with self._working():
            self._roster.check_free(name)
            if self._opened(name) is not None:
                raise NameAlreadyUsed(name)
            channel: Channel[T] = self._open_channel(name, *types, qos=qos)
            assert self._ports.disk is not None
            try:
                _store_of(channel).settle()  # before the record: it is to be opened as it is now
                sync_name(self._ports.disk, name)
                self._begin(channel, owner, access, lease, about)
            except BaseException:
                channel.close(0.0)
                raise
            self._types[name] = types
            self.meet(channel)
        return channel

    def find(self, name: str, *types: type[T]) -> Channel[T]:
        """The channel of that name; EventChannelNotFound when the manager has none.

        Args:
            name: of the channel.
            *types: its event classes; needed once in each life of a station, to open it.
        """
        with self._working():
            self._roster.find(name)
            return self._open(name, *types)

    def channels(self, pattern: str = "**") -> tuple[Managed, ...]:
        """Those whose name fits, with owner and members; patterns are as in `station.subscribe`."""
        fits = re.compile(pattern_regex(pattern)).fullmatch
        return tuple(found for found in self._known().channels() if fits(found.name))

    @names_options
    def search(
        self,
        pattern: str = "**",
        *,
        type: str | None = None,  # noqa: A002 - a type is what it names
        text: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> tuple[Managed, ...]:
        """The channels whose name fits, with an event type, a text in their description, and attributes.

        Args:
            pattern: of names, as in `channels`.
            type: the name of an event type.
            text: is looked for in the description, in any case of letters.
            attributes: all of them have these values.
        """
        wanted = dict(attributes or {}).items()
        return tuple(
            found
            for found in self.channels(pattern)
            if (type is None or type in found.types)
            and (text is None or text.casefold() in found.description.casefold())
            and wanted <= found.attributes.items()
        )

    def find_managed(self, name: str) -> Managed:
        """Owner, members and suspension of a channel; EventChannelNotFound when the manager has none."""
        return self._known().find(name)

    # Members

    @names_options
    def join(
        self,
        name: str,
        user: str,
        *,
        access: Access = "both",
        history: bool = False,
        where: str | None = None,
        lease: float = 0.0,
    ) -> Member:
        """Make a user a participant, from here on.

        Args:
            name: of the channel.
            user: its name; also the name of its supplier.
            access: "consume", "supply" or "both".
            history: whether it gets what was pushed before, first.
            where: the filter of what it consumes, as text: it is recorded.
            lease: seconds after which it leaves by itself, unless it is heard of (`renew`); 0: it does not.
        """
        _check_user(name, user)
        _check_lease(name, lease)
        if where is not None and type(where) is not str:
            raise NotPossible(name, f"where={where!r:.60}: a member's filter is recorded, so it is text")
        if type(history) is not bool:
            raise NotPossible(name, f"history={history!r:.60}: True or False")
        with self._working():
            begins = self._roster.find(name).begins
            channel: Channel[Any] = self._open(name)
            if where is not None:
                channel.select(where=where, params={})  # refused before anything is recorded
            if not history:
                begins = _store_of(channel).watermark
            record = self._roster.joining(name, user, self._now(), access=access, where=where, begins=begins)
            record.lease = lease
            self._keep(record)
            self.renew(name, user)
            _begin_place(_store_of(channel), self._roster.find(name).member(user))
        return Member(self, name, user)

    def member(self, name: str, user: str) -> Member:
        """A participant; NotAMember when the user has not joined, or has left."""
        self.find_managed(name).member(user)
        return Member(self, name, user)

    def leave(self, name: str, user: str) -> None:
        """See `Member.leave`."""
        with self._working():
            record = self._roster.leaving(name, user, self._now())
            left = self._roster.find(name).member(user)
            self._keep(record)
        self._let_go(name, left)

    def renew(self, name: str, user: str) -> None:
        """A member with a lease has been heard of; NotAMember when it has left."""
        member = self._roster.find(name).member(user)
        if member.lease:
            self._leases[member.number] = self._ports.clock.monotonic_ns() + round(member.lease * 1e9)

    @property
    def partition(self) -> str:
        """The partition that this station keeps of each of its channels."""
        return _store_of(self._activity).partition

    @property
    def term(self) -> int:
        """Counts the managers that this folder has had: one that was succeeded records nothing any more."""
        return self._fence.term

    def check_term(self, later: int = 0) -> None:
        """ManagerFenced when a later manager has begun on this folder, as somebody may have heard."""
        self._fence.hear(later)
        self._fence.check()

    @property
    def has_leases(self) -> bool:
        """Whether some members leave by themselves when they are not heard of."""
        return any(one.lease for found in self._roster.channels() for one in found.members.values())

    def sweep(self) -> list[str]:
        """Have members leave whose lease is over, and see to channels whose owner is gone; what was done.

        Members that were there when the station began have a lease from then on.
        """
        done: list[str] = []
        for managed in self._known().channels():
            for user in managed.others():
                if self._is_over(managed.members[user]):
                    with suppress(NotAMember, NotPossible, EventChannelNotFound):
                        self.leave(managed.name, user)
                        done.append(f"{user!r} has left {managed.name}")
            if self._is_over(managed.members[managed.owner]):
                done.append(self._see_to_orphan(managed.name))
        return done

    def _is_over(self, member: Membership) -> bool:
        if not member.lease:
            return False
        now = self._ports.clock.monotonic_ns()
        return now >= self._leases.setdefault(member.number, now + round(member.lease * 1e9))

    def _see_to_orphan(self, name: str) -> str:
        """The owner is gone: another member takes over, or the channel is destroyed and its events kept."""
        with self._working():
            managed = self._roster.find(name)
            living = [user for user in managed.others() if not self._is_over(managed.members[user])]
            heir = living[self._ports.random.below(len(living))] if living else None
            channel = None if heir is not None else self._opened(name)
            if managed.suspended:
                self._unnoted.add(name)
            self._keep(self._roster.orphaned(name, self._now(), heir))
            if heir is not None:
                self._keep(self._roster.leaving(name, managed.owner, self._now()))
            self._note_suspension(name)
        for member in managed.members.values() if heir is None else (managed.members[managed.owner],):
            self._let_go(name, member)
        if channel is not None:
            close_end(channel)
        if heir is None:
            return f"{name} is destroyed, for its owner {managed.owner!r} is gone; its events are kept"
        return f"{name} is {heir!r}'s, for its owner {managed.owner!r} is gone"

    @names_options
    def transfer_event(self, source: str, to: str, offset: int, *, by: str) -> bool:
        """Push an event of one channel into another, once however often it is asked for.

        Args:
            source: the channel that it is in.
            to: the channel that it is pushed into; it carries the event's type.
            offset: of the event in the source's history (`header.offset`).
            by: a member of both, that may consume there and supply here.
        """
        if type(offset) is not int or offset < 0:
            raise NotPossible(source, f"offset={offset!r:.60}: of an event in its history")
        with self._working():
            for name, needs in ((source, "consumes"), (to, "supplies")):
                if not getattr(self._roster.find(name).member(by), needs):
                    raise NotPossible(
                        name, f"{by!r} joined with another access: it has to be one that {needs}"
                    )
            origin: Channel[Any] = self._open(source)
            target: Channel[Any] = self._open(to)
        items, _ = _store_of(origin).read(offset, 1)
        if not items or items[0][1].offset != offset:
            raise NotPossible(source, f"has no event at offset {offset}")
        event, header, _ = items[0]
        with target.managers_supplier(f"{self.partition}-transfer-{next(self._transfers)}") as supplier:
            supplier.push(
                event,
                id=f"transfer:{header.id}",
                priority=header.priority,
                source_ts=header.source_ts,
                correlation_id=header.correlation_id,
                headers={"transferred.from": source, "transferred.by": by},
            )
        return True

    @names_options
    def event_records(self, name: str, *, start: int = 0, most: int = 1_000) -> list[EventRecord]:
        """Events of a channel's history here, each with who of those it is for has acknowledged it.

        Args:
            name: of the channel.
            start: the first offset to look at.
            most: so many at most.
        """
        with self._working():
            managed = self._roster.find(name)
            channel: Channel[Any] = self._open(name)
        store = _store_of(channel)
        items, _ = store.read(max(start, store.earliest, managed.begins), most)
        members = [
            (one.user, one.begins, channel.select(where=one.where).conditions, *_settled(store, one))
            for one in managed.members.values()
            if one.consumes
        ]
        found = []
        for event, header, _ in items:
            offset = header.offset or 0
            state = {
                user: offset < low or offset in acks
                for user, begins, conditions, low, acks in members
                if offset >= begins and meets(conditions, (event, header, 0))
            }
            at_ns = header.append_ts or 0
            found.append(EventRecord(header.supplier, name, event, state, at_ns, offset))
        return found

    def compact(self) -> int:
        """Compact the log of activity, now; the offset at which it begins then. See the module."""
        store = _store_of(self._activity)
        store.seal()  # most of it, while others go on
        with self._working():
            store.seal()
            record = self._roster.compacting(self._now(), self._may_have_cursor)
            self._keep(record)
            self._compacted = store.watermark - 1
        return store.purge(self._compacted)

    def _may_have_cursor(self, name: str, group: str) -> bool:
        channel = self._opened(name)
        return channel is None or GROUP_PLACE + group in _store_of(channel).consumers()

    def _compact_if_due(self) -> None:
        """Under the lock: have the log compacted soon, once it is long for what it says."""
        records = _store_of(self._activity).watermark - self._compacted
        members = sum(len(managed.members) for managed in self._roster.channels())
        if self._is_compacting or records <= max(COMPACT_RECORDS, 2 * members):
            return
        self._is_compacting = True
        self._ports.tasks.spawn_soon("log of activity", self._compact_now)

    def _compact_now(self) -> None:
        try:
            self.compact()
        except Closed:
            pass  # the next life does it
        except HeliographError as error:
            log.warning("the log of activity is not compacted yet: %s", error)
        finally:
            self._is_compacting = False

    # What the owner may ask for

    @names_options
    def suspend(self, name: str, *, by: str) -> None:
        """Nothing is taken in until it is restarted, by whatever way; what is kept is still delivered."""
        with self._working():
            record = self._roster.suspending(name, by, self._now())
            # Noted before it is recorded: what is recorded holds for batches from outside from then on.
            self._unnoted.add(name)
            try:
                self._write_note(name, by, anew=True)
                self._keep(record)
            except HeliographError:
                self._note_suspension(name)  # that it is not
                raise
            self._unnoted.discard(name)
            self._meet_open(name)

    @names_options
    def restart(self, name: str, *, by: str) -> None:
        """Let a suspended channel go on."""
        with self._working():
            record = self._roster.restarting(name, by, self._now())
            self._unnoted.add(name)
            self._keep(record)
            self._note_suspension(name)
            self._meet_open(name)

    @names_options
    def transfer(self, name: str, *, by: str, to: str | None = None) -> str:
        """Give a channel another owner: the named participant, or a random one; returns its name."""
        with self._working():
            managed = self._roster.find(name)
            managed.owned_by(by, "transfer")
            others = managed.others()
            if not others:
                raise NotPossible(name, "has no other member to own it: have one join, or destroy it")
            new = others[self._ports.random.below(len(others))] if to is None else to
            record = self._roster.transferring(name, by, new, self._now())
            if managed.suspended:
                self._unnoted.add(name)
            self._keep(record)
            self._note_suspension(name)
        return new

    @names_options
    def destroy(self, name: str, *, by: str) -> None:
        """End a channel; EventsUnderWay while a member has not acknowledged all that is for it, or something
        is to be delivered later.

        Its events stay in the folder, as its log of activity does, and the name is free.
        """
        self._known()  # what is settled now may wait for functions, which may destroy something
        with self._ending:
            managed, channel = self._end(name, by)
        for member in managed.members.values():
            self._let_go(name, member)
        close_end(channel)

    # For members and the station

    def open_end(
        self,
        member: Member,
        needs: Literal["consumes", "supplies"],
        opening: Callable[[Channel[Any], dict[str, Any]], E],
    ) -> E:
        """Open something for a member whose access allows it; it is closed when the member leaves."""
        with self._working():
            membership = member.membership
            insist_on_access(member, membership, needs)
            channel: Channel[Any] = self._open(member.channel)
            end = opening(channel, membership.place(_store_of(channel).partition))
            self._ends.add(membership.number, end)
            return end

    def meet(self, channel: Channel[Any]) -> None:
        """A channel is opened, or something about it has changed: it is suspended if it is to be.

        Retention is told of its members, and not to wait for others who were: a crash may have come between
        a record and that, and who leaves a channel that is not open can be forgotten only now.
        """
        managed = self._roster.get(channel.name)
        if managed is None and channel.suspended_by("") is not None:
            self._note_suspension(channel.name)  # its record is lost, and no owner could restart it
        if managed is not None or channel.suspended_by("") is not None:
            channel.suspend(partial(self._reason, channel.name))
        channel.admit(partial(self.admission, channel.name))
        if isinstance(channel.store, JournalStore):
            members = () if managed is None else managed.members.values()
            _mend_places(channel.store, members, self._roster.groups_left(channel.name))

    # Inside

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Around whatever is asked for. In the child of a fork, no lock can be trusted."""
        self._check_usable()
        with ExitStack() as unlocked, self._lock:
            self._fence.check()
            if self._unsettled:
                self._settle(unlocked)
            for name in tuple(self._unnoted):
                self._note_suspension(name)
            yield

    def _end(self, name: str, by: str) -> tuple[Managed, Channel[Any]]:
        """Record the end of a channel, if it may be; returns what there was."""
        seen: dict[int, int] = {}
        with self._working():
            self._roster.destroying(name, by, self._now())
            managed = self._roster.find(name)
            channel: Channel[Any] = self._open(name)
        # A long history takes long to look at: meanwhile all goes on, and then only its end is looked at.
        self._check_settled(managed, channel, seen)
        with self._working():
            record = self._roster.destroying(name, by, self._now())
            managed, channel = self._roster.find(name), self._open(name)
            try:
                channel.suspend(lambda: partial(Suspended, name, managed.owner, ending=True))
                self._check_settled(managed, channel, seen)
                if managed.suspended:
                    self._unnoted.add(name)
                self._keep(record)
            except BaseException:
                if not self._unsettled:
                    self.meet(channel)
                raise
            self._types.pop(name, None)
            self._note_suspension(name)
            with suppress(
                HeliographError
            ):  # what is noted beside a channel that is gone holds up batches only
                self._note_members_only(name, members_only=False)
        return managed, channel

    def admission(self, name: str) -> Admission | None:
        """Who may push and consume in a channel; None: everybody."""
        managed = self._roster.get(name)
        return None if managed is None else managed.admission

    def _known(self) -> Roster:
        """For readers: without the lock, but after a call that was cut off."""
        self._check_usable()
        if self._unsettled:
            with self._working():
                pass
        return self._roster

    def _folded(self) -> Roster:
        store = _store_of(self._activity)
        self._compacted = store.earliest
        """The offset of the last compaction, or of the beginning."""
        return Roster(self._noted(_records(store)), used=store.watermark)

    def _noted(self, log: Iterator[tuple[int, Activity]]) -> Iterator[Activity]:
        for offset, record in log:
            if record.kind == "compacted":
                self._compacted = offset
            yield record

    def _settle(self, unlocked: ExitStack) -> None:
        """Find out what became of a record that was cut off, and do what it says. Under the lock, but for
        what may wait for functions.
        """
        _store_of(self._activity).wait_durable()
        before, self._roster = self._roster, self._folded()
        try:
            for managed in before.channels():
                self._catch_up(managed, unlocked)
        except BaseException:
            self._roster = before  # and once more, the next time
            raise
        self._unsettled = False

    def _catch_up(self, before: Managed, unlocked: ExitStack) -> None:
        name, channel, now = before.name, self._opened(before.name), self._roster.get(before.name)
        there = () if now is None else now.members.values()
        for member in before.members.values():
            if member not in there:
                unlocked.callback(self._let_go, name, member)
        if channel is not None and now is None:
            unlocked.callback(close_end, channel)
        elif channel is not None:
            self.meet(channel)

    def _reason(self, name: str) -> Callable[[], Suspended] | None:
        managed = self._roster.get(name)
        if managed is None or not managed.suspended:
            return None
        return partial(Suspended, name, managed.owner)

    def _now(self) -> int:
        return self._ports.clock.time_ns()

    def _begin(
        self, channel: Channel[Any], owner: str, access: Access, lease: float, about: dict[str, Any]
    ) -> None:
        """Record a new channel. Under the lock.

        A history that a program without the manager has kept is not taken over; an empty one is what a crash
        has left of a channel whose creation was never recorded.
        """
        name, begins = channel.name, _store_of(channel).watermark
        if begins and not self._roster.had(name):
            raise NameAlreadyUsed(name)
        record = self._roster.creating(
            name, owner, self._now(), access=access, types=channel.type_names, begins=begins
        )
        record.lease = lease
        # Before it is recorded: what is recorded holds for batches from outside from then on.
        self._note_members_only(name, members_only=about["members_only"])
        for field, value in about.items():
            setattr(record, field, value)
        self._keep(record)
        self.renew(name, owner)
        _begin_place(_store_of(channel), self._roster.find(name).member(owner))

    def _keep(self, record: Activity) -> None:
        """Make a record durable, then do what it says. Under the lock."""
        self._fence.check()
        record.term = self.term
        try:
            if record.kind in WITH_STATE:
                record.event_state = self._event_state(record)
            self._activity.push(record)
            self._roster.apply(record)
            self._admit(record.channel)
        except HeliographError:
            raise  # the writer's own word: it is not in the log
        except BaseException:
            self._unsettled = True
            raise
        self._compact_if_due()

    def _event_state(self, record: Activity) -> dict[str, int] | None:
        """How far each consuming member has acknowledged, for a record that ends something."""
        managed, channel = self._roster.get(record.channel), self._opened(record.channel)
        if managed is None or channel is None:
            return None
        users = [record.user] if record.kind == "left" else sorted(managed.members)
        found = (managed.members[user] for user in users)
        return {one.user: _settled(_store_of(channel), one)[0] for one in found if one.consumes}

    def _admit(self, name: str) -> None:
        """Have the doors of a channel know of a member that has joined or left."""
        channel = self._opened(name)
        if channel is not None:
            channel.admit(partial(self.admission, name))

    def _open(self, name: str, *types: type[T]) -> Channel[T]:
        if not types and self._opened(name) is None:
            types = self._types.get(name, ())
        channel: Channel[T] = self._open_channel(name, *types)
        if types:
            self._types[name] = types
        return channel

    def _note_suspension(self, name: str) -> None:
        """Have it known where batches from outside are taken in, also while no station has the folder.

        The log is what counts: where the note cannot be written it is told, and tried again with whatever
        the manager is asked for next, and when the log is next read. Until then a batch may be refused that
        could be taken in, never the other way round: a suspension is noted before it is recorded.
        """
        managed = self._roster.get(name)
        is_suspended = managed is not None and managed.suspended
        is_doubtful = name in self._unnoted
        self._unnoted.add(name)
        try:
            self._write_note(name, managed.owner if managed and is_suspended else None, anew=is_doubtful)
        except HeliographError as error:
            log.warning("%r: whether it is suspended is not noted for batches yet: %s", name, error)
        else:
            self._unnoted.discard(name)

    def _meet_open(self, name: str) -> None:
        channel = self._opened(name)
        if channel is not None:
            self.meet(channel)

    def _let_go(self, name: str, member: Membership) -> None:
        """Of who has left. Without the lock: a function that is called may be waited for, and may ask the
        manager for something.
        """
        self._ends.close(member.number)
        self._forget_place(name, member)

    def _forget_place(self, name: str, member: Membership) -> None:
        """Retention need not wait for it any more. What cannot be forgotten now is when it is opened."""
        channel = self._opened(name)
        if channel is not None and member.consumes:
            with suppress(CursorHeld, DiskError):
                _store_of(channel).forget_consumer(_cursor_of(member))

    def _check_settled(self, managed: Managed, channel: Channel[Any], seen: dict[int, int]) -> None:
        """EventsUnderWay when a member lacks events, or some are to come later.

        Args:
            managed: the members.
            channel: theirs.
            seen: how far each membership's history was looked at before, and is now.
        """
        store, waiting = _store_of(channel), channel.delayed.still_to_come
        store.wait_durable()
        lacking = []
        for user, member in sorted(managed.members.items()):
            if member.consumes:
                end = store.watermark
                if _lacks(member, channel, seen.get(member.number, 0), end, self._ports.clock.monotonic_ns()):
                    lacking.append(user)
                seen[member.number] = end
        if lacking or waiting:
            raise EventsUnderWay(managed.name, tuple(lacking), waiting)


def _check_lease(channel: str, lease: Any) -> None:
    if type(lease) not in (int, float) or not (lease == 0 or 0.1 <= lease <= 1e6):
        raise NotPossible(channel, f"lease={lease!r:.60}: seconds from 0.1 on, or 0 for none")


def _checked_about(channel: str, description: Any, attributes: Any, members_only: Any) -> dict[str, Any]:
    if not isinstance(description, str) or len(description) > MAX_ABOUT:
        raise NotPossible(channel, f"description={description!r:.60}: text of at most {MAX_ABOUT} characters")
    found = {} if attributes is None else dict(attributes)
    fits = all(
        isinstance(name, str) and isinstance(text, str) and len(name) + len(text) <= MAX_ABOUT
        for name, text in found.items()
    )
    if len(found) > MAX_ATTRIBUTES or not fits:
        raise NotPossible(channel, f"attributes={attributes!r:.60}: at most {MAX_ATTRIBUTES} texts by name")
    if type(members_only) is not bool:
        raise NotPossible(channel, f"members_only={members_only!r:.60}: True or False")
    return {"description": description, "attributes": found or None, "members_only": members_only}


def _check_user(channel: str, user: Any) -> None:
    if user is None:
        raise NotPossible(channel, "a member has a name")
    check_name(channel, "user", user)


def _store_of(channel: Channel[Any]) -> JournalStore:
    store = channel.store
    assert isinstance(store, JournalStore), "a station with a folder keeps its persistent channels itself"
    return store


def _cursor_of(member: Membership) -> str:
    return GROUP_PLACE + member.group


def _begin_place(store: JournalStore, member: Membership) -> None:
    """Have retention wait for a member that has not opened anything yet. Its record says where it begins."""
    if not member.consumes:
        return
    try:
        store.begin_consumer(_cursor_of(member), member.begins)
    except DiskError as error:
        log.warning("%r has joined; a crash may let retention pass over it: %s", member.user, error)


def _mend_places(store: JournalStore, members: Iterable[Membership], left: Container[str]) -> None:
    """Give cursors to present participants, and to none that has left."""
    for member in members:
        _begin_place(store, member)
    for name in store.consumers():
        if name.removeprefix(GROUP_PLACE) in left:
            with suppress(CursorHeld, DiskError):  # it is tried again when the channel is next opened
                store.forget_consumer(name)


def _kept(store: JournalStore, start: int, end: int) -> Iterator[Any]:
    """What is kept from an offset on, below another."""
    while start < end:
        items, start = store.read(start, READ_ROWS, end)
        yield from items


def _settled(store: JournalStore, member: Membership) -> tuple[int, frozenset[int]]:
    """The offset below which a member has acknowledged everything, and what it has above."""
    low, acks = store.settled(_cursor_of(member)) or (member.begins, frozenset())
    return max(low, member.begins), frozenset(acks)


def _records(store: JournalStore) -> Iterator[tuple[int, Activity]]:
    """The log with its offsets, as far as it is kept, without what a repair has accepted as lost.

    BadJournalFile for other damage: what is left may say something else, and that is not taken by accident.
    """
    start, end = store.earliest, store.watermark
    is_whole = start == 0
    while start < end:
        try:
            items, start = store.read(start, READ_ROWS, end)
        except HistoryDamaged as gap:
            lost = f"records at offsets {gap.first} to {gap.next_available - 1}"
            if not store.is_lost(gap.first, gap.next_available):
                raise BadJournalFile(
                    gap.partition,
                    f"{lost} are damaged ({gap.reason}), so nobody knows who is in which channel; bring back "
                    "a copy of it, or accept the loss: close the station, and "
                    f"`helio journal repair FOLDER {ACTIVITY}`",
                ) from gap
            log.warning("%s lacks %s: look at owners, members and suspensions", ACTIVITY, lost)
            start = gap.next_available
        else:
            for record, header, _ in items:
                if isinstance(record, Activity):
                    if not is_whole and record.kind != "compacted":
                        raise BadJournalFile(
                            store.partition,
                            f"{ACTIVITY} begins at offset {header.offset} with a record of kind "
                            f"{record.kind!r}, and what was before is gone: bring back a copy of it",
                        )
                    is_whole = True
                    yield header.offset or 0, record


def _lacks(member: Membership, channel: Channel[Any], start: int, end: int, now: int) -> bool:
    """Whether something is kept for a member in a range of offsets that it has not acknowledged."""
    store = _store_of(channel)
    low, acks = store.settled(_cursor_of(member)) or (member.begins, frozenset())
    start = max(start, low, store.earliest)
    unknown = store.kept_types(start, end).difference(channel.type_names)
    if unknown:
        raise NotPossible(
            channel.name,
            f"has events of {listed(sorted(unknown))} that {member.user!r} may lack, and their class is not "
            "known: manager.find() it with all its classes first",
        )
    conditions = channel.select(where=member.where).conditions
    return any(
        header.offset not in acks and not 0 < deadline <= now and condition.holds(event, header)
        for event, header, deadline in _kept(store, start, end)
        if (condition := conditions.get(type(event))) is not None
    )
