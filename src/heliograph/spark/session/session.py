"""A Spark session that is set up for events.

    spark = heliograph.spark.session()                           # this machine, all its cores
    spark = heliograph.spark.session(master="spark://host:7077")
    spark = heliograph.spark.session(profile="production")       # as a service
    spark = heliograph.spark.session(config={"spark.driver.memory": "4g"})

Everywhere: `format("heliograph")` registered, times in UTC, Arrow between Python and the JVM, state of
streams in RocksDB. With a local master besides: Java is found (`heliograph.spark.session.java`), workers run
this very Python, and nothing listens beyond 127.0.0.1. The profile adds:

    laptop       a heap of 1 GB, no web interface, four shuffle partitions, Arrow without its own checks; the
                 default of a local master
    production   a quarter of the memory as heap, 2 to 16 GB, the web interface with the metrics of streams,
                 shuffle partitions as Spark has them, Arrow with its checks; the default of any other master

`config` has the last word over all of it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakSet

from heliograph.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

Setting: TypeAlias = "str | int | float | bool"

LOOPBACK: Final = "127.0.0.1"
LOG_SETTINGS: Final = Path(__file__).absolute().with_name("log4j2.properties")

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_registered: WeakSet[SparkSession] = WeakSet()

Profile: TypeAlias = Literal["laptop", "production"]
PROFILES: Final = ("laptop", "production")
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"

_EVERYWHERE: Final[dict[str, Setting]] = {
    # Spark's default keeps the state of a query in the heap, and has no transformWithState.
    STATE_STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": True,
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": False,
}
_LOCAL: Final[dict[str, Setting]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
_LAPTOP: Final[dict[str, Setting]] = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": False,
    # Spark looks for nulls itself before it reads a value out of Arrow's memory, and batches come from Python
    # processes of its own; Arrow looking once more at each value takes a quarter of the time of a read.
    JAVA_OPTIONS: "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
    # Spark's own default of 200 is meant for clusters; on one machine most of those tasks would be empty.
    "spark.sql.shuffle.partitions": 4,
}


_PRODUCTION: Final[dict[str, Setting]] = {
    "spark.ui.enabled": True,
    "spark.sql.streaming.metricsEnabled": True,
}
GIGABYTE: Final = 1 << 30
LEAST_HEAP: Final = 2
MOST_HEAP: Final = 16
"""Gigabytes of the production profile: chosen, not measured; `config` overrides them."""


def session(
    app: str = "heliograph",
    master: str = "local[*]",
    config: Mapping[str, Setting] | None = None,
    *,
    profile: Profile | None = None,
) -> SparkSession:
    """The Spark session of this process, started if there is none yet.

    A process has one: if it already runs, Spark returns that one with the SQL settings of `config` applied,
    and `app` and `master` stay as they were. MissingExtra is raised where `heliograph[spark]` is not
    installed, NoJava when no Java will do. The environment variables JAVA_HOME, PYSPARK_PYTHON,
    PYSPARK_DRIVER_PYTHON and SPARK_LOCAL_IP are set where they are missing, because
    Spark's launcher reads them there.
    """
    if profile is not None and profile not in PROFILES:
        raise InvalidOption("profile", str(profile), " or ".join(PROFILES))
    try:
        from pyspark import SparkContext  # noqa: PLC0415 - the package heliograph.spark loads without Spark
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtra("heliograph.spark.session()", error.name or "pyspark", "spark") from error

    is_local = master.startswith("local")
    if SparkContext._gateway is None:  # noqa: SLF001 - no public way to ask whether a JVM runs
        os.environ.update(environment(is_local=is_local))
    settings = {**settings_of(profile, is_local=is_local), **(config or {})}
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def settings_of(profile: Profile | None, *, is_local: bool) -> dict[str, Setting]:
    """What a session is given before the user's own settings."""
    chosen = profile or ("laptop" if is_local else "production")
    settings = {**_EVERYWHERE, **(_LOCAL if is_local else {})}
    if chosen == "laptop":
        return _with_log({**settings, **_LAPTOP}) if is_local else {**settings, **_LAPTOP}
    settings |= {**_PRODUCTION, "spark.driver.memory": f"{production_heap(_memory())}g"}
    return _with_log(settings) if is_local else settings


def production_heap(memory: int) -> int:
    """Gigabytes of heap on a machine, or in a container, with so many bytes."""
    return max(LEAST_HEAP, min(MOST_HEAP, memory // 4 // GIGABYTE))


def _memory() -> int:
    """Bytes that this process may use: the machine's, or less in a container that says so."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        there = min(there, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return there


def insist_on_session(spark: Any) -> None:
    """InvalidOption for what is no session; it would fail somewhere inside, with an AttributeError."""
    if not hasattr(spark, "createDataFrame") or not hasattr(spark, "readStream"):
        raise InvalidOption("spark", f"{spark!r:.60}", "a session, such as heliograph.spark.session()")


def register(spark: SparkSession) -> SparkSession:
    """Make `format("heliograph")` known to a session that was started otherwise, also over Spark Connect.

    Nothing else of the session is changed: reading, streaming and writing need no setting of Spark.
    """
    from heliograph.spark.source.source import HeliographSource, RangeSource  # noqa: PLC0415 - as above

    insist_on_session(spark)
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


def _with_log(settings: dict[str, Setting]) -> dict[str, Setting]:
    if not LOG_SETTINGS.is_file():  # the package is in a zip, where Java does not find it
        return settings
    log_settings = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    return {**settings, JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} {log_settings}".strip()}


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
