"""Reads a channel in a session that nobody has told of Heliograph; prints how many events it finds.

python unregistered.py DATA
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(data: str) -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    print(spark.read.format("heliograph").options(path=data, channel="air.tracks").load().count())
    rows = spark.range(5).selectExpr("id")
    rows.write.format("heliograph").mode("append").options(
        path=data, channel="new", create="true", type="air.new"
    ).save()
    print(spark.read.format("heliograph").options(path=data, channel="new").load().count())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
