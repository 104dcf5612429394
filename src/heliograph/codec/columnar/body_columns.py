"""Many packed bodies of one format as Arrow columns, decoded all at once.

    bodies = Bodies([record.body for record in records])
    decode = columns_decoder(fmt)                   # None for a format that is not all numbers and text
    arrays = decode(bodies, {"id", "region"})       # {"id": <Int64Array>, "region": <StringArray>}

Sealing a head and reading one in Spark turn millions of small msgpack arrays into columns. Here numpy walks
through all of them side by side: the first field of every body, then the second, with one array that says
how far each body has been read. No object is made for a value.

It is stricter than the codec, and gives up with `NotPlain` when a body is bad or has something for which
there is no quick way here. Whoever calls it then decodes them one by one, which also finds the bad ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar import columns
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from heliograph.model.formats import Format

    Places: TypeAlias = NDArray[np.int64]
    Tags: TypeAlias = NDArray[np.uint8]
    Read: TypeAlias = tuple[pa.Array | None, Places | int]
    """A column, or None when nobody wants it, and how many bytes its value takes in each body."""
    Decoder: TypeAlias = Callable[["Bodies", Collection[str]], dict[str, pa.Array]]

AT_ONCE: Final = 8192
"""Bodies; what is known of so many stays in the processor's cache, and the steps of Python cost little."""
SHORT: Final = 48
"""Mean bytes of texts up to which numpy copies them faster than Python does one by one."""
PADDING: Final = bytes(16)
"""Behind the last body, so that what seems to begin there can be looked at before it is refused."""
MAX_BYTES: Final = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow column can count."""

# The tags of msgpack. Numbers from -32 to 127 are their own tag.
NIL: Final = 0xC0
FALSE: Final = 0xC2
TRUE: Final = 0xC3
FLOAT64: Final = 0xCB
ARRAY16: Final = 0xDC
FIXED_ARRAY: Final = 0x90
MOST_IN_FIXED_ARRAY: Final = 15
FIXED_TEXT: Final = 0xA0
LARGER: Final = (0x80, 0xE0)
"""Between these are all tags that are not small numbers."""
INTEGERS: Final = {
    0xCC: "u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">u8", 0xD0: "i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8"
}  # fmt: skip
TEXTS: Final = {0xD9: "u1", 0xDA: ">u2", 0xDB: ">u4"}
BYTES: Final = {0xC4: "u1", 0xC5: ">u2", 0xC6: ">u4"}


class NotPlain(Exception):
    """Some body is bad, or not as simple as it would have to be."""


class Bodies:
    """Bodies one behind the other in one piece of memory."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self.data = b"".join((*bodies, PADDING))

    def __len__(self) -> int:
        return len(self.ends)

    def array(self) -> pa.Array:
        """A column of them as they are."""
        if len(self.data) > MAX_BYTES:
            pieces = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
            return pa.array([self.data[start:end] for start, end in pieces], pa.binary())
        offsets = np.zeros(len(self) + 1, np.int32)
        offsets[1:] = self.ends
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )

    def parts(self) -> Iterator[tuple[int, int]]:
        """From where to where they should be decoded at once."""
        for first in range(0, len(self), AT_ONCE):
            yield first, min(first + AT_ONCE, len(self))


class _Cursor:
    """Some bodies, and for each how far it has been read."""

    def __init__(self, bodies: Bodies, first: int, end: int) -> None:
        self.data = bodies.data
        self._bytes = np.frombuffer(bodies.data, np.uint8)
        self._ends = bodies.ends[first:end]
        self.at = bodies.starts[first:end]

    def tags(self) -> Tags:
        found: Tags = self._bytes[self.at]
        return found

    def bytes(self, places: Places) -> bytes:
        return self._bytes[places].tobytes()

    def numbers(self, places: Places, kind: str) -> NDArray[Any]:
        """Numbers that begin at these places, whatever their alignment."""
        size = np.dtype(kind).itemsize
        everywhere: NDArray[Any] = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
        return everywhere[places]

    def move(self, widths: Places | int) -> None:
        """Every body was read so much further; NotPlain when that is behind the last of them."""
        self.at = self.at + widths
        _insist(self.at.max() <= len(self.data) - len(PADDING))

    def insist_on_end(self) -> None:
        """Each was read to its end. None can have been read beyond: nothing goes back."""
        _insist(np.array_equal(self.at, self._ends))


class _Column(NamedTuple):
    name: str
    scalar: ft.ScalarName
    optional: bool
    type: pa.DataType


def columns_decoder(fmt: Format) -> Decoder | None:
    """What makes the named columns, in the types that Spark takes; None for a format that is not plain."""
    kinds = columns.schema(fmt, spark_safe=True)
    made: list[_Column] = []
    for field in fmt.fields:
        item, optional = split_optional(field.type)
        if fmt.body != "packed" or not isinstance(item, ft.Scalar) or item.name not in _READ:
            return None
        made.append(_Column(field.name, item.name, optional, kinds.field(field.name).type))

    def decode(bodies: Bodies, wanted: Collection[str]) -> dict[str, pa.Array]:
        parts = [_decoded(made, _Cursor(bodies, *part), wanted) for part in bodies.parts()]
        names = parts[0] if parts else ()
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in names}

    return decode if made else None


def _decoded(made: Sequence[_Column], cursor: _Cursor, wanted: Collection[str]) -> dict[str, pa.Array]:
    _skip_array(cursor, len(made))
    found = {column.name: _values(cursor, column, wanted=column.name in wanted) for column in made}
    cursor.insist_on_end()
    return {name: array for name, array in found.items() if array is not None}


def _skip_array(cursor: _Cursor, fields: int) -> None:
    """Every body is an array with a value for each field."""
    if fields <= MOST_IN_FIXED_ARRAY:
        _insist((cursor.tags() == FIXED_ARRAY + fields).all())
        cursor.move(1)
    else:
        _insist((cursor.tags() == ARRAY16).all())
        _insist((cursor.numbers(cursor.at + 1, ">u2") == fields).all())
        cursor.move(3)


def _insist(is_so: Any) -> None:
    if not is_so:
        raise NotPlain


def _values(cursor: _Cursor, column: _Column, *, wanted: bool) -> pa.Array | None:
    """The next value of every body."""
    places, tags = cursor.at, cursor.tags()
    present = tags != NIL if column.optional else None
    if present is None or present.all():
        array, widths = _READ[column.scalar](cursor, places, tags, column, wanted)
        cursor.move(widths)
        return array
    array, widths = _READ[column.scalar](cursor, places[present], tags[present], column, wanted)
    every = np.ones(len(tags), np.int64)
    every[present] = widths
    cursor.move(every)
    return None if array is None else array.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _integers(cursor: _Cursor, places: Places, tags: Tags, column: _Column, wanted: bool) -> Read:
    low, high = ft.INTEGER_RANGES[column.scalar]
    values, widths = _whole_numbers(cursor, places, tags, np.uint64 if high >> 63 else np.int64)
    if len(values):
        _insist(low <= int(values.min()) and int(values.max()) <= high)
    return (_whole_array(values, column.type) if wanted else None), widths


def _whole_array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column of values that are in its range."""
    if pa.types.is_integer(kind):
        return pa.array(values.astype(kind.to_pandas_dtype(), copy=False))
    return pa.array(values).cast(kind)  # this loads Arrow's functions, which takes long


def _whole_numbers(
    cursor: _Cursor, places: Places, tags: Tags, kind: type[np.int64 | np.uint64]
) -> tuple[NDArray[Any], Places]:
    """Integers and the bytes that each takes; those that the kind does not hold are not plain."""
    small = tags.astype(np.int8)
    widths = np.ones(len(tags), np.int64)
    large = (tags >= LARGER[0]) & (tags < LARGER[1])
    _insist(kind is np.int64 or not (small[~large] < 0).any())
    values = small.astype(kind)
    for tag in np.unique(tags[large]).tolist():
        _insist(tag in INTEGERS)
        having = tags == tag
        found = cursor.numbers(places[having] + 1, INTEGERS[tag])
        _insist(kind is np.uint64 or int(found.max()) >> 63 <= 0)
        _insist(kind is np.int64 or found.min() >= 0)
        values[having] = found
        widths[having] = 1 + found.dtype.itemsize
    return values, widths


def _floats(cursor: _Cursor, places: Places, tags: Tags, column: _Column, wanted: bool) -> Read:
    having = tags == FLOAT64
    widths: Places | int = 9
    if having.all():
        values = cursor.numbers(places + 1, ">f8").astype(np.float64)
    else:  # an int is a float, too
        values, widths = np.empty(len(tags), np.float64), np.full(len(tags), 9, np.int64)
        values[having] = cursor.numbers(places[having] + 1, ">f8")
        values[~having], widths[~having] = _whole_numbers(cursor, places[~having], tags[~having], np.int64)
    if column.scalar == "f32":
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        _insist(np.array_equal(np.isinf(narrow), np.isinf(values)))
        return (pa.array(narrow) if wanted else None), widths
    return (pa.array(values) if wanted else None), widths


def _booleans(_: _Cursor, places: Places, tags: Tags, column: _Column, wanted: bool) -> Read:  # noqa: ARG001 - as all that read
    true = tags == TRUE
    _insist((true | (tags == FALSE)).all())
    return (pa.array(true) if wanted else None), 1


def _texts(cursor: _Cursor, places: Places, tags: Tags, column: _Column, wanted: bool) -> Read:
    """Text and bytes: where each begins and how long it is, then all of it in one piece."""
    is_text = column.scalar == "str"
    small = (tags & 0xE0) == FIXED_TEXT if is_text else np.zeros(len(tags), np.bool_)
    sizes = (tags & 0x1F).astype(np.int64)
    heads = np.ones(len(tags), np.int64)
    for tag in np.unique(tags[~small]).tolist():
        kind = (TEXTS if is_text else BYTES).get(tag)
        if kind is None:
            raise NotPlain
        having = tags == tag
        sizes[having] = cursor.numbers(places[having] + 1, kind)
        heads[having] = 1 + np.dtype(kind).itemsize
    starts, ends = places + heads, places + heads + sizes
    if len(ends):
        _insist(ends.max() <= len(cursor.data))
    return (_gathered(cursor, starts, ends, column.type) if wanted else None), heads + sizes


def _gathered(cursor: _Cursor, starts: Places, ends: Places, kind: pa.DataType) -> pa.Array:
    """Pieces of all the bytes as a column of text or bytes."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    total = int(offsets[-1])
    _insist(total <= MAX_BYTES)
    if total > SHORT * len(starts):
        data = cursor.data
        joined = b"".join(data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True))
    else:
        joined = cursor.bytes(np.repeat(starts - offsets[:-1], ends - starts) + np.arange(total))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(joined)]
    array = pa.Array.from_buffers(kind, len(starts), buffers)
    if kind == pa.string():
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise NotPlain from None
    return array


_READ: Final[dict[str, Callable[[_Cursor, Places, Tags, _Column, bool], Read]]] = {
    **dict.fromkeys(ft.INTEGER_RANGES, _integers),
    **dict.fromkeys(ft.FLOATS, _floats),
    "bool": _booleans,
    "str": _texts,
    "bytes": _texts,
}
