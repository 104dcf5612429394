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
    cls: Any = OldTrack if site == "west" else Track
    with hg.Station(domain=domain, name=site) as station:
        tracks = station.channel("air.tracks", cls, qos=KEPT)
        for n in range(TRACKS):
            track = cls(site, n, rng.uniform(0, 900), rng.choice(REGIONS))
            again = patiently(partial(tracks.push, track, id=f"{site}-{n}", timeout=2.0))
            say(pushed=n + 1, again=again)
            time.sleep(PAUSE)  # a radar turns
        again = patiently(
            lambda: tracks.push(cls(site, LAST, 1_000.0, "north"), id=f"{site}-last", timeout=2.0)
        )
        say(pushed=TRACKS + 1, again=again)
        sys.stdin.readline()


def weather(domain: str) -> None:
    """Storms that come and go."""
    stop = when_told()
    with hg.Station(domain=domain, name="weather") as station:
        channel = station.channel("air.weather", Weather, qos=PERSISTENT)
        number = 0
        while not stop.wait(0.1):
            report = Weather(REGIONS[number % 2], number % 5 == 0)
            patiently(partial(channel.push, report, id=f"weather-{number}", timeout=2.0))
            number += 1


def plans(domain: str) -> None:
    """File a plan for some aircraft of each site; in no hurry, so of the lowest priority."""
    stop = when_told()
    with hg.Station(domain=domain, name="plans") as station:
        channel = station.channel("air.plans", Plan, qos=PERSISTENT)
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
        tracks = station.channel("air.tracks", Track, qos=KEPT)
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
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        with tracks.consumer(group="controllers", start="earliest") as consumer:
            while not stop.is_set():
                for track in consumer.read(max=100, timeout=0.2):
                    say(key=f"{track.site}{track.id}")


def tower(domain: str) -> None:
    """Alert when a fast track and a storm meet; a watchdog tells of calm."""
    stop = when_told()
    with hg.Station(domain=domain, name="tower") as station:
        tracks = station.channel("air.tracks", Track, qos=KEPT)
        reports = station.channel("air.weather", Weather, qos=PERSISTENT)
        alerts = station.channel("air.alerts", Alert, qos=PERSISTENT)
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
        channel = station.channel("air.loads", Load, qos=PERSISTENT)
        with channel.consumer(name="display", start="earliest") as consumer:
            while not stop.is_set():
                for load in consumer.read(max=100, timeout=0.2):
                    say(region=load.region, start=second_of(load)[1], tracks=load.tracks)


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
        self.console = Console(highlight=False, soft_wrap=True)
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
    codes += [one.finish() for one in (*controllers, storms, guard, office, screen, *radars, holder)]
    show.check("processes that ended well", sum(code == 0 for code in codes), len(codes))
    seen = {"fast": first + fast.said, "north": north.said}
    show.tell("everybody has gone home; the pipeline works over the histories")
    again = sum(line["again"] for one in radars for line in one.said)
    facts = {"keeper away": away, "expected": expected, "again": again, "seconds": took}
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
        show.check("tracks that the controllers shared", both == expected, True, f"{len(both)}")
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
        quality = jobs.quality(spark, data, "air.tracks", expect=["speed BETWEEN 0 AND 1000"])
        # A push that had no answer has used up a sequence number, and was repeated under its id with another.
        gaps = (quality.lost <= numbers["again"], quality.repeated, *quality.violations.values())
        show.check("tracks lost, doubled, or not as expected", gaps, (True, 0, 0), "none")
        show.check("rows of the ledger out of balance", quality.unbalanced, 0)
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
        numbers |= {
            "alerts": sum("alert" in line for line in guarded),
            "calms": sum("calm" in line for line in guarded),
            "fast again": len(seen["fast"]) - len({line["key"] for line in seen["fast"]}),
            "measures": quality.measures,
            "report": shown,
            "loads": len(loads),
            "aligned": aligned,
            "missed": quality.missed_deadlines,
            "deliveries": quality.deliveries,
        }  # fmt: skip
        show.check("alerts of the tower in its channel", shown["air.alerts"], numbers["alerts"])
        return numbers
    finally:
        spark.stop()


def second_of(load: Load) -> tuple[str | None, int | None]:
    return load.region, None if load.start is None else int(load.start.timestamp())


def summary(show: Show, numbers: dict[str, Any], root: Path | None) -> None:
    """What a person wants to know."""
    table = Table("checked", "found", "", title="The airspace, checked", title_justify="left")
    for what, found, ok in show.checks:
        table.add_row(what, found, "[green]ok[/]" if ok else "[red]WRONG[/]")
    show.console.print(table)
    told = Table(box=None, show_header=False, padding=(0, 2))
    tracks = len(numbers["expected"])
    told.add_row("rate", f"{tracks} tracks in {numbers['seconds']:.0f} s, the keeper's absence included")
    told.add_row("histories", ", ".join(f"{name} {events}" for name, events in numbers["report"].items()))
    latencies = {
        one.measure.removeprefix("latency_"): f"{one.value * 1e3:.1f} ms"
        for one in numbers["measures"]
        if one.measure.startswith("latency") and one.measure != "latency_sketch"
    }
    if latencies:
        told.add_row(
            "latency of the board", ", ".join(f"{name} {value}" for name, value in latencies.items())
        )
    told.add_row(
        "deadlines", f"{numbers['missed']} of {numbers['deliveries']} later than {DEADLINE * 1e3:.0f} ms"
    )
    told.add_row(
        "killed",
        f"the watcher 'fast', which got {numbers['fast again']} tracks again that it had in hand\n"
        f"the keeper, back after {numbers['keeper away']:.1f} s with {numbers['again']} pushes repeated",
    )
    told.add_row(
        "tower",
        f"{numbers['alerts']} alerts, {numbers['calms']} times calm; {numbers['loads']} windows by Spark",
    )
    aligned = numbers["aligned"]
    told.add_row(
        "training table",
        f"{aligned.train} rows to train with, {aligned.test} to test with; "
        f"{aligned.gaps['weather']} have no weather",
    )
    show.console.print(told)
    good = all(ok for _, _, ok in show.checks)
    took = time.monotonic() - show.began
    show.console.print(f"{'all of it holds' if good else 'something is WRONG'}; {took:.0f} s")
    if root is not None:
        show.console.print(
            f"report: {root}/report.html\ntables: {root}/tables\n"
            f"try:    helio journal ls {root}/data\n"
            f"        helio journal cat {root}/data air.alerts\n"
            f'        helio pipeline cutouts {root}/data air.tracks {root}/tables/fast --when "speed > 850"\n'
            f"        helio replay {root}/data air.tracks again.tracks --speed 10"
        )


def stay(root: Path, show: Show) -> None:
    """Keep the histories open for others until Ctrl-C."""
    with hg.Station(str(root / "data"), domain="airspace", name="keeper") as station:
        station.channel("air.alerts", Alert, qos=PERSISTENT)
        show.console.print(
            "the keeper stays up until Ctrl-C; try: helio sub air.alerts --domain airspace --start earliest"
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


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
