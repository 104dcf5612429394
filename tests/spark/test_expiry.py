"""Files sealed every half second and expired five seconds later, under a running stream: nothing is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.support import EXAMPLES_FACTOR
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SECONDS = 10 if EXAMPLES_FACTOR == 1 else 60
LIMIT = 300.0
"""Seconds in which something must have expired."""
KEPT = 5.0
"""Seconds."""


class Track(hg.Event, name="air.track", key="id"):
    id: int


def sealing(keeper: Keeper, seconds: float, pushed: list[int], seen: list[list[int]]) -> None:
    """Push all the time; seal every half second, and drop what is older than five.

    The keeper's clock waits for a stream that a busy machine holds up: what it has not read is kept.
    """
    begun = sealed_at = time.monotonic()
    while time.monotonic() < begun + seconds:
        unread = sum(map(len, seen))
        if unread < len(pushed):
            latest = pushed[unread] + round((KEPT - 1) * 1e9)
            keeper.clock.now = max(keeper.clock.now, min(time.time_ns(), latest))
        else:
            keeper.clock.now = time.time_ns()
        keeper.push(*map(Track, range(len(pushed), len(pushed) + 10)))
        pushed += [keeper.clock.now] * 10
        if time.monotonic() - sealed_at >= 0.5:
            keeper.seal()
            keeper.writer.retain()
            sealed_at = time.monotonic()
        time.sleep(0.01)


@pytest.mark.timeout(600)
def test_a_stream_loses_nothing_while_files_are_sealed_and_expire(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        partition = keeper.writer._partition
        partition.limits = replace(partition.limits, keep_seconds=KEPT, grace_seconds=60.0)
        pushed: list[int] = []  # when each was
        seen: list[list[int]] = []
        sealing(keeper, 0.1, pushed, seen)

        def note(rows: DataFrame, _: int) -> None:
            seen.append(sorted(row[0] for row in rows.select("header.offset").collect()))

        said = {"path": str(tmp_path / "data"), "channel": "air.tracks", "startingOffsets": "earliest"}
        stream = spark.readStream.format("heliograph").options(**said).load()
        writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "offsets"))
        query = writer.trigger(processingTime="0 seconds").start()
        begun = time.monotonic()
        while time.monotonic() < begun + SECONDS or not partition.manifest.earliest:
            assert time.monotonic() < begun + LIMIT, "nothing expires"
            assert query.isActive
            sealing(keeper, 1.0, pushed, seen)
        query.processAllAvailable()
        query.stop()
    assert list(chain(*seen)) == list(range(len(pushed)))
