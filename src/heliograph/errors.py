"""Every error that Heliograph raises, in one tree.

    HeliographError
    ├── FormatError                 a format description, an event class or its bytes cannot be right
    │   ├── IncompatibleFormats     one format cannot be read as the other; names each field and both types
    │   └── UnknownFormat           a format id nobody has described yet                        (retriable)
    ├── DecodeError                 bytes do not hold what their format says; names the field's path
    ├── InvalidEvent                a value does not fit its field; names the path
    ├── ExpressionError             a filter or projection is wrong; points at the column
    ├── DiskError                   the disk refused                                            (retriable)
    │   ├── DiskFull
    │   ├── NoSuchFile
    │   ├── FileExists              a new file was asked for under a name that is taken
    │   └── FileLocked              another process holds the lock; names the holder
    ├── JournalError                the durable history could not do what was asked
    │   ├── AppendFailed            the disk refused; nothing of this push is acknowledged      (retriable)
    │   ├── AppendTimeout           not durable in time; whether it will be is unknown          (retriable)
    │   ├── JournalBusy             too much waits for the disk already                         (retriable)
    │   ├── JournalClosed           the writer was closed
    │   ├── BatchTooLarge           more than one frame can hold
    │   ├── PartitionInUse          another writer has this partition; names it                 (retriable)
    │   ├── BadJournalFile          a file is none of ours, damaged, or newer than this program
    │   ├── NoHistory               no station kept such a history in that folder; names what is there
    │   ├── HistoryGone             retention has removed a range of offsets; names it
    │   ├── HistoryDamaged          a range of offsets cannot be read; names it
    │   ├── CursorHeld              somebody else consumes under that name                      (retriable)
    │   ├── CursorFenced            a later owner has taken over this cursor
    │   └── TooManyAcks             too many events are acknowledged out of order
    ├── InvalidFileName             a name that could leave its folder, or that no file can have
    ├── InvalidQoS                  a quality of service that cannot be honoured; says what is allowed
    ├── ChannelError                a call that this channel or station cannot follow; names it
    │   ├── Closed                  it has been closed, or its station has
    │   ├── ForkedStation           this process was forked off the one that opened the station
    │   ├── FolderInUse             another station has this folder; names it                   (retriable)
    │   ├── ChannelExists, NoSuchChannel
    │   ├── WrongEventType          the channel does not carry events of this type
    │   ├── NotPossible             options that do not go together here; says what to write instead
    │   ├── QueueFull               a consumer's queue stayed full for `max_blocking`           (retriable)
    │   └── WouldDeadlock           the queue to wait for is drained by this very thread
    ├── LinkError                   two stations cannot talk to each other
    │   ├── UnsafeRuntimeFolder     the folder where stations meet is open to others
    │   ├── LinkRefused             the other station is not one of ours: version, domain, user
    │   ├── LinkLost                the connection ended; it is made again by itself             (retriable)
    │   ├── BadFrame                bytes that no station sends; the connection is closed
    │   └── QueryFailed             another station could not answer, or not in time             (retriable)
    ├── QueueClosed                 nothing more goes in, or nothing is left to come out
    ├── NoJava                      Spark needs a Java and none will do; says what to set or install
    └── SimulationError             a simulated run went wrong; carries the seed that repeats it
        ├── SimDeadlock             every task waits and no time-out will end it; names each
        ├── SimStuck                a task runs on without ever letting time pass
        ├── SimTaskFailed           an exception ended a task that nobody joined
        └── CrashViolation          a promise did not survive a simulated power loss

An error takes facts, keeps them as fields and composes its own sentence from them, so that programs can act
on the fields and people can read the sentence. `retriable` says whether the same call may succeed later
without a change to the code.
"""

from __future__ import annotations

from typing import ClassVar, Final

from heliograph.wording import listed

ROOT: Final = "$"
"""How the event itself is written in a path; its field `a`, third element, is `$.a[2]`."""


class HeliographError(Exception):
    """Root of the tree: `except hg.HeliographError` catches all of it."""

    retriable: ClassVar[bool] = False


class FormatError(HeliographError):
    """A format description or an event class cannot be right.

    Attributes:
        reason: what is wrong, without the place.
        path: the field, such as `$.position.lat`; `$` is the whole record.
    """

    def __init__(self, reason: str, *, path: str = ROOT) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return self.reason if self.path == ROOT else f"{self.reason} (at {self.path})"


class IncompatibleFormats(FormatError):
    """Events of one format cannot be read as another.

    Attributes:
        writer: name of the format the events were written with.
        reader: name of the format they should be read as.
        problems: one sentence per field that does not fit.
    """

    def __init__(self, writer: str, reader: str, problems: tuple[str, ...]) -> None:
        super().__init__(f"{writer!r} cannot be read as {reader!r}: {listed(problems, joint='; ')}")
        self.writer = writer
        self.reader = reader
        self.problems = problems


class UnknownFormat(FormatError):
    """No description is known for a format id.

    Attributes:
        format_id: the id that was asked for.
    """

    retriable = True

    def __init__(self, format_id: bytes) -> None:
        super().__init__(
            f"no description of format {format_id.hex()} is known here; "
            "it arrives with the first event of a journal or link, or register() it"
        )
        self.format_id = format_id


class DecodeError(HeliographError):
    """Bytes do not hold what their format says. Nothing of the event is returned.

    Attributes:
        reason: what is wrong, without the place.
        path: the field, such as `$.position.lat`.
    """

    def __init__(self, reason: str, *, path: str = ROOT) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.reason} (at {self.path})"


class InvalidEvent(HeliographError):
    """A value does not fit the type of its field.

    Attributes:
        event: name of the event type.
        reason: what is wrong and what would fit.
        path: the field, such as `$.position.lat`.
    """

    def __init__(self, event: str, reason: str, *, path: str = ROOT) -> None:
        super().__init__(event, reason, path)
        self.event = event
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.event}: {self.reason} (at {self.path})"


class ExpressionError(HeliographError):
    """A filter or projection is wrong.

    Attributes:
        reason: what is wrong and what is allowed there.
        text: the expression.
        column: where in the text, counted from 1.
    """

    def __init__(self, reason: str, *, text: str, column: int) -> None:
        super().__init__(reason, text, column)
        self.reason = reason
        self.text = text
        self.column = column

    def __str__(self) -> str:
        # A window around the place keeps the picture readable for long expressions.
        start = max(0, self.column - 1 - 60)
        window = self.text[start : start + 120].replace("\n", " ")
        return f"{self.reason} (column {self.column})\n  {window}\n  {' ' * (self.column - 1 - start)}^"


class DiskError(HeliographError):
    """The disk refused an operation.

    Attributes:
        operation: `append`, `sync`, `rename`, ...
        file: the name of the file within its folder.
        reason: what the operating system said.
    """

    retriable = True

    def __init__(self, operation: str, file: str, reason: str) -> None:
        super().__init__(operation, file, reason)
        self.operation = operation
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.operation} of {self.file!r} failed: {self.reason}"


class DiskFull(DiskError):
    """No room is left on the disk, or the quota is used up."""


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
    """A name that could lead out of its folder, or that no file can have.

    Attributes:
        name: the name as it was given.
        reason: what is wrong with it.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.name!r} cannot name a file: {self.reason}; "
            "write a relative name such as 'head-0001' or 'partition-3/head-0001'"
        )


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

    def __str__(self) -> str:
        return (
            f"offsets {self.first} to {self.next_available - 1} of {self.partition!r} are damaged "
            f"({self.reason}); go on from {self.next_available}"
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


class QueueClosed(HeliographError):
    """A queue was closed: nothing more goes in, or nothing is left to come out.

    Attributes:
        name: the name of the queue.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"queue {self.name!r} is closed"


class NoJava(HeliographError):
    """Spark needs a Java, and none was found that will do.

    Attributes:
        reason: where Heliograph looked, what it found there, and what to set or install.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Spark needs Java 17 or newer: {self.reason}"


class SimulationError(HeliographError):
    """A simulated run went wrong.

    Attributes:
        reason: what happened.
        seed: the seed that repeats the run, step by step.
    """

    def __init__(self, reason: str, *, seed: int) -> None:
        super().__init__(reason, seed)
        self.reason = reason
        self.seed = seed

    def __str__(self) -> str:
        return f"{self.reason} (seed {self.seed})"


class SimDeadlock(SimulationError):
    """Every task waits, and no time-out will ever end one of the waits.

    Attributes:
        waits: task name to what it waits for.
    """

    def __init__(self, waits: dict[str, str], *, seed: int) -> None:
        lines = "".join(f"\n  {task} waits for {what}" for task, what in waits.items())
        super().__init__("every task waits and no time-out ends it:" + lines, seed=seed)
        self.waits = waits


class SimStuck(SimulationError):
    """Port calls went on and on while the simulated time stood still: somebody polls instead of waiting.

    Attributes:
        task: the task that made the last call.
        steps: how many port calls were made at that instant.
    """

    def __init__(self, task: str, steps: int, *, seed: int) -> None:
        super().__init__(
            f"{steps} port calls without any time passing, the last by task {task!r}; "
            "wait with a time-out instead of polling",
            seed=seed,
        )
        self.task = task
        self.steps = steps


class SimTaskFailed(SimulationError):
    """An exception ended a task, and nobody joined the task to hear of it.

    Attributes:
        task: the name of the task; the exception is the cause (`__cause__`).
    """

    def __init__(self, task: str, error: BaseException, *, seed: int) -> None:
        super().__init__(f"task {task!r} failed: {error!r}", seed=seed)
        self.task = task


class CrashViolation(SimulationError):
    """A promise did not survive a simulated power loss.

    Attributes:
        operation: the disk operation, counted from 1, at which the power went.
        outcome: how that operation and the survivors were chosen, for reading and for repeating it.
    """

    def __init__(self, operation: int, outcome: str, error: BaseException, *, seed: int) -> None:
        super().__init__(f"power loss at disk operation {operation} ({outcome}): {error}", seed=seed)
        self.operation = operation
        self.outcome = outcome


class InvalidQoS(HeliographError):
    """A quality of service that cannot be honoured.

    Attributes:
        policy: the field of `QoS`.
        value: what was asked for.
        allowed: what may stand there.
    """

    def __init__(self, policy: str, value: object, allowed: str) -> None:
        super().__init__(policy, value, allowed)
        self.policy = policy
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.policy}={self.value!r} cannot be honoured; allowed is {self.allowed}"


class ChannelError(HeliographError):
    """A call that a channel or its station cannot follow.

    Attributes:
        name: of the channel, consumer or station.
    """

    def __init__(self, name: str, *facts: object) -> None:
        super().__init__(name, *facts)
        self.name = name


class Closed(ChannelError):
    """It has been closed, or its station has."""

    def __str__(self) -> str:
        return f"{self.name} is closed; open it again from an open station"


class ForkedStation(ChannelError):
    """This process was forked off the one that opened the station: its threads are not here."""

    def __str__(self) -> str:
        return f"{self.name} belongs to the parent process; open a Station of your own after the fork"


class FolderInUse(ChannelError):
    """Another station has the folder.

    Attributes:
        holder: what the other station wrote about itself.
    """

    retriable = True

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(name, holder)
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"the folder {self.name!r} belongs to another station ({self.holder}); "
            "use a folder of your own, or close that station first"
        )


class ChannelExists(ChannelError):
    """`mode="create"` found a channel of that name."""

    def __str__(self) -> str:
        return f"there is a channel {self.name!r} already; leave out mode='create' to open it"


class NoSuchChannel(ChannelError):
    """`mode="open"` found no channel of that name."""

    def __str__(self) -> str:
        return f"there is no channel {self.name!r}; leave out mode='open' to create it"


class WrongEventType(ChannelError):
    """The channel does not carry events of this type.

    Attributes:
        given: the type that was pushed or asked for.
        carried: names of the types that the channel carries.
    """

    def __init__(self, name: str, given: str, carried: tuple[str, ...]) -> None:
        super().__init__(name, given, carried)
        self.given = given
        self.carried = carried

    def __str__(self) -> str:
        return (
            f"channel {self.name!r} carries {', '.join(self.carried)}, not {self.given}; "
            f"opening it with a further class, station.channel({self.name!r}, ...), adds that type"
        )


class NotPossible(ChannelError):
    """Options that do not go together here.

    Attributes:
        reason: why, and what to write instead.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class QueueFull(ChannelError):
    """A reliable consumer's queue stayed full for as long as `push` may wait. Nobody got the event.

    Attributes:
        name: of the consumer.
        limit: events that may wait for it.
        waited: seconds that `push` waited.
        pushed: in `push_many`, how many events had been pushed before this one.
    """

    retriable = True

    def __init__(self, name: str, limit: int, waited: float) -> None:
        super().__init__(name, limit, waited)
        self.limit = limit
        self.waited = waited
        self.pushed = 0

    def __str__(self) -> str:
        return (
            f"{self.name} has {self.limit} events waiting and took none in {self.waited:g} s; "
            "nobody got this event: push it again, give the consumer an overflow policy or a longer queue"
        )


class WouldDeadlock(ChannelError):
    """The queue to wait for is drained by the thread that would wait."""

    def __str__(self) -> str:
        return (
            f"the queue of {self.name} is full and this callback runs in the thread that drains it; "
            "push from another thread, or give the consumer an overflow policy"
        )


class LinkError(HeliographError):
    """Two stations cannot talk to each other.

    Attributes:
        peer: the other station, or where it was looked for.
        reason: what is wrong.
    """

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.peer}: {self.reason}"


class UnsafeRuntimeFolder(LinkError):
    """The folder where this user's stations meet belongs to, or can be entered by, somebody else."""


class LinkRefused(LinkError):
    """The other station is not one that this one may talk to."""


class LinkLost(LinkError):
    """The connection to another station ended."""

    retriable = True


class BadFrame(LinkError):
    """Bytes came over a link that no station of this version sends."""


class QueryFailed(LinkError):
    """Another station could not answer a question, or not in time."""

    retriable = True
