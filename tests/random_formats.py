"""Random formats, values that fit them and classes that read them; and writers that share no code with ours.

A case comes from a `random.Random`: a plain one for thousands of cases from a seed, or Hypothesis's own,
which it can shrink. `shrunk` makes a failing case of a plain seed small by leaving out fields.
"""

from __future__ import annotations

import enum
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

import heliograph as hg
from heliograph.model import field_types as ft
from heliograph.model.annotations import field_type, strip_none
from heliograph.model.compatibility import widens
from heliograph.model.event import EventMeta
from heliograph.model.formats import Field, Format
from heliograph.model.layout import round_up, size_and_align

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from heliograph.model.formats import BodyKind, ByteOrder

CODES = {
    "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f32": "f", "f64": "d", "bool": "?", "datetime": "q",
}  # fmt: skip
NAMES = [
    "id",
    "lat",
    "class",
    "def",
    "__import__",
    "größe",
    "ﬁ",
    "None_",
    "self",
    "cls",
    "event",
    "body",
    "x" * 255,
]
HOSTILE_NAMES = [
    "__import__('os').system('x')", "a.b", "a b", "'", '"', "\n", "\\", "{x}", "%s", "#", "lambda: 0", "🌍",
]  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def dtype_of(item: str) -> Any:
    """The numpy type that annotations name."""
    words = {"i": "int", "u": "uint", "f": "float"}
    return np.bool_ if item == "bool" else getattr(np, f"{words[item[0]]}{item[1:]}")


class Case(NamedTuple):
    """A format and the values of one record of it."""

    fmt: Format
    values: dict[str, Any]

    def body(self, junk: int = 0xA5) -> bytes:
        """The record as a foreign sender would write it; junk is what stands where an optional is absent."""
        return write_packed(self) if self.fmt.body == "packed" else write_native(self, junk)


# Formats and values


def random_case(rng: Random, *, body: BodyKind | None = None, hostile: bool = False) -> Case:
    kind: BodyKind = body or ("packed" if rng.random() < 0.5 else "native")
    order: ByteOrder = ">" if kind == "native" and rng.random() < 0.5 else "<"
    names = NAMES + HOSTILE_NAMES if hostile else NAMES
    fmt = _random_format(rng, kind, order, names, depth=2)
    return Case(fmt, random_record(rng, fmt))


def _random_format(rng: Random, body: BodyKind, order: ByteOrder, names: list[str], depth: int) -> Format:
    chosen = rng.sample(names, rng.randint(1, 5))
    fields = [(name, _random_type(rng, body, order, names, depth)) for name in chosen]
    return make_format(fields, body, order, rng)


def make_format(
    fields: list[tuple[str, ft.FieldType]], body: BodyKind, order: ByteOrder, rng: Random | None = None
) -> Format:
    """A format with these fields; a native one with gaps and in any order of places, as compilers choose."""
    if body == "packed":
        return Format("random", tuple(Field(name, kind) for name, kind in fields))
    places: dict[str, int] = {}
    end, align = 0, 1
    for name, kind in rng.sample(fields, len(fields)) if rng else fields:
        size, own = size_and_align(kind, "$", order)
        places[name] = round_up(end, own) + (own * rng.randint(0, 1) if rng else 0)
        end, align = places[name] + size, max(align, own)
    placed = tuple(Field(name, kind, places[name]) for name, kind in fields)
    return Format("random", placed, (), "native", order, round_up(end, align), align)


def _random_type(rng: Random, body: BodyKind, order: ByteOrder, names: list[str], depth: int) -> ft.FieldType:
    kinds = ["scalar"] * 6 + ["optional", "enum", "array", "decimal"]
    if depth:
        kinds.append("record")
    if body == "packed":
        kinds += ["list", "map", "any"]
    match rng.choice(kinds):
        case "optional":
            item = _random_type(rng, body, order, names, depth)
            return item if isinstance(item, ft.Optional | ft.Anything) else ft.Optional(item)
        case "enum":
            return random_enum(rng)
        case "array":
            return ft.Array(cast("ft.ScalarName", rng.choice(sorted(ft.ARRAY_ITEMS))), _random_shape(rng))
        case "record":
            return ft.NestedEvent(_random_format(rng, body, order, names, depth - 1))
        case "list":
            item = _random_type(rng, body, order, names, max(depth - 1, 0))
            return ft.List(item, rng.choice([None, None, 0, 2]))
        case "decimal":
            return random_decimal_type(rng)
        case "map":
            value = _random_type(rng, body, order, names, max(depth - 1, 0))
            return ft.Map(_random_key_type(rng), value)
        case "any":
            return ft.Anything()
        case _:
            return ft.Scalar(cast("ft.ScalarName", rng.choice(sorted(ft.SCALARS))))


def random_decimal_type(rng: Random) -> ft.Decimal:
    precision = rng.choice([1, 5, 18, 19, 38, rng.randint(1, 38)])
    return ft.Decimal(precision, rng.choice([0, precision, rng.randint(0, precision)]))


def _random_key_type(rng: Random) -> ft.Scalar | ft.Enum:
    if rng.random() < 0.3:
        return random_enum(rng)
    name = "str" if rng.random() < 0.5 else rng.choice(sorted(ft.INTEGER_RANGES))
    return ft.Scalar(cast("ft.ScalarName", name))


def random_decimal(rng: Random, kind: ft.Decimal) -> Decimal:
    top = 10**kind.precision - 1
    number = rng.choice([0, 1, -1, top, -top, rng.randint(-top, top), rng.randint(-9, 9)])
    number = max(-top, min(top, number))
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))


def random_enum(rng: Random) -> ft.Enum:
    if rng.random() < 0.5:
        values = rng.sample([-(2**63), -1, 0, 1, 7, 2**63 - 1], rng.randint(1, 4))
        return ft.Enum("Number", "i64", tuple((f"M{i}", value) for i, value in enumerate(values)))
    texts = rng.sample(["", "a", "b", "größe", "x y"], rng.randint(1, 4))
    return ft.Enum("Text", "str", tuple((f"M{i}", text) for i, text in enumerate(texts)))


def _random_shape(rng: Random) -> tuple[int | None, ...] | None:
    if rng.random() < 0.3:
        return None
    return tuple(rng.choice([None, 0, 1, 2, 3]) for _ in range(rng.randint(1, 3)))


def random_record(rng: Random, fmt: Format) -> dict[str, Any]:
    return {field.name: random_value(rng, field.type) for field in fmt.fields}


def random_value(rng: Random, kind: ft.FieldType) -> Any:
    """A value in the plain form that mappings have."""
    match kind:
        case ft.Scalar(name=name):
            return random_scalar(rng, name)
        case ft.Optional(item=item):
            return None if rng.random() < 0.3 else random_value(rng, item)
        case ft.Enum():
            return rng.choice(kind.members)[1]
        case ft.NestedEvent(format=fmt):
            return random_record(rng, fmt)
        case ft.List(item=item, length=length):
            return [random_value(rng, item) for _ in range(rng.randint(0, 3) if length is None else length)]
        case ft.Decimal():
            return random_decimal(rng, kind)
        case ft.Map():
            keys = [random_value(rng, kind.key) for _ in range(rng.randint(0, 3))]
            return {key: random_value(rng, kind.value) for key in keys}
        case ft.Array(item=item):
            shape = kind.shape
            if shape is None:
                shape = tuple(rng.randint(0, 3) for _ in range(rng.randint(0, 3)))
            full = tuple(rng.randint(0, 3) if n is None else n for n in shape)
            items = [random_scalar(rng, item) for _ in range(int(np.prod(full)))]
            return np.array(items, dtype=dtype_of(item)).reshape(full)
        case ft.Anything():
            return _random_anything(rng, 2)


def random_scalar(rng: Random, name: str) -> Any:
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]
        return rng.choice([low, high, 0, 1, rng.randint(low, high)])
    match name:
        case "f64":
            return rng.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300, 5e-324])
        case "f32":
            return rng.choice([0.0, -0.0, 1.5, float("nan"), float("-inf"), -(2.0**100)])
        case "bool":
            return rng.random() < 0.5
        case "str":
            return rng.choice(["", "a", "größe", "🌍" * 3, "x" * 40, "\0"])
        case "bytes":
            return rng.choice([b"", b"\0", b"\xff\xc1", b"x" * 300])
        case "date":
            return rng.choice(
                [date.min, date.max, date(1970, 1, 1), date.fromordinal(rng.randint(1, 3652059))]
            )
        case "uuid":
            return UUID(int=rng.choice([0, (1 << 128) - 1, rng.getrandbits(128)]))
        case _:
            return EPOCH + timedelta(microseconds=rng.choice([-62135596800000000, 0, -1, 253402300799999999,
                                                               rng.randint(-(2**55), 2**57)]))  # fmt: skip


def _random_anything(rng: Random, depth: int) -> Any:
    kinds = ["none", "u64", "i64", "f64", "bool", "str", "bytes", "datetime"] + ["list", "map"] * bool(depth)
    match rng.choice(kinds):
        case "none":
            return None
        case "list":
            return [_random_anything(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        case "map":
            return {
                key: _random_anything(rng, depth - 1) for key in rng.sample(["", "a", "ö"], rng.randint(0, 3))
            }
        case name:
            return random_scalar(rng, name)


# Writers that know the formats from their description only


def write_packed(case: Case) -> bytes:
    data = bytearray()
    main = msgspec.msgpack.encode(_plain_record(case.fmt, case.values, data))
    if not any(_has_array(field.type) for field in case.fmt.fields):
        return main
    head = struct.pack("<I", len(main)) + main
    return head + bytes(-len(head) % 8) + bytes(data)


def _has_array(kind: ft.FieldType) -> bool:
    match kind:
        case ft.Optional(item=item) | ft.List(item=item) | ft.Map(value=item):
            return _has_array(item)
        case ft.NestedEvent(format=fmt):
            return any(_has_array(field.type) for field in fmt.fields)
        case _:
            return isinstance(kind, ft.Array)


def _plain_record(fmt: Format, values: dict[str, Any], data: bytearray) -> list[Any]:
    return [_plain_value(field.type, values[field.name], data) for field in fmt.fields]


def _plain_value(kind: ft.FieldType, value: Any, data: bytearray) -> Any:
    match kind:
        case ft.Optional(item=item):
            return None if value is None else _plain_value(item, value, data)
        case ft.NestedEvent(format=fmt):
            return _plain_record(fmt, value, data)
        case ft.List(item=item):
            return [_plain_value(item, each, data) for each in value]
        case ft.Decimal():
            return str(value)
        case ft.Map(value=item):
            return {key: _plain_value(item, each, data) for key, each in value.items()}
        case ft.Array():
            place = len(data)
            data += value.astype(value.dtype.newbyteorder("<")).tobytes()
            data += bytes(-len(data) % 8)
            return struct.pack(f"<{1 + value.ndim}I", place, *value.shape)
        case _:
            return value


def write_native(case: Case, junk: int) -> bytes:
    body = bytearray(case.fmt.size)
    _put_record(body, case.fmt, case.values, 0, junk)
    return bytes(body)


def _put_record(body: bytearray, fmt: Format, values: dict[str, Any], base: int, junk: int) -> None:
    for field in fmt.fields:
        assert field.offset is not None
        _put(body, field.type, values[field.name], base + field.offset, fmt.byte_order, junk=junk)


def _put(
    body: bytearray, kind: ft.FieldType, value: Any, offset: int, order: ByteOrder, *, junk: int
) -> None:
    match kind:
        case ft.Scalar(name="str") | ft.Enum(base="str"):
            _refer(body, value.encode(), offset, order)
        case ft.Scalar(name="bytes"):
            _refer(body, value, offset, order)
        case ft.Scalar(name="datetime"):
            struct.pack_into(f"{order}q", body, offset, (value - EPOCH) // timedelta(microseconds=1))
        case ft.Scalar(name="date"):
            struct.pack_into(f"{order}i", body, offset, (value - date(1970, 1, 1)).days)
        case ft.Scalar(name="uuid"):
            body[offset : offset + 16] = value.bytes
        case ft.Scalar(name=name):
            struct.pack_into(order + CODES[name], body, offset, value)
        case ft.Decimal(scale=scale):
            number = int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1)
            assert value.as_tuple().exponent == -scale
            size, _ = size_and_align(kind, "$", order)
            byteorder = cast("Any", "little" if order == "<" else "big")
            body[offset : offset + size] = number.to_bytes(size, byteorder, signed=True)
        case ft.Enum():
            struct.pack_into(f"{order}q", body, offset, value)
        case ft.Optional(item=item):
            body[offset] = value is not None
            if value is None:
                # A C sender leaves there what was in its memory.
                size, _ = size_and_align(kind, "$", order)
                body[offset + 1 : offset + size] = bytes([junk]) * (size - 1)
            else:
                _put(body, item, value, offset + size_and_align(item, "$", order)[1], order, junk=junk)
        case ft.NestedEvent(format=fmt):
            _put_record(body, fmt, value, offset, junk)
        case ft.Array():
            items = value.astype(value.dtype.newbyteorder(order)).tobytes()
            if kind.fixed_count is not None:
                body[offset : offset + len(items)] = items
                return
            dimensions = struct.pack(f"{order}{1 + value.ndim}I", value.ndim, *value.shape)
            body += bytes(-len(body) % 8)
            _refer(body, dimensions + bytes(-len(dimensions) % 8) + items, offset, order)
        case _:
            raise AssertionError(kind)


def _refer(body: bytearray, data: bytes, offset: int, order: ByteOrder) -> None:
    struct.pack_into(f"{order}2I", body, offset, len(body), len(data))
    body += data


# Classes


def class_of(fmt: Format, defaults: dict[str, Any] | None = None, **options: Any) -> type[hg.Event]:
    """An event class with these fields; those with a default may be missing on the wire."""
    defaults = defaults or {}
    annotations = {field.name: annotation_of(field.type) for field in fmt.fields}
    namespace: dict[str, Any] = {"__annotations__": annotations, "__module__": __name__}
    namespace.update(defaults)
    return cast(
        "type[hg.Event]",
        EventMeta(
            "Random", (hg.Event,), namespace, name=fmt.name, body=fmt.body, kw_only=bool(defaults), **options
        ),
    )


def annotation_of(kind: ft.FieldType) -> Any:
    match kind:
        case ft.Scalar(name=name):
            plain = {
                "bool": bool,
                "str": str,
                "bytes": bytes,
                "datetime": datetime,
                "date": date,
                "uuid": UUID,
            }
            return plain.get(name) or getattr(hg, name)
        case ft.Optional(item=item):
            return annotation_of(item) | None
        case ft.Enum():
            return enum.Enum(kind.name, list(kind.members))
        case ft.NestedEvent(format=fmt):
            return class_of(fmt)
        case ft.List(item=item, length=length):
            items: Any = list[annotation_of(item)]  # type: ignore[misc]
            return items if length is None else Annotated[items, hg.Length(length)]
        case ft.Decimal(precision=precision, scale=scale):
            return Annotated[Decimal, hg.Digits(precision, scale)]
        case ft.Map(key=key, value=value):
            return dict[annotation_of(key), annotation_of(value)]  # type: ignore[misc]
        case ft.Array(item=item):
            array: Any = NDArray[dtype_of(item)]  # type: ignore[misc]
            return array if kind.shape is None else Annotated[array, hg.Shape(*kind.shape)]
        case ft.Anything():
            return hg.Any


def random_reader(rng: Random, fmt: Format) -> type[hg.Event]:
    """A class that may read a format: fields left out, added with defaults, widened, in another order."""
    annotations = {field.name: _wider(rng, field.type) for field in fmt.fields if rng.random() < 0.8}
    defaults: dict[str, Any] = {}
    for name in rng.sample(["new", "newer", "newest"], rng.randint(0, 2)):
        scalar = cast("ft.ScalarName", rng.choice(sorted(ft.SCALARS)))
        annotations[name] = annotation_of(ft.Scalar(scalar))
        defaults[name] = random_scalar(rng, scalar)
    for name in rng.sample(sorted(annotations), rng.randint(0, len(annotations))):
        defaults.setdefault(name, None)
    # Unless all are given by keyword, those with a default come last.
    in_any_order = rng.random() < 0.3
    order = rng.sample(sorted(annotations), len(annotations)) if rng.random() < 0.5 else list(annotations)
    if not in_any_order:
        order.sort(key=lambda name: name in defaults)
    namespace: dict[str, Any] = {
        "__annotations__": {name: annotations[name] for name in order},
        "__module__": __name__,
        **{name: _default(rng, default) for name, default in defaults.items()},
    }
    return cast(
        "type[hg.Event]", EventMeta("Reader", (hg.Event,), namespace, name=fmt.name, kw_only=in_any_order)
    )


def _default(rng: Random, value: Any) -> Any:
    return (
        msgspec.field(default_factory=lambda: value) if rng.random() < 0.5 else msgspec.field(default=value)
    )


def _wider(rng: Random, kind: ft.FieldType) -> Any:
    """The annotation of a type that holds all values of `kind`, often just those."""
    widen = rng.random() < 0.5
    match kind:
        case ft.Optional(item=item):
            return _wider(rng, item) | None
        case ft.NestedEvent(format=fmt):
            annotation: Any = random_reader(rng, fmt)
        case ft.List(item=item, length=length):
            annotation = list[_wider(rng, item)]  # type: ignore[misc]
            if length is not None and not widen:
                annotation = Annotated[annotation, hg.Length(length)]
        case ft.Array(item=item) if widen:
            wider: Any = NDArray[dtype_of(_wider_scalar(rng, item))]  # type: ignore[misc]
            annotation = (
                wider if kind.shape is None else Annotated[wider, hg.Shape(*[None] * len(kind.shape))]
            )
        case ft.Enum() if widen:
            more: int | str = 99 if kind.base == "i64" else "more"
            annotation = annotation_of(ft.Enum(kind.name, kind.base, (*kind.members, ("MORE", more))))
        case ft.Map(key=key, value=value):
            of_key = strip_none(_wider(rng, key))
            wide_key = annotation_of(key) if of_key is hg.Any or not _is_key(of_key) else of_key
            annotation = dict[wide_key, _wider(rng, value)]  # type: ignore[misc,valid-type]
        case ft.Decimal() if widen:
            annotation = annotation_of(_wider_decimal(rng, kind))
        case ft.Scalar(name=name) if widen and name in ft.INTEGER_RANGES and rng.random() < 0.3:
            annotation = annotation_of(_wider_decimal(rng, cast("ft.Decimal", ft.decimal_for(kind))))
        case ft.Scalar(name=name) if widen:
            annotation = annotation_of(ft.Scalar(_wider_scalar(rng, name)))
        case _:
            annotation = annotation_of(kind)
    may_be_any = ft.fits_any(kind) and not isinstance(kind, ft.Optional)
    if may_be_any and rng.random() < 0.05:
        return hg.Any
    return annotation | None if rng.random() < 0.2 and annotation is not hg.Any else annotation


def _is_key(annotation: Any) -> bool:
    return ft.is_map_key(field_type(annotation, "$"))


def _wider_decimal(rng: Random, kind: ft.Decimal) -> ft.Decimal:
    scale = rng.randint(kind.scale, kind.scale + 38 - kind.precision)
    whole = rng.randint(kind.whole_digits, 38 - scale)
    return ft.Decimal(max(1, whole + scale), scale)


def _wider_scalar(rng: Random, name: ft.ScalarName) -> ft.ScalarName:
    return cast(
        "ft.ScalarName",
        rng.choice([wide for wide in sorted(ft.SCALARS) if widens(name, cast("ft.ScalarName", wide))]),
    )


def agrees(got: Any, sent: Any) -> bool:
    """Whether a reader got what was sent, in a type that may be wider, as far as it has the fields."""
    match got:
        case enum.Enum():
            return bool(got.value == sent)
        case hg.Event():
            shared = [name for name in got.__struct_fields__ if name in sent]
            return all(agrees(getattr(got, name), sent[name]) for name in shared)
        case list():
            return len(got) == len(sent) and all(map(agrees, got, sent))
        case np.ndarray():
            return got.shape == sent.shape and bool(
                np.array_equal(got, sent, equal_nan=got.dtype.kind == "f")
            )
        case dict():
            by_value = {key.value if isinstance(key, enum.Enum) else key: item for key, item in got.items()}
            return by_value.keys() == sent.keys() and all(
                agrees(item, sent[key]) for key, item in by_value.items()
            )
        case Decimal():
            return bool(got == sent)
        case float():
            return bool(got == sent) or (got != got and sent != sent)  # noqa: PLR0124 - NaN
        case _:
            return same(got, sent)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, with NaN equal to itself and 0.0 unequal to -0.0."""
    if isinstance(a, enum.Enum) and isinstance(b, enum.Enum):
        return bool(a.value == b.value)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)  # noqa: PLR0124 - NaN
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return bool(
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, hg.Event):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    return bool(a == b)


# Shrinking


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case that still fails, found by leaving out one field after the other, also inside."""
    while True:
        for smaller in _smaller(case):
            if fails(smaller):
                case = smaller
                break
        else:
            return case


def _smaller(case: Case) -> Iterator[Case]:
    fields = [(field.name, field.type) for field in case.fmt.fields]
    for name, kind in fields:
        rest = [other for other in fields if other[0] != name]
        if rest:
            yield Case(
                make_format(rest, case.fmt.body, case.fmt.byte_order), {n: case.values[n] for n, _ in rest}
            )
        if isinstance(kind, ft.NestedEvent):
            for inner in _smaller(Case(kind.format, case.values[name])):
                changed = [(n, ft.NestedEvent(inner.fmt) if n == name else k) for n, k in fields]
                fmt = make_format(changed, case.fmt.body, case.fmt.byte_order)
                yield Case(fmt, {**case.values, name: inner.values})
