"""Which events, handed to this station by the one that supervises it, all of its receivers are done with.

A band worker acknowledges what it was handed, so that its station knows what to hand to the next process
when this one dies. An event is settled here once every receiver that wanted it has come to an end with it,
however: delivered, failed, expired or dropped. Settling is told so by the watches of receivers
(`channel.observer`), and tells `tell`, under whatever locks they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from heliograph.channel.intake import Intake
from heliograph.event import Event

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.channel.core import Channel
    from heliograph.channel.lane import Item, Lane
    from heliograph.channel.observer import Outcome, Watch
    from heliograph.event import EventId, Header
    from heliograph.ports import Tasks

T = TypeVar("T", bound=Event)

INTAKE: Final = ""
"""Stands among the receivers for those that are called inline, while the event is taken in."""


class Settling:
    """See the module. Of one channel."""

    def __init__(self, tasks: Tasks, channel: str) -> None:
        self._lock = tasks.lock(f"settling of {channel}")
        self._left: dict[EventId, set[str]] = {}
        self.tell: Callable[[EventId, bool], object] = lambda _, __: None
        """Told of an event, and whether it had been handed to another station before this one."""

    def watch(self, receiver: str) -> Watch:
        def watch(header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:  # noqa: ARG001 - as a watch is called
            self._done(header, receiver)

        return watch

    def expect(self, event: EventId, receivers: Iterable[str]) -> None:
        """It is about to be given to these."""
        with self._lock:
            self._left[event] = {INTAKE, *receivers}

    def taken_in(self, header: Header) -> None:
        """It has been given to all, and inline callbacks have returned."""
        with self._lock:
            is_nobodys = header.id not in self._left
        if is_nobodys:
            self.tell(header.id, header.redelivered)
        else:
            self._done(header, INTAKE)

    def _done(self, header: Header, receiver: str) -> None:
        event = header.id
        with self._lock:
            left = self._left.get(event)
            if left is None:
                return  # of another station, or pushed here
            left.discard(receiver)
            if left:
                return
            del self._left[event]
        self.tell(event, header.redelivered)


class SettledIntake(Intake[T]):
    """The way in for what the supervising station hands to this one."""

    def __init__(self, channel: Channel[T], name: str, settling: Settling) -> None:
        super().__init__(channel, name, 1)
        self._settling = settling

    def take_in(self, arrived: Sequence[Any], *, wait: bool = False, until: int = 0) -> int:
        """What came again goes in one by one: the last is told of before the next can kill this process."""
        if not any(item[1].redelivered for item in arrived):
            return self._take_in(arrived, wait, until)
        for number, item in enumerate(arrived):
            if not self._take_in([item], wait, until):
                return number
        return len(arrived)

    def _take_in(self, arrived: Sequence[Any], wait: bool, until: int) -> int:
        done = super().take_in(arrived, wait=wait, until=until)
        for item in arrived[:done]:
            self._settling.taken_in(item[1])
        return done

    def _allot(self, lanes: Sequence[Lane], item: Item, lots: defaultdict[Lane, list[Item]]) -> Lane | None:
        full = super()._allot(lanes, item, lots)
        if full is None and lanes:
            self._settling.expect(item[1].id, [lane.name for lane in lanes])
        return full
