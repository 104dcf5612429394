"""`heliograph.spark.matches`: the matches of a replayable pattern, found again in Spark.

    storms = heliograph.spark.matches(spark, "data", "storms")
    storms.filter("reason = 'matched'").select("key", "at", "parts.t.offset", "parts.w.offset")

`docs/guides/patterns.md` has the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

    from heliograph.patterns.pattern import Pattern


@names_options
def matches(
    spark: SparkSession, folder: str | os.PathLike[str], name: str, *, pattern: Pattern | None = None
) -> DataFrame:
    """The matches that the callback of a replayable pattern was given, as far as they are durable now.

    Args:
        spark: such as `heliograph.spark.session()`.
        folder: of the station that looked for them; it may be running.
        name: what the pattern was subscribed under, with `replayable=True`.
        pattern: what it must have been; by default it is what the record says.

    Raises NotPossible when nothing was kept under this name, when it was kept for another pattern, or when
    the pattern is one that cannot be replayed; HistoryGone or HistoryDamaged when a part of the record is not
    there.
    """
    from heliograph.patterns.recording import check_streams  # noqa: PLC0415 - few programs have patterns
    from heliograph.patterns.replay import to_text  # noqa: PLC0415 - as above
    from heliograph.spark.patterns.recording import StoredRecording  # noqa: PLC0415 - Spark and Arrow load with the first call
    from heliograph.spark.session.session import insist_on_session  # noqa: PLC0415 - as above
    from heliograph.spark.source.option_values import folder as parse_folder  # noqa: PLC0415 - as above
    from heliograph.spark.source.option_values import path_text  # noqa: PLC0415 - as above

    if pattern is not None:
        check_streams(name, pattern)
    insist_on_session(spark)
    folder = parse_folder("folder", path_text("folder", folder))
    return StoredRecording(spark, folder, name).matches(None if pattern is None else to_text(pattern))
