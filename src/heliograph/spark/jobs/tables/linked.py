"""Tables of links to sealed files, in Delta and in Iceberg: one commit adds some and removes others.

    with linked_table("delta", place, "air.tracks") as table:
        table.replace(added, removed, schema)

The table itself is the only record of what it holds: a run compares its files with those of the history.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa

from heliograph.errors import MissingExtra, TableMismatch
from heliograph.spark.jobs.tables.column_types import NoCommonType, joined_columns
from heliograph.spark.jobs.tables.delta import footer_statistics
from heliograph.spark.jobs.tables.iceberg import NAME, optional, plain_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from heliograph.spark.jobs.tables.links import LinkedFile
    from heliograph.spark.jobs.tables.workplace import Workplace

FORMATS: Final = ("delta", "iceberg")
CHANNEL: Final = "heliograph.channel"
"""The property of a table that says whose sealed files it holds."""


class LinkedTable(Protocol):
    """One table of links, for the job that holds the lock of its folder."""

    cannot: str
    """What is said of a column whose type has changed."""

    def paths(self) -> set[str]:
        """What it holds, counted from its folder."""

    def columns(self) -> pa.Schema | None:
        """Its columns; None before its first commit."""

    def joined(self, there: pa.Schema, new: pa.Schema) -> pa.Schema:
        """Its columns when files with these come; NoCommonType when the format cannot do that."""

    def replace(self, added: Sequence[LinkedFile], removed: Sequence[str], schema: pa.Schema) -> None:
        """Take some files in and let others go, all or nothing."""

    def forget(self, older_than: float) -> None:
        """Let go of versions that are older than so many seconds, before their files are removed."""


@contextmanager
def linked_table(kind: str, place: Workplace, channel: str) -> Iterator[LinkedTable]:
    """The table of a folder. TableMismatch when it is another one."""
    other = {"delta": "catalog.db", "iceberg": "_delta_log"}[kind]
    if (place.table / other).exists():
        raise TableMismatch(str(place.table), f"it is no {kind} table")
    if kind == "delta":
        yield LinkedDelta(place, channel)
        return
    table = LinkedIceberg(place, channel)
    try:
        yield table
    finally:
        table.close()


def joined_schema(
    table: LinkedTable, name: str, there: pa.Schema | None, files: Iterable[LinkedFile]
) -> pa.Schema:
    """The columns of a table and of files that come; TableMismatch names the file that does not fit."""
    known: list[pa.Schema] = []
    for file in files:
        schema = file.footer.schema.to_arrow_schema().remove_metadata()
        if schema in known:
            continue
        known.append(schema)
        try:
            there = table.joined(schema if there is None else there, schema)
        except NoCommonType as error:
            raise TableMismatch(name, f"{error} ({file.path}); {table.cannot}") from None
    assert there is not None, "a table without columns gets files"
    return there


def _insist_on_channel(place: Workplace, found: str | None, channel: str) -> None:
    if found is None:
        raise TableMismatch(str(place.table), "it was not made of the sealed files of a channel")
    if found != channel:
        raise TableMismatch(str(place.table), f"it holds the sealed files of {found}")


class LinkedDelta:
    """A Delta table; paths are relative, so the folder may be moved, or copied as one of plain files."""

    cannot = "Delta cannot change a type, Iceberg can widen one"

    def __init__(self, place: Workplace, channel: str) -> None:
        try:
            import deltalake  # noqa: PLC0415 - for this format only
        except ModuleNotFoundError as error:
            raise MissingExtra("register in Delta", error.name or "deltalake", "tables") from error
        self._delta = deltalake
        self._place = place
        self._channel = channel
        self._uri = str(place.table)
        self._table: Any = None
        if deltalake.DeltaTable.is_deltatable(self._uri):
            self._table = deltalake.DeltaTable(self._uri)
            _insist_on_channel(place, self._table.metadata().configuration.get(CHANNEL), channel)

    def paths(self) -> set[str]:
        if self._table is None:
            return set()
        return set(pa.table(self._table.get_add_actions(flatten=True)).column("path").to_pylist())

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def joined(self, there: pa.Schema, new: pa.Schema) -> pa.Schema:
        return joined_columns(there, new, widens=False)

    def replace(self, added: Sequence[LinkedFile], removed: Sequence[str], schema: pa.Schema) -> None:
        self._fit(schema)
        self._table.create_write_transaction(
            [*map(self._added, added), *map(self._removed, removed)],
            mode="append",
            schema=self._table.schema(),
        )
        self._table.update_incremental()

    def forget(self, older_than: float) -> None:
        """Nothing: Delta lists older versions until its log is cleaned up, and says which file is missing."""

    def _fit(self, schema: pa.Schema) -> None:
        """Make the table, or give it the columns that are new."""
        if self._table is None:
            self._table = self._delta.DeltaTable.create(
                self._uri,
                schema,
                mode="error",
                configuration={CHANNEL: self._channel},
                raise_if_key_not_exists=False,
            )
        elif schema != self.columns():
            self._delta.write_deltalake(self._table, schema.empty_table(), mode="append", schema_mode="merge")
            self._table.update_incremental()

    def _added(self, file: LinkedFile) -> Any:
        return self._delta.transaction.AddAction(
            path=file.path,
            size=file.size,
            partition_values={},
            modification_time=file.modified_ms,
            data_change=True,
            stats=msgspec.json.encode(footer_statistics(file.footer)).decode(),
        )

    def _removed(self, path: str) -> Any:
        now = time.time_ns() // 1_000_000
        return self._delta.transaction.RemoveAction(path, data_change=True, deletion_timestamp=now)


class LinkedIceberg:
    """An Iceberg table in a SQLite catalog beside it, under the name that archives have."""

    cannot = "Iceberg widens integers and floats, and changes no other type"

    def __init__(self, place: Workplace, channel: str) -> None:
        try:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - for this format only
        except ModuleNotFoundError as error:
            raise MissingExtra("register in Iceberg", error.name or "pyiceberg", "tables") from error
        self._channel = channel
        self._root = place.table.absolute()
        self._catalog = SqlCatalog(
            "heliograph", uri=f"sqlite:///{self._root}/catalog.db", warehouse=f"file://{self._root}"
        )
        self._catalog.create_namespace_if_not_exists(NAME[0])
        self._table: Any = None
        if self._catalog.table_exists(NAME):
            self._table = self._catalog.load_table(NAME)
            _insist_on_channel(place, self._table.properties.get(CHANNEL), channel)

    def close(self) -> None:
        self._catalog.close()

    def paths(self) -> set[str]:
        return {self._relative(file.file_path) for file in self._files()}

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else plain_schema(self._table.schema().as_arrow())

    def joined(self, there: pa.Schema, new: pa.Schema) -> pa.Schema:
        return joined_columns(there, new, widens=True)

    def replace(self, added: Sequence[LinkedFile], removed: Sequence[str], schema: pa.Schema) -> None:
        from pyiceberg.exceptions import ValidationError  # noqa: PLC0415 - as above
        from pyiceberg.table import TableProperties  # noqa: PLC0415 - as above

        columns = optional(schema)
        if self._table is None:
            self._table = self._catalog.create_table(
                NAME,
                columns,
                location=f"file://{self._root}",
                properties={
                    CHANNEL: self._channel,
                    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
                },
            )
        gone = set(removed)
        known = [file for file in self._files() if self._relative(file.file_path) in gone]
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(columns)
                names = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
                snapshot = transaction.update_snapshot()
                with snapshot.overwrite() if known else snapshot.fast_append() as change:
                    for file in known:
                        change.delete_data_file(file)
                    for new in self._data_files(transaction.table_metadata, added):
                        change.append_data_file(new)
        except (ValidationError, ValueError, TypeError) as error:
            raise TableMismatch(str(self._root), f"Iceberg refuses what comes: {error}") from error

    def forget(self, older_than: float) -> None:
        """Expire snapshots of before, so that none names a file that is removed."""
        if self._table is not None:
            before = datetime.now(UTC) - timedelta(seconds=older_than)
            self._table.maintenance.expire_snapshots().older_than(before).commit()
            self._table.refresh()

    def _data_files(self, metadata: Any, files: Iterable[LinkedFile]) -> Iterator[Any]:
        """As pyiceberg makes them for `add_files`, but what depends on the table alone is made once.

        It compares the columns of each file with those of the table, which takes ten times as long as all
        else, and has been done here for each kind of file.
        """
        from pyiceberg.io import pyarrow as io  # noqa: PLC0415 - as above
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415 - as above

        schema = metadata.schema()
        plan = io.compute_statistics_plan(schema, metadata.properties)
        ids = io.parquet_path_to_id_mapping(schema)
        # It warns of each column without statistics; the journal writes none where NaN would make them wrong.
        logging.getLogger(io.__name__).setLevel(logging.ERROR)
        for file in files:
            found = io.data_file_statistics_from_parquet_metadata(file.footer, plan, ids)
            yield DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"file://{self._root}/{file.path}",
                file_format=FileFormat.PARQUET,
                partition=found.partition(metadata.spec(), schema),
                file_size_in_bytes=file.size,
                sort_order_id=None,
                spec_id=metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **found.to_serialized_dict(),
            )

    def _files(self) -> list[Any]:
        if self._table is None or self._table.current_snapshot() is None:
            return []
        return [task.file for task in self._table.scan().plan_files()]

    def _relative(self, uri: str) -> str:
        return uri.removeprefix(f"file://{self._root}/")
