"""The protocol of a history store, as channels use it; the journal implements it.

The channel hands over events with their headers and gets the same back, complete with partition, offset and
`append_ts`. How they are written, sealed and expired is the store's own affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from heliograph.channel.ack_protocol import Acking, CoordinatorPort, JoinRequest
    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.selection import Selection
    from heliograph.errors import HeliographError
    from heliograph.model.event import Event
    from heliograph.model.history_epochs import Epochs

Level: TypeAlias = Literal["journal", "synced"]
OnDurable: TypeAlias = "Callable[[str, Sequence[OutgoingBatch] | None, int], object]"
"""Told of a partition what has become durable, and the offset behind it. None in place of batches: events are
to be read from it."""


class StoreReceipt(Protocol):
    """The promise of an append."""

    def result(self, timeout: float | None = None) -> object:
        """Wait until the level is met; raises a named error when it cannot be, or is not in time."""
        ...

    def done(self) -> bool: ...

    def add_done_callback(self, callback: Callable[..., object]) -> None: ...

    def error(self) -> BaseException | None: ...


class Tombstone(NamedTuple):
    """Says of a key that it is gone, in a history that is compacted."""

    cls: type[Event]
    key: tuple[Any, ...]
    supplier: str
    epoch: int
    sequence: int
    source_ts: int
    station_seq: int


class Telling(Protocol):
    """What a cursor elsewhere was told; its keeper may not have it yet."""

    @property
    def is_kept(self) -> bool: ...

    @property
    def failure(self) -> HeliographError | None:
        """What bars it for ever."""
        ...

    def soon(self) -> bool:
        """Whether it is kept, after waiting a moment for a keeper that is not known to be late.

        Raises what bars it for ever.
        """
        ...

    def result(self) -> None:
        """Wait until it is kept, as long as keepers are waited for; QueryFailed when it is not by then."""
        ...

    def then(self, call: Callable[[HeliographError | None], object]) -> None:
        """Call this, once, when it is kept, or with what bars it for ever."""
        ...


class HistoryCursor(Protocol):
    """How far a durable consumer has come. Exclusive: opening it anew fences whoever had it before."""

    @property
    def position(self) -> int | None:
        """The first offset that it has not acknowledged; None when it was never used."""
        ...

    @property
    def acks(self) -> frozenset[int]:
        """Offsets above it that are acknowledged all the same."""
        ...

    @property
    def reach(self) -> int:
        """The offset below which events may have been handed out."""
        ...

    @property
    def epoch(self) -> int:
        """Which opening of it this is; only the last may commit."""
        ...

    @property
    def attempts(self) -> Mapping[int, int]:
        """How often offsets that are not acknowledged were handed out, of those that came again."""
        ...

    def commit(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> Telling | None:
        """Everything below is acknowledged, and so are these.

        None when that is durable; else its keeper is told of it, again and again if need be.
        """
        ...

    def withdraw(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> Telling | None:
        """As `commit`, and nothing else is acknowledged: what an earlier one said may be taken back."""
        ...

    def close(self) -> Telling | None:
        """Let others have it; None when they can, else it is on its way to its keeper."""
        ...

    def forsake(self) -> None:
        """Tell its keeper nothing more: another cursor of this name takes its place."""
        ...


class SupplierLease(Protocol):
    """A named supplier, as its present holder has it."""

    epoch: int
    last_sequence: int

    def close(self) -> None: ...


class HistoryPartition(Protocol):
    """What one station keeps of a channel's history, to be read, with the places of its durable consumers."""

    partition: str
    """Its id, which is unique for ever."""
    kept_here: bool
    """Whether this station keeps it, or another one."""

    def desk(self, wish: JoinRequest, selection: Selection, acking: Acking) -> CoordinatorPort | None:
        """Where its keeper hands the events of the selection's group out to a member; None: here.

        CursorHeld when the group is open at another keeper, QueryFailed when this one is away or not ready.
        """
        ...

    @property
    def reachable(self) -> bool:
        """Whether its keeper is there at this moment."""
        ...

    @property
    def watermark(self) -> int:
        """Everything below this offset is durable."""
        ...

    @property
    def epochs(self) -> Epochs:
        """Which writers wrote it, as far as this station has met them."""
        ...

    def met_again(self, epochs: Epochs) -> None:
        """Its keeper is there again, and says which writers wrote it."""
        ...

    @property
    def earliest(self) -> int:
        """The first offset that is still kept."""
        ...

    def read(
        self,
        start: int,
        most: int,
        below: int | None = None,
        *,
        as_kept: bool = False,
        only: Collection[str] | None = None,
    ) -> tuple[list[Item], int]:
        """Events from an offset on, and the offset to go on at; nothing new when it comes back unchanged.

        Events of types that the channel does not carry here, or that are not among `only` these, are passed
        over. Raises HistoryGone with the exact range when retention was faster, and IncompatibleFormats or
        DecodeError where the first event cannot be read: what cannot be read is never passed over.

        They come in the channel's classes; `as_kept`, for other stations, each in the version of its class
        that it was pushed in. So do they where the channel's own class was made of a format: no program has
        it.
        """
        ...

    def offset_at(self, append_ts: int) -> int:
        """The first offset appended at that time (ns) or later."""
        ...

    def cursor(self, name: str, owner: str | None = None, epoch: int | None = None) -> HistoryCursor:
        """The cursor of a durable consumer; CursorHeld while another owner has it.

        With an epoch it is not opened anew: who had it goes on; CursorFenced if somebody opened it since.
        """
        ...

    def supplier(self, name: str, owner: str | None = None) -> SupplierLease:
        """The lease of a named supplier, which fences its last holder; SupplierHeld while that has one."""
        ...


class HistoryStore(HistoryPartition, Protocol):
    """The partition into which this station's own pushes go."""

    kept_here: bool
    """Whether this station appends, or asks another one to."""

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until it can be appended to; raises when that is not so in time. Without any lock.

        Only another station can be away: where the store is kept here this returns at once.
        """
        ...

    def append(self, batch: OutgoingBatch, level: Level, timeout: float | None = None) -> StoreReceipt:
        """Keep events, whole or not at all, in the order of calls. What is durable comes back."""
        ...

    def forget(self, gone: Tombstone, level: Level) -> StoreReceipt:
        """Keep a tombstone. In the order of calls, with `append`."""
        ...

    def append_once(
        self, batch: OutgoingBatch, push_id: str, level: Level, timeout: float | None = None
    ) -> StoreReceipt:
        """Keep one event, unless one of that id is among the last that are kept; then the receipt is its."""
        ...

    def finish(self) -> None:
        """Write what is in line and take nothing more; what is kept can still be read."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class KeepingStore(HistoryStore, Protocol):
    """The store of a channel whose history this station keeps."""

    def append_due(self, item: Item, push_id: str) -> StoreReceipt:
        """As `append_once`, synced, for an event that was taken from its supplier before.

        Whoever holds the supplier's name by now, it is kept.
        """
        ...

    def check_holder(self, supplier: str, epoch: int) -> None:
        """SupplierFenced when the name of a supplier is another's by now."""
        ...
