"""Event classes, and the header that travels with each event.

    class Track(hg.Event, name="air.track", key="id"):
        id: int
        speed: float
        region: str = "unknown"

An event class is a `msgspec.Struct`: built in a tenth of a microsecond, compared and printed by value. What
goes beyond that is decided when the class is written: its fields must have types that can travel
(`heliograph.model.annotations`), which become its `Format`. Values are checked when an event is pushed, or
when it is built if the class says `strict=True`.

The header is a separate object: one event pushed twice has two headers.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeAlias,
    cast,
    dataclass_transform,
)

import msgspec
from msgspec import Meta

from heliograph.errors import FormatError
from heliograph.errors.sentences import hint
from heliograph.model import field_types as ft
from heliograph.model.annotations import field_type, wire_annotation
from heliograph.model.formats import FORMAT_ID_SIZE, MAX_NAME, BodyKind, ByteOrder, Field, Format

if TYPE_CHECKING:
    from collections.abc import Callable

NATIVE_ORDER: Final[ByteOrder] = "<" if sys.byteorder == "little" else ">"

MAX_KEY: Final = 32
"""The most fields that a key can have."""
PUSH_ID: Final = "push-id"
"""The free header that carries the id of a push that may be repeated."""
DELAYED_EPOCHS: Final = 1 << 62
"""Epochs of suppliers from here on are of events whose delivery was put off."""
SUB_PRIORITY: Final = "sub-priority"
LATENCY: Final = "latency-ns"
"""The free headers that carry what a push says to dispatch orders; see `heliograph.qos.dispatch_order`."""
VIA: Final = "via-domains"
"""The free header that says through which domains an event has come by gateways, the first one first."""
OWN_HEADERS: Final = frozenset({PUSH_ID, SUB_PRIORITY, LATENCY, VIA})
"""Free headers that a push or a gateway sets, and that no user can set."""
MAX_USER_HEADERS: Final = 64
MAX_USER_HEADER: Final = 4096
"""How many free headers an event can carry, and how many characters the value of one can have."""


OWN_OPTIONS: Final = frozenset(
    {"array_like", "forbid_unknown_fields", "omit_defaults", "rename", "tag", "tag_field"}
)
"""What msgspec lets a class choose, and the wire format does not."""
_FIELD: Final = type(msgspec.field())

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Instant: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
UserHeader: TypeAlias = Annotated[str, Meta(max_length=MAX_USER_HEADER)]
UserHeaders: TypeAlias = Annotated[Mapping[Name, UserHeader], Meta(max_length=MAX_USER_HEADERS)]
Priority: TypeAlias = Annotated[int, Meta(ge=1, le=5)]


class EventId(NamedTuple):
    """The id of an event: supplier, epoch of the supplier, sequence number. Unique for ever."""

    supplier: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.supplier}:{self.epoch}:{self.sequence}"

    @staticmethod
    def parse(text: str) -> EventId:
        """The id that `str(id)` wrote; ValueError for anything else."""
        supplier, epoch, sequence = text.rsplit(":", 2)
        return EventId(supplier, int(epoch), int(sequence))


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known of one pushed event besides its content.

    Times are nanoseconds since 1970 in UTC. Fields that only a journal or a link can know are None before
    the event has been there. The limits hold for headers that arrive; making one checks nothing.
    """

    channel: Name
    type: Name
    """Name of the event type."""
    supplier: Name
    epoch: Count
    """Which epoch of the supplier pushed it."""
    sequence: Count
    """How many the supplier had pushed in that epoch, this one included."""
    source_ts: Instant
    """When the supplier says it happened: data, may be wrong."""
    format_id: Annotated[bytes, Meta(min_length=FORMAT_ID_SIZE, max_length=FORMAT_ID_SIZE)]
    priority: Priority = 3
    """1 (low) to 5 (high)."""
    key: Annotated[tuple[Any, ...], Meta(max_length=MAX_KEY)] = ()
    """Values of the key fields, in the order of the class's `key`."""
    station_seq: Count = 0
    """Order in which its station took in events of all its channels."""
    append_ts: Instant | None = None
    """When the keeper appended it; never decreases within a partition."""
    partition: Name | None = None
    offset: Count | None = None
    lifetime_ns: Count | None = None
    """What is left of its lifespan; None: it does not expire."""
    hops: Annotated[int, Meta(ge=0, le=255)] = 0
    """Links it has crossed."""
    correlation_id: Name | None = None
    headers: UserHeaders | None = None
    """Free user headers, for example `traceparent`."""
    redelivered: bool = False

    # Flat fields are cheaper to make than an EventId for every push; few readers want one.
    @property
    def id(self) -> EventId:
        return EventId(self.supplier, self.epoch, self.sequence)


class EventField(NamedTuple):
    """One field of an event class."""

    type: ft.FieldType
    annotation: Any
    """As resolved, with the bounds written out for msgspec; leads to nested classes and enums."""
    keyword_only: bool


class EventInfo:
    """What Heliograph knows of an event class: `hg.format_of` and the codec read it."""

    def __init__(
        self,
        cls: type[Event],
        name: str,
        key: tuple[str, ...],
        body: BodyKind,
        fields: dict[str, EventField],
        *,
        strict: bool = False,
    ) -> None:
        self.cls = cls
        self.name = name
        self.key = key
        self.body: BodyKind = body
        self.fields = fields
        self.strict = strict
        """Whether values are checked when an event is built."""

    @cached_property
    def types(self) -> dict[str, ft.FieldType]:
        """Types of the fields in wire order."""
        return {name: field.type for name, field in self.fields.items()}

    @cached_property
    def format(self) -> Format:
        """Read back from its description, so that every limit that holds for readers holds for the class."""
        return Format.from_description(self._placed_format().description)

    @cached_property
    def key_of(self) -> Callable[[Event], tuple[Any, ...]]:
        """Reads the values of the key fields of an event."""
        if not self.key:
            return lambda _: ()
        values = attrgetter(*self.key)
        return values if len(self.key) > 1 else lambda event: (values(event),)

    def _placed_format(self) -> Format:
        if self.body == "native":
            from heliograph.model.layout import native_format  # noqa: PLC0415 - only classes with native bodies need it

            return native_format(self.name, list(self.types.items()), self.key, NATIVE_ORDER)
        return Format(self.name, tuple(Field(n, t) for n, t in self.types.items()), self.key)


@dataclass_transform(field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """Takes `name=`, `key=`, `body=` and `strict=` besides msgspec's own options, and checks the fields."""

    # Positional-only, so that `name=` is free for the name of the event type.
    def __new__(
        mcls,
        clsname: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        *,
        name: str | None = None,
        key: str | tuple[str, ...] | None = None,
        body: BodyKind | None = None,
        strict: bool = False,
        **options: Any,
    ) -> Any:
        if body not in (None, "packed", "native"):
            raise FormatError(f"{clsname}: body={body!r}: allowed are 'packed' and 'native'")
        is_base = not any(isinstance(base, EventMeta) for base in bases)
        if not is_base:
            for option in OWN_OPTIONS & options.keys():
                raise FormatError(f"{clsname}: the option {option}= is Heliograph's own and cannot be set")
            _copy_array_defaults(namespace)
            strict = _keep_strict(namespace, bases, strict=strict)
        try:
            cls = super().__new__(mcls, clsname, bases, namespace, **options)
        except TypeError as error:
            if unknown := re.match(r"'(\w+)' is an invalid keyword argument", str(error)):
                more = hint(unknown[1], ("name=", "key=", "body=", "strict=", "kw_only="))
                raise FormatError(f"{clsname}: there is no option {unknown[1]}={more}") from None
            if "cannot follow optional" not in str(error):
                raise
            raise FormatError(
                f"{clsname}: {str(error).partition('.')[0].lower()}; "
                f"give it a default, or write `class {clsname}(..., kw_only=True)`"
            ) from None
        if is_base:
            return cls
        parent: EventInfo | None = getattr(cls, "__event_info__", None)
        fields = _resolve_fields(
            cls,
            parent,
            sys._getframe(1).f_locals,  # noqa: SLF001 - for classes inside functions
            keyword_only=bool(options.get("kw_only")),
        )
        info = EventInfo(
            cast("type[Event]", cls),
            name or clsname,
            _key_names(key, parent),
            body or (parent.body if parent else "packed"),
            fields,
            strict=strict,
        )
        _check_key(info)
        cls.__event_info__ = info  # type: ignore[attr-defined]
        if any(ft.holds(kind, ft.Array) for kind in info.types.values()):
            if "__eq__" not in namespace:
                cls.__eq__ = _equal_with_arrays  # type: ignore[assignment,method-assign]
            cls.__hash__ = None  # type: ignore[assignment]
        info.format  # noqa: B018 - a mistake in the class fails where the class is written
        return cls


class Event(msgspec.Struct, metaclass=EventMeta, array_like=True, forbid_unknown_fields=True):
    """Base of all event classes."""

    __event_info__: ClassVar[EventInfo]

    def to_dict(self) -> dict[str, Any]:
        """This event as plain nested data; enums by value, arrays as they are."""
        from heliograph.codec.dynamic.reflect import event_to_mapping  # noqa: PLC0415 - reflection is not on the way of an event

        return event_to_mapping(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """An event from plain nested data; InvalidEvent names the path of what does not fit."""
        from heliograph.codec.dynamic.reflect import event_from_mapping  # noqa: PLC0415 - as above

        return event_from_mapping(cls, data)

    def to_json(self) -> bytes:
        """This event as a JSON object; bytes as base64, arrays as nested lists."""
        from heliograph.codec.dynamic.reflect import event_to_json  # noqa: PLC0415 - as above

        return event_to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """An event from a JSON object; InvalidEvent names the path of what does not fit."""
        from heliograph.codec.dynamic.reflect import event_from_json  # noqa: PLC0415 - as above

        return event_from_json(cls, data)

    def _repr_html_(self) -> str:
        from heliograph.runtime.notebook import html_table  # noqa: PLC0415 - for notebooks

        rows = [(name, repr(getattr(self, name))) for name in self.__struct_fields__]
        return html_table(type(self).__event_info__.name, ("field", "value"), rows)


RESERVED: Final = frozenset(name for name in vars(Event) if not name.startswith("__"))
"""Names that no field may have, because events have methods of that name."""


def format_of(event: Event | type[Event]) -> Format:
    """The wire format of an event class, or of the class of an event."""
    return info_of(event if isinstance(event, type) else type(event)).format


def info_of(cls: Any) -> EventInfo:
    """What is known of an event class; FormatError for anything that is none."""
    info: EventInfo | None = cls.__dict__.get("__event_info__") if isinstance(cls, EventMeta) else None
    if isinstance(cls, str):
        raise FormatError(f"{cls!r:.60} is text, no event class; give the class itself")
    if info is None and isinstance(cls, type) and cls.__module__ == "builtins":
        raise FormatError(
            f"{cls.__name__} is no event class; make it a field of one: "
            f"`class Reading(hg.Event): value: {cls.__name__}`"
        )
    if info is None:
        raise FormatError(
            f"{cls!r} is no event class; write `class {getattr(cls, '__name__', 'X')}(hg.Event): ...`"
        )
    return info


def _resolve_fields(
    cls: type, parent: EventInfo | None, local_names: Mapping[str, Any], *, keyword_only: bool
) -> dict[str, EventField]:
    """All fields in wire order. Own annotations are replaced by their bounded form for msgspec."""
    names: tuple[str, ...] = cls.__struct_fields__  # type: ignore[attr-defined]
    try:
        own = inspect.get_annotations(cls, locals={**local_names, cls.__name__: cls}, eval_str=True)
    except NameError as error:
        raise FormatError(
            f"{cls.__name__}: an annotation names {error.name!r}, which is not known here at run time; "
            "define or import it before the class (not only under TYPE_CHECKING)"
        ) from None
    fields: dict[str, EventField] = {}
    for name in names:
        path = f"$.{name}"
        if name in RESERVED:
            raise FormatError(f"events have a method {name}(); name the field otherwise", path=path)
        if name in own:
            if own[name] is cls:
                raise FormatError(
                    f"{cls.__name__} cannot hold itself; use hg.Any for recursive data", path=path
                )
            kind = field_type(own[name], path)
            cls.__annotations__[name] = wire_annotation(own[name], kind)
            fields[name] = EventField(kind, cls.__annotations__[name], keyword_only)
        elif parent is not None and name in parent.fields:
            fields[name] = parent.fields[name]
        else:
            raise FormatError(
                f"{cls.__name__} inherits a field from a class that is no single event class", path=path
            )
    return fields


def _key_names(key: str | tuple[str, ...] | None, parent: EventInfo | None) -> tuple[str, ...]:
    if key is None:
        return parent.key if parent else ()
    return (key,) if isinstance(key, str) else tuple(key)


def _check_key(info: EventInfo) -> None:
    if len(info.key) > MAX_KEY:
        raise FormatError(f"{info.name}: a key of {len(info.key)} fields; at most {MAX_KEY} are allowed")
    for name in info.key:
        kind = info.types.get(name)
        if kind is not None and (
            not isinstance(kind, ft.Scalar | ft.Decimal | ft.Enum)
            or (isinstance(kind, ft.Scalar) and kind.name in ft.FLOATS)
        ):
            why = ": what is kept by key has to be found by it, and a map has no one form"
            raise FormatError(
                "a key field is an integer, Decimal, str, bytes, bool, datetime, date, UUID or enum, not "
                f"{kind}{why if isinstance(kind, ft.Map) else ''}",
                path=f"$.{name}",
            )


def _keep_strict(namespace: dict[str, Any], bases: tuple[type, ...], *, strict: bool) -> bool:
    """Whether values are checked when an event is built; if so, also when the class has a __post_init__."""
    inherited = any(vars(base)["__event_info__"].strict for base in bases if "__event_info__" in vars(base))
    if (inherited and "__post_init__" in namespace) or (strict and not inherited):
        candidates = [getattr(base, "__post_init__", None) for base in bases]
        own = namespace.get("__post_init__") or next(filter(None, candidates), None)
        namespace["__post_init__"] = _checked(own)
    return strict or inherited


def _checked(post_init: Any) -> Any:
    """A __post_init__ that checks the values first; for `strict=True`."""

    def __post_init__(self: Event) -> None:  # noqa: N807 - takes the place of one
        from heliograph.codec.validate import validate  # noqa: PLC0415 - made for a class when its first event is built

        validate(self)
        if post_init is not None:
            post_init(self)

    return __post_init__


def _copy_array_defaults(namespace: dict[str, Any]) -> None:
    """Give each event an array of its own where the default of a field is one."""
    for name in namespace.get("__annotations__", ()):
        default: Any = namespace.get(name)
        if isinstance(default, _FIELD):
            default = default.default
        # Numpy need not be there for classes without arrays, so it is recognised without importing it.
        if type(default).__module__ == "numpy" and type(default).__name__ == "ndarray":
            namespace[name] = msgspec.field(default_factory=default.copy().copy)


def _equal_with_arrays(self: Event, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(_equal(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return bool(a == b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(value, b[key]) for key, value in a.items())
    if hasattr(a, "dtype"):
        return bool(a.dtype == b.dtype and a.shape == b.shape and (a == b).all())
    return bool(a == b)
