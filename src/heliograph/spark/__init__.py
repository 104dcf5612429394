"""The pipeline on Spark.

    import heliograph.spark

    spark = heliograph.spark.session()
    tracks = heliograph.spark.read(spark, "data", "air.tracks", where="speed > 300")
    storms = heliograph.spark.matches(spark, "data", "storms")
    stream = spark.readStream.format("heliograph").options(path="data", channel="air.tracks").load()

Importing this package does not import Spark; the first call does.
"""

from __future__ import annotations

from heliograph.spark.damage import naming_loss
from heliograph.spark.lag import Lag, lag, lag_by_partition
from heliograph.spark.matching import matches
from heliograph.spark.read import read
from heliograph.spark.session import register, session
from heliograph.spark.skipping import skip_bad

__all__ = [
    "Lag",
    "lag",
    "lag_by_partition",
    "matches",
    "naming_loss",
    "read",
    "register",
    "session",
    "skip_bad",
]
