"""Batches that were handed over: judged by marks, taken in once, refused with a reason, swept when dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from heliograph.errors import BadJournalFile, BatchRefused, BatchTooLarge
from heliograph.journal.format.batch_marks import Mark
from heliograph.journal.inbox import adoption, staging
from heliograph.journal.inbox.adoption import ABANDONED_SECONDS, InboxFolder, OpenPartition, judged
from heliograph.journal.inbox.staging import (
    READY,
    STAGED,
    StagedBatch,
    StagedFile,
    StageWriter,
    hand_over,
    key_of,
    make_inbox,
)
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.model.formats import FormatRegistry
from heliograph.sim import Fails, SimDisk
from tests.unit.journal.helpers import FOLDER, TRACK, HandClock, history, ports, track, tracks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heliograph.journal.format.records import Record
    from heliograph.runtime.ports import Ports

CHANNEL, WRITER, NONCE = "air.totals", "totals", "checkpoint-1"


def staged(
    outside: Ports, number: int, *parts: Sequence[Record], nonce: str = NONCE
) -> tuple[StagedFile, ...]:
    """One file of rows for each part."""
    files: list[StagedFile] = []
    for part in parts:
        with StageWriter(outside, key_of(CHANNEL, WRITER, nonce), number, f"p{len(files)}-a0") as stage:
            stage.add(TRACK, [record.body for record in part])
            files.append(stage.finish())
    return tuple(files)


def batch(
    number: int, files: tuple[StagedFile, ...], nonce: str = NONCE, *, accepts_new: bool = False
) -> StagedBatch:
    return StagedBatch(
        channel=CHANNEL, writer=WRITER, nonce=nonce, number=number, files=files, accepts_new=accepts_new
    )


def bodies(first: int, count: int) -> list[bytes]:
    return [record.body for record in tracks(first, count)]


class Keeper:
    """Has the partition open, and the inbox beside it, on one disk."""

    def __init__(self, disk: SimDisk, clock: HandClock | None = None) -> None:
        self.disk = disk
        self.clock = clock
        self.ports = ports(disk, clock)
        make_inbox(disk)
        self.inbox = InboxFolder(self.ports)
        self.formats = FormatRegistry()
        self.writer = PartitionWriter(self.ports, FOLDER, self.formats, sealer=None)

    def take_in(self, name: str) -> bool:
        return self.inbox.take_in(name, lambda _batch: OpenPartition(self.writer, self.formats, lambda: 77))

    def take_all(self) -> None:
        for name in self.inbox.ready():
            assert self.take_in(name)

    def ids(self) -> list[int]:
        """The track of every event in the history."""
        return [msgspec.msgpack.decode(record.body)[0] for record in history(self.disk)]

    def files(self) -> list[str]:
        """What is left in the inbox."""
        folders = [name for name in self.disk.list(STAGED) if name.endswith("/")]
        rows = [f"{folder}{name}" for folder in folders for name in self.disk.list(f"{STAGED}/{folder[:-1]}")]
        return [*rows, *self.disk.list(READY)]


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper(SimDisk(), HandClock())
    yield made
    made.writer.close()


def test_a_batch_is_taken_in_once_with_its_rows_numbered(keeper: Keeper) -> None:
    hand_over(keeper.ports, batch(4, staged(keeper.ports, 4, tracks(10, 2), tracks(12, 1))))
    keeper.take_all()
    hand_over(keeper.ports, batch(4, staged(keeper.ports, 4, tracks(10, 3))))
    keeper.take_all()
    hand_over(keeper.ports, batch(6, staged(keeper.ports, 6, tracks(20, 1))))
    keeper.take_all()
    found = history(keeper.disk)
    assert keeper.ids() == [10, 11, 12, 20]
    assert {(record.supplier, record.epoch, record.station_seq) for record in found} == {(WRITER, 1, 77)}
    assert [record.sequence for record in found] == [1, 2, 3, 4]
    assert keeper.files() == []


def test_batches_of_one_writer_are_ready_in_their_order(keeper: Keeper) -> None:
    for number in (11, 2, 100):
        hand_over(keeper.ports, batch(number, staged(keeper.ports, number, tracks(number, 1))))
    keeper.take_all()
    assert keeper.ids() == [2, 11, 100]


def test_a_batch_that_lies_there_already_stays_and_the_second_attempt_goes(keeper: Keeper) -> None:
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, tracks(1, 2))))
    before = keeper.files()
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, tracks(1, 2))))
    assert keeper.files() == before
    keeper.take_all()
    assert keeper.ids() == [1, 2]


def test_many_small_files_become_one_frame(keeper: Keeper) -> None:
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, *([track(n)] for n in range(40)))))
    keeper.take_all()
    assert keeper.ids() == list(range(40))
    assert keeper.writer.stats().commits == 1


def test_a_batch_of_several_takenbecomes_visible_at_once(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "FRAME_TARGET", 200)
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, *([track(n)] for n in range(40)))))
    keeper.take_all()
    assert keeper.ids() == list(range(40))
    assert [record.sequence for record in history(keeper.disk)] == list(range(1, 41))


KNOWN = Mark(WRITER, NONCE, 5, generation=2, rows=10, past=("old",))


@pytest.mark.parametrize(
    ("number", "nonce", "accepts_new", "expected"),
    [
        (5, NONCE, False, None),
        (2, NONCE, True, None),
        (6, NONCE, False, Mark(WRITER, NONCE, 6, generation=2, rows=13, past=("old",))),
        (0, "newer", True, Mark(WRITER, "newer", 0, generation=3, rows=3, past=("old", NONCE))),
    ],
)
def test_a_batch_is_judged_by_the_mark_of_its_writer(
    number: int, nonce: str, accepts_new: bool, expected: Mark | None
) -> None:
    files = (StagedFile("a", 3, 100),)
    assert judged(KNOWN, batch(number, files, nonce, accepts_new=accepts_new)) == expected


@pytest.mark.parametrize(
    ("nonce", "accepts_new", "what_to_do"),
    [
        ("newer", False, "newCheckpoint=accept"),
        ("old", True, "stop this query"),
        ("old", False, "replaced by"),
    ],
)
def test_another_checkpoint_under_the_same_writer_is_refused(
    nonce: str, accepts_new: bool, what_to_do: str
) -> None:
    with pytest.raises(BatchRefused, match=what_to_do):
        judged(KNOWN, batch(9, (), nonce, accepts_new=accepts_new))


def test_a_refused_batch_says_why_and_leaves_no_rows_behind(keeper: Keeper) -> None:
    hand_over(keeper.ports, batch(3, staged(keeper.ports, 3, tracks(1, 1))))
    keeper.take_all()
    foreign = batch(0, staged(keeper.ports, 0, tracks(50, 1), nonce="newer"), "newer")
    hand_over(keeper.ports, foreign)
    keeper.take_all()
    assert keeper.files() == [f"{foreign.name}.refused"]
    assert b"newCheckpoint" in keeper.disk.read(f"{READY}/{foreign.name}.refused")
    hand_over(
        keeper.ports,
        batch(0, staged(keeper.ports, 0, tracks(50, 1), nonce="newer"), "newer", accepts_new=True),
    )
    keeper.take_all()
    assert keeper.ids() == [1, 50]
    assert history(keeper.disk)[1].epoch == 2


def test_damaged_or_missing_rows_are_refused_before_anything_is_appended(keeper: Keeper) -> None:
    files = staged(keeper.ports, 0, tracks(0, 5), tracks(5, 5))
    damaged = f"{STAGED}/{key_of(CHANNEL, WRITER, NONCE)}/{files[1].name}"
    keeper.disk.flip(damaged, files[1].size - 2, 1)
    hand_over(keeper.ports, batch(0, files))
    keeper.take_all()
    assert b"checksum" in keeper.disk.read(f"{READY}/{batch(0, ()).name}.refused")
    files = staged(keeper.ports, 0, tracks(0, 5), nonce="b")
    keeper.disk.remove(f"{STAGED}/{key_of(CHANNEL, WRITER, 'b')}/{files[0].name}")
    hand_over(keeper.ports, batch(0, files, "b"))
    (whole,) = staged(keeper.ports, 0, tracks(0, 1), nonce="c")
    hand_over(keeper.ports, batch(0, (StagedFile(whole.name, 7, 1),), "c"))
    keeper.take_all()
    assert keeper.ids() == []
    assert keeper.writer.marks == {}
    assert [name[-7:] for name in keeper.disk.list(READY)] == ["refused"] * 3


def test_nothing_follows_a_refused_batch_until_it_is_handed_over_again(keeper: Keeper) -> None:
    files = staged(keeper.ports, 1, tracks(10, 1))
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, tracks(0, 1))))
    hand_over(keeper.ports, batch(1, files))
    hand_over(keeper.ports, batch(2, staged(keeper.ports, 2, tracks(20, 1))))
    keeper.disk.flip(f"{STAGED}/{key_of(CHANNEL, WRITER, NONCE)}/{files[0].name}", files[0].size - 2, 1)
    assert [keeper.take_in(name) for name in keeper.inbox.ready()] == [True, True, False]
    assert keeper.ids() == [0]
    with pytest.raises(BatchRefused, match=r"batch 1 of .* checksum .* Batch 3 cannot follow"):
        hand_over(keeper.ports, batch(3, staged(keeper.ports, 3, tracks(30, 1))))
    assert keeper.clock is not None
    keeper.clock.now += round(ABANDONED_SECONDS * 1e9) + 1
    keeper.inbox.sweep()
    assert not keeper.take_in(batch(2, ()).name)
    hand_over(keeper.ports, batch(1, staged(keeper.ports, 1, tracks(10, 1))))
    keeper.take_all()
    hand_over(keeper.ports, batch(3, staged(keeper.ports, 3, tracks(30, 1))))
    keeper.take_all()
    assert keeper.ids() == [0, 10, 20, 30]


def test_a_manifest_that_is_none_is_refused(keeper: Keeper) -> None:
    good = batch(0, staged(keeper.ports, 0, tracks(0, 1)))
    hand_over(keeper.ports, good)
    keeper.disk.flip(f"{READY}/{good.name}.batch", 20, 1)
    with pytest.raises(BadJournalFile, match="checksum"):
        staging.load(keeper.disk, good.name)
    keeper.take_all()
    assert keeper.ids() == []
    assert keeper.disk.list(READY) == (f"{good.name}.refused",)


def test_a_batch_waits_while_the_disk_refuses() -> None:
    disk = SimDisk(faults=[Fails("sync", at=1, file=f"{FOLDER}/heads/{0:020d}-{1:08x}-{1:04x}.log")])
    keeper = Keeper(disk)
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, tracks(0, 3))))
    (name,) = keeper.inbox.ready()
    assert not keeper.take_in(name)
    assert keeper.ids() == []
    assert keeper.take_in(name)
    assert keeper.ids() == [0, 1, 2]
    keeper.writer.close()


def test_leftovers_of_earlier_attempts_go_and_those_of_the_next_batch_stay(keeper: Keeper) -> None:
    staged(keeper.ports, 6, tracks(0, 3))  # a task that failed behind its file
    (later,) = staged(keeper.ports, 8, tracks(5, 3))  # the next batch, being staged
    hand_over(keeper.ports, batch(7, staged(keeper.ports, 7, tracks(0, 3))))
    keeper.take_all()
    assert keeper.files() == [f"{key_of(CHANNEL, WRITER, NONCE)}/{later.name}"]


def test_a_task_that_fails_removes_its_file(keeper: Keeper) -> None:
    stage = StageWriter(keeper.ports, key_of(CHANNEL, WRITER, NONCE), 0, "p0")
    stage.add(TRACK, bodies(0, 1))
    assert len(keeper.files()) == 1
    stage.__exit__(ZeroDivisionError)
    assert keeper.files() == []


def test_the_sweep_takes_what_was_abandoned_and_nothing_else() -> None:
    clock = HandClock()
    keeper = Keeper(SimDisk(), clock)
    staged(keeper.ports, 0, tracks(0, 1), nonce="abandoned")
    hand_over(keeper.ports, batch(0, staged(keeper.ports, 0, tracks(0, 1), nonce="waits"), "waits"))
    clock.now += round(ABANDONED_SECONDS * 1e9) + 1
    staged(keeper.ports, 1, tracks(0, 1), nonce="at-work")
    hand_over(keeper.ports, batch(0, (StagedFile("none", 1, 1),), "fresh"))
    keeper.take_in(batch(0, (), "fresh").name)
    removed = keeper.inbox.sweep()
    assert len(removed) == 1
    assert removed[0].startswith(f"{STAGED}/{key_of(CHANNEL, WRITER, 'abandoned')}/")
    assert keeper.inbox.sweep() == []
    refused = staging.refusal(keeper.disk, batch(0, (), "fresh").name)
    assert refused is not None
    assert "none" in refused.reason
    keeper.take_all()
    assert keeper.ids() == [0]
    clock.now += round(ABANDONED_SECONDS * 1e9) + 1
    assert len(keeper.inbox.sweep()) == 2
    assert keeper.files() == []
    keeper.writer.close()


def test_what_cannot_become_visible_at_once_is_refused_before_it_is_handed_over(keeper: Keeper) -> None:
    too_many = batch(0, (StagedFile("a", staging.MAX_BATCH_EVENTS, 1), StagedFile("b", 1, 1)))
    with pytest.raises(BatchTooLarge, match="events"):
        hand_over(keeper.ports, too_many)
    with pytest.raises(BatchTooLarge, match="bytes"):
        hand_over(keeper.ports, batch(0, (StagedFile("a", 1, staging.MAX_BATCH_BYTES + 1),)))
    assert keeper.files() == []
