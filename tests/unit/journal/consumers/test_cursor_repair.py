"""A damaged cursor file: what is found in it, and who goes on where after a repair."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import BadJournalFile, PartitionInUse
from heliograph.journal.consumers.cursor_repair import EPOCHS, inspect_cursors, repair_cursors
from heliograph.journal.consumers.cursors import HEADER, CursorStore
from heliograph.runtime.ports import Ports, system_ports
from heliograph.sim import PowerCut, PowerLoss, SimDisk

if TYPE_CHECKING:
    from heliograph.sim.disk import SimFileLock

FOLDER = "consumers"
FILE = f"{FOLDER}/cursors"


def ports_of(disk: SimDisk) -> Ports:
    return replace(system_ports(), disk=disk)


def written() -> tuple[SimDisk, dict[str, int]]:
    """Two consumers and a supplier, one commit after the other; where the file ended after each."""
    disk, ends = SimDisk(), dict[str, int]()
    with CursorStore(ports_of(disk), FOLDER) as store:
        for name, low in (("early", 10), ("late", 20), ("supplier:radar", 30), ("late", 40)):
            with store.open(name, "me") as cursor:
                cursor.commit({"p1": low}, reach={"p1": low + 5})
            ends[f"{name} {low}"] = len(disk.read(FILE))
    return disk, ends


def damaged(disk: SimDisk, *at: int) -> SimDisk:
    content = bytearray(disk.read(FILE))
    for place in at:
        content[place] ^= 1
    copy = SimDisk()
    copy.make_folder(FOLDER)
    copy.create(FILE).append(bytes(content))
    return copy


def places(disk: SimDisk) -> dict[str, int]:
    with CursorStore(ports_of(disk), FOLDER) as store:
        kept = {name: store.state(name).positions for name in store.names()}
        return {name: positions["p1"].low for name, positions in kept.items() if positions}


def test_where_there_is_no_file_there_is_nothing_to_say() -> None:
    assert inspect_cursors(SimDisk(), FOLDER) is None


def test_a_whole_file_is_sound_and_left_alone() -> None:
    disk, _ = written()
    before = disk.read(FILE)
    report = repair_cursors(ports_of(disk), FOLDER, {"p1": 100})
    assert report is not None
    assert report.sound
    assert report.steps({}) == []
    assert disk.read(FILE) == before


def test_every_flipped_bit_is_found_repaired_once_and_moves_nobody_forward() -> None:
    disk, _ = written()
    whole = places(disk)
    last = len(disk.read(FILE)) - 1
    for at in (*range(8), *range(HEADER.size, last, 7)):
        broken = damaged(disk, at)
        report = inspect_cursors(broken, FOLDER)
        assert report is not None
        if report.sound:
            continue  # the last write of all, which nothing behind it says was durable
        with pytest.raises(BadJournalFile, match="journal repair"):
            places(broken)
        repair_cursors(ports_of(broken), FOLDER, {"p1": 100})
        after = places(broken)
        assert all(after[name] <= whole[name] for name in after)
        again = inspect_cursors(broken, FOLDER)
        assert again is not None
        assert again.sound
        aside = [name for name in broken.list(FOLDER) if name.startswith("damaged-")]
        assert len(aside) == 1


def test_who_committed_after_the_damage_goes_on_exactly_and_who_did_before_comes_again_marked() -> None:
    disk, ends = written()
    broken = damaged(disk, ends["late 20"] - 3)
    report = repair_cursors(ports_of(broken), FOLDER, {"p1": 100})
    assert report is not None
    assert report.damaged
    assert {kept.state.name: kept.is_exact for kept in report.places} == {
        "early": False,
        "late": True,
        "supplier:radar": True,
    }
    steps = "\n".join(report.steps({"p1": 100}))
    assert "consumer 'early' goes on at offset 10 of p1; it may have been further" in steps
    assert "consumer 'late' goes on at offset 40 of p1, where it was" in steps
    assert "supplier 'radar' goes on behind its last event" in steps
    assert "whoever is not named here has lost its place" in steps
    with CursorStore(ports_of(broken), FOLDER) as store:
        early, late = store.state("early"), store.state("late")
        assert (early.positions["p1"].low, early.positions["p1"].reach) == (10, 100)
        assert (late.positions["p1"].low, late.positions["p1"].reach) == (40, 45)
        assert early.epoch > EPOCHS


def test_a_name_whose_only_states_are_damaged_is_forgotten() -> None:
    disk, ends = written()
    broken = damaged(disk, *range(HEADER.size, ends["early 10"], 20))
    repair_cursors(ports_of(broken), FOLDER, {})
    assert "early" not in places(broken)


def test_a_file_that_a_station_has_open_is_not_touched() -> None:
    disk, ends = written()
    broken = damaged(disk, ends["early 10"] - 3)
    with broken.lock(f"{FOLDER}/lock"), pytest.raises(PartitionInUse):
        repair_cursors(ports_of(broken), FOLDER, {})


@pytest.mark.parametrize("mended", [True, False])
def test_what_a_station_committed_until_the_lock_was_taken_is_kept(
    monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    """The file is read again under the lock: it may be whole by then, or damaged with later places in it."""
    disk, ends = written()
    with CursorStore(ports_of(disk), FOLDER) as store, store.open("late", "me") as cursor:
        cursor.commit({"p1": 500}, reach={"p1": 505})
    later = bytearray(disk.read(FILE))
    at = ends["early 10"] - 3
    if not mended:
        later[at] ^= 1
    broken = damaged(written()[0], at)
    lock = broken.lock

    def lock_late(name: str, *, note: str = "") -> SimFileLock:
        broken.remove(FILE)
        broken.create(FILE).append(bytes(later))
        return lock(name, note=note)

    monkeypatch.setattr(broken, "lock", lock_late)
    report = repair_cursors(ports_of(broken), FOLDER, {"p1": 510})
    monkeypatch.undo()
    assert report is not None
    assert report.sound is mended
    assert places(broken)["late"] == 500


def test_a_repair_may_be_interrupted_anywhere() -> None:
    disk, ends = written()
    whole = places(disk)
    for at in itertools.count(1):
        broken = damaged(disk, ends["late 20"] - 3)
        with broken.open(FILE) as file:
            file.sync()
        broken.sync_folder(FOLDER)
        broken.sync_folder("")
        running = SimDisk(broken.medium, faults=[PowerCut("any", at=at)])
        try:
            repair_cursors(ports_of(running), FOLDER, {"p1": 100})
        except PowerLoss:
            after = running.crash("none")
        else:
            break
        repair_cursors(ports_of(after), FOLDER, {"p1": 100})
        assert places(after) == {**whole, "early": 10}
    assert at > 5
