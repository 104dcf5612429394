"""An Iceberg table, committed by pyiceberg in a SQLite catalog beside it; Spark writes its files.

    tracks/catalog.db      the catalog: uri "sqlite:///tracks/catalog.db", table "heliograph.events"
    tracks/data            files, in folders of their partition
    tracks/metadata        what Iceberg knows of them

A batch goes in as one into a Delta table does (`heliograph.spark.jobs.tables.delta`), and its commit is one
transaction of the catalog: new columns, files, and the property `heliograph.positions` with the positions
that the table reaches by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from heliograph.errors import MissingExtra, TableMismatch
from heliograph.runtime.fault_points import reach
from heliograph.spark.jobs.tables.rewrite import groups, join
from heliograph.spark.jobs.tables.workplace import DataFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heliograph.spark.jobs.tables.rewrite import RewritePolicy
    from heliograph.spark.jobs.tables.workplace import Workplace
    from heliograph.spark.source.partitions import Key

NAME: Final = ("heliograph", "events")
POSITIONS: Final = "heliograph.positions"
DATA: Final = "data/"


class IcebergTable:
    """One Iceberg table, alone in its catalog."""

    keeps_partition_columns = True  # Iceberg finds a file's partition in its columns

    def __init__(self, place: Workplace) -> None:
        try:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - for this format only
        except ModuleNotFoundError as error:
            raise MissingExtra("archive to Iceberg", error.name or "pyiceberg", "tables") from error
        self._place = place
        self._root = place.table.absolute()
        self._catalog = SqlCatalog(
            "heliograph", uri=f"sqlite:///{self._root}/catalog.db", warehouse=f"file://{self._root}"
        )
        self._catalog.create_namespace_if_not_exists(NAME[0])
        self._table = self._catalog.load_table(NAME) if self._catalog.table_exists(NAME) else None
        place.remove_uncommitted({file.path for file in self.files()})

    def close(self) -> None:
        self._catalog.close()

    def positions(self, _partitions: Iterable[Key]) -> dict[str, Any] | None:
        if self._table is None:
            return None
        found: dict[str, Any] | None = msgspec.json.decode(self._table.properties.get(POSITIONS, "null"))
        return found

    def files(self) -> list[DataFile]:
        if self._table is None or self._table.current_snapshot() is None:
            return []
        rows = self._table.inspect.files().select(["file_path", "record_count", "file_size_in_bytes"])
        return [
            DataFile(self._relative(row["file_path"]), row["record_count"], row["file_size_in_bytes"])
            for row in rows.to_pylist()
        ]

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else self._table.schema().as_arrow()

    def replace(self, staged: Sequence[DataFile], schema: pa.Schema, positions: dict[str, Any]) -> None:
        """Put staged files in the place of all that the table has; older snapshots keep theirs."""
        self._commit(staged, schema, (), positions, replaces=True)

    def commit(
        self, staged: Sequence[DataFile], schema: pa.Schema, by: Sequence[str], positions: dict[str, Any]
    ) -> None:
        self._commit(staged, schema, by, positions, replaces=False)

    def _commit(
        self,
        staged: Sequence[DataFile],
        schema: pa.Schema,
        by: Sequence[str],
        positions: dict[str, Any],
        *,
        replaces: bool,
    ) -> None:
        from pyiceberg.exceptions import ValidationError  # noqa: PLC0415 - as above
        from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 - as above

        targets = self._place.targets(staged, DATA)
        if self._table is None:
            with (
                self._catalog.create_table_transaction(
                    NAME, optional(schema), location=f"file://{self._root}"
                ) as made,
                made.update_spec() as spec,
            ):
                for name in by:
                    spec.add_identity(name)
            self._table = self._catalog.load_table(NAME)
        reach("table-staged")
        self._place.note(targets)
        self._place.move(staged, targets)
        reach("table-moved")
        paths = [self._uri(target) for target in targets]
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(optional(schema))
                transaction.set_properties({POSITIONS: msgspec.json.encode(positions).decode()})
                if replaces and self._table.current_snapshot() is not None:
                    transaction.delete(AlwaysTrue())
                if paths:
                    transaction.add_files(paths)
        except (ValidationError, ValueError, TypeError) as error:
            self._place.remove_uncommitted(set())
            raise TableMismatch(str(self._root), f"Iceberg refuses what comes: {error}") from error
        reach("table-committed")
        self._place.forget()

    def compact(self, policy: RewritePolicy) -> tuple[int, int]:
        """Join small files. The old ones stay for older snapshots, until those are expired."""
        assert self._table is not None
        before = after = 0
        for group in groups(self.files(), policy):
            staged = self._place.staging / group[0].folder / "joined.parquet"
            rows = join([self._root / file.path for file in group], self._plain_schema(), staged)
            assert rows == sum(file.rows for file in group)
            found = self._place.staged()
            targets = self._place.targets(found, DATA)
            self._place.note(targets)
            self._place.move(found, targets)
            reach("table-rewritten")
            self._replace(group, targets)
            reach("table-replaced")
            self._place.forget()
            before, after = before + len(group), after + 1
        return before, after

    def _replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files  # noqa: PLC0415 - as above

        assert self._table is not None
        gone = {self._uri(file) for file in old}
        paths = iter([self._uri(file) for file in new])
        known = [task.file for task in self._table.scan().plan_files() if task.file.file_path in gone]
        with self._table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
            for file in known:
                change.delete_data_file(file)
            for file in parquet_files_to_data_files(self._table.io, self._table.metadata, paths):
                change.append_data_file(file)

    def _plain_schema(self) -> pa.Schema:
        """The table's columns as Spark writes them: without Iceberg's ids."""
        assert self._table is not None
        return plain_schema(self._table.schema().as_arrow())

    def _relative(self, uri: str) -> str:
        return uri.removeprefix(f"file://{self._root}/")

    def _uri(self, file: DataFile) -> str:
        """As pyiceberg opens it, which takes the text after `file://` for a path and decodes nothing."""
        return f"file://{self._root}/{file.path}"


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a table as they are in files: without Iceberg's ids and large types."""
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), nullable=field.nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field))
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def optional(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be NULL.

    Whether Spark calls a column nullable depends on how it came to it, and a table that once had a required
    column refuses the next batch.
    """
    return pa.schema([_optional_field(field) for field in schema])


def _optional_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_optional_field(kind.field(at)) for at in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_optional_field(kind.value_field))
    return field.with_type(kind).with_nullable(True)
