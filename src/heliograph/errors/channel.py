"""Calls that a channel or station cannot follow."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


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


class InvalidTask(HeliographError):
    """A task that no analysis can take.

    Attributes:
        name: of the task.
        reason: what is wrong with it.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


class InvalidPattern(HeliographError):
    """A pattern over several events that cannot be looked for.

    Attributes:
        part: which part of it is wrong.
        reason: what is wrong with it.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.part} {self.reason}"


class NotSchedulable(HeliographError):
    """A set of tasks that cannot meet a deadline.

    Attributes:
        task: the first in order of priority that misses.
        response: the response of its first job that is late, in seconds; None when it never ends.
        deadline: in seconds.
        utilisation: the share of one core that it and all before it take.
    """

    def __init__(self, task: str, response: float | None, deadline: float, utilisation: float) -> None:
        super().__init__(task, response, deadline, utilisation)
        self.task = task
        self.response = response
        self.deadline = deadline
        self.utilisation = utilisation

    def __str__(self) -> str:
        ends = "never ends" if self.response is None else f"ends after {self.response * 1e3:.3f} ms"
        return (
            f"{self.task} {ends} in the worst case, its deadline is {self.deadline * 1e3:.3f} ms; it and "
            f"what goes before it take {self.utilisation:.1%} of a core: lower a cost, or lengthen a period "
            "or the deadline"
        )


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


class UnknownOption(ChannelError, TypeError):
    """A call was given an option that it does not have: most often a misspelled one.

    Attributes:
        name: of the call.
        option: what was given.
        known: what it has.
    """

    def __init__(self, name: str, option: str, known: tuple[str, ...]) -> None:
        super().__init__(name, option, known)
        self.option = option
        self.known = known

    def __str__(self) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - loaded when somebody reads the sentence

        near = get_close_matches(self.option, self.known, 1)
        hint = f"; did you mean {near[0]}=?" if near else ""
        return f"{self.name}() has no option {self.option!r}; it has {', '.join(self.known) or 'none'}{hint}"


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


class DeliveryTimeout(ChannelError):
    """Not everybody had acknowledged the event in the time that the caller gave; they may yet.

    Attributes:
        name: of the channel.
        event: the id of the event.
        waited: seconds.
    """

    retriable = True

    def __init__(self, name: str, event: str, waited: float) -> None:
        super().__init__(name, event, waited)
        self.event = event
        self.waited = waited

    def __str__(self) -> str:
        return (
            f"channel {self.name!r}: not all have acknowledged event {self.event} within {self.waited:g} s; "
            "it is on its way, and they may yet"
        )


class GivenUp(ChannelError):
    """An event was handed out as often as may be, and nobody acknowledged it.

    Attributes:
        name: of the consumer or group.
        event: the id of the event.
        attempts: how often it was handed out.
    """

    def __init__(self, name: str, event: str, attempts: int) -> None:
        super().__init__(name, event, attempts)
        self.event = event
        self.attempts = attempts

    def __str__(self) -> str:
        return (
            f"{self.name} was handed event {self.event} {self.attempts} times and never acknowledged it; "
            "give it a dead_letter= channel to keep such events"
        )


class WouldDeadlock(ChannelError):
    """The queue to wait for is drained by the thread that would wait."""

    def __str__(self) -> str:
        return (
            f"the queue of {self.name} is full and this callback runs in the thread that drains it; "
            "push from another thread, or give the consumer an overflow policy"
        )


class TooManyTimers(HeliographError):
    """More timers wait than a station has room for.

    Attributes:
        limit: how many may wait.
    """

    retriable = True

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

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
    """An argument that the CORBA face does not take.

    Attributes:
        reason: what is wrong with it.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"
