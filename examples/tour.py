"""A tour of what is there today: a channel, versions of a class, a reader without it, one filter everywhere.

.venv/bin/python examples/tour.py
"""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import heliograph as hg
import heliograph.spark
from heliograph import codec
from heliograph.codec.columnar import columns
from heliograph.codec.dynamic import reflect
from heliograph.filters import arrow, python
from heliograph.filters import spark_sql as spark
from heliograph.filters.check import check
from heliograph.filters.parser import parse
from heliograph.model import compatibility as evolution

FILTER = "speed > :limit AND region IN ('north', 'east')"
PARAMS = {"limit": 300}

console = Console()


class OldTrack(hg.Event, name="air.track", key="id"):
    """What the radars in the field send."""

    id: int
    lat: hg.f32
    lon: hg.f32
    speed: hg.i32
    squawk: str


class Track(hg.Event, name="air.track", key="id"):
    """What the new centre works with: wider numbers, a new field with a default, one field less."""

    id: int
    lat: float
    lon: float
    speed: float
    region: str = "north"


class BrokenTrack(hg.Event, name="air.track", key="id"):
    """What somebody would like to deploy on Friday."""

    id: hg.i16
    lat: float
    lon: float
    velocity: float


def main() -> None:
    a_channel_in_this_process()
    body = two_versions_of_a_class()
    no_class_at_all(body)
    a_change_that_is_refused()
    one_filter_in_three_engines()


def a_channel_in_this_process() -> None:
    console.rule("a channel in this process")
    alarms: list[int] = []
    with hg.Station() as station:
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(lambda track: alarms.append(track.id), where=FILTER, params=PARAMS)
        with tracks.consumer(where="speed > 900") as fastest:
            tracks.push_many(some_tracks(1_000))
            console.print(f"the first of the fastest: {fastest.pull(timeout=1.0)}")
            counts = tracks.stats()
    verdict = "which balances" if counts.balanced else "which does NOT balance"
    console.print(
        f"{len(alarms)} alarms; ledger: {counts.pushed} pushed, {counts.matched} matched, {verdict}"
    )
    console.print()


def two_versions_of_a_class() -> bytes:
    console.rule("an old radar talks to a new centre")
    sent = OldTrack(id=7, lat=48.25, lon=11.5, speed=410, squawk="7000")
    body = codec.encoder(OldTrack).encode(sent)
    received = codec.decoder(hg.format_of(OldTrack), Track)(body)
    console.print(f"sent      {sent}")
    console.print(f"received  {received}")
    how = evolution.compare(
        hg.format_of(OldTrack), hg.format_of(Track), has_default=evolution.defaults_of(Track)
    )
    widened = ", ".join(f"{w.path} from {w.writer} to {w.reader}" for w in how.widened)
    console.print(
        f"{len(body)} bytes; ignored {', '.join(how.ignored)}; default for {', '.join(how.defaulted)}"
    )
    console.print(f"widened {widened}\n")
    return body


def no_class_at_all(body: bytes) -> None:
    console.rule("a program that never saw the class")
    description = hg.format_of(OldTrack).description
    learned = hg.Format.from_description(description)
    table = Table(
        "field", "type", "in the event", title=f"{learned.name}, described in {len(description)} bytes"
    )
    values = codec.mapping_decoder(learned)(body)
    for row in reflect.describe(learned):
        table.add_row(row.path, row.type, repr(values[row.path.removeprefix("$.")]))
    console.print(table, "")


def a_change_that_is_refused() -> None:
    console.rule("a change that would break the radars")
    try:
        codec.decoder(hg.format_of(OldTrack), BrokenTrack)
    except hg.IncompatibleFormats as refusal:
        for problem in refusal.problems:
            console.print("-", problem)
    console.print()


def one_filter_in_three_engines() -> None:
    console.rule("one filter, three engines")
    console.print(f"{FILTER}   with {PARAMS}")
    tracks = some_tracks(10_000)
    fmt = hg.format_of(Track)
    checked = check(parse(FILTER, PARAMS), fmt)
    batch = columns.to_batch(fmt, tracks, spark_safe=True)

    wants = python.compile_one(checked)
    in_python = [track.id for track in tracks if wants(track, None)]
    over_arrow = batch.filter(arrow.mask(checked, batch)).column("id").to_pylist()
    console.print("starting Spark, which takes a few seconds ...")
    session = heliograph.spark.session(app="tour", master="local[2]")
    frame = session.createDataFrame(pa.Table.from_batches([batch]))
    in_spark = [row.id for row in frame.filter(spark.to_sql(checked)).select("id").orderBy("id").collect()]
    session.stop()

    table = Table("engine", "what runs", "events that match")
    table.add_row("Python", "a generated function, event by event", f"{len(in_python):,}")
    table.add_row("Arrow", "compute kernels over a batch", f"{len(over_arrow):,}")
    table.add_row("Spark", spark.to_sql(checked), f"{len(in_spark):,}")
    console.print(table)
    if not in_python == over_arrow == in_spark:
        raise SystemExit("the engines disagree")
    console.print(f"all three chose the same {len(in_spark):,} of {len(tracks):,} events")


def some_tracks(count: int) -> list[Track]:
    regions = ("north", "east", "south", "west")
    return [
        Track(id=i, lat=48 + i / 1000, lon=11.5, speed=i * 7 % 1000, region=regions[i % 4])
        for i in range(count)
    ]


if __name__ == "__main__":
    main()
