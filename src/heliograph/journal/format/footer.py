"""What the footer of a sealed file says of its rows, as text: Parquet wants UTF-8 there, and readers insist.

heliograph.version   2; of 1, the bytes stood there as they are
heliograph.layout    unified, structs or bodies (`heliograph.journal.writing.segment_writer`)
heliograph.formats   descriptions of the formats of its rows: msgpack in base64
heliograph.left-out  ids of rows that compaction has left out (`heliograph.journal.format.compacted_ids`), in
base64
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import FormatError
from heliograph.model.formats import Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMATS_KEY: Final = b"heliograph.formats"
VERSION_KEY: Final = b"heliograph.version"
LAYOUT_KEY: Final = b"heliograph.layout"

VERSION: Final = b"2"
READABLE: Final = (b"1", b"2")


def footer_of(formats: Sequence[Format], layout: str) -> dict[bytes, bytes]:
    """What is said of rows of these formats."""
    descriptions = msgspec.msgpack.encode([fmt.description for fmt in formats])
    return {VERSION_KEY: VERSION, LAYOUT_KEY: layout.encode(), FORMATS_KEY: b64encode(descriptions)}


def formats_in(footer: Mapping[bytes, bytes] | None) -> list[Format]:
    """The formats that a footer describes; FormatError when it describes none that can be read."""
    footer = footer or {}
    try:
        packed = footer[FORMATS_KEY]
        if footer.get(VERSION_KEY) != b"1":
            packed = b64decode(packed, validate=True)
        return list(map(Format.from_description, msgspec.msgpack.decode(packed, type=list[bytes])))
    except KeyError:
        raise FormatError("it has no formats") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise FormatError(f"its formats cannot be read: {error}") from None


def renewed(footer: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """The footer of a file as it is written today."""
    return footer_of(formats_in(footer), (footer or {}).get(LAYOUT_KEY, b"").decode())
