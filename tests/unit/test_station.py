"""Stations that come and go leave nothing behind in their process."""

from __future__ import annotations

import gc
import os
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")
STATIONS, CONSUMERS = 10, 300


class Reading(hg.Event, name="station.reading"):
    value: int


def open_and_close(folder: Path) -> int:
    """Keep an event and read it again; how many descriptors the process has open afterwards."""
    with hg.Station(folder) as station:
        readings = station.channel("readings", Reading, qos=PERSISTENT)
        assert readings.push(Reading(1))
        with readings.consumer(name="billing") as consumer:
            assert consumer.pull(10) == Reading(1)
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names are counted only


def test_a_station_that_was_closed_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before, *_, after = [open_and_close(tmp_path / str(number)) for number in range(STATIONS)]
    assert after - before < STATIONS // 2, "one for each, apart from what other tests close or open meanwhile"


def test_consumers_that_were_closed_leave_no_memory_behind() -> None:
    with hg.Station() as station:
        readings = station.channel("readings", Reading)

        def come_and_go() -> None:
            for _ in range(CONSUMERS):
                with readings.consumer() as consumer:
                    assert consumer.pull(0) is None
            gc.collect()

        come_and_go()
        tracemalloc.start()
        try:
            held = []
            for _ in range(4):
                come_and_go()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    # Weak references to locks that are gone are cleared away now and then: what leaks grows in every round.
    grown = min(after - before for before, after in pairwise(held))
    assert grown < 100 * CONSUMERS, f"{grown / CONSUMERS:.0f} bytes for each"
