"""The suppliers and receivers of a channel, and the routes between them.

Whenever receivers change, the next routes are built (`heliograph.channel.routing.compiler`) and swapped in
while all suppliers are held still for an instant: event n leaves by the old routes before n + 1 enters the
new ones.

Receivers of this station get an event wherever it was pushed; to which gateways it goes on, which stand for
receivers of another station, the forwarding rule says (`heliograph.channel.routing.forwarding`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from heliograph.channel.history.memory import MemoryHistory
from heliograph.channel.receive.subscription import InlineSubscription, QueuedReceiver, Receiver
from heliograph.channel.routing.compiler import Route, Target, build_route
from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition, for_source
from heliograph.channel.routing.filter_index import MERGED, FilterIndex
from heliograph.channel.routing.forwarding import ELSEWHERE, HERE, Forwarding
from heliograph.channel.routing.groups import Group
from heliograph.channel.selection import Selection, check_coalescing, check_names, conditions_for, made_of
from heliograph.errors import Closed, ExpressionError, NotPossible
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from heliograph.channel.history.feed import Feed
    from heliograph.channel.inline_counters import Accounts
    from heliograph.channel.members_only import Admission
    from heliograph.channel.publish.entry import Source
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.forwarding import Origin
    from heliograph.errors import NotMatched
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import Ports

T = TypeVar("T", bound=Event)

Access: TypeAlias = Literal["both", "consume", "supply"]
"""What a station may do in a channel that it has joined."""

OWN_ROUTES: Final = 64
"""Different sets of receivers that suppliers have; beyond that each push looks at who listens to whom."""


def not_allowed(channel: str, access: Access) -> NotPossible:
    """For who pushes where this station only consumes, or the other way round."""
    only = "consumes" if access == "consume" else "supplies"
    return NotPossible(
        channel,
        f"this station only {only} here: it was opened with access={access!r}; access='both' allows both",
    )


class Registry(Generic[T]):
    """See the module. What is said to run while still, runs inside `with members.still():`."""

    def __init__(
        self, channel: str, types: tuple[type[T], ...], qos: QoS, ports: Ports, accounts: Accounts
    ) -> None:
        check_names(channel, types)
        self.types = types
        self.lock = ports.tasks.lock(f"channel {channel}")
        self.entry = ports.tasks.lock(f"entry of {channel}")
        """Held by a push while it queues; the suppliers of a journalled channel have a lock each."""
        self.changed = ports.tasks.condition(self.lock, f"members of {channel}")
        self.suppliers: list[Source] = []
        self.receivers: dict[str, Receiver] = {}
        self.gateways: dict[str, QueuedReceiver] = {}
        self.forwarding = Forwarding()
        """Which of them get what other stations push."""
        self.remote_consumers: dict[str, int] = {}
        """How many receivers each linked station has of this channel."""
        self.derived: dict[str, Callable[[], int]] = {}
        """How many receivers there are of each channel that is derived from this one here."""
        self.remote_groups: dict[str, tuple[str, ...]] = {}
        """In which groups, without a journal."""
        self.unmatched: dict[str, tuple[NotMatched, ...]] = {}
        """Why events do not go to or come from a linked station."""
        self.history = MemoryHistory(qos, ports.clock, ports.tasks)
        self.routes: Mapping[type, Route] = {}
        self.feed: Feed | None = None
        """What takes the place of the suppliers' routes on a journalled channel."""
        self.closed = False
        self.refuses: NotPossible | None = None
        """Why nothing may be pushed here: another station keeps the channel otherwise."""
        self._suspensions: dict[str, Callable[[], Exception]] = {}
        """By whoever says so: this station's manager, or that of the station that keeps a partition."""
        self._admissions: dict[str, Admission] = {}
        """Likewise: who may push and consume, where not everybody may."""
        self._channel = channel
        self._qos = qos
        self._accounts = accounts
        self._names: set[str] = set()
        self._numbers = count(1)
        self._groups: dict[str, Group] = {}
        self._crowd = FilterIndex()
        self._targets: list[Target] = []
        self._sources: list[frozenset[str]] = []
        """The suppliers that receivers listen to, where they name any."""
        self._own_routes: dict[tuple[bool, ...], Mapping[type, Route]] = {}
        """Of suppliers whom not everybody listens to, by who of those does."""

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hold the channel and all its suppliers: no push is half done."""
        with ExitStack() as stack:
            stack.enter_context(self.lock)
            stack.enter_context(self.entry)
            for supplier in self.suppliers:
                if supplier.lock is not self.entry:
                    stack.enter_context(supplier.lock)
            if self.feed is not None:
                stack.enter_context(self.feed.lock)
            yield

    def check_open(self) -> None:
        if self.closed:
            raise Closed(f"channel {self._channel}")

    def claim_name(self, name: str, *, insist: bool = False) -> str:
        """A name that no other receiver has; with `insist`, that name or none."""
        with self.lock:
            unique = name
            if insist and name in self._names:
                raise NotPossible(
                    self._channel, f"the durable consumer {name!r} is open already; close it first"
                )
            while unique in self._names:
                unique = f"{name}-{next(self._numbers)}"
            self._names.add(unique)
        return unique

    def release_name(self, name: str) -> None:
        self._names.discard(name)

    def groups(self) -> set[str]:
        """Those whose members do not acknowledge."""
        return set(self._groups)

    def groups_apart(self, own: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Of these groups of this station, those that linked stations have one of the same name of."""
        found: dict[str, list[str]] = {}
        for station, groups in sorted(self.remote_groups.items()):
            for group in set(own).intersection(groups):
                found.setdefault(group, []).append(station)
        return {group: tuple(stations) for group, stations in sorted(found.items())}

    def has_group(self, name: str) -> bool:
        """Whether receivers share the stream under that name without acknowledging."""
        return name in self._groups

    def consumers(self, apart_from: AbstractSet[str] = frozenset()) -> int:
        """Receivers here and in linked stations, apart from the named stations. Under the lock."""
        remote = sum(n for station, n in self.remote_consumers.items() if station not in apart_from)
        derived = sum(count() for count in tuple(self.derived.values()))
        return len(self.receivers) - len(self.gateways) + remote + derived

    def add_supplier(self, supplier: Source) -> None:
        """It may push from now on."""
        with self.lock:
            self.check_open()
            supplier.use(self._routes_of(supplier))
            self.suppliers.append(supplier)
            if self.refuses is not None:
                self.refuse(self.refuses)
            elif (reason := self._barred(supplier)) is not None:
                supplier.retire(reason)

    # While still:

    def join(self, receiver: Receiver, *, from_history: bool) -> int:
        """Take a receiver in; returns how many kept events it was given."""
        self.check_open()
        self.receivers[receiver.name] = receiver
        if receiver.group is not None:
            assert isinstance(receiver, QueuedReceiver)
            self._groups.setdefault(receiver.group, Group(receiver.group)).join(receiver.queue)
        matched = 0
        if from_history and isinstance(receiver, QueuedReceiver) and self.gets_history(receiver):
            matched = self.history.replay(receiver.queue, receiver.selection.conditions)
        if not self._is_for_the_crowd(receiver) or self._add_to_crowd(receiver):
            self.rebuild()
        self.changed.notify_all()
        return matched

    def change(self, wanted: Mapping[Receiver, Selection]) -> None:
        """Route by other conditions from the next event on."""
        needs_routes = [self._change(receiver, selection) for receiver, selection in wanted.items()]
        if any(needs_routes):
            self.rebuild()

    def _change(self, receiver: Receiver, wanted: Selection) -> bool:
        """Whether the routes of before do not do for it."""
        old = receiver.selection
        # The very mapping, type by type: a queue that catches up from the journal reads it at any time.
        old.conditions.update(wanted.conditions)
        for cls in old.conditions.keys() - wanted.conditions.keys():
            del old.conditions[cls]
        receiver.selection = msgspec.structs.replace(
            old, tree=wanted.tree, sources=wanted.sources, all_types=wanted.all_types
        )
        if isinstance(receiver, QueuedReceiver):
            receiver.queue.carry(old.conditions)
        if isinstance(receiver, QueuedReceiver) and receiver.queue in self._crowd:
            self._crowd.remove(receiver.queue)
            if FilterIndex.takes(old.conditions):
                return self._add_to_crowd(receiver)
        return True

    def leave(self, receiver: Receiver, reason: str) -> None:
        """Shut a receiver that has been taken out of `receivers`."""
        if receiver.group is not None and isinstance(receiver, QueuedReceiver):
            group = self._groups[receiver.group]
            group.leave(receiver.queue)
            if not len(group):
                del self._groups[receiver.group]
        receiver.shut(reason)
        self.release_name(receiver.name)
        self.gateways.pop(receiver.name, None)
        self.forwarding.forget(receiver.name)
        if isinstance(receiver, QueuedReceiver) and receiver.queue in self._crowd:
            self._crowd.remove(receiver.queue)
        else:
            self.rebuild()
        self.changed.notify_all()

    def add_types(self, types: tuple[type[T], ...]) -> bool:
        """Carry further event types; whether any was new.

        A program's own class takes the place of one that was made of the same format for others.
        """
        new = tuple(cls for cls in types if cls not in self.types)
        own = {cls: made for cls in new if (made := made_of(cls, self.types))}
        if own:
            self._replace_made(own)
            new = tuple(cls for cls in new if cls not in own)
            if not new:
                self.rebuild()
                return True
        check_names(self._channel, (*self.types, *new))
        met: dict[Receiver, Mapping[type[Event], ReceiverCondition | AnyCondition]] = {}
        for receiver in self.receivers.values():
            wants = receiver.selection
            if wanted := [cls for cls in new if wants.wants_later(cls)]:
                with suppress(ExpressionError):  # its condition is about fields that these types lack
                    met[receiver] = conditions_for(wanted, wants.tree, wants.sources)
                if isinstance(receiver, QueuedReceiver) and receiver.queue.policy == "coalesce":
                    check_coalescing(self._channel, receiver.name, met.get(receiver, ()))
        for receiver in self.receivers.values():
            if receiver in met:
                receiver.selection.conditions.update(met[receiver])
                if isinstance(receiver, QueuedReceiver):
                    receiver.queue.carry(receiver.selection.conditions)
                if isinstance(receiver, QueuedReceiver) and receiver.queue in self._crowd:
                    self._crowd.remove(receiver.queue)
                    self._add_to_crowd(receiver)
        self.types += new
        self.rebuild()
        return bool(new)

    def _replace_made(self, own: Mapping[type[T], tuple[type[Event], ...]]) -> None:
        """Have classes take the place of made ones. A condition holds for both: they have the same fields."""
        gone = {made for versions in own.values() for made in versions}
        self.types = (*(cls for cls in self.types if cls not in gone), *own)
        for receiver in self.receivers.values():
            conditions = receiver.selection.conditions
            for cls, versions in own.items():
                found = [conditions.pop(made) for made in versions if made in conditions]
                if found:
                    conditions[cls] = found[0]
            if isinstance(receiver, QueuedReceiver):
                receiver.queue.carry(conditions)
                if receiver.queue in self._crowd:
                    self._crowd.remove(receiver.queue)
                    self._add_to_crowd(receiver)

    def rebuild(self) -> None:
        """Make the routes for the receivers of this moment and give them to all suppliers."""
        self._accounts.retire_tallies(self.receivers)
        local = self._local_targets()
        gateways = {n: Target(g.selection.conditions, queue=g.queue) for n, g in self.gateways.items()}
        keep = self.history.keep if self.history.keeps else None
        onward = [gateways[name] for name in self.forwarding.goes_on_to(gateways, HERE)]
        self._targets, self._own_routes = [*local, *onward], {}
        self._sources = [sources for target in self._targets for sources in _sources_of(target)]
        self.routes = self._build(self._targets, keep)
        if self.feed is not None:
            is_alone = not gateways or len(self.feed.partitions) == 1
            elsewhere = self.routes if is_alone else self._arriving(local, gateways, ELSEWHERE)
            self.feed.use(self.routes, elsewhere)
        if self.closed:
            return
        origins = {supplier.origin for supplier in self.suppliers if not supplier.origin.is_here}
        arriving = {origin: self._arriving(local, gateways, origin) for origin in origins}
        for supplier in self.suppliers:
            if not supplier.origin.is_here:
                supplier.use(arriving[supplier.origin])
            elif self.refuses is None and self._barred(supplier) is None:
                supplier.use(self._routes_of(supplier))

    def _arriving(
        self, local: list[Target], gateways: Mapping[str, Target], origin: Origin
    ) -> Mapping[type, Route]:
        """The routes of what was pushed elsewhere. It is not kept here: where it was pushed it is."""
        onward = [gateways[name] for name in self.forwarding.goes_on_to(gateways, origin)]
        return self._build([*local, *onward], None)

    def refuse(self, error: NotPossible) -> None:
        """Nothing may be pushed here from now on; what other stations push still comes."""
        self.refuses = error
        for supplier in self.suppliers:
            if supplier.origin.is_here:
                supplier.retire(lambda: error)

    @property
    def suspended(self) -> Callable[[], Exception] | None:
        """Makes the error that every push raises; None when pushes are taken in."""
        return next(iter(self._suspensions.values()), None)

    def suspended_by(self, source: str) -> Exception | None:
        """What one of those who may say so has said."""
        reason = self._suspensions.get(source)
        return None if reason is None else reason()

    def suspend(self, reason: Callable[[], Callable[[], Exception] | None], source: str = "") -> None:
        """Every push here raises an error, until nobody has one.

        The reason is asked for while still: of two who say so at once, the last has the last word. When this
        returns no push is half done: each was in line for the disk before, or has been refused.
        """
        with self.still():
            said = reason()
            if said is None:
                self._suspensions.pop(source, None)
            else:
                self._suspensions[source] = said
            self._bar()

    @property
    def admission(self) -> Admission | None:
        """Who may push and consume; None: everybody."""
        return next(iter(self._admissions.values()), None)

    def admission_by(self, source: str) -> Admission | None:
        """What one of those who may say so has said."""
        return self._admissions.get(source)

    def admit(self, admission: Callable[[], Admission | None], source: str = "") -> bool:
        """Let only these push and consume from now on; whether that is news. Asked for while still, too."""
        with self.still():
            before, said = self._admissions.get(source), admission()
            if said == before:
                return False
            if said is None:
                del self._admissions[source]
            else:
                self._admissions[source] = said
            self._bar()
        return True

    def _bar(self) -> None:
        """Have suppliers of this station push that may, and no other. While still."""
        for supplier in self.suppliers if self.refuses is None and not self.closed else ():
            if supplier.origin.is_here and (reason := self._barred(supplier)) is not None:
                supplier.retire(reason)
            elif supplier.origin.is_here:
                supplier.readmit(self._routes_of(supplier))

    def _barred(self, supplier: Source) -> Callable[[], Exception] | None:
        """Makes the error of each push of a supplier that may not push now; None when it may."""
        if self._suspensions:
            return self.suspended
        admission = self.admission
        if admission is None or not supplier.names_itself or supplier.is_managers:
            return None
        reason = admission.why_not_supplier(supplier.name)
        return None if reason is None else lambda: reason

    def _routes_of(self, supplier: Source) -> Mapping[type, Route]:
        """Without those who listen to other suppliers: no filter of theirs is in its way."""
        listeners = tuple(supplier.name in sources for sources in self._sources)
        if not listeners or not supplier.names_itself or self.feed is not None:
            return self.routes
        routes = self._own_routes.get(listeners)
        if routes is None:
            if len(self._own_routes) >= OWN_ROUTES:
                return self.routes
            keep = self.history.keep if self.history.keeps else None
            served = [_for_source(target, supplier.name) for target in self._targets]
            routes = self._own_routes[listeners] = self._build(served, keep)
        return routes

    def _local_targets(self) -> list[Target]:
        """Where events go inside this station; those whom the index finds are not named."""
        targets: list[Target] = []
        seen_groups: set[str] = set()
        for receiver in self.receivers.values():
            if receiver.name in self.gateways:
                continue
            if isinstance(receiver, InlineSubscription):
                targets.append(Target(receiver.selection.conditions, inline=receiver))
            elif receiver.group is None:
                assert isinstance(receiver, QueuedReceiver)
                if receiver.queue not in self._crowd:
                    targets.append(Target(receiver.selection.conditions, queue=receiver.queue))
            elif receiver.group not in seen_groups:
                seen_groups.add(receiver.group)
                targets.append(Target(receiver.selection.conditions, group=self._groups[receiver.group]))
        return targets

    def _build(self, targets: Sequence[Target], keep: Callable[[Item], None] | None) -> Mapping[type, Route]:
        return {
            cls: build_route(
                self._channel,
                cls,
                self._qos,
                targets,
                new_tally=self._accounts.tally,
                keep=keep,
                crowd=self._crowd.index_of(cls),
                is_only=len(self.types) == 1,
            )
            for cls in self.types
        }

    def gets_history(self, receiver: Receiver) -> bool:
        """What was kept goes to one member of a group: the first."""
        return receiver.group is None or len(self._groups[receiver.group]) == 1

    def _is_for_the_crowd(self, receiver: Receiver) -> bool:
        return (
            len(self.receivers) > MERGED
            and isinstance(receiver, QueuedReceiver)
            and receiver.group is None
            and receiver.name not in self.gateways
            and FilterIndex.takes(receiver.selection.conditions)
        )

    def _add_to_crowd(self, receiver: Receiver) -> bool:
        assert isinstance(receiver, QueuedReceiver)
        return self._crowd.add(receiver.queue, receiver.selection.conditions)


def _sources_of(target: Target) -> Iterator[frozenset[str]]:
    for condition in target.conditions.values():
        for each in condition.alternatives if isinstance(condition, AnyCondition) else (condition,):
            if each.sources is not None:
                yield each.sources


def _for_source(target: Target, supplier: str) -> Target:
    left = {cls: for_source(condition, supplier) for cls, condition in target.conditions.items()}
    return msgspec.structs.replace(
        target, conditions={cls: condition for cls, condition in left.items() if condition is not None}
    )
