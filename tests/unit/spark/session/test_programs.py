"""The start script of workers: this very Python, with Spark's modules from where they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from heliograph.spark.session.programs import worker_python

if TYPE_CHECKING:
    import pytest

ASK = """
import os, sys, pyspark
print(sys.prefix, pyspark.__file__, os.environ['PYTHONPATH'], sys.argv[1:], sep='|')
"""


def test_workers_import_what_is_installed_and_keep_all_else_that_they_were_given() -> None:
    libraries = Path(pyspark.__file__).parent / "python" / "lib"
    zips = sorted(map(str, libraries.glob("*.zip")))
    assert len(zips) == 2
    given = ["/a folder", *zips, "/tmp/*", "/shipped/heliograph.zip"]
    asked = subprocess.run(
        [worker_python(), "-c", ASK, "a b", "*"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(given), "HELIO_WORKER_PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [sys.prefix, pyspark.__file__, "/a folder:/tmp/*:/shipped/heliograph.zip", "['a b', '*']"]
    assert asked.stdout.strip().split("|") == expected


def test_workers_import_nothing_from_the_folder_they_are_started_in(tmp_path: Path) -> None:
    """Spark starts them with -m, wherever its program was started."""
    (tmp_path / "pyspark.py").write_text("raise SystemExit('somebody else was run')")
    asked = subprocess.run(
        [worker_python(), "-m", "pyspark.cloudpickle"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "somebody else" not in asked.stderr
    other = tmp_path / "of the driver"
    other.mkdir()
    (other / "helper.py").write_text("print('found')")
    found = subprocess.run(
        [worker_python(), "-m", "helper"],
        env={**os.environ, "PYTHONPATH": "", "HELIO_WORKER_PATH": str(other)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "found\n", "what the driver imports"


def test_where_no_script_can_stand_workers_are_started_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    assert worker_python() == sys.executable
