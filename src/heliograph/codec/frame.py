"""An event on its way: header and body in one buffer.

    u8 version   u8 zero   u16 size of the header   u32 size of the body
    header       a msgpack array, as `heliograph.event.Header` lists its fields
    padding to 8
    body         as the header's format says

    buffers = encode(header, encoder(Track).encode_parts(track))      # for a gathering write
    header, body = decode(received)                                   # no event is built yet
    header, track = read(received, registry, Track)

Numbers are little-endian. The body starts at a multiple of 8, so that arrays in it are aligned when the
buffer is. All sizes are checked before anything is made of what follows them.
"""

from __future__ import annotations

import struct
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from heliograph.codec import Buffer, E, decoder, mapping_decoder
from heliograph.errors import DecodeError, InvalidEvent
from heliograph.event import Header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.formats import FormatRegistry

VERSION: Final = 1
MAX_HEADER: Final = 0xFFFF
MAX_FRAME: Final = 64 << 20
"""Bytes of the largest frame that is read unless the caller sets another limit: 64 MiB."""

_START: Final = struct.Struct("<BBHI")
_KEY_TYPES: Final = frozenset({int, str, bytes, bool, datetime})

_write_header: Final = msgspec.msgpack.Encoder().encode
_read_header: Final = msgspec.msgpack.Decoder(Header).decode
_skim: Final = msgspec.msgpack.Decoder(msgspec.Raw).decode


def encode(header: Header, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The buffers of a frame, for a write that gathers them; the parts of the body are not copied."""
    head = _write_header(header)
    if len(head) > MAX_HEADER:
        raise InvalidEvent(
            header.type,
            f"its header takes {len(head)} bytes; at most {MAX_HEADER} are allowed",
            path="header",
        )
    size = sum(map(len, parts))
    return [_START.pack(VERSION, 0, len(head), size) + head + bytes(-len(head) % 8), *parts]


def decode(buffer: Buffer, max_size: int = MAX_FRAME) -> tuple[Header, memoryview]:
    """The header of a frame and its body, which is a view of the buffer."""
    if len(buffer) > max_size:
        raise DecodeError(f"a frame of {len(buffer)} bytes; at most {max_size} are read here", path="frame")
    if len(buffer) < _START.size:
        raise DecodeError(f"a frame of {len(buffer)} bytes; it begins with {_START.size}", path="frame")
    version, zero, header_size, body_size = _START.unpack_from(buffer)
    if version != VERSION or zero:
        raise DecodeError(f"frame version {version}.{zero}; this program reads version 1.0", path="frame")
    end = _START.size + header_size
    start = end + -end % 8
    if start + body_size != len(buffer):
        raise DecodeError(f"a frame of {len(buffer)} bytes whose sizes say {start + body_size}", path="frame")
    view = memoryview(buffer).toreadonly()
    return _header(view[_START.size : end]), view[start:]


@overload
def read(buffer: Buffer, registry: FormatRegistry, cls: type[E]) -> tuple[Header, E]: ...
@overload
def read(buffer: Buffer, registry: FormatRegistry, cls: None = None) -> tuple[Header, dict[str, Any]]: ...
def read(buffer: Buffer, registry: FormatRegistry, cls: type[E] | None = None) -> tuple[Header, Any]:
    """The header and the event of a frame; without a class the event as a mapping.

    UnknownFormat when the registry has no description of its format, IncompatibleFormats when that cannot be
    read as the class.
    """
    header, body = decode(buffer)
    wire = registry[header.format_id]
    if cls is None:
        return header, mapping_decoder(wire)(body)
    return header, decoder(wire, cls)(body)


def _header(data: memoryview) -> Header:
    try:
        # The key has no type that msgspec could check, so look for forged nests before building any.
        _skim(data)
        header = _read_header(data)
    except (ValueError, RecursionError) as error:
        raise _header_error(error) from None
    for index, value in enumerate(header.key):
        if type(value) not in _KEY_TYPES:
            raise DecodeError(
                f"{type(value).__name__} cannot be the value of a key", path=f"header.key[{index}]"
            )
    return header


def _header_error(error: Exception) -> DecodeError:
    reason, _, place = str(error).partition(" - at `$[")
    number, _, rest = place.rstrip("`").partition("]")
    if not number.isdigit():
        return DecodeError(reason, path="header")
    return DecodeError(reason, path=f"header.{Header.__struct_fields__[int(number)]}{rest}")
