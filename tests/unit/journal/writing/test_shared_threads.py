"""What the partitions of a station share: threads, and that none of them has to wait for another."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import AppendFailed, PartitionInUse
from heliograph.journal.names import LOCK
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.shared_threads import COMMITTERS, MAX_OPEN, SharedThreads
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks, system_ports
from heliograph.sim import SimDisk
from tests.unit.journal.helpers import FOLDER, FORMATS, chunk, commit, history, partition, track, tracks

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
    ThreadTasks().prepare()  # a process has this thread for good
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
    shared = SharedThreads(ports)
    writers = [
        PartitionWriter(ports, f"p{n}", FORMATS, sealer=None, shared=shared) for n in range(COMMITTERS)
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
    shared.close()


def test_what_is_told_of_durable_rows_may_wait_for_what_other_partitions_commit(tmp_path: Path) -> None:
    """As many as there are committers, and each waits for a commit of another."""
    ports = system_ports(tmp_path)
    shared = SharedThreads(ports)
    target = PartitionWriter(ports, "target", FORMATS, sealer=None, shared=shared)
    writers = [
        PartitionWriter(
            ports,
            f"p{n}",
            FORMATS,
            sealer=None,
            shared=shared,
            on_durable=lambda _: target.append([track(1)]).result(LIMIT),
        )
        for n in range(2 * COMMITTERS)
    ]
    receipts = [writer.append([track(0)]) for writer in writers]
    assert [receipt.result(LIMIT) for receipt in receipts] == [0] * len(writers)
    assert target.watermark == len(writers)
    for writer in (*writers, target):
        writer.close()
    shared.close()


def test_few_partitions_have_files_open_and_all_can_be_written_and_read(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channels = [station.channel(f"scale.n{n}", Reading, qos=PERSISTENT) for n in range(3 * MAX_OPEN)]
        for round_ in range(2):
            receipts = [channel.push_nowait(Reading(id=round_)) for channel in channels]
            assert all(receipt.result(LIMIT) for receipt in receipts)
        for channel in channels:
            with channel.consumer(until="now") as consumer:
                assert [reading.id for reading in consumer] == [0, 1]
        # Lock, commit file and head of each, and a few more of what is just being committed.
        assert len(os.listdir("/proc/self/fd")) < 4 * MAX_OPEN  # noqa: PTH208 - the names are counted only


def test_a_writer_that_let_go_of_its_files_finds_out_that_another_has_written() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer.let_go()
    assert writer.let_go()
    other = partition(disk)
    commit(other, tracks(2, 1))
    with pytest.raises(PartitionInUse):
        commit(writer, tracks(2, 1))
    other.close()
    with pytest.raises(PartitionInUse, match="epoch 2"):
        commit(writer, tracks(2, 1))
    assert history(disk) == tracks(0, 3)


def test_a_partition_that_somebody_has_for_an_instant_refuses_that_append_and_takes_the_next() -> None:
    disk = SimDisk()
    ports = Ports(SystemClock(), ThreadTasks(), SystemRandom(), disk)
    with PartitionWriter(ports, FOLDER, FORMATS, sealer=None) as writer:
        assert writer.append([track(0)]).result(LIMIT) == 0
        assert writer._close_files()
        with disk.lock(f"{FOLDER}/{LOCK}"), pytest.raises(AppendFailed, match="is written by"):
            writer.append([track(1)]).result(LIMIT)
        assert writer.append([track(1)]).result(LIMIT) == 1
        assert writer._close_files()
        with disk.lock(f"{FOLDER}/{LOCK}"):
            writer.close()
    assert history(disk) == tracks(0, 2)


def test_a_head_is_written_on_after_its_writer_let_go_of_it() -> None:
    disk = SimDisk()
    writer = partition(disk)
    commit(writer, tracks(0, 2))
    assert writer.let_go()
    assert commit(writer, tracks(2, 3)) == 2
    writer.write([chunk([track(5)])])
    assert not writer.let_go(), "rows wait for a sync"
    writer.sync()
    assert writer.let_go()
    writer.close()
    assert len(writer.manifest.heads) == 1
    assert history(disk) == tracks(0, 6)
