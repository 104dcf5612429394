"""Shared memory between processes of one host."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class RingError(HeliographError):
    """A ring in shared memory could not do what was asked."""

    ring: str
    """The file of the ring, or where rings are kept."""
    reason: str
    """What is wrong, and what to do."""

    def __str__(self) -> str:
        return f"{self.ring}: {self.reason}"


class RingNotAvailable(RingError):
    """This machine, or what this process may do on it, has no memory for rings; sockets serve instead."""


class NoRoomForRing(RingError):
    """The memory of a new ring could not be set aside; nothing was written.

    Attributes:
        needed: bytes of the ring.
        free: bytes that its file system had left for rings.
    """

    retriable = True

    def __init__(self, ring: str, needed: int, free: int) -> None:
        super().__init__(
            ring,
            f"{needed} bytes do not fit, {free} are free for rings, which leave a quarter of /dev/shm to "
            "others; ask for a smaller ring, or enlarge /dev/shm",
        )
        self.needed = needed
        self.free = free


class RingFull(RingError):
    """A reliable reader did not read on in time.

    Attributes:
        waited: seconds that the writer waited.
        reader: the process id that the slowest reader gave.
        appended: events of this call that went in before.
    """

    retriable = True

    def __init__(self, ring: str, waited: float, reader: int, appended: int = 0) -> None:
        super().__init__(
            ring,
            f"full for {waited:.3f} s: the reader in process {reader} is behind; {appended} events went in",
        )
        self.waited = waited
        self.reader = reader
        self.appended = appended


class RingClosed(RingError):
    """The writer has closed the ring or died, and all it wrote has been read; or this end was closed."""


class EventTooLargeForRing(RingError):
    """One event, or one batch that must stay whole, is larger than the ring takes.

    Attributes:
        size: its bytes.
        limit: bytes of the largest event of this ring.
    """

    def __init__(self, ring: str, size: int, limit: int) -> None:
        super().__init__(ring, f"an event of {size} bytes; at most {limit} fit, which is half of the ring")
        self.size = size
        self.limit = limit


class TooManyReaders(RingError):
    """The table of readers is full."""

    retriable = True


class LeaseLost(RingError):
    """A reliable reader stood still for longer than its lease, and was overtaken.

    Attributes:
        first: the sequence of the first event that it did not get, or can no longer trust.
        lost: how many events that are. The reader goes on behind them.
    """

    retriable = True

    def __init__(self, ring: str, first: int, lost: int) -> None:
        super().__init__(
            ring,
            f"this reader kept the writer waiting beyond its lease: {lost} events from {first} on are lost",
        )
        self.first = first
        self.lost = lost


class RingDamaged(RingError):
    """Shared memory holds what no writer of this version writes."""

    lost: int = 0
    """Events that were given up, if the reader could go on behind the damage."""
