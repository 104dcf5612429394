"""The pipeline on Spark.

    import heliograph.spark

    spark = heliograph.spark.session()

Importing this package does not import Spark; the first call does.
"""

from __future__ import annotations

from heliograph.spark.session import session

__all__ = ["session"]
