"""What the machine refused: disk, names of files, queues, Java; and options that Spark handed on."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class DiskError(HeliographError):
    """The disk refused an operation."""

    retriable = True

    operation: str
    """`append`, `sync`, `rename`, ..."""
    file: str
    """The name of the file within its folder."""
    reason: str
    """What the operating system said."""

    def __str__(self) -> str:
        return f"{self.operation} of {self.file!r} failed: {self.reason}"


class InvalidConfiguration(HeliographError):
    """A configuration file that cannot be followed; nothing of it was."""

    file: str
    """Its name."""
    line: int
    """Of the mistake, from 1; 0: it is about the file as a whole."""
    problem: str
    """What is wrong, and what is allowed."""

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.problem}"


class NoThreadLeft(HeliographError, RuntimeError):
    """The host has no thread left for a task, or no memory for one."""

    retriable = True

    task: str
    """The name of the task."""
    reason: str
    """What the interpreter said."""

    def __str__(self) -> str:
        return f"no thread is left for {self.task!r}: {self.reason}"


class RealTimeRefused(HeliographError):
    """The operating system, or this process, does not allow what real-time threads need."""

    what: str
    """SCHED_FIFO, a core."""
    reason: str
    """Why not, and what to do."""

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class DiskFull(DiskError):
    """No space is left on the disk, or the quota is used up."""


class NoSuchFile(DiskError):
    """There is no file or folder of that name."""

    retriable = False


class FileExists(DiskError):
    """A new file was asked for under a name that is taken."""

    retriable = False


class FileLocked(DiskError):
    """Another process, or another part of this one, holds the lock.

    Attributes:
        holder: what the holder wrote about itself, such as `pid 4711 since 2026-11-05T10:00:00+00:00`.
    """

    def __init__(self, file: str, holder: str) -> None:
        super().__init__("lock", file, f"held by {holder or 'a process that has not said who it is'}")
        self.holder = holder


class InvalidFileName(HeliographError):
    """A name that could lead out of its folder, or that no file can have."""

    name: str
    """The name as it was given."""
    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return (
            f"{self.name!r} cannot name a file: {self.reason}; "
            "write a relative name such as 'head-0001' or 'partition-3/head-0001'"
        )


class QueueClosed(HeliographError):
    """A queue was closed: nothing more goes in, or nothing is left to come out."""

    name: str
    """The name of the queue."""

    def __str__(self) -> str:
        return f"queue {self.name!r} is closed"


class MissingExtra(HeliographError):
    """A call needs packages that come with an extra of Heliograph, and they are not installed."""

    call: str
    """What was called."""
    package: str
    """The package that it could not import."""
    extra: str
    """The extra that brings it."""

    def __str__(self) -> str:
        return (
            f"{self.call} needs the package {self.package}, which is not installed; "
            f"write: pip install 'heliograph[{self.extra}]'"
        )


class NoJava(HeliographError):
    """Spark needs a Java, and none was found that will do."""

    reason: str
    """Where Heliograph looked, what it found there, and what to set or install."""

    def __str__(self) -> str:
        return f"Spark needs Java 17 or newer: {self.reason}"


class InvalidOption(HeliographError):
    """An option of `format("heliograph")` or of a job that does not exist, or a value that it cannot have."""

    option: str
    """Its name."""
    value: str | None
    """What was given; None when it is missing."""
    allowed: str
    """What may stand there, or which options there are."""
    exists: bool = True
    """False when there is no such option here."""

    def __str__(self) -> str:
        if not self.exists:
            return f"there is no option {self.option!r}; {self.allowed}"
        if self.value is None:
            return f"the option {self.option!r} is missing; it takes {self.allowed}"
        return f"the option {self.option!r} cannot be {self.value!r}; allowed is {self.allowed}"


class TableInUse(HeliographError):
    """Another job writes this table, or has this checkpoint."""

    retriable = True

    table: str
    """Its folder."""

    def __str__(self) -> str:
        return f"another job has {self.table!r}; wait for it to end, or name another folder"


class TableMismatch(HeliographError):
    """A folder holds another table than the one that a job is to write."""

    table: str
    """Its folder."""
    reason: str
    """What does not go together."""

    def __str__(self) -> str:
        return f"the table {self.table!r} cannot be written: {self.reason}; name another folder for a new one"


class ExpectationFailed(HeliographError):
    """Events of a channel are not as they must be; the job that found them has changed nothing."""

    channel: str
    """Its name."""
    expectation: str
    """What is expected of every event."""
    events: int
    """How many are not so."""
    partition: str
    offset: int
    """The first of them."""

    def __str__(self) -> str:
        return (
            f"{self.events} events of {self.channel} are not as expected, {self.expectation}; "
            f"the first is at offset {self.offset} of partition {self.partition}"
        )
