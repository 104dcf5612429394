"""Acknowledges to the supervising station which events a worker's receivers have finished.

A band worker acknowledges what it was handed, so that its station knows what to hand to the next process
when this one dies. An event is settled here once every receiver that wanted it has come to an end with it,
however: delivered, failed, expired or dropped. The watches of receivers (`channel.observer`) say so here, and
the supervising station is told, under whatever locks they hold.

An event that came again may be what killed the process before. It is handed over alone, and the supervisor is
told before and after: so it is known which one was in hand when a process dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.channel.observer import Outcome, Watch
    from heliograph.channel.publish.entry import Entering
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.model.event import EventId, Header
    from heliograph.runtime.ports import Tasks

Key: TypeAlias = "tuple[str, EventId]"

INTAKE: Final = ""
"""Stands among the receivers for those that are called inline, while the event is taken in."""
ALONE: Final = 1.0
"""Seconds for which an event that came again is alone; then the next is handed over beside it."""


class Supervisor(Protocol):
    """The supervising station, as it is told."""

    def begun(self, channel: str, event: EventId) -> None:
        """An event that came again is about to be handed to receivers."""

    def settled(self, channel: str, event: EventId, again: bool) -> None:
        """All receivers are done with an event; whether it had come again."""


class WorkerAcks:
    """See the module. Of all channels of a station."""

    supervisor: Supervisor

    def __init__(self, tasks: Tasks) -> None:
        self._changed = tasks.condition(None, "settling")
        self._left: dict[Key, set[str]] = {}
        self._again: set[Key] = set()
        """Those of them that came again."""
        self.is_ending = False
        """Whether the process ends, and what receivers drop is for the next one."""

    def watch(self, receiver: str) -> Watch:
        def watch(header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:  # noqa: ARG001 - as a watch is called
            if not (self.is_ending and outcome == "dropped"):
                self._done(header, receiver)

        return watch

    @property
    def has_suspects(self) -> bool:
        """Whether receivers have an event in hand that came again."""
        return bool(self._again)

    def admit(self, header: Header, timeout: float) -> bool:
        """Wait for the turn of an event: one that came again is alone, the others wait for those."""
        key = (header.channel, header.id)
        with self._changed:
            is_free = self._changed.wait_for(
                lambda: not (self._again or (header.redelivered and self._left)), timeout
            )
            if not (is_free or timeout):
                return False
            self._left[key] = {INTAKE}
            if header.redelivered:
                self._again.add(key)
        if header.redelivered:
            self.supervisor.begun(*key)
        return True

    def turn_away(self, header: Header) -> None:
        """An event was admitted, and no queue had room for it."""
        key = (header.channel, header.id)
        with self._changed:
            del self._left[key]
            self._again.discard(key)
            self._changed.notify_all()

    def expect(self, header: Header, receivers: Iterable[str]) -> None:
        """Expect one outcome of an event from each of these receivers."""
        with self._changed:
            self._left[header.channel, header.id] = {INTAKE, *receivers}

    def taken_in(self, header: Header) -> None:
        """An event is in the queues of all receivers, and inline callbacks have returned."""
        with self._changed:
            is_nobodys = (header.channel, header.id) not in self._left
        if is_nobodys:
            self.supervisor.settled(header.channel, header.id, header.redelivered)
        else:
            self._done(header, INTAKE)

    def _done(self, header: Header, receiver: str) -> None:
        key = (header.channel, header.id)
        with self._changed:
            left = self._left.get(key)
            if left is None:
                return  # of another station, or pushed here
            left.discard(receiver)
            if left:
                return
            del self._left[key]
        self.supervisor.settled(*key, header.redelivered)
        with self._changed:  # only now: the next that is admitted may end this process
            self._again.discard(key)
            self._changed.notify_all()


def expected_by(settling: WorkerAcks) -> Entering:
    """Tells it whose queues an event enters."""

    def entering(item: Item, queues: Sequence[EventQueue]) -> None:
        if queues:
            settling.expect(item[1], [queue.name for queue in queues])

    return entering


def take_in_settled(
    settling: WorkerAcks,
    queue: Callable[[Sequence[Item]], tuple[int, bool]],
    arrived: Sequence[Item],
    *,
    wait: bool,
) -> tuple[int, int]:
    """Queue what the supervising station has handed to this one.

    Args:
        settling: what tells the supervisor.
        queue: gives how many of some events were queued, and whether the rest never will be.
        arrived: what came.
        wait: whether to wait for the turn of an event that came again.

    Returns:
        How many need not be brought again, and how many of these were not even tried, as nobody is there.
    """

    def queue_settled(some: Sequence[Item]) -> tuple[int, bool]:
        """What is let go is not settled: the supervisor has it, for whoever comes after."""
        done, is_closed = queue(some)
        for item in some[:done]:
            settling.taken_in(item[1])
        return done, is_closed

    if not (settling.has_suspects or any(item[1].redelivered for item in arrived)):
        done, is_closed = queue_settled(arrived)
        return (len(arrived) if is_closed else done), 0
    for number, item in enumerate(arrived):
        if not settling.admit(item[1], ALONE if wait else 0.0):
            return number, 0
        done, is_closed = queue_settled([item])
        if not done:
            settling.turn_away(item[1])
            if not is_closed:
                return number, 0
            return len(arrived), len(arrived) - number - 1  # this one is counted
    return len(arrived), 0
