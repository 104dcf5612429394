"""Wire formats: a complete description of a record, its id, and the registry that maps one to the other.

A format says everything needed to read a record: the name of the event type, the body kind, the fields with
their types and, for native bodies, byte order and offsets. Its id is a hash of that description; events
carry the id, descriptions travel once per link and stand in every journal file.

    packed   a msgpack array of the fields in order (the default)
    native   a C-like struct in the sender's byte order, for numbers and arrays; see `heliograph.model.layout`

Names, types, layout and keys are part of the id; docs and defaults are not.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from heliograph.errors import ROOT, FormatError, TooManyFormats, UnknownFormat
from heliograph.model import field_types as ft

if TYPE_CHECKING:
    from collections.abc import Sequence

BodyKind: TypeAlias = Literal["packed", "native"]
ByteOrder: TypeAlias = Literal["<", ">"]

FORMAT_ID_SIZE: Final = 12
MAX_DESCRIPTION: Final = 1 << 20
MAX_FIELDS: Final = 1_000
MAX_ALL_FIELDS: Final = 4_000
MAX_NAME: Final = 255
MAX_DEPTH: Final = 32
MAX_MEMBERS: Final = 10_000
"""Limits for descriptions, which may come from outside. All fields are those of nested records too."""
MAX_FORMATS: Final = 10_000
MAX_ALL_DESCRIPTIONS: Final = 64 << 20
"""Formats that one registry keeps, and bytes of their descriptions."""

_DESCRIPTION_VERSION: Final = 1


class Field(msgspec.Struct, frozen=True):
    """One field: its name, its type and, in a native body, where its bytes start."""

    name: str
    type: ft.FieldType
    offset: int | None = None


class Format(msgspec.Struct, frozen=True, dict=True):
    """A complete description of a record. Equal formats have equal ids."""

    name: str
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    body: BodyKind = "packed"
    byte_order: ByteOrder = "<"
    size: int = 0
    """Bytes of the fixed part of a native body; 0 for packed ones."""
    align: int = 1
    """Alignment of a native body in bytes; 1 for packed ones."""

    def __post_init__(self) -> None:
        _check_format(self)

    @cached_property
    def id(self) -> bytes:
        """Twelve bytes that stand for this format wherever an event travels."""
        return blake2b(self.description, digest_size=FORMAT_ID_SIZE).digest()

    @cached_property
    def description(self) -> bytes:
        """This format as bytes; `Format.from_description` reads them."""
        return msgspec.msgpack.encode([_DESCRIPTION_VERSION, *_describe_format(self)])

    @cached_property
    def count_all(self) -> int:
        """How many fields it has, with those of nested records."""
        return sum(_count(field.type) for field in self.fields)

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @staticmethod
    def from_description(data: bytes) -> Format:
        """The format that `data` describes; raises FormatError for anything that is none."""
        return _read_description(data)

    def __str__(self) -> str:
        return f"{self.name} {self.id.hex()[:8]}"


class FormatRegistry:
    """The formats that a program knows, by id. Descriptions from outside are checked before they are kept."""

    def __init__(self) -> None:
        self._formats: dict[bytes, Format] = {}
        self._bytes = 0

    def register(self, fmt: Format) -> bytes:
        """Keep a format; returns its id. Registering it again changes nothing."""
        self._keep(fmt)
        return fmt.id

    def learn(self, format_id: bytes, description: bytes) -> Format:
        """Keep a description that came with an id; refused unless the id is really its hash."""
        fmt = Format.from_description(description)
        if fmt.id != format_id:
            raise FormatError(
                f"the description says format {fmt.id.hex()} but came under the id {bytes(format_id).hex()}"
            )
        return self._keep(fmt)

    def _keep(self, fmt: Format) -> Format:
        known = self._formats.get(fmt.id)
        if known is not None:
            return known
        if len(self._formats) >= MAX_FORMATS:
            raise TooManyFormats(fmt.name, MAX_FORMATS, "formats")
        if self._bytes + len(fmt.description) > MAX_ALL_DESCRIPTIONS:
            raise TooManyFormats(fmt.name, MAX_ALL_DESCRIPTIONS, "bytes of descriptions")
        self._bytes += len(fmt.description)
        return self._formats.setdefault(fmt.id, fmt)

    def __getitem__(self, format_id: bytes) -> Format:
        fmt = self._formats.get(format_id)
        if fmt is None:
            raise UnknownFormat(format_id)
        return fmt

    def __contains__(self, format_id: bytes) -> bool:
        return format_id in self._formats

    def __len__(self) -> int:
        return len(self._formats)

    def formats(self) -> tuple[Format, ...]:
        return tuple(self._formats.values())


def _check_format(fmt: Format) -> None:
    _check_name(fmt.name, "a format's name")
    if len(fmt.fields) > MAX_FIELDS:
        raise FormatError(f"{fmt.name} has {len(fmt.fields)} fields; at most {MAX_FIELDS} are allowed")
    if fmt.count_all > MAX_ALL_FIELDS:
        raise FormatError(
            f"{fmt.name} has {fmt.count_all} fields with those of nested records; "
            f"at most {MAX_ALL_FIELDS} are allowed"
        )
    names = set()
    for field in fmt.fields:
        _check_name(field.name, "a field's name")
        if field.name in names:
            raise FormatError(f"{fmt.name} has two fields named {field.name!r}")
        names.add(field.name)
    if len(set(fmt.key)) != len(fmt.key):
        raise FormatError(f"{fmt.name}: a field stands twice in its key ({', '.join(fmt.key)})")
    for name in fmt.key:
        if name not in names:
            raise FormatError(
                f"{fmt.name}: key {name!r} is not one of its fields ({', '.join(sorted(names))})"
            )


def _count(kind: ft.FieldType) -> int:
    match kind:
        case ft.Optional(item=item) | ft.List(item=item) | ft.Map(value=item):
            return _count(item)
        case ft.NestedEvent(format=fmt):
            return 1 + fmt.count_all
        case _:
            return 1


def _check_name(name: str, what: str, path: str = ROOT) -> None:
    if not name or len(name) > MAX_NAME or "\0" in name or not _is_text(name):
        raise FormatError(
            f"{what} must have 1 to {MAX_NAME} characters, no NUL, no half surrogate, not {name[:40]!r}",
            path=path,
        )


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


# Description out: nested lists, so that the hash does not depend on how any map is ordered.


def _describe_format(fmt: Format) -> list[Any]:
    fields = [[field.name, _describe_type(field.type), field.offset] for field in fmt.fields]
    return [fmt.name, fmt.body, fmt.byte_order, fmt.size, fmt.align, list(fmt.key), fields]


def _describe_type(kind: ft.FieldType) -> Any:
    match kind:
        case ft.Scalar(name=name):
            return name
        case ft.Optional(item=item):
            return ["optional", _describe_type(item)]
        case ft.Enum():
            return ["enum", kind.name, kind.base, [list(member) for member in kind.members]]
        case ft.NestedEvent():
            return ["record", *_describe_format(kind.format)]
        case ft.Decimal(precision=precision, scale=scale):
            return ["decimal", precision, scale]
        case ft.List():
            return ["list", _describe_type(kind.item), kind.length]
        case ft.Map(key=key, value=value):
            return ["map", _describe_type(key), _describe_type(value)]
        case ft.Array():
            return ["array", kind.item, None if kind.shape is None else list(kind.shape)]
        case ft.Anything():
            return "any"


# Description in: everything is checked, because it may have been forged.


def _read_description(data: bytes) -> Format:
    if len(data) > MAX_DESCRIPTION:
        raise FormatError(f"a description of {len(data)} bytes; at most {MAX_DESCRIPTION} are allowed")
    try:
        parts = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise FormatError(f"this is no format description: {error}") from None
    if not isinstance(parts, list) or not parts:
        raise FormatError("this is no format description: not a list")
    if parts[0] != _DESCRIPTION_VERSION:
        raise FormatError(f"description version {parts[0]!r} is unknown; this program reads version 1")
    fmt = _read_format(parts[1:], "$", MAX_DEPTH)
    if fmt.description != bytes(data):
        raise FormatError("the description is not written in the one canonical way")
    return fmt


def _read_format(parts: list[Any], path: str, depth: int) -> Format:
    match parts:
        case [
            str(name),
            "packed" | "native" as body,
            "<" | ">" as order,
            int(size),
            int(align),
            list(key),
            list(fields),
        ]:
            if len(fields) > MAX_FIELDS or not all(isinstance(k, str) for k in key):
                raise FormatError("too many fields, or a key that is no name", path=path)
            if isinstance(size, bool) or isinstance(align, bool):
                raise FormatError("size and alignment are integers", path=path)
            fmt = Format(
                name=name,
                fields=tuple(_read_field(f, path, depth) for f in fields),
                key=tuple(key),
                body=cast("BodyKind", body),
                byte_order=cast("ByteOrder", order),
                size=size,
                align=align,
            )
        case _:
            raise FormatError("a format is [name, body, byte order, size, align, key, fields]", path=path)
    from heliograph.model.layout import check_layout  # noqa: PLC0415 - layout needs Format itself

    check_layout(fmt, path)
    return fmt


def _read_field(parts: Any, path: str, depth: int) -> Field:
    match parts:
        case [str(name), kind, None | int() as offset] if not isinstance(offset, bool):
            return Field(name, _read_type(kind, f"{path}.{name}", depth - 1), offset)
        case _:
            raise FormatError("a field is [name, type, offset or null]", path=path)


def _read_type(kind: Any, path: str, depth: int) -> ft.FieldType:
    if depth <= 0:
        raise FormatError(f"nested deeper than {MAX_DEPTH} levels", path=path)
    match kind:
        case "any":
            return ft.Anything()
        case str() if kind in ft.SCALARS:
            return ft.Scalar(cast("ft.ScalarName", kind))
        case ["optional", item] if not (isinstance(item, list) and item[:1] == ["optional"]):
            return ft.Optional(_read_type(item, path, depth - 1))
        case ["enum", str(name), "i64" | "str" as base, list(members)]:
            return checked_enum(name, cast("Literal['i64', 'str']", base), members, path)
        case ["record", *parts]:
            return ft.NestedEvent(_read_format(parts, path, depth - 1))
        case ["list", item, None | int() as length] if length is None or is_dimension(length):
            return ft.List(_read_type(item, f"{path}[]", depth - 1), length)
        case ["decimal", int(precision), int(scale)] if is_digits(precision, scale):
            return ft.Decimal(precision, scale)
        case ["map", of_key, of_value]:
            key = _read_type(of_key, f"{path}[key]", depth - 1)
            if not ft.is_map_key(key):
                raise FormatError(f"the keys of a map are text, integers or an enum, not {key}", path=path)
            value = _read_type(of_value, f"{path}[]", depth - 1)
            return ft.Map(cast("ft.Scalar | ft.Enum", key), value)
        case ["array", str(item), None | list() as shape] if item in ft.ARRAY_ITEMS:
            return ft.Array(cast("ft.ScalarName", item), _read_shape(shape, path))
        case _:
            raise FormatError(
                "unknown type; known are scalars, decimal, optional, enum, record, list, map, array, any",
                path=path,
            )


def checked_enum(
    name: str, base: Literal["i64", "str"], members: Sequence[Sequence[Any]], path: str
) -> ft.Enum:
    """The type of an enum; FormatError unless its names and values can stand in a description."""
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise FormatError(
            f"enum {name!r} has {len(members)} members; 1 to {MAX_MEMBERS} are allowed", path=path
        )
    _check_name(name, "an enum's name", path)
    low, high = ft.INTEGER_RANGES["i64"]
    pairs: list[tuple[str, int | str]] = []
    for member in members:
        match member:
            case [str(label), str(value)] if base == "str":
                if not _is_text(value):
                    raise FormatError(f"{name}.{label} holds half of a surrogate pair: {value!r}", path=path)
                pairs.append((label, value))
            case [str(label), int(value)] if base == "i64" and type(value) is int and low <= value <= high:
                pairs.append((label, value))
            case _:
                raise FormatError(f"a member of enum {name!r} is [name, {base} value]", path=path)
        _check_name(pairs[-1][0], "the name of an enum's member", path)
    if len({label for label, _ in pairs}) != len(pairs):
        raise FormatError(f"enum {name!r} needs members with names of their own", path=path)
    return ft.Enum(name, base, tuple(pairs))


def _read_shape(shape: list[Any] | None, path: str) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    if not 1 <= len(shape) <= MAX_DEPTH or not all(n is None or is_dimension(n) for n in shape):
        raise FormatError(f"a shape has 1 to {MAX_DEPTH} dimensions, each null or 0 to 2**31-1", path=path)
    return tuple(shape)


def is_digits(precision: object, scale: object) -> bool:
    """Whether a decimal can have so many digits, and so many of them behind the point."""
    return (
        type(precision) is int
        and type(scale) is int
        and 1 <= precision <= ft.MAX_DIGITS
        and 0 <= scale <= precision
    )


def is_dimension(n: object) -> bool:
    """Whether this can be the length of a list or a dimension of an array."""
    return type(n) is int and 0 <= n < 1 << 31
