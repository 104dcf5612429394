"""Keys of a compacted history: an event is known by its type's name and its key.

    keys = KeyReader(formats)
    keys.of(record.format_id, record.kind, record.key, record.body)     bytes, or None for what has no key

Records with equal bytes are about the same thing. A tombstone carries its key, an event has it in its body.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.codec import mapping_decoder
from heliograph.errors import DecodeError, FormatError
from heliograph.journal.format.records import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.model.formats import FormatRegistry

LONGEST: Final = 32
"""Bytes; longer ones are known by their digest."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def key_bytes(values: Iterable[Any]) -> bytes:
    """The values of a key, as a tombstone carries them."""
    return _encode([_plain(value) for value in values])


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return _plain_decimal(value) if isinstance(value, Decimal) else value


def _plain_decimal(value: Decimal) -> int | str:
    """Equal numbers alike, in whatever version of their class: the digits behind the point may have changed,
    and a decimal may have been an integer."""
    whole, _, fraction = f"{value:f}".partition(".")
    fraction = fraction.rstrip("0")
    if fraction:
        return f"{whole}.{fraction}"
    number = int(whole)
    return number if -(1 << 63) <= number < 1 << 64 else whole


class KeyReader:
    """Finds keys in records of any format."""

    def __init__(self, formats: FormatRegistry) -> None:
        self._formats = formats
        self._known: dict[bytes, tuple[bytes, Callable[[bytes], bytes] | None]] = {}

    def of(self, format_id: bytes, kind: int, key: bytes | None, body: bytes) -> bytes | None:
        """None for an event of a type without a key, or whose body does not decode: it is its own latest."""
        known = self._known.get(format_id)
        if known is None:
            known = self._known[format_id] = self._reader(format_id)
        name, read = known
        if kind != EVENT:
            found = key
        elif read is None:
            return None
        else:
            try:
                found = read(body)
            except (DecodeError, msgspec.MsgspecError, KeyError):
                return None
        if found is None:
            return None
        whole = name + found
        return whole if len(whole) <= LONGEST else blake2b(whole, digest_size=LONGEST + 1).digest()

    def _reader(self, format_id: bytes) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        try:
            fmt = self._formats[format_id]
        except FormatError:
            return b"", None
        name = _encode(fmt.name)
        if not fmt.key:
            return name, None
        names, decode = fmt.key, mapping_decoder(fmt)

        def read(body: bytes) -> bytes:
            values = decode(body)
            return key_bytes([values[name] for name in names])

        return name, read
