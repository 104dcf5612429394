"""Power loss at every port operation between staging and tidying up: each batch is there once, or not at all.

One program plays all parts on one disk: tasks that stage rows, the driver that hands batches over and waits
for nothing, and the keeper that takes them in. After the crash the driver does what Spark does, which is to
repeat the batch that it did not see committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.inbox import adoption
from heliograph.journal.inbox.adoption import InboxFolder, OpenPartition
from heliograph.journal.inbox.staging import (
    READY,
    STAGED,
    StagedBatch,
    StageWriter,
    hand_over,
    key_of,
    make_inbox,
)
from heliograph.runtime.ports import Ports, ThreadTasks
from heliograph.sim import SimDisk, SimRandom, explore_crashes
from tests.support import examples
from tests.unit.journal.helpers import (
    FORMATS,
    TRACK,
    HandClock,
    history,
    partition,
    ports,
    seal_everything,
    tracks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.journal.format.batch_marks import Mark
    from heliograph.journal.writing.group_commit import PartitionWriter
    from heliograph.journal.writing.partition import Chunk, WritablePartition

CHANNEL, WRITER = "air.totals", "totals"


def bodies(first: int, count: int) -> list[bytes]:
    return [record.body for record in tracks(first, count)]


class Direct:
    """What an adoption asks of a writer, without its task: every operation is the scenario's own."""

    def __init__(self, target: WritablePartition) -> None:
        self._target = target

    @property
    def marks(self) -> dict[str, Mark]:
        return self._target.marks

    def adopt(self, frames: Iterable[list[Chunk]], events: int, mark: Mark) -> Direct:
        self._target.adopt(frames, mark)
        return self

    def result(self) -> None:
        """It is done."""


class Handing:
    """Four batches through the inbox into a partition, with reopening, sealing and a failed attempt."""

    BATCHES = ((2, 1), (3,), (2, 2, 2), (1,))
    """The rows of each file of each batch."""

    def __init__(self, nonce: str = "checkpoint-1") -> None:
        self.nonce = nonce
        self._random = SimRandom("outside")
        self.handed_over = 0
        """Batches whose commit has returned."""

    def run(self, disk: SimDisk) -> None:
        make_inbox(disk)
        keeper = partition(disk)
        for number in range(len(self.BATCHES)):
            self.hand_over(disk, number)
            self.handed_over = number + 1
            if number != 1:  # the second one waits until the keeper is back
                self.take_in(disk, keeper)
            if number == 1:
                keeper.close()
                keeper = partition(disk)
            if number == 2:
                seal_everything(keeper, disk)

    def hand_over(self, disk: SimDisk, number: int) -> None:
        outside = Ports(HandClock(), ThreadTasks(), self._random, disk)
        key, files, row = key_of(CHANNEL, WRITER, self.nonce), [], self.first(number)
        for attempt, part in enumerate(self.BATCHES[number]):
            with StageWriter(outside, key, number, f"p{attempt}") as stage:
                stage.add(TRACK, bodies(row, part))
                files.append(stage.finish())
            row += part
        with StageWriter(outside, key, number, "failed") as stage:
            stage.add(TRACK, bodies(900, 1))
        hand_over(
            outside,
            StagedBatch(channel=CHANNEL, writer=WRITER, nonce=self.nonce, number=number, files=tuple(files)),
        )

    def first(self, number: int) -> int:
        return sum(map(sum, self.BATCHES[:number]))

    def take_in(self, disk: SimDisk, keeper: WritablePartition) -> None:
        inbox = InboxFolder(ports(disk, HandClock()))
        target = OpenPartition(cast("PartitionWriter", Direct(keeper)), FORMATS, lambda: 0)
        for name in inbox.ready():
            assert inbox.take_in(name, lambda _batch: target)

    def check(self, disk: SimDisk) -> None:
        make_inbox(disk)
        keeper = partition(disk)
        self.take_in(disk, keeper)
        found = rows(disk)
        whole = self.first(self.handed_over)
        assert found in (list(range(whole)), list(range(self.first(self.handed_over + 1))))
        for number in range(max(0, self.handed_over - 1), len(self.BATCHES)):
            self.hand_over(disk, number)  # Spark repeats the last one: it cannot know how far it came
            self.take_in(disk, keeper)
        assert rows(disk) == list(range(self.first(len(self.BATCHES))))
        assert disk.list(f"{STAGED}/{key_of(CHANNEL, WRITER, self.nonce)}") == ()
        InboxFolder(ports(disk, HandClock())).sweep()
        assert (disk.list(READY), disk.list(STAGED)) == ((), ())


def rows(disk: SimDisk) -> list[int]:
    """Which rows are in the history, one by one."""
    return [msgspec.msgpack.decode(record.body)[0] for record in history(disk)]


@pytest.mark.parametrize("frame", [4 << 20, 1], ids=["one frame", "a frame per file"])
def test_a_batch_is_there_once_or_not_at_all_and_a_retry_completes_it(
    frame: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "FRAME_TARGET", frame)
    explored = explore_crashes(Handing, outcomes=examples(2))
    assert explored.points > 200


class Interrupted(Handing):
    """As above; the keeper was killed in mid-adoption before, and the power goes while it begins again."""

    def run(self, disk: SimDisk) -> None:
        make_inbox(disk)
        self.hand_over(disk, 0)
        self.handed_over = 1
        keeper = partition(disk)
        batch = InboxFolder(ports(disk, HandClock())).ready()
        assert len(batch) == 1
        with pytest.raises(KeyboardInterrupt):
            self._die_after(keeper, disk, 1)
        keeper._lock.release()
        self.take_in(disk, partition(disk))

    def _die_after(self, keeper: WritablePartition, disk: SimDisk, frames: int) -> None:
        def some(taken: Iterable[list[Chunk]]) -> Iterable[list[Chunk]]:
            for count, frame in enumerate(taken):
                if count == frames:
                    raise KeyboardInterrupt
                yield frame

        direct: Any = Direct(keeper)
        whole = direct.adopt
        direct.adopt = lambda frames, events, mark: whole(some(frames), events, mark)
        target = OpenPartition(direct, FORMATS, lambda: 0)
        inbox = InboxFolder(ports(disk, HandClock()))
        inbox.take_in(inbox.ready()[0], lambda _batch: target)


def test_a_killed_adoption_is_begun_again_through_any_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "FRAME_TARGET", 1)
    explored = explore_crashes(Interrupted, outcomes=examples(3))
    assert explored.points > 80


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "again", "older", "kill", "power", "new checkpoint", "seal"]),
            st.integers(1, 4),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_batches_repeats_and_crashes_equals_the_model(steps: list[tuple[str, int]]) -> None:
    """The model: a dictionary from batch to rows for each generation, of which each is written once."""
    disk, clock, random = SimDisk(), HandClock(), SimRandom("outside")
    expected: list[int] = []
    generation, number, row = 1, 0, 0
    make_inbox(disk)
    keeper = partition(disk)

    def write(batch_number: int, first: int, count: int) -> None:
        outside = Ports(clock, ThreadTasks(), random, disk)
        nonce = f"checkpoint-{generation}"
        with StageWriter(outside, key_of(CHANNEL, WRITER, nonce), batch_number, "p0") as stage:
            stage.add(TRACK, bodies(first, count))
            files = (stage.finish(),)
        hand_over(
            outside,
            StagedBatch(
                channel=CHANNEL,
                writer=WRITER,
                nonce=nonce,
                number=batch_number,
                files=files,
                accepts_new=True,
            ),
        )
        Handing().take_in(disk, keeper)

    for step, count in steps:
        match step:
            case "write":
                write(number, row, count)
                expected += range(row, row + count)
                number, row = number + 1, row + count
            case "again" | "older" if number > 0:
                write(number - 1 if step == "again" else 0, 5000, count)
            case "kill" | "power":
                disk = disk.kill() if step == "kill" else disk.crash("none")
                keeper = partition(disk)
            case "new checkpoint" if number > 0:
                generation, number = generation + 1, 0
            case "seal":
                seal_everything(keeper, disk)
        assert rows(disk) == expected
