"""Sealed files registered as a table, beside a copy of them and pyiceberg's own `add_files`."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from bench.peers.journals import TRACK, Track
from heliograph.journal.format.folder import StationFolder, partition_folder
from heliograph.spark import jobs

FILES = 1_000
EVENTS_PER_FILE = 100
COPY = "copied, and no table yet"
ADD_FILES = "pyiceberg's own add_files"


def fill(folder: str, files: int) -> list[Path]:
    """A channel with so many sealed files, none of which is merged."""
    limits = hg.Limits(merge_events=1)
    with hg.Station(folder, journal=limits) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        for _ in range(files):
            channel.push_many([TRACK] * EVENTS_PER_FILE)
            channel._journal.store._writer.seal()  # type: ignore[union-attr]  # noqa: SLF001 - nobody else seals on request
    station_folder = StationFolder(folder)
    (partition,) = station_folder.partitions("air.tracks")
    place = partition_folder("air.tracks", partition)
    with station_folder.reader("air.tracks", partition) as reader:
        return [Path(folder, place, segment.name) for segment in reader.manifest.segments]


def add_files(folder: Path, files: list[Path]) -> None:
    """The same table without Heliograph, of the journal's own files."""
    import pyarrow.parquet as pq
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
    with closing(SqlCatalog("plain", uri=uri, warehouse=warehouse)) as catalog:
        catalog.create_namespace("plain")
        table = catalog.create_table("plain.events", pq.read_schema(files[0]).remove_metadata())
        table.add_files([f"file://{file}" for file in files])


def copy(folder: Path, files: list[Path]) -> None:
    folder.mkdir()
    for file in files:
        shutil.copy(file, folder)


@benchmark("register-files", "Sealed files as a table without a copy; per file")
def registering(size: Size) -> Benchmark:
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    sealed = fill(f"{folder}/data", size.scaled(FILES))
    tables = (Path(folder, f"table-{number}") for number in count())

    def register(kind: str) -> None:
        jobs.register(f"{folder}/data", "air.tracks", next(tables), format=kind)  # type: ignore[arg-type]

    for kind in ("delta", "iceberg"):
        register(kind)  # what is imported is imported
    there = next(tables)
    jobs.register(f"{folder}/data", "air.tracks", there)

    def case(name: str, work: object, *inputs: object) -> Case:
        return Case(name, work, (inputs,), wall=True, events=len(sealed))  # type: ignore[arg-type]

    limit = 5e6 / FILES
    return Benchmark(
        cases=(
            case("registered, Delta", register, "delta"),
            case("registered, Iceberg", register, "iceberg"),
            case(
                "registered again, nothing new",
                lambda: jobs.register(f"{folder}/data", "air.tracks", there),
            ),
            case(ADD_FILES, lambda: add_files(next(tables), sealed)),
            case(COPY, lambda: copy(next(tables), sealed)),
        ),
        baseline=COPY,
        targets=(
            Target("1,000 files below 5 s, Delta: us per file", "registered, Delta", "at most", limit),
            Target("1,000 files below 5 s, Iceberg: us per file", "registered, Iceberg", "at most", limit),
        ),
        note=f"{len(sealed)} files of {EVENTS_PER_FILE} events",
        rounds=size.fewer(5),
        close=started.close,
    )
