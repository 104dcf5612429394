"""Numbered streams: dense sequences, acknowledgements and resends, so that no frame is lost. Pure.

The sending end numbers records one by one and keeps them, in the batches they were sent in, until they are
acknowledged. The receiving end lets each record through once and in order, keeps batches that came too
early, and says what is missing. Heartbeats carry the last number sent, so a lost tail is found as well.

Records are numbered, kept and counted at their source in one step, which no exception can come into the
middle of (Ctrl-C, a signal handler). Before it they wait as if nobody had taken them; after it the peer gets
them, though the thread that was about to send them be interrupted: it misses them at the next heartbeat.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

P = TypeVar("P")

MAX_UNACKED_RECORDS: Final = 65_536
MAX_UNACKED_BYTES: Final = 16 << 20
"""What one lane keeps for resending; when it is full, nothing more is sent until the peer acknowledges."""
MAX_EARLY: Final = 1_024
"""Batches kept that came before what they follow; more are dropped, to be sent again."""


class Batch(msgspec.Struct, Generic[P], frozen=True):
    """Records with consecutive numbers, sent together."""

    first: int
    count: int
    payload: P

    @property
    def last(self) -> int:
        return self.first + self.count - 1


class RecordSource(Protocol):
    """Where records are taken from."""

    done: int
    """How many of those in hand are in a batch."""


class Outbox(Generic[P]):
    """The sending end of a lane."""

    def __init__(self) -> None:
        self.last = 0
        self.acked = 0
        self._kept: deque[tuple[Batch[P], int]] = deque()
        self._bytes = 0

    @property
    def unacked(self) -> int:
        return self.last - self.acked

    @property
    def has_room(self) -> bool:
        return self.last - self.acked < MAX_UNACKED_RECORDS and self._bytes < MAX_UNACKED_BYTES

    def add(
        self, count: int, payload: P, size: int, source: RecordSource | None = None, taken: int = 0
    ) -> Batch[P]:
        """Number a batch and keep it until it is acknowledged; what was taken for it counts at its source."""
        batch = Batch(self.last + 1, count, payload)
        keep, kept = self._kept.append, (batch, size)
        # One step: CPython looks for signals after calls only, and the one call is the last.
        self.last += count
        self._bytes += size
        if source is not None:
            source.done += taken
        keep(kept)
        return batch

    def add_pieces(self, pieces: Sequence[tuple[P, int]], source: RecordSource) -> list[Batch[P]]:
        """Likewise something that was taken alone and is sent in pieces, given with their sizes."""
        batches = [Batch(number, 1, piece) for number, (piece, _) in enumerate(pieces, self.last + 1)]
        sizes = [size for _, size in pieces]
        keep, kept, size = self._kept.extend, list(zip(batches, sizes, strict=True)), sum(sizes)
        count = len(pieces)
        self.last += count
        self._bytes += size
        source.done += 1
        keep(kept)
        return batches

    def acknowledge(self, number: int) -> None:
        """Everything up to a number that was sent has arrived."""
        self.acked = max(self.acked, number)
        while self._kept and self._kept[0][0].last <= number:
            drop, size = self._kept.popleft, self._kept[0][1]
            self._bytes -= size
            drop()

    def missing(self, first: int, last: int) -> list[Batch[P]]:
        """The kept batches that hold these numbers."""
        return [batch for batch, _ in self._kept if batch.last >= first and batch.first <= last]


class Inbox(Generic[P]):
    """The receiving end of a lane."""

    def __init__(self) -> None:
        self.received = 0
        """Everything up to here has been let through, and is not sent again."""
        self.duplicates = 0
        self.gaps = 0
        self._early: dict[int, Batch[P]] = {}
        self.announced = 0
        """The last number that is known to have been sent."""

    def follows(self, first: int) -> bool:
        """Whether a batch with this first number comes right after all that came before: the usual case."""
        return first == self.received + 1 and not self._early

    def take(self, batch: Batch[P]) -> Sequence[tuple[Batch[P], int]]:
        """The batches that can be let through now, each with how many of its records to skip.

        They count as received when whoever lets them through says so (`received`), not before.
        """
        if batch.last <= self.received:
            self.duplicates += 1
            return ()
        self.announced = max(self.announced, batch.last)
        if batch.first > self.received + 1:
            self.gaps += not self._early
            if len(self._early) < MAX_EARLY:
                self._early[batch.first] = batch
            return ()
        return [(batch, self.received + 1 - batch.first), *self._follow(batch.last)]

    def skip(self, last: int) -> Sequence[tuple[Batch[P], int]]:
        """All up to this number will not come: the batches that can be let through now."""
        self.received = max(self.received, last)
        return self._follow(self.received)

    def _follow(self, reached: int) -> list[tuple[Batch[P], int]]:
        """Those that came too early and follow what is reached now."""
        ready: list[tuple[Batch[P], int]] = []
        while self._early:
            first = min(self._early)
            if first > reached + 1:
                break
            early = self._early.pop(first)
            if early.last > reached:
                ready.append((early, reached + 1 - early.first))
                reached = early.last
        return ready

    def heard_of(self, last: int) -> None:
        """The peer says that it has sent records up to this number."""
        self.announced = max(self.announced, last)

    def unsay(self, last: int) -> None:
        """The peer says that it has sent none behind this number: what seemed to be is no more waited for."""
        self.announced = max(self.received, last)
        self._early = {first: early for first, early in self._early.items() if early.last <= self.announced}

    def wanted(self) -> tuple[int, int] | None:
        """The first range that is missing, if any is."""
        if self.announced <= self.received:
            return None
        last = min(self._early) - 1 if self._early else self.announced
        return self.received + 1, last
