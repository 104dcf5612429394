"""The acknowledgement protocol: ack options, and what a channel asks of a coordinator.

`heliograph.delivery` fulfils it: a `CoordinatorPort` hands the events of one queue out to its members, each a
consumer, and settles what they acknowledge. A durable consumer has a coordinator of its own, the members of a
group share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Unpack

import msgspec

from heliograph.errors import NotPossible
from heliograph.model.event import info_of
from heliograph.qos.endpoint import IN_FLIGHT, LEASE_SECONDS, ConsumerAck, HandOut
from heliograph.qos.endpoint import Acking as Acking  # noqa: PLC0414 - callers know it from here
from heliograph.runtime.declared_options import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.history.positions import Cursors
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.errors import HeliographError, WindowFull
    from heliograph.model.event import Event, Header
    from heliograph.qos.endpoint import ReceiverOptions


class AckOptions(msgspec.Struct, frozen=True):
    """What was agreed, checked."""

    ack: ConsumerAck = "auto"
    lease: float | None = None
    max_in_flight: int = IN_FLIGHT
    max_deliveries: int | None = None
    dead_letter: str | None = None
    order: HandOut = "arrival"


REJECTED: Final = -1.0
"""In place of the delay of what is refused: it does not come again."""
MAX_REASON: Final = 500
"""Characters of what is said of an event that is refused."""

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
    """Names it at its coordinator."""
    event: Event
    header: Header
    attempt: int
    deadline: int = 0
    """The monotonic instant in ns when its lifespan ends; 0 when it has none."""
    epoch: bytes = b""
    """Of a group on a persistent channel: the epoch of the history that it is an event of, if that is
    known (`heliograph.model.history_epochs`)."""


class Spot(NamedTuple):
    """Names an event of a history wherever it is handed out: it outlives the coordinator that did."""

    partition: str
    offset: int
    epoch: bytes = b""
    """In which the offset was written; in another one it names another event. Empty: not known."""


class SpotNumbers:
    """Numbers of spots for one member, wherever its coordinator is: each coordinator numbers by itself."""

    def __init__(self) -> None:
        self._histories: list[tuple[str, bytes]] = []

    def number_of(self, spot: Spot) -> int:
        history = (spot.partition, spot.epoch)
        if history not in self._histories:
            self._histories.append(history)
        return numbered(self._histories.index(history), spot.offset)

    def spot_of(self, number: int) -> Spot:
        partition, epoch = self._histories[stream_of(number)]
        return Spot(partition, place_of(number), epoch)


def spot_of(handed: Handed) -> Spot:
    """Of an event of a persistent channel."""
    header = handed.header
    assert header.partition is not None
    assert header.offset is not None
    return Spot(header.partition, header.offset, handed.epoch)


class JoinRequest(NamedTuple):
    """How a member of a group wants to join a coordinator elsewhere."""

    member: str
    raises_gaps: bool
    known: tuple[str, ...]
    """Partitions within its reach: the coordinator has to have them all."""
    patient: bool
    """Whether to wait for a keeper that is away or not ready."""


class GroupMembership(Protocol):
    """One consumer's membership at a coordinator."""

    @property
    def lost(self) -> bool:
        """Whether it is a member no more, and has to find another coordinator."""
        ...

    def unsent(self) -> list[Spot]:
        """What was settled by a membership that is lost, and not told to its coordinator."""
        ...

    def withdrawn(self) -> list[Spot]:
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

    def nak(self, number: int, delay: float, reason: str = "") -> None:
        """It shall come again, to anybody, after so many seconds; below 0: it is dead. The reason is for dead
        letters."""
        ...

    def extend(self, number: int, seconds: float) -> bool:
        """It stays in these hands for so long from now on; False when it is not in them any more."""
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
        """Whether nothing is left to take or to settle, where the queue has an end."""
        ...

    def leave(self) -> None:
        """Give back what is not settled."""
        ...

    def leave_behind(self) -> None:
        """As `leave`, of a membership that is lost: its coordinator may be there, and is not waited for."""
        ...


class HostMembership(GroupMembership, Protocol):
    """A membership at a coordinator of this station, whoever's it is."""

    def ack_later(self, number: int, outcome: Callable[[bool | HeliographError], object]) -> None:
        """As `ack`, without waiting: `outcome` is told what it returns or raises."""
        ...


class CoordinatorPort(Protocol):
    """Hands out the events of one queue."""

    terms: AckOptions

    def sit(self, member: str, ring: Callable[[], object]) -> GroupMembership:
        """A place for a consumer; `ring` is called when it should ask again."""
        ...

    def number_of(self, spot: Spot) -> int | None:
        """What names an event of a history at this coordinator, handed out by now or not.

        None when the history went back in time, as it does when its keeper is restored from a copy: there
        is no such event in it any more.
        """
        ...

    def ready(self, queue: EventQueue) -> None:
        """The queue has something to take."""
        ...

    def members(self) -> tuple[str, ...]: ...

    def close(self) -> None:
        """Keep what is settled, and let go of the cursor."""
        ...


class HostCoordinator(CoordinatorPort, Protocol):
    """One of this station, at which members of others may sit too."""

    def sit(self, member: str, ring: Callable[[], object]) -> HostMembership: ...

    def put_off(self) -> int:
        """How many events were refused and come again after a while."""
        ...


class OpenCoordinator(Protocol):
    """Makes a coordinator."""

    def __call__(
        self,
        name: str,
        queue: EventQueue,
        terms: AckOptions,
        *,
        cursors: Cursors | None = None,
        taken: Sequence[Item] = (),
        add_dead_letter: Callable[[Item, int, str], object],
        on_full: Callable[[Header, WindowFull], object] | None = None,
    ) -> HostCoordinator:
        """A coordinator for a queue.

        Args:
            name: of the consumer or group.
            queue: whose taker the coordinator becomes.
            terms: what was agreed.
            cursors: keep how far it has come.
            taken: what was taken from the queue before.
            add_dead_letter: called with an event, how often it was handed out, when that is often enough, and
                what was said of it last.
            on_full: told once of each event that a full window waits for.
        """
        ...


def agree(
    channel: str, wanted: Iterable[type[Event]], *, shared: bool, **acking: Unpack[Acking]
) -> AckOptions:
    """Check what a consumer says about acknowledging.

    Args:
        channel: its name, for errors.
        wanted: the event types that the consumer wants.
        shared: whether it is a member of a group.
        **acking: see `heliograph.qos.endpoint.Acking`.
    """
    rows = rows_of(Acking)
    for name, value in acking.items():
        if (allowed := rows[name].why_not(value)) is not None:
            raise NotPossible(channel, f"{name}={value!r:.60}: allowed is {allowed}")
    said = AckOptions(**acking)
    if said.dead_letter is not None and said.max_deliveries is None:
        raise NotPossible(
            channel,
            "dead_letter= only with max_deliveries=: how often an event is handed out before it goes there",
        )
    if said.dead_letter == channel:
        raise NotPossible(channel, "dead_letter= is another channel than the one that is read")
    if said.order == "key" and not all(info_of(cls).key for cls in wanted):
        raise NotPossible(channel, "order='key' needs event types with a key=")
    if said.ack == "before" and (said.lease, said.max_deliveries, said.order) != (None, None, "arrival"):
        raise NotPossible(channel, "ack='before' settles an event before it is seen: nothing comes again")
    if said.lease is None and said.ack != "before" and (shared or said.ack == "manual"):
        return msgspec.structs.replace(said, lease=LEASE_SECONDS)
    return said


def split(options: Mapping[str, Any]) -> tuple[ReceiverOptions, Acking]:
    """What a receiver wants, and how it acknowledges."""
    acks = Acking.__annotations__
    wanted: Any = {option: value for option, value in options.items() if option not in acks}
    acking: Any = {option: value for option, value in options.items() if option in acks}
    return wanted, acking
