"""Packed bodies: a msgpack array of the fields, written and read by msgspec.

Without arrays a body is the bare msgpack. With arrays anywhere in the format it is

    u32 size of the msgpack   msgpack   padding to 8   data of the arrays, each padded to 8

in little-endian, and in the msgpack an array is a `bin` of u32: where its data starts, counted from the
first array, then its dimensions.

    enum                       its value
    record                     array of its fields
    datetime                   msgpack timestamp
    date, uuid, decimal        text, as msgspec writes them: 2026-11-05, 10.2500
    map                        map; when a key stands twice, the last one counts
    optional                   the value or nil

To read as a receiver wants it, msgspec decodes the wire's own shape, a tuple of exactly the wire's types in
which unwanted fields are skipped unread, and generated code hands the values to the constructor.
Where that would change nothing, msgspec decodes straight to the class: the wire's types must be the class's
own, because msgspec checks against those, and records inside must have no defaults, because it fills them in.
"""

from __future__ import annotations

import struct
import types
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast
from uuid import UUID

import msgspec

from heliograph.codec import decimals
from heliograph.codec.any_values import check_received
from heliograph.codec.construct import construction
from heliograph.codec.containers import MAX_CONTAINERS, check_containers, is_counted
from heliograph.errors import DecodeError, InvalidEvent
from heliograph.model import field_types as ft
from heliograph.runtime.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.codec.arrays import ArrayData
    from heliograph.codec.conversion_plan import RecordPlan, ValuePlan
    from heliograph.codec.failures import Explain
    from heliograph.model.event import Event
    from heliograph.model.formats import Format

PREFIX: Final = 4
"""Bytes that say how long the msgpack is, when arrays follow it."""
_PREFIX: Final = struct.Struct("<I")


def format_holds(fmt: Format, wanted: type) -> bool:
    return ft.holds(ft.NestedEvent(fmt), wanted)


# Writing


def make_encoder(fmt: Format) -> tuple[Callable[[Event], bytes], Callable[[Event], list[bytes | memoryview]]]:
    """Two functions for events of a format: to one buffer, and to a list of buffers that copies no array."""
    write = _writer_of(fmt)
    if not format_holds(fmt, ft.Array):
        return write, lambda event: [write(event)]
    from heliograph.codec.arrays import Parts  # noqa: PLC0415 - numpy is for formats that have arrays

    source = CodeBuilder()
    record = _Writer(source).record(fmt)
    source.line("def encode_parts(event):", 0)
    source.line(f"arrays = {source.bind(Parts)}()")
    source.line(
        f"return {source.bind(_assemble)}({source.bind(write)}({record}(event, arrays)), arrays.buffers)"
    )
    source.line("def encode(event):", 0)
    source.line(f"return {source.bind(b''.join)}(encode_parts(event))")
    made = source.functions()
    return made["encode"], made["encode_parts"]


def _writer_of(fmt: Format) -> Callable[[Any], bytes]:
    """msgspec's encoder; what no decoder would take for its number of lists is refused."""
    encode = msgspec.msgpack.Encoder().encode
    if not is_counted(fmt):
        return encode

    def encode_counted(value: Any) -> bytes:
        data = encode(value)
        if len(data) > MAX_CONTAINERS:
            try:
                check_containers(data)
            except DecodeError as error:
                raise InvalidEvent(fmt.name, error.reason) from None
        return data

    return encode_counted


def _assemble(main: bytes, arrays: list[bytes | memoryview]) -> list[bytes | memoryview]:
    size = len(main)
    return [size.to_bytes(PREFIX, "little") + main + bytes(-(PREFIX + size) % 8), *arrays]


class _Writer:
    """Writes, for each record that has arrays inside, a function from the event to what msgspec encodes."""

    def __init__(self, source: CodeBuilder) -> None:
        self._source = source

    def record(self, fmt: Format) -> str:
        source = self._source
        name = source.fresh("record")
        values = [
            self._value(field.type, f"event.{source.attribute(field.name)}", level=0) for field in fmt.fields
        ]
        source.line(f"def {name}(event, arrays):", 0)
        source.line(f"return ({', '.join(values)},)")
        return name

    def _value(self, kind: ft.FieldType, text: str, level: int) -> str:
        if not ft.holds(kind, ft.Array):
            return text
        match kind:
            case ft.Array():
                from heliograph.codec.arrays import packed_writer  # noqa: PLC0415 - as above

                return f"{self._source.bind(packed_writer(kind))}({text}, arrays)"
            case ft.NestedEvent(format=fmt):
                return f"{self.record(fmt)}({text}, arrays)"
            case ft.Optional(item=item):
                return f"(None if {text} is None else {self._value(item, text, level)})"
            case ft.List(item=item):
                each = f"item_{level}"
                return f"[{self._value(item, each, level + 1)} for {each} in {text}]"
            case ft.Map(value=item):
                key, each = f"key_{level}", f"item_{level}"
                return f"{{{key}: {self._value(item, each, level + 1)} for {key}, {each} in {text}.items()}}"
        raise AssertionError(kind)


# Reading


def make_decoder(plan: RecordPlan, explain: Explain) -> Callable[[Any], Any]:
    """A function from a body to what the plan says; what goes wrong in it is raised as `explain` makes it."""
    if plan.cls is not None and reads_directly(plan):
        return _direct(plan.wire, plan, explain)
    source = CodeBuilder()
    arrays = format_holds(plan.wire, ft.Array)
    build = _Reader(source, arrays=arrays).record(plan)
    source.line("def decode(body):", 0)
    source.line("try:")
    source.line(f"main, data = {source.bind(_splitter())}(body)" if arrays else "main = body", 2)
    if is_counted(plan.wire):
        source.line(f"if len(main) > {MAX_CONTAINERS}: {source.bind(check_containers)}(main)", 2)
    if format_holds(plan.wire, ft.Anything):
        # Passing over the bytes first costs little and finds truncated nests before anything is built.
        source.line(f"{source.bind(msgspec.msgpack.Decoder(msgspec.Raw).decode)}(main)", 2)
    read = source.bind(msgspec.msgpack.Decoder(packed_type(plan)).decode)
    source.line(f"return {build}({read}(main){', data' if arrays else ''})", 2)
    source.line(f"except {source.bind(Exception)} as error:")
    source.line(f"{source.bind(explain)}(error, body)", 2)
    decode: Callable[[Any], Any] = source.functions()["decode"]
    return decode


def _direct(wire: Format, plan: RecordPlan, explain: Explain) -> Callable[[Any], Any]:
    """msgspec's own decoder. Where it would fill in missing fields, their count is looked at first."""
    count = len(wire.fields)
    assert plan.cls is not None
    read = msgspec.msgpack.Decoder(plan.cls).decode
    source = CodeBuilder()
    source.line("def decode(body):", 0)
    source.line("try:")
    if not _is_required(plan.cls):
        start, told = (
            ("body[:3]", b"\xdc" + count.to_bytes(2, "big")) if count >= 16 else ("body[0]", 0x90 + count)
        )
        source.line(f"if {start} != {source.bind(told)}: {source.bind(_refuse_count)}({count})", 2)
    if is_counted(wire):
        source.line(f"if len(body) > {MAX_CONTAINERS}: {source.bind(check_containers)}(body)", 2)
    source.line(f"return {source.bind(read)}(body)", 2)
    source.line(f"except {source.bind(Exception)} as error:")
    source.line(f"{source.bind(explain)}(error, body)", 2)
    decode: Callable[[Any], Any] = source.functions()["decode"]
    return decode


def _refuse_count(count: int) -> None:
    raise DecodeError(f"this is no msgpack array of {count} fields")


def _is_required(cls: type[Event]) -> bool:
    """Whether msgspec, decoding a record, would miss any field that is not there."""
    return all(info.required for info in msgspec.structs.fields(cls))


def reads_directly(plan: RecordPlan) -> bool:
    """Whether msgspec, told to decode the receiver's class, would do exactly what the plan says.

    It takes fields by position, so the wire's must be the receiver's first ones; the rest take defaults.
    """
    if plan.cls is None or len(plan.wire.fields) > len(plan.slots):
        return False
    count = len(plan.wire.fields)
    return all(
        slot.source == (index if index < count else None)
        and (slot.value is None or _value_reads_directly(slot.value))
        for index, slot in enumerate(plan.slots)
    )


def _value_reads_directly(value: ValuePlan) -> bool:
    """Whether the receiver's own type accepts just what the wire's type does."""
    if value.nullable:
        return False
    match value.wire, value.reader:
        case ((ft.Array() | ft.Anything() | ft.Decimal()), _):
            return False
        case ft.Map(), _:
            return all(part is not None and _value_reads_directly(part) for part in (value.key, value.item))
        case ft.Scalar(), ft.Decimal():
            return False
        case ft.Scalar(name=sent), ft.Scalar(name=wanted):
            return sent == wanted or (sent in ft.FLOATS and wanted in ft.FLOATS)
        case ft.Enum(), _:
            return _has_same_members(value)
        case ft.NestedEvent(), _:
            nested = value.record
            return (
                nested is not None
                and reads_directly(nested)
                and _is_required(cast("type[Event]", nested.cls))
            )
        case ft.List() as wire, ft.List() as reader if wire.length != reader.length:
            return False
        case ((ft.Optional() | ft.List()), _):
            return value.item is not None and _value_reads_directly(value.item)
        case _:
            return True


def _has_same_members(value: ValuePlan) -> bool:
    """Whether the receiver has a class for an enum of the wire that knows no value more."""
    wire, reader = value.wire, value.reader
    return (
        value.enum is not None
        and isinstance(wire, ft.Enum)
        and isinstance(reader, ft.Enum)
        and wire.values == reader.values
    )


def packed_type(plan: RecordPlan) -> Any:
    """The Python type that makes msgspec decode a record of the wire, passing over what is not used."""
    by_source = {slot.source: slot.value for slot in plan.slots if slot.value is not None}
    items = tuple(
        _value_type(by_source[index]) if index in by_source else msgspec.Raw
        for index in range(len(plan.wire.fields))
    )
    return types.GenericAlias(tuple, items or ((),))


def _value_type(value: ValuePlan) -> Any:
    match value.wire:
        case ft.Scalar(name=name):
            return _SCALARS[name]
        case ft.Optional():
            assert value.item is not None
            return _value_type(value.item) | None if not isinstance(value.wire.item, ft.Anything) else Any
        case ft.Enum() as kind:
            if _has_same_members(value):
                return value.enum
            return Literal.__getitem__(tuple(sorted(kind.values, key=str)))
        case ft.NestedEvent():
            assert value.record is not None
            return packed_type(value.record)
        case ft.List(length=length):
            assert value.item is not None
            items: Any = types.GenericAlias(list, (_value_type(value.item),))
            return (
                items
                if length is None
                else Annotated[items, msgspec.Meta(min_length=length, max_length=length)]
            )
        case ft.Decimal():
            return Annotated[str, msgspec.Meta(max_length=decimals.MAX_TEXT)]
        case ft.Map():
            assert value.key is not None
            assert value.item is not None
            both = types.GenericAlias(dict, (_value_type(value.key), _value_type(value.item)))
            return Annotated[both, msgspec.Meta(max_length=ft.MAX_ENTRIES)]
        case ft.Array():
            return bytes
        case ft.Anything():
            return Any


def _integer(name: str) -> Any:
    low, high = ft.INTEGER_RANGES[name]
    return Annotated[int, msgspec.Meta(ge=low) if name == "u64" else msgspec.Meta(ge=low, le=high)]


_SCALARS: Final[dict[str, Any]] = {
    **{name: _integer(name) for name in ft.INTEGER_RANGES},
    "f32": float,
    "f64": float,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "datetime": Annotated[datetime, msgspec.Meta(tz=True)],
    "date": date,
    "uuid": UUID,
}


class _Reader:
    """Writes, for each record of a plan, a function from the decoded tuple to the event or mapping."""

    def __init__(self, source: CodeBuilder, *, arrays: bool) -> None:
        self._source = source
        self._data = ", data" if arrays else ""

    def record(self, plan: RecordPlan) -> str:
        source = self._source
        count = len(plan.wire.fields)
        names = [f"v{index}" if index in plan.used else "_" for index in range(count)]
        values = [
            None
            if slot.value is None or slot.source is None
            else self._value(slot.value, names[slot.source], 0)
            for slot in plan.slots
        ]
        name = source.fresh("record")
        source.line(f"def {name}(fields{self._data}):", 0)
        unchanged = plan.cls is not None and values == names
        if unchanged and not any(slot.keyword_only for slot in plan.slots):
            source.line(f"return {source.bind(plan.cls)}(*fields)")
            return name
        if count:
            source.line(f"{', '.join(names)}, = fields")
        source.line(f"return {construction(source, plan, values)}")
        return name

    def _value(self, value: ValuePlan, text: str, level: int) -> str:
        """An expression that turns what msgspec decoded into what the receiver wants."""
        match value.wire, value.reader:
            case ft.Scalar(name=sent), ft.Scalar(name=wanted):
                is_widened = sent in ft.INTEGER_RANGES and wanted in ft.FLOATS
                return f"{self._source.bind(float)}({text})" if is_widened else text
            case ft.Scalar(), ft.Decimal() as wanted:
                return f"{self._source.bind(decimals.integer_reader(wanted))}({text})"
            case ft.Decimal() as wire, _:
                wanted = value.reader if isinstance(value.reader, ft.Decimal) else wire
                return f"{self._source.bind(decimals.text_reader(wire, wanted))}({text})"
            case ft.Map(), _:
                return self._map(value, text, level)
            case ft.Optional(), _:
                assert value.item is not None
                inner = self._value(value.item, text, level)
                return text if inner == text else f"(None if {text} is None else {inner})"
            case ft.NestedEvent(), _:
                assert value.record is not None
                return f"{self.record(value.record)}({text}{self._data})"
            case ft.List(), _:
                assert value.item is not None
                each = f"item_{level}"
                inner = self._value(value.item, each, level + 1)
                return text if inner == each else f"[{inner} for {each} in {text}]"
            case ft.Array() as wire, ft.Array() as reader:
                from heliograph.codec.arrays import packed_reader  # noqa: PLC0415 - as above

                return f"{self._source.bind(packed_reader(wire, reader))}({text}{self._data})"
            case ft.Anything(), _:
                return f"{self._source.bind(check_received)}({text})"
            case ft.Enum() as kind, _ if value.enum is not None and not _has_same_members(value):
                members = {member: value.enum(member) for member in kind.values}
                return f"{self._source.bind(members)}[{text}]"
            case _:
                return text

    def _map(self, value: ValuePlan, text: str, level: int) -> str:
        assert value.key is not None
        assert value.item is not None
        key, each = f"key_{level}", f"item_{level}"
        made_key = self._value(value.key, key, level + 1)
        made = self._value(value.item, each, level + 1)
        if (made_key, made) == (key, each):
            return text
        return f"{{{made_key}: {made} for {key}, {each} in {text}.items()}}"


def _splitter() -> Callable[[Any], tuple[memoryview, ArrayData]]:
    from heliograph.codec.arrays import ArrayData  # noqa: PLC0415 - as above

    def split(body: bytes | bytearray | memoryview) -> tuple[memoryview, ArrayData]:
        """The msgpack of a body with arrays, and the data behind it."""
        view = memoryview(body).toreadonly()
        end = PREFIX + _PREFIX.unpack_from(view)[0]
        if end > len(view):
            raise DecodeError(f"the body has {len(view)} bytes and should have at least {end}")
        return view[PREFIX:end], ArrayData(view[end + (-end % 8) :])

    return split
