"""Reads a channel, as batch, as stream and for a pattern, on a cluster or over Spark Connect.

What it found goes to OUT/found.json.

python elsewhere.py MASTER DATA ZIP OUT       MASTER: spark://... or connect
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


def where_it_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each task the process that workers of one executor come from, and where heliograph is found."""
    import pyarrow as pa

    for batch in batches:
        import heliograph

        count = batch.num_rows
        yield pa.RecordBatch.from_pydict(
            {"daemon": [os.getppid()] * count, "found": [str(Path(heliograph.__file__).absolute())] * count}
        )


def session(master: str, archive: str) -> Any:
    import heliograph.spark

    if master != "connect":
        return heliograph.spark.session(
            app="elsewhere",
            master=master,
            config={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": False,
                "spark.executor.memory": "512m",
                "spark.executor.cores": 1,
                "spark.sql.shuffle.partitions": 2,
                "spark.submit.pyFiles": archive,
            },
        )
    from pyspark.sql import SparkSession

    from heliograph.spark.session.java import find_java

    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.addArtifacts(archive, pyfile=True)
    return heliograph.spark.register(spark)


def wait_for(is_so: Callable[[], bool]) -> None:
    """Listeners hear of things some time after they happened."""
    end = time.monotonic() + 60
    while not is_so() and time.monotonic() < end:
        time.sleep(0.05)


def main(master: str, data: str, archive: str, out: str) -> None:
    import heliograph as hg
    import heliograph.spark

    spark = session(master, archive)
    said = {"path": data, "channel": "air.tracks"}
    frame = spark.read.format("heliograph").options(**said).load()
    batch = sorted(row[0] for row in frame.filter("id >= 50").select("id").collect())
    options = {**said, "startingOffsets": "earliest", "consumer": "elsewhere", "maxEventsPerTrigger": "40"}
    with hg.Station() as station:
        progress = station.channel("spark.progress", heliograph.spark.QueryProgress)
        told: list[Any] = []
        progress.subscribe(told.append, inline=True)
        listener = heliograph.spark.progress_listener(progress)
        spark.streams.addListener(listener)
        stream = spark.readStream.format("heliograph").options(**options).load()
        writer = stream.select("id").writeStream.format("parquet").option("path", f"{out}/rows")
        query = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination(120)
        wait_for(lambda: any(one.kind == "terminated" for one in told))
        spark.streams.removeListener(listener)
    streamed = sorted(row[0] for row in spark.read.parquet(f"{out}/rows").collect())
    pairs = heliograph.spark.matches(spark, data, "pairs").select("key", "parts.b.offset").collect()
    places = (
        spark.range(0, 8, 1, 4).mapInArrow(where_it_runs, "daemon long, found string").distinct().collect()
    )
    found = {
        "batch": batch,
        "streamed": streamed,
        "pairs": sorted(map(tuple, pairs)),
        "daemons": sorted({row[0] for row in places}),
        "found": sorted({row[1] for row in places}),
        "driver": os.getpid(),
        "told": [(one.kind, one.batch, one.lag_events) for one in told],
        "lag": sum(one.events for one in heliograph.spark.lag_by_partition(query).values()),
    }
    Path(out, "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
