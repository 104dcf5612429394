"""`heliograph.spark.skip_bad`: leave out events that do not decode, and let Spark count them.

    stream = spark.readStream.format("heliograph").options(path="data", channel="air.tracks",
                                                           badRecords="column").load()
    query = heliograph.spark.skip_bad(stream).writeStream...start()
    query.lastProgress.observedMetrics["bad_records"].skipped

A Python data source can report no figures of its own, and `badRecords=skip` can only log them. Here the bad
events come as far as Spark, which counts them in each batch exactly, and drops them then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


def skip_bad(frame: DataFrame, observed: str | Observation = "bad_records") -> DataFrame:
    """The frame without its bad events; how many there were is `skipped` in what Spark observed.

    Args:
        frame: read with `badRecords=column`, and without the option `filter`, which leaves bad events out.
        observed: the name among the observed metrics of a query's progress, or an Observation for a batch.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the package loads without Spark

    from heliograph.errors import NotPossible  # noqa: PLC0415 - as above
    from heliograph.spark.source.columns import BAD  # noqa: PLC0415 - as above

    if BAD not in frame.columns:
        raise NotPossible("skip_bad", f"the data frame has no column {BAD}; read it with badRecords=column")
    counted = frame.observe(observed, F.count(BAD).alias("skipped"))
    return counted.filter(F.col(BAD).isNull()).drop(BAD)
