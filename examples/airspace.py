"""An airspace in four processes: one radar, two watchers, a history, and a summary in Spark.

    make run

A radar process keeps the channel `air.tracks` and pushes tracks into it. Two watcher processes receive what
they asked for: `fast` from the beginning, and `north`, which joins late and reads the history first. On the
way `fast` is killed with SIGKILL and started again; it goes on where it was. At the end Spark counts the same
history with the same filter texts, and the numbers must agree.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACKS = 4_000
REGIONS = ("north", "east", "south", "west")
FILTERS = {"fast": "speed > 600", "north": "region = 'north' AND speed > 100"}
LAST = -1
"""The id of the track that says: that was all."""
LIMIT = 60.0
"""Seconds after which something must be wrong."""
KEPT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    """One aircraft, seen once."""

    id: int
    speed: float
    region: str


def radar(domain: str, folder: str) -> None:
    """Keep the channel and push tracks into it, a few at a time."""
    rng = random.Random(1)  # noqa: S311 - the same tracks in every run
    with hg.Station(folder, domain=domain, name="radar") as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        say(pushed=0)
        tracks.wait_matched(consumers=1, timeout=LIMIT)
        for start in range(0, TRACKS, 20):
            tracks.push_many(
                [
                    Track(id=start + i, speed=rng.uniform(0, 900), region=rng.choice(REGIONS))
                    for i in range(20)
                ]
            )
            say(pushed=start + 20)
            time.sleep(0.005)  # a radar turns
        tracks.push(Track(id=LAST, speed=1_000.0, region="north"))
        sys.stdin.readline()  # the channel is kept until everybody has read it


def watch(domain: str, name: str) -> None:
    """Receive what the filter wants, as a durable consumer, until the last track."""
    with hg.Station(domain=domain, name=name) as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        with tracks.consumer(name=name, where=FILTERS[name], start="earliest") as consumer:
            for delivery in consumer.deliveries():
                say(id=delivery.event.id, offset=delivery.header.offset)
                if delivery.event.id == LAST:
                    break


def say(**facts: object) -> None:
    """One line of JSON for whoever started this process."""
    print(json.dumps(facts), flush=True)


class Started:
    """A process of this program, and what it said."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def lines(self) -> Iterator[dict[str, int]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def kill(self) -> list[dict[str, int]]:
        """End it in the middle of whatever it does; returns what it had still said."""
        self._process.kill()
        assert self._process.stdout is not None
        rest = self._process.stdout.read().splitlines(keepends=True)
        self._process.wait(LIMIT)
        return [json.loads(line) for line in rest if line.endswith("\n")]

    def finish(self) -> int:
        self._process.communicate(input="\n", timeout=LIMIT)
        return self._process.returncode


def main() -> int:
    """Start the processes, disturb them, and compare what everybody saw."""
    domain = f"airspace-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        print("a radar keeps air.tracks and pushes into it ...")
        source = Started("radar", domain, folder)
        pushed = source.lines()
        next(pushed)
        print(f"a watcher wants {FILTERS['fast']!r}")
        fast = Started("watch", domain, "fast")
        seen = {"fast": [line["offset"] for line in islice(fast.lines(), 300)]}
        seen["fast"] += [line["offset"] for line in fast.kill()]
        print(f"... killed after {len(seen['fast'])} tracks, and started again: it goes on where it was")
        fast = Started("watch", domain, "fast")
        for line in pushed:
            if line["pushed"] >= TRACKS // 2:
                break
        print(f"another joins late and wants {FILTERS['north']!r}: history first, then live")
        north = Started("watch", domain, "north")
        seen["fast"] += [line["offset"] for line in fast.lines()]
        seen["north"] = [line["offset"] for line in north.lines()]
        codes = [fast.finish(), north.finish(), source.finish()]
        counted = count_in_spark(folder)
    return compare(seen, counted, codes)


def count_in_spark(folder: str) -> dict[str, int]:
    """How many tracks each filter chooses from the history."""
    import heliograph.spark  # noqa: PLC0415 - the other processes need no Spark

    spark = heliograph.spark.session("airspace")
    try:
        history = heliograph.spark.read(spark, folder, "air.tracks")
        print("the history, summed up by Spark:")
        history.groupBy("region").agg({"id": "count", "speed": "avg"}).orderBy("region").show()
        return {
            name: heliograph.spark.read(spark, folder, "air.tracks", where=where).count()
            for name, where in FILTERS.items()
        }
    finally:
        spark.stop()


def compare(seen: dict[str, list[int]], counted: dict[str, int], codes: list[int]) -> int:
    """Every offset at least once and in order; only what was in hand at the kill may have come twice."""
    ok = codes == [0, 0, 0]
    for name, offsets in seen.items():
        twice = sum(times - 1 for times in Counter(offsets).values())
        complete = len(set(offsets)) == counted[name]
        print(
            f"{name:6} received {len(set(offsets))} tracks, Spark finds {counted[name]}; {twice} came again"
        )
        ok = ok and complete and sorted(set(offsets)) == sorted(set(offsets), key=offsets.index)
    print("all there, in order" if ok else f"something is wrong: exit codes {codes}")
    return 0 if ok else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    {"radar": radar, "watch": watch}[sys.argv[1]](*sys.argv[2:])
