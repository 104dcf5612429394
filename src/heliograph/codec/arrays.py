"""Numpy arrays on the wire: out as views of their memory, in as read-only views of what was received.

Nothing is copied unless it must be: an array that is not contiguous or has foreign bytes is copied once when
it leaves, one whose bytes or width are not the receiver's is converted when it arrives.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from heliograph.errors import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from heliograph import fieldtypes as ft
    from heliograph.formats import ByteOrder

    Read = Callable[["Region", int, tuple[int, ...]], NDArray[Any]]

MAX_DIMENSIONS: Final = 32
ALIGNMENT: Final = 8
PADDING: Final = tuple(bytes(n) for n in range(ALIGNMENT))
_NOTHING: Final = memoryview(b"")


class BadArray(ValueError):
    """An array that the received bytes cannot hold; decoders turn it into a DecodeError."""


def dtype_of(item: ft.ScalarName, order: ByteOrder) -> np.dtype[Any]:
    """The numpy type of an array's items in the given byte order."""
    name = "?" if item == "bool" else f"{item[0]}{int(item[1:]) // 8}"
    return np.dtype(f"{order}{name}")


def native_dtype(item: ft.ScalarName) -> np.dtype[Any]:
    return dtype_of(item, "<").newbyteorder("=")


class Region:
    """Received bytes that arrays are views of.

    `left` bounds what conversions may copy: forged places can overlap, and copies of overlapping arrays could
    need many times the memory that was received.
    """

    __slots__ = ("left", "view")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.view = memoryview(data).toreadonly()
        self.left = self.view.nbytes


class Parts:
    """Buffers that will stand behind one another, and how long they are together."""

    __slots__ = ("buffers", "size")

    def __init__(self, size: int = 0) -> None:
        self.buffers: list[bytes | memoryview] = []
        self.size = size

    def align(self) -> None:
        padding = -self.size % ALIGNMENT
        if padding:
            self.add(PADDING[padding])

    def add(self, buffer: bytes | memoryview) -> None:
        self.buffers.append(buffer)
        self.size += len(buffer)


def array_writer(kind: ft.Array, order: ByteOrder) -> Callable[[NDArray[Any]], memoryview]:
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


def array_reader(wire: ft.Array, reader: ft.Array, order: ByteOrder) -> Read:
    """A function that makes an array of (region, offset, shape); BadArray when the bytes are not there."""
    dtype = dtype_of(wire.item, order)
    final = native_dtype(reader.item)
    size = dtype.itemsize

    def view_of(region: Region, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
        end = offset + math.prod(shape) * size
        if end > len(region.view):
            raise BadArray(f"its data would end at byte {end} of {len(region.view)}")
        array: NDArray[Any] = np.ndarray(shape, dtype, region.view, offset)
        if dtype == final:
            return array
        region.left -= array.nbytes
        if region.left < 0:
            raise BadArray("it shares its data with other arrays")
        array = array.astype(final)
        array.flags.writeable = False
        return array

    return view_of


def shape_checker(kind: ft.Array) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A function that returns the shape it is given, or raises BadArray when the type does not allow it."""
    wanted = kind.shape

    def check(shape: tuple[int, ...]) -> tuple[int, ...]:
        if wanted is None:
            if len(shape) > MAX_DIMENSIONS:
                raise BadArray(f"{len(shape)} dimensions; at most {MAX_DIMENSIONS} are allowed")
        elif shape != wanted and (
            len(shape) != len(wanted)
            or any(n is not None and n != got for n, got in zip(wanted, shape, strict=True))
        ):
            raise BadArray(f"shape {shape} where {kind} is declared")
        return shape

    return check


@cache
def unsigned(count: int, order: ByteOrder) -> struct.Struct:
    """`count` u32, which is what places and dimensions are written as."""
    return struct.Struct(f"{order}{count}I")
