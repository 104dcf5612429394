"""A Delta table, written by delta-rs; the Parquet files in it are written by Spark.

    DeltaTable("tables/tracks").transaction_version("heliograph/air.tracks/5f0c…")     the next offset

1. The batch's files lie in `_heliograph/staging`, synced, and `moving.json` names what they will be called.
2. They get those names. No reader of Delta sees a file that no commit names.
3. One commit adds them, and says by a transaction id for each partition of the channel the next offset.
4. `moving.json` is removed. Whoever finds it removes files that it names and that the table does not have.

Transaction ids are in the state of the table itself, and so outlive its log. Statistics of the files go into
the commit, so that engines skip files by offset, time and numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.errors import MissingExtra, TableMismatch
from heliograph.runtime.fault_points import reach
from heliograph.spark.jobs.tables.workplace import DataFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from heliograph.spark.jobs.tables.rewrite import RewritePolicy
    from heliograph.spark.jobs.tables.workplace import Workplace
    from heliograph.spark.source.partitions import Key

KEY: Final = "heliograph"


class DeltaLakeTable:
    """One Delta table."""

    keeps_partition_columns = False

    def __init__(self, place: Workplace) -> None:
        try:
            import deltalake  # noqa: PLC0415 - for this format only
        except ModuleNotFoundError as error:
            raise MissingExtra("archive to Delta", error.name or "deltalake", "tables") from error
        self._delta = deltalake
        self._place = place
        self._uri = str(place.table)
        self._table = (
            deltalake.DeltaTable(self._uri) if deltalake.DeltaTable.is_deltatable(self._uri) else None
        )
        place.remove_uncommitted({file.path for file in self.files()})

    def positions(self, partitions: Iterable[Key]) -> dict[str, Any] | None:
        """Offsets are those of the transaction ids; their epochs are in the log, while that lasts."""
        if self._table is None:
            return None
        last = next((commit[KEY] for commit in self._table.history() if KEY in commit), "{}")
        found: dict[str, Any] = msgspec.json.decode(last)
        for key in partitions:
            if (offset := self._table.transaction_version(_app(*key))) is not None:
                at = found.setdefault(key.channel, {}).setdefault(key.partition, {"epoch": 0})
                at["offset"] = offset
        return found

    def files(self) -> list[DataFile]:
        if self._table is None:
            return []
        rows = pa.table(self._table.get_add_actions(flatten=True)).select(
            ["path", "num_records", "size_bytes"]
        )
        return [DataFile(row["path"], row["num_records"], row["size_bytes"]) for row in rows.to_pylist()]

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def commit(
        self, staged: Sequence[DataFile], schema: pa.Schema, by: Sequence[str], positions: dict[str, Any]
    ) -> None:
        self._commit(staged, schema, by, positions, "append")

    def replace(self, staged: Sequence[DataFile], schema: pa.Schema, positions: dict[str, Any]) -> None:
        """Put staged files in the place of all that the table has; older versions keep theirs."""
        self._commit(staged, schema, (), positions, "overwrite")

    def _commit(
        self,
        staged: Sequence[DataFile],
        schema: pa.Schema,
        by: Sequence[str],
        positions: dict[str, Any],
        mode: str,
    ) -> None:
        targets = self._place.targets(staged)
        self._fit(schema, by)
        assert self._table is not None
        reach("table-staged")
        self._place.note(targets)
        self._place.move(staged, targets)
        reach("table-moved")
        self._table.create_write_transaction(
            [self._added(file) for file in targets],
            mode=mode,
            schema=self._table.schema(),
            partition_by=list(by),
            commit_properties=self._delta.CommitProperties(
                custom_metadata={KEY: msgspec.json.encode(positions).decode()},
                app_transactions=[
                    self._delta.Transaction(_app(channel, partition), at["offset"])
                    for channel, partitions in positions.items()
                    for partition, at in partitions.items()
                ],
            ),
        )
        reach("table-committed")
        self._table.update_incremental()
        self._place.forget()

    def compact(self, policy: RewritePolicy) -> tuple[int, int]:
        """Join small files. The old ones stay for older versions of the table, until it is vacuumed."""
        from heliograph.spark.jobs.tables.rewrite import groups  # noqa: PLC0415 - most commits need none

        assert self._table is not None
        before = after = 0
        for folder in sorted({group[0].folder for group in groups(self.files(), policy)}):
            partition = DataFile(f"{folder}/x", 0, 0).partition
            filters = [(name, "=", value) for name, value in partition.items()]
            done = self._table.optimize.compact(partition_filters=filters, target_size=policy.file_bytes)
            before, after = before + done["numFilesRemoved"], after + done["numFilesAdded"]
            reach("table-replaced")
        return before, after

    def _fit(self, schema: pa.Schema, by: Sequence[str]) -> None:
        """Make the table, or give it the columns that are new."""
        if self._table is None:
            self._table = self._delta.DeltaTable.create(
                self._uri, schema, mode="error", partition_by=list(by)
            )
            return
        there = self.columns()
        assert there is not None
        known = [column for column in schema if column.name in there.names]
        for column in known:
            kind = there.field(column.name).type
            if not _fits(column.type, kind):
                reason = f"its column {column.name} is {kind}, and events have {column.type}"
                raise TableMismatch(self._uri, f"{reason}; Delta cannot change a type")
        if len(known) < len(schema) or any(column.type != there.field(column.name).type for column in known):
            self._delta.write_deltalake(self._table, schema.empty_table(), mode="append", schema_mode="merge")
            self._table.update_incremental()

    def _added(self, file: DataFile) -> Any:
        path = self._place.table / file.path
        return self._delta.transaction.AddAction(
            path=file.path,
            size=file.bytes,
            partition_values=file.partition,
            modification_time=path.stat().st_mtime_ns // 1_000_000,
            data_change=True,
            stats=msgspec.json.encode(statistics(path)).decode(),
        )


def _fits(new: pa.DataType, there: pa.DataType) -> bool:
    """Whether a column has room for values of a type as soon as its structs have the fields that are new."""
    if pa.types.is_struct(new) and pa.types.is_struct(there):
        names = {field.name for field in there}
        return all(_fits(field.type, there.field(field.name).type) for field in new if field.name in names)
    if pa.types.is_list(new) and pa.types.is_list(there):
        return _fits(new.value_type, there.value_type)
    return bool(new == there)


def _app(channel: str, partition: str) -> str:
    return f"heliograph/{channel}/{partition}"


def statistics(path: Path) -> dict[str, Any]:
    """What Delta keeps of a file: rows, and where Parquet is exact, least, largest and missing values."""
    return footer_statistics(pq.read_metadata(path))


def footer_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The same of a file whose footer is at hand."""
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    for at in range(footer.num_columns):
        column = footer.schema.column(at)
        found = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        if column.max_repetition_level or any(one is None or not one.has_null_count for one in found):
            continue
        steps = column.path.split(".")
        _put(missing, steps, sum(one.null_count for one in found))
        if column.physical_type == "INT64" and column.logical_type.type in ("NONE", "INT"):
            known = [one for one in found if one.has_min_max]
            if known and len(known) == len([one for one in found if one.num_values]):
                _put(least, steps, min(one.min for one in known))
                _put(largest, steps, max(one.max for one in known))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": missing}


def _put(tree: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        tree = tree.setdefault(step, {})
    tree[steps[-1]] = value
