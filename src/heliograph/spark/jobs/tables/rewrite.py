"""Small Parquet files of a table made into fewer: which ones go together, and one file out of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from heliograph.spark.jobs.tables.workplace import DataFile

ROWS_AT_ONCE: Final = 65_536


class RewritePolicy(NamedTuple):
    """When small files are made into larger ones."""

    file_bytes: int
    """Files grow up to this; those of less than half of it are small."""
    after: int
    """So many small files of one partition are rewritten; 0: none ever."""


def groups(files: Iterable[DataFile], policy: RewritePolicy) -> list[list[DataFile]]:
    """Small files of one partition that fit into one file together.

    A group that is full is no longer small as one file, so at most one small file per partition is left, and
    what was rewritten once is seldom rewritten again.
    """
    by_folder: dict[str, list[DataFile]] = {}
    for file in files:
        if file.bytes < policy.file_bytes / 2:
            by_folder.setdefault(file.folder, []).append(file)
    found: list[list[DataFile]] = []
    for small in by_folder.values():
        if policy.after and len(small) >= policy.after:
            found += _packed(small, policy.file_bytes)
    return found


def _packed(small: Sequence[DataFile], most: int) -> list[list[DataFile]]:
    packs: list[list[DataFile]] = [[]]
    for file in small:
        if packs[-1] and sum(one.bytes for one in packs[-1]) + file.bytes > most:
            packs.append([])
        packs[-1].append(file)
    return [pack for pack in packs if len(pack) > 1]


def join(paths: Sequence[Path], schema: pa.Schema, target: Path) -> int:
    """One file with the rows of several, in their order; returns how many.

    A column that a file does not have is NULL in its rows, and a narrower type is widened.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for path in paths:
            for batch in fitted(path, schema):
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def fitted(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the columns of a schema that came later."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            arrays = [fit(_column(batch, field.name), field.type, batch.num_rows) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    at = batch.schema.get_field_index(name)
    return None if at < 0 else batch.column(at)


def fit(array: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """An array in a type that has room for it; structs field by field, as later ones have more fields."""
    if array is None:
        return pa.nulls(rows, kind)
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        parts = []
        for field in kind:
            at = array.type.get_field_index(field.name)
            parts.append(fit(None if at < 0 else array.field(at), field.type, rows))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    return array.cast(kind)
