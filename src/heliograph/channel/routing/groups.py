"""Consumers that share a stream: each event goes to one member of the group.

Events with a key stick to one member while the membership is stable: the member is the one that scores
highest for the key (rendezvous hashing), so a join or leave moves only the keys it must. Events without a
key go to the member with the shortest queue. When a member leaves, what waited for it goes to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item, Lane
    from heliograph.model.event import Header


class Group:
    """The members of one group. `choose` may run in several pushing threads while members come and go."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Replaced, never changed: whoever chooses works on the members of one moment.
        self._lanes: tuple[Lane, ...] = ()

    def join(self, lane: Lane) -> None:
        self._lanes += (lane,)

    def leave(self, lane: Lane) -> None:
        """Take a member out; its waiting events go to the others, or are dropped when it was the last."""
        self._lanes = tuple(other for other in self._lanes if other is not lane)
        if self._lanes:
            for item in lane.hand_over():
                self._give(item)

    def choose(self, header: Header) -> Lane:
        lanes = self._lanes
        if not header.key:
            return min(lanes, key=len)
        return max(lanes, key=lambda lane: score(lane.name, header.key))

    def __len__(self) -> int:
        return len(self._lanes)

    def _give(self, item: Item) -> None:
        lane = self.choose(item[1])
        # Nobody waits here for a full member: what it had promised to take is taken over as it is.
        lane.put_extra(item)


def score(member: str, key: tuple[Any, ...]) -> int:
    """How much a key wants to be a member's."""
    # Squared: alone, the hash of a tuple puts the same distance between two members for most keys.
    mixed = hash((member, key))
    return hash(mixed * mixed)
