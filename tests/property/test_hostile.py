"""Bytes that were cut, changed or forged give an event, or FormatError or DecodeError with a path."""

from __future__ import annotations

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
from heliograph.codec.failures import MAX_REREAD
from heliograph.codec.interpret import build_event
from heliograph.errors import BadFrame
from heliograph.links.session import messages as m
from heliograph.links.session.wire_events import WireEventReader, is_plain
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, FormatRegistry
from heliograph.model.layout import native_format
from tests.random_formats import class_of, random_case, same
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAMES = 100
LARGEST_BODY = 170


class Sample:
    """A valid event, its body, and the run of one record in which it travels over a link."""

    def __init__(self, seed: int) -> None:
        case = random_case(Random(seed))
        self.cls = class_of(case.fmt)
        self.wire = hg.format_of(self.cls)
        self.event = build_event(case.values, self.cls)
        self.body = codec.encoder(self.cls).encode(self.event)
        self.decode = codec.decoder(self.wire, self.cls)
        self.decode_mapping = codec.mapping_decoder(self.wire)
        header = hg.Header("c", self.wire.name, "s", 1, 2, 3, self.wire.id, key=(1,), headers={"a": "b"})
        self.run = run_of(self.wire, self.body, header)
        self._stream = WireEventReader("c", self.wire)

    def arrive(self, run: bytes | bytearray) -> Any:
        """The events that a link makes of a run, or BadFrame; nothing else may come of it."""
        try:
            return [event for event, _ in self.read_run(run)]
        except BadFrame as error:
            return error

    def read_run(self, run: bytes | bytearray) -> list[Any]:
        view = memoryview(run)
        records = m.Run(m.RECORDS, 1, m.count_records(view, "peer"), view)
        return [item[:2] for item in self._stream.read(records, (self.cls,), "peer")]


def run_of(wire: hg.Format, body: bytes, header: hg.Header) -> bytes:
    """An array of one record, as stations send it: bodies of plain msgpack stand in it as they are."""
    inner: Any = msgspec.Raw(body) if is_plain(wire) else body
    return msgspec.msgpack.encode([[inner, header, 0]])


def samples() -> Iterator[Sample]:
    """Valid events of many kinds, none so large that changing each byte of it takes long."""
    seed = found = 0
    while found < FRAMES:
        sample = Sample(seed)
        seed += 1
        if 0 < len(sample.body) <= LARGEST_BODY:
            found += 1
            yield sample


SAMPLES = list(samples())


def outcome(read: Callable[[], Any], wire: hg.Format | None = None) -> Any:
    """What came of hostile bytes; anything but an event or one of the two errors fails the test."""
    try:
        return read()
    except (hg.FormatError, hg.DecodeError) as raised:
        error = raised
    assert str(error)
    if wire is not None:
        assert leads_to_a_field(error.path, wire), error.path
    return error


def leads_to_a_field(path: str, wire: hg.Format) -> bool:
    """Whether a path is the root's, or begins with a field of the format."""
    return path == "$" or any(
        path == f"$.{name}" or path.startswith((f"$.{name}.", f"$.{name}[")) for name in wire.by_name
    )


def read_both(body: bytes | bytearray, sample: Sample) -> Any:
    event = outcome(lambda: sample.decode(body), sample.wire)
    assert type(event) is sample.cls or isinstance(event, hg.DecodeError)
    mapping = outcome(lambda: sample.decode_mapping(body), sample.wire)
    # With or without a class the same bytes are good or bad.
    assert isinstance(mapping, dict) == isinstance(event, hg.Event), (event, mapping)
    return event


def test_the_frames_are_of_all_kinds() -> None:
    kinds = {type(field.type) for sample in SAMPLES for field in sample.wire.fields}
    assert kinds == {
        ft.Scalar, ft.Decimal, ft.Optional, ft.Enum, ft.NestedEvent, ft.List, ft.Map, ft.Array, ft.Anything,
    }  # fmt: skip
    assert {sample.wire.body for sample in SAMPLES} == {"packed", "native"}
    for sample in SAMPLES:
        assert same(sample.decode(sample.body), sample.event)
        assert same(sample.arrive(sample.run), [sample.event])


def test_every_prefix_of_a_frame_is_refused() -> None:
    for sample in SAMPLES:
        for end in range(len(sample.run)):
            assert isinstance(sample.arrive(sample.run[:end]), BadFrame)


def test_every_prefix_of_a_body_is_refused_or_lacks_only_padding() -> None:
    for sample in SAMPLES:
        for end in range(len(sample.body)):
            result = outcome(partial(sample.decode, sample.body[:end]), sample.wire)
            # What stands behind the last array or text is padding and may be missing.
            assert isinstance(result, hg.DecodeError) or (
                same(result, sample.event) and len(sample.body) - end < 8
            )


@pytest.mark.parametrize("first", range(0, FRAMES, 10))
def test_every_change_of_one_byte_is_refused_or_gives_an_event(first: int) -> None:
    count = 0
    fields_named = 0
    for sample in SAMPLES[first : first + 10]:
        data = bytearray(sample.body)
        for place in range(len(data)):
            for value in range(256):
                data[place] = value
                event = read_both(data, sample)
                fields_named += isinstance(event, hg.DecodeError) and event.path != "$"
            data[place] = sample.body[place]
            count += 256
    assert fields_named
    print(f"{count} changed bodies; in {fields_named} the damage has the path of a field")


@pytest.mark.parametrize("first", range(0, FRAMES, 25))
def test_every_change_of_one_byte_on_a_link_is_refused_or_gives_an_event(first: int) -> None:
    sample = SAMPLES[first]
    data = bytearray(sample.run)
    for place in range(len(data)):
        for value in range(256):
            data[place] = value
            arrived = sample.arrive(data)
            assert isinstance(arrived, BadFrame) or all(type(event) is sample.cls for event in arrived)
        data[place] = sample.run[place]


@pytest.mark.parametrize(
    "changes",
    [
        {"channel": "x" * 256},
        {"format_id": b"short"},
        {"priority": 6},
        {"priority": "high"},
        {"epoch": None},
        {"key": (1,) * 33},
        {"hops": 256},
        {"correlation_id": "x" * 256},
        {"headers": {str(n): "" for n in range(65)}},
        {"headers": {"a": "x" * 4097}},
        {"headers": {"a": 1}},
    ],
    ids=str,
)
def test_an_event_whose_header_breaks_a_limit_is_left_out(changes: dict[str, Any]) -> None:
    sample = SAMPLES[0]
    ((_, header),) = sample.read_run(sample.run)
    forged = msgspec.structs.replace(header, **changes)
    assert sample.arrive(run_of(sample.wire, sample.body, forged)) == []


@given(st.sampled_from(SAMPLES), st.data())
@settings(max_examples=examples(300))
def test_random_bytes_are_refused_or_give_an_event(sample: Sample, data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=200))
    outcome(lambda: sample.decode(body), sample.wire)
    sample.arrive(body)
    outcome(lambda: hg.Format.from_description(body))


@given(st.sampled_from(SAMPLES), st.binary(min_size=12, max_size=12))
@settings(max_examples=examples(50))
def test_a_forged_format_id_is_unknown(sample: Sample, format_id: bytes) -> None:
    registry = FormatRegistry()
    registry.register(sample.wire)
    if format_id != sample.wire.id:
        with pytest.raises(hg.UnknownFormat):
            registry[format_id]
        with pytest.raises(hg.FormatError, match="came under the id"):
            registry.learn(format_id, sample.wire.description)


def test_the_format_id_of_another_event_is_refused_or_gives_an_event() -> None:
    for sample, other in pairwise(SAMPLES):
        outcome(partial(other.decode, sample.body), other.wire)
        outcome(partial(other.decode_mapping, sample.body), other.wire)


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
    # A body that is too large to be read again may end anywhere without a path.
    assert error.path.startswith(path) or (len(body) > MAX_REREAD and error.path == "$"), error.path
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
    check_memory(Holder, holder(**{field: bomb}) + b"\xa0" * size, path=f"$.{field}")


@pytest.mark.parametrize(
    "level", [b"\x91", b"\x9f", b"\xdc\0\x10", b"\xdd\0\0\xff\xff", b"\x81\xa1a", b"\xdf\0\0\xff\xff\xa1a"]
)
@pytest.mark.parametrize("depth", [65, 200, 10_000])
def test_deep_nests_are_refused_without_building_them(level: bytes, depth: int) -> None:
    check_memory(Holder, holder(extra=level * depth + b"\xc0"), path="$.extra")
    check_memory(Holder, holder(nested=level * depth + b"\xc0"), path="$.nested")


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
            data = bytearray(sample.body)
            for place in rng.sample(range(len(data)), min(3, len(data))):
                data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xDD, 0xDF, 0xFF])
            _, peak = peak_of(partial(sample.decode, bytes(data)))
            assert peak <= 4 * len(data) + (64 << 10)
