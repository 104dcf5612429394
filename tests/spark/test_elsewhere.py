"""Channels read where heliograph is not installed: on a standalone cluster, and over Spark Connect.

The cluster costs a minute and is left to `make proof`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import heliograph as hg
from heliograph.cli import run as run_helio
from heliograph.journal.consumers.lag import lag
from heliograph.patterns.pattern import AllOf, Leaf
from heliograph.patterns.recording import INPUTS, Input
from heliograph.patterns.replay import to_text
from heliograph.spark.session.java import find_java
from tests.support import examples
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "programs" / "elsewhere.py"
LIMIT = 120.0
"""Seconds for a process to say what it is waited for to say."""


class Track(hg.Event, name="air.track", key="id"):
    id: int


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Fifty events sealed, fifty in the head."""
    with Keeper(tmp_path / "data") as keeper:
        keeper.push(*map(Track, range(50)))
        keeper.seal()
        keeper.push(*map(Track, range(50, 100)))
        record(tmp_path / "data")
        yield tmp_path / "data"


def record(folder: Path) -> None:
    """What a pattern took in: of each id three events, of which two make a pair."""
    pattern = AllOf({"a": Leaf("air.tracks()"), "b": Leaf("air.tracks()")}, by="id")
    with Keeper(folder, INPUTS + "pairs") as keeper:
        keeper.push(Input("connect", 0, pattern=to_text(pattern), key_type="i64"))
        keeper.push(*(Input("event", n, n % 3 % 2, "air.tracks", "p1", n, n // 3) for n in range(60)))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The package as a zip, to be shipped."""
    archive = tmp_path / "heliograph.zip"
    assert run_helio(["spark", "package", str(archive)]) == 0
    return archive


@pytest.fixture
def python_without_heliograph(tmp_path: Path) -> Path:
    """This Python with all that heliograph stands on, and without it: it is installed by a .pth file."""
    packages = Path(pyspark.__file__).parent.parent
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    alone = [str(script), "-c", "import pyarrow, msgspec, heliograph"]
    failed = subprocess.run(alone, capture_output=True, text=True, env={}, cwd=tmp_path)
    assert "No module named 'heliograph'" in failed.stderr
    return script


def environment(python: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def start(stack: ExitStack, log: Path, command: list[str], python: Path) -> subprocess.Popen[bytes]:
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(python), cwd=log.parent)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """The first group of what matches in its log, as soon as it is there."""
    end = time.monotonic() + LIMIT
    while (found := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return found[1]


def run(master: str, data: Path, archive: Path, python: Path, out: Path) -> dict[str, Any]:
    out.mkdir()
    # Spark ships files to what reads, and not to the process beside the driver that plans a stream.
    env = {**environment(python), "PYTHONPATH": str(archive)}
    command = [sys.executable, str(PROGRAM), master, str(data), str(archive), str(out)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((out / "found.json").read_text())
    return found


def test_what_reads_can_be_loaded_from_a_zip_beside_it(
    archive: Path, python_without_heliograph: Path
) -> None:
    """Executors have what is shipped to them under a relative path."""
    load = [
        str(python_without_heliograph),
        "-c",
        "import heliograph.spark.source.source as s; print(s.__file__)",
    ]
    done = subprocess.run(
        load, capture_output=True, text=True, env={"PYTHONPATH": f"./{archive.name}"}, cwd=archive.parent
    )
    assert done.returncode == 0, done.stderr
    assert archive.name in done.stdout


@pytest.mark.skipif(examples(1) == 1, reason="`make proof` starts a cluster")
@pytest.mark.timeout(600)
def test_a_cluster_reads_a_channel_with_heliograph_shipped_to_it(
    data: Path, archive: Path, python_without_heliograph: Path, tmp_path: Path
) -> None:
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    listening = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    workers = {name: tmp_path / f"{name}.log" for name in ("worker-1", "worker-2")}
    with ExitStack() as stack:
        command = [spark_class, "org.apache.spark.deploy.master.Master", *listening]
        log = tmp_path / "master.log"
        master = said(
            start(stack, log, command, python_without_heliograph),
            log,
            r"Starting Spark master at (spark://\S+)",
        )
        started = []
        for name, log in workers.items():
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", *listening, "--cores", "1"]
            command += ["--memory", "600m", "-d", str(tmp_path / name), master]
            started.append(start(stack, log, command, python_without_heliograph))
        for worker, log in zip(started, workers.values(), strict=True):
            said(worker, log, r"Successfully registered with (master) ")
        found = run(master, data, archive, python_without_heliograph, tmp_path / "out")
    assert found["batch"] == list(range(50, 100))
    assert found["streamed"] == list(range(100))
    assert found["pairs"] == [[n, n * 3 + 1] for n in range(20)]
    assert len(found["daemons"]) == 2
    assert found["driver"] not in found["daemons"]
    insist_on_progress(found, data)
    assert {Path(place).relative_to(tmp_path).parts[0] for place in found["found"]} == set(workers)
    assert all("heliograph.zip" in place for place in found["found"])


def insist_on_progress(found: dict[str, Any], data: Path) -> None:
    """What the listener pushed, what the lag is at the end, and what consumers of the channel are told of."""
    kinds = [kind for kind, *_ in found["told"]]
    assert kinds[0] == "started"
    assert kinds[-1] == "terminated"
    batches = [(batch, lag) for kind, batch, lag in found["told"] if kind == "progress"]
    assert [lag for _, lag in sorted(batches)][:3] == [60, 20, 0]
    assert found["lag"] == 0
    # Spark says what was processed when the next batch begins, and nothing of the last one.
    (reader,) = [one for one in lag(data, "air.tracks") if one.consumer == "elsewhere"]
    assert reader.events == 20


@pytest.mark.timeout(600)
def test_spark_connect_reads_a_channel(
    data: Path, archive: Path, python_without_heliograph: Path, tmp_path: Path
) -> None:
    found = run("connect", data, archive, python_without_heliograph, tmp_path / "out")
    assert found["batch"] == list(range(50, 100))
    assert found["streamed"] == list(range(100))
    assert found["pairs"] == [[n, n * 3 + 1] for n in range(20)]
    assert all("heliograph.zip" in place for place in found["found"])
    insist_on_progress(found, data)
