"""Durable history: what could not be kept, or cannot be had any more."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class JournalError(HeliographError):
    """The durable history could not do what was asked."""


class AppendFailed(JournalError):
    """The disk refused, so nothing of this push is acknowledged. The cause is the `DiskError`.

    Attributes:
        partition: the folder of the partition.
        reason: what the disk said.
    """

    retriable = True

    def __init__(self, partition: str, reason: str) -> None:
        super().__init__(partition, reason)
        self.partition = partition
        self.reason = reason

    def __str__(self) -> str:
        return f"nothing was appended to {self.partition!r}: {self.reason}; push again when the disk is well"


class AppendTimeout(JournalError):
    """An append was not durable in time. It may still become so: repeat it only under the same event id.

    Attributes:
        partition: the folder of the partition.
        event: the id of the first event, as text.
        seconds: how long was waited.
    """

    retriable = True

    def __init__(self, partition: str, event: str, seconds: float) -> None:
        super().__init__(partition, event, seconds)
        self.partition = partition
        self.event = event
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"event {self.event} was not durable in {self.partition!r} within {self.seconds} s; "
            "whether it will be is unknown, so repeat it only under this id"
        )


class JournalBusy(JournalError):
    """So much waits for the disk that no more was taken in within the time allowed.

    Attributes:
        partition: the folder of the partition.
        waiting: how many bytes wait.
    """

    retriable = True

    def __init__(self, partition: str, waiting: int) -> None:
        super().__init__(partition, waiting)
        self.partition = partition
        self.waiting = waiting

    def __str__(self) -> str:
        return f"{self.waiting} bytes wait for the disk of {self.partition!r}; nothing more was taken in"


class JournalClosed(JournalError):
    """The writer of a partition was closed.

    Attributes:
        partition: the folder of the partition.
    """

    def __init__(self, partition: str) -> None:
        super().__init__(partition)
        self.partition = partition

    def __str__(self) -> str:
        return f"the writer of {self.partition!r} is closed"


class BatchTooLarge(JournalError):
    """One append holds more than a frame can, and a frame is what is written whole or not at all.

    Attributes:
        size: the bytes or events of the batch.
        limit: how many are allowed.
        unit: `bytes` or `events`.
    """

    def __init__(self, size: int, limit: int, unit: str) -> None:
        super().__init__(size, limit, unit)
        self.size = size
        self.limit = limit
        self.unit = unit

    def __str__(self) -> str:
        return f"a batch of {self.size} {self.unit}; at most {self.limit} can be appended as one"


class PartitionInUse(JournalError):
    """A partition has one writer, and another one has it.

    Attributes:
        partition: the folder of the partition.
        holder: what the other writer wrote about itself.
    """

    retriable = True

    def __init__(self, partition: str, holder: str) -> None:
        super().__init__(partition, holder)
        self.partition = partition
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"{self.partition!r} is written by {self.holder or 'a process that has not said who it is'}; "
            "join that process with domain=, or open the folder read-only"
        )


class BadJournalFile(JournalError):
    """A file of a journal is none, is damaged, or was written by a newer program.

    Attributes:
        file: the name of the file within its folder.
        reason: what is wrong with it.
    """

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file!r} cannot be used: {self.reason}"


class NoHistory(JournalError):
    """There is no history to read.

    Attributes:
        folder: where it was looked for.
        channel: the channel that was asked for; None when the folder is no station's at all.
        found: the channels that have a history there.
    """

    def __init__(self, folder: str, channel: str | None = None, found: tuple[str, ...] = ()) -> None:
        super().__init__(folder, channel, found)
        self.folder = folder
        self.channel = channel
        self.found = found

    def __str__(self) -> str:
        if self.channel is None:
            return f"{self.folder!r} is no folder in which a station has kept a history; check the path"
        there = ", ".join(self.found) or "no channel at all"
        return f"{self.folder!r} holds no history of {self.channel!r}; it holds that of {there}"


class HistoryGone(JournalError):
    """Retention has removed the events from `first` up to, not including, `next_available`.

    Attributes:
        partition: the folder of the partition.
        first: the first offset that was asked for and is gone.
        next_available: the first offset that can still be read.
    """

    def __init__(self, partition: str, first: int, next_available: int) -> None:
        super().__init__(partition, first, next_available)
        self.partition = partition
        self.first = first
        self.next_available = next_available

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
    """The events from `first` up to, not including, `next_available` were durable and cannot be read.

    Attributes:
        partition: the folder of the partition.
        first: the first offset that cannot be read.
        next_available: the first offset behind the damage.
        reason: what was found.
    """

    def __init__(self, partition: str, first: int, next_available: int, reason: str) -> None:
        super().__init__(partition, first, next_available, reason)
        self.partition = partition
        self.first = first
        self.next_available = next_available
        self.reason = reason

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """What is missing: from the first of the two offsets up to, not including, the second."""
        return {self.partition.rpartition("/")[2]: (self.first, self.next_available)}

    def __str__(self) -> str:
        return (
            f"offsets {self.first} to {self.next_available - 1} of {self.partition!r} are damaged "
            f"({self.reason}); go on from {self.next_available}"
        )


class SupplierHeld(JournalError):
    """A named supplier is exclusive, and somebody else holds its lease.

    Attributes:
        name: of the supplier.
        owner: who holds it.
    """

    retriable = True

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name, owner)
        self.name = name
        self.owner = owner

    def __str__(self) -> str:
        return (
            f"supplier {self.name!r} is held by {self.owner}; close it there, or wait until its lease is over"
        )


class SupplierFenced(JournalError):
    """A later holder has taken over this supplier: nothing of this one is kept any more.

    Attributes:
        name: of the supplier.
        epoch: of this holder.
        current: of the present one.
    """

    def __init__(self, name: str, epoch: int, current: int) -> None:
        super().__init__(name, epoch, current)
        self.name = name
        self.epoch = epoch
        self.current = current

    def __str__(self) -> str:
        return (
            f"supplier {self.name!r} was taken over: this holder has epoch {self.epoch}, the present one "
            f"{self.current}; open it again to go on behind its last sequence"
        )


class CursorHeld(JournalError):
    """A named consumer is exclusive, and somebody else holds its lease.

    Attributes:
        name: the name of the consumer.
        owner: who holds it.
    """

    retriable = True

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name, owner)
        self.name = name
        self.owner = owner

    def __str__(self) -> str:
        return (
            f"{self.owner!r} consumes as {self.name!r}; wait until it closes or its lease runs out, "
            "or open the consumer as a group"
        )


class CursorFenced(JournalError):
    """A later owner has taken over: what this one commits no longer counts.

    Attributes:
        name: the name of the consumer.
        epoch: the epoch of the stale owner.
        current: the epoch of the owner that counts.
    """

    def __init__(self, name: str, epoch: int, current: int) -> None:
        super().__init__(name, epoch, current)
        self.name = name
        self.epoch = epoch
        self.current = current

    def __str__(self) -> str:
        return (
            f"consumer {self.name!r} was taken over (epoch {self.current}, this one has {self.epoch}); "
            "nothing was committed"
        )


class TooManyAcks(JournalError):
    """A cursor remembers only so many acknowledgements above its low watermark.

    Attributes:
        name: the name of the consumer.
        limit: how many it can remember for one partition.
    """

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit)
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"consumer {self.name!r} has more than {self.limit} acknowledged events above one that is not; "
            "acknowledge that one first"
        )


class BatchRefused(JournalError):
    """A batch that was handed over from outside, such as one of a Spark stream, was not taken in.

    Attributes:
        writer: who wrote it.
        batch: its number.
        reason: why, and what to do.
    """

    def __init__(self, writer: str, batch: int, reason: str) -> None:
        super().__init__(writer, batch, reason)
        self.writer = writer
        self.batch = batch
        self.reason = reason

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.writer!r} was not taken in: {self.reason}"


class AdoptionTimeout(JournalError):
    """A batch that was handed over was not taken in in time. It is durable, and will be taken in later.

    Attributes:
        writer: who wrote it.
        batch: its number.
        seconds: how long was waited.
        holder: who has the folder and should take it in.
    """

    retriable = True

    def __init__(self, writer: str, batch: int, seconds: float, holder: str) -> None:
        super().__init__(writer, batch, seconds, holder)
        self.writer = writer
        self.batch = batch
        self.seconds = seconds
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of {self.writer!r} is durable, but {self.holder or 'the station'} has not "
            f"taken it in within {self.seconds} s; see to that and start the query again: nothing comes twice"
        )
