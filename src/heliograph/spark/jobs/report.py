"""`report`: one HTML page about the channels of a station, with everything that it needs inside.

    jobs.report(spark, "data", "report.html")

Rates and losses come from histories, latencies and deadlines from delivery records, what was pushed, what
became of it and how deep queues were from the ledger, lag from durable consumers, broken expectations from
`quality.*` channels; in sum, and window by window. The same history makes the same page, byte for byte;
numbers are also in it as JSON, in the element `numbers`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from heliograph.delivery.records import DELIVERIES, LEDGER, RESERVED
from heliograph.errors import InvalidOption, MissingExtra, NoHistory
from heliograph.journal.format.folder import StationFolder
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least
from heliograph.spark.session.session import insist_on_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

BUCKETS_PER_DECADE: Final = 5
OUTCOMES: Final = ("matched", "delivered", "failed", "expired", "dropped", "pending")


@dataclass
class ChannelReport:
    """The numbers of one channel."""

    channel: str
    events: int = 0
    tombstones: int = 0
    suppliers: int = 0
    lost: int = 0
    """Gaps in the sequences of suppliers, after the first event of each that is kept."""
    first_ns: int | None = None
    last_ns: int | None = None
    windows: list[dict[str, Any]] = field(default_factory=list)
    """For each window its start in nanoseconds and how many events were appended in it, and lost before them;
    how many deliveries it has on record, with percentiles of latency in seconds and deadlines missed."""
    deliveries: dict[str, Any] = field(default_factory=dict)
    """Deliveries, percentiles of latency in seconds, and deadlines missed, of all that is on record."""
    by_receiver: list[dict[str, Any]] = field(default_factory=list)
    """The same of each receiver."""
    by_supplier: list[dict[str, Any]] = field(default_factory=list)
    """The same of each supplier, with its events and gaps; a supplier that began anew is another one."""
    latencies: list[tuple[float, int]] = field(default_factory=list)
    """How many deliveries took up to so many seconds, and longer than the bound before."""
    ledger: dict[str, int] = field(default_factory=dict)
    queues: list[dict[str, Any]] = field(default_factory=list)
    """How many events waited for each receiver: at most, and when the ledger last told."""
    depths: list[dict[str, Any]] = field(default_factory=list)
    """The most that waited for each receiver in each window in which the ledger told."""
    lag: list[dict[str, Any]] = field(default_factory=list)
    """How many events each durable consumer is behind."""
    quality: dict[str, float] = field(default_factory=dict)
    """Sums over all results of `quality`."""


@dataclass
class JobReport:
    """What was written."""

    file: str
    channels: list[ChannelReport]
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ReportJob:
    """A report that has been asked for. InvalidOption, NoHistory, MissingExtra when it cannot be made."""

    folder: str | os.PathLike[str]
    to: str | os.PathLike[str]
    channels: Sequence[str] = ()
    window: float = 10.0

    def __post_init__(self) -> None:
        at_least("window", self.window, 0.001)
        there = StationFolder(self.folder).channels()
        for name in self.channels:
            if name not in there:
                raise NoHistory(os.fspath(self.folder), name, there)
        if not Path(self.to).absolute().parent.is_dir():
            raise InvalidOption("to", os.fspath(self.to), "a file in a folder that is there")
        try:
            import bokeh  # noqa: F401, PLC0415 - only to know that it is there
        except ModuleNotFoundError as error:
            raise MissingExtra("a report", error.name or "bokeh", "report") from error

    def run(self, spark: SparkSession, *, progress: Callable[[int, int], object] | None = None) -> JobReport:
        """Compute the numbers, and write the page."""
        from heliograph.spark.jobs.report_page import page  # noqa: PLC0415 - Bokeh loads with it

        insist_on_session(spark)
        station = StationFolder(self.folder)
        names = list(self.channels) or [
            name for name in station.channels() if not name.startswith((RESERVED, "quality.", "quarantine."))
        ]
        found = []
        for number, name in enumerate(names):
            if progress is not None:
                progress(number, len(names))
            found.append(self._channel(spark, name, station.channels()))
        text = page(os.path.basename(os.path.abspath(self.folder)), found, self.window)  # noqa: PTH119, PTH100 - of a path or a text
        Path(self.to).write_text(text, encoding="utf-8")
        return JobReport(os.fspath(self.to), found, len(text.encode()))

    def _channel(self, spark: SparkSession, name: str, there: tuple[str, ...]) -> ChannelReport:
        found = ChannelReport(name)
        self._events(spark, found)
        if DELIVERIES in there:
            self._deliveries(spark, found)
        if LEDGER in there:
            self._ledger(spark, found)
        if f"quality.{name}" in there:
            rows = self._read(spark, f"quality.{name}").filter("scope <> 'ledger'")
            counts = rows.filter(
                "measure IN ('lost', 'repeated', 'late', 'violations') "
                "OR (measure = 'missed_deadlines' AND scope = 'receiver')"
            )
            for row in counts.groupBy("measure", "scope", "name").sum("value").collect():
                key = row["name"] if row["measure"] == "violations" else row["measure"]
                found.quality[key] = found.quality.get(key, 0.0) + row["sum(value)"]
            found.quality = dict(sorted(found.quality.items()))
        self._lag(found)
        return found

    def _read(self, spark: SparkSession, channel: str, **options: Any) -> DataFrame:
        from heliograph.spark.source.read import read  # noqa: PLC0415 - Spark loads with it

        return read(spark, os.fspath(self.folder), channel, fail_on_data_loss=False, **options)

    def _events(self, spark: SparkSession, found: ChannelReport) -> None:
        frame = self._read(spark, found.channel, columns="envelope").select("header.*", "kind")
        frame.createOrReplaceTempView("_helio_report")
        (whole,) = spark.sql(
            """
            SELECT count_if(kind = 0) AS events, count_if(kind = 1) AS tombstones,
                   count(DISTINCT supplier, epoch) AS suppliers,
                   min(append_ns) AS first, max(append_ns) AS last
            FROM _helio_report
            """
        ).collect()
        found.events, found.tombstones, found.suppliers = whole[0], whole[1], whole[2]
        found.first_ns, found.last_ns = whole["first"], whole["last"]
        gaps = f"""
            SELECT append_ns DIV {self._width} * {self._width} AS start, supplier || '/' || epoch AS supplier,
                   kind, sequence,
                   lag(sequence) OVER (PARTITION BY supplier, epoch ORDER BY sequence) AS before
            FROM _helio_report
        """  # noqa: S608 - a number
        counts = "count_if(kind = 0) AS events, coalesce(sum(greatest(sequence - before - 1, 0)), 0) AS lost"
        found.windows = _dicts(
            spark.sql(f"SELECT start, {counts} FROM ({gaps}) GROUP BY start ORDER BY start")  # noqa: S608 - as above
        )
        found.by_supplier = _dicts(
            spark.sql(f"SELECT supplier, {counts} FROM ({gaps}) GROUP BY supplier ORDER BY supplier")  # noqa: S608 - as above
        )
        found.lost = sum(row["lost"] for row in found.windows)

    @property
    def _width(self) -> int:
        return round(self.window * 1e9)

    def _deliveries(self, spark: SparkSession, found: ChannelReport) -> None:
        frame = self._read(spark, DELIVERIES, where="channel = :name", params={"name": found.channel})
        frame.createOrReplaceTempView("_helio_report")
        by_window = f"at_ns DIV {self._width} * {self._width}"
        (whole,) = self._waits(spark, "1")
        if not whole["records"]:
            return
        found.deliveries = {name: value for name, value in whole.items() if name != "of"}
        found.by_receiver = [
            {"receiver": row.pop("of"), **row} for row in self._waits(spark, "receiver", groups=True)
        ]
        found.by_supplier = _joined(
            "supplier", found.by_supplier, self._waits(spark, "supplier || '/' || epoch", groups=True)
        )
        found.windows = _joined("start", found.windows, self._waits(spark, by_window, groups=True))
        buckets = spark.sql(
            f"""
            SELECT ceil(log10(greatest(waited_ns, 1)) * {BUCKETS_PER_DECADE}) AS bucket, count(*) AS n
            FROM _helio_report WHERE outcome = 'delivered' GROUP BY 1 ORDER BY 1
            """  # noqa: S608 - a number
        ).collect()
        found.latencies = [(10 ** (row["bucket"] / BUCKETS_PER_DECADE) / 1e9, row["n"]) for row in buckets]

    def _waits(self, spark: SparkSession, of: str, *, groups: bool = False) -> list[dict[str, Any]]:
        """What delivery records say, of all or of each value of an expression."""
        rows = spark.sql(
            f"""
            SELECT {of} AS of, count(*) AS records, count_if(outcome = 'delivered') AS delivered,
                   count_if(in_time = false) AS missed_deadlines, min(rate) AS rate,
                   percentile(CASE WHEN outcome = 'delivered' THEN waited_ns END,
                              array(0.5, 0.95, 0.99, 1.0)) AS p
            FROM _helio_report {"GROUP BY 1 ORDER BY 1" if groups else ""}
            """  # noqa: S608 - expressions of this module
        ).collect()
        told = []
        for row in rows:
            facts = row.asDict()
            waits = zip(("p50", "p95", "p99", "max"), facts.pop("p") or (), strict=False)
            told.append(facts | {name: value / 1e9 for name, value in waits})
        return told

    def _ledger(self, spark: SparkSession, found: ChannelReport) -> None:
        frame = self._read(spark, LEDGER, where="channel = :name", params={"name": found.channel})
        frame.createOrReplaceTempView("_helio_report")
        sums = ", ".join(f"coalesce(sum(last.{name}), 0) AS {name}" for name in ("pushed", *OUTCOMES))
        (row,) = spark.sql(
            f"""
            SELECT {sums} FROM (
                SELECT max_by(struct(*), snapshot) AS last FROM _helio_report
                WHERE receiver IS NULL GROUP BY station)
            """  # noqa: S608 - names of columns
        ).collect()
        if any(row):
            found.ledger = row.asDict()
        found.depths = _dicts(
            spark.sql(
                f"""
                SELECT at_ns DIV {self._width} * {self._width} AS start, receiver, max(pending) AS most
                FROM _helio_report WHERE receiver IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2
                """  # noqa: S608 - a number
            )
        )
        found.queues = _dicts(
            spark.sql(
                """
                SELECT receiver, max(pending) AS most, max_by(pending, struct(at_ns, snapshot)) AS last
                FROM _helio_report WHERE receiver IS NOT NULL GROUP BY receiver ORDER BY receiver
                """
            )
        )

    def _lag(self, found: ChannelReport) -> None:
        from heliograph.journal.consumers.lag import lag  # noqa: PLC0415 - as above

        behind: dict[str, int] = {}
        for one in lag(os.fspath(self.folder), found.channel):
            behind[one.consumer] = behind.get(one.consumer, 0) + one.events
        found.lag = [{"consumer": name, "behind": events} for name, events in sorted(behind.items())]


def _dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _joined(key: str, rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows about the same things side by side, in the order of what they are about."""
    found: dict[Any, dict[str, Any]] = {row[key]: row for row in rows}
    for other in others:
        about = other.pop("of")
        found[about] = {**found.get(about, {key: about}), **other}
    return [found[about] for about in sorted(found)]


@names_options
def report(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    channels: Sequence[str] = (),
    window: float = 10.0,
    progress: Callable[[int, int], object] | None = None,
) -> JobReport:
    """Write a page about the channels of a station.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station; it may be running.
        to: the file, which is replaced.
        channels: all but those about channels, by default.
        window: seconds for which events are counted together in rates.
        progress: called with how many channels are done, and of how many.
    """
    return ReportJob(folder=folder, to=to, channels=channels, window=window).run(spark, progress=progress)
