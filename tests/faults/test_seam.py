"""History, then live: joins at random instants under full load see every event once, in order.

Four suppliers push at full rate while heads rotate, are sealed in a process of their own and expire.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import heliograph as hg
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.channel.core import Channel

LIMIT = 30.0
SEEN = 300


class Tick(hg.Event, key="source"):
    source: int
    n: int


def test_joins_at_random_instants_give_the_exact_events_in_order(tmp_path: Path) -> None:
    limits = hg.Limits(head_events=3_000, head_seconds=0.5, keep_bytes=1 << 20)
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
            joins = examples(200)
            for _ in range(joins):
                _join_and_check(ticks, rng)
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


def _push_until(stop: threading.Event, ticks: Channel[Tick], source: int) -> None:
    with ticks.supplier(f"source-{source}") as supplier:
        n = 0
        while not stop.is_set():
            supplier.push_many([Tick(source, n + i) for i in range(20)])
            n += 20


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
