"""Columns of packed bodies: numpy reads the msgpack of all of them side by side.

A reader of a type is given the places at which its values begin. It returns their column, or None when nobody
wants it, and the places behind them. Places only grow and each body has to be read exactly to its end, so no
reader can have taken what belongs to another body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar import body_bytes as made
from heliograph.codec.columnar.body_bytes import Bodies, NotPlain, insist
from heliograph.codec.columnar.columns import arrow_type
from heliograph.codec.containers import MAX_CONTAINERS, is_counted
from heliograph.codec.decimals import MAX_TEXT
from heliograph.codec.packed import PREFIX
from heliograph.model import field_types as ft
from heliograph.model.layout import SCALAR_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from heliograph.codec.columnar.body_bytes import Places
    from heliograph.model.formats import Format

    Tags: TypeAlias = NDArray[np.uint8]
    Read: TypeAlias = tuple[pa.Array | None, Places]
    Reader: TypeAlias = Callable[["_Packed", Places, bool], Read]

MOST_STEPS: Final = 32
"""Items of a list that are read one after the other, however few lists have so many."""
WORTH_A_STEP: Final = 256
"""Items that a step has to bring on average when there are more steps than that."""

# The tags of msgpack. Numbers from -32 to 127 are their own tag.
NIL: Final = 0xC0
FALSE: Final = 0xC2
TRUE: Final = 0xC3
FLOAT64: Final = 0xCB
FIXED_MAP: Final = 0x80
FIXED_ARRAY: Final = 0x90
FIXED_TEXT: Final = 0xA0
LARGER: Final = (0x80, 0xE0)
"""Between these are all tags that are not small numbers."""
INTEGERS: Final = {
    0xCC: "u1", 0xCD: ">u2", 0xCE: ">u4", 0xCF: ">u8", 0xD0: "i1", 0xD1: ">i2", 0xD2: ">i4", 0xD3: ">i8"
}  # fmt: skip
TEXTS: Final = {0xD9: "u1", 0xDA: ">u2", 0xDB: ">u4"}
BYTES: Final = {0xC4: "u1", 0xC5: ">u2", 0xC6: ">u4"}
ARRAYS: Final = {0xDC: ">u2", 0xDD: ">u4"}
MAPS: Final = {0xDE: ">u2", 0xDF: ">u4"}
SECONDS: Final = 0xD6
SECONDS_AND_NANOSECONDS: Final = 0xD7
LONG_TIME: Final = 0xC7
TIMESTAMP: Final = 0xFF
"""The type of msgpack's extensions that are times."""
DATE_TEXT: Final = 10
"""Characters of a date."""
_UUID_CHARACTERS: Final = np.zeros((made.UUID_TEXT, 256), np.bool_)
"""Which may stand at each place of a UUID."""
_UUID_CHARACTERS[:, list(b"0123456789abcdef")] = True
_UUID_CHARACTERS[(8, 13, 18, 23), :] = False
_UUID_CHARACTERS[(8, 13, 18, 23), ord("-")] = True


def _widths() -> NDArray[np.int64]:
    """The bytes of a value with each tag; 0 where the tag alone does not say."""
    widths = np.zeros(256, np.int64)
    widths[: LARGER[0]] = widths[LARGER[1] :] = widths[[NIL, FALSE, TRUE]] = 1
    for tag, kind in INTEGERS.items():
        widths[tag] = 1 + np.dtype(kind).itemsize
    widths[[FLOAT64, SECONDS, SECONDS_AND_NANOSECONDS]] = 9, 6, 10
    return widths


WIDTHS: Final = _widths()


class _Packed:
    """Packed bodies that are being read."""

    def __init__(self, bodies: Bodies, *, arrays: bool) -> None:
        self.bodies = bodies
        self.starts, self.ends = bodies.starts, bodies.ends
        if arrays:
            self._split()

    def _split(self) -> None:
        """In bodies with arrays the msgpack has its size before it, and the data of the arrays behind it."""
        starts, ends = self.starts, self.ends
        insist((ends - starts >= PREFIX).all())
        sizes = self.bodies.numbers(starts, "<u4").astype(np.int64)
        self.starts = starts + PREFIX
        self.ends = self.starts + sizes
        insist((self.ends <= ends).all())
        self.data = np.minimum(starts + -(-(PREFIX + sizes) // 8) * 8, ends)
        self.data_ends = ends
        self.unused = ends - self.data

    def tags(self, at: Places) -> Tags:
        return self.bodies.byte(at)

    def after(self, at: Places, widths: Places | int) -> Places:
        """The places behind values; NotPlain when one of them is behind the last body."""
        places = at + widths
        self.bodies.insist_inside(places)
        return places


def packed_decoder(fmt: Format) -> Callable[[Bodies, Collection[str]], dict[str, pa.Array]]:
    """What makes the named columns of packed bodies."""
    readers = [(field.name, _reader(field.type)) for field in fmt.fields]
    has_arrays = ft.holds(ft.NestedEvent(fmt), ft.Array)
    counted = is_counted(fmt)

    def decode(bodies: Bodies, wanted: Collection[str]) -> dict[str, pa.Array]:
        packed = _Packed(bodies, arrays=has_arrays)
        if counted:
            insist((packed.ends - packed.starts <= MAX_CONTAINERS).all())
        found: dict[str, pa.Array] = {}
        at = _into_array(packed, packed.starts, len(readers))
        for name, read in readers:
            array, at = read(packed, at, name in wanted)
            if array is not None:
                found[name] = array
        insist(np.array_equal(at, packed.ends))
        if has_arrays:
            insist((packed.unused >= 0).all())
        return found

    return decode


def _reader(kind: ft.FieldType) -> Reader:
    match kind:
        case ft.Scalar(name=name):
            return _scalar(name)
        case ft.Optional(item=item):
            return _optional(_reader(item))
        case ft.Enum():
            return _enum(kind)
        case ft.NestedEvent(format=fmt):
            return _record(fmt)
        case ft.List(item=item, length=length):
            return _list(_reader(item), arrow_type(item, spark_safe=True), length)
        case ft.Decimal():
            return _decimals(arrow_type(kind))
        case ft.Map(key=key, value=value):
            return _map(_reader(key), _reader(value), arrow_type(kind, spark_safe=True))
        case ft.Array():
            return _array(kind)
    raise AssertionError(kind)


def _scalar(name: ft.ScalarName) -> Reader:
    kind = arrow_type(ft.Scalar(name), spark_safe=True)
    if name in ft.INTEGER_RANGES:
        low, high = ft.INTEGER_RANGES[name]
        wide = np.uint64 if high >> 63 else np.int64

        def read_integers(packed: _Packed, at: Places, wanted: bool) -> Read:
            values, widths = _whole_numbers(packed, at, packed.tags(at), wide)
            if len(values):
                insist(low <= int(values.min()) and int(values.max()) <= high)
            return (made.integers(values, kind) if wanted else None), packed.after(at, widths)

        return read_integers
    if name in ft.FLOATS:
        return _floats(narrow=name == "f32")
    if name in ("str", "bytes"):
        return _text(kind)
    return {"bool": _booleans, "datetime": _times, "date": _dates, "uuid": _uuids}[name]


def _whole_numbers(
    packed: _Packed, at: Places, tags: Tags, kind: type[np.int64 | np.uint64]
) -> tuple[NDArray[Any], Places]:
    """Integers and the bytes that each takes; those that the kind does not hold are not plain."""
    small = tags.astype(np.int8)
    widths = np.ones(len(tags), np.int64)
    large = (tags >= LARGER[0]) & (tags < LARGER[1])
    insist(kind is np.int64 or not (small[~large] < 0).any())
    values = small.astype(kind)
    for tag in np.unique(tags[large]).tolist():
        insist(tag in INTEGERS)
        having = tags == tag
        found = packed.bodies.numbers(at[having] + 1, INTEGERS[tag])
        insist(kind is np.uint64 or int(found.max()) >> 63 <= 0)
        insist(kind is np.int64 or found.min() >= 0)
        values[having] = found
        widths[having] = 1 + found.dtype.itemsize
    return values, widths


def _floats(*, narrow: bool) -> Reader:
    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        tags = packed.tags(at)
        having = tags == FLOAT64
        widths: Places | int = 9
        if having.all():
            values = packed.bodies.numbers(at + 1, ">f8").astype(np.float64)
        else:  # an int is a float, too
            values = np.empty(len(tags), np.float64)
            widths = np.full(len(tags), 9, np.int64)
            values[having] = packed.bodies.numbers(at[having] + 1, ">f8")
            values[~having], widths[~having] = _whole_numbers(packed, at[~having], tags[~having], np.int64)
        if narrow:
            with np.errstate(over="ignore", invalid="ignore"):
                small = values.astype(np.float32)
            insist(np.array_equal(np.isinf(small), np.isinf(values)))
            return (pa.array(small) if wanted else None), packed.after(at, widths)
        return (pa.array(values) if wanted else None), packed.after(at, widths)

    return read


def _booleans(packed: _Packed, at: Places, wanted: bool) -> Read:
    tags = packed.tags(at)
    true = tags == TRUE
    insist((true | (tags == FALSE)).all())
    return (pa.array(true) if wanted else None), packed.after(at, 1)


def _stretches(packed: _Packed, at: Places, *, is_text: bool) -> tuple[Places, Places]:
    """Where texts, or bytes, begin and end."""
    tags = packed.tags(at)
    small = (tags & 0xE0) == FIXED_TEXT if is_text else np.zeros(len(tags), np.bool_)
    sizes = (tags & 0x1F).astype(np.int64)
    heads = np.ones(len(tags), np.int64)
    for tag in np.unique(tags[~small]).tolist():
        kind = (TEXTS if is_text else BYTES).get(tag)
        if kind is None:
            raise NotPlain
        having = tags == tag
        sizes[having] = packed.bodies.numbers(at[having] + 1, kind)
        heads[having] = 1 + np.dtype(kind).itemsize
    starts = at + heads
    return starts, packed.after(starts, sizes)


def _text(kind: pa.DataType) -> Reader:
    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        starts, ends = _stretches(packed, at, is_text=kind == pa.string())
        return (made.texts(packed.bodies, starts, ends, kind) if wanted else None), ends

    return read


def _times(packed: _Packed, at: Places, wanted: bool) -> Read:
    tags = packed.tags(at)
    seconds, nanoseconds = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    widths = WIDTHS[tags]
    kinds = packed.bodies.byte(at + 1)
    for tag in np.unique(tags).tolist():
        having = tags == tag
        places = at[having]
        if tag == SECONDS:
            insist((kinds[having] == TIMESTAMP).all())
            seconds[having] = packed.bodies.numbers(places + 2, ">u4")
        elif tag == SECONDS_AND_NANOSECONDS:
            insist((kinds[having] == TIMESTAMP).all())
            both = packed.bodies.numbers(places + 2, ">u8").astype(np.uint64)
            seconds[having] = both & np.uint64((1 << 34) - 1)
            nanoseconds[having] = both >> np.uint64(34)
        else:
            insist(tag == LONG_TIME and (kinds[having] == 12).all())
            insist((packed.bodies.byte(places + 2) == TIMESTAMP).all())
            nanoseconds[having] = packed.bodies.numbers(places + 3, ">u4")
            seconds[having] = packed.bodies.numbers(places + 7, ">i8")
            widths[having] = 15
    insist((nanoseconds % 1000 == 0).all() and (nanoseconds < 1_000_000_000).all())
    made.insist_on_seconds(seconds)
    array = made.times(seconds * 1_000_000 + nanoseconds // 1000) if wanted else None
    return array, packed.after(at, widths)


def _dates(packed: _Packed, at: Places, wanted: bool) -> Read:
    """Text of ten characters, year, month and day."""
    insist((packed.tags(at) == FIXED_TEXT + DATE_TEXT).all())
    ends = packed.after(at, 1 + DATE_TEXT)
    digits = packed.bodies.rows(at + 1, DATE_TEXT).astype(np.int64) - ord("0")
    insist((digits[:, (4, 7)] == ord("-") - ord("0")).all())
    digits = digits[:, (0, 1, 2, 3, 5, 6, 8, 9)]
    insist(((digits >= 0) & (digits <= 9)).all())
    years, months, days = (
        digits[:, :4] @ (1000, 100, 10, 1),
        digits[:, 4:6] @ (10, 1),
        digits[:, 6:] @ (10, 1),
    )
    insist((years >= 1).all() and ((months >= 1) & (months <= 12)).all() and (days >= 1).all())
    firsts = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    insist(
        (
            days <= ((firsts + 1).astype("datetime64[D]") - firsts.astype("datetime64[D]")).astype(np.int64)
        ).all()
    )
    since = firsts.astype("datetime64[D]").astype(np.int64) + days - 1
    return (made.dates(since) if wanted else None), ends


def _uuids(packed: _Packed, at: Places, wanted: bool) -> Read:
    """Text with dashes, in lower case, as msgspec writes it."""
    starts, ends = _stretches(packed, at, is_text=True)
    insist((ends - starts == made.UUID_TEXT).all())
    text = packed.bodies.rows(starts, made.UUID_TEXT)
    insist(_UUID_CHARACTERS[np.arange(made.UUID_TEXT), text].all())
    return (made.texts(packed.bodies, starts, ends, pa.string()) if wanted else None), ends


def _decimals(kind: pa.Decimal128Type) -> Reader:
    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        starts, ends = _stretches(packed, at, is_text=True)
        insist((ends - starts <= MAX_TEXT).all())
        texts = made.texts(packed.bodies, starts, ends, pa.string())
        array = made.decimals(texts, kind)
        return (array if wanted else None), ends

    return read


def _map(read_key: Reader, read_value: Reader, kind: pa.MapType) -> Reader:
    def read_entry(packed: _Packed, at: Places, wanted: bool) -> Read:
        keys, at = read_key(packed, at, wanted)
        values, at = read_value(packed, at, wanted)
        both = pa.StructArray.from_arrays([keys, values], ["key", "value"]) if wanted else None
        return both, at

    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        counts, starts = _sizes(packed, at, FIXED_MAP, MAPS)
        insist(not len(counts) or counts.max() <= ft.MAX_ENTRIES)
        total = int(counts.sum())
        insist(2 * total <= len(packed.bodies.data))  # a key and a value have a byte each at least
        if not total:
            none = pa.array([], kind.key_type), pa.array([], kind.item_type)
            return (made.maps(counts, *none) if wanted else None), starts
        entries, after = _one_after_the_other(read_entry, packed, starts, counts, wanted)
        if entries is None:
            return None, after
        return made.maps(counts, entries.field(0), entries.field(1)), after

    return read


def _optional(read: Reader) -> Reader:
    def read_present(packed: _Packed, at: Places, wanted: bool) -> Read:
        present = packed.tags(at) != NIL
        if present.all():
            return read(packed, at, wanted)
        array, behind = read(packed, at[present], wanted)
        after = packed.after(at, 1)
        after[present] = behind
        return (None if array is None else made.spread(array, present)), after

    return read_present


def _enum(kind: ft.Enum) -> Reader:
    def read_numbers(packed: _Packed, at: Places, wanted: bool) -> Read:
        values, widths = _whole_numbers(packed, at, packed.tags(at), np.int64)
        made.insist_on_members(kind, values)
        return (pa.array(values) if wanted else None), packed.after(at, widths)

    def read_texts(packed: _Packed, at: Places, wanted: bool) -> Read:
        starts, ends = _stretches(packed, at, is_text=True)
        array = made.texts(packed.bodies, starts, ends, pa.string())
        made.insist_on_members(kind, array)
        return (array if wanted else None), ends

    return read_numbers if kind.base == "i64" else read_texts


def _into_array(packed: _Packed, at: Places, fields: int) -> Places:
    """The places of the first fields of records, which are arrays with a value for each field."""
    counts, starts = _array_sizes(packed, at)
    insist((counts == fields).all())
    return starts


def _array_sizes(packed: _Packed, at: Places) -> tuple[Places, Places]:
    """How many items arrays have, and where the first of each is."""
    return _sizes(packed, at, FIXED_ARRAY, ARRAYS)


def _sizes(packed: _Packed, at: Places, fixed: int, larger: dict[int, str]) -> tuple[Places, Places]:
    """The same for what begins with such tags."""
    tags = packed.tags(at)
    counts = (tags & 0x0F).astype(np.int64)
    heads = np.ones(len(tags), np.int64)
    for tag in np.unique(tags[(tags & 0xF0) != fixed]).tolist():
        kind = larger.get(tag)
        if kind is None:
            raise NotPlain
        having = tags == tag
        counts[having] = packed.bodies.numbers(at[having] + 1, kind)
        heads[having] = 1 + np.dtype(kind).itemsize
    return counts, packed.after(at, heads)


def _record(fmt: Format) -> Reader:
    readers = [_reader(field.type) for field in fmt.fields]
    kind = arrow_type(ft.NestedEvent(fmt), spark_safe=True)

    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        count = len(at)
        at = _into_array(packed, at, len(readers))
        arrays = []
        for read_field in readers:
            array, at = read_field(packed, at, wanted)
            arrays.append(array)
        return (made.structs(arrays, kind, count) if wanted else None), at

    return read


def _list(read: Reader, kind: pa.DataType, length: int | None) -> Reader:
    def read_lists(packed: _Packed, at: Places, wanted: bool) -> Read:
        counts, starts = _array_sizes(packed, at)
        insist(length is None or (counts == length).all())
        total = int(counts.sum())
        insist(total <= len(packed.bodies.data))  # an item has a byte at least
        if not total:
            return (made.lists(counts, pa.array([], kind)) if wanted else None), starts
        width = _common_width(packed, starts, counts)
        if width:
            items, _ = read(packed, _items(starts, counts, width), wanted)
            after = packed.after(starts, counts * width)
        else:
            items, after = _one_after_the_other(read, packed, starts, counts, wanted)
        return (None if items is None else made.lists(counts, items)), after

    return read_lists


def _items(starts: Places, counts: Places, width: int) -> Places:
    """The places of items that all take as many bytes."""
    firsts = np.cumsum(counts) - counts
    return np.repeat(starts - firsts * width, counts) + np.arange(int(counts.sum())) * width


def _common_width(packed: _Packed, starts: Places, counts: Places) -> int:
    """The bytes that every item of the lists takes; 0 when they differ, or their tags do not say."""
    width = int(WIDTHS[packed.tags(starts[counts > 0][:1])[0]])
    if width:
        ends = starts + counts * width
        if ends.max() > packed.ends.max():
            return 0
        if (WIDTHS[packed.tags(_items(starts, counts, width))] != width).any():
            return 0
    return width


def _one_after_the_other(read: Reader, packed: _Packed, at: Places, counts: Places, wanted: bool) -> Read:
    """The first items of all lists, then the second ones, and so on, brought into the order of the lists."""
    steps, total = int(counts.max()), int(counts.sum())
    insist(steps <= MOST_STEPS or total >= WORTH_A_STEP * steps)
    at = at.copy()
    firsts = np.cumsum(counts) - counts
    order = np.empty(total, np.int64)
    parts: list[pa.Array] = []
    done = 0
    for step in range(steps):
        having = counts > step
        array, at[having] = read(packed, at[having], wanted)
        places = firsts[having] + step
        order[places] = np.arange(done, done + len(places))
        done += len(places)
        if array is not None:
            parts.append(array)
    return (pa.concat_arrays(parts).take(pa.array(order)) if wanted else None), at


def _array(kind: ft.Array) -> Reader:
    size = SCALAR_SIZES[kind.item]

    def read(packed: _Packed, at: Places, wanted: bool) -> Read:
        starts, ends = _stretches(packed, at, is_text=False)
        lengths = ends - starts
        insist((lengths >= 4).all() and (lengths % 4 == 0).all())
        of = packed.bodies.bodies_of(at)
        places = packed.data[of] + packed.bodies.numbers(starts, "<u4")
        shapes = made.Shapes(kind, packed.bodies, starts + 4, lengths // 4 - 1, "<")
        sizes = shapes.items * size
        insist((places + sizes <= packed.data_ends[of]).all())
        np.subtract.at(packed.unused, of, sizes)
        if not wanted:
            return None, ends
        _, data = packed.bodies.gathered(places, places + sizes)
        return shapes.column(data, "<"), ends

    return read
