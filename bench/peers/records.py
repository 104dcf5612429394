"""A mixed record of about 100 bytes: writing it, reading it, and reading it when sender and receiver differ.

The raw limit is bare msgspec on a plain struct of the same fields. The rivals get the record in the form that
suits them best; what they cannot hold is noted. All of them turn an object into bytes and bytes into an
object whose fields can be read.
"""

from __future__ import annotations

import pickle
import random
import struct
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from heliograph import codec
from heliograph.codec import native
from heliograph.codec.interpret import interpreted_decoder
from heliograph.codec.validate import validator
from heliograph.model.event import format_of, info_of
from heliograph.model.layout import native_format

if TYPE_CHECKING:
    from collections.abc import Callable


class Track(hg.Event, name="air.track", key="id"):
    id: int
    lat: float
    lon: float
    speed: float
    heading: float
    altitude: hg.i32
    squawk: hg.u16
    on_ground: bool
    callsign: str
    region: str
    operator: str | None = None
    payload: bytes = b""
    quality: int = 0


class NativeTrack(Track, name="air.track", body="native"):
    """The same in C layout."""


class NewerTrack(Track, name="air.track"):
    """What a newer sender writes: two fields that the receiver has never heard of."""

    vertical_rate: float = 0.0
    source: str = "adsb"


class OlderTrack(hg.Event, name="air.track", key="id"):
    """What an older sender writes: three fields that the receiver has are missing."""

    id: int
    lat: float
    lon: float
    speed: float
    heading: float
    altitude: hg.i32
    squawk: hg.u16
    on_ground: bool
    callsign: str
    region: str


class Bare(msgspec.Struct, array_like=True):
    id: int
    lat: float
    lon: float
    speed: float
    heading: float
    altitude: int
    squawk: int
    on_ground: bool
    callsign: str
    region: str
    operator: str | None = None
    payload: bytes = b""
    quality: int = 0


@dataclass(slots=True)
class Plain:
    id: int
    lat: float
    lon: float
    speed: float
    heading: float
    altitude: int
    squawk: int
    on_ground: bool
    callsign: str
    region: str
    operator: str | None
    payload: bytes
    quality: int


NAMES = tuple(Plain.__dataclass_fields__)


def values(size: Size) -> tuple[Any, ...]:
    chance = random.Random(size.seed)
    return (
        chance.randrange(2**40),
        chance.uniform(-90, 90),
        chance.uniform(-180, 180),
        chance.uniform(0, 600),
        chance.uniform(0, 360),
        chance.randrange(45_000),
        chance.randrange(0o7777),
        False,
        "DLH4AB",
        "europe-north",
        "Example Air",
        chance.randbytes(16),
        chance.randrange(100),
    )


def _both(
    name: str, write: Callable[[Any], Any], read: Callable[[Any], Any], record: Any, note: str = ""
) -> tuple[Case, Case]:
    data = write(record)
    return Case(name, write, ((record,),), note), Case(name, read, ((data,),), note)


def _heliograph(row: tuple[Any, ...]) -> list[tuple[Case, Case]]:
    track, encode_large = Track(*row), NativeTrack(*row)
    return [
        _both("heliograph", codec.encoder(Track).encode, codec.decoder(format_of(Track), Track), track),
        _both(
            "heliograph native",
            codec.encoder(NativeTrack).encode,
            codec.decoder(format_of(NativeTrack), NativeTrack),
            encode_large,
        ),
    ]


def _rivals(row: tuple[Any, ...]) -> list[tuple[Case, Case]]:
    plain = Plain(*row)
    return [
        _both("msgspec", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Bare).decode, Bare(*row)),
        _both("pickle", lambda record: pickle.dumps(record, 5), pickle.loads, plain),
        _protobuf(plain),
        _fastavro(plain),
        _orjson(plain),
        _xml(plain),
        _numpy(plain),
    ]


def _protobuf(plain: Plain) -> tuple[Case, Case]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    by_type = {int: kinds.TYPE_INT64, float: kinds.TYPE_DOUBLE, bool: kinds.TYPE_BOOL, str: kinds.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="track.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Track")
    for number, name in enumerate(NAMES, 1):
        kind = by_type.get(type(getattr(plain, name)), kinds.TYPE_BYTES)
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Track"))

    def write(p: Plain) -> bytes:
        data: bytes = made(
            id=p.id, lat=p.lat, lon=p.lon, speed=p.speed, heading=p.heading, altitude=p.altitude,
            squawk=p.squawk, on_ground=p.on_ground, callsign=p.callsign, region=p.region,
            operator=p.operator, payload=p.payload, quality=p.quality,
        ).SerializeToString()  # fmt: skip
        return data

    return _both("protobuf", write, made.FromString, plain, "message built and serialised")


def _fastavro(plain: Plain) -> tuple[Case, Case]:
    from io import BytesIO

    from fastavro import parse_schema, schemaless_reader, schemaless_writer

    by_type = {int: "long", float: "double", bool: "boolean", str: "string", bytes: "bytes"}
    fields = [{"name": name, "type": by_type[type(getattr(plain, name))]} for name in NAMES]
    schema = parse_schema({"type": "record", "name": "Track", "fields": fields})

    def write(record: dict[str, Any]) -> bytes:
        out = BytesIO()
        schemaless_writer(out, schema, record)
        return out.getvalue()

    return _both(
        "fastavro", write, lambda data: schemaless_reader(BytesIO(data), schema, None), asdict(plain), "dict"
    )


def _orjson(plain: Plain) -> tuple[Case, Case]:
    import orjson

    # JSON has no bytes: the payload travels as hex, converted beforehand in its favour.
    record = asdict(plain) | {"payload": plain.payload.hex()}
    return _both("orjson", orjson.dumps, orjson.loads, record, "dict, payload as hex")


def _xml(plain: Plain) -> tuple[Case, Case]:
    convert: dict[str, Callable[[str], Any]] = {
        name: {bool: lambda text: text == "True", bytes: bytes.fromhex}.get(kind, kind)
        for name, kind in ((name, type(getattr(plain, name))) for name in NAMES)
    }

    def write(p: Plain) -> bytes:
        root = ET.Element("track")
        for name in NAMES:
            value = getattr(p, name)
            ET.SubElement(root, name).text = value.hex() if isinstance(value, bytes) else str(value)
        data: bytes = ET.tostring(root)
        return data

    def read(data: bytes) -> Plain:
        return Plain(
            **{element.tag: convert[element.tag](element.text or "") for element in ET.fromstring(data)}
        )

    return _both("XML", write, read, plain, "xml.etree, typed")


def _numpy(plain: Plain) -> tuple[Case, Case]:
    import numpy as np

    by_type = {int: "i8", float: "f8", bool: "?", str: "U12", bytes: "S16"}
    dtype = np.dtype([(name, by_type[type(getattr(plain, name))]) for name in NAMES])

    def write(p: Plain) -> bytes:
        return np.array(astuple(p), dtype).tobytes()

    def read(data: bytes) -> Any:
        return np.frombuffer(data, dtype)[0].item()

    return _both("numpy", write, read, plain, "structured record, texts of 12 characters at most")


@benchmark("records-encode", "Writing a mixed record of about 100 bytes")
def encode(size: Size) -> Benchmark:
    row = values(size)
    pairs = _heliograph(row) + _rivals(row)
    check, write = validator(Track), codec.encoder(Track).encode

    def checked(track: Track) -> bytes:
        check(track)
        return write(track)

    extra = Case("heliograph, values checked", checked, ((Track(*row),),), "what a push does")
    return Benchmark(
        cases=(pairs[0][0], extra, *(pair[0] for pair in pairs[1:])),
        baseline="msgspec",
        targets=(Target("writing against bare msgspec", "heliograph", "at most", 1.3, "msgspec"),),
        note=f"{len(pairs[0][1].inputs[0][0])} bytes packed, {len(pairs[1][1].inputs[0][0])} native.",
    )


@benchmark("records-decode", "Reading a mixed record of about 100 bytes")
def decode(size: Size) -> Benchmark:
    row = values(size)
    pairs = _heliograph(row) + _rivals(row)
    interpreted = Case(
        "heliograph interpreted",
        interpreted_decoder(format_of(Track), Track),
        ((codec.encoder(Track).encode(Track(*row)),),),
        "the oracle: no generated code",
    )
    return Benchmark(
        cases=(pairs[0][1], interpreted, *(pair[1] for pair in pairs[1:])),
        baseline="msgspec",
        targets=(
            Target("reading the same format against bare msgspec", "heliograph", "at most", 1.3, "msgspec"),
            Target("generated against interpreted", "heliograph interpreted", "at least", 4.0, "heliograph"),
        ),
    )


@benchmark("records-convert", "Reading a record that was written in another format")
def convert(size: Size) -> Benchmark:
    row = values(size)
    swapped = native_format("air.track", list(info_of(Track).types.items()), ("id",), _other_order())
    write_swapped, _ = native.make_encoder(swapped)
    bodies = {
        "extra fields": (format_of(NewerTrack), codec.encoder(NewerTrack).encode(NewerTrack(*row))),
        "missing fields": (format_of(OlderTrack), codec.encoder(OlderTrack).encode(OlderTrack(*row[:10]))),
        "bytes swapped": (swapped, write_swapped(Track(*row))),
    }
    bare = msgspec.msgpack.Encoder().encode(Bare(*row))
    cases = [Case("msgspec", msgspec.msgpack.Decoder(Bare).decode, ((bare,),), "same format")]
    targets = []
    for name, (wire, body) in bodies.items():
        cases.append(Case(name, codec.decoder(wire, Track), ((body,),), "generated"))
        cases.append(Case(f"{name}, interpreted", interpreted_decoder(wire, Track), ((body,),)))
        targets += [
            Target(f"{name}, against bare msgspec on the same format", name, "at most", 2.5, "msgspec"),
            Target(f"{name}, generated against interpreted", f"{name}, interpreted", "at least", 4.0, name),
        ]
    return Benchmark(
        tuple(cases), "msgspec", tuple(targets), note="The bodies with swapped bytes are native ones."
    )


def _other_order() -> Any:
    return ">" if struct.pack("=H", 1) == struct.pack("<H", 1) else "<"
