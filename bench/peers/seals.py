"""Sealing beside writing: whether it keeps up with what comes in, and what it costs the writer.

What comes in is measured three ways: events pushed one by one by 8 suppliers that wait for the disk, by 128,
and batches of 1,000, the most that one process can write. Each is compared with sealing what it leaves
behind: a record per event, or a run per batch. A seal is a process of its own, from start to end, at
niceness 10; what its work takes of a processor is a case by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

import heliograph as hg
from bench.harness import Benchmark, Case, Size, Target, benchmark
from bench.peers.journals import TRACK, Suppliers, Track
from heliograph.codec import encoder
from heliograph.journal import Limits, Record
from heliograph.journal.format.records import RecordRun, encode_rows
from heliograph.journal.maintenance.seal import seal, seal_in_process
from heliograph.journal.writing.partition import Chunk, WritablePartition
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.journal.maintenance.compaction_policy import SealJob

BATCH = 1_000
SEAL = "seal, in a process of its own"
SEAL_SINGLE = "seal of single events, in a process of its own"
WRITE = "writing in batches"
WRITE_BESIDE = "writing in batches, beside a seal"


def closed_head(folder: str, events: int, *, runs: bool) -> SealJob:
    """A head with so many events, ready to be sealed: in runs as batches leave them, or one by one."""
    formats = FormatRegistry()
    format_id = formats.register(hg.format_of(Track))
    limits = Limits(head_events=1 << 40, head_bytes=1 << 40)
    partition = WritablePartition(system_ports(folder), "p", formats, limits)
    body = encoder(Track).encode(TRACK)
    for first in range(0, events, BATCH):
        rows: list[Record | RecordRun] = (
            [RecordRun("radar-1", 1, first, first, format_id, [body] * BATCH, station_seq=first)]
            if runs
            else [Record("radar-1", 1, n, n, format_id, body) for n in range(first, first + BATCH)]
        )
        partition.write([Chunk(BATCH, encode_rows(rows), frozenset({format_id}), is_run=runs)])
    partition.sync()
    partition.rotate()
    job = partition.seal_job()
    assert job is not None
    partition.close()
    return job


def beside(folder: str, job: SealJob, work: Callable[[], object]) -> None:
    """Do some work while a seal runs."""
    command = [sys.executable, "-m", "heliograph.journal.maintenance.seal", folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as sealing:
        assert sealing.stdin is not None
        sealing.stdin.write(msgspec.msgpack.encode(job))
        sealing.stdin.close()
        work()
        sealing.kill()


def _wall(name: str, work: Callable[[], object], events: int) -> Case:
    return Case(name, work, ((),), wall=True, events=events)


@benchmark("journal-seal", "Sealing against the rates that it must follow, and writing beside it; per event")
def sealing(size: Size) -> Benchmark:
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    events = max(BATCH, size.scaled(1_000_000) // BATCH * BATCH)
    job = closed_head(f"{folder}/sealed", events, runs=True)
    single = closed_head(f"{folder}/single", events, runs=False)
    disk, disk_of_single = (system_ports(f"{folder}/{name}").disk for name in ("sealed", "single"))
    assert disk is not None
    assert disk_of_single is not None
    # Heads of their own size, so that nothing is sealed but what is measured.
    limits = Limits(head_events=1 << 40, head_bytes=1 << 40, head_seconds=1e6)
    station = started.enter_context(hg.Station(f"{folder}/live", journal=limits))
    channel = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    batch = [TRACK] * BATCH

    def write() -> None:
        for _ in range(events // BATCH):
            channel.push_many(batch)

    cases = [
        _wall(SEAL, lambda: seal_in_process(disk, job), events),
        Case("seal, processor time of its work", lambda: seal(disk, job), ((),), events=events),
        _wall(SEAL_SINGLE, lambda: seal_in_process(disk_of_single, single), events),
        _wall(WRITE, write, events),
        _wall(WRITE_BESIDE, lambda: beside(f"{folder}/sealed", job, write), events),
    ]
    targets = [
        Target("writing beside a seal, time against writing alone", WRITE_BESIDE, "at most", 1.1, WRITE),
        Target("sealing, time against writing in batches", SEAL, "at most", 0.5, WRITE),
    ]
    for suppliers in (8, 128):
        times = max(1, size.scaled(2_000) // suppliers)
        name = f"live, {suppliers} suppliers one by one"
        push = Suppliers(suppliers, times, lambda: channel.push(TRACK))
        cases.append(_wall(name, push, suppliers * times))
        targets.append(Target(f"sealing, time against {name}", SEAL_SINGLE, "at most", 0.5, name))
    return Benchmark(
        cases=tuple(cases),
        baseline=WRITE,
        targets=tuple(targets),
        close=started.close,
        rounds=5,
        note="The seal's time includes the start of its process; writing beside it ends before it does.",
    )
