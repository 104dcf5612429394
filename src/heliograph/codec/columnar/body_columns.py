"""Many bodies of one format as Arrow columns, decoded all at once.

    bodies = Bodies([record.body for record in records])
    decode = columns_decoder(fmt)                   # None for a format with `hg.Any`, or without fields
    arrays = decode(bodies, {"id", "region"})       # {"id": <Int64Array>, "region": <StringArray>}

Sealing a head and reading one in Spark turn millions of small bodies into columns. Here numpy walks through
all of them side by side: the first field of every body, then the second, with one array that says where each
value begins (`packed_columns`, `native_columns`). No object is made for a value.

It is stricter than the codec, and gives up with `NotPlain` when a body is bad or has something for which
there is no quick way here. Whoever calls it then decodes them one by one, which also finds the bad ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from heliograph.codec.columnar.body_bytes import Bodies, NotPlain
from heliograph.codec.columnar.columns import arrow_type
from heliograph.codec.columnar.native_columns import native_decoder
from heliograph.codec.columnar.packed_columns import packed_decoder
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from heliograph.codec.columnar.body_bytes import Places
    from heliograph.model.formats import Format

    Decoder: TypeAlias = Callable[[Bodies, Collection[str]], dict[str, pa.Array]]

__all__ = ["AT_ONCE", "Bodies", "Decoder", "NotPlain", "columns_decoder", "columns_of", "fits"]

AT_ONCE = 8192
"""Bodies; what is known of so many stays in the processor's cache, and the steps of Python cost little."""


def columns_decoder(fmt: Format) -> Decoder | None:
    """What makes the named columns, in the types that Spark takes; None where there is no quick way."""
    if not fmt.fields or ft.holds(ft.NestedEvent(fmt), ft.Anything):
        return None
    read = packed_decoder(fmt) if fmt.body == "packed" else native_decoder(fmt)

    def decode(bodies: Bodies, wanted: Collection[str]) -> dict[str, pa.Array]:
        firsts = range(0, len(bodies), AT_ONCE)
        parts = [read(bodies.some(slice(first, first + AT_ONCE)), wanted) for first in firsts]
        names = parts[0] if parts else ()
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in names}

    return decode


def fits(fmt: Format, joined: Format) -> bool:
    """Whether the columns of a format are those of another one, or numbers that Arrow can widen to them."""
    for field in joined.fields:
        there = fmt.by_name.get(field.name)
        if there is None:
            continue
        mine, wanted = (arrow_type(kind, spark_safe=True) for kind in (there.type, field.type))
        item = split_optional(field.type)[0]
        if isinstance(item, ft.Anything) or (
            mine != wanted and not (pa.types.is_integer(mine) and isinstance(item, ft.Scalar))
        ):
            return False
    return True


def columns_of(
    bodies: Bodies,
    groups: Mapping[bytes, Places],
    decoders: Mapping[bytes, Decoder],
    wanted: Sequence[pa.Field],
) -> list[pa.Array]:
    """Columns of bodies of several formats, each of which fits; null where a format lacks the field.

    Args:
        groups: the places of the bodies of each format, by its id.
        decoders: of each format.
        wanted: the columns, in the types that they are to have.
    """
    if len(groups) == 1:
        (format_id,) = groups
        return _columns(bodies, decoders[format_id], wanted)
    parts = [_columns(bodies.some(at), decoders[format_id], wanted) for format_id, at in groups.items()]
    order = pa.array(np.argsort(np.concatenate(list(groups.values()))))
    return [pa.concat_arrays(arrays).take(order) for arrays in zip(*parts, strict=True)]


def _columns(bodies: Bodies, decode: Decoder, wanted: Sequence[pa.Field]) -> list[pa.Array]:
    found = decode(bodies, [field.name for field in wanted])
    try:
        return [_column(found.get(field.name), field.type, len(bodies)) for field in wanted]
    except pa.ArrowInvalid:  # an integer that the float of its column does not hold
        raise NotPlain from None


def _column(array: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    if array is None:
        return pa.nulls(count, kind)
    return array if array.type == kind else array.cast(kind)
