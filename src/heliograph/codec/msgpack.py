"""A msgpack reader in plain Python that knows the path of what it reads; for the interpreted decoder."""

from __future__ import annotations

import re
import struct
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from heliograph.errors import DecodeError
from heliograph.model import field_types as ft

_TIMESTAMP: Final = -1

_NIL, _NOTHING, _FALSE, _TRUE = 0xC0, 0xC1, 0xC2, 0xC3
_INTEGERS: Final = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_FLOATS: Final = {0xCA: ">f", 0xCB: ">d"}
_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UUID: Final = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE
)


class MsgpackReader:
    """A position in msgpack bytes. Each method reads one value, or raises DecodeError with the path given."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._place = 0

    def expect_end(self, path: str) -> None:
        if self._place != len(self._data):
            raise DecodeError(f"{len(self._data) - self._place} bytes too many", path=path)

    def skip_nil(self, path: str) -> bool:
        """Whether the next value is nil; only then it is read."""
        if self._peek(path) != _NIL:
            return False
        self._place += 1
        return True

    def skip(self, path: str) -> None:
        """Pass over one value, whatever it is; only its sizes are looked at."""
        missing = 1
        while missing:
            code = self._take_code(path)
            missing += self._skip_rest(code, path) - 1

    def _skip_rest(self, code: int, path: str) -> int:
        """Pass over what belongs to a code; returns how many values follow inside of it."""
        if code & 0xE0 == 0x80:
            return (code & 0x0F) * (1 if code & 0x10 else 2)
        if code in _ARRAYS:
            return self._size(code, _ARRAYS, "an array", path)
        if code in _MAPS:
            return 2 * self._size(code, _MAPS, "a map", path)
        if code & 0xE0 == 0xA0:
            self._take(code & 0x1F, path)
        elif code in _BYTES or code in _TEXTS:
            self._take(self._size(code, _BYTES | _TEXTS, "a size", path), path)
        elif code in _EXTENSIONS:
            self._take(1 + self._size(code, _EXTENSIONS, "a size", path), path)
        elif code in _FIXED_EXTENSIONS:
            self._take(1 + _FIXED_EXTENSIONS[code], path)
        elif code in _INTEGERS or code in _FLOATS:
            self._take(struct.calcsize((_INTEGERS | _FLOATS)[code]), path)
        elif code == _NOTHING:
            raise DecodeError(f"msgpack code 0x{code:02x} means nothing", path=path)
        return 0

    def scalar(self, name: ft.ScalarName, path: str) -> Any:
        match name:
            case "bool":
                return self._bool(path)
            case "str":
                return self._text(path)
            case "bytes":
                return self._bytes(path)
            case "datetime":
                return self._datetime(path)
            case "date":
                return self._date(path)
            case "uuid":
                return self._uuid(path)
            case "f32" | "f64":
                return self._float(path)
            case _:
                return self._integer(name, path)

    def array_size(self, path: str) -> int:
        """How many items are said to follow."""
        code = self._take_code(path)
        return code & 0x0F if code & 0xF0 == 0x90 else self._size(code, _ARRAYS, "an array", path)

    def map_size(self, path: str) -> int:
        """How many entries are said to follow."""
        code = self._take_code(path)
        return code & 0x0F if code & 0xF0 == 0x80 else self._size(code, _MAPS, "a map", path)

    def anything(self, path: str, depth: int) -> Any:
        """A value without a schema; lists and maps at most `depth` deep."""
        # With a stack of its own: hostile nests would need much more memory as calls.
        waiting: list[_Waiting] = []
        try:
            while True:
                value = self._leaf_or_holder(waiting, depth)
                while waiting and waiting[-1].holder is not value:
                    waiting[-1].take(value)
                    if waiting[-1].missing:
                        break
                    value = waiting.pop().holder
                if not waiting:
                    return value
                waiting[-1].key = self._text("") if isinstance(waiting[-1].holder, dict) else ""
        except DecodeError as error:
            place = "".join(each.place for each in waiting)
            raise DecodeError(error.reason, path=path + place) from None

    def _leaf_or_holder(self, waiting: list[_Waiting], depth: int) -> Any:
        """The next value; a list or map that is not empty is returned empty and waits for its items."""
        code = self._peek("")
        if code == _NIL:
            self._place += 1
            return None
        is_map = code & 0xF0 == 0x80 or code in _MAPS
        if not is_map and code & 0xF0 != 0x90 and code not in _ARRAYS:
            return self.scalar(_kind_of(code, ""), "")
        if len(waiting) == depth:
            raise DecodeError(f"nested deeper than {depth} levels")
        self._place += 1
        count = code & 0x0F if code < 0xA0 else self._size(code, _MAPS if is_map else _ARRAYS, "a size", "")
        holder: Any = {} if is_map else []
        if count:
            waiting.append(_Waiting(holder, count))
        return holder

    def _peek(self, path: str) -> int:
        if self._place >= len(self._data):
            raise DecodeError("the bytes end here", path=path)
        return self._data[self._place]

    def _take_code(self, path: str) -> int:
        code = self._peek(path)
        self._place += 1
        return code

    def _take(self, count: int, path: str) -> memoryview:
        end = self._place + count
        if end > len(self._data):
            raise DecodeError(
                f"{count} bytes are announced and {len(self._data) - self._place} left", path=path
            )
        part = self._data[self._place : end]
        self._place = end
        return part

    def _size(self, code: int, widths: dict[int, int], what: str, path: str) -> int:
        width = widths.get(code)
        if width is None:
            raise DecodeError(f"msgpack code 0x{code:02x} where {what} is expected", path=path)
        return int.from_bytes(self._take(width, path), "big")

    def _bool(self, path: str) -> bool:
        code = self._take_code(path)
        if code not in (_FALSE, _TRUE):
            raise DecodeError(f"msgpack code 0x{code:02x} where a bool is expected", path=path)
        return code == _TRUE

    def _integer(self, name: ft.ScalarName, path: str) -> int:
        low, high = ft.INTEGER_RANGES[name]
        value = self._whole_number(self._take_code(path), path)
        if value is None or not low <= value <= high:
            raise DecodeError(f"no {name}, which is an integer from {low} to {high}", path=path)
        return value

    def _whole_number(self, code: int, path: str) -> int | None:
        if code <= 0x7F:
            return code
        if code >= 0xE0:
            return code - 0x100
        layout = _INTEGERS.get(code)
        if layout is None:
            return None
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout), path))
        return int(value)

    def _float(self, path: str) -> float:
        code = self._take_code(path)
        layout = _FLOATS.get(code)
        if layout is not None:
            (value,) = struct.unpack(layout, self._take(struct.calcsize(layout), path))
            return float(value)
        whole = self._whole_number(code, path)
        if whole is None:
            raise DecodeError(f"msgpack code 0x{code:02x} where a float is expected", path=path)
        return float(whole)

    def _text(self, path: str) -> str:
        code = self._take_code(path)
        size = code & 0x1F if code & 0xE0 == 0xA0 else self._size(code, _TEXTS, "text", path)
        try:
            return str(self._take(size, path), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"no UTF-8 text: {error.reason}", path=path) from None

    def _bytes(self, path: str) -> bytes:
        size = self._size(self._take_code(path), _BYTES, "bytes", path)
        return bytes(self._take(size, path))

    def _datetime(self, path: str) -> datetime:
        code = self._take_code(path)
        size = _FIXED_EXTENSIONS.get(code)
        if size is None:
            size = self._size(code, _EXTENSIONS, "a timestamp", path)
        (kind,) = struct.unpack(">b", self._take(1, path))
        if kind != _TIMESTAMP or size not in (4, 8, 12):
            raise DecodeError(f"extension {kind} of {size} bytes where a timestamp is expected", path=path)
        seconds, nanoseconds = _timestamp(bytes(self._take(size, path)))
        if nanoseconds >= 1_000_000_000:
            raise DecodeError("a timestamp with a second or more of nanoseconds", path=path)
        try:
            # Half a microsecond is rounded up.
            return ft.EPOCH + timedelta(seconds=seconds, microseconds=(nanoseconds + 500) // 1000)
        except OverflowError:
            raise DecodeError("a timestamp outside of the years 1 to 9999", path=path) from None

    def _date(self, path: str) -> date:
        text = self._text(path)
        try:
            if _DATE.fullmatch(text):
                return date.fromisoformat(text)
        except ValueError:
            pass
        raise DecodeError(f"{text[:40]!r} is no date", path=path)

    def _uuid(self, path: str) -> UUID:
        """Text with or without its dashes, or the sixteen bytes."""
        if self._peek(path) in _BYTES:
            data = self._bytes(path)
            if len(data) == ft.UUID_SIZE:
                return UUID(bytes=data)
            raise DecodeError(f"{len(data)} bytes are no UUID", path=path)
        text = self._text(path)
        if _UUID.fullmatch(text) and text.isascii():
            return UUID(text)
        raise DecodeError(f"{text[:40]!r} is no UUID", path=path)


class _Waiting:
    """A list or map of which not all items have been read."""

    __slots__ = ("holder", "key", "missing")

    def __init__(self, holder: list[Any] | dict[str, Any], missing: int) -> None:
        self.holder = holder
        self.missing = missing
        self.key = ""

    def take(self, value: Any) -> None:
        self.missing -= 1
        if isinstance(self.holder, dict):
            self.holder[self.key] = value
        else:
            self.holder.append(value)

    @property
    def place(self) -> str:
        return f".{self.key}" if isinstance(self.holder, dict) else f"[{len(self.holder)}]"


def _timestamp(data: bytes) -> tuple[int, int]:
    if len(data) == 4:
        return int.from_bytes(data, "big"), 0
    if len(data) == 8:
        both = int.from_bytes(data, "big")
        return both & (1 << 34) - 1, both >> 34
    nanoseconds, seconds = struct.unpack(">Iq", data)
    return seconds, nanoseconds


def _kind_of(code: int, path: str) -> ft.ScalarName:
    """The scalar that a msgpack code announces, for values without a schema."""
    if code <= 0x7F or code >= 0xE0 or code in _INTEGERS:
        return "u64" if code == 0xCF else "i64"
    if code in _FLOATS:
        return "f64"
    if code in (_FALSE, _TRUE):
        return "bool"
    if code & 0xE0 == 0xA0 or code in _TEXTS:
        return "str"
    if code in _BYTES:
        return "bytes"
    if code in _FIXED_EXTENSIONS or code in _EXTENSIONS:
        return "datetime"
    raise DecodeError(f"msgpack code 0x{code:02x} means nothing", path=path)
