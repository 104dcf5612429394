"""Jobs of the pipeline against what Spark does by itself, and what a long stream and delivery records cost.

Figures of jobs are per event, on the wall, of a sealed channel; `--events` says how many there are.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from bench.peers.channels import TRACK, take
from bench.peers.channels import Track as SmallTrack
from bench.peers.spark_source import FIELDS, MICRO_BATCH, fill, sealed_files, started
from heliograph.spark import jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MICRO_BATCHES = 1_000
FEW = 10
COPY = "Spark's copy, Parquet to Parquet"
GROWTH = 0.2
"""By which the driver may have grown between the middle and the end of a long stream."""


@benchmark("pipeline-jobs", "Archive against Spark's own copy of the same rows, and quality; per event")
def running_jobs(size: Size) -> Benchmark:
    stack = ExitStack()
    folder, spark = started(stack)
    events = size.scaled(size.events)
    data = str(size.histories / str(events)) if size.histories else f"{folder}/data"
    fill(data, "sealed", events, sealed=True)
    files = sealed_files(data, "sealed")
    numbers = count()

    def place() -> Path:
        return Path(folder, f"out-{next(numbers)}")

    def copied() -> None:
        out = place()
        spark.read.parquet(*files).write.parquet(str(out))
        shutil.rmtree(out)

    def archived() -> None:
        out = place()
        done = jobs.archive(spark, data, "sealed", out)
        assert done.events == events
        shutil.rmtree(out)

    def measured() -> None:
        checkpoint = place()
        jobs.quality(spark, data, "sealed", expect=["speed BETWEEN 0 AND 1200"], checkpoint=checkpoint)
        shutil.rmtree(checkpoint)

    def case(name: str, work: Any) -> Case:
        return Case(name, work, ((),), wall=True, events=events)

    return Benchmark(
        cases=(case(COPY, copied), case("archive", archived), case("quality", measured)),
        baseline=COPY,
        targets=(
            # At least 0.6 of the rate.
            Target("archive against Spark's copy, time", "archive", "at most", 1 / 0.6, COPY),
            Target("quality, at least 500,000 events a second: us for one", "quality", "at most", 2.0),
        ),
        rounds=size.fewer(5),
        close=stack.close,
        note=f"{events:,} events of {len(FIELDS)} fields; the copy and the archive have all columns, with "
        "the header. Quality counts, looks for gaps and repeats, and asks one expectation.",
    )


BY_HAND = "as-of join by hand"
RATES = {"imu": 10, "gps": 5, "battery": 1}
"""Of sixteen events, how many each channel has."""
KEYS = 50


class Sample(hg.Event, name="robot.sample", key="robot"):
    robot: int
    x: float
    y: float


@benchmark("pipeline-align", "Align of three channels against the same as-of join written by hand; per event")
def aligning(size: Size) -> Benchmark:
    stack = ExitStack()
    folder, spark = started(stack)
    events = size.scaled(size.events)
    data = str(size.histories / f"robots-{events}") if size.histories else f"{folder}/robots"
    numbers = count()
    for name, share in RATES.items():
        fill(
            data, name, events * share // sum(RATES.values()), sealed=True,
            events_of=(Sample, lambda n: Sample(n % KEYS, n * 0.5, n * 0.25)),
        )  # fmt: skip
    rows = events * RATES["gps"] // sum(RATES.values())

    def place() -> Path:
        return Path(folder, f"out-{next(numbers)}")

    def aligned() -> None:
        out = place()
        channels = {name: name for name in RATES}
        done = jobs.align(spark, data, channels, out, lead="gps", by="robot", tolerance=3600.0)
        assert done.rows == rows
        shutil.rmtree(out)

    def by_hand() -> None:
        out = place()
        joined_by_hand(spark, data).write.parquet(str(out))
        assert spark.read.parquet(str(out)).count() == rows
        shutil.rmtree(out)

    def case(name: str, work: Any) -> Case:
        return Case(name, work, ((),), wall=True, events=events)

    return Benchmark(
        cases=(case(BY_HAND, by_hand), case("align", aligned)),
        baseline=BY_HAND,
        # At least 0.4 of the rate.
        targets=(Target("align against the join by hand, time", "align", "at most", 1 / 0.4, BY_HAND),),
        rounds=size.fewer(5),
        close=stack.close,
        note=f"{events:,} events of three channels at rates of {RATES}, {KEYS} keys, {rows:,} rows. By hand: "
        "the union of all rows, and the last value of each channel in a window by key and time; without "
        "gaps, ages and tolerance, and without a commit.",
    )


def joined_by_hand(spark: SparkSession, data: str) -> DataFrame:
    """As one would write it: the union of all, and what was last in a window over it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from heliograph.spark import read

    def rows(name: str) -> DataFrame:
        own = read(spark, data, name).select("robot", f.col("header.append_ns").alias("t"), "x", "y")
        value = f.struct("x", "y", "t")
        columns = [value.alias(one) if one == name else f.lit(None).alias(one) for one in RATES]
        return own.select("robot", "t", f.lit(name).alias("of"), *columns)

    union = rows("imu").unionByName(rows("battery")).unionByName(rows("gps"))
    order = Window.partitionBy("robot").orderBy("t").rowsBetween(Window.unboundedPreceding, 0)
    last = [f.last(name, ignorenulls=True).over(order).alias(name) for name in RATES]
    return union.select("robot", "t", "of", *last).filter("of = 'gps'")


REPLAYED_A_SECOND = 10_000
ON_TIME_MS = 1.0


@benchmark("pipeline-replay", "A history pushed again: as fast as possible, and on its schedule; per event")
def replaying(size: Size) -> Benchmark:
    stack = ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    station = stack.enter_context(hg.Station(folder))
    kept = hg.QoS(durability="persistent")
    source = station.channel("source", SmallTrack, qos=kept)
    events = REPLAYED_A_SECOND // 10 if size.quick else REPLAYED_A_SECOND * 10
    step = 1_000_000_000 // REPLAYED_A_SECOND
    for first in range(0, events, 1_000):
        for n in range(first, min(first + 1_000, events)):
            source.push_nowait(TRACK, source_ts=n * step)
    source.push(TRACK, source_ts=events * step)
    live = station.channel("live", SmallTrack)
    live.subscribe(take, inline=True)
    into = station.channel("into", SmallTrack, qos=kept)
    late = {}
    for name, target in (("a live channel", live), ("a persistent one", into)):
        done = source.replay(target, speed=1.0, by="source")
        late[name] = (done.late_median * 1e3, done.late_max * 1e3)
    told = "; ".join(f"into {name} {p50:.3f} ms, {most:.1f} ms at most" for name, (p50, most) in late.items())
    facts = [
        Fact(
            f"at {REPLAYED_A_SECOND:,} events a second into {name}, half are pushed within "
            f"{ON_TIME_MS:g} ms of their schedule: {p50:.3f} ms",
            p50 <= ON_TIME_MS,
        )
        for name, (p50, _) in late.items()
    ]
    return Benchmark(
        cases=(
            Case(
                "into a live channel",
                lambda: source.replay(live, speed=None),
                ((),),
                wall=True,
                events=events + 1,
            ),
            Case(
                "into a persistent one",
                lambda: source.replay(into, speed=None),
                ((),),
                wall=True,
                events=events + 1,
            ),
        ),
        baseline="into a live channel",
        facts=() if size.quick else tuple(facts),
        rounds=3,
        close=stack.close,
        note=f"Behind schedule at {REPLAYED_A_SECOND:,} events a second, median and most: {told}.",
    )


@benchmark("spark-memory", "The memory of the driver in a stream of a thousand micro-batches; per batch")
def long_stream(size: Size) -> Benchmark:
    stack = ExitStack()
    folder, spark = started(stack)
    batches = 20 if size.quick else MICRO_BATCHES
    fill(f"{folder}/data", "long", batches * MICRO_BATCH, sealed=False)
    fill(f"{folder}/data", "short", FEW * MICRO_BATCH, sealed=False)
    seen: list[float] = []
    numbers = count()

    def note(_: DataFrame, number: int) -> None:
        if (number + 1) % (batches // 10) == 0:
            seen.append(heap_in_use(spark))

    def drained(channel: str, each: Any) -> None:
        place = Path(folder, f"out-{next(numbers)}")
        said = {"path": f"{folder}/data", "channel": channel, "startingOffsets": "earliest"}
        stream = spark.readStream.format("heliograph").options(**said, maxEventsPerTrigger=str(MICRO_BATCH))
        writer = stream.load().writeStream.foreachBatch(each)
        writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(place)

    drained("long", note)
    middle, end = seen[len(seen) // 2 - 1], seen[-1]
    if not size.quick and end > middle * (1 + GROWTH):
        raise AssertionError(
            f"the driver grows: {middle:.0f} MB after half of the batches, {end:.0f} at the end"
        )
    return Benchmark(
        cases=(
            Case(
                f"a batch of {MICRO_BATCH}",
                lambda: drained("short", lambda *_: None),
                ((),),
                wall=True,
                events=FEW,
            ),
        ),
        baseline=f"a batch of {MICRO_BATCH}",
        rounds=3,
        close=stack.close,
        note=f"{batches:,} micro-batches. Heap in use on the driver after a collection: {seen[0]:.0f} MB "
        f"after a tenth of them, {middle:.0f} after half, {end:.0f} at the end; more than {GROWTH:.0%} from "
        "half to end would have failed.",
    )


def heap_in_use(spark: SparkSession) -> float:
    """Megabytes of the driver's Java that are in use when all garbage is collected."""
    gc.collect()  # references of Python's hold objects of Java's
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 - no other way to Java
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


@benchmark("delivery-records", "A push to one callback, by how much of its delivery is recorded")
def recorded(_: Size) -> Benchmark:
    stack = ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    station = stack.enter_context(hg.Station(folder))
    cases = []
    for name, qos in (
        ("none", hg.QoS()),
        ("sampled", hg.QoS(delivery_records="sampled")),
        ("all", hg.QoS(delivery_records="all")),
    ):
        channel = station.channel(f"records.{name}", SmallTrack, qos=qos)
        channel.subscribe(take, inline=True)
        cases.append(Case(f"records: {name}", channel.push, ((TRACK,),)))
    return Benchmark(
        cases=tuple(cases),
        baseline="records: none",
        close=stack.close,
        note="Volatile channels with an inline callback; a task of the station writes the records to disk.",
    )
