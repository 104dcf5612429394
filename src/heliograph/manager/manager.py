"""The channel manager: channels with an owner and participants, in the station that keeps their folder.

    manager = station.manager
    wing = manager.create("project.wing", Drawing, owner="anna")
    manager.join("project.wing", "bert", access="consume").subscribe(on_drawing)
    manager.suspend("project.wing", by="anna")

It asks the roster whether something may be, keeps the record that comes out of it in `_helio.activity`, and
only when that is synced does what the record says. Opened on a folder that has such a log, it reads it whole
and has channels, owners, suspensions and members as they were. So it does again after a call that was cut
off, by Ctrl-C for one, while its record was under way.

Lock order: that of destroying, the manager's, then the station's and those of channels. Whoever opens a
channel under the station's lock asks for its suspension without the manager's.
"""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from weakref import WeakSet

from heliograph.channel.names import check_channel, pattern_regex
from heliograph.channel.receive.options import check_name
from heliograph.delivery.records import RESERVED
from heliograph.errors import (
    BadJournalFile,
    CursorHeld,
    DiskError,
    EventsUnderWay,
    HeliographError,
    HistoryDamaged,
    NameAlreadyUsed,
    NotPossible,
    Suspended,
)
from heliograph.errors.sentences import listed
from heliograph.journal.format.channel_config import sync_name
from heliograph.journal.names import ACTIVITY, GROUP_PLACE
from heliograph.journal.store import READ_ROWS, JournalStore
from heliograph.manager.member import Member
from heliograph.manager.roster import Activity, Roster
from heliograph.model.event import Event
from heliograph.qos.policies import QoS
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.registry import Access
    from heliograph.manager.roster import Managed, Membership
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
E = TypeVar("E")


class OpenChannel(Protocol):
    """`Station.channel`."""

    def __call__(self, name: str, *types: type[T], qos: QoS | None = ...) -> Channel[T]: ...


class NoteSuspension(Protocol):
    """`Keeping.note_suspension`."""

    def __call__(self, channel: str, owner: str | None, *, anew: bool) -> None: ...


class Manager:
    """See the module; made by `station.manager`.

    Args:
        ports: of the station.
        open_channel: opens a channel of that station, or takes the one that is open.
        opened: the channel of that name, if it is open.
        check_usable: raises when the station is closed, or is another process's.
        note_suspension: has it known where batches from outside are taken in.
    """

    def __init__(
        self,
        ports: Ports,
        open_channel: OpenChannel,
        opened: Callable[[str], Channel[Any] | None],
        check_usable: Callable[[], None],
        note_suspension: NoteSuspension,
    ) -> None:
        self._ports = ports
        self._write_note = note_suspension
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
        self._roster = self._folded()
        self._unsettled = False
        """Whether a call was cut off, so that its record may be in the log and not in the roster."""
        self._types: dict[str, tuple[type[Any], ...]] = {}
        """Event classes that this program gave."""
        self._ends: dict[int, WeakSet[Any]] = {}
        """What members have open, by the number of their membership."""
        self._unnoted: set[str] = set()
        """Channels beside which something else may be noted than the log says."""
        for managed in self._roster.channels():
            self._note_suspension(managed.name)  # a crash may have come between a record and that

    # Channels

    @names_options
    def create(
        self, name: str, *types: type[T], owner: str, access: Access = "both", qos: QoS | None = None
    ) -> Channel[T]:
        """A new persistent channel; its owner is its first member. NameAlreadyUsed when there is one.

        Args:
            name: as in `station.channel`.
            *types: event classes that it carries.
            owner: the user that may suspend, restart, transfer and destroy it.
            access: of the owner: "consume", "supply" or "both".
            qos: with durability="persistent", which is what it has when nothing is said.
        """
        check_channel(name, types, qos, None, access)
        _check_user(name, owner)
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
            try:
                assert self._ports.disk is not None
                _store_of(channel).settle()  # before the record: it is to be opened as it is now
                sync_name(self._ports.disk, name)
                self._begin(channel, owner, access)
            except BaseException:
                channel.close(0.0)
                raise
            self._types[name] = types
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
    ) -> Member:
        """Make a user a participant, from here on.

        Args:
            name: of the channel.
            user: its name; also the name of its supplier.
            access: "consume", "supply" or "both".
            history: whether it gets what was pushed before, first.
            where: the filter of what it consumes, as text: it is recorded.
        """
        _check_user(name, user)
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
            self._keep(
                self._roster.joining(name, user, self._now(), access=access, where=where, begins=begins)
            )
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
        _close(channel)

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
            if not getattr(membership, needs):
                only = "consumes" if needs == "supplies" else "supplies"
                raise NotPossible(
                    member.channel,
                    f"{member.user!r} only {only} here: it joined with access={membership.access!r}; "
                    "leave and join anew with access='both'",
                )
            channel: Channel[Any] = self._open(member.channel)
            place = {
                "group": membership.group,
                "where": membership.where,
                "start": {_store_of(channel).partition: membership.begins},
            }
            end = opening(channel, place)
            self._ends.setdefault(membership.number, WeakSet()).add(end)
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
        if isinstance(channel.store, JournalStore):
            members = () if managed is None else managed.members.values()
            _mend_places(channel.store, members, self._roster.groups_left(channel.name))

    # Inside

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Around whatever is asked for. In the child of a fork, no lock can be trusted."""
        self._check_usable()
        with ExitStack() as unlocked, self._lock:
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
        return managed, channel

    def _known(self) -> Roster:
        """For readers: without the lock, but after a call that was cut off."""
        self._check_usable()
        if self._unsettled:
            with self._working():
                pass
        return self._roster

    def _folded(self) -> Roster:
        store = _store_of(self._activity)
        return Roster(_records(store), used=store.watermark)

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
            unlocked.callback(_close, channel)
        elif channel is not None:
            self.meet(channel)

    def _reason(self, name: str) -> Callable[[], Suspended] | None:
        managed = self._roster.get(name)
        if managed is None or not managed.suspended:
            return None
        return partial(Suspended, name, managed.owner)

    def _now(self) -> int:
        return self._ports.clock.time_ns()

    def _begin(self, channel: Channel[Any], owner: str, access: Access) -> None:
        """Record a new channel. Under the lock.

        A history that a program without the manager has kept is not taken over; an empty one is what a crash
        has left of a channel whose creation was never recorded.
        """
        name, begins = channel.name, _store_of(channel).watermark
        if begins and not self._roster.had(name):
            raise NameAlreadyUsed(name)
        self._keep(
            self._roster.creating(
                name, owner, self._now(), access=access, types=channel.type_names, begins=begins
            )
        )
        _begin_place(_store_of(channel), self._roster.find(name).member(owner))

    def _keep(self, record: Activity) -> None:
        """Make a record durable, then do what it says. Under the lock."""
        try:
            self._activity.push(record)
            self._roster.apply(record)
        except HeliographError:
            raise  # the writer's own word: it is not in the log
        except BaseException:
            self._unsettled = True
            raise

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
        self._close_ends(member)
        self._forget_place(name, member)

    def _close_ends(self, member: Membership) -> None:
        for end in tuple(self._ends.pop(member.number, ())):
            _close(end)

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


def _close(end: Any) -> None:
    """Close what a former participant had open; leaving is recorded, and a failure here does not undo it."""
    try:
        end.close()
    except HeliographError as error:
        log.warning("%r was closed, and not all of it could be kept: %s", end, error)


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


def _records(store: JournalStore) -> Iterator[Activity]:
    """The log, without what a repair has accepted as lost.

    BadJournalFile for other damage: what is left may say something else, and that is not taken by accident.
    """
    start, end = 0, store.watermark
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
            yield from (record for record, _, _ in items if isinstance(record, Activity))


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
