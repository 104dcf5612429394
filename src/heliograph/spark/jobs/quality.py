"""`quality`: what is wrong with the events of a channel, in numbers that are events themselves.

    jobs.quality(spark, "data", "air.tracks", expect=["speed BETWEEN 0 AND 1200", "quarantine: region <> ''"])

For each window of time it counts, by supplier, events that are missing, repeated or late; by expectation,
events for which it is not true; by receiver, by supplier and of the whole channel, latencies, jitter and
deadlines missed, from delivery records; and it audits the ledger. Results go into the channel
`quality.CHANNEL` as `QualityRecord`, events that were to be set aside into `quarantine.CHANNEL`, each once
however often the job is killed (`heliograph.spark.jobs.checkpoint`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from heliograph.delivery.records import DELIVERIES, LEDGER
from heliograph.errors import ExpectationFailed, NoHistory
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, insist_on_filter, one_of
from heliograph.spark.jobs.following import Passes, RunOptions
from heliograph.spark.jobs.ranges import BatchRange, RangePlan, Ranges
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from heliograph.spark.jobs.checkpoint import Checkpoint

ACTIONS: Final = ("count", "quarantine", "fail")
EVENTS_AT_ONCE: Final = 10_000_000
OF_QUALITY: Final = "heliograph.spark.jobs.quality_events:QualityRecord"
OF_QUARANTINE: Final = "heliograph.spark.jobs.quality_events:Quarantined"
OUTCOMES: Final = ("matched", "delivered", "failed", "expired", "dropped", "pending")


class Expectation(NamedTuple):
    """What is expected of every event, and what to do about one that is not so."""

    where: str
    """A filter. An event for which it is false or NULL is not as expected; types that it does not fit are."""
    action: str = "count"
    """count; quarantine: also copy it into `quarantine.CHANNEL`; fail: end the job before it writes."""

    @classmethod
    def of(cls, given: str | Expectation) -> Expectation:
        """From `"speed > 0"` or `"quarantine: speed > 0"`."""
        if isinstance(given, Expectation):
            return given
        action, found, where = given.partition(":")
        if found and action.strip() in ACTIONS:
            return cls(where.strip(), action.strip())
        return cls(given)


class Measure(NamedTuple):
    """A row of `QualityRecord`."""

    channel: str
    window_start: int
    window_ns: int
    scope: str
    name: str
    measure: str
    value: float
    n: int
    rate: float = 1.0
    sketch: str | None = None


class DeliveryLatency(NamedTuple):
    """How long deliveries took, in seconds, over all windows of a run."""

    scope: str
    """channel, supplier or receiver."""
    name: str
    n: int
    """Deliveries on record."""
    rate: float
    """Of all events, how many are on record."""
    p50: float
    """Percentiles are those of the sketch: to within 1 %."""
    p95: float
    p99: float
    max: float
    sketch: str
    """For `Sketch.merged`, with those of other runs."""


@dataclass
class Quality:
    """What a run found so far."""

    channel: str
    events: int = 0
    left: int = 0
    lost: int = 0
    repeated: int = 0
    late: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    deliveries: int = 0
    missed_deadlines: int = 0
    ledger_difference: int | None = None
    """Pushed less kept, where delivery records are kept."""
    unbalanced: int = 0
    batches: int = 0
    seconds: float = 0.0
    latencies: list[DeliveryLatency] = field(default_factory=list)
    """Of the channel, of each supplier and of each receiver, over all batches and windows of the run."""
    measures: list[Measure] = field(default_factory=list)
    """Those of the last batch."""


@dataclass(frozen=True, kw_only=True)
class QualityJob:
    """A check that has been asked for. InvalidOption, NoHistory, ... when it cannot be done."""

    folder: str | os.PathLike[str]
    channel: str
    expect: Sequence[str | Expectation] = ()
    window: float = 60.0
    late: float = 5.0
    to: str | None = None
    quarantine: str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    events_at_once: int = EVENTS_AT_ONCE

    def __post_init__(self) -> None:
        at_least("window", self.window, 0.001)
        at_least("late", self.late, 0)
        with self._plan.ranges() as ranges:
            formats = ranges.formats()
        for one in self._expected():
            one_of("expect", one.action, ACTIONS)
            insist_on_filter(one.where, None, formats)

    def run(self, spark: SparkSession, **options: Unpack[RunOptions[Quality]]) -> Quality:
        """Check what is there now and was not checked yet; with `follow` again until `stop` is set."""
        from heliograph.spark.jobs.checkpoint import Checkpoint  # noqa: PLC0415 - Arrow loads with it

        insist_on_session(spark)
        found = Quality(self.channel)
        passes = Passes(found, **options)
        with Checkpoint.opened(self._checkpoint(), f"quality of {self.channel}") as checkpoint:
            for _ in passes:
                with self._plan.ranges() as ranges:
                    for left in self._pass(spark, checkpoint, ranges, found):
                        passes.tell(left)
        return found

    @property
    def quarantine_channel(self) -> str:
        """Where events that are set aside go."""
        return self.quarantine or f"quarantine.{self.channel}"

    def _expected(self) -> list[Expectation]:
        return [Expectation.of(one) for one in self.expect]

    def _checkpoint(self) -> Path:
        own = Path(self.folder, "pipeline", "quality", self.channel.replace("/", "_"))
        return own if self.checkpoint is None else Path(self.checkpoint)

    @property
    def _plan(self) -> RangePlan:
        return RangePlan(self.folder, self.channel, self.events_at_once)

    def _deliveries(self) -> Ranges | None:
        """Delivery records that are kept; None where there are none."""
        try:
            return Ranges(os.fspath(self.folder), DELIVERIES)
        except NoHistory:
            return None

    def _pass(
        self, spark: SparkSession, checkpoint: Checkpoint, ranges: Ranges, found: Quality
    ) -> Iterator[int]:
        """Yields how many offsets are left, at first and after each batch."""
        ranges.pin()
        records = self._deliveries()
        if records is not None:
            records.pin()
        done = checkpoint.done or {"events": None, "deliveries": None, "last": {}}
        yield ranges.behind(done["events"])
        while (plan := checkpoint.planned or _plan(ranges, records, done)) is not None:
            checkpoint.plan(plan)
            events = None if plan["events"] is None else ranges.planned(plan["events"])
            deliveries = None
            if plan["deliveries"] is not None and records is not None:
                deliveries = records.planned(plan["deliveries"])
            last = self._check(spark, checkpoint, ranges, events, deliveries, done["last"], found)
            done = {
                "events": plan["events"] or done["events"],
                "deliveries": plan["deliveries"] or done["deliveries"],
                "last": {**done["last"], **last},
            }
            checkpoint.finish(done)
            found.batches += 1
            yield ranges.behind(done["events"])
        if records is not None:
            records.close()

    def _check(  # noqa: PLR0917 - what a batch consists of
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        ranges: Ranges,
        events: BatchRange | None,
        deliveries: BatchRange | None,
        last: dict[str, int],
        found: Quality,
    ) -> dict[str, int]:
        """Measure one batch and write what was found; returns the last sequence of each supplier in it."""
        measures: list[Measure] = []
        seen: dict[str, int] = {}
        bad: list[tuple[Expectation, DataFrame]] = []
        if events is not None:
            rows, seen = self._sequences(spark, ranges, events, last)
            measures += rows
            rows, bad = self._expectations(spark, events)
            measures += rows
        if deliveries is not None:
            measures += self._latencies(spark, deliveries)
        measures += self._ledger(spark, ranges)
        for one, frame in bad:
            if one.action == "quarantine":
                self._write(
                    spark, frame, self.quarantine_channel, OF_QUARANTINE,
                    checkpoint.run_id(f"quarantine{self._expected().index(one)}"),
                )  # fmt: skip
        if measures:
            frame = spark.createDataFrame(measures, _SCHEMA)
            self._write(
                spark, frame, self.to or f"quality.{self.channel}", OF_QUALITY, checkpoint.run_id("quality")
            )
        self._sum_up(measures, found)
        return seen

    def _write(self, spark: SparkSession, frame: DataFrame, channel: str, event: str, run: str) -> None:
        from heliograph.spark.session.session import register  # noqa: PLC0415 - Spark loads with it

        register(spark)
        (
            frame.write.format("heliograph")
            .mode("append")
            .option("path", os.fspath(self.folder))
            .option("channel", channel)
            .option("event", event)
            .option("create", "true")
            .option("runId", run)
            .save()
        )

    def _sum_up(self, measures: list[Measure], found: Quality) -> None:
        def total(scope: str, measure: str) -> int:
            return round(sum(m.value for m in measures if m.scope == scope and m.measure == measure))

        found.measures = measures
        found.events += total("supplier", "events")
        found.lost += total("supplier", "lost")
        found.repeated += total("supplier", "repeated")
        found.late += total("supplier", "late")
        found.deliveries += total("receiver", "delivered")
        found.missed_deadlines += total("receiver", "missed_deadlines")
        for one in self._expected():
            broken = sum(m.value for m in measures if m.measure == "violations" and m.name == one.where)
            found.violations[one.where] = found.violations.get(one.where, 0) + round(broken)
            if one.action == "quarantine":
                found.quarantined += round(broken)
        differences = [round(m.value) for m in measures if m.measure == "pushed_less_kept"]
        found.ledger_difference = differences[-1] if differences else None
        found.unbalanced = total("ledger", "unbalanced")
        found.latencies = _added_up(found.latencies, measures)

    # What is measured

    def _window(self, column: str) -> Any:
        from pyspark.sql import functions as f  # noqa: PLC0415 - Spark loads with it

        width = round(self.window * 1e9)
        return (f.floor(f.col(column) / width).cast("bigint") * width).alias("window_start")

    def _sequences(
        self, spark: SparkSession, ranges: Ranges, events: BatchRange, last: dict[str, int]
    ) -> tuple[list[Measure], dict[str, int]]:
        """Gaps and repeats in the dense sequence of each supplier, and events that were long on their way."""
        from pyspark.sql import Window  # noqa: PLC0415 - as above
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        frame = events.frame(spark, columns="envelope").select(
            f.concat_ws("/", "header.supplier", f.col("header.epoch").cast("string")).alias("supplier"),
            f.col("header.sequence").alias("sequence"),
            f.expr(f"header.append_ns - header.source_ns > {round(self.late * 1e9)}").alias("is_late"),
            f.col("header.offset").alias("offset"),
            f.col("header.append_ns").alias("append_ns"),
        )
        known = spark.createDataFrame(list(last.items()) or [("", 0)], "supplier string, last bigint")
        frame = frame.join(f.broadcast(known), "supplier", "left")
        # A supplier that nobody has seen began with 1, unless its beginning may have been removed.
        before = f.coalesce("last", f.lit(0)) if ranges.is_whole else f.col("last")
        order = Window.partitionBy("supplier").orderBy("sequence", "offset")
        # A repeat of an event from an earlier batch comes first in this order, and is no gap behind it.
        step = f.col("sequence") - f.greatest(f.lag("sequence").over(order), before)
        rows = (
            frame.withColumn("step", step)
            .withColumn("window_start", self._window("append_ns"))
            .groupBy("window_start", "supplier")
            .agg(
                f.count("*").alias("events"),
                f.sum(f.greatest(f.coalesce("step", f.lit(1)) - 1, f.lit(0))).alias("lost"),
                f.sum((f.col("step") <= 0).cast("int")).alias("repeated"),
                f.sum(f.col("is_late").cast("int")).alias("late"),
                f.max("sequence").alias("last"),
            )
            .orderBy("window_start", "supplier")
            .collect()
        )
        # What compaction has removed is missing in the sequences, too, and nobody can tell it from a loss.
        is_compacted = sum(row["events"] for row in rows) < events.offsets
        measures = [
            self._measure(row, "supplier", row["supplier"], name, row[name] or 0, row["events"])
            for row in rows
            for name in ("events", "repeated", "late", *(() if is_compacted else ("lost",)))
        ]
        seen: dict[str, int] = {}
        for row in rows:
            seen[row["supplier"]] = max(row["last"], seen.get(row["supplier"], last.get(row["supplier"], 0)))
        return measures, seen

    def _expectations(
        self, spark: SparkSession, events: BatchRange
    ) -> tuple[list[Measure], list[tuple[Expectation, DataFrame]]]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        expected = self._expected()
        if not expected:
            return [], []
        frame = events.frame(spark)
        flagged = frame.select("*", *self._flags(expected), self._window("header.append_ns"))
        names = [f"{what}{n}" for what in ("fits", "broken") for n in range(len(expected))]
        sums = [f.sum(f.col(f"_{name}").cast("int")).alias(name) for name in names]
        rows = flagged.groupBy("window_start").agg(*sums).orderBy("window_start").collect()
        measures = [
            self._measure(row, "expectation", one.where, "violations", row[f"broken{n}"], row[f"fits{n}"])
            for row in rows
            for n, one in enumerate(expected)
        ]
        bad = []
        for n, one in enumerate(expected):
            count = sum(row[f"broken{n}"] for row in rows)
            if not count:
                continue
            failing = flagged.filter(f.col(f"_broken{n}"))
            if one.action == "fail":
                first = failing.select("header.partition", "header.offset").orderBy("offset").first()
                assert first is not None
                raise ExpectationFailed(self.channel, one.where, count, first["partition"], first["offset"])
            bad.append((one, self._set_aside(failing, frame.columns, one)))
        return measures, bad

    def _flags(self, expected: list[Expectation]) -> list[Column]:
        """For each expectation two columns: whether it is about a row, and whether the row breaks it."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        from heliograph.spark.source.filters import conditions, filter_sql, parsed  # noqa: PLC0415 - as above

        types: dict[str, list[Any]] = {}
        with self._plan.ranges() as ranges:
            for fmt in ranges.formats():
                types.setdefault(fmt.name, []).append(fmt)
        found = []
        for n, one in enumerate(expected):
            tree = parsed(one.where, None)
            fits = f.col("header.type").isin(list(conditions(tree, types)))
            is_true = f.coalesce(f.expr(filter_sql(tree, types)), f.expr("false"))
            found += [fits.alias(f"_fits{n}"), (fits & ~is_true).alias(f"_broken{n}")]
        return found

    def _set_aside(self, failing: DataFrame, columns: list[str], one: Expectation) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        fields = [f.col(f"`{name}`") for name in columns if name != "header"]
        return failing.select(
            f.lit(self.channel).alias("channel"),
            *(f"header.{name}" for name in ("partition", "offset", "supplier", "epoch", "sequence", "type")),
            f.lit(one.where).alias("expectation"),
            f.to_json(f.struct(*fields)).alias("event"),
        )

    def _latencies(self, spark: SparkSession, deliveries: BatchRange) -> list[Measure]:
        """From delivery records: how long events waited, and which came too late; in each of `SCOPES`."""
        from pyspark.sql import Window  # noqa: PLC0415 - as above
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        frame = deliveries.frame(spark, where="channel = :name", params={"name": self.channel})
        frame = frame.withColumn("window_start", self._window("at_ns")).withColumn(
            "supplier", f.concat_ws("/", "supplier", f.col("epoch").cast("string"))
        )
        order = Window.partitionBy("station", "receiver").orderBy("at_ns", "header.offset")
        delivered = f.col("outcome") == "delivered"
        waited = f.when(delivered, f.col("waited_ns") / 1e9)
        rows = (
            frame.withColumn("waited", waited)
            .withColumn("change", f.abs(f.col("waited") - f.lag("waited").over(order)))
            .groupingSets(*_sets("window_start"))
            .agg(
                f.grouping_id().alias("scope"),
                f.count("*").alias("records"),
                f.sum(delivered.cast("int")).alias("delivered"),
                f.sum((f.col("outcome") != "delivered").cast("int")).alias("not_delivered"),
                f.sum(f.expr("in_time = false").cast("int")).alias("missed_deadlines"),
                f.percentile("waited", f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99))).alias("percentiles"),
                f.max("waited").alias("latency_max"),
                f.min("waited").alias("least"),
                f.avg("change").alias("jitter"),
                f.min("rate").alias("rate"),
            )
            .orderBy("scope", "window_start", "receiver", "supplier")
            .collect()
        )
        found = self._sketches(frame)
        for row in rows:
            p50, p95, p99 = row["percentiles"] or (None, None, None)
            values = {
                "delivered": row["delivered"],
                "not_delivered": row["not_delivered"],
                "missed_deadlines": row["missed_deadlines"] or 0,
                "latency_p50": p50,
                "latency_p95": p95,
                "latency_p99": p99,
                "latency_max": row["latency_max"],
                "jitter": row["jitter"],
                # Nothing arrives before it was sent: clocks differ by at least this.
                "clock_error_at_least": None if row["least"] is None else max(0.0, -row["least"]),
            }
            found += [
                self._measure(row, *_scope_of(row), name, value, row["records"], row["rate"])
                for name, value in values.items()
                if value is not None
            ]
        return found

    def _sketches(self, frame: DataFrame) -> list[Measure]:
        """What can be added up over batches: how many deliveries took how long, in each of `SCOPES`."""
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        from heliograph.spark.jobs.latency_sketch import SQL, Sketch  # noqa: PLC0415 - as above

        rows = (
            frame.filter("outcome = 'delivered' AND waited_ns IS NOT NULL")
            .withColumn("range", f.expr(SQL.format(ns="waited_ns")))
            .groupingSets(*_sets("window_start", "range"))
            .agg(f.grouping_id().alias("scope"), f.count("*").alias("n"), f.min("rate").alias("rate"))
            .orderBy("scope", "window_start", "receiver", "supplier", "range")
            .collect()
        )
        found = []
        for (_, scope), several in groupby(rows, key=lambda row: (row["window_start"], _scope_of(row))):
            group = list(several)
            sketch = Sketch({row["range"]: row["n"] for row in group})
            rate = min(row["rate"] for row in group)
            measure = self._measure(group[0], *scope, "latency_sketch", sketch.n, sketch.n, rate)
            found.append(measure._replace(sketch=sketch.text()))
        return found

    def _ledger(self, spark: SparkSession, ranges: Ranges) -> list[Measure]:
        """What stations and receivers have counted, from the last row of each, beside what is kept."""
        from heliograph.spark.source.read import read  # noqa: PLC0415 - as above

        try:
            frame = read(
                spark, os.fspath(self.folder), LEDGER, where="channel = :name", params={"name": self.channel}
            )
        except NoHistory:
            return []
        rows = frame.selectExpr(
            "station", "receiver", "snapshot", "pushed", "lost_records", *OUTCOMES
        ).collect()  # fmt: skip
        latest: dict[tuple[str, str | None], Any] = {}
        for row in sorted(rows, key=lambda row: row["snapshot"]):
            latest[row["station"], row["receiver"]] = row
        whole = [row for (_, receiver), row in latest.items() if receiver is None]
        if not latest:
            return []
        values = {name: sum(row[name] for row in whole) for name in OUTCOMES}
        values["pushed"] = sum(row["pushed"] for row in whole)
        values["kept"] = ranges.kept
        values["pushed_less_kept"] = values["pushed"] - ranges.kept
        values["unbalanced"] = sum(
            row["matched"] != sum(row[name] for name in OUTCOMES[1:]) for row in latest.values()
        )
        stations = {station for station, _ in latest}
        values["lost_records"] = sum(
            max(row["lost_records"] for (station, _), row in latest.items() if station == one)
            for one in stations
        )
        return [
            Measure(self.channel, 0, 0, "ledger", "", name, float(value), len(latest))
            for name, value in values.items()
        ]

    def _measure(  # noqa: PLR0917 - the fields of a measure, in their order
        self, row: Any, scope: str, name: str, measure: str, value: float, n: int, rate: float = 1.0
    ) -> Measure:
        width = round(self.window * 1e9)
        return Measure(self.channel, row["window_start"], width, scope, name, measure, float(value), n, rate)


_SCHEMA: Final = (
    "channel string, window_start bigint, window_ns bigint, scope string, name string, measure string, "
    "value double, n bigint, rate double, sketch string"
)


SCOPES: Final = {1: "receiver", 2: "supplier", 3: "channel"}
"""Of what deliveries are told, by Spark's number of the set: which of receiver and supplier it leaves out."""


def _sets(*every: str) -> tuple[Any, ...]:
    """Arguments of `groupingSets`: by these columns and receiver, these and supplier, and these alone."""
    # Receiver and supplier last: the number of a set has their two bits lowest.
    return [[*every, "receiver"], [*every, "supplier"], [*every]], *every, "receiver", "supplier"


def _scope_of(row: Any) -> tuple[str, str]:
    """Which scope a row of `_sets` is of, and its name in it."""
    scope = SCOPES[row["scope"]]
    return scope, "" if scope == "channel" else row[scope]


def _added_up(before: list[DeliveryLatency], measures: list[Measure]) -> list[DeliveryLatency]:
    """Latencies of a run, with those of another batch."""
    from heliograph.spark.jobs.latency_sketch import Sketch  # noqa: PLC0415 - as above

    sketches = [(m.scope, m.name, m.rate, m.sketch) for m in measures if m.measure == "latency_sketch"]
    most = {(one.scope, one.name): one.max for one in before}
    for m in measures:
        if m.measure == "latency_max":
            most[m.scope, m.name] = max(m.value, most.get((m.scope, m.name), m.value))
    known = [(one.scope, one.name, one.rate, one.sketch) for one in before]
    found = []
    for scope, name in sorted({(scope, name) for scope, name, *_ in known + sketches}):
        own = [(rate, text) for where, of, rate, text in known + sketches if (where, of) == (scope, name)]
        whole = Sketch.merged(text for _, text in own)
        p50, p95, p99 = (whole.percentile(share) or 0.0 for share in (0.5, 0.95, 0.99))
        rate = min(rate for rate, _ in own)
        found.append(
            DeliveryLatency(scope, name, whole.n, rate, p50, p95, p99, most[scope, name], whole.text())
        )
    return found


def _plan(ranges: Ranges, records: Ranges | None, done: dict[str, Any]) -> dict[str, Any] | None:
    events = ranges.after(done["events"])
    deliveries = None if records is None else records.after(done["deliveries"])
    if events is None and deliveries is None:
        return None
    return {
        "events": None if events is None else events.positions,
        "deliveries": None if deliveries is None else deliveries.positions,
    }


@names_options
def quality(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    channel: str,
    *,
    expect: Sequence[str | Expectation] = (),
    window: float = 60.0,
    late: float = 5.0,
    to: str | None = None,
    quarantine: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    events_at_once: int = EVENTS_AT_ONCE,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[Quality], object] | None = None,
    stop: threading.Event | None = None,
) -> Quality:
    """Measure what is wrong with the events of a channel that were not measured yet.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that keeps the channel; it may be running.
        channel: its name.
        expect: filters that every event should pass, with what to do about others in front: `count:` (the
            default), `quarantine:` or `fail:`.
        window: seconds for which events are counted together, by the keeper's clock.
        late: an event that was appended so many seconds after its source time is late.
        to: the channel of the results; `quality.CHANNEL` by default.
        quarantine: the channel of events that are set aside; `quarantine.CHANNEL` by default.
        checkpoint: a folder for where the job is; `pipeline/quality/CHANNEL` in the station's by default.
        events_at_once: in one batch, at most.
        follow: go on with what comes, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was found so far, after each batch.
        stop: ends `follow` after the batch in hand.

    Raises ExpectationFailed when an event breaks an expectation that must not be broken.
    """
    job = QualityJob(
        folder=folder, channel=channel, expect=expect, window=window, late=late, to=to, quarantine=quarantine,
        checkpoint=checkpoint, events_at_once=events_at_once,
    )  # fmt: skip
    return job.run(spark, follow=follow, every=every, progress=progress, stop=stop)
