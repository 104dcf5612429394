"""Native bodies: a C-like struct in the sender's byte order, as `heliograph.model.layout` describes it.

Writing packs the fixed part with one `struct` call and gathers text, bytes and arrays behind it; an array of
fixed shape stands inside the fixed part and splits it, so that it need not be copied. Reading unpacks the
wire's fixed part with one call, in the wire's byte order and widths, with unwanted fields as
padding, and hands the values to the receiver's constructor.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from heliograph.codec import decimals
from heliograph.codec.construct import construction
from heliograph.errors import DecodeError
from heliograph.model import field_types as ft
from heliograph.model.layout import LONG_DECIMAL, size_and_align
from heliograph.runtime.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.codec.conversion_plan import RecordPlan, ValuePlan
    from heliograph.codec.failures import Explain
    from heliograph.model.event import Event
    from heliograph.model.formats import ByteOrder, Format

MICROSECOND: Final = timedelta(microseconds=1)
_EXACT_AS_FLOAT: Final = 4_000_000_000_000_000
"""Below this many microseconds, in the year 2096, floats of seconds stand less than half of one apart."""

CODES: Final[dict[str, str]] = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I",
    "i64": "q", "u64": "Q", "f32": "f", "f64": "d", "datetime": "q",
}  # fmt: skip
"""How `struct` calls each scalar that has a fixed size."""


# Writing


class _Packed(NamedTuple):
    """A value of the fixed part: where it stands, its struct code and the variable that holds it."""

    offset: int
    size: int
    code: str
    variable: str


class _Inline(NamedTuple):
    """An array inside the fixed part; the variable holds its bytes."""

    offset: int
    size: int
    variable: str


def has_references(fmt: Format) -> bool:
    """Whether anything stands behind the fixed part."""
    return any(_refers(field.type) for field in fmt.fields)


def _refers(kind: ft.FieldType) -> bool:
    match kind:
        case ft.Optional(item=item):
            return _refers(item)
        case ft.NestedEvent(format=fmt):
            return has_references(fmt)
        case ft.Array():
            return kind.fixed_count is None
        case ft.Scalar(name="str" | "bytes") | ft.Enum(base="str"):
            return True
        case _:
            return False


def _padding(size: int) -> str:
    return f"{size}x" if size else ""


def make_encoder(fmt: Format) -> tuple[Callable[[Event], bytes], Callable[[Event], list[bytes | memoryview]]]:
    """Two functions for events of a format: to one buffer, and to a list of buffers that copies no array."""
    source = CodeBuilder()
    for name in ("encode", "encode_parts"):
        source.line(f"def {name}(event):", 0)
        writer = _Writer(source, fmt)
        writer.record(fmt, "event", base=0, depth=1)
        parts = [*writer.fixed_parts(), *writer.tail]
        if name == "encode_parts":
            source.line(f"return [{', '.join(parts)}]")
        elif len(parts) == 1:
            source.line(f"return {parts[0]}")
        else:
            source.line(f"return {source.bind(b''.join)}(({', '.join(parts)}))")
    made = source.functions()
    return made["encode"], made["encode_parts"]


class _Writer:
    """Writes the lines that take an event apart, and remembers what stands where."""

    def __init__(self, source: CodeBuilder, fmt: Format) -> None:
        self._source = source
        self._order: ByteOrder = fmt.byte_order
        self._size = fmt.size
        self._fixed: list[_Packed | _Inline] = []
        self.tail: list[str] = []
        """Variables that hold what stands behind the fixed part."""
        if has_references(fmt):
            source.line(f"end = {fmt.size}")

    def record(self, fmt: Format, variable: str, base: int, depth: int) -> None:
        for field in fmt.fields:
            assert field.offset is not None
            text = f"{variable}.{self._source.attribute(field.name)}"
            self._value(field.type, text, base + field.offset, depth)

    def _value(self, kind: ft.FieldType, text: str, offset: int, depth: int) -> None:
        match kind:
            case ft.Scalar(name="str"):
                self._reference(f"{text}.encode()", offset, depth)
            case ft.Enum(base="str"):
                self._reference(f"{text}._value_.encode()", offset, depth)
            case ft.Scalar(name="bytes"):
                self._reference(text, offset, depth)
            case ft.Scalar(name="datetime"):
                since = f"({text} - {self._source.bind(ft.EPOCH)}) // {self._source.bind(MICROSECOND)}"
                self._pack("q", 8, since, offset, depth)
            case ft.Scalar(name="date"):
                self._pack("i", 4, f"{text}.toordinal() - {ft.EPOCH_DAY}", offset, depth)
            case ft.Scalar(name="uuid"):
                self._pack("16s", ft.UUID_SIZE, f"{text}.bytes", offset, depth)
            case ft.Scalar(name=name):
                code = CODES[name]
                self._pack(code, struct.calcsize(code), text, offset, depth)
            case ft.Decimal():
                self._decimal(kind, text, offset, depth)
            case ft.Enum():
                self._pack("q", 8, f"{text}._value_", offset, depth)
            case ft.Optional(item=item):
                self._optional(item, text, offset, depth)
            case ft.NestedEvent(format=fmt):
                variable = self._assign("record", text, depth)
                self.record(fmt, variable, offset, depth)
            case ft.Array():
                self._array(kind, text, offset, depth)
            case _:
                raise AssertionError(kind)

    def _decimal(self, kind: ft.Decimal, text: str, offset: int, depth: int) -> None:
        number = f"{self._source.bind(decimals.unscaled)}({text}, {kind.scale})"
        if kind.is_short:
            self._pack("q", 8, number, offset, depth)
            return
        in_bytes = self._source.bind(decimals.long_writer(self._order))
        self._pack("16s", LONG_DECIMAL, f"{in_bytes}({number})", offset, depth)

    def _assign(self, prefix: str, text: str, depth: int) -> str:
        variable = self._source.fresh(prefix)
        self._source.line(f"{variable} = {text}", depth)
        return variable

    def _pack(self, code: str, size: int, text: str, offset: int, depth: int) -> None:
        # Outside of any condition the expression itself can stand in the call.
        variable = text if depth == 1 else self._assign("value", text, depth)
        self._fixed.append(_Packed(offset, size, code, variable))

    def _reference(self, text: str, offset: int, depth: int) -> None:
        data = self._assign("data", text, depth)
        place = self._assign("place", "end", depth)
        length = self._assign("length", f"len({data})", depth)
        self._source.line(f"end += {length}", depth)
        self._refer(place, length, offset)
        self.tail.append(data)

    def _refer(self, place: str, length: str, offset: int) -> None:
        self._fixed += [_Packed(offset, 4, "I", place), _Packed(offset + 4, 4, "I", length)]

    def _array(self, kind: ft.Array, text: str, offset: int, depth: int) -> None:
        from heliograph.codec.arrays import array_data, native_heading  # noqa: PLC0415 - not without arrays

        data_of = self._source.bind(array_data(kind, self._order))
        if kind.fixed_count is not None:
            size, _ = size_and_align(kind, "$", self._order)
            self._fixed.append(_Inline(offset, size, self._assign("data", f"{data_of}({text})", depth)))
            return
        array = self._assign("array", text, depth)
        place = self._assign("place", "end + -end % 8", depth)
        heading = self._source.bind(native_heading(self._order))
        head = self._assign("head", f"{heading}({place} - end, {array}.shape)", depth)
        data = self._assign("data", f"{data_of}({array})", depth)
        self._source.line(f"end += len({head}) + len({data})", depth)
        length = self._assign("length", f"end - {place}", depth)
        self._refer(place, length, offset)
        self.tail += [head, data]

    def _optional(self, item: ft.FieldType, text: str, offset: int, depth: int) -> None:
        source = self._source
        variable = self._assign("option", text, depth)
        flag = source.fresh("flag")
        _, align = size_and_align(item, "$", self._order)
        first_fixed, first_tail = len(self._fixed), len(self.tail)
        source.line(f"if {variable} is not None:", depth)
        source.line(f"{flag} = 1", depth + 1)
        self._value(item, variable, offset + align, depth + 1)
        source.line("else:", depth)
        source.line(f"{flag} = 0", depth + 1)
        for slot in self._fixed[first_fixed:]:
            is_bytes = isinstance(slot, _Inline) or slot.code == "16s"
            absent = source.bind(bytes(slot.size)) if is_bytes else "0"
            source.line(f"{slot.variable} = {absent}", depth + 1)
        for tail in self.tail[first_tail:]:
            source.line(f"{tail} = {source.bind(b'')}", depth + 1)
        self._fixed.append(_Packed(offset, 1, "B", flag))

    def fixed_parts(self) -> list[str]:
        """Expressions for the fixed part: packed stretches, and between them the arrays that stand inside."""
        parts: list[str] = []
        code, variables, end = "", [], 0
        for slot in sorted(self._fixed):
            code += _padding(slot.offset - end)
            end = slot.offset + slot.size
            if isinstance(slot, _Packed):
                code += slot.code
                variables.append(slot.variable)
                continue
            if code:
                parts.append(self._pack_call(code, variables))
            parts.append(slot.variable)
            code, variables = "", []
        code += _padding(self._size - end)
        if code or not parts:
            parts.append(self._pack_call(code, variables))
        return parts

    def _pack_call(self, code: str, variables: list[str]) -> str:
        return f"{self._source.bind(struct.Struct(self._order + code).pack)}({', '.join(variables)})"


# Reading


def make_decoder(plan: RecordPlan, explain: Explain) -> Callable[[Any], Any]:
    """A function from a body to what the plan says; what goes wrong in it is raised as `explain` makes it."""
    source = CodeBuilder()
    reader = _Reader(source, plan.wire)
    built = reader.record(plan, base=0)
    values = reader.unpack_call()
    source.line("def decode(body):", 0)
    source.line("try:")
    if built.partition("(")[2] == f"{', '.join(reader.variables)})":
        # Nothing changes on the way, so the values need no names.
        source.line(f"return {source.bind(plan.cls)}(*{values})", 2)
    else:
        source.line(
            "".join(f"{name}, " for name in reader.variables) + "= " * bool(reader.variables) + values, 2
        )
        for line in reader.checks():
            source.line(line, 2)
        source.line(f"return {built}", 2)
    source.line(f"except {source.bind(Exception)} as error:")
    source.line(f"{source.bind(explain)}(error, body)", 2)
    decode: Callable[[Any], Any] = source.functions()["decode"]
    return decode


_ALWAYS: Final = "True"


class _Reference(NamedTuple):
    """Something behind the fixed part: variables with its offset and length, and when it is there at all."""

    place: str
    length: str
    present: str

    def only_if(self, text: str) -> str:
        """An expression that is false, or 0, where an absent optional left whatever was in memory."""
        return text if self.present == _ALWAYS else f"({self.present} and {text})"


class _Reader:
    """Writes the expression that makes an event, and remembers what must be unpacked for it."""

    def __init__(self, source: CodeBuilder, wire: Format) -> None:
        self._source = source
        self._wire = wire
        self._packed: list[_Packed] = []
        self._references: list[_Reference] = []
        self._present = _ALWAYS
        """What is true when all optionals are there inside of which the next value stands."""
        self._has_arrays = ft.holds(ft.NestedEvent(wire), ft.Array)

    @property
    def variables(self) -> list[str]:
        return [packed.variable for packed in sorted(self._packed)]

    def unpack_call(self) -> str:
        code, end = "", 0
        for packed in sorted(self._packed):
            code += _padding(packed.offset - end) + packed.code
            end = packed.offset + packed.size
        layout = struct.Struct(self._wire.byte_order + code + _padding(self._wire.size - end))
        # Without references the fixed part is all there is, and a body of another size is refused.
        unpack = layout.unpack_from if has_references(self._wire) else layout.unpack
        return f"{self._source.bind(unpack)}(body)"

    def checks(self) -> list[str]:
        lines = []
        if self._references:
            # Forged references can overlap; together they must not exceed what was received.
            faults = [
                reference.only_if(f"{reference.place} + {reference.length} > size")
                for reference in self._references
            ]
            if len(faults) > 1:
                lengths = [reference.only_if(reference.length) for reference in self._references]
                faults.append(f"{' + '.join(lengths)} > size")
            lines.append("size = len(body)")
            lines.append(f"if {' or '.join(faults)}: {self._source.bind(_outside)}()")
        if self._has_arrays:
            lines.append(f"body = {self._source.bind(memoryview)}(body).toreadonly()")
        elif self._references:
            # Slices of bytes are decoded fastest, and without arrays nothing else looks into the body.
            lines.append(f"if body.__class__ is not {self._source.bind(bytes)}: body = bytes(body)")
        return lines

    def record(self, plan: RecordPlan, base: int) -> str:
        values: list[str | None] = []
        for slot in plan.slots:
            if slot.value is None or slot.source is None:
                values.append(None)
                continue
            offset = plan.wire.fields[slot.source].offset
            assert offset is not None
            values.append(self._value(slot.value, base + offset))
        return construction(self._source, plan, values)

    def _unpacked(self, offset: int, code: str) -> str:
        variable = self._source.fresh("v")
        self._packed.append(_Packed(offset, struct.calcsize(code), code, variable))
        return variable

    def _reference(self, offset: int) -> tuple[str, str]:
        place, length = self._unpacked(offset, "I"), self._unpacked(offset + 4, "I")
        self._references.append(_Reference(place, length, self._present))
        return place, length

    def _stretch(self, offset: int) -> str:
        place, length = self._reference(offset)
        return f"body[{place}:{place} + {length}]"

    def _text(self, offset: int) -> str:
        if self._has_arrays:
            return f"{self._source.bind(str)}({self._stretch(offset)}, 'utf-8')"
        return f"{self._stretch(offset)}.decode()"

    def _value(self, value: ValuePlan, offset: int) -> str:
        bind = self._source.bind
        match value.wire, value.reader:
            case ft.Scalar(name="str"), _:
                return self._text(offset)
            case ft.Scalar(name="bytes"), _:
                stretch = self._stretch(offset)
                return f"{bind(bytes)}({stretch})" if self._has_arrays else stretch
            case ft.Scalar(name="datetime"), _:
                return self._moment(self._unpacked(offset, "q"))
            case ft.Scalar(name="date"), _:
                return f"{bind(date.fromordinal)}({self._unpacked(offset, 'i')} + {ft.EPOCH_DAY})"
            case ft.Scalar(name="uuid"), _:
                return f"{bind(UUID)}(None, {self._unpacked(offset, '16s')})"
            case ft.Scalar(name=sent), ft.Scalar(name=wanted):
                variable = self._unpacked(offset, CODES[sent])
                is_widened = sent in ft.INTEGER_RANGES and wanted in ft.FLOATS
                return f"{bind(float)}({variable})" if is_widened else variable
            case ft.Scalar(name=sent), ft.Decimal() as wanted:
                return f"{bind(decimals.integer_reader(wanted))}({self._unpacked(offset, CODES[sent])})"
            case ft.Decimal() as wire, _:
                wanted = value.reader if isinstance(value.reader, ft.Decimal) else wire
                number = self._unpacked(offset, "q" if wire.is_short else "16s")
                if not wire.is_short:
                    number = f"{bind(decimals.long_reader(self._wire.byte_order))}({number})"
                return f"{bind(decimals.native_reader(wire, wanted))}({number})"
            case ft.Enum() as kind, _:
                return f"{bind(_members(kind, value))}[{self._enum_value(kind, offset)}]"
            case ft.Optional(item=item), _:
                assert value.item is not None
                flag = self._unpacked(offset, "B")
                _, align = size_and_align(item, "$", self._wire.byte_order)
                outside, self._present = self._present, f"{self._present} and {flag}"
                inner = self._value(value.item, offset + align)
                self._present = outside
                return f"({inner} if {flag} else None)"
            case ft.NestedEvent(), _:
                assert value.record is not None
                return self.record(value.record, offset)
            case ft.Array() as wire, ft.Array() as reader:
                return self._array(wire, reader, offset)
        raise AssertionError(value)

    def _moment(self, variable: str) -> str:
        """A time from its microseconds; the quick way is exact while a float tells them apart."""
        bind = self._source.bind
        quick = f"{bind(datetime.fromtimestamp)}({variable} / 1000000, {bind(UTC)})"
        exact = f"{bind(ft.EPOCH)} + {bind(timedelta)}(0, 0, {variable})"
        return f"({quick} if 0 <= {variable} < {_EXACT_AS_FLOAT} else {exact})"

    def _enum_value(self, kind: ft.Enum, offset: int) -> str:
        return self._unpacked(offset, "q") if kind.base == "i64" else self._text(offset)

    def _array(self, wire: ft.Array, reader: ft.Array, offset: int) -> str:
        from heliograph.codec.arrays import array_view, native_reader  # noqa: PLC0415 - not without arrays

        order = self._wire.byte_order
        if wire.fixed_count is not None:
            view_of = self._source.bind(array_view(wire, reader, order))
            return f"{view_of}(body, {offset}, {self._source.bind(wire.shape)})"
        place, length = self._reference(offset)
        return f"{self._source.bind(native_reader(wire, reader, order))}(body, {place}, {length})"


def _members(kind: ft.Enum, value: ValuePlan) -> dict[int | str, Any]:
    """From the values of a wire's enum to the receiver's members, or to themselves where it has no class."""
    return {member: value.enum(member) if value.enum else member for member in kind.values}


def _outside() -> None:
    raise DecodeError("something it refers to is not inside of it")
