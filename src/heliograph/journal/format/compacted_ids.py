"""Ids of rows that compaction has removed, kept in the segment that held them.

A push that is repeated under its id must be recognised though a later event of its key has replaced it.
So a rewritten segment carries, beside its rows, what the rows were called that are not in it any more, as far
back as ids are looked for. They are merged, dropped and damaged with the file, and need no care of their own.
"""

from __future__ import annotations

import logging
import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.model.event import PUSH_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

KEY: Final = b"heliograph.left-out"
"""Names them in the metadata of a Parquet file."""
COLUMNS: Final = ["_offset", "_supplier", "_epoch", "_sequence", "_headers"]
"""What of a row is its id."""
MAX_SIZE: Final = 256 << 20
"""Bytes that the ids of one file may take: ids of the greatest length, for as many as are looked for."""

_ZLIB: Final = 0x78
"""With which everything begins that zlib has compressed; in base64 that is another byte."""


class CompactedIds(msgspec.Struct, array_like=True, frozen=True):
    """A row that was there."""

    offset: int
    supplier: str
    epoch: int
    sequence: int
    push_id: str | None = None

    @property
    def headers(self) -> Mapping[str, str] | None:
        """As far as they are kept."""
        return None if self.push_id is None else {PUSH_ID: self.push_id}


def left_out(row: Sequence[Any]) -> CompactedIds:
    """What is kept of a row; its values are those of `COLUMNS`."""
    offset, supplier, epoch, sequence, headers = row
    return CompactedIds(offset, supplier, int(epoch), int(sequence), dict(headers or ()).get(PUSH_ID))


def packed(rows: Sequence[CompactedIds]) -> bytes:
    return b64encode(zlib.compress(msgspec.msgpack.encode(rows), 1))


def unpacked(data: bytes | None) -> list[CompactedIds]:
    """What `packed` made; nothing of what it did not make, which is logged, or of nothing."""
    if not data:
        return []
    try:
        if data[0] != _ZLIB:  # in files of version 1 it stood there as it is
            data = b64decode(data, validate=True)
        return msgspec.msgpack.decode(
            zlib.decompressobj().decompress(data, MAX_SIZE), type=list[CompactedIds]
        )
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        log.warning(
            "the ids of rows that compaction left out of a segment cannot be read (%s): a push that is "
            "repeated under one of them is taken for a new one",
            error,
        )
        return []
