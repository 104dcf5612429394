"""The session that a job on the command line runs in: of a master, or of a Spark Connect server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from heliograph.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS: Final = r"local(\[(\*|[0-9]+)(,[0-9]+)?\])?|spark://.+|k8s://.+|yarn"


def check_session(master: str | None, remote: str | None) -> None:
    """InvalidOption for what Spark could not connect to, without starting it."""
    if master is not None and remote is not None:
        raise InvalidOption("remote", remote, "a server in place of --master, not beside it")
    if master is not None and not re.fullmatch(MASTERS, master):
        raise InvalidOption("master", master, "local[N], local[*], spark://HOST:PORT, k8s://HOST:PORT, yarn")
    if remote is not None and not re.fullmatch(r"sc://.+", remote):
        raise InvalidOption("remote", remote, "sc://HOST:PORT")


def connected(app: str, master: str | None, remote: str | None) -> SparkSession:
    """A session that knows `format("heliograph")`."""
    from heliograph.spark.session.session import register, session  # noqa: PLC0415 - Spark loads with it

    check_session(master, remote)
    if remote is None:
        return session(app, master or "local[*]")
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtra("helio pipeline", error.name or "pyspark", "spark") from error
    return register(SparkSession.builder.appName(app).remote(remote).getOrCreate())
