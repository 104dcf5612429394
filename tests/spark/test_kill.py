"""kill -9 of a keeping station at random instants while Spark and a consumer read along."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph as hg
import heliograph.spark
from tests.e2e.link_support import wait_until
from tests.spark.station_victim import Beat
from tests.support import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
VICTIM = Path(__file__).with_name("station_victim.py")
KILLS = 6
LONGEST = 0.8
"""Seconds of a life: a look through Spark takes about as long."""
ENOUGH = 100
"""What the first life says of each kind before it is killed: then something can be gone."""


class Life:
    """One victim, killed while somebody else is busy; what it said until then."""

    def __init__(self, folder: Path, number: int) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        self._process = subprocess.Popen(
            [sys.executable, str(VICTIM), str(folder), str(number)], stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdout is not None
        self._said = [self._process.stdout.readline()]
        assert self._said[0], "the victim died by itself"
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def kill_after(self, seconds: float, lines: int = 0) -> None:
        """Kill it then, or as soon as it has said so much of either kind, whichever is later."""

        def kill() -> None:
            wait_until(lambda: min(self._count(b"acked"), self._count(b"saw")) >= lines)
            self._process.kill()

        threading.Timer(seconds, kill).start()

    def said(self) -> list[list[str]]:
        """The words of each line, once it is dead."""
        self._listener.join()
        with self._process:
            return [line.decode().split() for line in self._said]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)  # one by one: somebody may count them

    def _count(self, kind: bytes) -> int:
        return sum(line.startswith(kind) for line in self._said)


def test_what_spark_or_a_consumer_saw_is_still_there_after_the_station_was_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(2026)
    acked: list[int] = []
    seen: list[tuple[int, int]] = []
    for number in range(examples(KILLS)):
        life = Life(tmp_path, number)
        life.kill_after(chance.uniform(0, LONGEST), 0 if number else ENOUGH)
        frame = heliograph.spark.read(spark, tmp_path, "beats")
        seen += [(row[0], row[1]) for row in frame.select("header.offset", "id").collect()]
        for kind, *numbers in life.said():
            if kind == "acked":
                acked.append(int(numbers[0]))
            else:
                seen.append((int(numbers[0]), int(numbers[1])))

    with (
        hg.Station(tmp_path) as station,
        station.channel("beats", Beat).consumer(start="earliest", until="now") as consumer,
    ):
        found = [(delivery.header.offset, delivery.event.id) for delivery in consumer.deliveries()]
    ids = [number for _, number in found]
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert len(set(ids)) == len(ids), "nothing is there twice"
    assert set(acked) <= set(ids), "nothing that was acknowledged is gone"
    assert set(seen) <= set(found), "nothing that somebody saw is gone or stands elsewhere"
    assert len(acked) >= ENOUGH
    assert len(seen) >= ENOUGH
