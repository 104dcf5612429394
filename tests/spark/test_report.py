"""`report`: every number is that of a query, and a browser shows the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.cli import run
from heliograph.errors import InvalidOption, NoHistory
from heliograph.spark import jobs
from heliograph.spark.jobs.report import ChannelReport
from heliograph.spark.jobs.report_page import page
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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    qos = hg.QoS(durability="persistent", delivery_records="all", lifespan=60.0)
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=qos)
        tracks.subscribe(lambda _: None)
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


def test_every_number_is_that_of_an_sql_query(data: Path, tmp_path: Path, spark: SparkSession) -> None:
    jobs.quality(spark, data, "gaps", expect=["id < 2"])
    jobs.report(spark, data, tmp_path / "report.html")
    shown = numbers((tmp_path / "report.html").read_text())
    assert set(shown) == {"air.tracks", "empty", "one", "gaps"}

    def sql(channel: str, query: str) -> list[Any]:
        frame = heliograph.spark.read(spark, data, channel)
        return [tuple(row) for row in spark.sql(query, frame=frame).collect()]

    for channel in ("air.tracks", "one", "gaps"):
        counted = (
            "SELECT count(*), count(DISTINCT header.supplier), min(header.append_ns), max(header.append_ns) "
            "FROM {frame}"
        )
        one = shown[channel]
        assert [(one["events"], one["suppliers"], one["first_ns"], one["last_ns"])] == sql(channel, counted)
        start = "header.append_ns DIV 10000000000 * 10000000000"
        windows = f"SELECT {start}, count(*) FROM {{frame}} GROUP BY 1 ORDER BY 1"
        assert [tuple(row) for row in one["rates"]] == sql(channel, windows)
    span = "SELECT max(header.sequence) - min(header.sequence) + 1 - count(*) FROM {frame}"
    assert [(shown["gaps"]["lost"],)] == sql("gaps", span) == [(2,)]
    assert shown["gaps"]["quality"] == {"id < 2": 3, "late": 0, "lost": 2, "repeated": 0}
    waits = sql(
        "_helio.deliveries",
        "SELECT receiver, count(*), percentile(waited_ns, 0.5) / 1e9, percentile(waited_ns, 0.99) / 1e9, "
        "max(waited_ns) / 1e9 FROM {frame} WHERE outcome = 'delivered' GROUP BY 1 ORDER BY 1",
    )
    table = [
        (row["receiver"], row["delivered"], row["p50"], row["p99"], row["max"])
        for row in shown["air.tracks"]["receivers"]
        if row["delivered"]
    ]
    assert table == [
        (name, n, pytest.approx(a), pytest.approx(b), pytest.approx(c)) for name, n, a, b, c in waits
    ]
    assert sum(n for _, n in shown["air.tracks"]["latencies"]) == sum(row[1] for row in waits)
    every = sql(
        "_helio.deliveries",
        "SELECT receiver, count(*), count_if(outcome = 'delivered'), count_if(in_time = false), min(rate), "
        "percentile(CASE WHEN outcome = 'delivered' THEN waited_ns END, 0.95) / 1e9 "
        "FROM {frame} WHERE channel = 'air.tracks' GROUP BY 1 ORDER BY 1",
    )
    told = [
        tuple(row[name] for name in ("receiver", "records", "delivered", "missed_deadlines", "rate"))
        for row in shown["air.tracks"]["receivers"]
    ]
    assert told == [row[:5] for row in every]
    for row, (*_, p95) in zip(shown["air.tracks"]["receivers"], every, strict=True):
        assert row.get("p95") == (None if p95 is None else pytest.approx(p95))
    sums = ("pushed", "matched", "delivered", "failed", "expired", "dropped", "pending")
    ledger = sql(
        "_helio.ledger",
        f"SELECT {', '.join(f'sum(last.{name})' for name in sums)} FROM (SELECT max_by(struct(*), snapshot) "
        "AS last FROM {frame} WHERE receiver IS NULL AND channel = 'air.tracks' GROUP BY station)",
    )
    assert [tuple(shown["air.tracks"]["ledger"][name] for name in sums)] == ledger
    assert shown["air.tracks"]["ledger"].keys() == set(sums)
    (behind,) = shown["air.tracks"]["lag"]
    with (
        hg.Station(data) as station,
        station.channel("air.tracks", Track).consumer(name="billing") as billing,
    ):
        assert behind["behind"] == len(billing.read(max=1000, timeout=10.0))  # what it has not acknowledged
    assert shown["air.tracks"]["lag"][0]["consumer"] == "billing"
    assert 0 < shown["air.tracks"]["lag"][0]["behind"] <= 100


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
    bad = ChannelReport("</script><b>x</b>", events=1, rates=[(0, 1)], quality={"a < '<i>'": 1.0})
    made = page("<u>", [bad], 1.0)
    assert "<b>x" not in made
    assert "<i>" not in made.partition("</head>")[2]
    assert numbers(made)["</script><b>x</b>"]["events"] == 1


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the program chromium")
def test_a_browser_draws_the_plots(tmp_path: Path) -> None:
    one = ChannelReport("air.tracks", 3, rates=[(0, 1), (10**10, 2)], latencies=[(1e-4, 2), (1e-3, 1)])
    (tmp_path / "report.html").write_text(page("data", [one, ChannelReport("empty")], 10.0))
    offline = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        *offline,
        "--virtual-time-budget=5000",
    ]
    outcome = subprocess.run(
        [*command, f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{tmp_path}/report.html"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    drawn = re.findall(r'<div id="(rate-0|latency-0)"><div', outcome.stdout)
    assert drawn == ["rate-0", "latency-0"], outcome.stderr[-2000:]


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
