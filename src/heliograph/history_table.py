"""The history of a channel as a table, without Spark and without Java.

    table = hg.history("data", "air.tracks", where="speed > 300", columns=["id", "header.offset"])
    table.arrow()                       # a pyarrow.Table; reader() gives it batch by batch
    table.pandas(), table.polars()      # data frames
    table.duckdb().aggregate("max(id)")

Columns and rows are those of `heliograph.spark.read`: what was durable when `history` was called, each event
once, ordered by offset within a partition. Row groups of sealed files in which no row can pass `where` are
not read, and of the others only the columns that are wanted. The station may be running.
"""

from __future__ import annotations

import os
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa

from heliograph.errors import InvalidOption, MissingExtra
from heliograph.filters.arrow import project
from heliograph.filters.arrow_columns import HEADER_COLUMN
from heliograph.filters.build import Built
from heliograph.filters.check import check_projection
from heliograph.filters.params import bind_both
from heliograph.filters.parser import parse_projection
from heliograph.filters.typed import columns as used_columns
from heliograph.journal.format.folder import StationFolder
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.notebook import html_table
from heliograph.runtime.option_names import names_options
from heliograph.spark.source.columns import full_schema
from heliograph.spark.source.filters import joined_format, parsed
from heliograph.spark.source.option_values import place as parse_place
from heliograph.spark.source.plan import chosen_types, plan_read, slices_of
from heliograph.spark.source.pruning import pruned
from heliograph.spark.source.tasks import Job, batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from heliograph.filters.params import Params
    from heliograph.filters.tree import Projection
    from heliograph.filters.typed import CheckedProjection
    from heliograph.model.event import Event
    from heliograph.spark.source.plan import Plan
    from heliograph.spark.source.tasks import Slice

    Point: TypeAlias = str | int | datetime | Mapping[str, int]

SHOWN: Final = 20
"""Rows that a notebook shows."""


@names_options
def history(
    folder: str | os.PathLike[str],
    channel: str,
    *,
    where: str | Built | None = None,
    params: Params | None = None,
    start: Point | None = None,
    until: Point | None = None,
    types: str | type[Event] | Iterable[str | type[Event]] | None = None,
    columns: Sequence[str] | None = None,
    select: str | None = None,
    fail_on_data_loss: bool = True,
) -> HistoryTable:
    """The durable history of a channel, as it is now.

    Args:
        folder: of the station that keeps the channel; it may be running.
        channel: its name.
        where: only events for which this is true; the same text, or `hg.col` expression, as in the channel.
        params: values for `:name` and `%0` in it, and in `select`.
        start: "earliest" (the default), "now" or "latest", an offset, an aware datetime (compared with
            `append_ts`), or a mapping of partitions to offsets.
        until: the first that is left out; by default, and at most, what is durable now.
        types: event types, by name or class; all by default.
        columns: names of fields, "header", or parts of it such as "header.offset"; all by default.
        select: columns as in `channel.derive`, such as "id, speed * 1.852 AS kmh", in place of `columns`.
        fail_on_data_loss: False leaves out what retention has removed or what is damaged.

    Raises NoHistory, ExpressionError, FormatError when events have no common columns, InvalidOption for a
    column that does not exist, and HistoryGone or HistoryDamaged with the range when a part of what was asked
    for is not there.
    """
    if select is not None and columns is not None:
        raise InvalidOption("columns", str(columns), "left out where there is select=")
    if select is not None:
        where, projection = _bound(where, select, params)
        params = None
    place = parse_place("folder", os.fspath(folder))
    plan = plan_read(place, channel, start, until, fail_on_data_loss=fail_on_data_loss)
    chosen = chosen_types(channel, plan.formats, types)
    joined = joined_format(chosen)
    job = Job(
        folder=plan.folder,
        formats=tuple(fmt.description for fmt in plan.formats),
        joined=joined.description,
        types=None if types is None else tuple(sorted(chosen)),
        fail_on_data_loss=fail_on_data_loss,
        where=cast("Any", where),
        params=cast("Any", params),
        slices=tuple(_ranges(plan)),
    )
    full = full_schema(joined, include_headers=True)
    if select is None:
        return HistoryTable(channel, job, _chosen(full, columns))
    checked = check_projection(projection, joined)
    return HistoryTable(channel, job, _chosen(full, _read_by(checked)), checked)


class HistoryTable:
    """Rows of a history, read anew each time they are asked for; always the same ones.

    It is an Arrow stream itself (`__arrow_c_stream__`): `pyarrow.table(t)` and `polars.DataFrame(t)` take it.

    Attributes:
        channel: whose history.
        schema: its columns.
    """

    def __init__(
        self, channel: str, job: Job, schema: pa.Schema, projection: CheckedProjection | None = None
    ) -> None:
        self.channel = channel
        self._read = schema
        self._projection = projection
        if projection is not None:
            schema = project(projection, pa.RecordBatch.from_pylist([], schema=schema)).schema
        self.schema = schema
        self._job = job
        self._shape = job.shape(self._read)  # a wrong filter is refused here

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, partition by partition, in the order of their offsets."""
        for part in self._slices():
            for batch in batches(self._job, part, self._read):
                yield batch if self._projection is None else project(self._projection, batch)

    def reader(self) -> pa.RecordBatchReader:
        """The same as an Arrow reader, which holds one batch at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def arrow(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def pandas(self) -> Any:
        """A pandas.DataFrame of all rows."""
        _needed("pandas")
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """A polars.DataFrame of all rows."""
        return _needed("polars").from_arrow(self.arrow())

    def duckdb(self, connection: Any = None) -> Any:
        """A relation of DuckDB over all rows, in its default connection or another one."""
        return (_needed("duckdb") if connection is None else connection).from_arrow(self.arrow())

    def count(self) -> int:
        """How many rows there are."""
        offsets = pa.schema([(HEADER_COLUMN, pa.struct([("offset", pa.int64())]))])
        return sum(batch.num_rows for part in self._slices() for batch in batches(self._job, part, offsets))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<history of {self.channel!r}: {', '.join(self.schema.names)}>"

    def _repr_html_(self) -> str:
        rows: list[dict[str, Any]] = []
        for batch in self.batches():
            rows += batch.slice(0, SHOWN + 1 - len(rows)).to_pylist()
            if len(rows) > SHOWN:
                break
        more = f"the first {SHOWN} rows of " if len(rows) > SHOWN else ""
        return html_table(
            f"{more}the history of {self.channel}",
            self.schema.names,
            [list(row.values()) for row in islice(rows, SHOWN)],
        )

    def _slices(self) -> Iterator[Slice]:
        """Ranges in which rows can pass the filter."""
        predicates = self._shape.predicates()
        known = frozenset(fmt.id for fmt in self._job.known())
        station = StationFolder(self._job.folder)
        for part in self._job.slices:
            with station.reader(part.channel, part.partition, FormatRegistry()) as reader:
                found = list(pruned(reader, part.first, part.next, known, predicates))
                segments = reader.manifest.segments
            for first, end in found:
                yield from slices_of(part.channel, part.partition, first, end, segments)


def _bound(where: Any, select: str, params: Any) -> tuple[Any, Projection]:
    """Filter and projection with the values of both."""
    projection = parse_projection(select)
    condition = None if where is None else parsed(where, None)
    if params is not None:
        projection, condition = bind_both(projection, condition, params)
    return None if condition is None else Built(condition.tree), projection


def _read_by(projection: CheckedProjection) -> list[str]:
    """The columns that a projection reads."""
    read = [column for node in projection.nodes for column in used_columns(node)]
    names = [f"{HEADER_COLUMN}.{c.steps[0].key}" if c.header else str(c.steps[0].key) for c in read]
    return list(dict.fromkeys(names)) or [f"{HEADER_COLUMN}.offset"]


def _ranges(plan: Plan) -> list[Slice]:
    """What is read of each partition, in one piece where nothing is left out."""
    parts = sorted(
        [*(file.slice() for file in plan.files), *plan.slices], key=lambda part: (part.partition, part.first)
    )
    found: list[Slice] = []
    for part in parts:
        if found and (found[-1].partition, found[-1].next) == (part.partition, part.first):
            found[-1] = msgspec.structs.replace(found[-1], next=part.next)
        else:
            found.append(part)
    return found


def _chosen(full: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Some of the columns, in the order in which they are named."""
    if columns is None:
        return full
    if isinstance(columns, str):
        raise InvalidOption("columns", columns, f"a list of names, such as columns=[{columns!r}]")
    header = full.field(HEADER_COLUMN).type
    parts = [name.partition(".")[2] for name in columns if name.startswith(f"{HEADER_COLUMN}.")]
    for name in columns:
        in_header = name.startswith(f"{HEADER_COLUMN}.") and name not in full.names
        there = name.partition(".")[2] in header.names if in_header else name in full.names
        if not there:
            names = [*full.names, *(f"{HEADER_COLUMN}.{part}" for part in header.names)]
            raise InvalidOption("columns", name, f"columns of this history: {', '.join(names)}")
    found: dict[str, pa.Field] = {}
    for name in columns:
        if name in full.names:
            found[name] = full.field(name)
        elif HEADER_COLUMN not in columns:
            wanted = pa.struct([field for field in header if field.name in parts])
            found[HEADER_COLUMN] = pa.field(HEADER_COLUMN, wanted)
    return pa.schema(list(found.values()))


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"HistoryTable.{package}()", package, package) from error
