"""Decides which sealed segments are worth rewriting, from the manifest.

    merge       eight neighbours of about one size become one, until a segment has `merge_events` or
                `merge_bytes`; an event is rewritten four times at most
    compact     on a channel that is compacted by key, all segments at once, when those that never were hold
                half as many events as those that have been: work is at most three times what came in

Rewriting is done by `heliograph.journal.maintenance.compactor`, in a process of its own.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from heliograph.journal.format.manifest import Head, Segment  # noqa: TC001 - msgspec reads the annotations of a job
from heliograph.journal.maintenance.retention import RESERVE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from heliograph.journal.format.manifest import Manifest
    from heliograph.journal.limits import Limits

TOGETHER: Final = 8
"""Neighbours that are merged at once."""
LEVELS: Final = 4
"""Sizes of segments that are told apart: the last is the largest, each other an eighth of the next."""


class Compaction(msgspec.Struct, array_like=True, frozen=True):
    """How superseded rows are left out."""

    tombstones_before: int
    """Tombstones appended before this time go too, with what they stand for."""
    complete: bool
    """Whether the segments are all that is older than their end; else tombstones have to stay."""


class SealJob(NamedTuple):
    """Heads that become one segment."""

    folder: str
    segment: str
    partition: bytes
    heads: tuple[Head, ...]


class RewriteJob(msgspec.Struct, array_like=True, frozen=True):
    """Neighbouring segments that become fewer, or smaller ones."""

    folder: str
    generation: int
    """Names the new files."""
    segments: tuple[Segment, ...]
    most_events: int
    most_bytes: int
    ids_from: int = 0
    """From this offset on the ids of rows that are left out are kept."""
    compaction: Compaction | None = None


def to_merge(manifest: Manifest, limits: Limits, but: Collection[str]) -> tuple[Segment, ...]:
    """Neighbours to become one segment, the smallest first; empty when there are none.

    Those named by `but` were tried and did not change.
    """
    most_bytes, most_ns = largest(limits), longest(limits)
    for level in reversed(range(LEVELS)):
        limit = limits.merge_events // TOGETHER**level
        run: list[Segment] = []
        for segment in manifest.segments:
            small = TOGETHER * segment.events <= limit and segment.name not in but
            fits = not run or (
                run[-1].next == segment.first
                and run[-1].formats == segment.formats
                and sum(s.size for s in run) + segment.size <= most_bytes
                and segment.last_ts - run[0].first_ts <= most_ns
            )
            if not small:
                run = []
            elif fits:
                run.append(segment)
            else:
                run = [segment]
            if len(run) == TOGETHER:
                return tuple(run)
    return ()


def to_compact(manifest: Manifest, but: Collection[str]) -> tuple[Segment, ...]:
    """All segments, when enough of them have never been compacted."""
    fresh = done = 0
    for segment in manifest.segments:
        if segment.rows is not None:
            done += segment.events
        elif segment.name not in but:
            fresh += segment.events
    return manifest.segments if fresh and 2 * fresh >= done else ()


def is_complete(manifest: Manifest, segments: Sequence[Segment]) -> bool:
    """Whether nothing older than the end of these segments lies outside of them."""
    return (
        segments[0].first == manifest.earliest
        and all(one.next == other.first for one, other in pairwise(segments))
        and not any(head.first < segments[-1].next for head in manifest.heads)
    )


def largest(limits: Limits) -> int:
    """Bytes that a segment may grow to: retention drops whole ones, and wants a choice."""
    if limits.keep_bytes is None:
        return limits.merge_bytes
    return min(limits.merge_bytes, limits.keep_bytes // RESERVE)


def longest(limits: Limits) -> float:
    """Nanoseconds that a merged segment may span: one that grows all the time would never be old enough."""
    return inf if limits.keep_seconds is None else limits.keep_seconds * 1e9 / RESERVE
