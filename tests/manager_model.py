"""What owners and members are, in the fewest words: what tests of the manager compare it with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.manager import Managed, Manager

OWNERS_ONLY = ("suspended", "restarted", "transferred", "destroyed")


class Drawing(hg.Event, name="model.drawing"):
    number: int


class Operation(NamedTuple):
    """What somebody asks for, by the kind of the record that it would leave."""

    kind: str
    channel: str
    user: str
    access: str
    to: str


class Model:
    """See the module."""

    def __init__(self) -> None:
        self.owner: dict[str, str] = {}
        self.suspended: set[str] = set()
        self.members: dict[str, dict[str, str]] = {}

    def allows(self, asked: Operation) -> bool:
        kind, name, user, _, to = asked
        members, owner = self.members.get(name, {}), self.owner.get(name)
        if kind == "created" or owner is None:
            return kind == "created" and owner is None
        if kind == "joined":
            return user not in members
        if kind == "left":
            return user in members and user != owner
        has_sense = {
            "suspended": name not in self.suspended,
            "restarted": name in self.suspended,
            "transferred": to in members and to != owner,
            "destroyed": True,
        }
        return user == owner and has_sense[kind]

    def do(self, asked: Operation) -> None:
        kind, name, user, access, to = asked
        if kind == "created":
            self.owner[name], self.members[name] = user, {user: access}
        elif kind == "joined":
            self.members[name][user] = access
        elif kind == "left":
            del self.members[name][user]
        elif kind == "suspended":
            self.suspended.add(name)
        elif kind == "transferred":
            self.owner[name] = to
        else:
            self.suspended.discard(name)
            if kind == "destroyed":
                del self.owner[name], self.members[name]

    def shown(self) -> dict[str, Any]:
        return {
            name: (owner, name in self.suspended, self.members[name]) for name, owner in self.owner.items()
        }


def shown(channels: Iterable[Managed]) -> dict[str, Any]:
    return {
        one.name: (one.owner, one.suspended, {user: m.access for user, m in one.members.items()})
        for one in channels
    }


def perform(manager: Manager, asked: Operation) -> None:
    """Ask the manager for it."""
    kind, name, user, access, to = asked
    given_access: Any = access
    match kind:
        case "created":
            manager.create(name, Drawing, owner=user, access=given_access)
        case "joined":
            manager.join(name, user, access=given_access)
        case "left":
            manager.leave(name, user)
        case "suspended":
            manager.suspend(name, by=user)
        case "restarted":
            manager.restart(name, by=user)
        case "transferred":
            manager.transfer(name, by=user, to=to)
        case _:
            manager.destroy(name, by=user)
