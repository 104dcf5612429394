"""Options of catalog tables, which Spark gives to a source when a table is created, and not when it is read.

    CREATE TABLE tracks USING heliograph OPTIONS (path 'data', channel 'air.tracks')

What Spark does hand on, from the catalog to whoever reads the table, is the table's columns. So the columns
that the source finds for a table carry its options, in the metadata of the first of them. A table whose
columns the user wrote has no such place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructField, StructType

from heliograph.spark.source.option_values import OF_SPARK, TABLE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "heliograph.options"
"""In the metadata of a column."""
OF_TABLES: Final = "provider"
"""An option that Spark gives for tables only."""


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The columns of a table with its options in them; those of anything else as they are."""
    if OF_TABLES not in {name.lower() for name in given} or not schema.fields:
        return schema
    own = {
        name: value
        for name, value in given.items()
        if name.lower() not in OF_SPARK and not name.lower().startswith(TABLE_PREFIX)
    }
    first, *others = schema.fields
    marked = StructField(first.name, first.dataType, first.nullable, {**first.metadata, KEY: json.dumps(own)})
    return StructType([marked, *others])


def options_of(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """What was given, or else what the columns of a table say."""
    for field in schema.fields:
        said = (field.metadata or {}).get(KEY)
        if said is not None:
            return {**json.loads(said), **given}
    return dict(given)


def without_options(schema: StructType) -> StructType:
    """The columns alone."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in schema.fields])
