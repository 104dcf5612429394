"""An airspace in eleven processes, and its data pipeline on Spark: the whole of Heliograph at once.

    make run                  about a minute on two cores; the exit code is 0 only if everything was checked
    make run KEEP=1           the keeper stays up afterwards, until Ctrl-C
    python examples/airspace.py --out FOLDER [--stay]       the same; without --out it leaves nothing behind

Two radar sites push tracks, one of them with an older version of the class; a weather station pushes
storms, and an office files flight plans. A keeper keeps the histories, and shows each track on a board
within a deadline. Two watchers want different tracks: `fast` is killed on the way and goes on where it was,
`north` joins late and reads the history first. Two controllers share the tracks between them. A tower
raises an alert when a fast track meets a storm in its region, and a watchdog speaks when that does not
happen for a while. The keeper is killed with SIGKILL and started again: everybody heals by themselves, and
nothing is lost or doubled.

Meanwhile Spark streams windows of the tracks back into a channel that a display shows. At the end the
pipeline archives, measures, snapshots, aligns tracks with the weather for training and reports, and every
count is compared with what the consumers saw.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SITES = ("east", "west")
OLD_SITE = "west"
"""The one whose program is of last year."""
HEIGHT = 10_500.0
"""Of all aircraft that the other one sees."""
TRACKS = 400
"""Of each site."""
PLANS = 50
"""Of each site."""
PAUSE = 0.025
REGIONS = ("north", "south")
FILTERS = {"fast": "speed > 600", "north": "region = 'north' AND speed > 100"}
LAST = -1
"""The id of the track that says: that was all of this site."""
LIMIT = 90.0
"""Seconds after which something must be wrong."""
KEPT = hg.QoS(durability="persistent", lifespan=60.0)
DEADLINE = 0.25
"""Seconds within which a track should be on the keeper's board."""
RECORDED = hg.QoS(
    durability="persistent", lifespan=60.0, delivery_records="all", dispatch="deadline", latency=DEADLINE
)
"""As the keeper opens it: the earliest deadline first, and what becomes of each event there is recorded."""
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key=("site", "id")):
    """One aircraft, seen once."""

    site: str
    id: int
    speed: float
    region: str
    height: float = 0.0


class OldTrack(hg.Event, name="air.track", key=("site", "id")):
    """The same as a program of last year has it."""

    site: str
    id: int
    speed: float
    region: str


class Weather(hg.Event, name="air.weather"):
    region: str
    storm: bool


class Plan(hg.Event, name="air.plan", key=("site", "id")):
    """Where an aircraft is going."""

    site: str
    id: int
    destination: str


class Alert(hg.Event, name="air.alert"):
    region: str
    text: str


class Load(hg.Event, name="air.load"):
    """How many tracks a region had in a second."""

    region: str | None
    start: datetime | None
    tracks: int | None


# The processes


def keeper(domain: str, folder: str) -> None:
    """Keep the histories of all channels, and show tracks on a board."""
    with hg.Station(folder, domain=domain, name="keeper") as station:
        board = Counter[str]()
        tracks = station.channel("air.tracks", Track, qos=RECORDED)
        tracks.subscribe(lambda track: board.update([track.region]), name="board")  # goes on where it was
        for name, cls in (
            ("air.weather", Weather),
            ("air.plans", Plan),
            ("air.alerts", Alert),
            ("air.loads", Load),
        ):
            station.channel(name, cls, qos=PERSISTENT)
        say(ready=True)
        sys.stdin.readline()


def radar(domain: str, site: str) -> None:
    """Push tracks, each under an id of its own, so that one may be repeated when its keeper was away."""
    rng = random.Random(site)  # noqa: S311 - the same tracks in every run
    cls: Any = OldTrack if site == OLD_SITE else Track
    heights = () if site == OLD_SITE else (HEIGHT,)
    with hg.Station(domain=domain, name=site) as station:
        tracks = joined(station, "air.tracks", cls, qos=KEPT)
        for n in range(TRACKS):
            track = cls(site, n, rng.uniform(0, 900), rng.choice(REGIONS), *heights)
            again = patiently(partial(tracks.push, track, id=f"{site}-{n}", timeout=2.0))
            say(pushed=n + 1, again=again)
            time.sleep(PAUSE)  # a radar turns
        last = cls(site, LAST, 1_000.0, "north", *heights)
        again = patiently(partial(tracks.push, last, id=f"{site}-last", timeout=2.0))
        say(pushed=TRACKS + 1, again=again)
        sys.stdin.readline()


def weather(domain: str) -> None:
    """Storms that come and go."""
    stop = when_told()
    with hg.Station(domain=domain, name="weather") as station:
        channel = joined(station, "air.weather", Weather, qos=PERSISTENT)
        number = 0
        while not stop.wait(0.1):
            report = Weather(REGIONS[number % 2], number % 5 == 0)
            patiently(partial(channel.push, report, id=f"weather-{number}", timeout=2.0))
            number += 1


def plans(domain: str) -> None:
    """File a plan for some aircraft of each site; in no hurry, so of the lowest priority."""
    stop = when_told()
    with hg.Station(domain=domain, name="plans") as station:
        channel = joined(station, "air.plans", Plan, qos=PERSISTENT)
        for n in range(0, TRACKS, TRACKS // PLANS):
            for site in SITES:
                plan = Plan(site, n, f"gate {n % 7}")
                patiently(partial(channel.push, plan, priority=1, id=f"{site}-{n}", timeout=2.0))
                say(filed=1)
            stop.wait(0.1)
        stop.wait()


def watch(domain: str, name: str) -> None:
    """Receive what the filter wants, as a durable consumer, until both sites have said that that was all."""
    with hg.Station(domain=domain, name=name) as station:
        tracks = joined(station, "air.tracks", Track, qos=KEPT)
        ended = set()
        with tracks.consumer(name=name, where=FILTERS[name], start="earliest") as consumer:
            for delivery in consumer.deliveries():
                say(key=f"{delivery.event.site}{delivery.event.id}", height=delivery.event.height)
                if delivery.event.id == LAST:
                    ended.add(delivery.event.site)
                if len(ended) == len(SITES):
                    break


def control(domain: str, name: str) -> None:
    """Share the tracks with the other controller."""
    stop = when_told()
    with hg.Station(domain=domain, name=name) as station:
        tracks = joined(station, "air.tracks", Track, qos=KEPT)
        with tracks.consumer(group="controllers", start="earliest") as consumer:
            while not stop.is_set():
                for track in consumer.read(max=100, timeout=0.2):
                    say(key=f"{track.site}{track.id}")


def tower(domain: str) -> None:
    """Alert when a fast track and a storm meet; a watchdog tells of calm."""
    stop = when_told()
    with hg.Station(domain=domain, name="tower") as station:
        tracks = joined(station, "air.tracks", Track, qos=KEPT)
        reports = joined(station, "air.weather", Weather, qos=PERSISTENT)
        alerts = joined(station, "air.alerts", Alert, qos=PERSISTENT)
        danger = hg.all_of(
            t=tracks.where("speed > 800"), w=reports.where("storm"), within=1.0, by="region", watchdog=3.0
        )

        numbers = count()

        def meet(match: Any) -> None:
            if match.missing:
                say(calm=1)
                return
            text = f"{match.t.site}{match.t.id} in a storm"
            push = partial(alerts.push, Alert(match.w.region, text), priority=5, id=f"alert-{next(numbers)}")
            patiently(partial(push, timeout=2.0))
            say(alert=1)

        station.subscribe(danger, meet)
        say(ready=True)
        stop.wait()


def display(domain: str) -> None:
    """Show the windows that Spark streams into a channel, as they come."""
    stop = when_told()
    with hg.Station(domain=domain, name="display") as station:
        channel = joined(station, "air.loads", Load, qos=PERSISTENT)
        with channel.consumer(name="display", start="earliest") as consumer:
            while not stop.is_set():
                for load in consumer.read(max=100, timeout=0.2):
                    say(region=load.region, start=second_of(load)[1], tracks=load.tracks)


def joined(station: hg.Station, name: str, cls: Any, qos: hg.QoS) -> Any:
    """A channel that the keeper keeps; on a machine that has much to do it is met later than usual."""
    opened: list[Any] = []
    patiently(lambda: opened.append(station.channel(name, cls, qos=qos)))
    return opened[0]


def patiently(push: Callable[[], object]) -> int:
    """Repeat a push until its keeper is back; its id keeps it from counting twice. Returns how often."""
    end = time.monotonic() + LIMIT
    for again in count():
        try:
            push()
        except hg.HeliographError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return again
    raise AssertionError


def when_told() -> threading.Event:
    """Set when whoever started this process says so, or has gone."""
    told = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    return told


def say(**facts: object) -> None:
    """One line of JSON for whoever started this process."""
    print(json.dumps(facts), flush=True)


# The stage


class Started:
    """A process of this program, and what it has said."""

    def __init__(self, role: str, *arguments: str) -> None:
        self.name = " ".join((role, *arguments[1:]))
        command = [sys.executable, __file__, role, *arguments]
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[dict[str, Any]] = []
        self.state = "runs"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                if line.endswith("\n"):
                    self.said.append(json.loads(line))

    def until(self, count: int) -> None:
        """Wait until it has said so many things."""
        end = time.monotonic() + LIMIT
        while len(self.said) < count:
            if time.monotonic() > end or (self._process.poll() is not None and len(self.said) < count):
                raise SystemExit(f"{self.name} said {len(self.said)} things, not {count}")
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.ended()
        self.state = "killed"

    def end(self) -> None:
        """See to it that it is gone, however this program ends."""
        if self._process.poll() is None:
            self.kill()

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        self._process.wait(LIMIT)
        self._reader.join(LIMIT)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self.state = f"ended, {self._process.returncode}"
        return self._process.returncode

    def finish(self) -> int:
        """Tell it to end, and return its exit code."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self.ended()


class Show:
    """What is on the terminal while it runs, and the list of what was checked."""

    def __init__(self) -> None:
        # Where nobody looks at a terminal, lines are not folded to the width of one.
        width = None if sys.stdout.isatty() else 140
        self.console = Console(highlight=False, soft_wrap=True, width=width)
        self.began = time.monotonic()
        self.processes: list[Started] = []
        self.checks: list[tuple[str, str, bool]] = []
        self._live = Live(
            get_renderable=self._board, console=self.console, refresh_per_second=5, transient=True
        )

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        for one in self.processes:
            one.end()

    def start(self, role: str, *arguments: str) -> Started:
        self.processes.append(Started(role, *arguments))
        return self.processes[-1]

    def tell(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self.began:5.1f} s[/]  {text}")

    def check(self, what: str, found: object, expected: object, shown: str | None = None) -> None:
        """Note whether something is as it should be; `shown` says it in words where the value does not."""
        ok = found == expected
        self.checks.append((what, shown or f"{found}" if ok else f"{found}, expected {expected}", ok))

    def _board(self) -> Table:
        board = Table("process", "has told of", "", box=None, padding=(0, 2))
        for one in self.processes:
            board.add_row(one.name, str(len(one.said)), one.state)
        return board


def main() -> int:
    """Set the stage, disturb it, and compare what everybody saw."""
    parser = argparse.ArgumentParser(
        description="An airspace in eleven processes, and its pipeline on Spark."
    )
    parser.add_argument("--out", type=Path, help="where histories, tables and report are left; emptied first")
    parser.add_argument("--stay", action="store_true", help="keep the keeper up until Ctrl-C; needs --out")
    asked = parser.parse_args()
    if asked.stay and asked.out is None:
        parser.error("--stay needs --out FOLDER: without it the histories are removed at the end")
    root = Path(tempfile.mkdtemp()) if asked.out is None else emptied(asked.out.absolute(), parser)
    try:
        with Show() as show:
            numbers = play(root, show)
        summary(show, numbers, root if asked.out else None)
        if asked.stay:
            stay(root, show)
        return 0 if all(ok for _, _, ok in show.checks) else 1
    except KeyboardInterrupt:
        print("interrupted; all processes have ended", file=sys.stderr)
        return 130
    finally:
        if asked.out is None:
            shutil.rmtree(root, ignore_errors=True)


def emptied(root: Path, parser: argparse.ArgumentParser) -> Path:
    """A folder of this program, without what its last run left there."""
    mark = root / ".airspace"
    if root.exists() and any(root.iterdir()) and not mark.exists():
        parser.error(f"{root} has files that are not of an earlier run; name another folder")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mark.touch()
    return root


def play(root: Path, show: Show) -> dict[str, Any]:
    """The whole play; returns numbers for the summary."""
    domain, folder = f"airspace-{os.getpid()}", str(root / "data")
    show.tell("a keeper opens its histories")
    holder = show.start("keeper", domain, folder)
    holder.until(1)
    storms, guard, office = (show.start(role, domain) for role in ("weather", "tower", "plans"))
    controllers = [show.start("control", domain, name) for name in ("left", "right")]
    fast = show.start("watch", domain, "fast")
    show.tell("a weather station, a tower, a plan office, two controllers and a watcher join; Spark starts")
    spark = start_spark()
    guard.until(1)
    radars = [show.start("radar", domain, site) for site in SITES]
    began = time.monotonic()
    show.tell("two radars push, one of them with last year's class")
    fast.until(30)
    fast.kill()
    first = list(fast.said)
    show.tell(f"the watcher of {FILTERS['fast']!r} is killed after {len(first)} tracks, and started again")
    fast = show.start("watch", domain, "fast")
    query = stream_loads(spark, root)
    screen = show.start("display", domain)
    show.tell("Spark streams windows of the tracks back into air.loads, and a display shows them")
    wait_for(radars, TRACKS // 2)
    north = show.start("watch", domain, "north")
    show.tell(f"another watcher joins late and wants {FILTERS['north']!r}: history first, then live")
    holder.kill()
    away = time.monotonic()
    show.tell("the keeper is killed")
    holder = show.start("keeper", domain, folder)
    holder.until(1)
    away = time.monotonic() - away
    show.tell(f"... and is back after {away:.1f} s; pushes that had no answer are repeated under their ids")
    wait_for(radars, TRACKS + 1)
    took = time.monotonic() - began
    codes = [fast.ended(), north.ended()]
    show.tell("all tracks are pushed, and both watchers have seen the last")
    expected = {f"{site}{n}" for site in SITES for n in (*range(TRACKS), LAST)}
    shared = settled(controllers, len(expected))
    office.until(PLANS * len(SITES))
    loads = displayed(screen, query, folder)
    shares = [len(one.said) for one in controllers]
    codes += [one.finish() for one in (*controllers, storms, guard, office, screen, *radars, holder)]
    show.check("processes that ended well", sum(code == 0 for code in codes), len(codes))
    seen = {"fast": first + fast.said, "north": north.said}
    show.tell("everybody has gone home; the pipeline works over the histories")
    again = sum(line["again"] for one in radars for line in one.said)
    facts = {
        "keeper away": away,
        "expected": expected,
        "again": again,
        "seconds": took,
        "shares": shares,
        "first": len(first),
    }
    return inspect(spark, root, show, seen, shared, loads, guard.said, facts)


def wait_for(radars: list[Started], count: int) -> None:
    end = time.monotonic() + LIMIT
    while min(len(one.said) for one in radars) < count:
        if time.monotonic() > end:
            raise SystemExit(f"the radars have pushed {[len(one.said) for one in radars]} of {count} tracks")
        time.sleep(0.05)


def settled(controllers: list[Started], count: int) -> list[dict[str, Any]]:
    """What the controllers had between them, once it is all."""
    end = time.monotonic() + LIMIT
    while True:
        both = [line for one in controllers for line in one.said]
        if len({line["key"] for line in both}) >= count or time.monotonic() > end:
            return both
        time.sleep(0.05)


def start_spark() -> SparkSession:
    import heliograph.spark  # noqa: PLC0415 - the other processes need no Spark

    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    return heliograph.spark.session("airspace", "local[2]", {**settings, "spark.log.level": "ERROR"})


def stream_loads(spark: SparkSession, root: Path) -> Any:
    """Windows of a second over the tracks, into a channel."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    data = {"path": str(root / "data")}
    tracks = spark.readStream.format("heliograph").options(
        **data, channel="air.tracks", startingOffsets="earliest"
    )
    loads = (
        tracks.load()
        .select("region", f.col("header.source_ts").alias("time"))
        .withWatermark("time", "2 seconds")
        .groupBy(f.window("time", "1 second").alias("window"), "region")
        .agg(f.count("*").alias("tracks"))
        .select("region", f.col("window.start").alias("start"), "tracks")
    )
    written = loads.writeStream.format("heliograph").options(
        **data, channel="air.loads", writerId="loads", checkpointLocation=str(root / "checkpoint")
    )
    return written.trigger(processingTime="1 second").start()


def displayed(screen: Started, query: Any, folder: str) -> list[Load]:
    """The windows that Spark has closed, as the display has shown them; one that it got again counts once."""
    query.processAllAvailable()
    query.stop()
    there = hg.history(folder, "air.loads").count()
    end = time.monotonic() + LIMIT
    while len(shown := {(line["region"], line["start"]): line["tracks"] for line in screen.said}) < there:
        if time.monotonic() > end:
            raise SystemExit(f"the display shows {len(shown)} of {there} windows")
        time.sleep(0.05)
    return [
        Load(region, datetime.fromtimestamp(start, UTC), tracks) for (region, start), tracks in shown.items()
    ]


def inspect(  # noqa: PLR0917 - all that was seen
    spark: SparkSession,
    root: Path,
    show: Show,
    seen: dict[str, list[dict[str, Any]]],
    shared: list[dict[str, Any]],
    loads: list[Load],
    guarded: list[dict[str, Any]],
    numbers: dict[str, Any],
) -> dict[str, Any]:
    """The pipeline in one pass, and every count compared."""
    import heliograph.spark  # noqa: PLC0415 - as above
    from heliograph.spark import jobs  # noqa: PLC0415 - as above

    data, expected = root / "data", numbers["expected"]
    history = heliograph.spark.read(spark, data, "air.tracks").cache()
    try:
        keys = [f"{row['site']}{row['id']}" for row in history.select("site", "id").collect()]
        once = (len(keys), set(keys) == expected)
        show.check("tracks in the history, each once", once, (len(expected), True), f"{len(keys)}")
        for name, lines in seen.items():
            got = {line["key"] for line in lines}
            found = heliograph.spark.read(spark, data, "air.tracks", where=FILTERS[name]).count()
            show.check(f"tracks that {name!r} received, and Spark finds", len(got), found)
        both = {line["key"] for line in shared}
        shares = numbers["shares"]
        all_shared = (both == expected, min(shares) > 0)
        show.check(
            "tracks that the controllers shared",
            all_shared,
            (True, True),
            f"{len(both)}: {shares[0]} and {shares[1]}",
        )
        check_versions(show, history, seen)
        check_priorities(show, spark, data)
        windows = {
            (row["region"], row["start"]): row["n"]
            for row in history.selectExpr("region", "unix_seconds(header.source_ts) AS start")
            .groupBy("region", "start").agg({"*": "count"}).withColumnRenamed("count(1)", "n").collect()
        }  # fmt: skip
        right = [load for load in loads if windows.get(second_of(load)) == load.tracks]
        show.check("windows that Spark streamed and the display showed", len(right), len(loads))
        show.check("windows of at least one region", bool(loads), True, "yes")
        show.tell("archive as Delta, quality, snapshot, align, report")
        archived = jobs.archive(spark, data, "air.tracks", root / "tables" / "tracks", format="delta")
        show.check("rows of the Delta table", archived.events, len(expected))
        show.check("rows that Spark's archive adds when it runs again", again_archived(spark, root), 0)
        quality = jobs.quality(spark, data, "air.tracks", expect=["speed BETWEEN 0 AND 1000"])
        # A push that had no answer has used up a sequence number, and was repeated under its id with another.
        gaps = (quality.lost <= numbers["again"], quality.repeated, *quality.violations.values())
        show.check("tracks lost, doubled, or not as expected", gaps, (True, 0, 0), "none")
        show.check("rows of the ledger out of balance", quality.unbalanced, 0)
        known = {(one.scope, one.name) for one in quality.latencies}
        show.check("latencies of the board on record", ("receiver", "board") in known, True, "yes")
        snapshot = jobs.snapshot(spark, data, "air.tracks", root / "tables" / "latest")
        show.check("keys of the snapshot", snapshot.keys, len(expected))
        aligned = jobs.align(
            spark, data, {"track": "air.tracks", "weather": "air.weather"}, root / "tables" / "train",
            lead="track", by="region", tolerance=2.0, test_fraction=0.2,
        )  # fmt: skip
        show.check("rows to train and test with, one for each track", aligned.rows, len(expected))
        show.check(
            "rows to train with come first", aligned.train > aligned.test > 0, True, f"{aligned.train}"
        )
        report = jobs.report(spark, data, root / "report.html", window=1.0)
        shown = {one.channel: one.events for one in report.channels}
        show.check("tracks on the report", shown["air.tracks"], len(expected))
        kept = sum(one.events for one in report.channels)
        numbers |= {
            "kept": kept,
            "latencies": quality.latencies,
            "ledger": {one.measure: int(one.value) for one in quality.measures if one.scope == "ledger"},
            "alerts": sum("alert" in line for line in guarded),
            "calms": sum("calm" in line for line in guarded),
            "fast again": len(seen["fast"]) - len({line["key"] for line in seen["fast"]}),
            "report": shown,
            "loads": len(loads),
            "aligned": aligned,
            "missed": quality.missed_deadlines,
            "deliveries": quality.deliveries,
        }  # fmt: skip
        show.check("alerts of the tower in its channel", shown["air.alerts"], numbers["alerts"])
        show.check("calms that the watchdog told of", numbers["calms"] > 0, True, str(numbers["calms"]))
        return numbers
    finally:
        spark.stop()


def check_versions(show: Show, history: Any, seen: dict[str, list[dict[str, Any]]]) -> None:
    """Last year's class has no height: none in the history, and its default for who has the new class."""
    without = history.filter("height IS NULL").select("site").collect()
    sites = {row["site"] for row in without}
    show.check(
        "tracks of last year's class, without a height",
        (len(without), sites),
        (TRACKS + 1, {OLD_SITE}),
        f"{len(without)}",
    )
    heights = {
        (line["key"].startswith(OLD_SITE), line["height"]) for lines in seen.values() for line in lines
    }
    show.check(
        "heights that the watchers saw",
        heights,
        {(True, 0.0), (False, HEIGHT)},
        f"{HEIGHT:g}, or the default 0",
    )


def check_priorities(show: Show, spark: SparkSession, data: Path) -> None:
    import heliograph.spark  # noqa: PLC0415 - as above

    found = []
    for channel in ("air.alerts", "air.tracks", "air.plans"):
        frame = heliograph.spark.read(spark, data, channel)
        found.append({row[0] for row in frame.select("header.priority").distinct().collect()})
    show.check("priorities of alerts, tracks and plans", found, [{5}, {3}, {1}], "5, 3 and 1")


def again_archived(spark: SparkSession, root: Path) -> int:
    from heliograph.spark import jobs  # noqa: PLC0415 - as above

    return jobs.archive(spark, root / "data", "air.tracks", root / "tables" / "tracks", format="delta").events


def second_of(load: Load) -> tuple[str | None, int | None]:
    return load.region, None if load.start is None else int(load.start.timestamp())


def summary(show: Show, numbers: dict[str, Any], root: Path | None) -> None:
    """What a person wants to know."""
    out = show.console
    table = Table("checked", "found", "", title="The airspace, checked", title_justify="left")
    for what, found, ok in show.checks:
        table.add_row(what, found, "[green]ok[/]" if ok else "[red]WRONG[/]")
    out.print(table)
    told = Table(box=None, show_header=False, padding=(0, 2))
    for title, text in findings(numbers):
        told.add_row(f"[bold]{title}[/]", text)
    out.print(told)
    times = Table("latency in ms", "n", "p50", "p95", "p99", "max", box=None, padding=(0, 2))
    for column in times.columns[1:]:
        column.justify = "right"
    for one in numbers["latencies"]:
        parts = [f"{getattr(one, part) * 1e3:.1f}" for part in ("p50", "p95", "p99", "max")]
        times.add_row(f"{one.scope} {one.name or 'air.tracks'}", f"{one.n}", *parts)
    out.print(times)
    good = all(ok for _, _, ok in show.checks)
    wrong = sum(not ok for _, _, ok in show.checks)
    took = time.monotonic() - show.began
    verdict = (
        f"all {len(show.checks)} checks hold" if good else f"{wrong} of {len(show.checks)} checks are WRONG"
    )
    out.print(f"[bold {'green' if good else 'red'}]{verdict}[/]; {took:.0f} s")
    if root is not None:
        out.print(f"report  {shortened(root / 'report.html')}\ntables  {shortened(root / 'tables')}")
        print_commands(show, "next", root)


def findings(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    tracks, aligned, ledger = len(numbers["expected"]), numbers["aligned"], numbers["ledger"]
    rate = tracks / numbers["seconds"]
    outcomes = ", ".join(
        f"{ledger[name]} {name}" for name in ("delivered", "dropped", "expired", "failed", "pending")
    )
    return [
        (
            "events",
            f"{numbers['kept']} kept: "
            + ", ".join(f"{name} {events}" for name, events in numbers["report"].items()),
        ),
        ("rate", f"{rate:.0f} tracks a second for {numbers['seconds']:.0f} s, the keeper's absence included"),
        (
            "ledger",
            f"balanced in both lives of the keeper: {ledger['matched']} matches of air.tracks = {outcomes}",
        ),
        (
            "killed",
            (
                f"the watcher 'fast' after {numbers['first']} tracks: it went on where it was, and got "
                f"{numbers['fast again']} again that it had in hand\n"
                f"the keeper: back after {numbers['keeper away']:.1f} s, {numbers['again']} pushes without "
                "an answer repeated under their ids, none kept twice"
            ),
        ),
        (
            "deadlines",
            f"{numbers['missed']} of {numbers['deliveries']} deliveries later than {DEADLINE * 1e3:.0f} ms",
        ),
        ("tower", f"{numbers['alerts']} alerts of fast tracks in storms, {numbers['calms']} times calm"),
        ("Spark", f"streamed {numbers['loads']} windows into air.loads, which the display showed"),
        (
            "training table",
            (
                f"{aligned.train} rows to train with, {aligned.test} to test with; "
                f"{aligned.gaps['weather']} have no weather"
            ),
        ),
    ]


def shortened(path: Path) -> str:
    """As one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def print_commands(show: Show, title: str, root: Path, *, live: bool = False) -> None:
    """What to try next, to be copied as it stands."""
    helio, data = shortened(Path(sys.executable).with_name("helio")), shortened(root / "data")
    tables = shortened(root / "tables")
    commands = [
        (f"{helio} journal ls {data}", "what is kept"),
        (f"{helio} journal cat {data} air.alerts --limit 3", "alerts as JSON"),
        (f"{helio} journal consumers {data}", "who has read how far"),
        (
            f'{helio} pipeline cutouts {data} air.tracks {tables}/fast --when "speed > 850"',
            "what was around fast tracks",
        ),
        (f"{helio} replay {data} air.tracks again.tracks --speed 10", "once more, ten times as fast"),
    ]
    if live:
        commands = [
            (f"{helio} top --domain airspace", "rates, queues and lag, live"),
            (f'{helio} sub air.live --domain airspace --where "speed > 800"', "fast tracks as they come"),
            (f"{helio} sub air.alerts --domain airspace --start earliest", "the alerts of before"),
            (f"{helio} doctor --domain airspace", "what is wrong, and what mends it"),
        ]
    # Not folded, so that a command can be copied.
    for number, (command, what) in enumerate(commands):
        show.console.print(f"{title if not number else '':7} [cyan]{command}[/]  [dim]# {what}[/]")


def stay(root: Path, show: Show) -> None:
    """Keep the histories open, and push the tracks again at their pace, until Ctrl-C."""
    stop = threading.Event()
    with hg.Station(str(root / "data"), domain="airspace", name="keeper", page=True) as station:
        tracks = station.channel("air.tracks", Track)
        for name, cls in (
            ("air.weather", Weather),
            ("air.plans", Plan),
            ("air.alerts", Alert),
            ("air.loads", Load),
        ):
            station.channel(name, cls)
        live = station.channel("air.live", Track)

        def again() -> None:
            with suppress(hg.HeliographError):  # the station is closed
                while not stop.is_set():
                    tracks.replay(live)

        threading.Thread(target=again, daemon=True).start()
        show.console.print(
            "\nthe keeper stays up until Ctrl-C, and replays the tracks into air.live; meanwhile:"
        )
        show.console.print(f"page    [cyan]{station.page}[/]")
        print_commands(show, "try", root, live=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        stop.set()


ROLES: dict[str, Callable[..., None]] = {
    "keeper": keeper,
    "radar": radar,
    "weather": weather,
    "plans": plans,
    "watch": watch,
    "control": control,
    "tower": tower,
    "display": display,
}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
