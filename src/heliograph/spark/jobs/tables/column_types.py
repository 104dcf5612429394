"""The columns of files that were written one after the other, as the columns of one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

Common: TypeAlias = Callable[[pa.DataType, pa.DataType, str], pa.DataType]
"""The type for two of a column; NoCommonType says which column that is."""


class NoCommonType(Exception):
    """Two types of a column that no type holds together, or none that the table's format can change to."""

    def __init__(self, column: str, there: pa.DataType, new: pa.DataType) -> None:
        super().__init__(f"its column {column} is {there}, and a file has {new}")


def joined_columns(there: pa.Schema, new: pa.Schema, *, widens: bool) -> pa.Schema:
    """The columns of `there`, then those that only `new` has; also inside of structs.

    With `widens` a column takes the wider of two integers, of two floats, or of two decimals with as
    many digits behind the point; NoCommonType for all else.
    """
    return pa.schema(list(_joined(there, new, "", _wider if widens else _same)))


def _joined(there: pa.Schema, new: pa.Schema, path: str, common: Common) -> list[pa.Field]:
    names = {field.name: field for field in new}
    fields = []
    for field in there:
        other = names.pop(field.name, None)
        kind = field.type if other is None else _type(field.type, other.type, path + field.name, common)
        fields.append(pa.field(field.name, kind))
    return [*fields, *(pa.field(field.name, field.type) for field in names.values())]


def _type(there: pa.DataType, new: pa.DataType, path: str, common: Common) -> pa.DataType:
    if pa.types.is_struct(there) and pa.types.is_struct(new):
        return pa.struct(_joined(pa.schema(list(there)), pa.schema(list(new)), f"{path}.", common))
    if _is_list(there) and _is_list(new):
        return pa.list_(_type(there.value_type, new.value_type, f"{path}[]", common))
    if pa.types.is_map(there) and pa.types.is_map(new):
        return pa.map_(there.key_type, _type(there.item_type, new.item_type, f"{path}[]", common))
    return common(there, new, path)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _same(there: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    if there != new:
        raise NoCommonType(path, there, new)
    return there


def _wider(there: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    for alike in (pa.types.is_signed_integer, pa.types.is_floating):
        if alike(there) and alike(new):
            return max(there, new, key=lambda kind: kind.bit_width)
    decimals = pa.types.is_decimal(there) and pa.types.is_decimal(new)
    if decimals and there.scale == new.scale:
        return max(there, new, key=lambda kind: kind.precision)
    return _same(there, new, path)
