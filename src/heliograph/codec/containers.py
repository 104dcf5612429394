"""A limit for lists, maps and records in one packed body, because each costs far more than its one byte.

A map takes a byte or two to send and up to two hundred bytes as an object. Sizes that are only announced cost
nothing, but what is really there has to be built before anything behind it can be found wrong; so a body is
counted first. A body of fewer bytes than the limit cannot exceed it, and that is all most bodies are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.errors import DecodeError
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from heliograph.model.formats import Format

MAX_CONTAINERS: Final = 100_000
"""How many lists, maps and records one packed body can hold."""

_STARTS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
"""The codes of msgpack that begin a list or a map."""


def _sizes() -> tuple[list[int], list[int]]:
    """For each code: the bytes it takes without what a length announces, and the bytes of that length."""
    fixed, length = [1] * 256, [0] * 256
    for code in range(0xA0, 0xC0):
        fixed[code] = 1 + (code & 0x1F)
    for code, size in {
        0xCA: 5,
        0xCB: 9,
        0xCC: 2,
        0xCD: 3,
        0xCE: 5,
        0xCF: 9,
        0xD0: 2,
        0xD1: 3,
        0xD2: 5,
        0xD3: 9,
    }.items():
        fixed[code] = size
    for code, size in {
        0xD4: 3,
        0xD5: 4,
        0xD6: 6,
        0xD7: 10,
        0xD8: 18,
        0xDC: 3,
        0xDD: 5,
        0xDE: 3,
        0xDF: 5,
    }.items():
        fixed[code] = size
    for first, kind in ((0xC4, 0), (0xC7, 1), (0xD9, 0)):
        for power in range(3):
            length[first + power] = 1 << power
            fixed[first + power] = 1 + (1 << power) + kind
    return fixed, length


_FIXED, _LENGTH = _sizes()


def is_counted(fmt: Format) -> bool:
    """Whether the format leaves open how many lists, maps and records a body has."""
    return any(_is_open(field.type) for field in fmt.fields)


def _is_open(kind: ft.FieldType) -> bool:
    match kind:
        case ft.Anything():
            return True
        case ft.List(item=item):
            return any(ft.holds(item, wanted) for wanted in (ft.List, ft.Map, ft.NestedEvent, ft.Anything))
        case ft.Map(value=value):
            return any(ft.holds(value, wanted) for wanted in (ft.List, ft.Map, ft.NestedEvent, ft.Anything))
        case ft.Optional(item=item):
            return _is_open(item)
        case ft.NestedEvent(format=fmt):
            return is_counted(fmt)
        case _:
            return False


def check_containers(body: bytes | bytearray | memoryview) -> None:
    """Raise DecodeError if msgpack holds more lists and maps than are allowed."""
    data = bytes(body)
    # Some of these bytes stand inside of texts and numbers, so this counts too many and is only a first look.
    if len(data) - len(data.translate(None, _STARTS)) <= MAX_CONTAINERS:
        return
    count = place = 0
    while place < len(data) and count <= MAX_CONTAINERS:
        code = data[place]
        count += code in _STARTS
        width = _LENGTH[code]
        if width:
            place += int.from_bytes(data[place + 1 : place + 1 + width], "big")
        place += _FIXED[code]
    if count > MAX_CONTAINERS:
        raise DecodeError(f"more than {MAX_CONTAINERS} lists, maps and records in one event")
