"""Events of a class to bytes and back: what travels, what is shared, what is refused."""

from __future__ import annotations

import enum
import subprocess
import sys
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph import codec
from heliograph.codec.interpret import interpreted_decoder


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(hg.Event):
    lat: float
    lon: float = 0.0


class Packed(hg.Event, name="test.packed", key="id"):
    id: int
    small: hg.u8
    single: hg.f32
    text: str
    maybe: str | None
    data: bytes
    when: datetime
    color: Color
    level: Level
    point: Point
    path: list[Point]
    extra: hg.Any
    last: Point | None = None
    flag: bool = False


class PackedArrays(hg.Event, name="test.packed.arrays"):
    id: int
    samples: NDArray[np.float64]
    many: list[NDArray[np.int32]]
    mask: Annotated[NDArray[np.bool_], hg.Shape(2, 2)] | None
    text: str


class Place(hg.Event, body="native"):
    lat: float
    height: hg.i16 = 0
    name: str | None = None


class Native(hg.Event, name="test.native", body="native", key="id"):
    id: int
    small: hg.u8
    single: hg.f32
    text: str
    maybe: str | None
    data: bytes
    when: datetime
    color: Color
    level: Level
    place: Place
    last: Place | None
    samples: NDArray[np.float64]
    pose: Annotated[NDArray[np.int16], hg.Shape(3)]
    maybe_pose: Annotated[NDArray[np.int16], hg.Shape(3)] | None
    cloud: Annotated[NDArray[np.float32], hg.Shape(None, 2)] | None
    flag: bool = False


NOW = datetime(2026, 11, 5, 10, 20, 30, 123_456, tzinfo=UTC)
POINT = Point(48.1, 11.6)
POSE = np.arange(3, dtype=np.int16)
GRID = np.arange(6.0).reshape(2, 3)
EVENTS: list[hg.Event] = [
    Packed(1, 255, 1.5, "Grün", "x", b"\0\xff", NOW, Color.BLUE, Level.HIGH, POINT, [POINT], {"a": [1, NOW]}),
    Packed(-(2**63), 0, -0.0, "", None, b"", NOW, Color.RED, Level.LOW, POINT, [], None, POINT, flag=True),
    PackedArrays(1, GRID, [POSE.astype(np.int32), np.zeros((0, 4), np.int32)], np.eye(2, dtype=bool), "x"),
    PackedArrays(2, GRID[:, ::2], [], None, ""),
    PackedArrays(3, np.array(2.5), [], None, ""),
    Native(
        1, 255, 1.5, "Grüße", "x", b"\0\xff", NOW, Color.BLUE, Level.HIGH, Place(1.0, -2, "home"),
        Place(3.0), GRID, POSE, POSE[::-1], np.ones((4, 2), np.float32), flag=True,
    ),
    Native(
        -(2**63), 0, -0.0, "", None, b"", NOW, Color.RED, Level.LOW, Place(1.0), None,
        np.zeros(0), POSE, None, None,
    ),
]  # fmt: skip


@pytest.fixture(params=EVENTS, ids=lambda event: f"{type(event).__name__}-{EVENTS.index(event)}")
def event(request: pytest.FixtureRequest) -> hg.Event:
    found: hg.Event = request.param
    return found


def test_an_event_arrives_as_it_was_sent(event: hg.Event) -> None:
    body = codec.encoder(type(event)).encode(event)
    assert codec.decoder(hg.format_of(event), type(event))(body) == event


def test_an_event_arrives_from_any_kind_of_buffer(event: hg.Event) -> None:
    body = codec.encoder(type(event)).encode(event)
    decode = codec.decoder(hg.format_of(event), type(event))
    assert decode(bytearray(body)) == event
    assert decode(memoryview(body)) == event
    assert decode(memoryview(b"12345" + body)[5:]) == event


def test_the_interpreted_decoder_gives_the_same_event(event: hg.Event) -> None:
    body = codec.encoder(type(event)).encode(event)
    assert interpreted_decoder(hg.format_of(event), type(event))(body) == event


def test_the_parts_of_an_event_are_its_body(event: hg.Event) -> None:
    encoder = codec.encoder(type(event))
    assert b"".join(encoder.encode_parts(event)) == encoder.encode(event)


def test_a_packed_body_without_arrays_is_plain_msgpack() -> None:
    body = codec.encoder(Point).encode(POINT)
    assert msgspec.msgpack.decode(body) == [48.1, 11.6]
    assert codec.encoder(Point).encode_parts(POINT) == [body]


@pytest.mark.parametrize("cls", [PackedArrays, Native], ids=["packed", "native"])
def test_encoding_copies_no_array(cls: type[hg.Event]) -> None:
    samples = np.arange(1000.0)
    original = next(event for event in EVENTS if type(event) is cls)
    event = msgspec.structs.replace(original, samples=samples)
    parts = codec.encoder(cls).encode_parts(event)
    shared = [part for part in parts if np.shares_memory(np.frombuffer(part, np.uint8), samples)]
    assert [len(part) for part in shared] == [samples.nbytes]


def test_encoding_copies_no_array_of_fixed_shape_in_a_native_body() -> None:
    event = next(event for event in EVENTS if isinstance(event, Native))
    parts = codec.encoder(Native).encode_parts(event)
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), event.pose) for part in parts)


@pytest.mark.parametrize("cls", [PackedArrays, Native], ids=["packed", "native"])
def test_decoded_arrays_are_read_only_views_of_the_buffer(cls: type[hg.Event]) -> None:
    event = next(event for event in EVENTS if type(event) is cls)
    body = bytearray(codec.encoder(cls).encode(event))
    decoded = codec.decoder(hg.format_of(cls), cls)(body)
    samples: NDArray[np.float64] = decoded.samples  # type: ignore[attr-defined]
    assert np.shares_memory(samples, np.frombuffer(body, np.uint8))
    assert not samples.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        samples[0] = 1.0


@pytest.mark.parametrize("cls", [PackedArrays, Native], ids=["packed", "native"])
def test_arrays_are_aligned_when_the_body_is(cls: type[hg.Event]) -> None:
    event = next(event for event in EVENTS if type(event) is cls)
    body = np.frombuffer(codec.encoder(cls).encode(event), np.uint8)
    aligned = np.zeros(len(body) // 8 + 1, np.uint64).view(np.uint8)[: len(body)]
    aligned[:] = body
    decoded = codec.decoder(hg.format_of(cls), cls)(aligned.data)
    assert decoded.samples.flags.aligned  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [PackedArrays, Native], ids=["packed", "native"])
def test_an_array_with_foreign_bytes_is_converted_when_it_leaves(cls: type[hg.Event]) -> None:
    original = next(event for event in EVENTS if type(event) is cls)
    event = msgspec.structs.replace(original, samples=np.arange(3, dtype=">f8"))
    decoded = codec.decoder(hg.format_of(cls), cls)(codec.encoder(cls).encode(event))
    assert decoded.samples.tolist() == [0.0, 1.0, 2.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [PackedArrays, Native], ids=["packed", "native"])
def test_an_array_of_another_type_is_refused_when_it_leaves(cls: type[hg.Event]) -> None:
    original = next(event for event in EVENTS if type(event) is cls)
    event = msgspec.structs.replace(original, samples=np.arange(3, dtype=np.int64))
    with pytest.raises(hg.InvalidEvent, match="array of int64"):
        codec.encoder(cls).encode(event)


def test_encoders_and_decoders_are_made_once() -> None:
    wire = hg.format_of(Point)
    assert codec.encoder(Point) is codec.encoder(Point)
    assert codec.decoder(wire, Point) is codec.decoder(hg.Format.from_description(wire.description), Point)
    assert codec.mapping_decoder(wire) is codec.mapping_decoder(wire)
    assert codec.decoder(wire, Point) is not codec.decoder(wire, Point, missing="refuse")


def test_a_mapping_needs_no_class() -> None:
    wire = hg.Format.from_description(hg.format_of(Packed).description)
    body = codec.encoder(Packed).encode(EVENTS[0])
    assert codec.mapping_decoder(wire)(body) == {
        "id": 1, "small": 255, "single": 1.5, "text": "Grün", "maybe": "x", "data": b"\0\xff", "when": NOW,
        "color": "blue", "level": 2,
        "point": {"lat": 48.1, "lon": 11.6}, "path": [{"lat": 48.1, "lon": 11.6}],
        "extra": {"a": [1, NOW]}, "last": None, "flag": False,
    }  # fmt: skip


def test_a_class_with_keyword_only_fields_is_built() -> None:
    class Base(hg.Event):
        first: int = 1

    class More(Base, kw_only=True):
        second: str
        third: float = 2.5

    class Fewer(hg.Event, kw_only=True):
        third: float
        second: str

    event = More(7, second="x")
    body = codec.encoder(More).encode(event)
    assert codec.decoder(hg.format_of(More), More)(body) == event
    assert codec.decoder(hg.format_of(More), Fewer)(body) == Fewer(second="x", third=2.5)


def test_numpy_is_not_loaded_for_events_without_arrays() -> None:
    program = (
        "import sys, heliograph as hg\n"
        "from heliograph import codec\n"
        "from heliograph.codec.validate import validate\n"
        "class Point(hg.Event):\n    lat: float\n"
        "validate(Point(1.0))\n"
        "codec.decoder(hg.format_of(Point), Point)(codec.encoder(Point).encode(Point(1.0)))\n"
        "print('numpy' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
