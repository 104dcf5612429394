"""Consumers that share a stream: each event goes to one member of the group.

Events with a key stick to one member while the membership is stable: the member is the one that scores
highest for the key (rendezvous hashing), so a join or leave moves only the keys it must. Events without a
key go to the member with the shortest queue. When a member leaves, what waited for it goes to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import EventQueue, Item


class Group:
    """The members of one group. `choose` may run in several pushing threads while members come and go."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Replaced, never changed: whoever chooses works on the members of one moment.
        self._queues: tuple[EventQueue, ...] = ()

    def join(self, queue: EventQueue) -> None:
        self._queues += (queue,)

    def leave(self, queue: EventQueue) -> None:
        """Take a member out; its waiting events go to the others, or are dropped when it was the last."""
        self._queues = tuple(other for other in self._queues if other is not queue)
        if self._queues:
            for item in queue.hand_over():
                self._give(item)

    @property
    def queues(self) -> tuple[EventQueue, ...]:
        """The queues of its members."""
        return self._queues

    def choose(self, key: tuple[Any, ...]) -> EventQueue:
        """The queue of the member that gets an event with that key, or with none."""
        queues = self._queues
        if not key:
            return min(queues, key=len)
        return max(queues, key=lambda queue: score(queue.name, key))

    def __len__(self) -> int:
        return len(self._queues)

    def _give(self, item: Item) -> None:
        queue = self.choose(item[1].key)
        # Nobody waits here for a full member: what it had promised to take is taken over as it is.
        queue.put_extra(item)


def score(member: str, key: tuple[Any, ...]) -> int:
    """How much a key wants to be a member's."""
    # Squared: alone, the hash of a tuple puts the same distance between two members for most keys.
    mixed = hash((member, key))
    return hash(mixed * mixed)
