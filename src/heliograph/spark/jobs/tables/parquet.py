"""A folder of Parquet files in Hive's layout, with a list of them that says how far it goes.

    tracks/event_date=2026-11-18/9d0c…-00000.parquet
    tracks/_heliograph/table.json                        files, columns, positions

A batch is committed by replacing `table.json`:

1. Its files lie in `_heliograph/staging`, synced.
2. `table.json` lists them under their final names, with the positions that the table reaches by them.
3. They get those names. Whoever finds them staged though they are listed gives them their names first.

A batch that was not committed leaves nothing that a reader of the folder could see. Someone who reads
the folder while a batch is at step 3 may see a part of it; who reads what `table.json` lists never does.
Small files are joined in the same way, and the old ones are removed at step 3.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from heliograph.errors import TableMismatch
from heliograph.runtime.fault_points import reach
from heliograph.spark.jobs.tables.rewrite import groups, join
from heliograph.spark.jobs.tables.workplace import DataFile, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heliograph.spark.jobs.tables.rewrite import RewritePolicy
    from heliograph.spark.jobs.tables.workplace import Workplace
    from heliograph.spark.source.partitions import Key

LIST: Final = "table.json"
LAYOUT: Final = 1


class _State(msgspec.Struct, frozen=True):
    """What `table.json` holds."""

    layout: int
    version: int
    columns: str
    """The Arrow schema without the partitions' columns, as Arrow serialises it."""
    positions: dict[str, Any]
    files: list[DataFile]
    moves: list[tuple[DataFile, DataFile]] = []
    """Files that may still be where the first of two says."""
    removed: list[str] = []
    """Files that may still be there, and belong to the table no more."""


class ParquetTable:
    """One such folder."""

    keeps_partition_columns = False

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._list = place.own / LIST
        self._state = self._read()
        self._finish()
        place.forget()

    def positions(self, _partitions: Iterable[Key]) -> dict[str, Any] | None:
        return None if self._state is None else self._state.positions

    def files(self) -> list[DataFile]:
        return [] if self._state is None else list(self._state.files)

    def columns(self) -> pa.Schema | None:
        return None if self._state is None else _schema(self._state.columns)

    def commit(
        self, staged: Sequence[DataFile], schema: pa.Schema, by: Sequence[str], positions: dict[str, Any]
    ) -> None:
        """Take staged files in. Columns that are new are NULL in the rows of older files."""
        targets = self._place.targets(staged)
        schema = pa.schema([column for column in schema if column.name not in by])
        reach("table-staged")
        self._replace(
            [*self.files(), *targets], schema, positions, list(zip(staged, targets, strict=True)), []
        )
        reach("table-committed")
        self._finish()

    def replace(self, staged: Sequence[DataFile], schema: pa.Schema, positions: dict[str, Any]) -> None:
        """Put staged files in the place of all that the table has."""
        targets = self._place.targets(staged)
        old = [file.path for file in self.files()]
        reach("table-staged")
        self._replace(targets, schema, positions, list(zip(staged, targets, strict=True)), old)
        reach("table-committed")
        self._finish()

    def compact(self, policy: RewritePolicy) -> tuple[int, int]:
        """Join small files; returns how many became how many."""
        assert self._state is not None
        schema = _schema(self._state.columns)
        before = after = 0
        for group in groups(self._state.files, policy):
            number = self._state.version
            staged = self._place.staging / group[0].folder / f"joined-{number}.parquet"
            rows = join([self._place.table / file.path for file in group], schema, staged)
            assert rows == sum(file.rows for file in group)
            (found,) = [file for file in self._place.staged() if file.path.endswith(staged.name)]
            targets = self._place.targets([found])
            old = {file.path for file in group}
            kept = [file for file in self._state.files if file.path not in old]
            reach("table-rewritten")
            moves = [(found, targets[0])]
            self._replace([*kept, *targets], schema, self._state.positions, moves, sorted(old))
            reach("table-replaced")
            self._finish()
            before, after = before + len(group), after + 1
        return before, after

    def _replace(
        self,
        files: list[DataFile],
        schema: pa.Schema,
        positions: dict[str, Any],
        moves: list[tuple[DataFile, DataFile]],
        removed: list[str],
    ) -> None:
        version = 1 if self._state is None else self._state.version + 1
        columns = base64.b64encode(schema.serialize().to_pybytes()).decode()
        self._state = _State(LAYOUT, version, columns, positions, files, moves, removed)
        write_whole(self._list, msgspec.json.encode(self._state))

    def _finish(self) -> None:
        """Bring the folder to what the list says; whatever was done of it already is passed over."""
        if self._state is None or not (self._state.moves or self._state.removed):
            return
        if self._state.moves:
            self._place.move(*zip(*self._state.moves, strict=True))
        reach("table-moved")
        for path in self._state.removed:
            (self._place.table / path).unlink(missing_ok=True)
        self._place.clear()

    def _read(self) -> _State | None:
        try:
            data = self._list.read_bytes()
        except FileNotFoundError:
            return None
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.MsgspecError as error:
            raise TableMismatch(
                str(self._place.table), f"its list {self._list.name} cannot be read: {error}"
            ) from None
        if state.layout != LAYOUT:
            raise TableMismatch(
                str(self._place.table), f"its list has layout {state.layout}, newer than this program"
            )
        return state


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
