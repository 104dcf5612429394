"""Durable cursors: progress, leases, fencing, and what is left after a crash."""

from __future__ import annotations

from functools import partial

import pytest

from heliograph.errors import (
    BadJournalFile,
    CursorFenced,
    CursorHeld,
    DiskError,
    PartitionInUse,
    TooManyAcks,
)
from heliograph.journal.consumers import cursors
from heliograph.journal.consumers.cursors import Cursor, CursorPosition, CursorStore
from heliograph.sim import Fails, SimDisk, Simulation, explore_crashes
from tests.support import examples
from tests.unit.journal.helpers import HandClock, ports

FOLDER = "consumers"


def store(disk: SimDisk, clock: HandClock | None = None) -> CursorStore:
    return CursorStore(ports(disk, clock), FOLDER)


def test_a_position_survives_a_restart() -> None:
    disk = SimDisk()
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        assert cursor.position("a1") == 0
        assert cursor.position("a1", default=7) == 7
        cursor.commit({"a1": 5, "b2": 9}, {"a1": [8, 6]})
    with store(disk.crash("none")) as opened:
        cursor = opened.open("billing", "me")
        assert cursor.positions() == {"a1": 5, "b2": 9}
        assert cursor.acks("a1") == {6, 8}
        assert opened.names() == ("billing",)


def test_a_consumer_has_a_place_before_it_is_first_opened_and_keeps_the_one_it_has() -> None:
    disk = SimDisk()
    with store(disk) as opened:
        opened.begin("billing", "a1", 5)
        with opened.open("audit", "me") as cursor:
            cursor.commit({"a1": 9})
            opened.begin("audit", "a1", 0)
            opened.begin("audit", "b2", 3)
            cursor.commit({"a1": 10})
    with store(disk.crash("none")) as opened:
        assert [(place.consumer, place.low) for place in opened.places("a1")] == [
            ("billing", 5),
            ("audit", 10),
        ]
        assert opened.open("audit", "me").positions() == {"a1": 10, "b2": 3}
        assert opened.open("billing", "me").position("a1") == 5


def test_acks_that_reach_the_low_watermark_raise_it() -> None:
    with store(SimDisk()) as opened:
        cursor = opened.open("billing", "me")
        cursor.commit({}, {"a1": [1, 2, 4]})
        assert (cursor.position("a1"), cursor.acks("a1")) == (0, frozenset({1, 2, 4}))
        cursor.commit({}, {"a1": [0]})
        assert (cursor.position("a1"), cursor.acks("a1")) == (3, frozenset({4}))
        cursor.commit({"a1": 1})
        assert cursor.position("a1") == 3
        cursor.seek("a1", 1)
        assert (cursor.position("a1"), cursor.acks("a1")) == (1, frozenset())


def test_acks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "MAX_ACKS", 3)
    with store(SimDisk()) as opened:
        cursor = opened.open("billing", "me")
        with pytest.raises(TooManyAcks, match="more than 3"):
            cursor.commit({}, {"a1": [1, 2, 3, 4]})
        assert cursor.acks("a1") == frozenset()


def test_a_name_is_exclusive_until_its_lease_runs_out() -> None:
    clock = HandClock()
    with store(SimDisk(), clock) as opened:
        first = opened.open("billing", "one")
        with pytest.raises(CursorHeld, match="'one' consumes as 'billing'"):
            opened.open("billing", "two")
        clock.now += 29 * 10**9
        first.renew()
        clock.now += 29 * 10**9
        with pytest.raises(CursorHeld):
            opened.open("billing", "two")
        clock.now += 2 * 10**9
        assert opened.open("billing", "two").epoch == first.epoch + 1


def test_a_stale_owner_is_fenced() -> None:
    clock = HandClock()
    with store(SimDisk(), clock) as opened:
        stale = opened.open("billing", "one")
        clock.now += 31 * 10**9
        current = opened.open("billing", "two")
        current.commit({"a1": 3})
        for act in (partial(stale.commit, {"a1": 9}), partial(stale.seek, "a1", 0), stale.renew):
            with pytest.raises(CursorFenced, match="nothing was committed"):
                act()
        stale.close()
        with pytest.raises(CursorHeld):
            opened.open("billing", "three")
        assert current.position("a1") == 3


def test_epochs_never_repeat_over_restarts() -> None:
    disk = SimDisk()
    epochs = []
    for _ in range(3):
        with store(disk) as opened, opened.open("billing", "me") as cursor:
            epochs.append(cursor.epoch)
    assert epochs == [1, 2, 3]


def test_a_closed_cursor_frees_its_name_and_a_forgotten_one_begins_anew() -> None:
    disk = SimDisk()
    with store(disk) as opened:
        with opened.open("billing", "one") as cursor:
            cursor.commit({"a1": 3})
            with pytest.raises(CursorHeld):
                opened.forget("billing")
        assert opened.open("billing", "two").position("a1") == 3
        opened.open("other", "x").close()
        opened.forget("other")
    with store(disk) as opened:
        assert opened.names() == ("billing",)


def test_a_second_process_is_refused() -> None:
    disk = SimDisk()
    with store(disk), pytest.raises(PartitionInUse):
        store(disk)


def test_the_file_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "REWRITE_BYTES", 500)
    disk = SimDisk()
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        for n in range(200):
            cursor.commit({"a1": n})
        assert len(disk.read(f"{FOLDER}/cursors")) < 700
    with store(disk) as opened:
        assert opened.open("billing", "me").position("a1") == 199


def test_a_failed_sync_fails_the_commit_and_the_next_one_uses_a_new_file() -> None:
    disk = SimDisk(faults=[Fails("sync", at=3)])
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        cursor.commit({"a1": 1})
        with pytest.raises(DiskError):
            cursor.commit({"a1": 2})
        cursor.commit({"a1": 3})
    with store(disk.crash("none")) as opened:
        assert opened.open("billing", "me").position("a1") == 3


REFUSED = [Fails("append", at=3), Fails("append", at=3, partial=60), Fails("sync", at=3)]


def refused_commit(opened: CursorStore) -> Cursor:
    cursor = opened.open("billing", "me")
    cursor.commit({"a1": 1}, {"a1": [5]})
    with pytest.raises(DiskError):
        cursor.commit({"a1": 2}, {"a1": [7]}, {"a1": 9})
    return cursor


@pytest.mark.parametrize("fault", REFUSED)
def test_a_commit_that_raised_did_not_happen(fault: Fails) -> None:
    """Neither in memory nor with the next commit of anybody."""
    disk = SimDisk(faults=[fault])
    with store(disk) as opened:
        cursor = refused_commit(opened)
        before = CursorPosition(1, {5})
        assert (cursor.position("a1"), sorted(cursor.acks("a1")), cursor.reach("a1")) == (1, [5], 0)
        opened.open("audit", "me").commit({"a1": 8})
    with store(disk.crash("none")) as opened:
        assert opened.state("billing").positions["a1"] == before


@pytest.mark.parametrize("fault", REFUSED)
def test_a_commit_that_raised_did_not_happen_when_a_crash_follows(fault: Fails) -> None:
    disk = SimDisk(faults=[fault])
    refused_commit(store(disk))
    with store(disk.crash("all" if fault.operation == "append" else "none")) as opened:
        assert opened.state("billing").positions["a1"] == CursorPosition(1, {5})


def test_an_opening_that_raised_did_not_happen() -> None:
    disk = SimDisk(faults=[Fails("sync", at=3)])
    with store(disk) as opened:
        first = opened.open("billing", "me")
        first.commit({"a1": 1})
        with pytest.raises(DiskError):
            opened.open("audit", "me")
        assert opened.names() == ("billing",)
        assert opened.open("audit", "somebody else").epoch == 1, "nobody has its lease"


def test_a_cursor_takes_back_what_it_said() -> None:
    disk = SimDisk()
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        cursor.commit({"a1": 5}, {"a1": [7, 9]}, {"a1": 12})
        cursor.withdraw("a1", 3, [4, 7])
        assert opened.state("billing").positions["a1"] == CursorPosition(3, {4, 7}, 12)
        later = opened.open("billing", "me")
        with pytest.raises(CursorFenced):
            cursor.withdraw("a1", 0)
    with store(disk.crash("none")) as opened:
        assert opened.state("billing").positions["a1"].low == 3
        assert later.epoch == 2


def test_a_rewriting_that_fails_half_way_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "REWRITE_BYTES", 0)
    disk = SimDisk(faults=[Fails("sync_folder", at=4)])
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        cursor.commit({"a1": 1})
        with pytest.raises(DiskError):
            cursor.commit({"a1": 2})
        monkeypatch.setattr(cursors, "REWRITE_BYTES", 1 << 20)
        cursor.commit({"a1": 3})
        cursor.commit({"a1": 4})
    with store(disk.crash("none")) as opened:
        assert opened.open("billing", "me").position("a1") == 4


def test_a_file_that_is_none_is_refused() -> None:
    disk = SimDisk()
    with store(disk) as opened:
        opened.open("billing", "me").commit({"a1": 1})
    disk.flip(f"{FOLDER}/cursors", 0, 0)
    with pytest.raises(BadJournalFile, match="does not begin"):
        store(disk)


def written_by_commits() -> tuple[SimDisk, list[int]]:
    """A file of three commits, and its sizes after each."""
    disk, sizes = SimDisk(), []
    with store(disk) as opened:
        cursor = opened.open("billing", "me")
        for low in (1, 2, 3):
            cursor.commit({"a1": low})
            sizes.append(len(disk.read(f"{FOLDER}/cursors")))
    return disk, sizes


def with_content(content: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_folder(FOLDER)
    disk.create(f"{FOLDER}/cursors").append(content)
    return disk


def test_a_flipped_bit_in_what_was_durable_is_named_and_not_taken_for_a_torn_end() -> None:
    disk, sizes = written_by_commits()
    whole = disk.read(f"{FOLDER}/cursors")
    for at in range(16, sizes[1]):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(BadJournalFile, match="bring back a copy"):
            store(with_content(bytes(damaged)))


def test_a_torn_last_commit_is_dropped_wherever_it_ends() -> None:
    disk, sizes = written_by_commits()
    whole = disk.read(f"{FOLDER}/cursors")
    for end in range(sizes[1], sizes[2]):
        for torn in (whole[:end], whole[:end] + bytes(sizes[2] - end)):
            with store(with_content(torn)) as opened:
                assert opened.state("billing").positions["a1"].low == 2


def test_a_later_part_of_the_same_torn_write_is_no_sign_of_damage() -> None:
    disk, sizes = written_by_commits()
    whole = bytearray(disk.read(f"{FOLDER}/cursors"))
    last = bytes(whole[sizes[1] :])
    whole[sizes[1] :] = bytes(len(last)) + last
    with store(with_content(bytes(whole))) as opened:
        assert opened.state("billing").positions["a1"].low == 2


@pytest.mark.parametrize("seed", range(10))
def test_consumers_that_commit_together_share_a_sync(seed: int) -> None:
    simulation = Simulation(seed)

    def work(opened: CursorStore, name: str) -> None:
        cursor = opened.open(name, "me")
        for n in range(1, 11):
            cursor.commit({"a1": n})

    def main() -> None:
        with CursorStore(simulation.ports, FOLDER) as opened:
            tasks = [simulation.tasks.spawn(name, partial(work, opened, name)) for name in "abcd"]
            for task in tasks:
                task.join()

    simulation.run(main)
    with store(simulation.disk.crash("none")) as opened:
        assert [opened.state(name).positions["a1"].low for name in "abcd"] == [10] * 4
    syncs = sum(call.operation == "disk.sync" for call in simulation.trace.last)
    assert syncs < 44


class Consuming:
    """Commits with a file so short that it is replaced again and again."""

    def __init__(self) -> None:
        self.low = 0
        self.trying = 0

    def run(self, disk: SimDisk) -> None:
        with store(disk) as opened:
            cursor = opened.open("billing", "me")
            for n in range(1, 12):
                self.trying = n
                cursor.commit({"a1": n})
                self.low = n

    def check(self, disk: SimDisk) -> None:
        with store(disk) as opened:
            assert opened.open("billing", "me").position("a1") in {self.low, self.trying}


def test_no_crash_takes_a_committed_position_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "REWRITE_BYTES", 200)
    explored = explore_crashes(Consuming, outcomes=examples(30))
    assert explored.points > 30
