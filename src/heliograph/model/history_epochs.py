"""The epochs of a history: find out that it went back in time, as a folder does that is restored.

Each writer that opens a partition begins an epoch: a random id, and the first offset that it gives out. The
manifest keeps the last of them. A reader elsewhere keeps the epochs it has read of beside its position,
and compares them when it meets the history again: where the same epoch ended earlier, or another one went on,
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
"""Epochs that are kept; in a history that went back further, the oldest of them counts as its beginning."""
ID_BYTES: Final = 8


class Epoch(NamedTuple):
    """What one writer has written of a history, up to where the next one began."""

    first: Count
    id: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)]


Epochs = tuple[Epoch, ...]


def with_next(epochs: Sequence[Epoch], first: int, random: Random) -> Epochs:
    """Another writer goes on at an offset."""
    return (*epochs[-MOST + 1 :], Epoch(first, random.bytes(ID_BYTES)))


def parted_at(known: Sequence[Epoch], now: Sequence[Epoch], position: int) -> int | None:
    """The offset from which a history is not the one that was read up to `position`; None: it is the same.

    Of what is older than the epochs that are known on either side nothing can be said: it counts as the same.
    """
    following: list[int | None] = [*(epoch.first for epoch in now[1:]), None]
    ends = {epoch.id: end for epoch, end in zip(now, following, strict=False)}
    read_to = position
    for epoch in reversed(known):
        if epoch.first >= read_to and epoch is not known[0]:
            continue  # nothing of it was read
        if epoch.id in ends:
            end = ends[epoch.id]
            common = read_to if end is None else min(read_to, end)
            return None if common >= position else common
        read_to = min(read_to, epoch.first)
    if not known or not now or position <= now[0].first:
        return None
    return max((epoch.first for epoch in now if epoch.first <= read_to), default=now[0].first)


def epoch_at(epochs: Sequence[Epoch], offset: int) -> bytes:
    """The id of the epoch that wrote an offset; empty where it is older than all that are known."""
    for epoch in reversed(epochs):
        if epoch.first <= offset:
            return epoch.id
    return b""


def is_written_in(epoch_id: bytes, epochs: Sequence[Epoch], offset: int) -> bool:
    """Whether an offset names the event that an epoch wrote there; True where nothing is known of it."""
    found = epoch_at(epochs, offset)
    return not epoch_id or not found or found == epoch_id


def is_of(epoch_id: bytes, now: Sequence[Epoch], position: int) -> bool:
    """Whether a history has an epoch, up to a position at least; True where nothing is known of it."""
    if not epoch_id or not now or position <= now[0].first:
        return True
    for at, one in enumerate(now):
        if one.id == epoch_id:
            return all(later.first >= position for later in now[at + 1 : at + 2])
    return False
