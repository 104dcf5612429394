"""Streams a channel into a table, batch by batch, until it is killed or told to end.

    python table.py DATA OUT

A batch is written under its own number, over what an earlier attempt may have left: what is twice in the
table was twice in the stream.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(data: str, out: str) -> None:
    spark = heliograph.spark.session(master="local[2, 4]", config={"spark.sql.shuffle.partitions": 2})
    said = {
        "path": data,
        "channel": "air.tracks",
        "startingOffsets": "earliest",
        "maxEventsPerTrigger": "5000",
    }
    stream = spark.readStream.format("heliograph").options(**said).load()

    def write(rows: DataFrame, number: int) -> None:
        found = rows.select("header.partition", "header.offset", "id")
        found.write.mode("overwrite").parquet(f"{out}/rows/batch={number}")
        print(f"batch {number}", flush=True)

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{out}/checkpoint")
    query = writer.trigger(processingTime="0 seconds").start()
    while not Path(out, "end").exists():
        if query.exception() is not None:
            sys.exit(3)
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
