"""The zip for the workers of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from heliograph.cli import run
from heliograph.spark.session.package import package

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_zip_has_the_package_and_what_spark_finds_it_by(tmp_path: Path) -> None:
    files = package(tmp_path / "one.zip")
    names = zipfile.ZipFile(tmp_path / "one.zip").namelist()
    assert len(names) == files
    assert {"heliograph/__init__.py", "heliograph/spark/source/source.py", "pyspark_heliograph.py"} <= set(
        names
    )
    assert not [name for name in names if "__pycache__" in name]
    package(tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", "package", str(tmp_path / "h.zip"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] == (tmp_path / "h.zip").stat().st_size
    assert run(["spark", "package", str(tmp_path / "h.zip")]) == 0
    assert "--py-files" in capsys.readouterr().out


def test_a_program_can_be_run_from_the_zip(tmp_path: Path) -> None:
    package(tmp_path / "h.zip")
    program = "import sys; sys.path.insert(0, sys.argv[1]); import heliograph; print(heliograph.__file__)"
    command = [sys.executable, "-c", program, str(tmp_path / "h.zip")]
    assert str(tmp_path / "h.zip") in subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60
    ).stdout  # fmt: skip
