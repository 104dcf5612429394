"""One executor against two, on a standalone cluster of this machine: the same history, read to nothing.

A master, three workers of one core each and two drivers are started once; one driver has one executor, the
other two, and whichever is not measured waits. Each driver runs this module:

    python -m bench.peers.executors MASTER EXECUTORS FOLDER
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Benchmark, Case, Size, Target, benchmark
from bench.peers.spark_source import FIELDS, fill, to_nothing

LIMIT = 180.0
"""Seconds for a process to say what it is waited for to say."""
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
WAYS = ("format", "read")
REPOSITORY = Path(__file__).parents[2]


class Cluster:
    """A standalone master and its workers, which end with the stack."""

    def __init__(self, stack: ExitStack, folder: Path, workers: int) -> None:
        import pyspark

        from heliograph.spark.session.java import find_java

        self._stack, self._folder = stack, folder
        home = Path(pyspark.__file__).parent
        self._program = str(home / "bin" / "spark-class")
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
        }
        self.master = self._start("Master", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            own = ["--cores", "1", "--memory", "1g", "-d", str(folder / f"worker-{number}"), self.master]
            self._start("Worker", r"Successfully registered with (master) ", *own)

    def _start(self, what: str, says: str, *arguments: str) -> str:
        log = self._folder / f"{what}-{time.monotonic_ns()}.log"
        command = [self._program, f"org.apache.spark.deploy.{what.lower()}.{what}", *LISTENING, *arguments]
        with log.open("w") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self.environment, cwd=self._folder
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        end = time.monotonic() + LIMIT
        while (found := re.search(says, log.read_text())) is None:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.05)
        return found[1]


class Driver:
    """A driver in a process of its own, which reads when it is told to."""

    def __init__(self, stack: ExitStack, cluster: Cluster, executors: int, data: str) -> None:
        command = [sys.executable, "-m", "bench.peers.executors", cluster.master, str(executors), data]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**cluster.environment, "PYSPARK_DRIVER_PYTHON": sys.executable},
            cwd=REPOSITORY,
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.terminate)
        self.tell("ready")

    def tell(self, what: str) -> None:
        """Have it do something, and wait until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != what:
            raise AssertionError(f"the driver said {answer!r}, not {what!r}")


@benchmark("spark-executors", "A sealed channel read by one and by two executors of a cluster; per event")
def executors(size: Size) -> Benchmark:
    stack = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-")))
    events = size.scaled(size.events)
    data = str(size.histories / str(events)) if size.histories else f"{folder}/data"
    fill(data, "sealed", events, sealed=True)
    try:
        cluster = Cluster(stack, folder, workers=3)
        drivers = {number: Driver(stack, cluster, number, data) for number in (1, 2)}
    except BaseException:
        stack.close()
        raise

    def case(way: str, number: int) -> Case:
        return Case(_name(way, number), partial(drivers[number].tell, way), ((),), wall=True, events=events)

    return Benchmark(
        cases=tuple(case(way, number) for way in WAYS for number in drivers),
        baseline=_name("format", 1),
        # Two of them at 1.5 times the rate at least; a quick run says nothing about speed.
        targets=()
        if size.quick
        else tuple(
            Target(
                f"{way}: two executors against one, time", _name(way, 2), "at most", 1 / 1.5, _name(way, 1)
            )
            for way in WAYS
        ),
        rounds=size.fewer(5),
        close=stack.close,
        note=f"{events:,} events of {len(FIELDS)} fields; executors of one core, with the driver, the "
        "master and the workers on the same machine. `format` goes through Python, `read` through Spark's "
        "own Parquet reader.",
    )


def _name(way: str, number: int) -> str:
    return f"{way}, {number} executor{'s' if number > 1 else ''}"


def main(master: str, number: int, data: str) -> None:
    """The driver: one word on standard input, one back when it is done."""
    import heliograph.spark

    spark = heliograph.spark.session(
        app=f"executors-{number}",
        master=master,
        config={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": False,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "768m",
            "spark.executor.cores": 1,
            "spark.cores.max": number,
        },
    )
    work: dict[str, Any] = {
        "format": lambda: to_nothing(
            spark.read.format("heliograph").options(path=data, channel="sealed", minPartitions=8).load()
        ),
        "read": lambda: to_nothing(heliograph.spark.read(spark, data, "sealed").select(*FIELDS)),
        "ready": lambda: spark.range(0, 1000, 1, 8).mapInArrow(lambda batches: batches, "id long").count(),
    }
    for line in sys.stdin:
        work[line.strip()]()
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
