"""The pipeline on Spark.

    import heliograph.spark

    spark = heliograph.spark.session()
    tracks = heliograph.spark.read(spark, "data", "air.tracks", where="speed > 300")
    storms = heliograph.spark.matches(spark, "data", "storms")
    stream = spark.readStream.format("heliograph").options(path="data", channel="air.tracks").load()

Importing this package does not import Spark; the first call does.
"""

from __future__ import annotations

from heliograph.spark.patterns.matches import matches
from heliograph.spark.progress import PartitionLag, QueryProgress, progress_listener
from heliograph.spark.session.session import register, session
from heliograph.spark.source.bad_records import skip_bad
from heliograph.spark.source.damage import naming_loss
from heliograph.spark.source.lag import Lag, lag, lag_by_partition
from heliograph.spark.source.read import read

__all__ = [
    "Lag",
    "PartitionLag",
    "QueryProgress",
    "lag",
    "lag_by_partition",
    "matches",
    "naming_loss",
    "progress_listener",
    "read",
    "register",
    "session",
    "skip_bad",
]
