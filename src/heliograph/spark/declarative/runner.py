"""Running a project of Spark Declarative Pipelines with the Java and the settings of our own sessions.

`spark-pipelines run` in a shell does the same where JAVA_HOME and PYSPARK_PYTHON are set as Spark needs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.errors import InvalidOption, MissingExtra
from heliograph.spark.declarative.project import SETTINGS, SPEC_FILE
from heliograph.spark.session.session import environment

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_project(
    folder: str | Path, *, dry: bool = False, remote: str | None = None, refresh: Sequence[str] = ()
) -> int:
    """Run the project in this folder, with its log on standard error; the exit code is Spark's.

    Args:
        folder: the one that holds spark-pipeline.yml, or that file.
        dry: only check the definitions.
        remote: a Spark Connect server, `sc://...`; without it Spark runs on this machine.
        refresh: tables that are dropped and computed anew; the others go on where they were.
    """
    spec = Path(folder)
    spec = spec / SPEC_FILE if spec.is_dir() else spec
    if not spec.is_file():
        raise InvalidOption(
            "folder", str(folder), f"a folder with a {SPEC_FILE}; `helio pipeline init` makes one"
        )
    command = [*_launcher(), *(["--remote", remote] if remote else []), "dry-run" if dry else "run"]
    command += ["--spec", str(spec.absolute())]
    if refresh:
        command += ["--full-refresh", ",".join(refresh)]
    surroundings = _environment(spec.parent, remote)
    done = subprocess.run(command, env=surroundings, cwd=spec.parent, stdout=sys.stderr, check=False)  # noqa: S603 - Spark's own launcher, and no shell
    return done.returncode


def _launcher() -> list[str]:
    try:
        import pyspark  # noqa: PLC0415 - the package loads without Spark
    except ModuleNotFoundError as error:
        raise MissingExtra("helio pipeline run", error.name or "pyspark", "spark") from error
    if find_spec("yaml") is None:  # Spark's command reads its file with it
        raise MissingExtra("helio pipeline run", "yaml", "spark")
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")]


def _environment(project: Path, remote: str | None) -> dict[str, str]:
    settings = (project / SETTINGS).absolute()
    own = {"SPARK_CONF_DIR": str(settings)} if remote is None and settings.is_dir() else {}
    return {**os.environ, **environment(is_local=remote is None), **own}
