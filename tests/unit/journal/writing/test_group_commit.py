"""Group commit: what receipts say, in which order, and what happens when the disk refuses."""

from __future__ import annotations

import errno
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import (
    AppendFailed,
    AppendTimeout,
    BatchTooLarge,
    DiskFull,
    JournalClosed,
    UnknownFormat,
)
from heliograph.journal.format.records import RecordRun
from heliograph.journal.limits import Limits
from heliograph.journal.writing import group_commit as writers
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.runtime.ports import system_ports
from heliograph.sim import Fails, SimDisk, Simulation
from tests.unit.journal.helpers import FOLDER, FORMATS, TRACK, history, ports, track, tracks

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.journal.writing.receipt import AppendReceipt

HEAD = f"{FOLDER}/heads/00000000000000000000-00000001-0001.log"


def test_a_receipt_gives_the_offset_once_the_rows_are_durable() -> None:
    simulation = Simulation(seed=1)

    def main() -> list[int]:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            receipts = [writer.append(tracks(3 * n, 3)) for n in range(4)]
            return [receipt.result(timeout=1.0) for receipt in receipts]

    assert simulation.run(main) == [0, 3, 6, 9]
    assert history(simulation.disk.crash("none")) == tracks(0, 12)


def test_runs_and_records_of_one_commit_share_a_frame_and_keep_their_order() -> None:
    simulation = Simulation(seed=2)  # the committer comes when all three are in line
    run = RecordRun("radar", 1, 3, 30, TRACK.id, [track(n).body for n in range(3, 8)], station_seq=3)

    def main() -> list[int]:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            receipts = [writer.append(part) for part in (tracks(0, 3), run, tracks(8, 1))]
            offsets = [receipt.result(timeout=1.0) for receipt in receipts]
            assert writer.stats().commits == 1
            return offsets

    assert simulation.run(main) == [0, 3, 8]
    found = history(simulation.disk.crash("none"))
    assert found == [*tracks(0, 3), *run, *tracks(8, 1)]
    assert [record.sequence for record in found] == list(range(9))


def test_a_run_is_refused_as_a_whole_for_what_a_batch_is() -> None:
    simulation = Simulation(seed=1)

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            with pytest.raises(UnknownFormat):
                writer.append(RecordRun("radar", 1, 1, 0, b"?" * 12, [b"a"]))
            with pytest.raises(BatchTooLarge):
                writer.append(RecordRun("radar", 1, 1, 0, TRACK.id, []))
            with pytest.raises(BatchTooLarge):
                writer.append(RecordRun("radar", 1, 1, 0, TRACK.id, [bytes(writers.MAX_APPEND_BYTES)]))

    simulation.run(main)


@pytest.mark.parametrize("seed", range(20))
def test_rows_reach_on_durable_in_order_before_their_receipts(seed: int) -> None:
    simulation = Simulation(seed=seed)
    seen: list[str] = []

    def durable(receipts: list[AppendReceipt]) -> None:
        for receipt in receipts:
            assert not receipt.done()
            seen.extend(f"{receipt.attachment}{receipt.first_offset}")

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS, on_durable=durable) as writer:

            def supply(name: str) -> None:
                for n in range(5):
                    writer.append([track(n)], attachment=name).result()

            tasks = [simulation.tasks.spawn(name, partial(supply, name)) for name in "ab"]
            for task in tasks:
                task.join()

    simulation.run(main)
    assert [int(n) for n in seen[1::2]] == list(range(10))
    assert sorted(seen[::2]) == ["a"] * 5 + ["b"] * 5


def test_suppliers_that_wait_together_share_a_sync(tmp_path: Path) -> None:
    ports = system_ports(tmp_path)
    with PartitionWriter(ports, FOLDER, FORMATS) as writer:
        start = threading.Barrier(8)

        def supply() -> None:
            start.wait()
            for n in range(50):
                writer.append([track(n)]).result(timeout=10)

        threads = [threading.Thread(target=supply) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = writer.stats()
    assert stats.appended == stats.watermark == 400
    assert stats.commits < 400


def test_the_level_journal_is_met_before_the_sync_and_the_level_synced_after_it() -> None:
    simulation = Simulation(seed=3)
    watermarks: list[int] = []

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            for level in ("journal", "synced"):
                receipt = writer.append([track(0)], level=level)
                receipt.add_done_callback(lambda _: watermarks.append(writer.watermark))
                receipt.result()
                while writer.watermark == receipt.first_offset:
                    simulation.tasks.sleep(0.1)

    simulation.run(main)
    assert watermarks == [0, 2]


def test_a_full_disk_fails_every_waiting_append_and_the_next_one_succeeds() -> None:
    full = Fails("append", at=2, file=HEAD, error=errno.ENOSPC, partial=11)
    simulation = Simulation(seed=4, faults=[full])

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            failed = writer.append([track(0)])
            with pytest.raises(AppendFailed, match="No space left") as caught:
                failed.result()
            assert isinstance(caught.value.__cause__, DiskFull)
            assert writer.append([track(1)]).result() == 0
            assert writer.stats().failed == 1

    simulation.run(main)
    assert history(simulation.disk) == [track(1)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_writer_that_has_ended_by_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING", 1)
    here = ports(SimDisk())
    writer = PartitionWriter(here, FOLDER, FORMATS, sealer=None)
    begun, go_on, room = threading.Event(), threading.Event(), threading.Event()

    def broken(_chunks: object) -> None:
        begun.set()
        assert go_on.wait(10.0)
        raise MemoryError

    def in_want_of_room() -> None:
        with pytest.raises((JournalClosed, AppendFailed)):
            writer.append([track(2)]).result(10.0)
        room.set()

    monkeypatch.setattr(writer._partition, "write", broken)
    in_hand = writer.append([track(0)])
    assert begun.wait(10.0)
    in_line = writer.append([track(1)])
    waiting = threading.Thread(target=in_want_of_room)
    waiting.start()
    go_on.set()
    for receipt in (in_hand, in_line):
        with pytest.raises(AppendFailed) as caught:
            receipt.result(10.0)
        assert isinstance(caught.value.__cause__, MemoryError)
    assert room.wait(10.0)
    waiting.join()
    with pytest.raises(JournalClosed):
        writer.append([track(3)])
    writer.close()
    PartitionWriter(here, FOLDER, FORMATS, sealer=None).close()


def test_a_timeout_says_that_the_outcome_is_unknown_and_names_the_event() -> None:
    simulation = Simulation(seed=5)

    def main() -> None:
        gate = simulation.tasks.event()
        with PartitionWriter(simulation.ports, FOLDER, FORMATS, on_durable=lambda _: gate.wait()) as writer:
            receipt = writer.append([track(7)])
            with pytest.raises(AppendTimeout, match="radar:1:7"):
                receipt.result(timeout=3.0)
            gate.set()
            assert receipt.result() == 0

    simulation.run(main)


def test_callbacks_are_called_once_whenever_they_are_added() -> None:
    simulation = Simulation(seed=6)
    called: list[int] = []

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            receipt = writer.append([track(0)])
            receipt.add_done_callback(lambda r: called.append(r.first_offset))
            receipt.add_done_callback(lambda _: 1 / 0)
            receipt.result()
            receipt.add_done_callback(lambda r: called.append(r.first_offset + 100))

    simulation.run(main)
    assert called == [0, 100]


def test_closing_writes_what_is_in_line_and_refuses_more() -> None:
    simulation = Simulation(seed=7)

    def main() -> None:
        writer = PartitionWriter(simulation.ports, FOLDER, FORMATS)
        receipt = writer.append([track(0)])
        writer.close()
        assert receipt.result(timeout=0) == 0
        with pytest.raises(JournalClosed):
            writer.append([track(1)])
        writer.close()

    simulation.run(main)


def test_mistakes_fail_in_append_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(seed=8)

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS) as writer:
            with pytest.raises(UnknownFormat):
                writer.append([type(track(0))("x", 1, 1, 1, b"?" * 12, b"")])
            with pytest.raises(BatchTooLarge, match="0 events"):
                writer.append([])
            monkeypatch.setattr(writers, "MAX_APPEND_BYTES", 10)
            with pytest.raises(BatchTooLarge, match="bytes"):
                writer.append([track(0)])
        assert writer.watermark == 0

    simulation.run(main)


def test_an_append_that_on_durable_chokes_on_is_durable_all_the_same() -> None:
    simulation = Simulation(seed=9)

    def main() -> None:
        with PartitionWriter(simulation.ports, FOLDER, FORMATS, on_durable=lambda _: 1 / 0) as writer:
            assert writer.append([track(0)]).result() == 0
            assert writer.append([track(1)]).result() == 1

    simulation.run(main)


def test_an_old_head_is_closed_even_when_nobody_appends() -> None:
    simulation = Simulation(seed=10)

    def main() -> tuple[int | None, ...]:
        limits = Limits(head_seconds=5.0)
        with PartitionWriter(simulation.ports, FOLDER, FORMATS, limits=limits, sealer=None) as writer:
            writer.append([track(0)]).result()
            simulation.tasks.sleep(6.0)
            return tuple(head.next for head in writer._partition.manifest.heads)

    assert simulation.run(main) == (1,)
