"""Durable history: what could not be kept, or cannot be had any more."""

from __future__ import annotations

from heliograph.errors.base import HeliographError
from heliograph.errors.sentences import hint, listed


class JournalError(HeliographError):
    """The durable history could not do what was asked."""


class AppendFailed(JournalError):
    """The disk refused, so nothing of this push is acknowledged. The cause is the `DiskError`."""

    retriable = True

    partition: str
    """The folder of the partition."""
    reason: str
    """What the disk said."""

    def __str__(self) -> str:
        return f"nothing was appended to {self.partition!r}: {self.reason}; push again when the disk is well"


class AppendTimeout(JournalError):
    """An append was not durable in time. It may still become so: repeat it only under the same event id."""

    retriable = True

    partition: str
    """The folder of the partition."""
    event: str
    """The id of the first event, as text."""
    seconds: float
    """How long was waited."""
    reason: str = ""
    """Why no answer comes any more, where that is known."""

    def __str__(self) -> str:
        if self.reason:
            return (
                f"{self.reason} before it said whether event {self.event} is durable in {self.partition!r}; "
                "that is unknown, so repeat it only under this id"
            )
        return (
            f"event {self.event} was not durable in {self.partition!r} within {self.seconds} s; "
            "whether it will be is unknown, so repeat it only under this id"
        )


class JournalBusy(JournalError):
    """So much waits for the disk that no more was taken in within the time allowed."""

    retriable = True

    partition: str
    """The folder of the partition."""
    waiting: int
    """How many bytes wait."""

    def __str__(self) -> str:
        return f"{self.waiting} bytes wait for the disk of {self.partition!r}; nothing more was taken in"


class JournalClosed(JournalError):
    """The writer of a partition was closed."""

    partition: str
    """The folder of the partition."""

    def __str__(self) -> str:
        return f"the writer of {self.partition!r} is closed"


class CannotTell(JournalError):
    """An event of another domain is so old that nobody can tell whether it was kept: it is not kept."""

    partition: str
    """Where it was to be kept."""
    event: str
    """Its id."""
    reason: str
    """`too old`: ids of its time are no longer known; `no room`: there are too many suppliers to know."""

    def __str__(self) -> str:
        return (
            f"event {self.event} may have been kept in {self.partition!r} before ({self.reason}): "
            "it is not kept again"
        )


class BatchTooLarge(JournalError):
    """One append holds more than a frame can, and a frame is what is written whole or not at all."""

    size: int
    """The bytes or events of the batch."""
    limit: int
    """How many are allowed."""
    unit: str
    """`bytes` or `events`."""

    def __str__(self) -> str:
        return f"a batch of {self.size} {self.unit}; push it in parts of at most {self.limit}"


class PartitionInUse(JournalError):
    """A partition has one writer, and another one has it."""

    retriable = True

    partition: str
    """The folder of the partition."""
    holder: str
    """What the other writer wrote about itself."""

    def __str__(self) -> str:
        return (
            f"{self.partition!r} is written by {self.holder or 'a process that has not said who it is'}; "
            "join that process with domain=, or open the folder read-only"
        )


class BadJournalFile(JournalError):
    """A file of a journal is none, is damaged, or was written by a newer program."""

    file: str
    """The name of the file within its folder."""
    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{self.file!r} cannot be used: {self.reason}"


class NoHistory(JournalError):
    """There is no history to read."""

    folder: str
    """Where it was looked for."""
    channel: str | None = None
    """The channel that was asked for; None when the folder is no station's at all."""
    found: tuple[str, ...] = ()
    """The channels that have a history there."""
    instead: str = ""
    """The call that makes it."""

    def __str__(self) -> str:
        to_make = f"; to make it, write {self.instead}" if self.instead else ""
        if self.channel is None:
            where = f"{self.folder!r} is no folder in which a station has kept a history; check the path"
            return f"{where}{to_make}"
        there = listed(self.found) if self.found else "no channel at all"
        there += hint(self.channel, self.found) + to_make
        return f"{self.folder!r} holds no history of {self.channel!r}; it holds that of {there}"


class HistoryGone(JournalError):
    """Retention has removed the events from `first` up to, not including, `next_available`."""

    partition: str
    """The folder of the partition."""
    first: int
    """The first offset that was asked for and is gone."""
    next_available: int
    """The first offset that can still be read."""

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """What is missing: from the first of the two offsets up to, not including, the second."""
        return {self.partition.rpartition("/")[2]: (self.first, self.next_available)}

    def __str__(self) -> str:
        return (
            f"retention has removed offsets {self.first} to {self.next_available - 1} of {self.partition!r}; "
            f"go on from {self.next_available}"
        )


class HistoryDamaged(JournalError):
    """The events from `first` up to, not including, `next_available` were durable and cannot be read."""

    partition: str
    """The folder of the partition."""
    first: int
    """The first offset that cannot be read."""
    next_available: int
    """The first offset behind the damage."""
    reason: str
    """What was found."""

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """What is missing: from the first of the two offsets up to, not including, the second."""
        return {self.partition.rpartition("/")[2]: (self.first, self.next_available)}

    def __str__(self) -> str:
        return (
            f"offsets {self.first} to {self.next_available - 1} of {self.partition!r} are damaged "
            f"({self.reason}); go on from {self.next_available}"
        )


class HistoryReset(JournalError):
    """A history went back in time, as that of a restored folder does: these offsets name other events now.

    What was read of them from `first` up to, not including, `next_available` is not in the history any more.
    Reading goes on at `first`.
    """

    partition: str
    """The partition."""
    first: int
    """The first offset that names another event now."""
    next_available: int
    """The offset up to which had been read."""

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """What was read and is gone: from the first of the two offsets up to, not including, the second."""
        return {self.partition.rpartition("/")[2]: (self.first, self.next_available)}

    def __str__(self) -> str:
        return (
            f"the history of {self.partition!r} went back in time, as an older copy that was put back does: "
            f"offsets {self.first} to {self.next_available - 1}, which had been read, name other events now; "
            f"it is read again from {self.first}"
        )


class SupplierHeld(JournalError):
    """A named supplier is exclusive, and another process holds its lease."""

    retriable = True

    name: str
    """Of the supplier."""
    owner: str
    """The holder of the lease."""

    def __str__(self) -> str:
        return (
            f"supplier {self.name!r} is held by {self.owner}; close it there, or wait until its lease is over"
        )


class SupplierFenced(JournalError):
    """A later holder has taken over this supplier: nothing of this one is kept any more."""

    name: str
    """Of the supplier."""
    epoch: int
    """Of this holder."""
    current: int
    """Of the present one."""

    def __str__(self) -> str:
        return (
            f"supplier {self.name!r} was taken over: this holder has epoch {self.epoch}, the present one "
            f"{self.current}; open it again to go on behind its last sequence"
        )


class CursorHeld(JournalError):
    """A named consumer is exclusive, and another process holds its lease."""

    retriable = True

    name: str
    """The name of the consumer."""
    owner: str
    """The holder of the lease."""

    def __str__(self) -> str:
        return (
            f"{self.owner!r} consumes as {self.name!r}; wait until it closes or its lease runs out, "
            "or open the consumer as a group"
        )


class CursorFenced(JournalError):
    """A later owner has taken over: what this one commits no longer counts."""

    name: str
    """The name of the consumer."""
    epoch: int
    """The epoch of the stale owner."""
    current: int
    """The epoch of the owner that counts."""

    def __str__(self) -> str:
        return (
            f"consumer {self.name!r} was taken over (epoch {self.current}, this one has {self.epoch}); "
            "nothing was committed"
        )


class TooManyAcks(JournalError):
    """A cursor remembers only so many acknowledgements above its low watermark."""

    name: str
    """The name of the consumer."""
    limit: int
    """How many it can remember for one partition."""

    def __str__(self) -> str:
        return (
            f"consumer {self.name!r} has more than {self.limit} acknowledged events above one that is not; "
            "acknowledge that one first"
        )


class StoreTaken(JournalError):
    """Another program publishes the same partition into a store, so this one does not go on."""

    store: str
    """Its URL."""
    place: str
    """The folder of the partition, or a name that others put faster."""

    def __str__(self) -> str:
        return (
            f"{self.place!r} in the store {self.store} was published by another program since, such as a "
            "station on a copy of this folder; end one of the two and open the other again, or give each a "
            "store of its own"
        )


class BatchRefused(JournalError):
    """A batch that was handed over from outside, such as one of a Spark stream, was not taken in."""

    writer: str
    """The program that wrote it."""
    batch: int
    """Its number."""
    reason: str
    """Why, and what to do."""

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.writer!r} was not taken in: {self.reason}"


class AdoptionTimeout(JournalError):
    """A batch that was handed over was not taken in in time. It is durable, and will be taken in later."""

    retriable = True

    writer: str
    """The program that wrote it."""
    batch: int
    """Its number."""
    seconds: float
    """How long was waited."""
    holder: str
    """The station that has the folder and should take it in."""

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of {self.writer!r} is durable, but {self.holder or 'the station'} has not "
            f"taken it in within {self.seconds} s; see to that and start the query again: nothing comes twice"
        )
