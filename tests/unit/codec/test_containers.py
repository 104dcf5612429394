"""The limit of lists, maps and records in one packed body."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgspec
import pytest

import heliograph as hg
from heliograph import codec
from heliograph.codec.containers import MAX_CONTAINERS, check_containers, is_counted


class Empty(hg.Event):
    pass


class Loose(hg.Event):
    extra: hg.Any


class Records(hg.Event):
    records: list[Empty]
    text: str


class Lists(hg.Event):
    lists: list[list[int]] | None = None


class Flat(hg.Event):
    numbers: list[int]
    point: Empty


def array_of(item: bytes, count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + item * count


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (Loose, b"\x91" + array_of(b"\x90", 1_000_000)),
        (Loose, b"\x91" + array_of(b"\x80", 1_000_000)),
        (Loose, b"\x91\x92" + array_of(b"\x90", 1_000_000) + b"\x81\1\2"),
        (Records, b"\x92" + array_of(b"\x90", 1_000_000) + b"\5"),
        (Lists, b"\x91" + array_of(b"\x90", 1_000_000)),
    ],
    ids=["lists", "maps", "a bad end", "records", "lists of lists"],
)
@pytest.mark.parametrize("with_class", [True, False], ids=["class", "mapping"])
def test_a_flood_of_empty_containers_is_refused_before_it_is_built(
    cls: type[hg.Event], body: bytes, with_class: bool
) -> None:
    decode: Any = codec.make_decoder(hg.format_of(cls), cls if with_class else None)
    tracemalloc.start()
    try:
        with pytest.raises(hg.DecodeError, match="more than 100000 lists, maps and records"):
            decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(body) + (64 << 10)


def test_as_many_as_allowed_arrive() -> None:
    # The body itself and the list around them are two.
    event = Lists([[] for _ in range(MAX_CONTAINERS - 2)])
    body = codec.encoder(Lists).encode(event)
    assert len(body) > MAX_CONTAINERS
    assert codec.decoder(hg.format_of(Lists), Lists)(body) == event


def test_one_more_cannot_leave() -> None:
    event = Lists([[] for _ in range(MAX_CONTAINERS - 1)])
    with pytest.raises(hg.InvalidEvent, match="more than 100000 lists"):
        codec.encoder(Lists).encode(event)


def test_only_formats_that_leave_the_number_open_are_counted() -> None:
    assert [cls for cls in (Empty, Loose, Records, Lists, Flat) if is_counted(hg.format_of(cls))] == [
        Loose,
        Records,
        Lists,
    ]


@pytest.mark.parametrize(
    "value",
    [
        "\x90" * 200_000,
        "é" * 200_000,
        b"\x90" * 200_000,
        [b"\x90" * 300, b"\x90" * 70_000, "x" * 300, "x" * 70_000, "x" * 20] * 3,
        [0x90, 0x9090, 0x90909090, 0x9090909090909090, -0x70, -0x7070, -0x70707070, -(2**62)] * 40_000,
        [1.5, None, True, -1, 127, 2.0**-1000] * 40_000,
        [msgspec.msgpack.Ext(5, b"\x90" * size) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)] * 3,
        {"\x90" * 40: "\x9f" * 40} | {str(n): n for n in range(70_000)},
    ],
    ids=["text", "text of two bytes", "bytes", "sizes", "integers", "floats", "extensions", "map"],
)
def test_bytes_inside_of_values_are_not_counted(value: Any) -> None:
    few = msgspec.msgpack.encode([value])
    check_containers(few)
    # Behind it stands a flood: it is found only if the value before it was passed over exactly.
    flood = b"\x92" + few[1:] + array_of(b"\x90", MAX_CONTAINERS - 1)
    with pytest.raises(hg.DecodeError):
        check_containers(flood)
    check_containers(b"\x92" + few[1:] + array_of(b"\x90", MAX_CONTAINERS - 4))
