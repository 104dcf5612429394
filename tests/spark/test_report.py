"""`report`: every number is that of a query, and a browser shows the page."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.cli import run
from heliograph.errors import InvalidOption, NoHistory
from heliograph.spark import jobs
from heliograph.spark.jobs.report import ChannelReport
from heliograph.spark.jobs.report_page import page
from tests.browser import Browser, needs_chromium
from tests.unit.spark.histories import SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def numbers(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.DOTALL)
    return {one["channel"]: one for one in json.loads(found)}


class Tables(HTMLParser):
    """The tables of a page as a reader sees them: by channel and title, a list of rows of cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[tuple[str, str], list[list[str]]] = {}
        self._heading = {"h1": "", "h2": "", "h3": ""}
        self._in = ""
        self.feed(page.partition("</head>")[2])

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("h1", "h2", "h3", "td", "th"):
            self._in = tag
        if tag == "h2":
            self._heading = dict.fromkeys(self._heading, "")
        if tag in self._heading:
            self._heading[tag] = ""
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in self._heading:
            self._heading[self._in] += data
        elif self._in:
            self._rows[-1][-1] += data

    @property
    def _rows(self) -> list[list[str]]:
        return self.found.setdefault((self._heading["h2"], self._heading["h3"]), [])

    def table(self, channel: str, title: str) -> list[list[Any]]:
        """Its rows without their heads, numbers as numbers, empty cells as None."""
        return [[value_of(cell) for cell in row] for row in self.found[channel, title][1:]]


def value_of(cell: str) -> Any:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return cell or None


def like(rows: list[Any]) -> list[list[Any]]:
    """As the page writes numbers: six digits."""
    return [
        [pytest.approx(float(one), rel=1e-5) if isinstance(one, int | float) else one for one in row]
        for row in rows
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("reported")
    qos = hg.QoS(
        durability="persistent",
        delivery_records="all",
        dispatch="deadline",
        latency=0.5,
        ledger_interval=0.01,
    )
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=qos)
        tracks.subscribe(lambda _: None)
        tracks.subscribe(lambda _: time.sleep(0.01), name="slow", queue=100)
        with tracks.consumer(name="billing", start="earliest") as billing:
            tracks.push_many([Track(n) for n in range(100)])
            assert len(billing.read(max=30, timeout=10.0)) == 30
        station.channel("empty", Track, qos=hg.QoS(durability="persistent"))
        station.channel("one", Track, qos=hg.QoS(durability="persistent")).push(Track(1))
        tracks.settle(10.0)
    with Keeper(tmp_path / "data", "gaps") as keeper:
        for _ in range(3):
            keeper.push(Track(1), Track(2))
            keeper.record(Track(9))  # a sequence number that no event has
            keeper.clock.now += 30 * SECOND
    return tmp_path / "data"


WAITED = """count(*), count_if(outcome = 'delivered'), count_if(in_time = false), min(rate),
    percentile(CASE WHEN outcome = 'delivered' THEN waited_ns END, 0.5) / 1e6,
    percentile(CASE WHEN outcome = 'delivered' THEN waited_ns END, 0.95) / 1e6,
    percentile(CASE WHEN outcome = 'delivered' THEN waited_ns END, 0.99) / 1e6,
    max(CASE WHEN outcome = 'delivered' THEN waited_ns END) / 1e6"""
WINDOW = "DIV 10000000000 * 10000000000"


class Made:
    """A report, and queries over what it is about: written anew, not the report's own."""

    def __init__(self, spark: SparkSession, data: Path) -> None:
        self._spark, self._data = spark, data
        jobs.quality(spark, data, "gaps", expect=["id < 2"])
        jobs.report(spark, data, data.parent / "report.html")
        html = (data.parent / "report.html").read_text()
        self.shown, self.tables = numbers(html), Tables(html)

    def sql(self, channel: str, query: str) -> list[Any]:
        frame = heliograph.spark.read(self._spark, self._data, channel)
        return [tuple(row) for row in self._spark.sql(query, frame=frame).collect()]


@pytest.fixture(scope="module")
def made(spark: SparkSession, data: Path) -> Made:
    return Made(spark, data)


def test_every_table_is_one_that_is_compared_with_queries(made: Made) -> None:
    assert set(made.shown) == {"air.tracks", "empty", "one", "gaps"}
    known = {"Deliveries", "Suppliers", "Queues", "Ledger", "Durable consumers", "Quality", ""}
    assert {title for _, title in made.tables.found} == known


def test_numbers_of_histories_are_those_of_sql_queries(made: Made) -> None:
    shown, tables, sql = made.shown, made.tables, made.sql
    overview = {row[0]: row[1:] for row in tables.table("", "")}
    for channel in ("air.tracks", "one", "gaps"):
        (counted,) = sql(
            channel,
            "SELECT count(*), count(DISTINCT header.supplier), date_format(min(header.append_ts), "
            "'yyyy-MM-dd HH:mm:ss'), date_format(max(header.append_ts), 'yyyy-MM-dd HH:mm:ss') FROM {frame}",
        )
        events, suppliers, _, first, last = overview[channel]
        assert (events, suppliers, first, last) == counted
        windows = sql(
            channel,
            f"SELECT header.append_ns {WINDOW}, count(*), min(header.append_ns), max(header.append_ns) "
            "FROM {frame} GROUP BY 1 ORDER BY 1",
        )
        drawn = [row for row in shown[channel]["windows"] if row.get("events")]
        assert [(row["start"], row["events"]) for row in drawn] == [row[:2] for row in windows]
        assert shown[channel]["first_ns"] == min(row[2] for row in windows)
        assert shown[channel]["last_ns"] == max(row[3] for row in windows)
        suppliers = sql(
            channel,
            "SELECT header.supplier || '/' || header.epoch, count(*), max(header.sequence) - "
            "min(header.sequence) + 1 - count(*) FROM {frame} GROUP BY 1 ORDER BY 1",
        )
        assert [row[:3] for row in tables.table(channel, "Suppliers")] == like(suppliers)
        assert overview[channel][2] == sum(row[2] for row in suppliers)
    assert overview["empty"] == [0, 0, 0, None, None]
    span = "SELECT max(header.sequence) - min(header.sequence) + 1 - count(*) FROM {frame}"
    assert [(overview["gaps"][2],)] == sql("gaps", span) == [(2,)]
    # Each gap is in the window of the event behind it: the second and the third have one.
    assert [row["lost"] for row in shown["gaps"]["windows"]] == [0, 1, 1]
    quality = tables.table("gaps", "Quality")
    assert quality == [["id < 2", 3], ["late", 0], ["lost", 2], ["repeated", 0]]
    assert [tuple(row) for row in quality] == sql(
        "quality.gaps",
        "SELECT if(measure = 'violations', name, measure), sum(value) FROM {frame} "
        "WHERE measure IN ('lost', 'late', 'repeated', 'violations') GROUP BY 1 ORDER BY 1",
    )


def test_numbers_of_deliveries_are_those_of_sql_queries(made: Made) -> None:
    """Of the channel, of each receiver, each supplier and each window."""
    shown, tables, sql = made.shown, made.tables, made.sql
    records = "FROM {frame} WHERE channel = 'air.tracks'"
    told = tables.table("air.tracks", "Deliveries")
    assert told[:1] == like(sql("_helio.deliveries", f"SELECT 'air.tracks', {WAITED} {records}"))
    of_each = f"SELECT receiver, {WAITED} {records} GROUP BY 1 ORDER BY 1"
    assert told[1:] == like(sql("_helio.deliveries", of_each))
    of_each = f"SELECT supplier || '/' || epoch, {WAITED} {records} GROUP BY 1 ORDER BY 1"
    assert [[row[0], *row[3:]] for row in tables.table("air.tracks", "Suppliers")] == like(
        sql("_helio.deliveries", of_each)
    )
    by_window = sql("_helio.deliveries", f"SELECT at_ns {WINDOW}, {WAITED} {records} GROUP BY 1 ORDER BY 1")
    columns = ("records", "delivered", "missed_deadlines", "rate")
    drawn = [row for row in shown["air.tracks"]["windows"] if row.get("records")]
    assert [
        [
            row["start"],
            *(row[name] for name in columns),
            *(row[p] * 1e3 for p in ("p50", "p95", "p99", "max")),
        ]
        for row in drawn
    ] == like(by_window)
    assert sum(n for _, n in shown["air.tracks"]["latencies"]) == told[0][2]
    for (bound, n), (above, _) in zip(
        shown["air.tracks"]["latencies"][1:], shown["air.tracks"]["latencies"], strict=False
    ):
        within = f"outcome = 'delivered' AND waited_ns > {above * 1e9} AND waited_ns <= {bound * 1e9}"
        assert sql("_helio.deliveries", f"SELECT count(*) {records} AND {within}") == [(n,)]


def test_numbers_of_ledger_queues_and_consumers_are_those_of_sql_queries(made: Made, data: Path) -> None:
    shown, tables, sql = made.shown, made.tables, made.sql
    sums = ("pushed", "matched", "delivered", "failed", "expired", "dropped", "pending")
    ledger = sql(
        "_helio.ledger",
        f"SELECT {', '.join(f'sum(last.{name})' for name in sums)} FROM (SELECT max_by(struct(*), snapshot) "
        "AS last FROM {frame} WHERE receiver IS NULL AND channel = 'air.tracks' GROUP BY station)",
    )
    assert tables.found["air.tracks", "Ledger"][0] == list(sums)
    assert tables.table("air.tracks", "Ledger") == like(ledger)
    rows = "FROM {frame} WHERE receiver IS NOT NULL AND channel = 'air.tracks'"
    depths = sql(
        "_helio.ledger", f"SELECT at_ns {WINDOW}, receiver, max(pending) {rows} GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [(row["start"], row["receiver"], row["most"]) for row in shown["air.tracks"]["depths"]] == depths
    queues = sql(
        "_helio.ledger",
        f"SELECT receiver, max(pending), max_by(pending, struct(at_ns, snapshot)) {rows} "
        "GROUP BY 1 ORDER BY 1",
    )
    assert tables.table("air.tracks", "Queues") == like(queues)
    assert max(row[1] for row in queues) > 0, "somebody had to wait"
    behind = dict(tables.table("air.tracks", "Durable consumers"))
    with (
        hg.Station(data) as station,
        station.channel("air.tracks", Track).consumer(name="billing") as billing,
    ):
        left = len(billing.read(max=1000, timeout=10.0))  # what it has not acknowledged
    assert behind == {"billing": left, "slow": 0}
    assert 0 < left <= 100


def test_the_same_history_makes_the_same_page_without_anything_from_elsewhere(
    data: Path, tmp_path: Path, spark: SparkSession
) -> None:
    for name in ("a.html", "b.html"):
        jobs.report(spark, data, tmp_path / name, channels=["air.tracks", "empty", "one"])
    first = (tmp_path / "a.html").read_text()
    assert first == (tmp_path / "b.html").read_text()
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", first)
    assert "No events yet." in first
    assert "prefers-color-scheme: dark" in first


def test_names_from_outside_are_text_on_the_page() -> None:
    bad = ChannelReport(
        "</script><b>x</b>", events=1, windows=[{"start": 0, "events": 1}], quality={"a < '<i>'": 1.0}
    )
    made = page("<u>", [bad], 1.0)
    assert "<b>x" not in made
    assert "<i>" not in made.partition("</head>")[2]
    assert numbers(made)["</script><b>x</b>"]["events"] == 1


@needs_chromium
def test_a_browser_draws_the_plots_in_both_themes_and_loads_nothing(tmp_path: Path) -> None:
    waits = {
        "records": 3,
        "delivered": 3,
        "missed_deadlines": 1,
        "rate": 1.0,
        "p50": 1e-3,
        "p95": 2e-3,
        "p99": 2e-3,
    }
    full = ChannelReport(
        "air.tracks",
        3,
        windows=[{"start": n * 10**10, "events": n + 1, "lost": n, **waits, "max": 0.002} for n in range(3)],
        deliveries={**waits, "max": 0.002},
        by_receiver=[{"receiver": "board", **waits, "max": 0.002}],
        latencies=[(1e-4, 2), (1e-3, 1)],
        queues=[{"receiver": "p1001", "most": 5, "last": 0}],  # as Bokeh calls its models
        depths=[{"start": n * 10**10, "receiver": "p1001", "most": 5 - n} for n in range(3)],
    )
    one = ChannelReport("one", 1, windows=[{"start": 0, "events": 1, "lost": 0}])
    made = page("data", [full, one, ChannelReport("empty")], 10.0)
    assert made == page("data", [full, one, ChannelReport("empty")], 10.0)
    assert '"value":"p1001"' in made, "a name is text, whatever it looks like"
    (tmp_path / "report.html").write_text(made)
    with Browser() as browser:
        tab = browser.open()
        colours = {}
        for scheme in ("light", "dark"):
            tab.prefer(scheme)
            tab.goto(f"file://{tmp_path}/report.html")
            drawn = "[...document.querySelectorAll('script.plot')].map(one => one.dataset.target)"
            names = tab.evaluate(drawn)
            for name in names:
                tab.wait(f"document.getElementById('{name}').querySelector('*') !== null")
            colours[scheme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
        assert names == [
            *("rate-0", "lost-0", "missed_deadlines-0", "waits-0", "latency-0", "depth-0"),
            "rate-1",
        ]
        assert colours["light"] != colours["dark"] == "rgb(20, 23, 26)"
        assert tab.text("h2:nth-of-type(3)") == "empty"
        assert "No events yet." in tab.evaluate("document.body.innerText")
        assert tab.console == []


def test_what_cannot_be_reported_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.spark.jobs.connecting.connected", None)  # whoever calls it fails
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(Track(1))
    with pytest.raises(NoHistory):
        jobs.ReportJob(folder=tmp_path / "data", to=tmp_path / "r.html", channels=["air.trucks"])
    with pytest.raises(InvalidOption):
        jobs.ReportJob(folder=tmp_path / "data", to=tmp_path / "none" / "r.html")
    assert run(["pipeline", "report", str(tmp_path / "data"), str(tmp_path / "r.html"), "--window", "0"]) == 2
