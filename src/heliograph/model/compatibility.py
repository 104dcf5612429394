"""Whether events written with one format can be read as another, decided field by field, by name.

    check(writer, reader, has_default=defaults_of(Track))    # IncompatibleFormats has a sentence per field
    compare(writer, reader).widened                          # the same as data, for tools

- A field that only the writer has is ignored.
- A field that only the reader has takes the reader's default; without one it is refused.
- A type may widen, so that every value arrives unchanged: integers to larger ones, integers to floats that
  hold them exactly, f32 to f64, decimals and integers to decimals with no fewer digits before and behind the
  point, T to T | None, an enum to one that knows all its values or to the plain type of its values, fixed
  lengths and dimensions to free ones, and what `any` can hold to `any`, which is all but arrays, decimals,
  dates, UUIDs and maps whose keys are no text. Lists, maps, arrays and records follow the same rules inside.
- All else is refused: narrowing, another type, another key. A rename is a field lost and a field missed.

Names of records and enums, order of fields, body kind, byte order and offsets are no part of the rules.
Widening the items of an array costs the reader a copy; all other arrays are read in place.
"""

from __future__ import annotations

import enum
import typing
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from heliograph.errors import ROOT, IncompatibleFormats
from heliograph.errors.sentences import brief, listed
from heliograph.model import field_types as ft
from heliograph.model.event import EventMeta

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from heliograph.model.event import Event
    from heliograph.model.formats import Format

MissingPolicy: TypeAlias = Literal["default", "refuse"]
"""What happens to a field that only the reader has: it takes its default, or it is refused in any case."""

_EXACT_INTEGERS: Final = {"f32": 1 << 24, "f64": 1 << 53}
"""Up to here, in both directions, a float holds every integer."""


class Widening(NamedTuple):
    """A field whose type is wider for the reader."""

    path: str
    writer: str
    reader: str


class FormatComparison(msgspec.Struct, frozen=True):
    """How events of one format arrive in another. Fields are named by path, such as `$.position.lat`."""

    problems: tuple[str, ...]
    """One sentence per field that cannot be read; empty when the formats are compatible."""
    ignored: tuple[str, ...]
    """Fields that only the writer has."""
    defaulted: tuple[str, ...]
    """Fields that only the reader has, and that take its default."""
    widened: tuple[Widening, ...]

    @property
    def compatible(self) -> bool:
        return not self.problems


def check(
    writer: Format,
    reader: Format,
    *,
    has_default: Collection[str] | None = None,
    missing: MissingPolicy = "default",
) -> None:
    """Raise IncompatibleFormats unless every event of `writer` can be read as `reader`.

    `has_default` names the reader's fields that have a default, as dotted paths (`region`, `position.lon`;
    lists and optionals add nothing to a path). `defaults_of` finds them for an event class.
    """
    problems = compare(writer, reader, has_default=has_default, missing=missing).problems
    if problems:
        raise IncompatibleFormats(writer.name, reader.name, problems)


def compare(
    writer: Format,
    reader: Format,
    *,
    has_default: Collection[str] | None = None,
    missing: MissingPolicy = "default",
) -> FormatComparison:
    """What becomes of each field when events of `writer` are read as `reader`; arguments as in `check`."""
    walk = _Walk(frozenset(has_default or ()), missing)
    walk.keys(writer, reader)
    walk.records(writer, reader, ROOT, "")
    return FormatComparison(
        tuple(walk.problems), tuple(walk.ignored), tuple(walk.defaulted), tuple(walk.widened)
    )


def go_together(one: Format, other: Format) -> bool:
    """Whether events of one can be read as the other, if whatever is missing has a default there."""
    return _can_do(one, other) or _can_do(other, one)


def why_apart(kept: Format, own: Format, has_default: Collection[str] = ()) -> tuple[str, ...]:
    """Why events of `own` cannot be in one history with those kept: neither can be read as the other.

    A sentence for each field of `own` that does not fit; none when they go together. Its fields with a
    default are known. The program that wrote what is kept may have one for what it would lack, unless both
    lack something: that is a rename.
    """
    problems = compare(kept, own, has_default=has_default).problems
    if not problems or compare(own, kept).compatible:
        return ()
    return () if _can_do(own, kept) and not _can_do(kept, own) else problems


def _can_do(writer: Format, reader: Format) -> bool:
    """Whether events of the one can be read as the other, if whatever is missing has a default there."""
    walk = _Lenient(frozenset(), "default")
    walk.keys(writer, reader)
    walk.records(writer, reader, ROOT, "")
    return not walk.problems


def defaults_of(cls: type[Event]) -> frozenset[str]:
    """The fields of an event class that have a default, also inside nested events, as dotted paths."""
    return frozenset(_defaults(cls, ""))


def widens(writer: str, reader: str) -> bool:
    """Whether every value of one scalar type is, unchanged, a value of the other."""
    if writer == reader:
        return True
    if writer not in ft.INTEGER_RANGES:
        return (writer, reader) == ("f32", "f64")
    low, high = ft.INTEGER_RANGES[writer]
    if reader in ft.INTEGER_RANGES:
        wider_low, wider_high = ft.INTEGER_RANGES[reader]
        return wider_low <= low and high <= wider_high
    limit = _EXACT_INTEGERS.get(reader, -1)
    return -limit <= low and high <= limit


def split_optional(kind: ft.FieldType) -> tuple[ft.FieldType, bool]:
    """The type without its `| None`, and whether None is one of its values."""
    nullable = False
    while isinstance(kind, ft.Optional):
        kind, nullable = kind.item, True
    return kind, nullable


def innermost_class(annotation: Any) -> type | None:
    """The event or enum class inside an annotation such as `list[Position | None]`, if there is one.

    Of a map it is that of its values.
    """
    if isinstance(annotation, EventMeta | enum.EnumType):
        return annotation
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is dict:
        parts = parts[1:]
    found = (innermost_class(part) for part in parts)
    return next((cls for cls in found if cls is not None), None)


class _Walk:
    """Goes through two formats side by side and collects what becomes of each field."""

    def __init__(self, has_default: frozenset[str], missing: MissingPolicy) -> None:
        self._has_default = has_default
        self._missing = missing
        self.problems: list[str] = []
        self.ignored: list[str] = []
        self.defaulted: list[str] = []
        self.widened: list[Widening] = []

    def keys(self, writer: Format, reader: Format) -> None:
        # Only of the event itself: nothing is kept or coalesced by the key of a nested record.
        if writer.key != reader.key:
            self.problems.append(
                f"{ROOT}: the key is {_key_text(writer)} for the writer and {_key_text(reader)} for the "
                "reader, but history is kept by key, so both must name the same fields in the same order"
            )

    def records(self, writer: Format, reader: Format, path: str, dotted: str) -> None:
        for field in reader.fields:
            sent = writer.by_name.get(field.name)
            if sent is not None:
                self.types(sent.type, field.type, f"{path}.{field.name}", f"{dotted}{field.name}")
            elif f"{dotted}{field.name}" in self._has_default and self._missing == "default":
                self.defaulted.append(f"{path}.{field.name}")
            else:
                self._missed(writer, reader, field.name, path, dotted)
        self.ignored += [f"{path}.{f.name}" for f in writer.fields if f.name not in reader.by_name]

    def _missed(self, writer: Format, reader: Format, name: str, path: str, dotted: str) -> None:
        kind = reader.by_name[name].type
        has_default = f"{dotted}{name}" in self._has_default
        why = "missing fields are refused here" if has_default else "it has no default"
        sentence = (
            f"{path}.{name}: the reader needs a field {name!r} ({kind}), the writer has none, and {why}"
        )
        twins = [f.name for f in writer.fields if f.name not in reader.by_name and f.type == kind]
        if twins:
            names = listed([repr(twin) for twin in twins], joint=" or ")
            sentence += f" (is it the writer's {names} ({kind}) under a new name? then keep the old name)"
        self.problems.append(sentence)

    def types(self, writer: ft.FieldType, reader: ft.FieldType, path: str, dotted: str) -> None:
        if writer == reader:
            return
        sent, may_send_none = split_optional(writer)
        wanted, takes_none = split_optional(reader)
        takes_none = takes_none or isinstance(wanted, ft.Anything)
        if may_send_none and not takes_none:
            self._refuse(path, writer, reader, "None would have no place")
            return
        wider = takes_none and not (may_send_none or isinstance(sent, ft.Anything))
        match sent, wanted:
            case ft.NestedEvent(), ft.NestedEvent():
                self.records(sent.format, wanted.format, path, f"{dotted}.")
            case ft.List(), ft.List():
                if wanted.length not in (None, sent.length):
                    self._refuse(path, writer, reader, "the number of items does not fit")
                    return
                self.types(sent.item, wanted.item, f"{path}[]", dotted)
                wider = wider or wanted.length != sent.length
            case ft.Map(), ft.Map():
                if reason := _misfit(sent.key, wanted.key):
                    self._refuse(path, writer, reader, f"of its keys {reason}")
                    return
                self.types(sent.value, wanted.value, f"{path}[]", dotted)
                wider = wider or not _same_values(sent.key, wanted.key)
            case _:
                reason = _misfit(sent, wanted)
                if reason:
                    self._refuse(path, writer, reader, reason)
                    return
                wider = wider or not _same_values(sent, wanted)
        if wider:
            self.widened.append(Widening(path, str(writer), str(reader)))

    def _refuse(self, path: str, writer: ft.FieldType, reader: ft.FieldType, reason: str) -> None:
        self.problems.append(f"{path}: {writer} of the writer cannot be read as {reader}: {reason}")


class _Lenient(_Walk):
    """For formats alone, of whose defaults nothing is known."""

    def _missed(self, *_: object) -> None:
        """It may have one."""


def _misfit(writer: ft.FieldType, reader: ft.FieldType) -> str | None:
    """Why a type cannot be read as another, or None; for all but optionals and pairs of records or lists."""
    match writer, reader:
        case _, ft.Anything():
            if ft.fits_any(writer):
                return None
            return "any holds no arrays, decimals, dates and UUIDs, and maps with text as keys only"
        case _, ft.Decimal():
            return _decimal_misfit(writer, reader)
        case ft.Decimal(), ft.Scalar(name=wanted) if wanted in ft.NUMBERS:
            return "a float rounds decimals" if wanted in ft.FLOATS else "it does not hold all values"
        case ft.Scalar(name=sent), ft.Scalar(name=wanted):
            return _scalar_misfit(sent, wanted)
        case ft.Enum(base=sent), ft.Scalar(name=wanted) if sent == wanted:
            return None
        case ft.Enum(), ft.Enum() if writer.base == reader.base:
            known = reader.values
            unknown = [f"{name} ({brief(value)})" for name, value in writer.members if value not in known]
            return f"the reader does not know {listed(unknown)}" if unknown else None
        case ft.Array(), ft.Array():
            if not _shape_fits(writer.shape, reader.shape):
                return "the shape does not fit"
            return _scalar_misfit(writer.item, reader.item)
        case ft.Anything(), _:
            return "any could be something else"
        case _:
            return "it is another type"


def _decimal_misfit(writer: ft.FieldType, reader: ft.Decimal) -> str | None:
    if isinstance(writer, ft.Scalar) and writer.name in ft.FLOATS:
        return "a float is no exact decimal"
    sent = ft.decimal_for(writer)
    if sent is None:
        return "it is another type"
    if sent.whole_digits > reader.whole_digits:
        return f"it has {reader.whole_digits} digits before the point where {sent.whole_digits} may be sent"
    if sent.scale > reader.scale:
        return f"it has {reader.scale} digits behind the point where {sent.scale} may be sent"
    return None


def _scalar_misfit(writer: ft.ScalarName, reader: ft.ScalarName) -> str | None:
    if widens(writer, reader):
        return None
    if widens(reader, writer) or (writer in ft.NUMBERS and reader in ft.NUMBERS):
        return "it does not hold all values"
    return "it is another type"


def _shape_fits(writer: tuple[int | None, ...] | None, reader: tuple[int | None, ...] | None) -> bool:
    if reader is None:
        return True
    if writer is None or len(writer) != len(reader):
        return False
    return all(wanted in (None, sent) for sent, wanted in zip(writer, reader, strict=True))


def _same_values(writer: ft.FieldType, reader: ft.FieldType) -> bool:
    """Whether two types differ in names only, as enums can."""
    if isinstance(writer, ft.Enum) and isinstance(reader, ft.Enum):
        return writer.values == reader.values
    return writer == reader


def _key_text(fmt: Format) -> str:
    if not fmt.key:
        return "empty"
    return "(" + ", ".join(f"{name} {fmt.by_name[name].type}" for name in fmt.key) + ")"


def _defaults(cls: type[Event], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(cls):
        if not field.required:
            yield prefix + field.name
        nested = innermost_class(field.type)
        if isinstance(nested, EventMeta):
            yield from _defaults(cast("type[Event]", nested), f"{prefix}{field.name}.")
