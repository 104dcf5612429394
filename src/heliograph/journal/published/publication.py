"""Decides what the next manifest of a published partition says: pure, from the last one and the folder's.

    folder's segments       as they are, as far as nothing before them still waits to be sealed
    dropped by the folder   those that `keep_seconds` holds in the store stay in front of them
    gone from both          `retired`: their objects stay for `grace_seconds`, for readers that have begun

What was dropped by the folder before it could be uploaded is a gap, and the manifest says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.journal.format.manifest import Damage, Manifest, Retired
from heliograph.journal.published.layout import published_name
from heliograph.model.history_epochs import parted_at
from heliograph.runtime.declared_options import Option, Text, refusals, rows_of, seconds
from heliograph.runtime.object_store import is_remote
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.journal.format.manifest import Segment


@dataclass(frozen=True, slots=True)
class Store:
    """Where a station publishes its sealed segments, and for how long they stay there."""

    url: Annotated[
        str,
        Option("a folder, or s3://, gs:// or az:// with bucket and path; one for a domain", Text(2000)),
    ]
    keep_seconds: Annotated[
        float | None,
        Option(
            "what the folder has dropped stays in the store until its last event is so old; "
            "None: for ever; 0: it leaves both at once",
            seconds(0, inf),
        ),
    ] = 0.0
    grace_seconds: Annotated[
        float,
        Option(
            "objects that left the history stay for so long, for readers that have begun", seconds(0, inf)
        ),
    ] = 600.0

    def __post_init__(self) -> None:
        for name, allowed in refusals(self, rows_of(Store)):
            raise InvalidQoS(f"Store.{name}", getattr(self, name), allowed)
        if not self.url:
            raise InvalidQoS("Store.url", self.url, "a folder or a URL such as s3://bucket/path")
        is_remote(self.url)


Store.__init__ = names_options(Store.__init__)  # type: ignore[method-assign]  # a dataclass writes its own


class PublicationStep(NamedTuple):
    """What to do for the next manifest."""

    manifest: Manifest
    """Without its number."""
    upload: tuple[Segment, ...]
    """Segments of the folder, by their names there."""
    remove: tuple[str, ...]
    """Objects, by their names in the partition, that the manifest does not mention any more."""


def next_step(before: Manifest | None, local: Manifest, store: Store, now: int) -> PublicationStep | None:
    """What changes in the store; None when it is as it should be."""
    ready = _ready(local)
    first = ready[0].first if ready else local.earliest
    there = before.segments if before is not None else ()
    kept = _kept(before, local, first, store, now)
    named = [msgspec.structs.replace(segment, name=published_name(segment)) for segment in ready]
    segments = (*kept, *named)
    if not segments and before is None:
        return None
    known = {segment.name for segment in there}
    stays = {segment.name for segment in segments}
    gone = [Retired(one.name, one.size, now, one) for one in there if one.name not in stays]
    in_grace = [one for one in (before.retired if before is not None else ()) if one.name not in stays]
    left_before = now - round(store.grace_seconds * 1e9)
    over = [one.name for one in in_grace if one.left_ts <= left_before]
    retired = [*(one for one in in_grace if one.left_ts > left_before), *gone]
    end = segments[-1].next if segments else local.earliest
    manifest = Manifest(
        partition=local.partition,
        generation=before.generation if before is not None else 0,
        epoch=local.epoch,
        next=end,
        last_ts=max((segment.last_ts for segment in segments), default=0),
        earliest=segments[0].first if segments else local.earliest,
        segments=segments,
        damage=_damage(before, local, segments),
        retired=tuple(retired),
        epochs=local.epochs,
    )
    if manifest == before:
        return None
    upload = tuple(one for one, name in zip(ready, named, strict=True) if name.name not in known)
    return PublicationStep(manifest, upload, tuple(over))


def _ready(local: Manifest) -> list[Segment]:
    """The folder's segments in front of whatever is still to be sealed; a damaged head never will be."""
    damaged = {damage.file for damage in local.damage}
    waits = min((head.first for head in local.heads if head.name not in damaged), default=None)
    return [segment for segment in local.segments if waits is None or segment.next <= waits]


def _kept(before: Manifest | None, local: Manifest, first: int, store: Store, now: int) -> list[Segment]:
    """Published segments that the folder has dropped and the store keeps, as far as they are its history."""
    if before is None or store.keep_seconds == 0:
        return []
    parted = parted_at(before.epochs, local.epochs, before.next)
    end = first if parted is None else min(first, parted)
    oldest = -inf if store.keep_seconds is None else now - store.keep_seconds * 1e9
    return [segment for segment in before.segments if segment.next <= end and segment.last_ts >= oldest]


def _damage(before: Manifest | None, local: Manifest, segments: Sequence[Segment]) -> tuple[Damage, ...]:
    if not segments:
        return ()
    start, end = segments[0].first, segments[-1].next
    both = (*(before.damage if before is not None else ()), *local.damage)
    known = {(one.first, one.next): one for one in both if one.first < end and one.next > start}
    for one, following in pairwise(segments):
        gap = (one.next, following.first)
        if gap[0] < gap[1] and not any(first <= gap[0] and gap[1] <= last for first, last in known):
            reason = "the folder dropped them before they were in the store"
            known[gap] = Damage(*gap, one.name, reason, accepted=True)
    return tuple(sorted(known.values(), key=lambda one: one.first))
