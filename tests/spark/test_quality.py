"""`quality`: exactly what was injected is found, and told once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

import heliograph as hg
from heliograph.cli import run
from heliograph.delivery.records import DELIVERIES, LEDGER, DeliveryRecord, LedgerRecord
from heliograph.errors import ExpectationFailed, ExpressionError, InvalidOption, NoHistory
from heliograph.spark import jobs
from heliograph.spark.jobs.quality import QualityJob
from tests.unit.spark.histories import SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float | None


class Note(hg.Event, name="air.note"):
    text: str


def push(
    keeper: Keeper, numbers: list[int], *, late: frozenset[int] = frozenset(), supplier: str = "radar"
) -> None:
    """One event for each number, which is its sequence."""
    for number in numbers:
        record = keeper.record(
            Track(number, float(number)), source_ts=keeper.clock.now - (60 if number in late else 1) * SECOND
        )
        keeper.append(msgspec.structs.replace(record, supplier=supplier, sequence=number))
        keeper.clock.now += SECOND // 10


def told(folder: Path, channel: str, cls: Any) -> list[Any]:
    with hg.Station(folder) as station:
        opened = station.channel(channel, cls)
        with opened.consumer(start="earliest", until="now") as consumer:
            return list(consumer)


def test_exactly_the_losses_repeats_and_late_events_that_were_injected_are_found(
    tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(3)
    lost = set(rng.sample(range(1, 400), 23))
    late = frozenset(rng.sample(sorted(set(range(1, 400)) - lost), 11))
    repeated = rng.sample(sorted(set(range(1, 400)) - lost), 7)
    numbers = sorted([n for n in range(1, 401) if n not in lost] + repeated)
    with Keeper(tmp_path / "data") as keeper:
        push(keeper, numbers[:150], late=late)
        keeper.seal()
        push(keeper, numbers[150:300], late=late)
        first = jobs.quality(spark, tmp_path / "data", "air.tracks", events_at_once=100, window=10.0)
        push(keeper, numbers[300:], late=late)
        push(keeper, [5, 6, 9], supplier="other")
    second = jobs.quality(spark, tmp_path / "data", "air.tracks", window=10.0)
    assert (first.events, second.events, first.batches) == (300, len(numbers) - 300 + 3, 3)
    others = 6  # 1 to 4, 7 and 8
    assert first.lost + second.lost == len(lost) + others
    assert first.repeated + second.repeated == len(repeated)
    assert first.late + second.late == len([n for n in numbers if n in late])
    nothing = jobs.quality(spark, tmp_path / "data", "air.tracks")
    assert (nothing.events, nothing.batches) == (0, 0)
    records = told(tmp_path / "data", "quality.air.tracks", jobs.QualityRecord)
    assert sum(one.value for one in records if one.measure == "lost") == len(lost) + others
    assert sum(one.value for one in records if (one.measure, one.name) == ("lost", "other/1")) == others
    assert len({one.window_start for one in records}) > 1
    assert all(one.n > 0 and one.rate == 1.0 for one in records)


def test_what_is_not_as_expected_is_counted_set_aside_or_ends_the_job(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*(Track(n, n * 10.0) for n in range(100)), Track(100, None), Note("no track"))
    expect = ["speed < 500", "quarantine: id <> 7 AND speed >= 0"]
    found = jobs.quality(spark, tmp_path / "data", "air.tracks", expect=expect)
    # A speed that is NULL is not below 500. Notes have none, so nothing is expected of them.
    assert found.violations == {"speed < 500": 51, "id <> 7 AND speed >= 0": 2}
    assert found.quarantined == 2
    aside = told(tmp_path / "data", "quarantine.air.tracks", jobs.Quarantined)
    assert [(one.offset, one.event) for one in sorted(aside, key=lambda one: one.offset)] == [
        (7, '{"id":7,"speed":70.0}'),
        (100, '{"id":100}'),
    ]
    measured = [m for m in found.measures if m.scope == "expectation"]
    assert {m.n for m in measured} == {101}
    with pytest.raises(ExpectationFailed, match=r"1 events of air\.tracks .* offset 7 ") as failed:
        jobs.quality(
            spark,
            tmp_path / "data",
            "air.tracks",
            expect=["fail: id <> 7"],
            checkpoint=tmp_path / "other",
            to="quality.other",
        )
    assert (failed.value.events, failed.value.offset) == (1, 7)
    with pytest.raises(NoHistory):
        jobs.QualityJob(folder=tmp_path / "data", channel="quality.other")


def test_latencies_jitter_and_deadlines_are_those_of_the_delivery_records(
    tmp_path: Path, spark: SparkSession
) -> None:
    rng = np.random.default_rng(5)
    waits = (rng.lognormal(0, 1.2, 3000) * 1e6).astype(int)
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(Track(1, 1.0))
        now = keeper.clock.now
    records = []
    for n, wait in enumerate(map(int, waits)):
        outcome, in_time = ("delivered", wait < 9e6) if n % 10 else ("dropped", False)
        for channel in ("air.tracks", "other"):
            who = ("s1", channel, "fast", "radar", 1, n, "p1", n)
            records.append(DeliveryRecord(*who, outcome, "", 1, now + n, 0, 0, 1, wait, in_time, 0.25, 4 * n))
    with Keeper(tmp_path / "data", DELIVERIES) as keeper:
        keeper.push(*records)
    found = jobs.quality(spark, tmp_path / "data", "air.tracks", window=3600.0)
    values = {m.measure: m.value for m in found.measures if m.scope == "receiver"}
    delivered = waits[np.arange(3000) % 10 > 0] / 1e9
    for name, percent in (
        ("latency_p50", 50),
        ("latency_p95", 95),
        ("latency_p99", 99),
        ("latency_max", 100),
    ):
        assert values[name] == pytest.approx(np.percentile(delivered, percent), rel=0.01)
    as_told = np.where(np.arange(3000) % 10 > 0, waits / 1e9, np.nan)
    assert values["jitter"] == pytest.approx(np.nanmean(np.abs(np.diff(as_told))), rel=0.01)
    assert values["missed_deadlines"] == 300 + np.sum(delivered >= 9e-3)
    assert (values["delivered"], values["not_delivered"]) == (2700, 300)
    told_of = {m.measure: (m.n, m.rate) for m in found.measures if m.scope == "receiver"}
    assert told_of.pop("latency_sketch") == (2700, 0.25)
    assert set(told_of.values()) == {(3000, 0.25)}


def test_sketches_of_several_batches_add_up_to_the_percentiles_of_all(
    tmp_path: Path, spark: SparkSession
) -> None:
    rng = np.random.default_rng(6)
    waits = (rng.lognormal(0, 2.0, 2000) * 1e6).astype(int)
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(Track(1, 1.0))
        now = keeper.clock.now
    with Keeper(tmp_path / "data", DELIVERIES) as keeper:
        records: list[Any] = []
        for part in (waits[:700], waits[700:]):
            for n, wait in enumerate(map(int, part)):
                who = ("s1", "air.tracks", "fast", "radar", 1, n, "p1", n)
                record = DeliveryRecord(*who, "delivered", "", 1, now + n, 0, 0, 1, wait, None, 1.0, n)
                records.append(keeper.record(record))
            keeper.append(*records)
            records.clear()
            jobs.quality(spark, tmp_path / "data", "air.tracks", window=3600.0)
    results = told(tmp_path / "data", "quality.air.tracks", jobs.QualityRecord)
    sketches = [one for one in results if one.measure == "latency_sketch"]
    for scope in ("channel", "supplier"):  # one of each, so theirs is the receiver's
        assert [one.sketch for one in sketches if one.scope == scope] == [
            one.sketch for one in sketches if one.scope == "receiver"
        ]
    whole = jobs.Sketch.merged(one.sketch for one in sketches if one.scope == "receiver")
    assert whole.n == 2000
    for percent in (0, 50, 95, 99, 100):
        exact = np.percentile(waits, percent, method="lower") / 1e9
        assert whole.percentile(percent / 100) == pytest.approx(exact, rel=0.01)


def test_latencies_are_those_of_each_channel_supplier_receiver_and_window(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Two suppliers, two receivers and two windows, each with latencies of its own, against numpy's."""
    rng = np.random.default_rng(8)
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(Track(1, 1.0))
        first = keeper.clock.now // (60 * SECOND) * 60 * SECOND
    waits: dict[tuple[str, str, int], list[float]] = {}
    records = []
    for n in range(4000):
        key = (("radar", "lidar")[n % 2], ("fast", "slow")[n // 2 % 2], n // 4 % 2)
        supplier, receiver, window = key
        wait = int(rng.lognormal(0, 1) * 1e6) * (1 + n % 2) * (1 + 3 * (n // 2 % 2)) * (1 + n // 4 % 2)
        waits.setdefault(key, []).append(wait / 1e9)
        who = ("s1", "air.tracks", receiver, supplier, 2, n, "p1", n)
        at = first + window * 60 * SECOND + n
        records.append(DeliveryRecord(*who, "delivered", "", 1, at, 0, 0, 1, wait, True, 1.0, n))
    with Keeper(tmp_path / "data", DELIVERIES) as keeper:
        keeper.push(*records)
    found = jobs.quality(spark, tmp_path / "data", "air.tracks", window=60.0)
    told_of = {
        (m.scope, m.name, m.window_start, m.measure): m.value
        for m in found.measures
        if m.measure.startswith("latency_p")
    }
    expected: dict[tuple[str, str, int, str], Any] = {}
    groups: dict[str, Callable[[tuple[str, str, int]], str]] = {
        "channel": lambda _: "",
        "supplier": lambda key: f"{key[0]}/2",
        "receiver": lambda key: key[1],
    }
    for scope, name_of in groups.items():
        for name in {name_of(key) for key in waits}:
            for window in (0, 1):
                own = [
                    w
                    for key, some in waits.items()
                    if name_of(key) == name and key[2] == window
                    for w in some
                ]
                for percent in (50, 95, 99):
                    place = (scope, name, first + window * 60 * SECOND, f"latency_p{percent}")
                    expected[place] = pytest.approx(np.percentile(own, percent), rel=0.01)
    assert told_of == expected
    of_run = {(one.scope, one.name): one for one in found.latencies}
    assert set(of_run) == {at[:2] for at in expected}
    for (scope, name), one in of_run.items():
        own = [w for key, some in waits.items() if groups[scope](key) == name for w in some]
        assert (one.n, one.rate) == (len(own), 1.0)
        assert one.max == pytest.approx(max(own))
        for part, percent in ((one.p50, 50), (one.p95, 95), (one.p99, 99)):
            assert part == pytest.approx(np.percentile(own, percent, method="lower"), rel=0.01)
    assert (found.deliveries, found.missed_deadlines) == (4000, 0)


def test_the_audit_of_a_ledger_finds_what_was_pushed_and_not_kept_and_rows_out_of_balance(
    tmp_path: Path, spark: SparkSession
) -> None:
    def row(snapshot: int, receiver: str | None, pushed: int, delivered: int, matched: int) -> LedgerRecord:
        return LedgerRecord(
            "s1", snapshot, 0, "air.tracks", receiver, pushed, matched, delivered, 0, 0, 0, 0, [], 3
        )

    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*(Track(n, 1.0) for n in range(10)))
    with Keeper(tmp_path / "data", LEDGER) as keeper:
        keeper.push(row(1, None, 5, 5, 5), row(2, None, 12, 10, 10), row(3, "bad", 0, 9, 10))
    found = jobs.quality(spark, tmp_path / "data", "air.tracks")
    assert (found.ledger_difference, found.unbalanced) == (2, 1)
    values = {m.measure: m.value for m in found.measures if m.scope == "ledger"}
    assert (values["pushed"], values["kept"], values["delivered"], values["lost_records"]) == (12, 10, 10, 3)


def test_a_batch_that_was_written_and_not_noted_is_told_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        push(keeper, [1, 2, 4])

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("heliograph.spark.jobs.checkpoint.Checkpoint.finish", dies)
        with pytest.raises(KeyboardInterrupt):
            jobs.quality(spark, tmp_path / "data", "air.tracks")
    with Keeper(tmp_path / "data") as keeper:
        keeper.clock.now += 100 * SECOND
        push(keeper, [7, 8])
    again = jobs.quality(spark, tmp_path / "data", "air.tracks")
    assert (again.events, again.lost, again.batches) == (5, 3, 2)
    records = told(tmp_path / "data", "quality.air.tracks", jobs.QualityRecord)
    assert sum(one.value for one in records if one.measure == "lost") == 3
    assert sum(one.value for one in records if one.measure == "events") == 5


def test_real_deliveries_have_latencies_and_a_ledger_that_balances(
    tmp_path: Path, spark: SparkSession
) -> None:
    qos = hg.QoS(durability="persistent", delivery_records="all", lifespan=60.0)
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=qos)
        tracks.subscribe(lambda _: None)
        tracks.push_many([Track(n, 1.0) for n in range(50)])
        tracks.settle(10.0)
    found = jobs.quality(spark, tmp_path / "data", "air.tracks")
    assert (found.events, found.lost, found.deliveries, found.missed_deadlines) == (50, 0, 50, 0)
    assert (found.ledger_difference, found.unbalanced) == (0, 0)


def test_what_cannot_be_asked_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heliograph.spark.jobs.connecting.connected", None)  # whoever calls it fails
    with Keeper(tmp_path / "data") as keeper:
        push(keeper, [1])
    asked: dict[str, Any] = {"folder": tmp_path / "data", "channel": "air.tracks"}
    for wrong in (
        {"window": 0},
        {"late": -1},
        {"events_at_once": 0},
        {"expect": [jobs.Expectation("id > 0", "drop")]},
    ):
        with pytest.raises(InvalidOption):
            QualityJob(**{**asked, **wrong})
    with pytest.raises(ExpressionError):
        QualityJob(**asked, expect=["fail: height > 0"])
    assert run(["pipeline", "quality", str(tmp_path / "data"), "air.tracks", "--expect", "sped > 3"]) == 2
    assert "sped" in capsys.readouterr().err
