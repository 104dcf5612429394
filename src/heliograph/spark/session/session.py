"""A Spark session that is set up for events.

    spark = heliograph.spark.session()                           # this machine, all its cores
    spark = heliograph.spark.session(master="spark://host:7077")
    spark = heliograph.spark.session(config={"spark.driver.memory": "4g"})

Everywhere: `format("heliograph")` registered, times in UTC, Arrow between Python and the JVM. With a local
master besides: Java is found (`heliograph.spark.session.java`), workers run this very Python, nothing listens
beyond 127.0.0.1, no web interface, a heap of 1 GB. `config` has the last word over all of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakSet

from heliograph.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

Setting: TypeAlias = "str | int | float | bool"

LOOPBACK: Final = "127.0.0.1"
LOG_SETTINGS: Final = Path(__file__).absolute().with_name("log4j2.properties")

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_registered: WeakSet[SparkSession] = WeakSet()

_EVERYWHERE: Final[dict[str, Setting]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": True,
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": False,
}
_LOCAL: Final[dict[str, Setting]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",
    "spark.ui.enabled": False,
    # Spark looks for nulls itself before it reads a value out of Arrow's memory, and batches come from Python
    # processes of its own; Arrow looking once more at each value takes a quarter of the time of a read.
    JAVA_OPTIONS: "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
    # Spark's own default of 200 is meant for clusters; on one machine most of those tasks would be empty.
    "spark.sql.shuffle.partitions": 4,
}


def session(
    app: str = "heliograph", master: str = "local[*]", config: Mapping[str, Setting] | None = None
) -> SparkSession:
    """The Spark session of this process, started if there is none yet.

    A process has one: if it already runs, Spark returns that one with the SQL settings of `config` applied,
    and `app` and `master` stay as they were. MissingExtra is raised where `heliograph[spark]` is not
    installed, NoJava when no Java will do. The environment variables JAVA_HOME, PYSPARK_PYTHON,
    PYSPARK_DRIVER_PYTHON and SPARK_LOCAL_IP are set where they are missing, because
    Spark's launcher reads them there.
    """
    try:
        from pyspark import SparkContext  # noqa: PLC0415 - the package heliograph.spark loads without Spark
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtra("heliograph.spark.session()", error.name or "pyspark", "spark") from error

    is_local = master.startswith("local")
    if SparkContext._gateway is None:  # noqa: SLF001 - no public way to ask whether a JVM runs
        os.environ.update(environment(is_local=is_local))
    settings = {**_EVERYWHERE, **(_local() if is_local else {}), **(config or {})}
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> SparkSession:
    """Make `format("heliograph")` known to a session that was started otherwise, also over Spark Connect."""
    from heliograph.spark.source.source import HeliographSource, RangeSource  # noqa: PLC0415 - as above

    if spark not in _registered:  # Spark warns when a source is registered again
        for source in (HeliographSource, RangeSource):
            if not _knows(spark, source.name()):
                spark.dataSource.register(source)
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            from heliograph.spark.declarative.connect_client import pass_over_worker_notes  # noqa: PLC0415 - as above

            pass_over_worker_notes(spark.client)
        _registered.add(spark)
    return spark


def _knows(spark: SparkSession, name: str) -> bool:
    """Whether Spark has found a source by itself; False over Spark Connect, which does not say."""
    session = getattr(spark, "_jsparkSession", None)
    return session is not None and bool(session.sessionState().dataSourceManager().dataSourceExists(name))


def _local() -> dict[str, Setting]:
    if not LOG_SETTINGS.is_file():  # the package is in a zip, where Java does not find it
        return _LOCAL
    log_settings = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    return {**_LOCAL, JAVA_OPTIONS: f"{_LOCAL[JAVA_OPTIONS]} {log_settings}"}


def environment(*, is_local: bool) -> dict[str, str]:
    """Variables that Spark's launcher needs and this process does not have: Java, Pythons, an address."""
    from heliograph.spark.session.java import find_java  # noqa: PLC0415 - not needed when a JVM runs already
    from heliograph.spark.session.programs import worker_path, worker_python  # noqa: PLC0415 - as above

    # This program is Python: the driver is this process, and only on one machine is its path the workers'.
    needed = {"JAVA_HOME": str(find_java().home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local:
        needed |= {"PYSPARK_PYTHON": worker_python(), "SPARK_LOCAL_IP": LOOPBACK}
        if os.environ.get("PYSPARK_PYTHON", needed["PYSPARK_PYTHON"]) == sys.executable:
            needed["PYTHONSAFEPATH"] = "1"  # there is no script that would see to it
    lacking = {name: value for name, value in needed.items() if name not in os.environ}
    chosen = {"JAVA_HOME": needed["JAVA_HOME"]}  # of one that is set, the wrapper that it may need
    return lacking | chosen | ({"HELIO_WORKER_PATH": worker_path()} if is_local else {})
