"""Sealed files as data frames: read by Spark's own Parquet reader, brought to the columns of `rows.schema`.

Files that have the same formats in the same layout are read together. A file that Spark alone cannot bring
to the wanted columns is refused by `can_read`, and its rows are left to our source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use
from pyspark.sql.pandas.types import from_arrow_schema

from heliograph.codec.columnar import columns
from heliograph.codec.columnar.unify import unified
from heliograph.filters.arrow_columns import HEADER_COLUMN
from heliograph.filters.schema import USER_HEADERS
from heliograph.filters.spark_sql import to_sql
from heliograph.filters.typed import Checked, Const
from heliograph.journal.format.records import EVENT
from heliograph.journal.writing.segment_writer import INTEGERS, OTHERS
from heliograph.spark.source.convert import NotBySpark, conversion, missing
from heliograph.spark.source.filters import NO_FIELDS
from heliograph.spark.source.rows import ENVELOPE, HEADER_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from heliograph.model.formats import Field, Format
    from heliograph.spark.source.plan import SealedFile

PARQUET_OPTIONS: Final = {
    # Whatever the session says: rows that cannot be read must not just be missing.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    # Every file is named here, so nothing is to be found out from the names of folders.
    "recursiveFileLookup": "true",
}
_PATTERN_CHARACTERS: Final = frozenset("{}[]*?\\")


class ColumnOrigin(NamedTuple):
    """Where a file has the fields of some of its events: at the top, or inside a struct column."""

    struct: str | None
    format: Format


class Sealed:
    """Makes data frames of sealed files.

    Args:
        joined: the format of the columns, or None for envelopes.
        types: names of the event types that are wanted; None: all.
        times: conditions on the columns of files, in SQL, that all wanted rows fulfil.
    """

    def __init__(
        self,
        spark: SparkSession,
        channel: str,
        joined: Format | None,
        types: frozenset[str] | None,
        times: Sequence[str] = (),
    ) -> None:
        self._spark = spark
        self._channel = channel
        self._joined = joined
        self._types = types
        self._times = times
        self._columns: dict[tuple[Any, ...], list[Column] | None] = {}
        """Of files with one layout and the same formats; None when Spark cannot make them."""

    def can_read(self, file: SealedFile) -> bool:
        """Whether Spark alone can give the rows of a file the columns that are wanted."""
        if self._joined is None:
            return True
        if file.layout not in ("unified", "structs"):
            return False
        return self._typed(file, self._joined) is not None

    def frames(self, files: Iterable[SealedFile]) -> list[DataFrame]:
        """The rows of these files, each of which `can_read` allows."""
        groups: dict[tuple[Any, ...], list[SealedFile]] = {}
        for file in files:
            cut = None if file.whole else file.path
            groups.setdefault((file.partition, *_kind_of(file), file.only_events, cut), []).append(file)
        return [self._frame(group) for group in groups.values()]

    def _frame(self, group: Sequence[SealedFile]) -> DataFrame:
        file = group[0]
        paths = [_hadoop_path(member.path) for member in group]
        frame = self._spark.read.schema(self._schema(file)).options(**PARQUET_OPTIONS).parquet(*paths)
        if self._times:
            frame = frame.filter(" AND ".join(self._times))
        if not file.whole:
            frame = frame.filter((F.col("_offset") >= file.first) & (F.col("_offset") < file.next))
        if self._types is not None and not {fmt.name for fmt in file.formats} <= self._types:
            frame = frame.filter(F.col("_type").isin(*sorted(self._types)))
        header = self._header(file.partition).alias(HEADER_COLUMN)
        if self._joined is None:
            kept = [F.col(f"_{name}").cast("int" if name == "kind" else "binary") for name in ENVELOPE]
            return frame.select(header, *(c.alias(name) for c, name in zip(kept, ENVELOPE, strict=True)))
        if not file.only_events:
            frame = frame.filter(F.col("_kind") == EVENT)
        return frame.select(header, *(self._typed(file, self._joined) or ()))

    def _schema(self, file: SealedFile) -> StructType:
        """The columns of a file, as `heliograph.journal.writing.segment_writer` lays them out."""
        fields = [pa.field(name, pa.int64()) for name in INTEGERS]
        fields += [pa.field(name, kind) for name, kind in OTHERS.items()]
        for origin in self._origins(file) if self._joined is not None else ():
            inside = list(columns.schema(origin.format, spark_safe=True))
            fields += inside if origin.struct is None else [pa.field(origin.struct, pa.struct(inside))]
        return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=False)

    def _origins(self, file: SealedFile) -> list[ColumnOrigin]:
        if file.layout == "unified":
            return [ColumnOrigin(None, unified(file.formats))]
        wanted = [fmt for fmt in file.formats if self._types is None or fmt.name in self._types]
        return [ColumnOrigin(fmt.id.hex(), unified([fmt])) for fmt in wanted]

    def _typed(self, file: SealedFile, joined: Format) -> list[Column] | None:
        """The columns of the events; None when one cannot be had from this file."""
        alike = _kind_of(file)
        if alike not in self._columns:  # made once for all of them: each column is some calls into Java
            origins = self._origins(file)
            try:
                self._columns[alike] = [_column(field, origins).alias(field.name) for field in joined.fields]
            except NotBySpark:
                self._columns[alike] = None
        return self._columns[alike]

    def _header(self, partition: str) -> Column:
        """In one text, because each part of a column that is built in Python costs a call into Java."""
        fields = {
            **{name: f"_{name}" for name in HEADER_TYPE.names},
            "channel": _literal(self._channel),
            "partition": _literal(partition),
            "redelivered": "FALSE",
            USER_HEADERS: "_headers",
            "source_ts": _microseconds("_source_ts"),
            "append_ts": _microseconds("_append_ts"),
            "source_ns": "_source_ts",
            "append_ns": "_append_ts",
        }
        return F.expr(f"struct({', '.join(f'{fields[name]} AS {name}' for name in HEADER_TYPE.names)})")


def _kind_of(file: SealedFile) -> tuple[Any, ...]:
    """What files have in common that can be read together."""
    return file.layout, tuple(fmt.id for fmt in file.formats)


def _column(field: Field, origins: Sequence[ColumnOrigin]) -> Column:
    """A field of the events; each row has it from the one origin whose format is its own."""
    found = []
    for origin in origins:
        there = origin.format.by_name.get(field.name)
        if there is not None:
            top = F.col(_quoted(origin.struct or field.name))
            column = top if origin.struct is None else top.getField(field.name)
            convert = conversion(there.type, field.type)
            found.append(column if convert is None else convert(column))
    match found:
        case []:
            return missing(field.type)
        case [only]:
            return only
        case _:
            return F.coalesce(*found)


def _microseconds(name: str) -> str:
    """Nanoseconds as a timestamp, towards the past; in integers, because a double would round them."""
    return f"timestamp_micros({name} div 1000 - CASE WHEN {name} % 1000 < 0 THEN 1L ELSE 0L END)"


def _literal(text: str) -> str:
    return to_sql(Checked(Const(text, "text"), NO_FIELDS, ""))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _hadoop_path(path: str) -> str:
    """A file of this machine, written so that Spark takes no character of it for a pattern."""
    return "file:" + "".join(f"\\{c}" if c in _PATTERN_CHARACTERS else c for c in path)
