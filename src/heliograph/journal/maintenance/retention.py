"""Retention: which segments may go, given the manifest, the durable cursors and the time.

    decision = decide(manifest, places, limits, now=clock.time_ns(), size=partition.size)
    decision.drop                   the oldest files with rows, which leave the history
    decision.remove                 files that left it long ago, which leave the disk

The rules, in the order of their power:

    quota      the history has seven eighths of `keep_bytes`, files in their grace the last; nobody can hold
               anything beyond it
    read       with `drop_read`, what every durable consumer has goes at once
    unread     with `hold_unread`, what a durable consumer lacks is not too old, while its lease runs
    age        the rest goes when its last event is older than `keep_seconds`

Only the oldest can go, so that what is left is one range of offsets, and only what is sealed, or damaged and
never will be. A consumer that has not been heard of for `hold_seconds` holds nothing and is waited for by
nobody; when it comes back it is told exactly which offsets it missed.

A file that has left the manifest stays on disk for `grace_seconds`: somebody who planned with an older
manifest may still read it. When such files need more than their eighth, the oldest go early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.journal.format.manifest import Retired, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heliograph.journal.format.manifest import Head, Manifest
    from heliograph.journal.limits import Limits

RESERVE: Final = 8
"""One part in so many of the quota is set aside for files in their grace."""


class ConsumerPosition(NamedTuple):
    """Where a durable consumer is in a partition."""

    consumer: str
    low: int
    """It has everything below."""
    seen_ts: int
    """When it was last heard of."""


class Overtaken(NamedTuple):
    """A consumer that will miss the offsets from `first` up to, not including, `next`."""

    consumer: str
    first: int
    next: int


class Decision(NamedTuple):
    """What to do."""

    drop: tuple[Segment | Head, ...]
    retired: tuple[Retired, ...]
    """All files in their grace from now on."""
    remove: tuple[str, ...]
    """Names of files to remove when a manifest says all this."""
    overtaken: tuple[Overtaken, ...]
    """Consumers that lose something by `drop`."""


def decide(
    manifest: Manifest, places: Sequence[ConsumerPosition], limits: Limits, *, now: int, size: int
) -> Decision:
    """See the module. `size` is that of all files that the manifest lists; times are in ns."""
    drop = _droppable(manifest, places, limits, now, size)
    earliest = drop[-1].next or 0 if drop else 0
    overtaken = tuple(
        Overtaken(place.consumer, max(place.low, manifest.earliest), earliest)
        for place in places
        if place.low < earliest
    )
    return Decision(tuple(drop), *retire(manifest.retired, drop, limits, now), overtaken)


def decide_purge(manifest: Manifest, below: int, limits: Limits, *, now: int) -> Decision:
    """The oldest files all of whose events are below an offset, whoever lacks them, if they are sealed."""
    damaged = {damage.file for damage in manifest.damage}
    drop: list[Segment | Head] = []
    for source in manifest.sources:
        if source.next is None or source.next > below:
            break
        if not (isinstance(source, Segment) or source.name in damaged):
            break
        drop.append(source)
    return Decision(tuple(drop), *retire(manifest.retired, drop, limits, now), ())


def retire(
    retired: Sequence[Retired], gone: Iterable[Segment | Head], limits: Limits, now: int
) -> tuple[tuple[Retired, ...], tuple[str, ...]]:
    """The files in their grace when some more have gone from the history, and which are to be removed.

    Heads are read by offset, through the manifest, so no reader can have planned with one.
    """
    leaving = [
        Retired(source.name, source.size, now, source) for source in gone if isinstance(source, Segment)
    ]
    everything = sorted((*retired, *leaving), key=lambda file: file.left_ts)
    left_before = now - round(limits.grace_seconds * 1e9)
    room = None if limits.keep_bytes is None else limits.keep_bytes // RESERVE
    size = sum(file.size for file in everything)
    stay = []
    remove = [source.name for source in gone if not isinstance(source, Segment)]
    for file in everything:
        if file.left_ts <= left_before or (room is not None and size > room):
            remove.append(file.name)
            size -= file.size
        else:
            stay.append(file)
    return tuple(stay), tuple(remove)


def _droppable(
    manifest: Manifest, places: Iterable[ConsumerPosition], limits: Limits, now: int, size: int
) -> list[Segment | Head]:
    heard_of = now - round(limits.hold_seconds * 1e9)
    slowest = min((place.low for place in places if place.seen_ts >= heard_of), default=None)
    quota = listed_quota(limits)
    oldest_ts = None if limits.keep_seconds is None else now - round(limits.keep_seconds * 1e9)
    damaged = {damage.file for damage in manifest.damage}
    drop: list[Segment | Head] = []
    for source in manifest.sources:
        if source.next is None or not (isinstance(source, Segment) or source.name in damaged):
            break
        is_read = slowest is None or slowest >= source.next
        too_large = quota is not None and size > quota
        too_old = oldest_ts is not None and source.last_ts < oldest_ts and (is_read or not limits.hold_unread)
        done = limits.drop_read and slowest is not None and is_read
        if not (too_large or too_old or done):
            break
        drop.append(source)
        size -= source.size
    return drop


def listed_quota(limits: Limits) -> int | None:
    """How many bytes the files that a manifest lists may have; None: any number."""
    if limits.keep_bytes is None or not limits.grace_seconds:
        return limits.keep_bytes
    return limits.keep_bytes - limits.keep_bytes // RESERVE
