"""Every error that Heliograph raises, in one tree.

    HeliographError
    ├── FormatError                 a format description, an event class or its bytes cannot be right
    │   ├── IncompatibleFormats     one format cannot be read as the other; names each field and both types
    │   ├── TooManyFormats          more formats than are kept; somebody describes ever new ones
    │   ├── UnknownFormat           a format id nobody has described yet                        (retriable)
    │   └── SchemaChanged           events have fields for which a running Spark query has no column
    ├── DecodeError                 bytes do not hold what their format says; names the field's path
    │   └── BadRecord               so of an event in a history; names its partition and offset
    ├── InvalidEvent                a value does not fit its field; names the path
    ├── UnreadableFile              a file of another tool cannot be read as events; says what would be
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
    │   ├── CannotTell              an event of another domain may have been kept before
    │   ├── BatchTooLarge           more than one frame can hold
    │   ├── PartitionInUse          another writer has this partition; names it                 (retriable)
    │   ├── BadJournalFile          a file is none of ours, damaged, or newer than this program
    │   ├── NoHistory               no station kept such a history in that folder; names what is there
    │   ├── HistoryGone             retention has removed a range of offsets; names it
    │   ├── HistoryDamaged          a range of offsets cannot be read; names it
    │   ├── HistoryReset            an older copy was put back: offsets that were read name others
    │   ├── SupplierHeld            somebody else supplies under that name                      (retriable)
    │   ├── SupplierFenced          a later holder has taken over this supplier
    │   ├── CursorHeld              somebody else consumes under that name                      (retriable)
    │   ├── CursorFenced            a later owner has taken over this cursor
    │   ├── StoreTaken              another program publishes the same partition into a store
    │   ├── BatchRefused            a batch from outside was not taken in; says what to do
    │   ├── AdoptionTimeout         it is handed over, and nobody has taken it in yet           (retriable)
    │   └── TooManyAcks             too many events are acknowledged out of order
    ├── InvalidFileName             a name that could leave its folder, or that no file can have
    ├── InvalidQoS                  a quality of service that cannot be honoured; says what is allowed
    ├── InvalidPattern              a pattern over several events that cannot be looked for; says why
    ├── InvalidTask                 a task that no analysis can take; says why
    ├── NotSchedulable              tasks that cannot meet a deadline; names the task and the numbers
    ├── TooManyTimers               more wait than a station has room for                       (retriable)
    ├── ChannelError                a call that this channel or station cannot follow; names it
    │   ├── Closed                  it has been closed, or its station has
    │   ├── ForkedStation           this process was forked off the one that opened the station
    │   ├── FolderInUse             another station has this folder; names it                   (retriable)
    │   ├── ChannelExists, NoSuchChannel
    │   │   └── NameAlreadyUsed, EventChannelNotFound     of the manager's channels
    │   ├── ManagerAway             the station that manages a channel is away; events pass     (retriable)
    │   ├── ManagerFenced           a later manager has begun on the same folder
    │   ├── NotOwner                only the owner of a channel may ask for this; names it
    │   ├── NotAMember              somebody who has not joined the channel, or has left it
    │   ├── Suspended               the owner has suspended the channel; says what was pushed   (retriable)
    │   ├── EventsUnderWay          it cannot be destroyed while members lack events            (retriable)
    │   ├── WrongEventType          the channel does not carry events of this type
    │   ├── UnknownOption           an option that the call does not have; names those that it has
    │   ├── WrongArguments          an argument that the call needs is missing, or one is too many
    │   ├── NotPossible             options that do not go together here; says what to write instead
    │   ├── NotMatched              two stations have it in ways that do not go together; says why
    │   ├── DeliveryTimeout         not acknowledged by all in time; it may be yet               (retriable)
    │   ├── NoAnswerer              nobody answers questions of the channel                      (retriable)
    │   ├── AnswererBusy            too many questions wait already; it was not asked           (retriable)
    │   ├── AnswerTimeout           no answer in time; whether it was answered is unknown        (retriable)
    │   ├── AnswererLost            the station that was asked has gone                         (retriable)
    │   ├── AnswerFailed            the function that answers has raised; says what
    │   ├── NoOffer                 nobody has exported a service that fits                      (retriable)
    │   ├── NoState                 no station offers the state of a channel                     (retriable)
    │   ├── NoParameters            no station declares parameters of a channel                  (retriable)
    │   ├── ParameterRefused        a source does not take a value, or not from this setter
    │   ├── StateFailed             the function that tells a state has raised; says what       (retriable)
    │   ├── GivenUp                 an event was handed out as often as may be, and never acknowledged
    │   ├── PeerLost                a linked station was given up with events unconfirmed; says how many
    │   ├── CallbackStuck           a callback does not come back, and is called no more
    │   ├── CallbackSuspended       it does not while its queue is full, and gets nothing until it does
    │   ├── WindowFull              an event that is not acknowledged holds up all that come after it
    │   ├── ConsumerSuspended       it is not asked while its queue is full, and gets nothing until it is
    │   ├── QueueFull               a consumer's queue stayed full for `max_blocking`           (retriable)
    │   ├── WouldDeadlock           the queue to wait for is drained by this very thread
    │   ├── NotReentrant            a signal handler pushes into what it has interrupted         (retriable)
    │   ├── AlreadyConnected, Disconnected, ObjectNotExist, BadParam     of the CORBA face
    │   └── DcpsError               a call that an entity of the DCPS face cannot follow; says why
    │       ├── PreconditionNotMet, NotEnabled, AlreadyDeleted, BadParameter, OutOfResources
    │       ├── ImmutablePolicy, InconsistentPolicy       policies that cannot change, or contradict
    │       ├── IncompatibleQos     a writer and a reader of one topic do not match; says why
    │       ├── Unsupported         a value that the standard allows and this service does not honour
    │       └── WriteTimeout        a reliable reader had no room for `max_blocking`            (retriable)
    ├── LinkError                   two stations cannot talk to each other
    │   ├── UnsafeRuntimeFolder     the folder where stations meet is open to others
    │   ├── LinkRefused             the other station is not one of ours: version, domain, user
    │   │   └── NotVouched          a caller is not the station that it claims to be              (retriable)
    │   ├── LinkLost                the connection ended; it is made again by itself             (retriable)
    │   ├── BadFrame                bytes that no station sends; the connection is closed
    │   ├── LinkStalled             no descriptor or thread is left; it is tried again by itself (retriable)
    │   └── QueryFailed             another station could not answer, or not in time             (retriable)
    ├── RingError                   a ring in shared memory could not do what was asked
    │   ├── RingNotAvailable        not on this machine; says why, and sockets serve instead
    │   ├── NoRoomForRing           its memory could not be set aside; nothing was written       (retriable)
    │   ├── RingFull                a reliable reader did not make room in time; names it        (retriable)
    │   ├── RingClosed              its writer has closed it or died, and all is read
    │   ├── EventTooLargeForRing
    │   ├── TooManyReaders                                                                       (retriable)
    │   ├── LeaseLost               a reliable reader was too slow; names what it lost           (retriable)
    │   └── RingDamaged             memory holds what no writer writes
    ├── WorkerError                 a process of its own for consumers is not there
    │   ├── WorkerFailed            it could not begin its work; says what went wrong there
    │   ├── WorkerDied              it ended though nobody closed it; says how, and what is done
    │   └── WorkerHung              it gives no sign of life, or does not come back from a callback
    ├── InvalidConfiguration        a configuration file with a mistake; names the line and what is allowed
    ├── NoThreadLeft                the host has none for what was asked; nothing was begun     (retriable)
    ├── RealTimeRefused             the OS does not allow real-time threads; says what to do
    ├── QueueClosed                 nothing more goes in, or nothing is left to come out
    ├── MissingExtra                a call needs an extra that is not installed; says what to install
    ├── NoJava                      Spark needs a Java and none will do; says what to set or install
    ├── InvalidOption               an option of `format("heliograph")` that cannot be; says what can
    ├── ExpectationFailed           events are not as a quality job was told; names the first
    ├── TableInUse                  another job has this table or checkpoint                     (retriable)
    ├── TableMismatch               a folder holds another table than a job is to write; says how
    └── SimulationError             a simulated run went wrong; carries the seed that repeats it
        ├── SimDeadlock             every task waits and no time-out will end it; names each
        ├── SimStuck                a task runs on without ever letting time pass
        ├── SimTaskFailed           an exception ended a task that nobody joined
        ├── CrashViolation          a promise did not survive a simulated power loss
        └── PromiseBroken           a promise did not hold in a simulated federation

An error takes facts, keeps them as fields and composes its own sentence from them, so that programs can act
on the fields and people can read the sentence. `retriable` says whether the same call may succeed later
without a change to the code.
"""

from __future__ import annotations

from heliograph.errors.base import ROOT, HeliographError
from heliograph.errors.channel import (
    AlreadyConnected,
    AnswererBusy,
    AnswererLost,
    AnswerFailed,
    AnswerTimeout,
    BadParam,
    CallbackStuck,
    CallbackSuspended,
    ChannelError,
    ChannelExists,
    Closed,
    ConsumerSuspended,
    DeliveryTimeout,
    Disconnected,
    EventChannelNotFound,
    EventsUnderWay,
    FolderInUse,
    ForkedStation,
    GivenUp,
    InvalidPattern,
    InvalidQoS,
    InvalidTask,
    ManagerAway,
    ManagerFenced,
    NameAlreadyUsed,
    NoAnswerer,
    NoOffer,
    NoParameters,
    NoState,
    NoSuchChannel,
    NotAMember,
    NotMatched,
    NotOwner,
    NotPossible,
    NotReentrant,
    NotSchedulable,
    ObjectNotExist,
    ParameterRefused,
    PeerLost,
    QueueFull,
    StateFailed,
    Suspended,
    TooManyTimers,
    UnknownOption,
    WindowFull,
    WouldDeadlock,
    WrongArguments,
    WrongEventType,
)
from heliograph.errors.data import (
    BadRecord,
    DecodeError,
    ExpressionError,
    FormatError,
    IncompatibleFormats,
    InvalidEvent,
    SchemaChanged,
    TooManyFormats,
    UnknownFormat,
    UnreadableFile,
)
from heliograph.errors.dds import (
    AlreadyDeleted,
    BadParameter,
    DcpsError,
    ImmutablePolicy,
    IncompatibleQos,
    InconsistentPolicy,
    NotEnabled,
    OutOfResources,
    PreconditionNotMet,
    Unsupported,
    WriteTimeout,
)
from heliograph.errors.journal import (
    AdoptionTimeout,
    AppendFailed,
    AppendTimeout,
    BadJournalFile,
    BatchRefused,
    BatchTooLarge,
    CannotTell,
    CursorFenced,
    CursorHeld,
    HistoryDamaged,
    HistoryGone,
    HistoryReset,
    JournalBusy,
    JournalClosed,
    JournalError,
    NoHistory,
    PartitionInUse,
    StoreTaken,
    SupplierFenced,
    SupplierHeld,
    TooManyAcks,
)
from heliograph.errors.link import (
    BadFrame,
    LinkError,
    LinkLost,
    LinkRefused,
    LinkStalled,
    NotVouched,
    QueryFailed,
    UnsafeRuntimeFolder,
)
from heliograph.errors.machine import (
    DiskError,
    DiskFull,
    ExpectationFailed,
    FileExists,
    FileLocked,
    InvalidConfiguration,
    InvalidFileName,
    InvalidOption,
    MissingExtra,
    NoJava,
    NoSuchFile,
    NoThreadLeft,
    QueueClosed,
    RealTimeRefused,
    TableInUse,
    TableMismatch,
)
from heliograph.errors.ring import (
    EventTooLargeForRing,
    LeaseLost,
    NoRoomForRing,
    RingClosed,
    RingDamaged,
    RingError,
    RingFull,
    RingNotAvailable,
    TooManyReaders,
)
from heliograph.errors.simulation import (
    CrashViolation,
    PromiseBroken,
    SimDeadlock,
    SimStuck,
    SimTaskFailed,
    SimulationError,
)
from heliograph.errors.worker import WorkerDied, WorkerError, WorkerFailed, WorkerHung

__all__ = [
    "ROOT",
    "AdoptionTimeout",
    "AlreadyConnected",
    "AlreadyDeleted",
    "AnswerFailed",
    "AnswerTimeout",
    "AnswererBusy",
    "AnswererLost",
    "AppendFailed",
    "AppendTimeout",
    "BadFrame",
    "BadJournalFile",
    "BadParam",
    "BadParameter",
    "BadRecord",
    "BatchRefused",
    "BatchTooLarge",
    "CallbackStuck",
    "CallbackSuspended",
    "CannotTell",
    "ChannelError",
    "ChannelExists",
    "Closed",
    "ConsumerSuspended",
    "CrashViolation",
    "CursorFenced",
    "CursorHeld",
    "DcpsError",
    "DecodeError",
    "DeliveryTimeout",
    "Disconnected",
    "DiskError",
    "DiskFull",
    "EventChannelNotFound",
    "EventTooLargeForRing",
    "EventsUnderWay",
    "ExpectationFailed",
    "ExpressionError",
    "FileExists",
    "FileLocked",
    "FolderInUse",
    "ForkedStation",
    "FormatError",
    "GivenUp",
    "HeliographError",
    "HistoryDamaged",
    "HistoryGone",
    "HistoryReset",
    "ImmutablePolicy",
    "IncompatibleFormats",
    "IncompatibleQos",
    "InconsistentPolicy",
    "InvalidConfiguration",
    "InvalidEvent",
    "InvalidFileName",
    "InvalidOption",
    "InvalidPattern",
    "InvalidQoS",
    "InvalidTask",
    "JournalBusy",
    "JournalClosed",
    "JournalError",
    "LeaseLost",
    "LinkError",
    "LinkLost",
    "LinkRefused",
    "LinkStalled",
    "ManagerAway",
    "ManagerFenced",
    "MissingExtra",
    "NameAlreadyUsed",
    "NoAnswerer",
    "NoHistory",
    "NoJava",
    "NoOffer",
    "NoParameters",
    "NoRoomForRing",
    "NoState",
    "NoSuchChannel",
    "NoSuchFile",
    "NoThreadLeft",
    "NotAMember",
    "NotEnabled",
    "NotMatched",
    "NotOwner",
    "NotPossible",
    "NotReentrant",
    "NotSchedulable",
    "NotVouched",
    "ObjectNotExist",
    "OutOfResources",
    "ParameterRefused",
    "PartitionInUse",
    "PeerLost",
    "PreconditionNotMet",
    "PromiseBroken",
    "QueryFailed",
    "QueueClosed",
    "QueueFull",
    "RealTimeRefused",
    "RingClosed",
    "RingDamaged",
    "RingError",
    "RingFull",
    "RingNotAvailable",
    "SchemaChanged",
    "SimDeadlock",
    "SimStuck",
    "SimTaskFailed",
    "SimulationError",
    "StateFailed",
    "StoreTaken",
    "SupplierFenced",
    "SupplierHeld",
    "Suspended",
    "TableInUse",
    "TableMismatch",
    "TooManyAcks",
    "TooManyFormats",
    "TooManyReaders",
    "TooManyTimers",
    "UnknownFormat",
    "UnknownOption",
    "UnreadableFile",
    "UnsafeRuntimeFolder",
    "Unsupported",
    "WindowFull",
    "WorkerDied",
    "WorkerError",
    "WorkerFailed",
    "WorkerHung",
    "WouldDeadlock",
    "WriteTimeout",
    "WrongArguments",
    "WrongEventType",
]
