"""Calls that a channel or station cannot follow."""

from __future__ import annotations

from heliograph.errors.base import HeliographError
from heliograph.errors.sentences import listed, of_batch


class InvalidQoS(HeliographError):
    """A quality of service that cannot be honoured."""

    policy: str
    """The field of `QoS`."""
    value: object
    """What was asked for."""
    allowed: str
    """What may stand there."""

    def __str__(self) -> str:
        return f"{self.policy}={self.value!r} cannot be honoured; allowed is {self.allowed}"


class InvalidTask(HeliographError):
    """A task that no analysis can take."""

    name: str
    """Of the task."""
    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


class InvalidPattern(HeliographError):
    """A pattern over several events that cannot be looked for."""

    part: str
    """Which part of it is wrong."""
    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{self.part} {self.reason}"


class NotSchedulable(HeliographError):
    """A set of tasks that cannot meet a deadline."""

    task: str
    """The first in order of priority that misses."""
    response: float | None
    """The response of its first job that is late, in seconds; None when it never ends."""
    deadline: float
    """In seconds."""
    utilisation: float
    """The share of one core that it and all before it take."""
    blocking: tuple[tuple[str, float], ...] = ()
    """What goes after it and may have begun before it, uninterrupted: a task, `blocking=`; with its seconds
    of the response."""
    held_up: bool = False
    """Whether it would be in time without that."""

    def __str__(self) -> str:
        ends = "never ends" if self.response is None else f"ends after {self.response * 1e3:.3f} ms"
        return (
            f"{self.task} {ends} in the worst case, its deadline is {self.deadline * 1e3:.3f} ms; "
            f"{self._waits()}it and what goes before it take {self.utilisation:.1%} of a core: lower a cost, "
            "or lengthen a period or the deadline"
        )

    def _waits(self) -> str:
        """What it waits for."""
        if not self.blocking:
            return ""
        shares = " and ".join(f"{seconds * 1e3:.3f} ms for {what}" for what, seconds in self.blocking)
        without = ", and would be in time without" if self.held_up else ""
        return f"it waits {shares} to end first{without}; "


class ChannelError(HeliographError):
    """A call that a channel or its station cannot follow."""

    name: str
    """Of the channel, consumer or station."""


class Closed(ChannelError):
    """It has been closed, or its station has."""

    def __str__(self) -> str:
        return f"{self.name} is closed, and stays so; a station that is opened later can open it again"


class ForkedStation(ChannelError):
    """This process was forked off the one that opened the station: its threads are not here."""

    def __str__(self) -> str:
        return f"{self.name} belongs to the parent process; open a Station of your own after the fork"


class FolderInUse(ChannelError):
    """Another station has the folder."""

    retriable = True

    holder: str
    """What the other station wrote about itself."""

    def __str__(self) -> str:
        return (
            f"the folder {self.name!r} belongs to another station ({self.holder}); "
            "join it with domain=, use a folder of your own, or close that station first"
        )


class ChannelExists(ChannelError):
    """`mode="create"` found a channel of that name."""

    def __str__(self) -> str:
        return f"there is a channel {self.name!r} already; leave out mode='create' to open it"


class NoSuchChannel(ChannelError):
    """`mode="open"` found no channel of that name."""

    def __str__(self) -> str:
        return f"there is no channel {self.name!r}; leave out mode='open' to create it"


class NameAlreadyUsed(ChannelExists):
    """The manager was asked to create a channel that there is already."""

    owner: str = ""
    """The owner of the channel; empty when the channel was not created by the manager."""

    def __str__(self) -> str:
        whose = f", owned by {self.owner!r}: join it" if self.owner else ", which the manager did not create"
        return f"there is a channel {self.name!r} already{whose}, or create one of another name"


class EventChannelNotFound(NoSuchChannel):
    """The manager has no channel of that name."""

    def __str__(self) -> str:
        return f"the manager has no channel {self.name!r}; manager.channels() says which it has"


class NotOwner(ChannelError):
    """Only the owner of a channel may ask for this."""

    user: str
    """The participant that asked."""
    wanted: str
    """For what."""
    owner: str
    """The participants that may."""

    def __str__(self) -> str:
        return f"{self.user!r} may not {self.wanted} {self.name!r}: only its owner {self.owner!r} may"


class ManagerAway(ChannelError):
    """The station that manages a channel is away, and no standby has taken over yet. Events still pass."""

    retriable = True

    asked: str
    """What the manager was asked for."""
    unknown: bool = False
    """Whether it was lost while it was asked: that may be recorded, or not."""

    def __str__(self) -> str:
        if self.unknown:
            return (
                f"the manager of {self.name!r} was lost while it was asked to {self.asked}: look whether "
                "that is done, by find_managed(), and ask again if it is not"
            )
        return (
            f"the manager of {self.name!r} is away, so nothing is {self.asked!r} there: ask again when its "
            "station is back, or have a standby, `helio station --folder FOLDER --standby`"
        )


class ManagerFenced(ChannelError):
    """A later manager has begun on the same folder: this one records nothing any more."""

    term: int
    """Of the manager that was asked."""
    later: int
    """Of the one that may act; the same where both began at the same instant."""

    def __str__(self) -> str:
        return (
            f"this manager, of term {self.term}, was succeeded by one of term {self.later} and does nothing "
            "any more: close this station, and ask by station.domain_manager"
        )


class NotAMember(ChannelError):
    """A user that has not joined the channel, or has left it."""

    user: str
    """The user."""

    def __str__(self) -> str:
        how = f"manager.join({self.name!r}, {self.user!r})"
        return f"{self.user!r} is no member of {self.name!r}; {how} makes it one"


class Suspended(ChannelError):
    """Nothing is pushed while the owner has suspended the channel, or is destroying it."""

    retriable = True

    owner: str
    """The participant that can restart it."""
    ending: bool = False
    """Whether it is being destroyed."""
    pushed: int = 0
    """In `push_many`, how many events had been pushed before."""

    def __str__(self) -> str:
        what = (
            f"the first {self.pushed} of the batch are pushed; push [{self.pushed}:]"
            if self.pushed
            else "push"
        )
        if self.ending:
            return f"{self.name!r} is being destroyed: {what} again if manager.find() says that it is not"
        return f"{self.name!r} is suspended: {what} again when its owner {self.owner!r} has restarted it"


class EventsUnderWay(ChannelError):
    """A channel cannot be destroyed while members lack events of it, or some are to be delivered later."""

    retriable = True

    lacking: tuple[str, ...]
    """Participants that have not acknowledged everything that they are to get."""
    delayed: int = 0
    """Delayed events, which go to the participants of that time."""

    def __str__(self) -> str:
        later = f"{self.name!r} has events that are to be delivered later ({self.delayed}): destroy it then"
        if not self.lacking:
            return later
        now = (
            f"{self.name!r} has events under way to {listed(self.lacking)}: destroy it when they have "
            "acknowledged them, or have left"
        )
        return f"{now}; {later}" if self.delayed else now


class WrongEventType(ChannelError):
    """The channel does not carry events of this type."""

    given: str
    """The type that was pushed or asked for."""
    carried: tuple[str, ...]
    """Names of the types that the channel carries."""
    instead: str = ""
    """What to push in place of something that is no event."""
    index: int | None = None
    """In `push_many`, which of the batch it is; none of them is pushed then."""

    def __str__(self) -> str:
        carries = f"channel {self.name!r} carries {', '.join(self.carried)}, not {self.given}"
        if self.instead:
            to_do = f", which is no event; write {self.instead}"
        else:
            to_do = f"; opening it with a further class, station.channel({self.name!r}, ...), adds that type"
        return f"{carries}{to_do}{of_batch(self.index)}"


def did_you_mean(given: str, known: tuple[str, ...]) -> str:
    """The end of a sentence about a misspelled option; empty when it resembles none."""
    from difflib import get_close_matches  # noqa: PLC0415 - loaded when somebody reads the sentence

    near = get_close_matches(given, known, 1)
    return f"; did you mean {near[0]}=?" if near else ""


class UnknownOption(ChannelError, TypeError):
    """A call was given an option that it does not have: most often a misspelled one. `name` is the call's."""

    option: str
    """What was given."""
    known: tuple[str, ...]
    """What it has."""
    instead: str = ""
    """What to write, where it is an option of other calls or channels."""

    def __str__(self) -> str:
        hint = f"; {self.instead}" if self.instead else did_you_mean(self.option, self.known)
        return f"{self.name}() has no option {self.option!r}; it has {', '.join(self.known) or 'none'}{hint}"


class WrongArguments(ChannelError, TypeError):
    """A call lacks an argument that it needs, or was given too many. `name` is the call's."""

    problem: str
    """Which, in Python's words."""
    takes: tuple[str, ...]
    """The arguments that it needs, in their order."""

    def __str__(self) -> str:
        return f"{self.name}() {self.problem}; write {self.name}({', '.join(self.takes)})"


class NotPossible(ChannelError):
    """Options that do not go together here."""

    reason: str
    """Why, and what to write instead."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class NotMatched(ChannelError):
    """Two stations have a channel in ways that do not go together: its events do not pass between them.

    `name` is the channel's. Told to `on_error`, in both stations.
    """

    station: str
    """The other one."""
    to_it: bool
    """Whether it is the one that does not get them; else it is this station."""
    type: str
    """Which events; empty: all of the channel."""
    reason: str
    change: str = ""
    """The smallest change on either side that mends it, where one is known."""

    @property
    def events(self) -> str:
        """Which events, in words."""
        return f"events of type {self.type}" if self.type else "events"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return self.change or (
            f"{'give both stations classes' if self.type else 'open it in both with qos='} that go together"
        )

    def __str__(self) -> str:
        where = (
            f"go from here to station {self.station}" if self.to_it else f"come from station {self.station}"
        )
        return f"{self.name}: no {self.events} {where}: {self.reason}; {self.remedy}"


class QueueFull(ChannelError):
    """A reliable consumer's queue stayed full for as long as `push` may wait. No receiver got the event.

    `name` is the consumer's.
    """

    retriable = True

    limit: int
    """Events that may wait for it."""
    waited: float
    """Seconds that `push` waited."""
    pushed: int = 0
    """In `push_many`, how many events had been pushed before this one."""
    bytes_waiting: int = 0
    """What those events take that wait, where that is what the queue is full by (`queue_bytes=`)."""

    def __str__(self) -> str:
        to_do = "nobody got this event: push it again"
        if self.pushed:
            done = self.pushed
            to_do = f"the first {done} of the batch are pushed, nobody got the others: push [{done}:] again"
        waiting, remedy = f"{self.limit} events", "a longer queue"
        if self.bytes_waiting:
            waiting, remedy = f"events of {self.bytes_waiting:,} bytes", "more queue_bytes"
        return (
            f"{self.name} has {waiting} waiting and took none in {self.waited:g} s; {to_do}, "
            f"give the consumer an overflow policy or {remedy}"
        )


class DeliveryTimeout(ChannelError):
    """Not everybody had acknowledged the event in the time that the caller gave; they may yet."""

    retriable = True

    event: str
    """The id of the event."""
    waited: float
    """Seconds."""

    def __str__(self) -> str:
        return (
            f"channel {self.name!r}: not all have acknowledged event {self.event} within {self.waited:g} s; "
            "it is on its way, and they may yet"
        )


class NoAnswerer(ChannelError):
    """A question was asked that nobody answers, in this station and those that are linked."""

    retriable = True

    def __str__(self) -> str:
        return (
            f"nobody answers questions of channel {self.name!r}: have a station of this domain open it and "
            "call channel.answer(function)"
        )


class AnswererBusy(ChannelError):
    """Too many questions wait already; this one was not asked."""

    retriable = True

    waiting: int
    """How many wait."""

    def __str__(self) -> str:
        return (
            f"channel {self.name!r}: {self.waiting:,} questions wait for an answer already; ask fewer at a "
            "time, or have more answerers"
        )


class AnswerTimeout(ChannelError):
    """There was no answer in time; whether the question was answered is unknown."""

    retriable = True

    question: str
    """The id of the question."""
    waited: float
    """Seconds."""

    def __str__(self) -> str:
        return (
            f"channel {self.name!r}: question {self.question} was not answered within {self.waited:g} s; "
            "whether its answerer has done what was asked is unknown"
        )


class AnswererLost(ChannelError):
    """The station that was asked has gone; whether it had done what was asked is unknown."""

    retriable = True

    station: str
    """The station that was asked."""
    question: str
    """The id of the question."""

    def __str__(self) -> str:
        return (
            f"channel {self.name!r}: station {self.station} has gone before it answered question "
            f"{self.question}; whether it has done what was asked is unknown"
        )


class AnswerFailed(ChannelError):
    """The function that answers has raised."""

    answerer: str
    """The function's name."""
    error: str
    """The name of the exception's class."""
    text: str
    """What it said."""

    def __str__(self) -> str:
        return f"channel {self.name!r}: answerer {self.answerer!r} raised {self.error}: {self.text}"


class NoState(ChannelError):
    """No station offers the state of a channel's suppliers."""

    retriable = True

    def __str__(self) -> str:
        return (
            f"no station offers the state of channel {self.name!r}: have its supplier call "
            "channel.state(function), or channel.state('latest')"
        )


class NoParameters(ChannelError):
    """No station declares parameters of a channel, so there is nobody to set them at."""

    retriable = True

    def __str__(self) -> str:
        return (
            f"no station declares parameters of channel {self.name!r}: have its source call "
            "channel.parameters.declare(rate=hg.Parameter(10.0))"
        )


class ParameterRefused(ChannelError):
    """A source does not take a value for a parameter, or not from this setter; nothing was changed."""

    parameter: str
    setter: str
    """Who asked."""
    reason: str

    def __str__(self) -> str:
        return f"channel {self.name!r}: parameter {self.parameter!r} {self.reason} (asked by {self.setter})"


class NoOffer(ChannelError):
    """Nobody has exported a service that fits; `name` is what was asked for."""

    retriable = True

    def __str__(self) -> str:
        return (
            f"no station of the domain offers {self.name}: station.trader.export(kind, name) offers "
            "something, and trader.query() lists all that there is"
        )


class StateFailed(ChannelError):
    """The function that tells a supplier's state has raised."""

    retriable = True

    error: str
    """The name of the exception's class."""
    text: str
    """What it said."""

    def __str__(self) -> str:
        return f"channel {self.name!r}: the function that tells its state raised {self.error}: {self.text}"


class GivenUp(ChannelError):
    """An event was handed out as often as allowed, and no consumer acknowledged it.

    `name` is the consumer's or group's.
    """

    event: str
    """The id of the event."""
    attempts: int
    """How often it was handed out."""

    def __str__(self) -> str:
        return (
            f"{self.name} was handed event {self.event} {self.attempts} times and never acknowledged it; "
            "give it a dead_letter= channel to keep such events"
        )


class PeerLost(ChannelError):
    """A linked station was given up before it had confirmed events of a channel; they count as dropped.

    `name` is the channel's.
    """

    peer: str
    """The station."""
    events: int
    """How many of its events that station has not confirmed: it may have taken in some of them."""

    def __str__(self) -> str:
        return (
            f"{self.name}: station {self.peer} was given up with {self.events} events unconfirmed, which "
            "count as dropped (peer-lost); durability='persistent' keeps what such a station lacks"
        )


class CallbackStuck(ChannelError):
    """A callback has not returned for `callback_limit`, and is called no more.

    `name` is its subscription's.
    """

    seconds: float
    """For how long."""
    comes_again: bool = False
    """Whether it acknowledges by returning, so that nothing is lost."""

    def __str__(self) -> str:
        waiting = "what waits for it is dropped and counted as stuck"
        if self.comes_again:
            waiting = "what it has not acknowledged comes again, to whoever receives in its place"
        return (
            f"{self.name} has not returned for {self.seconds:.1f} s; it is detached, and {waiting}. "
            "Subscribe again when it has returned, or give Station(callback_limit=...) more"
        )


class WindowFull(ChannelError):
    """A consumer or group gets nothing more until an event that is not acknowledged is settled.

    `name` is the consumer's or group's.
    """

    limit: int
    """Events that are acknowledged behind it, or handed out, at most."""
    event: str
    """The event that comes first among those that are not settled."""
    attempts: int
    """How often it was handed out."""

    def __str__(self) -> str:
        return (
            f"{self.name} is given nothing more: {self.limit:,} events are out, or acknowledged behind "
            f"event {self.event}, which was handed out {self.attempts} times and is not acknowledged. "
            "max_deliveries= gives such an event up, and dead_letter= keeps it; or acknowledge it"
        )


class CallbackSuspended(ChannelError):
    """A callback does not return while its queue is full: until it does, what comes for it is dropped."""

    seconds: float
    """For how long."""

    def __str__(self) -> str:
        return (
            f"{self.name} has not returned for {self.seconds:.1f} s and its queue is full; until it does, "
            "what comes for it is dropped and counted as suspended, so that nobody else waits. Give it a "
            "larger queue=, another overflow=, or less to do"
        )


class ConsumerSuspended(ChannelError):
    """A consumer is not asked while its queue is full: until it is, what comes for it is dropped."""

    seconds: float
    """For how long."""

    def __str__(self) -> str:
        return (
            f"{self.name} was not asked for {self.seconds:.1f} s, its queue is full, and a push was refused "
            "for it; until it is asked, what comes for it is dropped and counted as suspended, so that "
            "nobody else waits. Ask more often, or give it a larger queue=, another overflow=, or the "
            "channel more max_blocking"
        )


class WouldDeadlock(ChannelError):
    """The queue to wait for is drained by the thread that would wait."""

    def __str__(self) -> str:
        return (
            f"the queue of {self.name} is full and this callback runs in the thread that drains it; "
            "push from another thread, or give the consumer an overflow policy"
        )


class NotReentrant(ChannelError):
    """A signal handler or a finalizer pushes while the push, or pull, that it interrupted is half done."""

    retriable = True

    def __str__(self) -> str:
        return (
            "this push comes out of a signal handler or a finalizer (__del__) that interrupted its thread "
            f"inside of {self.name}; push from another thread, or have the handler set a flag and push then"
        )


class TooManyTimers(HeliographError):
    """More timers wait than a station allows."""

    retriable = True

    limit: int
    """How many may wait."""

    def __str__(self) -> str:
        return f"{self.limit:,} timers wait already; cancel some, or let some ring first"


class AlreadyConnected(ChannelError):
    """A proxy of the CORBA face takes one peer."""

    def __str__(self) -> str:
        return f"this {self.name} is connected already; obtain another proxy"


class Disconnected(ChannelError):
    """A proxy of the CORBA face is not connected, or no longer; also for peers to raise."""

    def __str__(self) -> str:
        return f"this {self.name} is not connected"


class ObjectNotExist(ChannelError):
    """A proxy or channel of the CORBA face that was disconnected or destroyed before."""

    def __str__(self) -> str:
        return f"this {self.name} does not exist any more"


class BadParam(ChannelError):
    """An argument that the CORBA face does not take."""

    reason: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"
