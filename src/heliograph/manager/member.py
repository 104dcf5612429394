"""A participant of a managed channel: what it may do, as its access allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.publish.supplier import Supplier
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.manager.domain import DomainManager
    from heliograph.manager.manager import Manager
    from heliograph.manager.roster import Membership

SAID_WHEN_JOINING: Final = ("where", "params", "types", "sources", "group", "name", "start")
"""Options of receivers that a member has by its record."""


def insist_on_access(member: Member, membership: Membership, needs: Literal["consumes", "supplies"]) -> None:
    """NotPossible unless a participant may do that."""
    if not getattr(membership, needs):
        only = "consumes" if needs == "supplies" else "supplies"
        raise NotPossible(
            member.channel,
            f"{member.user!r} only {only} here: it joined with access={membership.access!r}; "
            "leave and join anew with access='both'",
        )


class Member:
    """Made by `manager.join` and `manager.member`.

    It consumes as a group of its own, from where it joined, by its recorded filter: all that it opens, at
    once or one after another, in this life of the station or the next, shares one cursor in the history. What
    it has not acknowledged comes again.
    """

    def __init__(self, manager: Manager | DomainManager, channel: str, user: str) -> None:
        self._manager = manager
        self.channel = channel
        """The channel's name."""
        self.user = user

    def __repr__(self) -> str:
        return f"<Member {self.user!r} of {self.channel!r}>"

    @property
    def membership(self) -> Membership:
        """Its access, filter and cursor, as recorded; NotAMember when it has left."""
        return self._manager.find_managed(self.channel).member(self.user)

    def consumer(self, **options: Any) -> Consumer[Any]:
        """Something to ask for its events; options as in `channel.consumer`, but for what it said when it
        joined.
        """
        self._check(options)
        return self._manager.open_end(
            self, "consumes", lambda channel, place: channel.consumer(name=self.user, **place, **options)
        )

    def subscribe(self, callback: Callable[..., object], **options: Any) -> Receiver:
        """Have a function called with its events, each acknowledged when it returns; options likewise."""
        self._check(options)
        return self._manager.open_end(
            self,
            "consumes",
            lambda channel, place: channel.subscribe(callback, name=self.user, **place, **options),
        )

    def supplier(self) -> Supplier[Any]:
        """A supplier of its name, whose sequence goes on from its last durable event; one at a time."""
        return self._manager.open_end(self, "supplies", lambda channel, _: channel.supplier(name=self.user))

    def leave(self) -> None:
        """Be no member any more; what it has open is closed. The owner cannot leave."""
        self._manager.leave(self.channel, self.user)

    def _check(self, options: dict[str, Any]) -> None:
        said = [name for name in options if name in SAID_WHEN_JOINING]
        if said:
            raise NotPossible(
                self.channel,
                f"{said[0]}=: what {self.user!r} gets was said when it joined; leave it out, or leave and "
                "join anew",
            )
