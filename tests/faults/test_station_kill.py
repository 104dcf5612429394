"""kill -9 of a keeping station at random instants while a consumer of its own and another process look on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.journal.format.folder import partition_folder
from tests.e2e.link_support import wait_until
from tests.faults.test_journal_kill import Watcher
from tests.spark.station_victim import Beat
from tests.spark.test_kill import ENOUGH, Life
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 6
LONGEST = 0.15


@pytest.mark.timeout(examples(300))
def test_what_a_consumer_or_another_process_saw_is_still_there_after_the_station_was_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(2027)
    with hg.Station(tmp_path) as station:
        kept = station.channel("beats", Beat, qos=hg.QoS(durability="persistent"))
        kept.push(Beat(-1))
        with kept.consumer(start="earliest", until="now") as consumer:
            (first,) = consumer.deliveries()
        assert first.header.partition is not None
        place = partition_folder("beats", first.header.partition)
    acked: set[int] = set()
    seen: set[tuple[int, int]] = set()
    with Watcher(tmp_path, place) as watcher:
        for number in range(examples(KILLS)):
            life = Life(tmp_path, number)
            life.kill_after(chance.uniform(0, LONGEST), 0 if number else ENOUGH)
            for kind, *numbers in life.said():
                if kind == "acked":
                    acked.add(int(numbers[0]))
                else:
                    seen.add((int(numbers[0]), int(numbers[1])))
        assert wait_until(lambda: watcher.lines >= ENOUGH)
    watched = watcher.seen()

    with hg.Station(tmp_path) as station:
        channel = station.channel("beats", Beat)
        with channel.consumer(start="earliest", until="now") as consumer:
            deliveries = list(consumer.deliveries())
    found = {(d.header.offset, d.event.id) for d in deliveries}
    there = {d.header.offset: (d.header.supplier, d.header.epoch, d.header.sequence) for d in deliveries}
    assert sorted(there) == list(range(len(deliveries)))
    assert len({d.event.id for d in deliveries}) == len(deliveries), "nothing is there twice"
    assert acked <= {number for _, number in found}, "nothing that was acknowledged is gone"
    assert seen <= found, "nothing that the consumer saw is gone or stands elsewhere"
    assert watched.items() <= there.items(), "nor is anything that the other process saw"
    assert len(acked) >= ENOUGH
    assert len(watched) >= ENOUGH - 1, "its last line may have been cut"
