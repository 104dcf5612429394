"""The pipeline on Spark.

    import heliograph.spark

    spark = heliograph.spark.session()
    tracks = heliograph.spark.read(spark, "data", "air.tracks", where="speed > 300")

Importing this package does not import Spark; the first call does.
"""

from __future__ import annotations

from heliograph.spark.read import read
from heliograph.spark.session import session

__all__ = ["read", "session"]
