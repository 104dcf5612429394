"""Delivery records: every outcome once, as the ledger counts it, and never of themselves."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import heliograph as hg
from heliograph.delivery import records
from heliograph.delivery.records import DELIVERIES, LEDGER, sample_place
from heliograph.errors import InvalidQoS
from heliograph.journal.format.footer import LAYOUT_KEY
from heliograph.journal.store import JournalStore
from heliograph.model.event import Header

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIMIT = 10.0
ALL = hg.QoS(delivery_records="all", ledger_interval=0.01)


class Tick(hg.Event, name="tick", key="n"):
    n: int


def listening(station: hg.Station) -> tuple[hg.Consumer[Any], hg.Consumer[Any]]:
    """Consumers of the records of a station, before anything is recorded."""
    return tuple(  # type: ignore[return-value]  # it makes two
        station.channel(name, cls).consumer()
        for name, cls in ((DELIVERIES, hg.DeliveryRecord), (LEDGER, hg.LedgerRecord))
    )


def taken(consumer: hg.Consumer[Any], count: int) -> list[Any]:
    found = [consumer.pull(LIMIT) for _ in range(count)]
    assert None not in found
    return found


def odd_fails(tick: Tick) -> None:
    if tick.n % 2:
        raise ValueError(tick.n)


def outcomes(found: Iterable[hg.DeliveryRecord]) -> Counter[tuple[str, str, str]]:
    return Counter((record.receiver, record.outcome, record.reason) for record in found)


def test_every_outcome_is_recorded_once_as_the_ledger_counts_it() -> None:
    with hg.Station(on_error=lambda *_: None) as station:
        deliveries, _ = listening(station)
        ticks = station.channel("ticks", Tick, qos=ALL)
        ticks.subscribe(odd_fails, inline=True)
        ticks.subscribe(odd_fails, name="queued")
        slow = ticks.consumer(name="slow", queue=4, overflow="drop_oldest")
        ticks.push_many([Tick(n) for n in range(10)])
        assert ticks.settle(LIMIT)
        slow.close()
        found = taken(deliveries, 30)
        assert outcomes(found) == {
            ("odd_fails", "delivered", ""): 5,
            ("odd_fails", "failed", ""): 5,
            ("queued", "delivered", ""): 5,
            ("queued", "failed", ""): 5,
            ("slow", "dropped", "oldest"): 6,
            ("slow", "dropped", "closed"): 4,
        }
        assert {(r.channel, r.rate, r.sends, r.in_time) for r in found} == {("ticks", 1.0, 1, None)}
        assert sorted(r.seen for r in found) == list(range(1, 31))
        assert len({(r.receiver, r.supplier, r.epoch, r.sequence) for r in found}) == 30
        assert all(r.waited_ns == r.at_ns - r.source_ts >= 0 for r in found)


def test_a_delivery_within_its_lifespan_is_told_from_one_behind_it() -> None:
    with hg.Station() as station:
        deliveries, _ = listening(station)
        qos = hg.QoS(delivery_records="all", lifespan=30.0)
        ticks = station.channel("ticks", Tick, qos=qos)
        consumer = ticks.consumer()
        ticks.push(Tick(1))
        ticks.push(Tick(2), source_ts=1)  # long ago, by its source
        consumer.read(2, LIMIT)
        assert [record.in_time for record in taken(deliveries, 2)] == [True, False]


def test_a_delivery_within_the_latency_asked_for_is_told_from_a_later_one() -> None:
    with hg.Station() as station:
        deliveries, _ = listening(station)
        qos = hg.QoS(delivery_records="all", lifespan=1e6, dispatch="deadline", latency=30.0)
        ticks = station.channel("ticks", Tick, qos=qos)
        consumer = ticks.consumer()
        long_ago = time.time_ns() - 60 * 10**9  # within the lifespan
        ticks.push(Tick(1))
        ticks.push(Tick(2), source_ts=long_ago)
        ticks.push(Tick(3), source_ts=long_ago, latency=3_600.0)  # what a push says comes first
        for _ in range(3):
            consumer.pull(LIMIT)
        found = {record.sequence: (record.in_time, record.latency_ns) for record in taken(deliveries, 3)}
        assert found == {1: (True, 30 * 10**9), 2: (False, 30 * 10**9), 3: (True, 3_600 * 10**9)}


def test_on_a_durable_channel_records_say_where_the_event_is(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        qos = hg.QoS(durability="persistent", delivery_records="all")
        ticks = station.channel("ticks", Tick, qos=qos)
        with ticks.consumer(until="now", start="earliest") as consumer:
            assert list(consumer) == []
        consumer = ticks.consumer(start="earliest")
        ticks.push_many([Tick(n) for n in range(3)])
        assert len(consumer.read(3, LIMIT)) == 3
    with hg.Station(tmp_path / "data") as station:
        kept = station.channel(DELIVERIES, hg.DeliveryRecord)
        assert kept.qos.journalled
        found = list(kept.consumer(start="earliest", until="now"))
        assert [(record.offset, record.outcome) for record in found] == [(n, "delivered") for n in range(3)]
        assert all(record.append_ts is not None and record.partition for record in found)
        ledger = station.channel(LEDGER, hg.LedgerRecord)
        last = [row for row in ledger.consumer(start="earliest", until="now") if row.receiver is None][-1]
        assert (last.channel, last.pushed, last.delivered, last.pending) == ("ticks", 3, 3, 0)


def test_sealed_records_are_columns(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        ticks = station.channel("ticks", Tick, qos=ALL)
        ticks.subscribe(odd_fails, inline=True)
        ticks.push(Tick(2))
        station._recorder.close()
        for name, cls in ((DELIVERIES, hg.DeliveryRecord), (LEDGER, hg.LedgerRecord)):
            store = station.channel(name, cls).store
            assert isinstance(store, JournalStore)
            assert store._writer.seal() == 1
    for file in (tmp_path / "data").rglob("*.parquet"):
        schema = pq.read_schema(file)
        assert schema.metadata[LAYOUT_KEY] == b"unified"
        assert schema.field("channel").type == pa.string()
        assert schema.field("at_ns").type == pa.int64()


def test_a_receiver_that_ends_has_a_last_row_and_lives_of_a_station_do_not_mix(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", delivery_records="all", ledger_interval=0.05)
    for life in range(2):
        with hg.Station(tmp_path / "data") as station:
            ticks = station.channel("ticks", Tick, qos=qos)
            with ticks.consumer(start="now") as ends:
                ticks.push_many([Tick(n) for n in range(3)])
                assert len(ends.read(3, LIMIT)) == 3
            stays = ticks.consumer(start="now")
            ticks.push(Tick(life))
            assert len(stays.read(1, LIMIT)) == 1
    with hg.Station(tmp_path / "data") as station:
        ledger = station.channel(LEDGER, hg.LedgerRecord)
        rows = list(ledger.consumer(start="earliest", until="now"))
    assert len({row.station for row in rows}) == len({row.since_ns for row in rows}) == 2
    finals = [row for row in rows if row.final]
    assert [row.delivered for row in finals if row.receiver is not None] == [3, 1, 3, 1]
    assert [row.delivered for row in finals if row.receiver is None] == [4, 4]
    assert all(row.matched == row.delivered for row in finals)


def test_every_row_of_the_ledger_balances_under_load() -> None:
    with hg.Station() as station:
        _, ledger = listening(station)
        ticks = station.channel("ticks", Tick, qos=ALL)
        ticks.consumer(name="slow", queue=5, overflow="drop_newest")
        ticks.subscribe(odd_fails)
        rows: list[hg.LedgerRecord] = []
        while len({row.snapshot for row in rows}) < 5:
            ticks.push_many([Tick(2 * n) for n in range(100)])
            rows += ledger.read(100, LIMIT)
    for row in rows:
        assert row.matched == row.delivered + row.failed + row.expired + row.dropped + row.pending
        assert row.dropped == sum(dropped.events for dropped in row.dropped_by)
    whole = {row.snapshot: row.matched for row in rows if row.receiver is None}
    parts: Counter[int] = Counter()
    for row in rows:
        if row.receiver is not None:
            parts[row.snapshot] += row.matched
    assert all(parts[snapshot] == matched for snapshot, matched in whole.items() if snapshot in parts)


def test_sampling_takes_all_receivers_of_an_event_or_none() -> None:
    with hg.Station() as station:
        deliveries, _ = listening(station)
        qos = hg.QoS(delivery_records="sampled", delivery_rate=0.2)
        ticks = station.channel("ticks", Tick, qos=qos)
        names = ["a", "b", "c"]
        for name in names:
            ticks.subscribe(lambda _: None, name=name)
        ticks.push_many([Tick(n) for n in range(2000)])
        assert ticks.settle(LIMIT)
        station_records: list[hg.DeliveryRecord] = []
        while found := deliveries.read(1000, 1.0):
            station_records += found
    by_event: dict[int, list[str]] = {}
    for record in station_records:
        by_event.setdefault(record.sequence, []).append(record.receiver)
    assert all(sorted(receivers) == names for receivers in by_event.values())
    assert 300 < len(by_event) < 500, "about a fifth of 2,000"
    assert {record.rate for record in station_records} == {0.2}
    assert max(record.seen for record in station_records) <= 6000


def header(supplier: str, sequence: int) -> Header:
    return Header("c", "t", supplier, 1, sequence, 0, b"f" * 12)


def test_whether_an_event_is_sampled_is_the_same_everywhere_and_even() -> None:
    assert sample_place(header("radar-1", 7)) == 175023549
    for supplier in ("radar-1", "radar-2"):
        below = sum(sample_place(header(supplier, n)) < (1 << 32) // 100 for n in range(20_000))
        assert 130 < below < 270, "about one in a hundred"


def test_without_records_nothing_is_opened_or_watched() -> None:
    with hg.Station() as station:
        ticks = station.channel("ticks", Tick)
        assert ticks.observer is None
        assert [channel.name for channel in station.channels()] == ["ticks"]


def test_channels_about_channels_are_not_recorded_and_not_met_by_patterns() -> None:
    with hg.Station() as station:
        met: list[Any] = []
        station.subscribe("**", met.append)
        ticks = station.channel("ticks", Tick, qos=ALL)
        ticks.push(Tick(1))
        assert ticks.settle(LIMIT)
        assert station.channel(DELIVERIES, hg.DeliveryRecord).observer is None
        assert station.channel(LEDGER, hg.LedgerRecord).observer is None
        assert met == [Tick(1)]


def test_when_too_much_waits_records_are_lost_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_WAITING", 10)
    monkeypatch.setattr(records, "EVERY", 3600.0)
    with hg.Station() as station:
        _, ledger = listening(station)
        ticks = station.channel("ticks", Tick, qos=ALL)
        ticks.subscribe(lambda _: None, inline=True)
        ticks.push_many([Tick(n) for n in range(25)])
        station._recorder.close()
        (row, *_) = taken(ledger, 1)
        assert row.lost_records == 15


def test_rates_that_make_no_sense_are_refused() -> None:
    for rate in (0, 1.5, -1):
        with pytest.raises(InvalidQoS):
            hg.QoS(delivery_records="sampled", delivery_rate=rate)
    with pytest.raises(InvalidQoS):
        hg.QoS(delivery_records="some")  # type: ignore[arg-type]  # that is the point
