"""Numpy arrays on the wire: out as views of their memory, in as read-only views of what was received.

Nothing is copied unless it must be: an array that is not contiguous or has foreign bytes is copied once when
it leaves, one whose bytes or width are not the receiver's is converted when it arrives.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from heliograph.errors import InvalidEvent
from heliograph.model.layout import SCALAR_SIZES, round_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from heliograph.model import field_types as ft
    from heliograph.model.formats import ByteOrder

MAX_DIMENSIONS: Final = 32
ALIGNMENT: Final = 8
PADDING: Final = tuple(bytes(n) for n in range(ALIGNMENT))
_NOTHING: Final = memoryview(b"")


class BadArray(ValueError):
    """An array that the received bytes cannot hold; decoders turn it into a DecodeError."""


def dtype_of(item: ft.ScalarName, order: str) -> np.dtype[Any]:
    """The numpy type of an array's items; the order is `<`, `>` or `=` for this machine's."""
    return np.dtype(f"{order}{'?' if item == 'bool' else f'{item[0]}{SCALAR_SIZES[item]}'}")


# Out


class Parts:
    """The data of arrays that will stand behind one another, and how long it is."""

    __slots__ = ("buffers", "size")

    def __init__(self) -> None:
        self.buffers: list[bytes | memoryview] = []
        self.size = 0


def array_data(kind: ft.Array, order: ByteOrder) -> Callable[[NDArray[Any]], memoryview]:
    """A function that gives the bytes of an array in `order`, without a copy where there need be none."""
    wanted = dtype_of(kind.item, order)

    def data_of(array: NDArray[Any]) -> memoryview:
        if array.dtype != wanted:
            if array.dtype.newbyteorder("=") != wanted.newbyteorder("="):
                raise InvalidEvent("array", f"an array of {array.dtype} where {kind} is declared")
            array = array.astype(wanted)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        # A view with a zero among its dimensions cannot be cast.
        return array.data.cast("B") if array.size else _NOTHING

    return data_of


def packed_writer(kind: ft.Array) -> Callable[[NDArray[Any], Parts], bytes]:
    """A function that adds an array to the parts and returns what stands for it in the msgpack."""
    data_of = array_data(kind, "<")

    def put(array: NDArray[Any], parts: Parts) -> bytes:
        data = data_of(array)
        place, size = parts.size, len(data)
        padding = -size % ALIGNMENT
        parts.buffers.append(data)
        if padding:
            parts.buffers.append(PADDING[padding])
        parts.size = place + size + padding
        return struct.pack(f"<{1 + array.ndim}I", place, *array.shape)

    return put


def native_heading(order: ByteOrder) -> Callable[[int, tuple[int, ...]], bytes]:
    """A function that gives what stands before the items of a free array in a native body.

    That is padding, the count of dimensions, the dimensions, and padding again.
    """

    def heading(padding: int, shape: tuple[int, ...]) -> bytes:
        dimensions = struct.pack(f"{order}{1 + len(shape)}I", len(shape), *shape)
        return PADDING[padding] + dimensions + PADDING[-len(dimensions) % ALIGNMENT]

    return heading


# In


class ArrayData:
    """The data of a packed body's arrays, as it was received.

    `left` is how much of it arrays have not used yet. Forged offsets can overlap, and copies of overlapping
    arrays could need many times the memory that was received.
    """

    __slots__ = ("left", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.left = len(view)


def array_view(
    wire: ft.Array, reader: ft.Array, order: ByteOrder
) -> Callable[[memoryview, int, tuple[int, ...]], NDArray[Any]]:
    """A function that makes an array of (bytes, offset, shape); BadArray when the bytes are not there."""
    dtype = dtype_of(wire.item, order)
    final = dtype_of(reader.item, "=")
    size = dtype.itemsize
    converts = dtype != final

    def view_of(data: memoryview, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
        end = offset + math.prod(shape) * size
        if end > len(data):
            raise BadArray(f"its data would end at byte {end} of {len(data)}")
        array: NDArray[Any] = np.ndarray(shape, dtype, data, offset)
        if converts:
            with np.errstate(invalid="ignore"):  # a NaN that signals becomes one that does not
                array = array.astype(final)
            array.flags.writeable = False
        return array

    return view_of


def packed_reader(wire: ft.Array, reader: ft.Array) -> Callable[[bytes, ArrayData], NDArray[Any]]:
    """A function that makes an array of what stands for it in the msgpack and the data behind that."""
    view_of = array_view(wire, reader, "<")
    check = _shape_checker(wire)
    size = SCALAR_SIZES[wire.item]
    unpack = {4 * (1 + n): struct.Struct(f"<{1 + n}I").unpack for n in range(MAX_DIMENSIONS + 1)}

    def get(descriptor: bytes, data: ArrayData) -> NDArray[Any]:
        place, *dimensions = unpack[len(descriptor)](descriptor)
        shape = check(tuple(dimensions))
        data.left -= math.prod(shape) * size
        if data.left < 0:
            raise BadArray("it shares its data with other arrays")
        return view_of(data.view, place, shape)

    return get


def native_reader(
    wire: ft.Array, reader: ft.Array, order: ByteOrder
) -> Callable[[memoryview, int, int], NDArray[Any]]:
    """A function that makes a free array of the reference to it in a native body."""
    view_of = array_view(wire, reader, order)
    check = _shape_checker(wire)
    count_of = struct.Struct(f"{order}I").unpack_from
    shape_of = [struct.Struct(f"{order}{n}I").unpack_from for n in range(MAX_DIMENSIONS + 1)]
    size = SCALAR_SIZES[wire.item]

    def get(body: memoryview, place: int, length: int) -> NDArray[Any]:
        (count,) = count_of(body, place)
        shape = check(shape_of[count](body, place + 4))
        head = round_up(4 + 4 * count, ALIGNMENT)
        if head + math.prod(shape) * size != length:
            raise BadArray(f"{length} bytes, which is not what shape {shape} needs")
        return view_of(body, place + head, shape)

    return get


def _shape_checker(kind: ft.Array) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A function that returns the shape it is given, or raises BadArray when the type does not allow it."""
    if kind.shape is None:
        return lambda shape: shape

    def check(shape: tuple[int, ...]) -> tuple[int, ...]:
        if not kind.fits(shape):
            raise BadArray(f"shape {shape} where {kind} is declared")
        return shape

    return check
