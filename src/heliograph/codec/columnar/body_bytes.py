"""The bytes of many bodies in one piece of memory, and Arrow columns made of parts of them.

Values are given by the places at which they begin, as numpy arrays. A place that is not inside of the memory,
and a value that no field can have, raise `NotPlain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar.columns import arrow_type, is_list_of_items
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Places: TypeAlias = NDArray[np.int64]

SHORT: Final = 48
"""Mean bytes of texts up to which numpy copies them faster than Python does one by one."""
PADDING: Final = bytes(16)
"""Behind the last body, so that what seems to begin there can be looked at before it is refused."""
MAX_BYTES: Final = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow column can count."""
MOST_DIMENSIONS: Final = 32
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""Of the years 1 and 9999, counted from 1970."""
UUID_TEXT: Final = 36
_DIGIT_PLACES: Final = [at for at in range(UUID_TEXT) if at not in (8, 13, 18, 23)]
"""Where digits stand in the text of a UUID; elsewhere are dashes."""


class NotPlain(Exception):
    """Some body is bad, or not as simple as it would have to be."""


def insist(is_so: Any) -> None:
    if not is_so:
        raise NotPlain


class Bodies:
    """Bodies one behind the other in one piece of memory."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
        self.ends: Places = np.cumsum(sizes)
        self.starts: Places = self.ends - sizes
        self.data = b"".join((*bodies, PADDING))
        self._bytes = np.frombuffer(self.data, np.uint8)

    def __len__(self) -> int:
        return len(self.ends)

    def some(self, which: Places | slice) -> Self:
        """Some of them, in the same order and the same memory."""
        found = object.__new__(type(self))
        found.data, found._bytes = self.data, self._bytes
        found.starts, found.ends = self.starts[which], self.ends[which]
        return found

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

    def insist_inside(self, places: Places) -> None:
        """No place lies behind the last body, so that a number can be read from each."""
        if len(places):
            insist(places.max() <= len(self.data) - len(PADDING))

    def byte(self, places: Places) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self._bytes[places]
        return found

    def numbers(self, places: Places, kind: str) -> NDArray[Any]:
        """Numbers that begin at these places, whatever their alignment."""
        size = np.dtype(kind).itemsize
        everywhere: NDArray[Any] = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
        return everywhere[places]

    def rows(self, places: Places, width: int) -> NDArray[np.uint8]:
        """As many bytes from each place on, a row for each."""
        found: NDArray[np.uint8] = self._bytes[places[:, np.newaxis] + np.arange(width)]
        return found

    def gathered(self, starts: Places, ends: Places) -> tuple[Places, bytes]:
        """These stretches one behind the other, and where each begins among them."""
        self.insist_inside(ends)
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        total = int(offsets[-1])
        insist(total <= MAX_BYTES)
        if total > SHORT * len(starts):
            data = self.data
            return offsets, b"".join(data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True))
        places = np.repeat(starts - offsets[:-1], ends - starts) + np.arange(total)
        return offsets, self._bytes[places].tobytes()

    def bodies_of(self, places: Places) -> Places:
        """Which body each place is in."""
        return np.searchsorted(self.starts, places, side="right") - 1


# Columns


def integers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column of values that are in its range."""
    if pa.types.is_integer(kind):
        return pa.array(values.astype(kind.to_pandas_dtype(), copy=False))
    return pa.array(values).cast(kind)  # this loads Arrow's functions, which takes long


def texts(bodies: Bodies, starts: Places, ends: Places, kind: pa.DataType) -> pa.Array:
    """A column of text or bytes."""
    offsets, joined = bodies.gathered(starts, ends)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(joined)]
    array = pa.Array.from_buffers(kind, len(starts), buffers)
    if kind == pa.string():
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise NotPlain from None
    return array


def times(microseconds: Places) -> pa.Array:
    """A column of times; NotPlain for those that no datetime can be."""
    if len(microseconds):
        insist(microseconds.min() >= _FIRST_SECOND * 1_000_000)
        insist(microseconds.max() < (_LAST_SECOND + 1) * 1_000_000)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(microseconds, np.int64))]
    return pa.Array.from_buffers(arrow_type(ft.Scalar("datetime")), len(microseconds), buffers)


def dates(days: NDArray[Any]) -> pa.Array:
    """A column of days since 1970; NotPlain for those that no date can be."""
    if len(days):
        insist(days.min() >= ft.FIRST_DAY and days.max() <= ft.LAST_DAY)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(days, np.int32))]
    return pa.Array.from_buffers(pa.date32(), len(days), buffers)


def uuids(data: NDArray[np.uint8]) -> pa.Array:
    """A column of UUIDs as text, from a row of sixteen bytes for each."""
    written = np.full((len(data), UUID_TEXT), ord("-"), np.uint8)
    digits = np.stack([data >> 4, data & 0x0F], axis=2).reshape(len(data), 2 * ft.UUID_SIZE)
    written[:, _DIGIT_PLACES] = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    offsets = np.arange(len(data) + 1, dtype=np.int32) * UUID_TEXT
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(data), buffers)


def insist_on_seconds(seconds: Places) -> None:
    """As in `times`, before a multiplication could overflow."""
    if len(seconds):
        insist(seconds.min() >= _FIRST_SECOND)
        insist(seconds.max() <= _LAST_SECOND)


def insist_on_members(kind: ft.Enum, values: NDArray[Any] | pa.Array) -> None:
    if isinstance(values, pa.Array):
        insist(kind.values.issuperset(values.unique().to_pylist()))
    else:
        insist(np.isin(values, np.array(sorted(kind.values), np.int64)).all())


def spread(array: pa.Array, present: NDArray[np.bool_]) -> pa.Array:
    """The array with a null for each value that is not present."""
    return array.take(pa.array(np.cumsum(present) - 1, mask=~present))


def lists(counts: Places, items: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    insist(offsets[-1] <= MAX_BYTES)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items)


def maps(counts: Places, keys: pa.Array, items: pa.Array) -> pa.MapArray:
    """A column of maps; NotPlain when a key stands in one of them twice."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    insist(offsets[-1] <= MAX_BYTES)
    of = np.repeat(np.arange(len(counts)), counts)
    pairs = pa.table({"of": of, "key": keys})
    insist(pairs.group_by(["of", "key"]).aggregate([]).num_rows == len(of))
    return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, items)


def decimals(texts_of: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """A column of decimals from their texts; NotPlain when one has other digits."""
    try:
        return texts_of.cast(kind)
    except pa.ArrowInvalid:
        raise NotPlain from None


def short_decimals(values: NDArray[Any], kind: pa.Decimal128Type) -> pa.Array:
    """A column of decimals from integers of 64 bits that they are without their points."""
    if len(values):
        top = 10**kind.precision
        insist(-top < int(values.min()) and int(values.max()) < top)
    wide = np.empty((len(values), 2), np.int64)
    wide[:, 0], wide[:, 1] = values, values >> 63
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(wide.tobytes())])


def long_decimals(data: NDArray[np.uint8], kind: pa.Decimal128Type) -> pa.Array:
    """The same from a row of sixteen bytes for each, the least significant first."""
    array = pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(np.ascontiguousarray(data).tobytes())])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise NotPlain from None
    return array


def structs(arrays: Sequence[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    if not arrays:
        return pa.Array.from_buffers(kind, count, [None])
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


class Shapes:
    """The dimensions of some arrays, which stand at these places as u32, so many for each array.

    Attributes:
        items: how many items each has.
    """

    def __init__(self, kind: ft.Array, bodies: Bodies, places: Places, ranks: Places, order: str) -> None:
        self._kind = kind
        self._ranks = ranks
        if len(ranks):
            insist(ranks.max() <= MOST_DIMENSIONS)
        ends = np.cumsum(ranks)
        self._flat = np.zeros(int(ends[-1]) if len(ends) else 0, np.int64)
        self.items = np.ones(len(ranks), np.int64)
        sizes = np.ones(len(ranks), np.float64)
        for at in range(int(ranks.max()) if len(ranks) else 0):
            having = ranks > at
            found = bodies.numbers(places[having] + 4 * at, f"{order}u4").astype(np.int64)
            insist(found.max() <= MAX_BYTES)
            self._insist_on_dimension(at, found)
            self._flat[(ends - ranks)[having] + at] = found
            sizes[having] *= np.maximum(found, 1)
            insist(sizes.max() < 1 << 50)
            self.items[having] *= found
        if kind.shape is not None:
            insist((ranks == len(kind.shape)).all())

    def _insist_on_dimension(self, at: int, found: Places) -> None:
        shape = self._kind.shape
        if shape is not None:
            insist(at < len(shape))
            insist(shape[at] is None or (found == shape[at]).all())

    def column(self, data: bytes, order: str) -> pa.Array:
        """The column of the arrays, whose items these are, of all of them one behind the other."""
        return array_column(self._kind, data, order, self.items, (self._ranks, self._flat))


def array_column(
    kind: ft.Array, data: bytes, order: str, counts: Places, shapes: tuple[Places, Places]
) -> pa.Array:
    """A column of arrays from their items, how many each has, and their shapes one behind the other."""
    of_items = arrow_type(ft.Scalar(kind.item), spark_safe=True)
    if kind.item == "bool":
        flags = np.frombuffer(data, np.uint8)
        insist(not len(flags) or flags.max() <= 1)
        items = pa.array(flags.astype(np.bool_))
    else:
        size = int(kind.item[1:]) // 8
        values = np.frombuffer(data, f"{order}{kind.item[0]}{size}")
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        items = pa.array(values) if kind.item in ft.FLOATS else integers(values, of_items)
    column = lists(counts, items)
    if is_list_of_items(kind):
        return column
    ranks, flat = shapes
    sizes = lists(ranks, pa.array(flat.astype(np.int32)))
    return pa.StructArray.from_arrays([sizes, column], fields=list(arrow_type(kind, spark_safe=True)))
