"""The manager of a domain, from any of its stations: channels and participants that other stations keep.

    with hg.Station(domain="studio") as station:
        manager = station.domain_manager          # no folder here: a station of the domain that has one keeps
        manager.create("project.wing", Drawing, owner="anna")
        anna = manager.join("project.wing", "bert", access="consume")

It has the face of `heliograph.manager.manager.Manager`. What is asked for is decided and recorded by the
station that keeps the channel; what a participant opens is opened here. Who joins from here is a participant
for as long as this process lives: it has a lease, which is renewed while the station is open.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import msgspec

from heliograph.channel.names import check_channel
from heliograph.errors import HeliographError, NotAMember, NotPossible
from heliograph.manager.member import Member, insist_on_access
from heliograph.manager.open_ends import OpenEnds
from heliograph.manager.roster import Managed
from heliograph.model.event import Event
from heliograph.qos.policies import QoS, policies_of
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.registry import Access
    from heliograph.runtime.ports import Ports
    from heliograph.runtime.timers import Timers

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)
E = TypeVar("E")

MEMBER_LEASE: Final = 10.0
"""Seconds after which a participant whose process has died leaves, unless another is said."""


class Keepers(Protocol):
    """The stations of the domain that keep managed channels."""

    def call(self, channel: str, call: str, arguments: dict[str, Any]) -> Any:
        """Have the keeper of a channel do something; EventChannelNotFound when no station knows it.

        `types` among the arguments are classes.
        """
        ...

    def call_all(self, call: str, arguments: dict[str, Any]) -> list[Any]:
        """What all of them return."""
        ...


class FoundChannel(msgspec.Struct, frozen=True):
    """A managed channel, and the partition that its keeper has of it."""

    managed: Managed
    partition: str


class DomainManager:
    """See the module; made by `station.domain_manager`."""

    def __init__(
        self, ports: Ports, timers: Timers, open_channel: Callable[..., Channel[Any]], keepers: Keepers
    ) -> None:
        self._ports = ports
        self._timers = timers
        self._open_channel = open_channel
        self._keepers = keepers
        self._lock = ports.tasks.lock("domain manager")
        self._renewed: dict[tuple[str, str], float] = {}
        """Participants of this process, with their leases."""
        self._timer: Any = None
        self._is_renewing = False
        self._ends: OpenEnds[tuple[str, str]] = OpenEnds()
        self._types: dict[str, tuple[type[Any], ...]] = {}

    # Channels

    @names_options
    def create(
        self,
        name: str,
        *types: type[T],
        owner: str,
        access: Access = "both",
        qos: QoS | None = None,
        lease: float = MEMBER_LEASE,
        description: str = "",
        attributes: Mapping[str, str] | None = None,
        members_only: bool = True,
    ) -> Channel[T]:
        """As `Manager.create`; only members push and consume in it, unless `members_only` is False."""
        check_channel(name, types, qos, None, access)
        if not types:
            raise NotPossible(name, "a new channel needs the event classes that it carries")
        kept = qos or QoS(durability="persistent")
        arguments = {
            "types": types,
            "owner": owner,
            "access": access,
            "qos": policies_of(kept),
            "lease": lease,
            "description": description,
            "attributes": dict(attributes or {}),
            "members_only": members_only,
        }
        self._keepers.call(name, "create", arguments)
        self._types[name] = types
        self._keep_renewing(name, owner, lease)
        return self._open_channel(name, *types, qos=kept)

    def find(self, name: str, *types: type[T]) -> Channel[T]:
        """The channel of that name, opened here; EventChannelNotFound when no station manages it."""
        self._found(name)
        return self._open(name, *types)

    def channels(self, pattern: str = "**") -> tuple[Managed, ...]:
        """Those of all stations whose name fits."""
        return self.search(pattern)

    @names_options
    def search(
        self,
        pattern: str = "**",
        *,
        type: str | None = None,  # noqa: A002 - a type is what it names
        text: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> tuple[Managed, ...]:
        """As `Manager.search`, in all stations of the domain."""
        wanted = {"pattern": pattern, "type": type, "text": text, "attributes": dict(attributes or {})}
        told = self._keepers.call_all("search", wanted)
        found = [managed for one in told for managed in msgspec.convert(one, list[Managed])]
        return tuple(sorted(found, key=lambda managed: managed.name))

    def find_managed(self, name: str) -> Managed:
        return self._found(name).managed

    # Participants

    @names_options
    def join(
        self,
        name: str,
        user: str,
        *,
        access: Access = "both",
        history: bool = False,
        where: str | None = None,
        lease: float = MEMBER_LEASE,
    ) -> Member:
        """As `Manager.join`, for as long as this process lives; with `lease=0` for ever."""
        arguments = {"user": user, "access": access, "history": history, "where": where, "lease": lease}
        self._keepers.call(name, "join", arguments)
        self._keep_renewing(name, user, lease)
        return Member(self, name, user)

    def member(self, name: str, user: str) -> Member:
        """A participant; NotAMember when the user has not joined, or has left."""
        member = self._found(name).managed.member(user)
        self._keep_renewing(name, user, member.lease)
        return Member(self, name, user)

    def leave(self, name: str, user: str) -> None:
        self._keepers.call(name, "leave", {"user": user})
        self._let_go(name, user)

    # What the owner may ask for

    @names_options
    def suspend(self, name: str, *, by: str) -> None:
        self._keepers.call(name, "suspend", {"by": by})

    @names_options
    def restart(self, name: str, *, by: str) -> None:
        self._keepers.call(name, "restart", {"by": by})

    @names_options
    def transfer(self, name: str, *, by: str, to: str | None = None) -> str:
        return str(self._keepers.call(name, "transfer", {"by": by, "to": to}))

    @names_options
    def destroy(self, name: str, *, by: str) -> None:
        managed = self.find_managed(name)
        self._keepers.call(name, "destroy", {"by": by})
        for user in managed.members:
            self._let_go(name, user)

    @names_options
    def transfer_event(self, source: str, to: str, offset: int, *, by: str) -> bool:
        return bool(self._keepers.call(source, "transfer_event", {"to": to, "offset": offset, "by": by}))

    # For members and the station

    def open_end(
        self,
        member: Member,
        needs: Literal["consumes", "supplies"],
        opening: Callable[[Channel[Any], dict[str, Any]], E],
    ) -> E:
        """Open something for a participant whose access allows it; it is closed when it leaves."""
        found = self._found(member.channel)
        membership = found.managed.member(member.user)
        insist_on_access(member, membership, needs)
        channel = self._open(member.channel)
        # What the manager has just said may not have reached this station's channel yet.
        channel.admit(lambda: found.managed.admission, found.partition)
        end = opening(channel, membership.place(found.partition))
        with self._lock:
            self._ends.add((member.channel, member.user), end)
        return end

    def close(self) -> None:
        """Renew nothing any more: participants of this process leave when their leases are over."""
        with self._lock:
            self._renewed.clear()
            if self._timer is not None:
                self._timer.cancel()

    # Inside

    def _found(self, name: str) -> FoundChannel:
        return msgspec.convert(self._keepers.call(name, "find", {}), FoundChannel)

    def _open(self, name: str, *types: type[Any]) -> Channel[Any]:
        if types:
            self._types[name] = types
        return self._open_channel(name, *self._types.get(name, ()))

    def _let_go(self, name: str, user: str) -> None:
        with self._lock:
            self._renewed.pop((name, user), None)
        self._ends.close((name, user))

    def _keep_renewing(self, name: str, user: str, lease: float) -> None:
        if not lease:
            return
        with self._lock:
            self._renewed[name, user] = lease
            period = min(self._renewed.values()) / 4
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._timers.every(period, self._renew_soon)

    def _renew_soon(self) -> None:
        """Of a timer, which does not wait."""
        with self._lock:
            if self._is_renewing or not self._renewed:
                return
            self._is_renewing = True
        self._ports.tasks.spawn_soon("renewal of members", self._renew_all)

    def _renew_all(self) -> None:
        try:
            for name, user in tuple(self._renewed):
                self._renew(name, user)
        finally:
            self._is_renewing = False

    def _renew(self, name: str, user: str) -> None:
        try:
            self._keepers.call(name, "renew", {"user": user})
        except NotAMember:
            log.warning("%r is no member of %s any more: its lease was over", user, name)
            self._let_go(name, user)
        except HeliographError as error:  # its keeper may be back before the lease is over
            log.info("the membership of %r in %s is not renewed yet: %s", user, name, error)
