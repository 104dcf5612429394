"""History, then live: joins at random instants under full load see every event once, in order.

Four suppliers push at full rate while heads rotate, are sealed, merged and expire.
On a channel that is compacted every join still sees the last event of each key.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.journal.format.folder import StationFolder
from heliograph.journal.maintenance import compaction_policy as tidying
from heliograph.journal.maintenance import seal
from heliograph.journal.store import JournalStore
from heliograph.sim import SimDisk
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.channel.channel import Channel
    from heliograph.journal import Manifest

LIMIT = 30.0
SEEN = 300


class Tick(hg.Event, key="source"):
    source: int
    n: int


@pytest.fixture
def sealing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seal and rewrite in a thread and often: to start processes takes most of the time that a test has."""
    monkeypatch.setattr(seal, "LocalDisk", SimDisk)
    monkeypatch.setattr(tidying, "TOGETHER", 3)


def test_joins_at_random_instants_give_the_exact_events_in_order(tmp_path: Path, sealing_here: None) -> None:
    limits = hg.Limits(head_events=1_000, head_seconds=0.2, keep_bytes=2 << 20, grace_seconds=0.5)
    stop = threading.Event()
    gaps: list[BaseException] = []
    with hg.Station(
        tmp_path / "data", journal=limits, on_error=lambda _name, _header, error: gaps.append(error)
    ) as station:
        ticks = station.channel("ticks", Tick, qos=hg.QoS(durability="persistent"))
        threads = [threading.Thread(target=_push_until, args=(stop, ticks, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            rng = random.Random(4)
            joins, over = 0, time.monotonic() + LIMIT
            while joins < examples(200) or not (_has_merged(tmp_path) or time.monotonic() > over):
                _join_and_check(ticks, rng)
                joins += 1
            assert _has_merged(tmp_path), "segments were merged while this ran"
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        stats = ticks.stats()
        assert stats.balanced
        assert gaps == [], "every join started at what was still kept"
        sealed = list((tmp_path / "data").rglob("*.parquet"))
        assert sealed, "segments were sealed while this ran"
        print(f"{joins} joins over {stats.pushed} events, {len(sealed)} segments at the end")


def test_joins_to_a_history_that_is_being_compacted_see_the_last_of_each_key(
    tmp_path: Path, sealing_here: None
) -> None:
    limits = hg.Limits(head_events=200, head_seconds=0.1, grace_seconds=0.5)
    stop = threading.Event()
    acked: dict[int, int] = {}
    with hg.Station(tmp_path / "data", journal=limits) as station:
        qos = hg.QoS(durability="persistent", compaction="key")
        ticks = station.channel("ticks", Tick, qos=qos)
        threads = [threading.Thread(target=_push_until, args=(stop, ticks, n, acked)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            joins, over = 0, time.monotonic() + LIMIT
            # By the clock: while the disk or the suppliers stand still, a thousand joins take a second.
            while joins < examples(40) or (_compacted(ticks) < 3_000 and time.monotonic() < over):
                _see_the_last_of_each_key(ticks, dict(acked))
                joins += 1
            assert _compacted(ticks), "segments were compacted while this ran"
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        assert ticks.stats().balanced


def _has_merged(tmp_path: Path) -> bool:
    return any(segment.events > 1_500 for segment in _manifest(tmp_path / "data").segments)


def _compacted(ticks: Channel[Tick]) -> int:
    assert isinstance(ticks.store, JournalStore)
    return ticks.store._writer.stats().compacted


def _see_the_last_of_each_key(ticks: Channel[Tick], acked: dict[int, int]) -> None:
    last_of: dict[int, int] = {}
    last_offset = -1
    with ticks.consumer(start="earliest", until="now", queue=100) as consumer:
        for delivery in consumer.deliveries(LIMIT):
            offset = delivery.header.offset
            assert offset is not None
            assert offset > last_offset
            last_offset = offset
            assert delivery.event.n > last_of.get(delivery.event.source, -1)
            last_of[delivery.event.source] = delivery.event.n
        assert consumer.gaps == ()
    assert all(last_of.get(source, -1) >= n for source, n in acked.items())


def _manifest(folder: Path) -> Manifest:
    station = StationFolder(folder)
    (partition,) = station.partitions("ticks")
    with station.reader("ticks", partition) as reader:
        return reader.manifest


def _push_until(
    stop: threading.Event, ticks: Channel[Tick], source: int, acked: dict[int, int] | None = None
) -> None:
    with ticks.supplier(f"source-{source}") as supplier:
        n = 0
        while not stop.is_set():
            supplier.push_many([Tick(source, n + i) for i in range(20)])
            n += 20
            if acked is not None:
                acked[source] = n - 1


def _join_and_check(ticks: Channel[Tick], rng: random.Random) -> None:
    """Join somewhere in the recent past, or now, with a queue that is often too short."""
    back = rng.choice([0, 10, 500, 2_000])
    start = max(0, ticks.stats().pushed - back)
    last_of: dict[int, int] = {}
    expected = start
    with ticks.consumer(start=start, queue=rng.randrange(1, 200)) as consumer:
        for delivery, _ in zip(consumer.deliveries(LIMIT), range(SEEN), strict=False):
            assert delivery.header.offset == expected
            expected += 1
            tick = delivery.event
            assert tick.n == last_of.get(tick.source, tick.n - 1) + 1, (
                "each supplier's own order, without a gap"
            )
            last_of[tick.source] = tick.n
    assert expected == start + SEEN
