"""`heliograph.spark.matches` in a real Spark: the matches that the callback was given, and a replay gives."""

from __future__ import annotations

import enum
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from heliograph.cli import run
from heliograph.errors import HistoryGone, InvalidOption, NotPossible
from heliograph.patterns.recording import INPUTS, Input
from heliograph.runtime.ports import system_ports
from heliograph.spark import jobs
from heliograph.spark.jobs.table_job import TableTarget
from heliograph.testing import Rig
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = hg.QoS(durability="persistent")
CUSTOMERS = 5


class Order(hg.Event, name="shop.order"):
    customer: int
    number: int


class Payment(hg.Event, name="shop.payment"):
    customer: int
    number: int


PATTERNS: dict[str, Any] = {
    "both": lambda o, p: hg.all_of(o=o, p=p, within=2.0, by="customer", keys=2),
    "unpaid": lambda o, p: hg.all_of(o=o, no=hg.none_of(p=p), within=2.0, by="customer", keys=3),
    "watched": lambda o, p: hg.all_of(o=o, p=p, watchdog=1.5, by="customer", keys=3),
    "ticked": lambda o, p: hg.all_of(tick=hg.every(1.0), p=hg.any_of(a=o, b=p)),
    "silent": lambda o, p: hg.none_of(o=o, p=p, within=2.0),
    "clock": lambda _o, _p: hg.every(2.0),
}


class Shop:
    """A station on a real disk whose clock jumps, all the patterns, and what their callbacks were given."""

    def __init__(self, folder: Path, seed: int = 0, before: Shop | None = None) -> None:
        self.folder = folder
        disk: Any = system_ports(folder).disk
        self.rig = Rig(seed=seed, disk=disk)
        if before is not None:
            self.rig.clock.set_wall(before.rig.clock.time_ns() / 1e9)
        self.orders = self.rig.station.channel("orders", Order, qos=PERSISTENT)
        self.payments = self.rig.station.channel("payments", Payment, qos=PERSISTENT)
        self.seen: dict[str, list[Any]] = before.seen if before else {kind: [] for kind in PATTERNS}
        self.patterns = {kind: make(self.orders, self.payments) for kind, make in PATTERNS.items()}
        for kind, pattern in self.patterns.items():
            self.rig.station.subscribe(pattern, self.seen[kind].append, name=kind, replayable=True)

    def restarted(self, seed: int) -> Shop:
        self.rig.station.close()
        return Shop(self.folder, seed, self)

    def seal(self) -> None:
        """From here on Spark reads a part of the records by itself."""
        for kind in PATTERNS:
            inputs: Any = self.rig.station.channel(INPUTS + kind, Input)
            assert inputs.store._writer.seal() == 1

    def run(self, chance: random.Random, steps: int) -> Shop:
        shop = self
        for number in range(steps):
            customer = chance.randrange(CUSTOMERS)
            match chance.choices(["order", "payment", "pass", "restart"], [8, 8, 5, 1])[0]:
                case "order":
                    shop.orders.push(Order(customer, number))
                case "payment":
                    shop.payments.push(Payment(customer, number))
                case "pass":
                    shop.rig.clock.advance(chance.choice([0.3, 0.5, 1.0, 3.0]))
                case _:
                    shop = shop.restarted(number + 1)
            shop.rig.settle()
        return shop


@pytest.fixture
def shops() -> Iterator[list[Shop]]:
    shops: list[Shop] = []
    yield shops
    for shop in shops:
        shop.rig.station.close()


def told(match: Any) -> Any:
    """What a match says; an event by its number, which no other event has."""
    match match:
        case Order() | Payment():
            return match.number
        case hg.Event() | None | int() | str() | tuple():
            return match
        case _:
            return {name: told(getattr(match, name)) for name in match.__struct_fields__}


def told_by_spark(row: Any, numbers: dict[tuple[str, int | None], int]) -> Any:
    parts = {name: _told_part(part, numbers) for name, part in row.parts.asDict(recursive=True).items()}
    return {**parts, "key": row.key, "at": row.at_ns, "missing": tuple(row.missing)}


def _told_part(part: Any, numbers: dict[tuple[str, int | None], int]) -> Any:
    match part:
        case {"channel": channel, "partition": _, "offset": offset}:
            return numbers[channel, offset]
        case dict():
            return {name: _told_part(inner, numbers) for name, inner in part.items()}
        case _:
            return part


def everything(channel: hg.Channel[Any]) -> list[tuple[Any, hg.Header]]:
    with channel.consumer(start="earliest", until="now") as consumer:
        return [(delivery.event, delivery.header) for delivery in consumer.deliveries()]


def in_order(frame: DataFrame) -> list[Any]:
    rows: list[Any] = frame.collect()
    return sorted(rows, key=lambda row: (row.connect, row.at_ns, row.number))


def by_key(matches: list[Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for match in matches:
        found.setdefault(match["key"], []).append(match)
    return found


@pytest.mark.parametrize("seed", range(examples(1)))
def test_live_replay_and_spark_give_equal_matches_event_by_event(
    spark: SparkSession, tmp_path: Path, seed: int, shops: list[Shop]
) -> None:
    chance = random.Random(seed)
    shop = Shop(tmp_path).run(chance, 60)
    shop.seal()
    shop = shop.run(chance, 60)
    shops.append(shop)
    numbers = {
        (channel.name, header.offset): event.number
        for channel in (shop.orders, shop.payments)
        for event, header in everything(channel)
    }
    for kind, pattern in shop.patterns.items():
        live = by_key([told(match) for match in shop.seen[kind]])
        replay = by_key([told(match) for match in shop.rig.station.matches(pattern, name=kind)])
        frame = heliograph.spark.matches(spark, tmp_path, kind, pattern=pattern)
        in_spark = by_key([told_by_spark(row, numbers) for row in in_order(frame)])
        assert live == replay == in_spark, kind
        assert live, f"{kind} found nothing"


@pytest.mark.parametrize("seed", range(examples(2)))
def test_a_table_of_matches_holds_what_live_delivered_as_a_list_per_key(
    spark: SparkSession, tmp_path: Path, seed: int, shops: list[Shop]
) -> None:
    """Two workloads in CI, a hundred with HELIO_EXAMPLES=50; a pattern of each, found in two runs."""
    chance = random.Random(f"{seed} correlate")
    kind = sorted(PATTERNS)[seed % len(PATTERNS)]
    shop = Shop(tmp_path / "data", seed).run(chance, 40)
    shops.append(shop)
    table, form = tmp_path / "table", ("parquet", "delta", "iceberg")[seed // len(PATTERNS) % 3]
    first = jobs.correlate(spark, tmp_path / "data", kind, table, format=form)  # type: ignore[arg-type]
    shops[:] = [shop := shop.run(chance, 80)]
    job = jobs.CorrelateJob(
        folder=tmp_path / "data",
        name=kind,
        to=table,
        format=form,
        pattern=shop.patterns[kind],
        inputs_at_once=50,
    )
    second, third = job.run(spark), job.run(spark)
    assert first.matches + second.matches == len(shop.seen[kind]) > 0
    assert (third.matches, third.commits, third.inputs) == (0, 0, 0)
    numbers = {
        (channel.name, header.offset): event.number
        for channel in (shop.orders, shop.payments)
        for event, header in everything(channel)
    }
    with TableTarget(table, form).opened() as there:
        files = [str(there.place.table / file.path) for file in there.table.files()]
    found = by_key([told_by_spark(row, numbers) for row in in_order(spark.read.parquet(*files))])
    assert found == by_key([told(match) for match in shop.seen[kind]])


def test_what_was_not_recorded_or_is_another_pattern_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        orders = station.channel("orders", Order, qos=PERSISTENT)
        assert station.subscribe(hg.any_of(order=orders), print, name="watch", replayable=True).settle(10)
        plain = station.channel("plain", Order)
        given: dict[str, Any] = {"folder": tmp_path / "data", "to": tmp_path / "table"}
        with pytest.raises(NotPossible, match=r"holds those of watch.*replayable=True"):
            jobs.CorrelateJob(name="storms", **given)
        with pytest.raises(NotPossible, match="'plain' is not persistent"):
            jobs.CorrelateJob(name="watch", pattern=hg.any_of(order=plain), **given)
        with pytest.raises(InvalidOption, match="parquet, delta, iceberg"):
            jobs.CorrelateJob(name="watch", format="orc", **given)
    assert run(["pipeline", "correlate", str(tmp_path / "data"), "storms", str(tmp_path / "table")]) == 2
    assert not (tmp_path / "table").exists()


class Wind(enum.Enum):
    CALM = "calm"
    STORM = "storm"


class Gust(hg.Event, name="air.gust"):
    wind: Wind
    when: datetime
    speed: float
    raw: bytes
    id: hg.u64


class Report(hg.Event, name="air.report"):
    wind: Wind
    when: datetime
    speed: int
    raw: bytes
    id: hg.u64


NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
KEYS = {
    "wind": ("string", "storm"),
    "when": ("timestamp", NOON.replace(tzinfo=None)),  # Spark gives times without a zone, in the session's
    "speed": ("string", "1.0"),
    "raw": ("binary", b"\x00"),
    "id": ("decimal(20,0)", 2**63),
}


def test_keys_have_the_type_of_their_field(spark: SparkSession, tmp_path: Path) -> None:
    """Where streams have keys of types that no column holds together, it is JSON, and 1 is still 1.0."""
    with hg.Station(tmp_path) as station:
        gusts = station.channel("gusts", Gust, qos=PERSISTENT)
        reports = station.channel("reports", Report, qos=PERSISTENT)
        given: list[Any] = []
        subscriptions = [
            station.subscribe(hg.all_of(g=gusts, r=reports, by=by), given.append, name=by, replayable=True)
            for by in KEYS
        ]
        gusts.push(Gust(Wind.STORM, NOON, 1.0, b"\x00", 2**63))
        assert gusts.settle(10)
        elsewhere = timezone(timedelta(hours=2))
        reports.push(Report(Wind.STORM, NOON.astimezone(elsewhere), 1, b"\x00", 2**63))
        assert reports.settle(10)
        assert all(one.settle(10) for one in subscriptions)
        assert len(given) == len(KEYS)
    for by, (kind, value) in KEYS.items():
        frame = heliograph.spark.matches(spark, tmp_path, by)
        assert frame.schema["key"].dataType.simpleString() == kind
        assert [(row[0], row[1]) for row in frame.select("key", "parts.r.offset").collect()] == [(value, 0)]


def test_events_of_a_match_are_found_by_their_places(spark: SparkSession, tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        orders = station.channel("orders", Order, qos=PERSISTENT)
        pattern = hg.all_of(order=orders.where("number > 1"))
        subscription = station.subscribe(pattern, print, name="orders", replayable=True)
        orders.push_many([Order(1, 1), Order(2, 2)])
        assert orders.settle(10)
        assert subscription.settle(10)
        # A configuration may set limits of its own; what they were is in the record.
        same = hg.all_of(order=orders.where("number > 1"), keys=7)
        found = heliograph.spark.matches(spark, tmp_path, "orders", pattern=same).select("parts.order.*")
        read = heliograph.spark.read(spark, tmp_path, "orders").select("header.*", "customer", "number")
        joined = found.join(read, ["channel", "partition", "offset"])
        assert [tuple(row) for row in joined.select("customer", "number").collect()] == [(2, 2)]


def test_what_cannot_be_found_again_is_refused_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        orders = station.channel("orders", Order, qos=PERSISTENT)
        plain = station.channel("plain", Order)
        pattern = hg.any_of(order=orders)
        with pytest.raises(NotPossible, match=r"no record of such a pattern.*holds those of none"):
            heliograph.spark.matches(spark, tmp_path, "watch")
        station.subscribe(pattern, print, name="unkept")
        assert station.subscribe(pattern, print, name="watch", replayable=True).settle(10)
        with pytest.raises(NotPossible, match=r"holds those of watch.*replayable=True"):
            heliograph.spark.matches(spark, tmp_path, "unkept")
        with pytest.raises(NotPossible, match="'plain' is not persistent"):
            heliograph.spark.matches(spark, tmp_path, "watch", pattern=hg.any_of(order=plain))
        with pytest.raises(NotPossible, match=r"was written for any_of.*this is none_of"):
            heliograph.spark.matches(spark, tmp_path, "watch", pattern=hg.none_of(order=orders, within=1.0))
        inputs = station.channel(INPUTS + "headless", Input, qos=PERSISTENT)
        inputs.push(Input("tick", 1))
        with pytest.raises(HistoryGone):
            heliograph.spark.matches(spark, tmp_path, "headless")
