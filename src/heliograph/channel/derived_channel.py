"""What `channel.derive(...)` returns: a derived channel as its receivers see it.

It has what a channel has for receivers, and nothing for suppliers: events are pushed into the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from heliograph.errors import NotPossible
from heliograph.model.event import Event
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.explain import Why
    from heliograph.channel.filtered_channel import FilteredChannel
    from heliograph.channel.ledger import ChannelStats
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.selection import Selection
    from heliograph.filters.derivation import Derivation
    from heliograph.model.event import Header
    from heliograph.model.formats import Format

T = TypeVar("T", bound=Event)


class DerivedCounts(msgspec.Struct, frozen=True):
    """What one station has derived for one derived channel."""

    derived: int = 0
    """Events that were derived, once for all receivers."""
    left_out: int = 0
    """Events of versions that lack what the projection reads."""
    bytes_before: int = 0
    """What the originals take, as `heliograph.codec.sizes` estimates it."""
    bytes_after: int = 0
    """What the derived events take."""
    failed: int = 0
    """Events for which the class of `into=` raised: `on_error` was told, and they were not derived."""

    @property
    def bytes_saved(self) -> int:
        """Of the events that were derived, each counted once."""
        return self.bytes_before - self.bytes_after


class Deriving(Protocol):
    """What derives events; see `heliograph.derived.transform`."""

    cls: type[Event]

    def counts(self) -> DerivedCounts: ...

    def function(self, cls: type[Event]) -> Callable[..., Event] | None: ...

    def header(self, header: Header, event: Event) -> Header: ...


class Derives(NamedTuple):
    """What a channel is derived from, and how."""

    derivation: Derivation
    original: Channel[Any]
    selection: Selection
    """Which events of the original are derived."""
    transform: Deriving
    passed: Callable[[], int]
    """How many events of the original this station has looked at."""
    wait_idle: Callable[[float | None], bool]
    """Waits until what was pushed into the original is derived."""
    asked: list[bool]
    """Whether a program of this station has asked for it; one item, which may change."""

    @property
    def is_asked(self) -> bool:
        return self.asked[0]


class Saved(msgspec.Struct, frozen=True):
    """What receivers of a derived channel were spared, of the events that this station derived."""

    events: int
    """Events that the filter left out."""
    bytes: int
    """What those and the columns that were left out take, as `heliograph.codec.sizes` estimates it."""


class DerivedStats(msgspec.Struct, frozen=True):
    """One derived channel at one instant, as this station has it."""

    channel: ChannelStats
    """The derived channel's own ledger."""
    counts: DerivedCounts
    saved: Saved
    """For each receiver that gets all of it."""
    receivers: dict[str, Saved]
    """For those that are there now, by name: gateways to other stations are among them."""


class DerivedChannel(Generic[T]):
    """See the module."""

    def __init__(self, channel: Channel[Any], derives: Derives) -> None:
        self._channel = channel
        self._derives = derives
        self.name = channel.name
        """The name under which statistics and other stations have it."""

    def __repr__(self) -> str:
        closed = ", closed" if self._channel.closed else ""
        return f"<DerivedChannel {self._derives.derivation}{closed}>"

    @property
    def digest(self) -> str:
        """The same for all who ask for the same."""
        return self._derives.derivation.digest

    @property
    def event_type(self) -> type[T]:
        """The class of its events."""
        found: type[T] = self._derives.transform.cls  # type: ignore[assignment]  # `into`, or any
        return found

    @property
    def format(self) -> Format:
        """The format of its events."""
        return self.event_type.__event_info__.format

    @property
    def qos(self) -> Any:
        return self._channel.qos

    @property
    def closed(self) -> bool:
        return self._channel.closed

    def subscribe(self, *args: Any, **options: Any) -> Any:
        """As `Channel.subscribe`; filters are about the columns, and run behind the derivation."""
        return self._channel.subscribe(*args, **options)

    def unsubscribe(self, callback: Any) -> None:
        """As `Channel.unsubscribe`."""
        self._channel.unsubscribe(callback)

    def consumer(self, **options: Any) -> Consumer[T]:
        """As `Channel.consumer`. `start`, `until` and `name` work as on the original."""
        return self._channel.consumer(**options)

    def where(self, *args: Any, **options: Any) -> FilteredChannel:
        """As `Channel.where`, for patterns."""
        return self._channel.where(*args, **options)

    def as_stream(self) -> FilteredChannel:
        """All events, as a part of a pattern."""
        return self._channel.as_stream()

    def why(self, event: Any, receiver: str) -> Why:
        """As `Channel.why`; the event is one of the original, or its offset."""
        if isinstance(event, self.event_type):
            wanted = self._derives.derivation.type
            raise NotPossible(
                self._derives.original.name,
                f"a derived event does not say what it was made of: give one of {wanted}",
            )
        return self._derives.original.why(event, receiver)

    def settle(self, timeout: float | None = None) -> bool:
        """As `Channel.settle`, for what was pushed into the original of this station before."""
        clock = self._channel.ports.clock
        until = None if timeout is None else clock.monotonic_ns() + round(timeout * 1e9)
        if not self._derives.wait_idle(timeout):
            return False
        return self._channel.settle(None if until is None else seconds_until(clock, until))

    def wait_matched(self, consumers: int = 1, timeout: float | None = None) -> bool:
        """As `Channel.wait_matched`."""
        return self._channel.wait_matched(consumers, timeout)

    def stats(self) -> DerivedStats:
        """Its ledger, and what deriving at this station has saved."""
        return stats_of(self._channel, self._derives)

    def close(self, timeout: float = 5.0) -> dict[str, int]:
        """As `Channel.close`, for all in this process who have derived the same."""
        return self._channel.close(timeout)

    def __enter__(self) -> DerivedChannel[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stats_of(channel: Channel[Any], derives: Derives) -> DerivedStats:
    """A derived channel, and what it has saved at this station."""
    stats, counts, passed = channel.stats(), derives.transform.counts(), derives.passed()
    left_out = max(0, passed - counts.derived - counts.failed)
    each = counts.bytes_before / max(1, counts.derived)

    def saved(share: float) -> Saved:
        """For a receiver that got that share of what was derived."""
        return Saved(left_out, round(counts.bytes_saved * min(1.0, share) + left_out * each))

    shares = {name: one.total / max(1, counts.derived) for name, one in stats.consumers.items()}
    return DerivedStats(stats, counts, saved(1.0), {name: saved(share) for name, share in shares.items()})
