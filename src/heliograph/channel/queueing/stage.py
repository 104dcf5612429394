"""Stages: what an event passes before it waits in a queue, one after the other, in the order of the list.

A stage decides about each event that comes in: it passes the event on, drops it, or holds it back for later.
The last of them passes it to the queue itself, which makes room by its overflow policy and stores it. A stage
that has to know is told what became of an event afterwards.

    EventQueue(..., stages=[Separation(0.1, timers, clock)])

A queue without a stage, or whose stages are `idle`, stores an event in a few instructions; else each event
takes the longer way. So a new policy is a stage of its own, beside the others, and costs nothing elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from heliograph.channel.queueing.queue import EventQueue, Item


class Stage:
    """See the module. All calls but `finish` come under the queue's lock; these defaults do nothing."""

    idle = False
    """Whether it lets all events pass for now. After a change: `EventQueue.stages_changed`."""
    paces = False
    """Whether events are taken one by one, and `taken` is told of each."""

    def __init__(self) -> None:
        self._next: Stage | None = None

    def join(self, queue: EventQueue, following: Stage | None) -> None:
        """It belongs to this queue, and that stage comes after it."""
        self.queue = queue
        self._next = following

    def admit(self, item: Item, *, beyond: bool) -> bool:
        """An event comes in. Whether anything new waits now.

        Args:
            item: the event.
            beyond: whether it may wait although the queue is full: it comes from a history, or from a member
                of the group that left.
        """
        return self.pass_on(item, beyond=beyond)

    def pass_on(self, item: Item, *, beyond: bool) -> bool:
        """To the next stage, or into the queue. Whether anything new waits now."""
        following = self._next
        if following is None:
            return self.queue.store(item, beyond=beyond)
        return following.admit(item, beyond=beyond)

    def held_back(self) -> Collection[Item]:
        """What has come in and neither waits nor was taken: it counts as pending."""
        return ()

    def taken(self, items: Sequence[Item]) -> None:
        """These are about to be delivered; only for a stage that `paces`."""

    def returned(self, items: Sequence[Item]) -> None:
        """These were taken, are not delivered and wait again."""

    def lost(self, items: Sequence[Item]) -> None:
        """These waited, and have expired or made room for others."""

    def mended(self) -> None:
        """A change was interrupted, and the queue has counted again what waits."""

    def finish(self) -> None:
        """Nothing more will come: hold nothing back. Without the lock."""

    def close(self, reason: str) -> None:
        """The queue closes: drop what is held back."""
