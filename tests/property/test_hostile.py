"""Bytes that were cut, changed or forged give an event, or FormatError or DecodeError with a path."""

from __future__ import annotations

import re
import struct
import tracemalloc
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np  # noqa: TC002 - event classes read their annotations
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph import codec
from heliograph import fieldtypes as ft
from heliograph.codec import frame
from heliograph.codec.interpret import build_event
from heliograph.formats import Field, FormatRegistry
from heliograph.layout import native_format
from tests.random_formats import class_of, random_case, same
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAMES = 100
PATH = re.compile(r"(\$|header|frame)(\.|\[|$)", re.DOTALL)
LARGEST_FRAME = 250


class Sample:
    """A valid frame, the class it was made for and the registry that knows its format."""

    def __init__(self, seed: int) -> None:
        case = random_case(Random(seed))
        self.cls = class_of(case.fmt)
        self.event = build_event(case.values, self.cls)
        fmt = hg.format_of(self.cls)
        self.registry = FormatRegistry()
        self.registry.register(fmt)
        header = hg.Header("c", fmt.name, "s", 1, 2, 3, fmt.id, key=(1,), headers={"a": "b"})
        self.data = b"".join(frame.encode(header, codec.encoder(self.cls).encode_parts(self.event)))
        self.body_start = len(self.data) - len(frame.decode(self.data)[1])


def samples() -> Iterator[Sample]:
    """Valid frames of many kinds, none so large that changing each byte of it takes long."""
    seed = found = 0
    while found < FRAMES:
        sample = Sample(seed)
        seed += 1
        if len(sample.data) <= LARGEST_FRAME:
            found += 1
            yield sample


SAMPLES = list(samples())


def outcome(read: Callable[[], Any]) -> Any:
    """What came of hostile bytes; anything but an event or one of the two errors fails the test."""
    try:
        return read()
    except (hg.FormatError, hg.DecodeError) as raised:
        error = raised
    assert PATH.match(error.path), error.path
    assert str(error)
    return error


def read_both(data: bytes | bytearray, sample: Sample) -> None:
    event = outcome(lambda: frame.read(data, sample.registry, sample.cls)[1])
    assert type(event) is sample.cls or isinstance(event, hg.FormatError | hg.DecodeError)
    mapping = outcome(lambda: frame.read(data, sample.registry)[1])
    # With or without a class the same bytes are good or bad.
    assert isinstance(mapping, dict) == isinstance(event, hg.Event), (event, mapping)


def test_the_frames_are_of_all_kinds() -> None:
    kinds = {type(field.type) for sample in SAMPLES for field in hg.format_of(sample.cls).fields}
    assert kinds == {ft.Scalar, ft.Optional, ft.Enum, ft.Record, ft.List, ft.Array, ft.Anything}
    assert {hg.format_of(sample.cls).body for sample in SAMPLES} == {"packed", "native"}
    for sample in SAMPLES:
        assert same(frame.read(sample.data, sample.registry, sample.cls)[1], sample.event)


def test_every_prefix_of_a_frame_is_refused() -> None:
    for sample in SAMPLES:
        for end in range(len(sample.data)):
            error = outcome(partial(frame.read, sample.data[:end], sample.registry, sample.cls))
            assert isinstance(error, hg.DecodeError)


def test_every_prefix_of_a_body_is_refused_or_lacks_only_padding() -> None:
    for sample in SAMPLES:
        body = bytes(frame.decode(sample.data)[1])
        decode = codec.decoder(hg.format_of(sample.cls), sample.cls)
        for end in range(len(body)):
            result = outcome(partial(decode, body[:end]))
            # What stands behind the last array or text is padding and may be missing.
            assert isinstance(result, hg.DecodeError) or (same(result, sample.event) and len(body) - end < 8)


@pytest.mark.parametrize("first", range(0, FRAMES, 10))
def test_every_change_of_one_byte_is_refused_or_gives_an_event(first: int) -> None:
    count = 0
    for number, sample in enumerate(SAMPLES[first : first + 10]):
        data = bytearray(sample.data)
        # All frames begin in the same way, so that part is changed in one of ten only.
        for place in range(0 if number == 0 else sample.body_start, len(data)):
            for value in range(256):
                data[place] = value
                read_both(data, sample)
            data[place] = sample.data[place]
            count += 256
    print(f"{count} changed frames")


@given(st.sampled_from(SAMPLES), st.data())
@settings(max_examples=examples(300))
def test_random_bytes_are_refused_or_give_an_event(sample: Sample, data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=200))
    outcome(lambda: codec.decoder(hg.format_of(sample.cls), sample.cls)(body))
    outcome(lambda: frame.decode(body))
    outcome(lambda: hg.Format.from_description(body))


@given(st.sampled_from(SAMPLES), st.binary(min_size=12, max_size=12))
@settings(max_examples=examples(50))
def test_a_forged_format_id_is_unknown(sample: Sample, format_id: bytes) -> None:
    header, body = frame.decode(sample.data)
    forged = b"".join(frame.encode(msgspec.structs.replace(header, format_id=format_id), [body]))
    if format_id not in sample.registry:
        with pytest.raises(hg.UnknownFormat):
            frame.read(forged, sample.registry, sample.cls)


def test_the_format_id_of_another_event_is_refused_or_gives_an_event() -> None:
    for sample, other in pairwise(SAMPLES):
        header, body = frame.decode(sample.data)
        forged = msgspec.structs.replace(header, format_id=hg.format_of(other.cls).id)
        data = b"".join(frame.encode(forged, [body]))
        outcome(partial(frame.read, data, other.registry, other.cls))
        outcome(partial(frame.read, data, other.registry))


# Memory


class Holder(hg.Event, name="test.holder"):
    number: int
    texts: list[str]
    nested: list[list[list[int]]]
    extra: hg.Any
    data: bytes


class ManyArrays(hg.Event, name="test.many_arrays"):
    samples: list[NDArray[np.float64]]


def peak_of(read: Callable[[], Any]) -> tuple[Any, int]:
    read_once = outcome(read)  # what is made only once, such as the decoder, does not count
    del read_once
    tracemalloc.start()
    try:
        result = outcome(read)
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_memory(cls: type[hg.Event], body: bytes, *, path: str) -> None:
    decode = codec.decoder(hg.format_of(cls), cls)
    error, peak = peak_of(lambda: decode(body))
    assert isinstance(error, hg.DecodeError), error
    assert error.path == path or error.path.startswith(path), error.path
    assert peak <= 4 * len(body) + (64 << 10), (peak, len(body))


def holder(**parts: bytes) -> bytes:
    """The body of a Holder with some fields given as bytes."""
    good = {"number": b"\1", "texts": b"\x90", "nested": b"\x90", "extra": b"\xc0", "data": b"\xc4\0"}
    return b"\x95" + b"".join({**good, **parts}.values())


BOMBS = {
    "str": b"\xdb\xff\xff\xff\xff",
    "bin": b"\xc6\xff\xff\xff\xff",
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "ext": b"\xc9\xff\xff\xff\xff\5",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("field", ["number", "texts", "nested", "extra", "data"])
@pytest.mark.parametrize("size", [0, 1000, 100_000])
def test_an_announced_length_of_four_billion_costs_nothing(field: str, bomb: bytes, size: int) -> None:
    check_memory(Holder, holder(**{field: bomb}) + b"\xa0" * size, path="$")


@pytest.mark.parametrize(
    "level", [b"\x91", b"\x9f", b"\xdc\0\x10", b"\xdd\0\0\xff\xff", b"\x81\xa1a", b"\xdf\0\0\xff\xff\xa1a"]
)
@pytest.mark.parametrize("depth", [65, 200, 10_000])
def test_deep_nests_are_refused_without_building_them(level: bytes, depth: int) -> None:
    check_memory(Holder, holder(extra=level * depth + b"\xc0"), path="$")
    check_memory(Holder, holder(nested=level * depth + b"\xc0"), path="$")


def test_a_closed_nest_is_allowed_up_to_64_levels() -> None:
    decode = codec.decoder(hg.format_of(Holder), Holder)
    assert decode(holder(extra=b"\x91" * 64 + b"\xc0")).extra
    with pytest.raises(hg.DecodeError, match="deep") as caught:
        decode(holder(extra=b"\x91" * 65 + b"\xc0"))
    assert caught.value.path == "$.extra" + "[0]" * 64


@pytest.mark.parametrize(
    "value",
    [
        b"\xd4\5\0",
        b"\x81\1\2",
        b"\x81\x90\2",
        b"\x81\x80\2",
        b"\x81\xc0\2",
        b"\xc1",
        b"\xa1\xff",
        b"\xd6\xff",
        b"\x81\xc4\1a\2",
    ],
    ids=lambda value: value.hex(),
)
def test_what_any_cannot_hold_is_refused(value: bytes) -> None:
    decode = codec.decoder(hg.format_of(Holder), Holder)
    with pytest.raises(hg.DecodeError) as caught:
        decode(holder(extra=b"\x92\1" + value))
    assert caught.value.path.startswith("$.extra[1]") or value == b"\xd6\xff"


def test_references_that_overlap_do_not_multiply_memory() -> None:
    fields: list[tuple[str, ft.FieldType]] = [(f"f{n}", ft.Scalar("bytes")) for n in range(900)]
    wire = native_format("bomb", fields)
    body = struct.pack("<1800I", *[0, 7200] * 900)
    decode = codec.mapping_decoder(wire)
    error, peak = peak_of(lambda: decode(body))
    assert isinstance(error, hg.DecodeError)
    assert peak <= 4 * len(body) + (64 << 10)


@pytest.mark.parametrize("item", ["f32", "f64"])
@pytest.mark.parametrize("count", [500, 10])
def test_arrays_that_overlap_do_not_multiply_memory(item: ft.ScalarName, count: int) -> None:
    wire = hg.Format("test.many_arrays", (Field("samples", ft.List(ft.Array(item))),))
    main = msgspec.msgpack.encode([[struct.pack("<2I", 0, 100)] * count])
    head = struct.pack("<I", len(main)) + main
    body = head + bytes(-len(head) % 8) + bytes(800)
    decode = codec.decoder(wire, ManyArrays)
    error, peak = peak_of(lambda: decode(body))
    assert isinstance(error, hg.DecodeError)
    assert peak <= 4 * len(body) + (64 << 10)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((2**32 - 1,), "not there"),
        ((2**31, 2**31, 2**31), "too large"),
        ((2**31, 2**31, 0), "too large"),
        ((1,) * 33, "at most 32"),
    ],
    ids=str,
)
@pytest.mark.parametrize("body", ["packed", "native"])
def test_forged_shapes_are_refused(shape: tuple[int, ...], reason: str, body: str) -> None:
    dimensions = struct.pack(f"<{len(shape)}I", *shape)
    if body == "packed":
        wire = hg.Format("test.one", (Field("a", ft.Array("f64")),))
        main = msgspec.msgpack.encode([bytes(4) + dimensions])
        data = struct.pack("<I", len(main)) + main + bytes(16)
    else:
        wire = native_format("test.one", [("a", ft.Array("f64"))])
        rest = struct.pack("<I", len(shape)) + dimensions
        data = struct.pack("<2I", 8, len(rest)) + rest
    decode = codec.mapping_decoder(wire)
    error, peak = peak_of(lambda: decode(data))
    assert isinstance(error, hg.DecodeError)
    assert error.path == "$.a"
    assert peak < 64 << 10


def test_random_frames_cost_no_more_memory_than_they_should() -> None:
    rng = Random(1)
    for sample in SAMPLES:
        for _ in range(10):
            data = bytearray(sample.data)
            for place in rng.sample(
                range(sample.body_start, len(data)), min(3, len(data) - sample.body_start)
            ):
                data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xDD, 0xDF, 0xFF])
            _, peak = peak_of(partial(frame.read, bytes(data), sample.registry, sample.cls))
            assert peak <= 4 * len(data) + (64 << 10)
