"""`heliograph.spark.read`: the history of a channel as a data frame.

    tracks = heliograph.spark.read(spark, "data", "air.tracks", where="speed > 300")
    tracks.groupBy("region").count().show()

It is exact: what was durable when `read` was called is in the data frame once, and nothing else, however
often it is computed and whatever the station appends, seals or rotates meanwhile. Sealed files are read by
Spark's own Parquet reader, the rest by `heliograph.spark.source.source`. `docs/guides/spark.md` has
columns and types.
"""

from __future__ import annotations

import os
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.filters.build import Built
    from heliograph.filters.params import Params
    from heliograph.filters.tree import Expr, Projection
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.spark.source.head_copies import HeadCopies
    from heliograph.spark.source.plan import Plan

    Point: TypeAlias = str | int | datetime | Mapping[str, int]
    EventType: TypeAlias = str | type[Event]


@names_options
def read(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channel: str,
    *,
    where: str | Built | None = None,
    params: Params | None = None,
    start: Point | None = None,
    until: Point | None = None,
    types: EventType | Iterable[EventType] | None = None,
    columns: Literal["typed", "envelope"] = "typed",
    select: str | None = None,
    fail_on_data_loss: bool = True,
    scratch: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """The durable history of a channel.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channel; it may be running. A path, or a `file:` URL.
        channel: its name.
        where: only events for which this is true; the same text, or `hg.col` expression, as in the channel.
        params: values for `:name` and `%0` in it.
        start: "earliest" (the default), "now" or "latest", an offset, an aware datetime (compared with
            `append_ts`), or a mapping of partitions to offsets.
        until: the first that is left out; by default, and at most, what is durable now.
        types: event types, by name or class; all by default.
        columns: "typed" for a column per field, "envelope" for events as they were kept, undecoded.
        select: columns as in `channel.derive`, such as "id, speed * 1.852 AS kmh": those of the frame, then.
        fail_on_data_loss: False leaves out what retention has removed or what is damaged.
        scratch: a folder that the driver and all workers see, for Parquet copies of what is not sealed yet,
            until this process ends. With a local master it is that of temporary files; without one such rows
            are read through Python.

    Raises NoHistory, ExpressionError, FormatError when events have no common columns, and HistoryGone or
    HistoryDamaged with the range when a part of what was asked for is not there.
    """
    from heliograph.spark.session.session import insist_on_session  # noqa: PLC0415 - as below
    from heliograph.spark.source.filters import filter_sql, joined_format, stored_times  # noqa: PLC0415 - Arrow and the parser load with the first read
    from heliograph.spark.source.option_values import path_text  # noqa: PLC0415 - as above
    from heliograph.spark.source.option_values import place as parse_place  # noqa: PLC0415 - as above
    from heliograph.spark.source.plan import chosen_types, plan_read  # noqa: PLC0415 - as above

    insist_on_session(spark)
    folder = parse_place("folder", path_text("folder", folder))
    if columns not in ("typed", "envelope"):
        from heliograph.errors import NotPossible  # noqa: PLC0415 - as above

        raise NotPossible(channel, f"columns={columns!r}: 'typed' and 'envelope' are possible")
    if select is not None and columns != "typed":
        from heliograph.errors import NotPossible  # noqa: PLC0415 - as above

        raise NotPossible(channel, "select= is about columns of fields: leave out columns='envelope'")
    tree, projection = _bound(where, select, params)
    plan = plan_read(
        folder, channel, start, until, fail_on_data_loss=fail_on_data_loss, copies=_copies(spark, scratch)
    )
    chosen = chosen_types(channel, plan.formats, types)
    joined = joined_format(chosen) if columns == "typed" else None
    if joined is not None:
        _insist_on_own_names(spark, channel, joined)
    only = None if types is None else frozenset(chosen)
    known = {} if joined is None else chosen
    times = () if tree is None else stored_times(tree, known)
    frame = _frame(spark, channel, plan, joined, only, times=times, fail_on_data_loss=fail_on_data_loss)
    chosen_rows = frame if tree is None else frame.filter(filter_sql(tree, known))
    if projection is None:
        return chosen_rows
    from heliograph.filters.check import check_projection  # noqa: PLC0415 - as above
    from heliograph.filters.spark_sql import to_select  # noqa: PLC0415 - as above

    assert joined is not None
    return chosen_rows.selectExpr(*to_select(check_projection(projection, joined)))


def _bound(where: Any, select: str | None, params: Any) -> tuple[Expr | None, Projection | None]:
    """Filter and projection with the values of both."""
    from heliograph.filters.params import bind_both  # noqa: PLC0415 - as above
    from heliograph.filters.parser import parse_projection  # noqa: PLC0415 - as above
    from heliograph.spark.source.filters import parsed  # noqa: PLC0415 - as above

    if select is None:
        return None if where is None else parsed(where, params), None
    projection = parse_projection(select)
    tree = None if where is None else parsed(where, None)
    if params is None:
        return tree, projection
    bound, condition = bind_both(projection, tree, params)
    return condition, bound


def _copies(spark: SparkSession, scratch: str | os.PathLike[str] | None) -> HeadCopies | None:
    """Copies of heads, if the workers can see them."""
    from heliograph.spark.source.head_copies import head_copies  # noqa: PLC0415 - as above

    if scratch is not None:
        return head_copies(_existing_folder("scratch", scratch))
    # A session of Spark Connect has no context, and its server may be on another machine.
    context = getattr(spark, "sparkContext", None)
    return head_copies() if context is not None and str(context.master).startswith("local") else None


def _existing_folder(name: str, value: str | os.PathLike[str]) -> str:
    from pathlib import Path  # noqa: PLC0415 - as above

    from heliograph.errors import InvalidOption  # noqa: PLC0415 - as above
    from heliograph.spark.source.option_values import folder  # noqa: PLC0415 - as above

    found = folder(name, os.fspath(value))
    if not Path(found).is_dir():
        raise InvalidOption(name, found, "a folder that exists, and that the driver and all workers see")
    return str(Path(found).absolute())


def _frame(
    spark: SparkSession,
    channel: str,
    plan: Plan,
    joined: Format | None,
    types: frozenset[str] | None,
    *,
    times: Sequence[str],
    fail_on_data_loss: bool,
) -> DataFrame:
    import msgspec  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    from heliograph.spark.session.session import register  # noqa: PLC0415 - as above
    from heliograph.spark.source.plan import SealedFile, divided  # noqa: PLC0415 - as above
    from heliograph.spark.source.rows import schema  # noqa: PLC0415 - as above
    from heliograph.spark.source.sealed_files import Sealed  # noqa: PLC0415 - as above
    from heliograph.spark.source.source import RangeSource  # noqa: PLC0415 - as above
    from heliograph.spark.source.tasks import Job  # noqa: PLC0415 - as above

    sealed = Sealed(spark, channel, joined, types, times)
    by_spark = [file for file in plan.files if sealed.can_read(file)]
    by_us = [file for file in plan.files if file not in by_spark]
    job = Job(
        folder=plan.folder,
        formats=tuple(fmt.description for fmt in plan.formats),
        joined=None if joined is None else joined.description,
        types=None if types is None else tuple(sorted(types)),
        fail_on_data_loss=fail_on_data_loss,
        slices=divided([*plan.slices, *map(SealedFile.slice, by_us)], _parallelism(spark)),
    )
    columns = from_arrow_schema(schema(joined), prefer_timestamp_ntz=False)
    frames = sealed.frames(by_spark)
    if job.slices:
        register(spark)
        reader = spark.read.format(RangeSource.name()).schema(columns)
        frames.append(reader.option("job", msgspec.json.encode(job).decode()).load())
    return reduce(lambda a, b: a.union(b), frames or [spark.createDataFrame([], columns)])


def _parallelism(spark: SparkSession) -> int:
    """Tasks that run at once; 1 over Spark Connect, which does not say."""
    context = getattr(spark, "sparkContext", None)
    return 1 if context is None else int(context.defaultParallelism)


def _insist_on_own_names(spark: SparkSession, channel: str, joined: Format) -> None:
    """Refuse columns that Spark could not tell apart."""
    from heliograph.errors import NotPossible  # noqa: PLC0415 - as above
    from heliograph.filters.arrow_columns import HEADER_COLUMN  # noqa: PLC0415 - as above

    exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    seen = {HEADER_COLUMN: "the column that holds the header of every event"}
    for field in joined.fields:
        name = field.name if exact else field.name.lower()
        if name in seen:
            hint = "" if exact or field.name == seen[name] else "set spark.sql.caseSensitive to true, or "
            raise NotPossible(
                channel, f"the field {field.name!r} clashes with {seen[name]}; {hint}read columns='envelope'"
            )
        seen[name] = repr(field.name)
