"""A Spark application that the tests kill: tracks from one channel go, halved, into another.

python sink.py FOLDER CHECKPOINT
"""

from __future__ import annotations

import sys

import heliograph.spark


def main(folder: str, checkpoint: str) -> None:
    spark = heliograph.spark.session(app="sink", master="local[2, 3]")  # a task may fail twice
    tracks = (
        spark.readStream.format("heliograph")
        .option("path", folder)
        .option("channel", "tracks")
        .option("startingOffsets", "earliest")
        .option("maxEventsPerTrigger", 50)
        .load()
    )
    query = (
        tracks.selectExpr("id", "concat('n', id) as note", "id / 2 as mean")
        .repartition(2)
        .writeStream.format("heliograph")
        .option("path", folder)
        .option("channel", "totals")
        .option("writerId", "totals")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
