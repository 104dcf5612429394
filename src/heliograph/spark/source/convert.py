"""Columns of one format as columns of another, in Spark.

A format that was joined from several (`heliograph.codec.columnar.unify`) has wider numbers and more fields
than each of them. `conversion` says how a column gets there: casts, rebuilt structs and lists, nulls for what
is missing. Only what Spark does exactly as our own code would is done here; for anything else it raises
`NotBySpark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use
from pyspark.sql.pandas.types import from_arrow_type

from heliograph.codec.columnar import columns
from heliograph.model import field_types as ft
from heliograph.model.compatibility import compare, split_optional, widens
from heliograph.model.formats import Field, Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Convert: TypeAlias = Callable[[Column], Column]


class NotBySpark(Exception):
    """Spark cannot make the one type out of the other."""


def conversion(source: ft.FieldType, target: ft.FieldType) -> Convert | None:
    """How a column of one type becomes one of the other; None when it is one already."""
    source, target = split_optional(source)[0], split_optional(target)[0]
    match source, target:
        case ft.NestedEvent(format=narrow), ft.NestedEvent(format=wide):
            return _record_conversion(narrow, wide)
        case _ if source == target:
            return None
        case ((ft.Scalar() | ft.Enum()), ft.Scalar(name=wider)):
            name = source.name if isinstance(source, ft.Scalar) else source.base
            if not widens(name, wider):
                raise NotBySpark
            return None if name == wider else lambda column: column.cast(spark_type(target))
        case ((ft.Scalar() | ft.Decimal()), ft.Decimal()):
            if compare(_one(source), _one(target)).problems:
                raise NotBySpark
            return lambda column: column.cast(spark_type(target))
        case ft.Map(), ft.Map():
            return _map_conversion(source, target)
        case ft.List(item=narrow_item), ft.List(item=wide_item):
            item = conversion(narrow_item, wide_item)
            return None if item is None else lambda column: F.transform(column, item)
        case ft.Array(), ft.Array() if spark_type(source) == spark_type(target):
            return None
        case _:
            raise NotBySpark


def _one(kind: ft.FieldType) -> Format:
    return Format("column", (Field("column", kind),))


def _map_conversion(narrow: ft.Map, wide: ft.Map) -> Convert | None:
    key, value = conversion(narrow.key, wide.key), conversion(narrow.value, wide.value)

    def rebuild(column: Column) -> Column:
        if value is not None:
            column = F.transform_values(column, lambda _, item: value(item))
        if key is not None:
            column = F.transform_keys(column, lambda name, _: key(name))
        return column

    return None if key is None and value is None else rebuild


def missing(kind: ft.FieldType) -> Column:
    """A column of nulls."""
    return F.lit(None).cast(spark_type(kind))


def _record_conversion(narrow: Format, wide: Format) -> Convert | None:
    conversions = {
        field.name: conversion(there.type, field.type)
        for field in wide.fields
        if (there := narrow.by_name.get(field.name)) is not None
    }
    if list(narrow.by_name) == list(wide.by_name) and not any(conversions.values()):
        return None

    def part(column: Column, field: Field) -> Column:
        if field.name not in conversions:
            return missing(field.type)
        convert = conversions[field.name]
        inner = column.getField(field.name)
        return inner if convert is None else convert(inner)

    def rebuild(column: Column) -> Column:
        parts = [part(column, field).alias(field.name) for field in wide.fields]
        return F.when(column.isNotNull(), F.struct(*parts))

    return rebuild


def spark_type(kind: ft.FieldType) -> DataType:
    """The type that Spark has for a field."""
    arrow = columns.schema(_one(kind), spark_safe=True).field(0).type
    return from_arrow_type(arrow, prefer_timestamp_ntz=False)
