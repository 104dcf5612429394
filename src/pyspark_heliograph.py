"""Found by Spark itself: `format("heliograph")` in every session whose Python has Heliograph installed.

Spark looks for modules whose names begin with `pyspark_` when a session first needs a data source in Python,
and registers their `DefaultSource`. Nobody has to import this, or to call `heliograph.spark.register`.
"""

from heliograph.spark.source.source import HeliographSource as DefaultSource

__all__ = ["DefaultSource"]
