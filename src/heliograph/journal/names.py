"""How channels, partitions and consumers are named on disk.

A channel may be called anything; a folder may not. `escaped` keeps letters, digits, `-`, `_` and inner dots
and writes every other byte as `%XX`, so that a listing stays readable and `unescaped` gives the name back.
"""

from __future__ import annotations

import string
from typing import Final

from heliograph.errors import InvalidFileName

ACTIVITY: Final = "_helio.activity"
"""The channel with the log of participants: nothing of it is ever dropped."""
GROUP_PLACE: Final = "group:"
"""How the name of a group begins where its cursor is kept, beside those of durable consumers."""

MAX_ESCAPED: Final = 200
"""Bytes of an escaped name; file systems allow 255, and suffixes need some."""

CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"
DELAYED: Final = "delayed"
FORWARDED: Final = "forwarded"
"""The folder with the ids of events that gateways between domains have brought."""
HEADS: Final = "heads"
SEALED: Final = "sealed"
LOCK: Final = "lock"
COMMIT: Final = "commit"
MANIFEST: Final = "manifest"
TEMPORARY: Final = ".tmp"

_PLAIN: Final = frozenset((string.ascii_letters + string.digits + "-_.").encode())


def escaped(name: str) -> str:
    """A name that a folder can have; `unescaped` turns it back."""
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise InvalidFileName(name, "it is not valid text") from None
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if text.startswith("."):
        text = "%2E" + text[1:]  # hidden files, `.` and `..` are not ours
    if not text or len(text) > MAX_ESCAPED:
        raise InvalidFileName(name, f"escaped it has {len(text)} bytes, and 1 to {MAX_ESCAPED} are allowed")
    return text


def unescaped(text: str) -> str:
    """The name that `escaped` wrote as `text`; InvalidFileName when it wrote no such thing."""
    try:
        head, *rest = text.split("%")
        name = (head.encode() + b"".join(bytes((int(r[:2], 16),)) + r[2:].encode() for r in rest)).decode()
    except ValueError:
        raise InvalidFileName(text, "it is no escaped name") from None
    if escaped(name) != text:
        raise InvalidFileName(text, "it is no escaped name")
    return name


def head_name(first: int, epoch: int, serial: int) -> str:
    """Never the same twice: the serial counts the heads of one writer, the epoch the writers."""
    return f"{HEADS}/{first:020d}-{epoch:08x}-{serial:04x}.log"


def segment_name(first: int, end: int, generation: int) -> str:
    """Never the same twice: the generation is that of the manifest that will list it."""
    return f"{SEALED}/{first:020d}-{end:020d}-{generation:08x}.parquet"
