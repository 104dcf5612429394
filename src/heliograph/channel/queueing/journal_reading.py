"""What a queue that reads a journal can do besides: asked for by those who number events by their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.queueing.queue import Item
    from heliograph.model.history_epochs import Epochs


class JournalReading(Protocol):
    """Reached as `queue.journal`, which is None for a queue that holds events in memory alone."""

    as_kept: bool
    """Whether it hands events on in the versions in which they were pushed."""
    raises_gaps: bool
    """Whether `take` raises at a gap, once, instead of telling `on_gap`."""
    numbers_offsets: bool
    """Whether its taker numbers events by their offsets, and goes on by `go_on_at`."""
    parted: dict[str, int]
    """Partitions that went back in time, and where to."""
    on_held: Callable[[str], object]
    """Told of a partition in which another has the place of its consumer."""

    def read_to(self, partition: str) -> int:
        """With nothing of a partition waiting: the offset that it has read to, matching or not."""
        ...

    def lowest(self, partition: str, default: int) -> int:
        """The first offset of a partition that waits."""
        ...

    def read_one(self, partition: str, offset: int) -> Item | None:
        """One event once more, whoever has taken it; None when it cannot be had any more."""
        ...

    def epochs(self) -> dict[str, Epochs]:
        """Of each partition: which writers wrote it, as far as is known here."""
        ...

    def go_on_at(self, partition: str, offset: int) -> None:
        """Its taker has begun anew in a partition that went back in time."""
        ...

    def hold(self, partition: str) -> None:
        """Bring no more of a partition, but for what waits already, until `let_go`."""
        ...

    def let_go(self, partition: str) -> None:
        """Go on where it was held."""
        ...
