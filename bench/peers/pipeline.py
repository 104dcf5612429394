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
from bench.harness import Benchmark, Case, Size, Target, benchmark
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
