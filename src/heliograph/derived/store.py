"""The history of a derived channel: that of the original, derived as it is read.

Nothing is written. A derived event has the partition, offset and times of its original; what the filter
leaves out is passed over. Durable consumers of the derived channel have their cursors beside those of the
original, under names of their own, so that retention waits for them as for all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.history.memory import meets
from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from heliograph.channel.history.store import HistoryCursor, HistoryStore, OnDurable
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
    from heliograph.derived.transform import Transform
    from heliograph.model.event import Event
    from heliograph.model.history_epochs import Epochs


class DerivedStore:
    """See the module, and `heliograph.channel.history.store.HistoryStore`.

    Args:
        name: of the derived channel.
        original: what keeps the original's events in this station.
        conditions: which of them are derived.
        transform: derives.
        on_durable: told what is durable of the derived channel.
        is_wanted: whether anybody would be told.
    """

    kept_here = True
    reachable = True

    def __init__(  # noqa: PLR0917 - what it stands between
        self,
        name: str,
        original: HistoryStore,
        conditions: Mapping[type[Event], ReceiverCondition | AnyCondition],
        transform: Transform,
        on_durable: OnDurable,
        is_wanted: Callable[[], bool],
    ) -> None:
        self.partition = original.partition
        self._name = name
        self._original = original
        self._conditions = conditions
        self._transform = transform
        self._on_durable = on_durable
        self._is_wanted = is_wanted

    @property
    def watermark(self) -> int:
        return self._original.watermark

    @property
    def earliest(self) -> int:
        return self._original.earliest

    @property
    def epochs(self) -> Epochs:
        return self._original.epochs

    def met_again(self, epochs: Epochs) -> None:
        """It is kept here, so its keeper was never away."""

    def desk(self, *_: Any) -> None:
        """Its groups have their coordinator here."""
        return

    def read(
        self,
        start: int,
        most: int,
        below: int | None = None,
        *,
        as_kept: bool = False,  # noqa: ARG002 - it has one version
        only: Collection[str] | None = None,  # noqa: ARG002 - it has one type
    ) -> tuple[list[Item], int]:
        items, reached = self._original.read(start, most, below, only={self._transform.derivation.type})
        return self._derived(items), reached

    def durable(self, partition: str, batches: Sequence[OutgoingBatch] | None, next_offset: int) -> None:
        """The original has durable events. They are derived once for all receivers that are there."""
        if batches is None:
            self._on_durable(partition, None, next_offset)
            return
        derived: list[Item] = []
        if self._is_wanted():
            derived = self._derived([item for batch in batches for item in batch])
        self._on_durable(partition, (OutgoingBatch.of(derived),) if derived else (), next_offset)

    def _derived(self, items: Sequence[Item]) -> list[Item]:
        return self._transform.items([item for item in items if meets(self._conditions, item)])

    def offset_at(self, append_ts: int) -> int:
        return self._original.offset_at(append_ts)

    def cursor(self, name: str, owner: str | None = None, epoch: int | None = None) -> HistoryCursor:
        return self._original.cursor(f"{name}@{self._transform.derivation.digest}", owner, epoch)

    def supplier(self, name: str, owner: str | None = None) -> Never:  # noqa: ARG002 - refused
        raise self._refused()

    def wait_ready(self, timeout: float | None = None) -> None:
        """It can be read at any time."""

    def append(self, *_: Any) -> Never:
        raise self._refused()

    def append_once(self, *_: Any) -> Never:
        raise self._refused()

    def forget(self, *_: Any) -> Never:
        raise self._refused()

    def finish(self) -> None:
        """Nothing is on its way to the disk."""

    def close(self) -> None:
        """The original's store is the original's to close."""

    def _refused(self) -> NotPossible:
        return NotPossible(self._name, "a derived channel takes no pushes: push into the original")
