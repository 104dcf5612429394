"""How much of a history is kept on disk, and in files of which size: checked where it is written."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Final

from heliograph.errors import InvalidQoS
from heliograph.runtime.declared_options import NumberRange, Option, refusals, rows_of, seconds, whole
from heliograph.runtime.option_names import names_options

DAY: Final = 86_400.0
_BYTES: Final = NumberRange(0, inf, "bytes", whole=True)
_SECONDS: Final = seconds(0, inf)


@dataclass(frozen=True, slots=True)
class Limits:
    """When head files are rotated, and how much history is kept. Sizes are in bytes, times in seconds."""

    head_bytes: Annotated[int, Option("a head of this size is closed and sealed", whole(1))] = 64 << 20
    head_events: Annotated[int, Option("a head with so many events is closed and sealed", whole(1))] = (
        1_000_000
    )
    head_seconds: Annotated[float, Option("a head of this age is closed and sealed", _SECONDS)] = 600.0
    keep_bytes: Annotated[
        int | None,
        Option(
            "the partition's disk quota: beyond it the oldest segments are removed; None: no limit", _BYTES
        ),
    ] = 10 << 30
    keep_seconds: Annotated[
        float | None,
        Option("segments whose last event is older are removed; None: no limit", _SECONDS),
    ] = 30 * DAY
    hold_unread: Annotated[
        bool,
        Option("what a durable consumer has not read stays beyond `keep_seconds`, never beyond `keep_bytes`"),
    ] = True
    hold_seconds: Annotated[
        float, Option("a durable consumer that was not there for so long holds nothing any more", _SECONDS)
    ] = 7 * DAY
    drop_read: Annotated[
        bool, Option("what all durable consumers have read is removed at once, if there is such a consumer")
    ] = False
    grace_seconds: Annotated[
        float, Option("removed files stay on disk for so long, for readers that have begun", _SECONDS)
    ] = 600.0
    merge_events: Annotated[
        int, Option("small neighbouring segments become one of up to so many events", whole(1))
    ] = 8_000_000
    merge_bytes: Annotated[
        int, Option("the same in bytes, and up to an eighth of `keep_bytes`", whole(1))
    ] = 256 << 20
    compact: Annotated[
        bool, Option("only the last event of each key is kept; the channel's `compaction` sets it")
    ] = False
    tombstone_seconds: Annotated[
        float,
        Option("a forgotten key is remembered for so long; the channel's `tombstones` sets it", _SECONDS),
    ] = DAY

    def __post_init__(self) -> None:
        for name, allowed in refusals(self, rows_of(Limits)):
            raise InvalidQoS(f"Limits.{name}", getattr(self, name), allowed)


Limits.__init__ = names_options(Limits.__init__)  # type: ignore[method-assign]  # a dataclass writes its own
