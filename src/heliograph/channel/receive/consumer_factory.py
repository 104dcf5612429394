"""Opens consumers: plain, durable, acknowledging, and members of groups.

A consumer gets a coordinator (`heliograph.channel.ack_protocol`) when it has to acknowledge anything.
The members of a group share one, with one cursor on a persistent channel: the group is opened with its first
member, closed with its last, and goes on where it was. Elsewhere a group that says nothing about
acknowledging needs none.

The coordinator of a group on a persistent channel is in the station that keeps the history. Members in others
join it through their link: `sit` makes them members here, and `Partition.desk` those of this station there.
Where several stations keep the channel, one of them hands out to all, and reads the partitions of the others.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from heliograph.channel.ack_protocol import Acking, AckOptions, JoinRequest, agree
from heliograph.channel.receive.consumer import Consumer, GroupReceiver
from heliograph.channel.receive.coordinator_failover import FailoverCoordinator, FoundCoordinator
from heliograph.channel.receive.dead_letters import give_up, open_dead_letter_channel
from heliograph.errors import CursorHeld, NotPossible, QueryFailed
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.ack_protocol import CoordinatorPort, HostCoordinator, HostMembership
    from heliograph.channel.history.partitions import Journalled
    from heliograph.channel.history.positions import Cursors
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.receive.host import (
        DeadLetterChannel,
        ReceiverHost,
        ReceiverNames,
        ReceiverServices,
    )
    from heliograph.channel.selection import Point, Selection

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)


GROUP: Final = "group:"
KEPT_BESIDE: Final = (GROUP, "supplier:")
"""How the names begin under which others keep how far they are, beside durable consumers."""


class ConsumerRequest(NamedTuple):
    """How a consumer was asked for, beside what it wants and how it acknowledges."""

    name: str | None
    start: Point
    ends: bool
    raises_gaps: bool


class ConsumerFactory(Generic[T]):
    """See the module."""

    def __init__(
        self,
        channel: ReceiverHost,
        members: ReceiverNames,
        journal: Journalled | None,
        services: ReceiverServices,
    ) -> None:
        self._channel = channel
        self._members = members
        self._journal = journal
        self._services = services
        # Comes before the channel's own lock.
        self._lock = services.ports.tasks.lock(f"consumers of {channel.name}")
        self._groups: dict[str, GroupReceiver] = {}
        self._acknowledges = journal is not None or channel.monitor is not None
        """Whether groups of this channel always do."""
        self._seated_members: dict[str, Consumer[T]] = {}
        """Members of groups on a persistent channel, whichever station has their coordinator."""

    def open(self, how: ConsumerRequest, selection: Selection, acking: Acking) -> Consumer[T]:
        if how.ends and self._members.history.keeps and how.start in (None, "earliest"):
            # What ends has no later: stations that are there and not linked yet have kept events as well.
            self._services.meet_stations()
        if self.acknowledges(selection, acking):
            return self._open_member(how, selection, acking)
        if selection.group is None and how.name is not None and self._journal is not None:
            return self._open_durable(how.name, how, selection, self._agree(selection, acking))
        terms = self._agree(selection, acking) if acking or self._channel.monitor is not None else None
        return self._joined(self._members.claim_name(how.name or "consumer"), how, selection, terms)

    def acknowledges(self, selection: Selection, acking: Acking) -> bool:
        """Whether who asks for this is a member of a group that acknowledges."""
        group = selection.group
        return group is not None and (self._acknowledges or bool(acking) or group in self._groups)

    def groups(self) -> set[str]:
        """Those that have their coordinator here."""
        return set(self._groups)

    def member_left(self, member: Consumer[T]) -> None:
        """A member has left its group, if that has its coordinator here."""
        self._members.release_name(member.name)
        assert member.group is not None
        with self._lock:
            self._seated_members.pop(member.name, None)
        self.one_left(member.group)

    def one_left(self, group: str) -> None:
        """With its last member a group is closed."""
        with self._lock:
            shared = self._groups.get(group)
            if shared is not None and not shared.desk.members():
                del self._groups[group]
                shared.close()

    def sit(
        self,
        selection: Selection,
        acking: Acking,
        member: str,
        ring: Callable[[], object],
        *,
        raises_gaps: bool,
    ) -> tuple[GroupReceiver, HostMembership]:
        """Let a member in another station join a group; `one_left` says that it has left."""
        how = ConsumerRequest(member, None, ends=selection.span.ends is not None, raises_gaps=raises_gaps)
        with self._lock:
            shared = self._shared(how, selection, acking)
            return shared, shared.desk.sit(member, ring)

    def close(self) -> None:
        """Those whose group is elsewhere are no receivers of the channel, and are told by nobody else."""
        # A copy, made at once, and no lock: a channel that could not be opened is closed under its station's.
        for member in list(self._seated_members.values()):
            member.close()

    def _open_durable(
        self, name: str, how: ConsumerRequest, selection: Selection, terms: AckOptions
    ) -> Consumer[T]:
        assert self._journal is not None
        if name.startswith(KEPT_BESIDE):
            raise NotPossible(
                self._channel.name,
                f"name={name!r}: the cursors of groups and the leases of suppliers are kept under names that "
                f"begin with {' and '.join(map(repr, KEPT_BESIDE))}; for a member of a group write group=",
            )
        self._members.claim_name(name, insist=True)
        try:
            self._journal.meet_keepers()
            selection, cursors = self._journal.resume(selection, name)
        except BaseException:
            self._members.release_name(name)
            raise
        return self._joined(name, how, selection, terms, cursors)

    def _joined(
        self,
        name: str,
        how: ConsumerRequest,
        selection: Selection,
        terms: AckOptions | None,
        cursors: Cursors | None = None,
    ) -> Consumer[T]:
        consumer: Consumer[T] = Consumer(
            self._channel,
            name,
            selection,
            ends=how.ends,
            raises_gaps=how.raises_gaps,
            open_desk=self._desk_opener(terms or AckOptions(), cursors),
            terms=terms,
        )
        self._channel.join(consumer, how.start)
        return consumer

    def _open_member(self, how: ConsumerRequest, selection: Selection, acking: Acking) -> Consumer[T]:
        name = self._members.claim_name(how.name or "consumer")
        try:
            return self._seated(name, how, selection, acking)
        except BaseException:
            self._members.release_name(name)
            raise

    def _seated(self, name: str, how: ConsumerRequest, selection: Selection, acking: Acking) -> Consumer[T]:
        if self._journal is None:
            with self._lock:
                shared = self._shared(how, selection, acking)
                return self._member(name, how, selection, shared.queue, shared.desk)
        self._journal.meet_keepers()
        found = self._find(name, how, selection, acking, patient=True)
        # Wherever it sits down later, it is by what was agreed here, also if it said nothing itself.
        agreed: Any = msgspec.structs.asdict(found.desk.terms)
        desk = FailoverCoordinator(
            found, lambda: self._find(name, how, selection, agreed, patient=False), self._channel.ports.tasks
        )
        # Nothing is ever in this queue: a coordinator elsewhere takes what the member gets from another one.
        queue = found.queue or self._journal.queue(name, selection, lambda _: None, None)
        member = self._member(name, how, selection, queue, desk)
        with self._lock:
            self._seated_members[name] = member
        return member

    def _find(
        self, name: str, how: ConsumerRequest, selection: Selection, acking: Acking, *, patient: bool
    ) -> FoundCoordinator:
        """The one coordinator of a group: of several keepers, the first that has it or can open it."""
        refused: CursorHeld | QueryFailed | None = None
        assert self._journal is not None
        hosts = self._journal.hosts()
        wish = JoinRequest(name, how.raises_gaps, tuple(host.partition for host in hosts), patient)
        for host in hosts:
            try:
                if not host.kept_here and selection.group not in self._groups:
                    agree(self._channel.name, tuple(selection.conditions), shared=True, **acking)
                    desk = host.desk(wish, selection, acking)
                    assert desk is not None
                    return FoundCoordinator(desk)
                with self._lock:
                    shared = self._shared(how, selection, acking)
                    return FoundCoordinator(shared.desk, shared.queue, lambda: self._channel.types)
            except (CursorHeld, QueryFailed) as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _member(
        self, name: str, how: ConsumerRequest, selection: Selection, queue: EventQueue, desk: CoordinatorPort
    ) -> Consumer[T]:
        return Consumer(
            self._channel,
            name,
            selection,
            ends=how.ends,
            open_desk=self._desk_opener(AckOptions(), None),
            terms=desk.terms,
            shared=(queue, desk),
        )

    def _shared(self, how: ConsumerRequest, selection: Selection, acking: Acking) -> GroupReceiver:
        """The group, opened if need be, if a member may be in it that wants this. Under the lock."""
        assert selection.group is not None
        shared = self._groups.get(selection.group)
        if shared is None:
            return self._open_group(how, selection, self._agree(selection, acking))
        if acking and self._agree(selection, acking) != shared.terms:
            raise NotPossible(
                self._channel.name, f"group {selection.group!r} is open with other terms: {shared.terms}"
            )
        if not _wants_the_same(selection, shared.selection):
            raise NotPossible(
                self._channel.name,
                f"the members of group {selection.group!r} share one stream, so all want the same: give "
                "each the filter, types and sources of the first",
            )
        if selection.span.ends is not None and shared.selection.span.ends is None:
            raise NotPossible(
                self._channel.name,
                f"group {selection.group!r} is open without an end: until= is for its first member to say",
            )
        return shared

    def _open_group(self, how: ConsumerRequest, selection: Selection, terms: AckOptions) -> GroupReceiver:
        group = selection.group
        assert group is not None
        if self._members.has_group(group):
            raise NotPossible(
                self._channel.name,
                f"group {group!r} has members that do not acknowledge; close them, or leave out ack=",
            )
        cursors: Cursors | None = None
        if self._journal is not None:
            selection, cursors = self._journal.resume(selection, f"{GROUP}{group}")
        # The group is one receiver: to the channel it is a consumer like any other.
        shared = GroupReceiver(
            self._channel,
            self._members.claim_name(f"group {group}"),
            msgspec.structs.replace(selection, group=None),
            open_desk=self._desk_opener(terms, cursors),
            terms=terms,
        )
        journal = shared.queue.journal
        if journal is not None:
            journal.as_kept = True  # members may have other versions of the class
            journal.raises_gaps = how.raises_gaps
            journal.on_held = partial(self._give_way, shared)
        self._channel.join(shared, how.start)
        self._groups[group] = shared
        return shared

    def _give_way(self, shared: GroupReceiver, partition: str) -> None:
        """Two keepers that could not reach each other have opened a group, each without what the other keeps.

        The later one in their order closes its coordinator: members find the other when they next ask.
        """
        store = self._channel.store
        if store is not None and partition < store.partition:
            self._channel.ports.tasks.spawn_soon(f"gives way: {shared.name}", partial(self._dissolve, shared))

    def _dissolve(self, shared: GroupReceiver) -> None:
        with self._lock:
            mine = [group for group, open_group in self._groups.items() if open_group is shared]
            for group in mine:
                del self._groups[group]
        if mine:
            log.warning("%s: another keeper hands out to this group; its members go there", shared.name)
            shared.close()

    def _agree(self, selection: Selection, acking: Acking) -> AckOptions:
        shared = selection.group is not None
        terms = agree(self._channel.name, tuple(selection.conditions), shared=shared, **acking)
        self._grave(terms)  # refused before anything is held
        return terms

    def _grave(self, terms: AckOptions) -> DeadLetterChannel | None:
        """The channel for dead letters, if there is to be one."""
        grave = open_dead_letter_channel(self._channel, self._services, terms.dead_letter)
        if grave is not None and self._journal is not None and not grave.qos.journalled:
            raise NotPossible(
                self._channel.name,
                f"dead_letter={terms.dead_letter!r} is open and not persistent: what could not be delivered "
                "would be lost there; name another channel",
            )
        return grave

    def _desk_opener(
        self, terms: AckOptions, cursors: Cursors | None
    ) -> Callable[[str, EventQueue, Sequence[Item]], HostCoordinator]:
        grave = self._grave(terms)

        def open_desk(name: str, queue: EventQueue, taken: Sequence[Item]) -> HostCoordinator:
            add_dead_letter = partial(give_up, grave, self._services, name)
            return self._services.open_desk(
                name,
                queue,
                terms,
                cursors=cursors,
                taken=taken,
                add_dead_letter=add_dead_letter,
                on_full=partial(self._channel.report, name),
            )

        return open_desk


def _wants_the_same(one: Selection, other: Selection) -> bool:
    return (
        one.tree == other.tree
        and one.sources == other.sources
        and _type_names(one) == _type_names(other)
        and one.priority == other.priority
    )


def _type_names(selection: Selection) -> set[str]:
    """Members may have other versions of a class."""
    return {info_of(cls).name for cls in selection.conditions}
