"""What the partitions of a station share: threads, and that none of them has to wait for another."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.journal.threads import COMMITTERS, JournalThreads
from heliograph.journal.writer import PartitionWriter
from heliograph.ports import Ports, SystemClock, SystemRandom, ThreadTasks, system_ports
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import FORMATS, track

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")
LIMIT = 60.0


class Reading(hg.Event, name="scale.reading", key="id"):
    id: int


def _wait_until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT
    while not holds() and time.monotonic() < end:
        threading.Event().wait(0.01)
    return holds()


def test_a_hundred_persistent_channels_have_at_most_twelve_threads_at_rest(tmp_path: Path) -> None:
    before = threading.active_count()
    got: list[int] = []
    with hg.Station(tmp_path) as station:
        channels = [station.channel(f"scale.n{n}", Reading, qos=PERSISTENT) for n in range(100)]
        for channel in channels:
            channel.subscribe(lambda reading: got.append(reading.id))
        receipts = [channel.push_nowait(Reading(id=n)) for n, channel in enumerate(channels)]
        assert all(receipt.result(LIMIT) for receipt in receipts)
        assert _wait_until(lambda: len(got) == 100)
        assert sorted(got) == list(range(100))
        assert _wait_until(lambda: threading.active_count() - before <= 12)
    assert _wait_until(lambda: threading.active_count() <= before)


def test_a_partition_whose_sync_hangs_holds_up_no_other() -> None:
    go_on, hangs = threading.Event(), threading.Event()

    ports = Ports(SystemClock(), ThreadTasks(), SystemRandom(), SimDisk())
    threads = JournalThreads(ports)
    writers = [
        PartitionWriter(ports, f"p{n}", FORMATS, sealer=None, threads=threads) for n in range(COMMITTERS)
    ]
    slow = writers[0]
    sync = slow._partition.sync

    def hanging() -> None:
        hangs.set()
        assert go_on.wait(LIMIT)
        sync()

    slow._partition.sync = hanging  # type: ignore[method-assign]  # a disk that does not answer
    held = slow.append([track(0)])
    assert hangs.wait(LIMIT)
    for n in range(20):
        for writer in writers[1:]:
            assert writer.append([track(n)]).result(LIMIT) == n
    assert not held.done()
    go_on.set()
    assert held.result(LIMIT) == 0
    for writer in writers:
        writer.close()
    threads.close()


def test_what_is_told_of_durable_rows_may_wait_for_what_other_partitions_commit(tmp_path: Path) -> None:
    """As many as there are committers, and each waits for a commit of another."""
    ports = system_ports(tmp_path)
    threads = JournalThreads(ports)
    target = PartitionWriter(ports, "target", FORMATS, sealer=None, threads=threads)
    writers = [
        PartitionWriter(
            ports,
            f"p{n}",
            FORMATS,
            sealer=None,
            threads=threads,
            on_durable=lambda _: target.append([track(1)]).result(LIMIT),
        )
        for n in range(2 * COMMITTERS)
    ]
    receipts = [writer.append([track(0)]) for writer in writers]
    assert [receipt.result(LIMIT) for receipt in receipts] == [0] * len(writers)
    assert target.watermark == len(writers)
    for writer in (*writers, target):
        writer.close()
    threads.close()
