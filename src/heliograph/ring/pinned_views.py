"""An event that is read where it lies in shared memory, and held there until it is let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.ring.reader import RingReader


class Pinned:
    """One record: its events as read-only views, valid until `release`, in whatever order pins are released.

    Slots are used in turn, so a pin that is held for a lap holds up the writer. Should the reader lose its
    lease meanwhile, `release` raises `LeaseLost`: what was read from the views since may not be what was
    written.
    """

    __slots__ = ("_lent", "_reader", "is_released", "parts", "position", "sequence")

    def __init__(
        self,
        reader: RingReader,
        position: int,
        sequence: int,
        parts: tuple[memoryview, ...],
        lent: Callable[[], object],
    ) -> None:
        self._reader = reader
        self._lent = lent
        self.position = position
        self.sequence = sequence
        self.parts = parts
        self.is_released = False

    def release(self) -> None:
        """Let the writer have the slots back; `NotPossible` while an array made from the views is alive."""
        if self.is_released:
            return
        for part in self.parts:
            part.release()
        if self._lent() is not None:
            raise NotPossible(
                "release of a pinned event",
                "an array or view still uses its bytes; drop it, or copy it before",
            )
        self.is_released = True
        self._reader.unpin(self)

    def let_go(self) -> bool:
        """As `release`, but also while something still views the bytes; returns whether something does."""
        for part in self.parts:
            part.release()
        self.is_released = True
        self._reader.unpin(self)
        return self._lent() is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
