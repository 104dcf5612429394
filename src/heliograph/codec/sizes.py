"""How many bytes the values of an event take: an estimate by which queues and histories are bounded.

    size_of(track)              # 16 + len(track.note)
    fixed_size(Position)        # 24: each of its events takes that; None where they differ

A number, a time, a date and an enum count 8 bytes, a UUID and a decimal 16, text its characters, bytes and
arrays their length, an item of a list and an entry of a map 32 bytes and what it holds: there each is an
object of its own. What CPython adds to each event, about half a kilobyte with its header, is not counted:
bounds in events are there for that.

For each class one function is generated that looks at the fields that differ, and at nothing else. Another
tells whether all events of a batch are small: of those a queue is full by their number before their bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from heliograph.model import field_types as ft
from heliograph.model.event import Event, info_of
from heliograph.model.layout import SCALAR_SIZES
from heliograph.runtime.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NUMBER: Final = 8
LISTED: Final = 32
"""An item of a list, or of a map."""
SMALL: Final = 512
"""An event that takes no more is small."""


def size_of(event: Event) -> int:
    """See the module."""
    return SIZES[event.__class__](event)


def fixed_size(cls: type[Event]) -> int | None:
    """What every event of a class takes; None when some of them differ."""
    total = 0
    for kind in info_of(cls).types.values():
        size = _fixed(kind)
        if size is None:
            return None
        total += size
    return total


def count_within(events: Sequence[Event], most_bytes: int, *, alike: bool) -> tuple[int, int | None]:
    """How many of these events to pass on at once: until so many bytes are reached, or fewer; at least one.

    The other number is what each of those takes at most; None: not known.

    Args:
        events: at least one, of any classes.
        most_bytes: from which on no other is wanted.
        alike: whether all of them are of one class.
    """
    cls = events[0].__class__
    if (size := _fixed_sizes[cls]) is not None:  # most likely all are of that class
        return min(len(events), max(1, -(-most_bytes // max(1, size)))), size if alike else None
    if alike and len(events) * SMALL <= most_bytes and _SMALL_CHECKS[cls](events):
        return len(events), SMALL
    # The others are most likely as large as the first: no more are measured than are wanted then.
    likely = max(1, -(-most_bytes // max(1, size_of(events[0]))))
    sizes = list(map(SIZES[cls] if alike else size_of, events[:likely]))
    if sum(sizes) - sizes[-1] >= most_bytes:
        return bisect_left(list(accumulate(sizes)), most_bytes) + 1, max(sizes)
    return len(sizes), max(sizes)


def _fixed(kind: ft.FieldType) -> int | None:
    """What each value of a type takes; None when that differs."""
    match kind:
        case ft.Scalar(name="str" | "bytes") | ft.Anything() | ft.Map():
            return None
        case ft.Scalar(name="uuid") | ft.Decimal():
            return ft.UUID_SIZE
        case ft.Scalar() | ft.Enum():
            return NUMBER
        case ft.Optional(item=item):
            return _fixed(item)
        case ft.Array(item=item):
            count = kind.fixed_count
            return None if count is None else count * SCALAR_SIZES[item]
        case ft.List(item=item, length=length):
            each = _fixed(item)
            return None if each is None or length is None else length * _listed(item, each)
        case ft.NestedEvent(format=fmt):
            sizes = [_fixed(field.type) for field in fmt.fields]
            return None if None in sizes else sum(size for size in sizes if size is not None)


def _listed(item: ft.FieldType, each: int) -> int:
    """What an item of a list takes: one that is a plain value is counted as an object, not twice."""
    return LISTED if isinstance(item, ft.Scalar | ft.Decimal | ft.Enum) else LISTED + each


class _FixedSizes(dict[type, "int | None"]):
    def __missing__(self, cls: type) -> int | None:
        made = self[cls] = fixed_size(cls)
        return made


class _Sizes(dict[type, "Callable[[Any], int]"]):
    def __missing__(self, cls: type) -> Callable[[Any], int]:
        made = self[cls] = size_function(cls)
        return made


class _SmallChecks(dict[type, "Callable[[Sequence[Any]], bool]"]):
    def __missing__(self, cls: type) -> Callable[[Sequence[Any]], bool]:
        made = self[cls] = _small_check(cls)
        return made


SIZES: Final = _Sizes()
"""By class, what `size_of` calls."""
_SMALL_CHECKS: Final = _SmallChecks()
"""By class, what tells whether all events of a batch are small."""
_fixed_sizes: Final = _FixedSizes()


def size_function(cls: type[Event]) -> Callable[[Any], int]:
    """What `size_of` calls for events of a class."""
    source = CodeBuilder()
    fixed, *terms = _terms(source, cls)
    # An event may be changed after its push, and hold anything by then: it must harm nobody who counts it.
    source.line("def size(event):", 0)
    source.line("try:")
    source.line(f"return {' + '.join([fixed, *terms])}", 2)
    source.line(f"except {source.bind(Exception)}:")
    source.line(f"return {fixed}", 2)
    function: Callable[[Any], int] = source.functions()["size"]
    return function


def size_text(source: CodeBuilder, cls: type[Event]) -> str | None:
    """The text that measures `event`; None for a class whose events have one size."""
    terms = _terms(source, cls)
    return " + ".join(terms) if len(terms) > 1 else None


def _small_check(cls: type[Event]) -> Callable[[Sequence[Any]], bool]:
    source = CodeBuilder()
    fixed, *terms = _terms(source, cls)
    source.line("def are_small(events):", 0)
    source.line("for event in events:")
    source.line(f"if {' + '.join(terms)} > {SMALL - int(fixed)}: return False", 2)
    source.line("return True")
    function: Callable[[Sequence[Any]], bool] = source.functions()["are_small"]
    return function


def _terms(source: CodeBuilder, cls: type[Event]) -> list[str]:
    """What to add up for `event`: first what each of its class takes, then what differs."""
    fixed, terms = 0, []
    for name, kind in info_of(cls).types.items():
        size = _fixed(kind)
        if size is None:
            terms.append(_term(source, kind, f"event.{source.attribute(name)}"))
        else:
            fixed += size
    return [str(fixed), *terms]


def _term(source: CodeBuilder, kind: ft.FieldType, value: str) -> str:
    match kind:
        case ft.Scalar():
            return f"{source.bind(len)}({value})"
        case ft.Array():
            return f"{value}.nbytes"
        case _:
            return f"{source.bind(_measured(kind))}({value})"


def _measured(kind: ft.FieldType) -> Callable[[Any], int]:
    """A function of a value whose type is known."""
    fixed = _fixed(kind)
    if fixed is not None:
        return lambda _: fixed
    match kind:
        case ft.Scalar():
            return len
        case ft.Optional(item=item):
            inner = _measured(item)
            return lambda value: 0 if value is None else inner(value)
        case ft.Array():
            return lambda value: int(value.nbytes)
        case ft.List(item=item):
            each = _fixed(item)
            if each is not None:
                step = _listed(item, each)
                return lambda values: len(values) * step
            inner = _measured(item)
            return lambda values: sum(map(inner, values), len(values) * LISTED)
        case ft.Map(key=key, value=value):
            keys, values = _measured(key), _measured(value)
            return lambda entries: (
                len(entries) * LISTED + sum(map(keys, entries)) + sum(map(values, entries.values()))
            )
        case ft.NestedEvent():
            return size_of
        case _:
            return _size_of_anything


def _size_of_anything(value: Any) -> int:
    """Data without a schema. Whether it can be encoded is not asked here, so its depth is not trusted."""
    total, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str | bytes):
            total += len(one)
        elif isinstance(one, dict):
            total += LISTED * len(one)
            left += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            total += LISTED * len(one)
            left += one
        elif isinstance(one, int | float | datetime):
            total += NUMBER
    return total


def bound_in_events(types: Iterable[type[Event]], most_bytes: int) -> int | None:
    """The bound in events that keeps a bound in bytes; None where events have to be measured for it."""
    largest = largest_of(types)
    return None if largest is None else max(1, -(-most_bytes // max(1, largest)))


def largest_unmeasured(types: Iterable[type[Event]]) -> int:
    """What an event of these types takes at most that is small, or of a class whose events have one size."""
    return max([SMALL, *(size for cls in types if (size := _fixed_sizes[cls]) is not None)])


def largest_of(types: Iterable[type[Event]]) -> int | None:
    """What an event of these types takes at most; None where they differ from event to event."""
    sizes = [_fixed_sizes[cls] for cls in types]
    return None if None in sizes else max((size for size in sizes if size is not None), default=0)
