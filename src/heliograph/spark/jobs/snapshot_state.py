"""The state in a table of `snapshot` as events, to be served to late joiners and to who has missed events.

    held = jobs.load_snapshot("tables/latest", Track)
    tracks.state(lambda: jobs.load_snapshot("tables/latest", Track).events)

It is read without Spark and without a lock, also while the job goes on: a table has one state or the next.
`positions` say how far in the history that is; `hg.history(folder, channel, start=held.positions)` and
`channel.consumer(start=held.positions)` go on from there.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from heliograph.errors import FormatError, MissingExtra, NoHistory, TableMismatch
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import pyarrow as pa

ATTEMPTS: Final = 20
"""How often a folder of Parquet files is read that is replaced meanwhile."""


class SnapshotState(NamedTuple):
    """What a table of `snapshot` holds."""

    events: list[Event]
    """The latest of each key."""
    positions: dict[str, int]
    """For each partition of the channel the offset that comes next."""


def load_snapshot(table: str | os.PathLike[str], *types: type[Event]) -> SnapshotState:
    """The latest event of each key, as the last run of the job has left them.

    Args:
        table: its folder; Parquet, Delta or Iceberg.
        types: the classes of the events; rows of other types are left out.

    Raises NoHistory when there is no such table, TableMismatch when it is none of one channel, FormatError
    when a class needs a field that the table does not have.
    """
    place = Path(table)
    if not types:
        raise TableMismatch(str(place), "no class is named: load_snapshot('tables/latest', Track)")
    rows, positions = _read(place)
    if len(positions) != 1:
        raise TableMismatch(str(place), f"it is no snapshot: it holds {', '.join(sorted(positions))}")
    (partitions,) = positions.values()
    events = [event for cls in types for event in _events(rows, cls)]
    return SnapshotState(events, {name: at["offset"] for name, at in partitions.items()})


def _read(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    if (place / "_delta_log").is_dir():
        return _delta(place)
    if (place / "catalog.db").is_file():
        return _iceberg(place)
    if (place / "_heliograph" / "table.json").is_file():
        return _parquet(place)
    raise NoHistory(str(place.parent), place.name, ())


def _parquet(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - only who asks loads Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    for attempt in range(ATTEMPTS):
        state = msgspec.json.decode((place / "_heliograph" / "table.json").read_bytes())
        moving = {target[0]: source[0] for source, target in state["moves"]}
        try:
            tables = [_file(pq, place, file[0], moving) for file in state["files"]]
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
            continue  # it was replaced meanwhile
        return (pa.concat_tables(tables) if tables else pa.table({})), state["positions"]
    raise AssertionError


def _file(pq: Any, place: Path, name: str, moving: dict[str, str]) -> pa.Table:
    """A file of the table; one that was committed and has not got its name yet is where it was staged."""
    path = place / name
    if not path.exists() and name in moving:
        path = place / moving[name]
    with pq.ParquetFile(path) as file:
        return file.read()


def _delta(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - for this format only
    except ModuleNotFoundError as error:
        raise MissingExtra("a snapshot in Delta", error.name or "deltalake", "tables") from error
    table = DeltaTable(place)
    last = next((commit["heliograph"] for commit in table.history() if "heliograph" in commit), "{}")
    return table.to_pyarrow_table(), msgspec.json.decode(last)


def _iceberg(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    try:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - for this format only
    except ModuleNotFoundError as error:
        raise MissingExtra("a snapshot in Iceberg", error.name or "pyiceberg", "tables") from error
    uri = f"sqlite:///{place.absolute()}/catalog.db"
    with closing(SqlCatalog("heliograph", uri=uri)) as catalog:
        table = catalog.load_table("heliograph.events")
        positions = msgspec.json.decode(table.properties.get("heliograph.positions", "{}"))
        return table.scan().to_arrow(), positions


def _events(rows: pa.Table, cls: type[Event]) -> Iterator[Event]:
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    from heliograph.codec.columnar.columns import from_batch  # noqa: PLC0415 - as above
    from heliograph.codec.dynamic.reflect import event_from_mapping  # noqa: PLC0415 - as above
    from heliograph.model.compatibility import defaults_of  # noqa: PLC0415 - as above
    from heliograph.model.formats import Format  # noqa: PLC0415 - as above

    if not rows.num_rows:
        return
    info = info_of(cls)
    mine = rows.filter(pc.equal(pc.struct_field(rows.column("header"), "type"), info.name))
    if not mine.num_rows:
        return
    there = tuple(field for field in info.format.fields if field.name in rows.column_names)
    defaults = defaults_of(cls)
    if missing := {field.name for field in info.format.fields} - {field.name for field in there} - defaults:
        raise FormatError(f"{info.name} needs {', '.join(sorted(missing))}, which the snapshot does not have")
    known = Format(info.name, tuple(_nullable(field) for field in there))
    for batch in mine.select([field.name for field in there]).to_batches():
        for row in from_batch(known, batch):
            # What an older version of the class did not have is NULL in the table, and the default here.
            given = {name: value for name, value in row.items() if value is not None or name not in defaults}
            yield event_from_mapping(cls, given)


def _nullable(field: Any) -> Any:
    from heliograph.model import field_types as ft  # noqa: PLC0415 - as above

    return (
        field
        if isinstance(field.type, ft.Optional)
        else msgspec.structs.replace(field, type=ft.Optional(field.type))
    )
