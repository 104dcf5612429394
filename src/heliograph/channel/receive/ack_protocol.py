"""The acknowledgement protocol: ack options, and what a channel asks of a coordinator.

`heliograph.delivery` fulfils it: a `Coordinator` hands the events of one lane out to its seats, one per
consumer, and settles what they acknowledge. A durable consumer has a desk of its own, the members of a group
share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, get_args

import msgspec

from heliograph.errors import NotPossible
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.history.positions import Cursors
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.channel.receive.options import Options
    from heliograph.errors import HeliographError
    from heliograph.model.event import Event, Header

Ack: TypeAlias = Literal["auto", "manual", "before"]
Order: TypeAlias = Literal["arrival", "key"]

LEASE_SECONDS: Final = 30.0
"""How long a consumer may keep an event, where somebody waits for its acknowledgement."""
IN_FLIGHT: Final = 1_000
"""Events that one consumer may hold."""


class Acking(TypedDict, total=False):
    """What a consumer may say about acknowledging; see `agree`."""

    ack: Ack
    lease: float | None
    max_in_flight: int
    max_deliveries: int | None
    dead_letter: str | None
    order: Order


class AckOptions(msgspec.Struct, frozen=True):
    """What was agreed, checked."""

    ack: Ack = "auto"
    lease: float | None = None
    max_in_flight: int = IN_FLIGHT
    max_deliveries: int | None = None
    dead_letter: str | None = None
    order: Order = "arrival"


_BITS: Final = 64
_PLACE: Final = (1 << _BITS) - 1


def numbered(stream: int, place: int) -> int:
    """The number of an event that is at a place of a stream; streams are counted from 0."""
    return stream << _BITS | place


def stream_of(number: int) -> int:
    return number >> _BITS


def place_of(number: int) -> int:
    return number & _PLACE


class Handed(NamedTuple):
    """An event in a consumer's hands."""

    number: int
    """Names it at its desk."""
    event: Event
    header: Header
    attempt: int
    deadline: int = 0
    """The monotonic instant in ns when its lifespan ends; 0 when it has none."""


class JoinRequest(NamedTuple):
    """How a member of a group wants to sit down at a desk elsewhere."""

    member: str
    raises_gaps: bool
    known: tuple[str, ...]
    """Partitions within its reach: the desk has to have them all."""
    patient: bool
    """Whether to wait for a keeper that is away or not ready."""


class GroupMembership(Protocol):
    """One consumer's place at a desk."""

    @property
    def lost(self) -> bool:
        """Whether there is no place for it any more: it has to find another desk."""
        ...

    def unsent(self) -> list[tuple[str, int]]:
        """Partitions and offsets that were settled by a place that is lost, and not told to its desk."""
        ...

    def withdrawn(self) -> list[tuple[str, int]]:
        """The same of what could not be acknowledged by a place that is lost: it comes again."""
        ...

    def take(self, most: int = 1) -> list[Handed]:
        """The next events, without waiting."""
        ...

    def ack(self, number: int) -> bool:
        """It is settled, and that is kept when this returns; False when it was before.

        When this raises it is not settled: it comes again, although its keeper may have kept it.
        """
        ...

    def withdraw(self, number: int) -> None:
        """Whoever acknowledged it was told that this failed: it is not settled, whatever was kept."""
        ...

    def nak(self, number: int, delay: float) -> None:
        """It shall come again, to anybody, after so many seconds."""
        ...

    def settle(self, number: int) -> None:
        """As `ack`, for what is still held, and kept with the next batch."""
        ...

    def wait_seconds(self) -> float | None:
        """How long to wait for the bell before asking again; None: until it rings."""
        ...

    def give_back(self, numbers: Iterable[int]) -> None:
        """These were taken and nobody has seen them: as if they had never been out."""
        ...

    def ended(self) -> bool:
        """Whether nothing is left to take or to settle, where the lane has an end."""
        ...

    def leave(self) -> None:
        """Give back what is not settled."""
        ...

    def leave_behind(self) -> None:
        """As `leave`, of a place that is lost: its desk may be there all the same, and is not waited for."""
        ...


class HostMembership(GroupMembership, Protocol):
    """A place at a desk of this station, whoever's it is."""

    def ack_later(self, number: int, outcome: Callable[[bool | HeliographError], object]) -> None:
        """As `ack`, without waiting: `outcome` is told what it returns or raises."""
        ...


class Coordinator(Protocol):
    """Hands out the events of one lane."""

    terms: AckOptions

    def sit(self, member: str, ring: Callable[[], object]) -> GroupMembership:
        """A place for a consumer; `ring` is called when it should ask again."""
        ...

    def number_of(self, partition: str, offset: int) -> int:
        """What names an event of a history at this desk, handed out by now or not."""
        ...

    def ready(self, lane: Lane) -> None:
        """The lane has something to take."""
        ...

    def members(self) -> tuple[str, ...]: ...

    def close(self) -> None:
        """Keep what is settled, and let go of the cursor."""
        ...


class HostCoordinator(Coordinator, Protocol):
    """One of this station, at which members of others may sit too."""

    def sit(self, member: str, ring: Callable[[], object]) -> HostMembership: ...


class OpenCoordinator(Protocol):
    """Makes a desk."""

    def __call__(
        self,
        name: str,
        lane: Lane,
        terms: AckOptions,
        *,
        cursors: Cursors | None = None,
        taken: Sequence[Item] = (),
        add_dead_letter: Callable[[Item, int], object],
    ) -> HostCoordinator:
        """A desk for a lane.

        Args:
            name: of the consumer or group.
            lane: whose taker the desk becomes.
            terms: what was agreed.
            cursors: keep how far it has come.
            taken: what was taken from the lane before.
            bury: called with an event, and how often it was handed out, when that is often enough.
        """
        ...


def agree(
    channel: str,
    wanted: Iterable[type[Event]],
    *,
    shared: bool,
    ack: Ack = "auto",
    lease: float | None = None,
    max_in_flight: int = IN_FLIGHT,
    max_deliveries: int | None = None,
    dead_letter: str | None = None,
    order: Order = "arrival",
) -> AckOptions:
    """Check what a consumer says about acknowledging.

    Args:
        channel: its name, for errors.
        wanted: the event types that the consumer wants.
        shared: whether it is a member of a group.
        ack: "auto" acknowledges an event when the next is asked for, "manual" when `Delivery.ack` is called,
            "before" when it is handed out.
        lease: seconds after which an event that is not acknowledged goes to somebody else, or comes again;
            30 by default in groups and with "manual".
        max_in_flight: events that this consumer may hold.
        max_deliveries: how often an event is handed out before it counts as dead; without it, for ever.
        dead_letter: the channel that gets those.
        order: "key" hands out one event of a key at a time, so that later ones wait for it.
    """
    _check(channel, "ack", ack in get_args(Ack), f"{ack!r}: allowed are {', '.join(get_args(Ack))}")
    _check(channel, "order", order in get_args(Order), f"{order!r}: allowed are {', '.join(get_args(Order))}")
    _check(channel, "lease", lease is None or _is_number(lease, 1e-6), f"{lease!r}: seconds, more than none")
    _check_count(channel, "max_in_flight", max_in_flight)
    if max_deliveries is not None:
        _check_count(channel, "max_deliveries", max_deliveries)
    _check(
        channel,
        "dead_letter",
        dead_letter is None or max_deliveries is not None,
        "only with max_deliveries=: how often an event is handed out before it goes there",
    )
    _check(channel, "dead_letter", dead_letter != channel, "is another channel than the one that is read")
    if order == "key":
        keyed = all(info_of(cls).key for cls in wanted)
        _check(channel, "order", keyed, "'key' needs event types with a key=")
    if ack == "before":
        given = lease is not None or max_deliveries is not None or order == "key"
        _check(channel, "ack", not given, "'before' settles an event before it is seen: nothing comes again")
    if lease is None and ack != "before" and (shared or ack == "manual"):
        lease = LEASE_SECONDS
    return AckOptions(ack, lease, max_in_flight, max_deliveries, dead_letter, order)


def _check(channel: str, option: str, fits: bool, problem: str) -> None:
    if not fits:
        raise NotPossible(channel, f"{option}={problem}" if problem[0] in "'\"" else f"{option}= {problem}")


def _check_count(channel: str, option: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise NotPossible(channel, f"{option}={value!r}: a whole number from 1 on")


def _is_number(value: Any, least: float) -> bool:
    return type(value) in (int, float) and least <= value <= 1e9


def split(options: Mapping[str, Any]) -> tuple[Options, Acking]:
    """What a receiver wants, and how it acknowledges."""
    acks = Acking.__annotations__
    wanted: Any = {option: value for option, value in options.items() if option not in acks}
    acking: Any = {option: value for option, value in options.items() if option in acks}
    return wanted, acking
