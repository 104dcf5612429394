"""The roster: owners and participants of all channels, folded from the log of activity. Pure.

    roster = Roster()
    record = roster.joining("project.wing", "bert", now, access="consume")      or a named error
    roster.apply(record)

What is asked for is decided by what there is, and comes out as a record; nothing has changed by then. When
the record is safe it is applied. To apply all records of a log, in order, to an empty roster gives the
same one again: that is recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from heliograph.channel.members_only import Admission
from heliograph.channel.registry import Access
from heliograph.errors import EventChannelNotFound, NameAlreadyUsed, NotAMember, NotOwner, NotPossible
from heliograph.journal.names import ACTIVITY
from heliograph.model.event import Event
from heliograph.model.formats import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

USER_TYPES: Final[dict[Access, str]] = {"consume": "consumer", "supply": "supplier", "both": "both"}
"""How a record calls what a participant does in a channel."""
_ACCESS: Final = {kind: access for access, kind in USER_TYPES.items()}


class Activity(Event, name="helio.activity"):
    """What a user did in a channel: one row of the log of activity."""

    user_type: str
    """consumer, supplier or both."""
    user: str
    channel: str
    at_ns: int
    """When, by the station's clock, in ns since 1970."""
    kind: str
    """created, joined, left, suspended, restarted, transferred, destroyed, or compacted: then it is all that
    the records before it say, and those may be gone."""
    number: int
    """Counts the records of a log from 1."""
    types: list[str]
    """Of a channel that was created: the names of its event types."""
    where: str | None = None
    """Of one that joined: its filter."""
    begins: int = 0
    """Of one that joined: the first offset that is for it. Of a channel: the first that is its own."""
    new_owner: str | None = None
    """Of a transfer."""
    lease: float = 0.0
    """Of one that joined: seconds after which it leaves by itself, unless it is heard of; 0: it does not."""
    description: str = ""
    """Of a channel that was created: what it is about, for those who search."""
    attributes: Any = None
    """Likewise: a map of texts."""
    members_only: bool = False
    """Likewise: whether linked stations push and consume in it as members only."""
    term: int = 0
    """Of the manager that wrote it: counts the managers of a folder; 0: of before there were terms."""
    event_state: Any = None
    """Of a suspension, a transfer, an end or one that left: the offset below which each consuming member had
    acknowledged everything, by its name, where the channel was open."""
    roster: Any = None
    """Of a compaction: all channels and members of that moment; see `RosterImage`."""


class Membership(msgspec.Struct, frozen=True):
    """One user in one channel, from joining to leaving."""

    user: str
    access: Access
    number: int
    """Of the record that made it: a user that leaves and joins again is a new participant."""
    where: str | None = None
    begins: int = 0
    """The first offset in this station's history of the channel that is for it."""
    lease: float = 0.0
    """Seconds after which it leaves unless it is heard of; 0: it stays until it leaves."""

    @property
    def consumes(self) -> bool:
        return self.access != "supply"

    @property
    def supplies(self) -> bool:
        return self.access != "consume"

    def place(self, partition: str) -> dict[str, Any]:
        """The options of whatever it opens to consume by, where its keeper has that partition."""
        return {"group": self.group, "where": self.where, "start": {partition: self.begins}}

    @property
    def group(self) -> str:
        """The name under which it consumes, which is unique for ever."""
        return f"member {self.number}: {self.user}"[:MAX_NAME]


class Managed(msgspec.Struct, frozen=True):
    """A channel as the manager knows it."""

    name: str
    owner: str
    members: dict[str, Membership]
    types: tuple[str, ...] = ()
    begins: int = 0
    suspended: bool = False
    description: str = ""
    attributes: dict[str, str] = {}
    members_only: bool = False

    @property
    def admission(self) -> Admission | None:
        """Who may push and consume in it; None: everybody."""
        if not self.members_only:
            return None
        members = self.members.values()
        return Admission(
            self.name,
            frozenset(one.user for one in members if one.supplies),
            frozenset(one.group for one in members if one.consumes),
        )

    def member(self, user: str) -> Membership:
        """NotAMember for anybody else."""
        found = self.members.get(user) if type(user) is str else None
        if found is None:
            raise NotAMember(self.name, user)
        return found

    def owned_by(self, user: str, wanted: str) -> Membership:
        """The owner, if it is the user that asked; else NotOwner."""
        if user != self.owner:
            raise NotOwner(self.name, user, wanted, self.owner)
        return self.members[user]

    def others(self) -> tuple[str, ...]:
        """The participants that are not the owner, in the order of their names."""
        return tuple(sorted(self.members.keys() - {self.owner}))


class RosterImage(msgspec.Struct, frozen=True):
    """A whole roster in one record."""

    channels: tuple[Managed, ...] = ()
    former: tuple[str, ...] = ()
    """Names of channels that were destroyed: who creates one anew takes over what is kept under it."""
    left: dict[str, tuple[str, ...]] = {}
    """By channel, groups of former members whose cursors may still be there."""


class EventRecord(msgspec.Struct, frozen=True):
    """An event of a managed channel, and who of those it is for has acknowledged it."""

    supplier: str
    channel: str
    event: Any
    state: dict[str, bool]
    """By member, whether it has acknowledged the event."""
    at_ns: int
    """When it was appended, by the keeper's clock, in ns since 1970."""
    offset: int


class Roster:
    """See the module. Has one writer; readers need no lock, since what they find never changes.

    Args:
        log: what was.
        used: numbers up to this one are not given again, though records that had them may be lost.
    """

    def __init__(self, log: Iterable[Activity] = (), used: int = 0) -> None:
        self._channels: dict[str, Managed] = {}
        self._former: set[str] = set()
        self._left: dict[str, set[str]] = {}
        self._number = used
        self.term = 0
        """The latest that a record has."""
        for record in log:
            self.apply(record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def channels(self) -> tuple[Managed, ...]:
        return tuple(found for _, found in sorted(self._channels.items()))

    def get(self, name: str) -> Managed | None:
        return self._channels.get(name)

    def find(self, name: str) -> Managed:
        found = self._channels.get(name) if type(name) is str else None
        if found is None:
            raise EventChannelNotFound(name)
        return found

    def had(self, name: str) -> bool:
        """Whether there was a channel of that name, which is destroyed."""
        return name in self._former

    def groups_left(self, name: str) -> Container[str]:
        """The groups of former participants of channels of that name."""
        return self._left.get(name, frozenset())

    # What may be

    def check_free(self, name: str) -> None:
        """NameAlreadyUsed when there is a channel of that name."""
        found = self._channels.get(name)
        if found is not None:
            raise NameAlreadyUsed(name, found.owner)

    def creating(
        self, name: str, owner: str, at_ns: int, *, access: Access, types: Iterable[str] = (), begins: int = 0
    ) -> Activity:
        self.check_free(name)
        record = self._record("created", name, owner, at_ns, access)
        record.begins, record.types = begins, list(types)
        return record

    def joining(
        self,
        name: str,
        user: str,
        at_ns: int,
        *,
        access: Access,
        where: str | None = None,
        begins: int = 0,
    ) -> Activity:
        found = self.find(name)
        if user in found.members:
            has = found.members[user].access
            raise NotPossible(name, f"{user!r} is a member already, with access={has!r}; leave() first")
        if where is not None and access == "supply":
            raise NotPossible(name, f"{user!r} only supplies: where= is for who consumes")
        record = self._record("joined", name, user, at_ns, access)
        record.where, record.begins = where, begins
        return record

    def orphaned(self, name: str, at_ns: int, heir: str | None) -> Activity:
        """The owner of a channel is gone: another member owns it, or, without one, it is destroyed."""
        found = self.find(name)
        owner = found.members[found.owner]
        if heir is None:
            return self._record("destroyed", name, found.owner, at_ns, owner.access)
        record = self._record("transferred", name, found.owner, at_ns, owner.access)
        record.new_owner = found.member(heir).user
        return record

    def leaving(self, name: str, user: str, at_ns: int) -> Activity:
        found = self.find(name)
        member = found.member(user)
        if user == found.owner:
            raise NotPossible(
                name, f"its owner {user!r} cannot leave: manager.transfer() or manager.destroy() it first"
            )
        return self._record("left", name, user, at_ns, member.access)

    def suspending(self, name: str, by: str, at_ns: int) -> Activity:
        found = self.find(name)
        owner = found.owned_by(by, "suspend")
        if found.suspended:
            raise NotPossible(name, "is suspended already; manager.restart() lets it go on")
        return self._record("suspended", name, by, at_ns, owner.access)

    def restarting(self, name: str, by: str, at_ns: int) -> Activity:
        found = self.find(name)
        owner = found.owned_by(by, "restart")
        if not found.suspended:
            raise NotPossible(name, "is not suspended, so there is nothing to restart")
        return self._record("restarted", name, by, at_ns, owner.access)

    def transferring(self, name: str, by: str, to: str, at_ns: int) -> Activity:
        found = self.find(name)
        owner = found.owned_by(by, "transfer")
        if found.member(to).user == by:
            raise NotPossible(name, f"{by!r} owns it already: name another member")
        record = self._record("transferred", name, by, at_ns, owner.access)
        record.new_owner = to
        return record

    def destroying(self, name: str, by: str, at_ns: int) -> Activity:
        return self._record("destroyed", name, by, at_ns, self.find(name).owned_by(by, "destroy").access)

    def compacting(self, at_ns: int, has_cursor: Callable[[str, str], bool]) -> Activity:
        """All that there is, in one record.

        Args:
            at_ns: now.
            has_cursor: whether the cursor of a group of a channel may still be there.
        """
        left = {
            name: tuple(sorted(g for g in groups if has_cursor(name, g)))
            for name, groups in self._left.items()
        }
        image = RosterImage(
            self.channels(),
            tuple(sorted(self._former)),
            {name: found for name, found in left.items() if found},
        )
        record = Activity(USER_TYPES["both"], "", "", at_ns, "compacted", self._number + 1, [])
        record.roster = msgspec.msgpack.decode(msgspec.msgpack.encode(image))
        return record

    def _record(self, kind: str, name: str, user: str, at_ns: int, access: Access) -> Activity:
        return Activity(_user_type(name, access), user, name, at_ns, kind, self._number + 1, [])

    # What was

    def apply(self, record: Activity) -> None:
        """Change what a record says. One that does not fit, which no manager writes, changes nothing.

        Neither does one of a manager that had been succeeded by then.
        """
        self._number = max(self._number, record.number)
        if record.term < self.term:
            return
        self.term = record.term
        name, found = record.channel, self._channels.get(record.channel)
        if record.kind == "compacted":
            self._restore(record)
            return
        if record.kind == "created":
            if found is None:
                members = {record.user: _membership(record)}
                new = Managed(
                    name,
                    record.user,
                    members,
                    tuple(record.types),
                    record.begins,
                    description=record.description,
                    attributes=_texts(record.attributes),
                    members_only=record.members_only,
                )
                self._channels[name] = new
            return
        if record.kind not in KINDS:
            raise NotPossible(ACTIVITY, f"has a record of kind {record.kind!r}: a newer program wrote it")
        if found is None:
            return
        if record.kind == "destroyed":
            del self._channels[name]
            self._former.add(name)
            self._note_left(name, found.members.values())
            return
        changed = self._channels[name] = _changed(found, record)
        if record.kind == "left":
            gone = found.members.keys() - changed.members.keys()
            self._note_left(name, [found.members[user] for user in gone])

    def _restore(self, record: Activity) -> None:
        try:
            image = msgspec.convert(record.roster, RosterImage)
        except msgspec.ValidationError as error:
            raise NotPossible(ACTIVITY, f"has a compaction that cannot be read: {error}") from error
        self._channels = {found.name: found for found in image.channels}
        self._former = set(image.former)
        self._left = {name: set(groups) for name, groups in image.left.items()}

    def _note_left(self, name: str, members: Iterable[Membership]) -> None:
        self._left.setdefault(name, set()).update(member.group for member in members)


KINDS: Final = ("created", "joined", "left", "suspended", "restarted", "transferred", "destroyed")


def _changed(found: Managed, record: Activity) -> Managed:
    """A channel after something else than its beginning or end."""
    user, replace = record.user, msgspec.structs.replace
    match record.kind:
        case "joined" if user not in found.members:
            return replace(found, members={**found.members, user: _membership(record)})
        case "left" if user != found.owner:
            return replace(found, members={who: m for who, m in found.members.items() if who != user})
        case "suspended" | "restarted":
            return replace(found, suspended=record.kind == "suspended")
        case "transferred" if record.new_owner in found.members:
            return replace(found, owner=record.new_owner)
    return found


def _membership(record: Activity) -> Membership:
    access = _ACCESS.get(record.user_type, "both")
    return Membership(record.user, access, record.number, record.where, record.begins, record.lease)


def _texts(attributes: Any) -> dict[str, str]:
    """What a record says of attributes, which is a map of texts unless somebody else wrote it."""
    found = attributes if isinstance(attributes, dict) else {}
    return {name: text for name, text in found.items() if isinstance(name, str) and isinstance(text, str)}


def _user_type(channel: str, access: Access) -> str:
    if access not in get_args(Access):
        raise NotPossible(channel, f"access={access!r:.60}: allowed are {', '.join(get_args(Access))}")
    return USER_TYPES[access]
