"""As-of join of several series in Spark: at each instant the last value of each, or a value between two.

    onto = Instants(step=10_000_000, after=first, until=last)              every 10 ms
    as_of([Series("imu", imu, ["ax"], "linear"), Series("gps", gps, ["lat"])], onto, keys=["robot"], ...)

All rows of all series and the instants are one relation, divided by key and by stretches of time, and sorted
in each: one pass over it sees at each instant what came last. Nothing is joined with anything, so that the
cost is that of one sort whatever the rates are, and a single key is still shared among all cores. Rows that
can be seen from the next stretch are in both. Where a value never is too old, what is before a stretch comes
into it as one row, made of the last rows of each stretch; what is behind it, likewise.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

TIME: Final = "_t"
"""The column of a series in which its rows have their time, in nanoseconds; it has no NULL."""
PLACE: Final = ("_p", "_o")
"""The columns by which rows of one time are ordered."""
STRETCH: Final = "_stretch"
RANK: Final = "_rank"
LEAD: Final = "_lead"
POINTS: Final = 100_000
"""Points of a grid in one stretch of time, at most."""
_BEFORE, _ROW, _INSTANT, _BEHIND = -1, 0, 1, 2
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


class Series(NamedTuple):
    """Rows of one channel, with the columns TIME, PLACE and those of the key besides its fields."""

    alias: str
    frame: DataFrame
    fields: Sequence[str]
    method: str = "last"
    """last: the last row at or before an instant; linear: numbers between that one and the next."""

    @property
    def value(self) -> str:
        return f"_of_{self.alias}"


class Instants(NamedTuple):
    """The instants at which values are wanted: those behind `after` and up to `until`, in nanoseconds."""

    after: int
    until: int
    step: int | None = None
    """Of a grid: the multiples of so many nanoseconds since 1970."""
    lead: Series | None = None
    """Or those of the rows of a series, whose fields are in the result, too."""


class Stretches(NamedTuple):
    """How time is divided: stretch 0 begins at `origin`."""

    origin: int
    width: int
    number: int

    @classmethod
    def over(cls, first: int, last: int, count: int, step: int | None = None) -> Stretches:
        """About so many, from the first to the last instant; no longer than a task can hold of a grid."""
        span = last - first + 1
        width = -(-span // max(1, count))
        if step is not None:
            width = min(width, step * POINTS)
        return cls(first, width, -(-span // width))

    def of(self, time: str) -> str:
        """The number of the stretch in which a time is, as SQL."""
        return f"CAST(({time} - {self.origin}L) DIV {self.width}L AS BIGINT)"


def as_of(
    series: Sequence[Series],
    onto: Instants,
    *,
    keys: Sequence[str],
    tolerance: int | None,
    stretches: Stretches,
) -> DataFrame:
    """One row for each instant and key.

    Its columns are TIME, the keys, the fields of a leading series, and for each series `ALIAS_FIELD`,
    `ALIAS_gap` (there is no value) and `ALIAS_age`, the seconds since the row that it comes from.
    A row of a grid in which no series has a value is left out.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark loads with it

    shape = _Shape(series, onto, tuple(keys), stretches, tolerance)
    every = reduce(lambda a, b: a.unionByName(b), [*(shape.rows(one) for one in series), shape.instants()])
    if stretches.number > 1 and not shape.has_copies:
        every = every.unionByName(shape.carried(every))
    within = shape.window(f.col(TIME).asc(), f.col(RANK).asc())
    back = shape.window(f.col(TIME).desc(), f.col(RANK).desc())
    for one in series:
        every = every.withColumn(f"{one.value}_before", f.last(one.value, ignorenulls=True).over(within))
    for one in series:
        if one.method == "linear":
            every = every.withColumn(f"{one.value}_behind", f.last(one.value, ignorenulls=True).over(back))
    found = every.filter(f.col(RANK) == _INSTANT)
    lead = () if onto.lead is None else _renamed(onto.lead)
    columns = [column for one in series for column in _Values(one, tolerance).columns()]
    found = found.select(TIME, *(f"`{key}`" for key in keys), *lead, *columns)
    if onto.lead is None:
        found = found.filter(" OR ".join(f"NOT `{one.alias}_gap`" for one in series))
    return found


class _Shape:
    """The relation of all rows: its columns are keys, stretch, TIME, RANK, PLACE, and a struct per series."""

    def __init__(
        self,
        series: Sequence[Series],
        onto: Instants,
        keys: tuple[str, ...],
        stretches: Stretches,
        tolerance: int | None,
    ) -> None:
        self.series, self.onto, self.keys, self.stretches = series, onto, keys, stretches
        self._tolerance = tolerance
        self.has_copies = tolerance is not None and tolerance <= stretches.width
        """Whether rows are in each stretch from which they can be seen: in one more at most, to a side."""
        self._kinds = {one.value: _value(one) for one in series}
        if onto.lead is not None:
            self._kinds[LEAD] = _value(onto.lead)._replace(name=LEAD)

    def rows(self, one: Series) -> DataFrame:
        seen = self.stretches.of(TIME)
        if self.has_copies and self.stretches.number > 1:
            low = self.stretches.of(f"greatest({TIME} - {self._tolerance}L, {self.stretches.origin}L)")
            high = self.stretches.of(f"{TIME} + {self._tolerance}L")
            seen = f"explode(sequence({low if one.method == 'linear' else seen}, {high}))"
        return self._shaped(one.frame, _ROW, {one.value: self._kinds[one.value].made}, seen)

    def instants(self) -> DataFrame:
        """The rows that become rows of the result."""
        lead, after, until = self.onto.lead, self.onto.after, self.onto.until
        if lead is None:
            return self._shaped(self._grid(), _INSTANT, {}, self.stretches.of(TIME))
        wanted = lead.frame.filter(f"{TIME} > {after}L AND {TIME} <= {until}L")
        return self._shaped(wanted, _INSTANT, {LEAD: self._kinds[LEAD].made}, self.stretches.of(TIME))

    def window(self, *order: Column) -> Any:
        from pyspark.sql import Window  # noqa: PLC0415 - as above

        divided = Window.partitionBy(*(f"`{key}`" for key in self.keys), STRETCH)
        # Of rows of one time the last place counts, in both directions.
        return divided.orderBy(*order, *PLACE).rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def carried(self, every: DataFrame) -> DataFrame:
        """For each stretch of a key a row with what was last before it; if need be, one with what is next."""
        from pyspark.sql import Window  # noqa: PLC0415 - as above
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        own = [f.col(f"`{key}`") for key in self.keys]
        linear = [one for one in self.series if one.method == "linear"]
        ends = []
        for one in self.series:
            at = f.struct(TIME, *PLACE)
            there = f.col(one.value).isNotNull()
            ends.append(f.max_by(one.value, f.when(there, at)).alias(f"{one.value}_last"))
        for one in linear:
            at = f.struct(-f.col(TIME), *PLACE)
            there = f.col(one.value).isNotNull()
            ends.append(f.max_by(one.value, f.when(there, at)).alias(f"{one.value}_first"))
        of_each = every.groupBy(*own, STRETCH).agg(*ends)
        by_key = Window.partitionBy(*(own or [f.lit(0)])).orderBy(STRETCH)
        before = by_key.rowsBetween(Window.unboundedPreceding, -1)
        values = {
            one.value: f.last(f"{one.value}_last", ignorenulls=True).over(before) for one in self.series
        }
        found = self._placed(of_each, _FIRST, _BEFORE, values)
        if linear:
            backwards = Window.partitionBy(*(own or [f.lit(0)])).orderBy(f.col(STRETCH).desc())
            behind = backwards.rowsBetween(Window.unboundedPreceding, -1)
            values = {
                one.value: f.last(f"{one.value}_first", ignorenulls=True).over(behind) for one in linear
            }
            found = found.unionByName(self._placed(of_each, _LAST, _BEHIND, values))
        return found

    def _placed(self, frame: DataFrame, time: int, rank: int, values: dict[str, Column]) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        return frame.select(
            *(f"`{key}`" for key in self.keys),
            STRETCH,
            f.lit(time).cast("bigint").alias(TIME),
            f.lit(rank).alias(RANK),
            f.lit("").alias(PLACE[0]),
            f.lit(0).cast("bigint").alias(PLACE[1]),
            *self._structs(values),
        )

    def _shaped(self, frame: DataFrame, rank: int, values: dict[str, Column], stretch: str) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        return frame.select(
            *(f"`{key}`" for key in self.keys),
            f.expr(stretch).alias(STRETCH),
            TIME,
            f.lit(rank).alias(RANK),
            *PLACE,
            *self._structs(values),
        )

    def _structs(self, values: dict[str, Column]) -> list[Column]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        return [
            values.get(name, f.lit(None)).cast(kind.type).alias(name) for name, kind in self._kinds.items()
        ]

    def _grid(self) -> DataFrame:
        """The points at which a key may have a value, stretch by stretch."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        step, (after, until) = self.onto.step, (self.onto.after, self.onto.until)
        assert step is not None
        own = [f"`{key}`" for key in self.keys]
        there = f.expr(self.stretches.of(TIME)).alias(STRETCH)
        times = reduce(lambda a, b: a.union(b), [one.frame.select(*own, there, TIME) for one in self.series])
        last = self.stretches.of(f"{until}L")
        if self._tolerance is None:
            spans = times.groupBy(*own).agg(f.min(STRETCH).alias("_low"), f.expr(last).alias("_high"))
        else:
            spans = times.groupBy(*own, STRETCH).agg(f.max(TIME).alias("_end"))
            reach = self.stretches.of(f"least(_end + {self._tolerance}L, {until}L)")
            spans = spans.select(*own, f.col(STRETCH).alias("_low"), f.expr(reach).alias("_high"))
        spans = spans.filter("_low <= _high").select(
            *own, f.expr("explode(sequence(_low, _high))").alias("_s")
        )
        begin = f"greatest({self.stretches.origin}L + _s * {self.stretches.width}L, {after + 1}L)"
        end = f"least({self.stretches.origin}L + (_s + 1) * {self.stretches.width}L - 1, {until}L)"
        # Rounded up to a multiple of the step; `pmod` because times before 1970 are negative.
        points = (
            spans.distinct()
            .select(
                *own, f.expr(f"{begin} + pmod(-({begin}), {step}L)").alias("_low"), f.expr(end).alias("_high")
            )
            .filter("_low <= _high")
        )
        return points.select(
            *own,
            f.expr(f"explode(sequence(_low, _high, {step}L))").alias(TIME),
            f.lit("").alias(PLACE[0]),
            f.lit(0).cast("bigint").alias(PLACE[1]),
        )


class _Value(NamedTuple):
    """How a row of a series travels: one struct of its time and its fields."""

    name: str
    made: Column
    type: Any


def _value(one: Series) -> _Value:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    # A field may have any name, so fields are numbered inside of the struct.
    fields = [f.col(f"`{name}`").alias(f"f{number}") for number, name in enumerate(one.fields)]
    made = f.struct(f.col(TIME).alias("t"), *fields)
    kind = one.frame.select(made.alias("v")).schema["v"].dataType
    return _Value(one.value, made, kind)


def _renamed(lead: Series) -> list[Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    return [
        f.col(f"{LEAD}.f{number}").alias(f"{lead.alias}_{name}") for number, name in enumerate(lead.fields)
    ]


class _Values:
    """The columns of a series in the result."""

    def __init__(self, one: Series, tolerance: int | None) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        self._one = one
        self._before, self._behind = f.col(f"{one.value}_before"), f.col(f"{one.value}_behind")
        self._waited = f.col(TIME) - self._before["t"]
        near = self._waited >= 0 if tolerance is None else self._waited <= tolerance
        if one.method == "linear":
            ahead = self._behind["t"] - f.col(TIME)
            next_is_near = ahead > 0 if tolerance is None else ahead <= tolerance
            near &= (self._waited == 0) | next_is_near
        self._there = f.coalesce(near, f.lit(False))

    def columns(self) -> list[Column]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        one = self._one
        found = [
            f.when(self._there, self._field(number, name)).alias(f"{one.alias}_{name}")
            for number, name in enumerate(one.fields)
        ]
        age = f.when(self._there, self._waited / 1e9)
        return [*found, (~self._there).alias(f"{one.alias}_gap"), age.alias(f"{one.alias}_age")]

    def _field(self, number: int, name: str) -> Column:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above
        from pyspark.sql.types import NumericType  # noqa: PLC0415 - as above

        before = self._before[f"f{number}"]
        if self._one.method != "linear" or not isinstance(self._one.frame.schema[name].dataType, NumericType):
            return before
        first, second = before.cast("double"), self._behind[f"f{number}"].cast("double")
        share = self._waited / (self._behind["t"] - self._before["t"])
        return f.when(self._waited == 0, first).otherwise(first + (second - first) * share)
