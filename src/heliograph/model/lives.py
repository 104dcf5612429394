"""Which lives of a history were read: found out when it goes back in time, as a folder does that is restored.

Each writer that opens a partition begins a life: a random id, and the first offset that it gives out. The
manifest keeps the last of them. Whoever reads elsewhere keeps the lives it has read of beside its position,
and compares them when it meets the history again: where the same life ended earlier, or another one went on,
the offsets from there on name other events now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from heliograph.model.event import Count  # noqa: TC001 - msgspec reads it at run time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.runtime.ports import Random

MOST: Final = 32
"""Lives that are kept; in a history that went back further, the oldest of them counts as its beginning."""
ID_BYTES: Final = 8


class Life(NamedTuple):
    """What one writer has written of a history, up to where the next one began."""

    first: Count
    id: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)]


Lives = tuple[Life, ...]


def with_next(lives: Sequence[Life], first: int, random: Random) -> Lives:
    """Another writer goes on at an offset."""
    return (*lives[-MOST + 1 :], Life(first, random.bytes(ID_BYTES)))


def parted_at(known: Sequence[Life], now: Sequence[Life], position: int) -> int | None:
    """The offset from which a history is not the one that was read up to `position`; None: it is the same.

    Of what is older than the lives that are known on either side nothing can be said: it counts as the same.
    """
    following: list[int | None] = [*(life.first for life in now[1:]), None]
    ends = {life.id: end for life, end in zip(now, following, strict=False)}
    read_to = position
    for life in reversed(known):
        if life.first >= read_to and life is not known[0]:
            continue  # nothing of it was read
        if life.id in ends:
            end = ends[life.id]
            common = read_to if end is None else min(read_to, end)
            return None if common >= position else common
        read_to = min(read_to, life.first)
    if not known or not now or position <= now[0].first:
        return None
    return max((life.first for life in now if life.first <= read_to), default=now[0].first)


def is_of(life: bytes, now: Sequence[Life], position: int) -> bool:
    """Whether a history has a life, up to a position at least; True where nothing is known of it."""
    if not life or not now or position <= now[0].first:
        return True
    for at, one in enumerate(now):
        if one.id == life:
            return all(later.first >= position for later in now[at + 1 : at + 2])
    return False
