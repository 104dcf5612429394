"""A project of Spark Declarative Pipelines whose tables come from a channel.

    files = write_project("air", "data", "air.tracks", expect="speed BETWEEN 0 AND 1200")

The project is plain Spark: `spark-pipelines run` understands it, and `helio pipeline run` runs it with the
Java and the settings of `heliograph.spark.session`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from heliograph.errors import InvalidOption

SPEC_FILE: Final = "spark-pipeline.yml"
SETTINGS: Final = "conf"
"""The folder of a project that holds spark-defaults.conf."""

_SPEC: Final = """\
# What `spark-pipelines` runs: all definitions below transformations/; tables are in tables/.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: "UTC"
  spark.sql.shuffle.partitions: "4"
"""

_DEFAULTS: Final = """\
# Settings with which Spark starts: `helio pipeline run` names this folder in SPARK_CONF_DIR. The catalog is
# kept in files: Spark's default forgets with its process which tables there are, and the next run would find
# them in its way.
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {tables}
spark.driver.extraJavaOptions -Dderby.system.home={catalog}
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.ui.showConsoleProgress false
"""

_HEAD: Final = '''\
"""Tables of the channel {channel}."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import heliograph.spark

spark = heliograph.spark.register(SparkSession.active())

CHANNEL = {{"path": {path!r}, "channel": {channel!r}}}
'''

_TABLE: Final = """

@dp.table(comment={comment!r})
def {table}() -> DataFrame:
    stream = spark.readStream.format("heliograph").options(**CHANNEL, startingOffsets="earliest")
    return stream{wanted}.load()


@dp.materialized_view(comment="How many events were kept in each minute")
def {table}_by_minute() -> DataFrame:
    minute = F.window("header.append_ts", "1 minute")
    counts = spark.read.table("{table}").groupBy(minute).agg(F.count("*").alias("events"))
    return counts.select(F.col("window.start").alias("minute"), "events")
"""

_EXPECTATION: Final = """
# A filter, as in the channel: an event for which it is true is in the table, any other in quarantine.
EXPECTATION = {expectation!r}
"""

_QUARANTINE: Final = """

QUARANTINE = {{"path": {path!r}, "channel": {quarantine!r}}}
dp.create_sink(
    "{table}_quarantine",
    "heliograph",
    QUARANTINE | {{"writerId": {writer!r}, "create": "true", "type": {quarantine!r}}},
)


@dp.append_flow(target="{table}_quarantine")
def {table}_unexpected() -> DataFrame:
    unexpected = f"NOT coalesce(({{EXPECTATION}}), FALSE)"
    stream = spark.readStream.format("heliograph").options(**CHANNEL, startingOffsets="earliest")
    return stream.option("filter", unexpected).load().drop("header")
"""


class Project(NamedTuple):
    """What was written."""

    folder: Path
    files: tuple[Path, ...]
    table: str
    """The streaming table that has the channel's events."""
    quarantine: str | None
    """The channel that gets events which are not as expected."""


def write_project(
    folder: str | Path, data: str | Path, channel: str, *, expect: str | None = None
) -> Project:
    """Write a project into a new folder.

    Args:
        folder: of the project; it must not exist.
        data: the folder of the station that keeps the channel.
        channel: its name; it must have been opened there, so that its columns are known.
        expect: a filter that every event should pass; the others go into the channel `CHANNEL.quarantine`.

    Raises InvalidOption for a folder that exists, NoHistory for a channel that does not, and ExpressionError
    for an expectation that fits none of its event types. Nothing is written then.
    """
    project = Path(folder)
    if project.exists():
        raise InvalidOption("folder", str(folder), "a folder that does not exist yet")
    _check(data, channel, expect)
    station, table = str(Path(data).resolve()), table_name(channel)
    quarantine = None if expect is None else f"{channel}.quarantine"
    definitions = _HEAD.format(channel=channel, path=station)
    if expect is not None:
        definitions += _EXPECTATION.format(expectation=expect)
    definitions += _TABLE.format(
        table=table,
        comment=f"The events of the channel {channel}" + ("" if expect is None else " that are as expected"),
        wanted="" if expect is None else '.option("filter", EXPECTATION)',
    )
    if quarantine is not None:
        definitions += _QUARANTINE.format(
            table=table, path=station, quarantine=quarantine, writer=f"{table}-quarantine"
        )
    whole = project.absolute()
    texts = {
        project / SPEC_FILE: _SPEC.format(name=table, storage=(whole / "storage").as_uri()),
        project / SETTINGS / "spark-defaults.conf": _DEFAULTS.format(
            tables=(whole / "tables").as_uri(), catalog=whole / "catalog"
        ),
        project / "transformations" / f"{table}.py": definitions,
    }
    _write(project, texts)
    return Project(project, tuple(texts), table, quarantine)


def table_name(channel: str) -> str:
    """A name for tables, and for Python functions, that is like the channel's."""
    name = re.sub(r"\W+", "_", channel, flags=re.ASCII).strip("_").lower() or "events"
    return f"t_{name}" if name[0].isdigit() else name


def _check(data: str | Path, channel: str, expect: str | None) -> None:
    from heliograph.spark.source.filters import conditions, parsed  # noqa: PLC0415 - Arrow and the parser load with it
    from heliograph.spark.source.plan import chosen_types, plan_read  # noqa: PLC0415 - as above

    plan = plan_read(str(data), channel, "latest", None, fail_on_data_loss=True)
    types = chosen_types(channel, plan.formats, None)
    if expect is not None:
        conditions(parsed(expect, None), types)


def _write(project: Path, texts: dict[Path, str]) -> None:
    """All files, or no folder."""
    project.mkdir(parents=True)
    try:
        for path, text in texts.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except BaseException:
        shutil.rmtree(project, ignore_errors=True)
        raise
