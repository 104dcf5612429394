"""The commit file."""

from __future__ import annotations

import pytest

from heliograph.errors import BadJournalFile
from heliograph.journal.format import commit_file as commitfile
from heliograph.journal.format.commit_file import NOTHING, SLOTS, Commit, CommitView, CommitWriter
from heliograph.sim import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_folder("p")
    commitfile.create(disk, "p", b"i" * 16)
    return disk


def test_a_view_sees_what_is_published_later(disk: SimDisk) -> None:
    view = CommitView(disk, "p")
    assert view.current() == NOTHING
    writer = CommitWriter(disk, "p")
    for watermark in range(1, 6):
        promise = Commit(watermark, 100 + watermark, 7, 1)
        writer.publish(promise)
        assert view.watermark() == watermark
        assert view.current() == promise
        assert view.current() == promise


def test_a_slot_that_was_being_written_is_looked_at_again(disk: SimDisk) -> None:
    writer = CommitWriter(disk, "p")
    view = CommitView(disk, "p")
    writer.publish(Commit(3, 1, 1, 1))
    writer.publish(Commit(4, 1, 1, 1))
    assert view.watermark() == 4
    writer.publish(Commit(5, 1, 1, 1))
    disk.flip("p/commit", SLOTS[0] + 20, 0)
    assert view.watermark() == 4
    disk.flip("p/commit", SLOTS[0] + 20, 0)
    assert view.watermark() == 5


def test_a_torn_slot_leaves_the_promise_before_it(disk: SimDisk) -> None:
    writer = CommitWriter(disk, "p")
    writer.publish(Commit(3, 1, 1, 1))
    writer.publish(Commit(4, 1, 1, 1))
    disk.flip("p/commit", SLOTS[1] + 2, 0)
    assert CommitView(disk, "p").current().watermark == 3


def test_a_view_never_goes_back(disk: SimDisk) -> None:
    writer = CommitWriter(disk, "p")
    view = CommitView(disk, "p")
    writer.publish(Commit(3, 1, 1, 1))
    writer.publish(Commit(4, 1, 1, 1))
    assert view.current().watermark == 4
    disk.flip("p/commit", SLOTS[1] + 2, 0)
    assert view.current().watermark == 4


def test_a_strange_file_is_refused(disk: SimDisk) -> None:
    disk.flip("p/commit", 0, 0)
    with pytest.raises(BadJournalFile, match="does not begin"):
        CommitView(disk, "p")
    disk.flip("p/commit", 0, 0)
    disk.flip("p/commit", 8, 1)
    with pytest.raises(BadJournalFile, match="version 3"):
        CommitView(disk, "p")
