"""Marks: which batches of which writer a partition has taken in, so that none is taken in twice.

A batch that comes from outside, such as one of a Spark stream, enters the journal together with a mark: in
the same frame as its rows, or in the last of the frames that count only together. What a mark says holds
exactly as long as the rows are there after a crash. The newest mark of each writer is carried on in the
manifest, so that sealing, retention and compaction never take it away.

    table = {mark.writer: mark for mark in manifest.marks}
    table = remembered(table, mark)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_MARKS: Final = 4096
"""Writers that a partition remembers. Beyond that the run that was marked longest ago is forgotten, and a
stream only when there is no run."""

MAX_PAST: Final = 64
"""Earlier checkpoints of one writer that are remembered, so that none of them comes back."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far one writer has come."""

    writer: str
    nonce: str
    """Says which of the writer's checkpoints counts its batches."""
    batch: int
    """The last one that was taken in; earlier ones were too, or held nothing."""
    generation: int = 1
    """Counts the checkpoints that the writer has had."""
    rows: int = 0
    """Taken in from it in this generation, which is the sequence of its last event."""
    past: tuple[str, ...] = ()
    """Nonces of earlier generations, the latest last."""
    once: bool = False
    """A writer of one batch: a run."""


def encode_marks(marks: Iterable[Mark]) -> bytes:
    """Marks as they stand in a frame."""
    return msgspec.msgpack.encode(list(marks))


def decode_marks(data: bytes | memoryview) -> list[Mark]:
    """The marks of a frame, none for a frame that has none."""
    return msgspec.msgpack.decode(data, type=list[Mark]) if data else []


def remembered(table: Mapping[str, Mark], mark: Mark) -> dict[str, Mark]:
    """The table with one more mark, the latest last."""
    after = {writer: known for writer, known in table.items() if writer != mark.writer}
    if len(after) >= MAX_MARKS:
        runs = (writer for writer, known in after.items() if known.once)
        del after[next(runs, next(iter(after)))]
    after[mark.writer] = mark
    return after
