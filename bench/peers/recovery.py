"""Opening a journal whose writer was killed: how long until the next one may append.

A head is gone through frame by frame. Its worst case is one event per frame, which a lone supplier that waits
for each ack gives; suppliers together, or batches, share frames. The bare case reads the same bytes and takes
one checksum over all of them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from crc32c import crc32c

from bench.harness import Benchmark, Case, Size, Target, benchmark
from bench.peers.journals import TRACK, Track
from heliograph import codec, format_of
from heliograph.journal.format.manifest import load
from heliograph.journal.format.records import Record, encode_rows
from heliograph.journal.limits import Limits
from heliograph.journal.writing.partition import Chunk, WritablePartition
from heliograph.journal.writing.recovery import recover
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Ports

SECONDS_PER_MILLION = 2.0


def left_open(ports: Ports, folder: str, events: int, per_frame: int) -> Callable[[], object]:
    """A partition with one open head; returns what recovers it, which changes nothing and can be repeated."""
    formats = FormatRegistry()
    format_id = formats.register(format_of(Track))
    body = codec.encoder(Track).encode(TRACK)
    roomy = Limits(head_bytes=1 << 40, head_events=1 << 40, head_seconds=1e9)
    partition = WritablePartition(ports, folder, formats, roomy)
    for first in range(0, events, per_frame):
        records = [Record("radar", 1, first + n, 0, format_id, body) for n in range(per_frame)]
        partition.write([Chunk(per_frame, encode_rows(records), frozenset({format_id}))])
    partition.sync()
    disk = ports.disk
    assert disk is not None
    manifest = load(disk, folder)
    return lambda: recover(disk, folder, manifest, ports.random)


@benchmark("journal-recovery", "Going through a head that was left open; figures per recovery")
def recovery(size: Size) -> Benchmark:
    events = size.scaled(100_000)
    started = ExitStack()
    folder = started.enter_context(tempfile.TemporaryDirectory(prefix="heliograph-bench-"))
    ports = system_ports(folder)
    alone = left_open(ports, "alone", events, 1)
    shared = left_open(ports, "shared", events, 10)
    (head,) = Path(folder, "alone", "heads").iterdir()
    times = ((),) * 3
    return Benchmark(
        cases=(
            Case("bare checksum", lambda: crc32c(head.read_bytes()), times, alone=True),
            Case("one event per frame", alone, times, alone=True),
            Case("10 events per frame", shared, times, alone=True),
        ),
        baseline="bare checksum",
        targets=(
            Target(
                f"{events:,} events in frames of their own: {SECONDS_PER_MILLION:g} s per million",
                "one event per frame",
                "at most",
                SECONDS_PER_MILLION * events / 1e3,
            ),
        ),
        close=started.close,
    )
