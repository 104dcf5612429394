"""What the simulated disk does to those who rely on it: it loses, tears, flips, fills up and fails."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import DiskError, DiskFull, FileLocked, NoSuchFile
from heliograph.sim import Fails, Flips, Killed, PowerCut, PowerLoss, SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable

NAME_OPERATIONS = ("create", "open", "map", "rename", "remove", "exists", "lock", "free")
FOLDER_OPERATIONS = ("list", "make_folder", "remove_folder", "sync_folder")
FILE_OPERATIONS = ("append", "write_at", "read_at", "size", "truncate", "sync")


def durable_file(disk: SimDisk, name: str, data: bytes) -> None:
    with disk.create(name) as file:
        file.append(data)
        file.sync()
    disk.sync_folder()


def contents_after_random_crashes(prepare: list[bytes], count: int = 200) -> set[bytes]:
    """What may be left of one durable file after these unsynced appends."""
    left = set()
    for seed in range(count):
        disk = SimDisk(seed=seed)
        durable_file(disk, "a", b"")
        with disk.open("a") as file:
            for data in prepare:
                file.append(data)
        left.add(disk.crash("random").read("a"))
    return left


def test_bytes_that_were_not_synced_are_lost_and_synced_ones_are_not() -> None:
    disk = SimDisk()
    durable_file(disk, "a", b"synced")
    with disk.open("a") as file:
        file.append(b"lost")
        file.write_at(0, b"S")
    assert disk.read("a") == b"Syncedlost"
    assert disk.crash("none").read("a") == b"synced"


def test_everything_may_survive_a_crash_without_any_sync() -> None:
    disk = SimDisk()
    disk.make_folder("f")
    with disk.create("f/a") as file:
        file.append(b"lucky")
    assert disk.crash("all").read("f/a") == b"lucky"


def test_a_write_is_kept_lost_or_cut_at_any_byte() -> None:
    assert contents_after_random_crashes([b"abc"]) == {b"", b"a", b"ab", b"abc"}


def test_writes_survive_in_any_order_and_a_gap_reads_as_zeros() -> None:
    left = contents_after_random_crashes([b"a", b"b"])
    assert left == {b"", b"a", b"ab", b"\0b"}


def test_a_lost_truncation_takes_later_writes_with_it() -> None:
    left = set()
    for seed in range(100):
        disk = SimDisk(seed=seed)
        durable_file(disk, "a", b"0123")
        with disk.open("a") as file:
            file.truncate(1)
            file.append(b"x")
        left.add(disk.crash("random").read("a"))
    assert left == {b"0123", b"0", b"0x"}


def test_the_same_seed_leaves_the_same_disk() -> None:
    def left(seed: int) -> list[bytes]:
        disk = SimDisk(seed=seed)
        for name in ("a", "b", "c"):
            durable_file(disk, name, b"")
            with disk.open(name) as file:
                file.append(b"0123456789")
        disk = disk.crash("random")
        return [disk.read(name) for name in ("a", "b", "c")]

    assert [left(seed) for seed in range(50)] == [left(seed) for seed in range(50)]
    assert len({tuple(left(seed)) for seed in range(50)}) > 10


def test_a_synced_file_is_lost_with_its_name_until_the_folder_is_synced() -> None:
    disk = SimDisk()
    with disk.create("a") as file:
        file.append(b"abc")
        file.sync()
    disk = disk.crash("none")
    assert disk.list() == ()


def test_a_file_in_a_folder_needs_the_folders_name_too() -> None:
    disk = SimDisk()
    disk.make_folder("f")
    with disk.create("f/a") as file:
        file.sync()
    disk.sync_folder("f")
    assert disk.crash("none").list() == ()


def test_a_removed_file_comes_back_unless_the_folder_is_synced() -> None:
    disk = SimDisk()
    durable_file(disk, "a", b"abc")
    durable_file(disk, "b", b"abc")
    disk.remove("a")
    disk.sync_folder()
    disk.remove("b")
    assert disk.list() == ()
    assert disk.crash("none").list() == ("b",)


def test_a_file_created_and_removed_may_come_back_only_with_what_was_synced() -> None:
    seen = set()
    for seed in range(100):
        disk = SimDisk(seed=seed)
        with disk.create("a") as file:
            file.append(b"synced")
            file.sync()
            file.append(b"?")
        disk.remove("a")
        disk = disk.crash("random")
        seen.add(disk.read("a") if disk.list() else None)
    assert seen == {None, b"synced", b"synced?"}


def test_a_rename_leaves_the_old_or_the_new_and_never_both_or_neither() -> None:
    seen = set()
    for seed in range(50):
        disk = SimDisk(seed=seed)
        disk.make_folder("f")
        disk.sync_folder()
        durable_file(disk, "old", b"abc")
        disk.rename("old", "f/new")
        disk = disk.crash("random")
        seen.add((disk.list(), disk.list("f")))
    assert seen == {(("f/", "old"), ()), (("f/",), ("new",))}


def test_a_replaced_file_is_the_old_or_the_new_one_whole() -> None:
    seen = set()
    for seed in range(50):
        disk = SimDisk(seed=seed)
        durable_file(disk, "a", b"old")
        durable_file(disk, "a.new", b"new content")
        disk.rename("a.new", "a")
        seen.add(disk.crash("random").read("a"))
    assert seen == {b"old", b"new content"}


def test_a_rename_that_builds_on_a_lost_creation_is_lost_too() -> None:
    seen = set()
    for seed in range(100):
        disk = SimDisk(seed=seed)
        disk.create("a").close()
        disk.rename("a", "b")
        disk.create("unrelated").close()
        seen.add(disk.crash("random").list())
    assert seen == {(), ("a",), ("b",), ("unrelated",), ("a", "unrelated"), ("b", "unrelated")}


def test_a_new_file_never_displaces_one_whose_renaming_was_lost() -> None:
    seen = set()
    for seed in range(100):
        disk = SimDisk(seed=seed)
        durable_file(disk, "a", b"old")
        disk.rename("a", "b")
        with disk.create("a") as file:
            file.append(b"new")
            file.sync()
        disk = disk.crash("random")
        seen.add(tuple((name, disk.read(name)) for name in disk.list()))
    assert seen == {(("a", b"old"),), (("b", b"old"),), (("a", b"new"), ("b", b"old"))}


def test_a_failed_sync_names_its_file_and_ends_the_handle() -> None:
    disk = SimDisk(faults=[Fails("sync", at=2, file="a")])
    durable_file(disk, "b", b"")
    durable_file(disk, "a", b"first")
    file = disk.open("a")
    file.append(b"second")
    with pytest.raises(DiskError, match="sync of 'a' failed: Input/output error"):
        file.sync()
    for use in (
        file.sync,
        lambda: file.append(b"x"),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
    ):
        with pytest.raises(DiskError, match="earlier sync"):
            use()
    assert file.read_at(0, 100) == b"firstsecond"


def test_after_a_failed_sync_no_later_one_saves_what_it_dropped() -> None:
    disk = SimDisk(faults=[Fails("sync", at=2)])
    durable_file(disk, "a", b"first.")
    with disk.open("a") as file:
        file.append(b"dropped")
        with pytest.raises(DiskError):
            file.sync()
    with disk.open("a") as file:
        file.append(b"later")
        file.sync()
        assert file.read_at(0, 100) == b"first.droppedlater"
    assert disk.crash("none").read("a") == b"first." + bytes(len("dropped")) + b"later"


def test_what_a_failed_sync_dropped_may_yet_turn_up() -> None:
    seen = set()
    for seed in range(50):
        disk = SimDisk(seed=seed, faults=[Fails("sync", at=2)])
        durable_file(disk, "a", b"first.")
        with disk.open("a") as file:
            file.append(b"xy")
            with pytest.raises(DiskError):
                file.sync()
        seen.add(disk.crash("random").read("a"))
    assert seen == {b"first.", b"first.x", b"first.xy"}


def test_a_failed_append_may_leave_a_part_and_the_next_one_starts_there() -> None:
    disk = SimDisk(faults=[Fails("append", at=2, partial=2)])
    with disk.create("a") as file:
        file.append(b"0123")
        with pytest.raises(DiskError, match="append of 'a'"):
            file.append(b"abcd")
        assert disk.read("a") == b"0123ab"
        assert file.append(b"x") == 4
    assert disk.read("a") == b"0123xb"


@pytest.mark.parametrize(
    "operation",
    [*NAME_OPERATIONS, *FOLDER_OPERATIONS, *FILE_OPERATIONS],
)
def test_every_operation_can_be_made_to_fail_and_then_works_again(operation: str) -> None:
    disk = SimDisk(faults=[Fails(operation, error=errno.EIO)])
    failures = 0
    for round_number in (1, 2):
        uses: tuple[Callable[[], object], ...] = (
            lambda: disk.make_folder("folder"),
            lambda: disk.create("a").close(),
            lambda: disk.open("a").append(b"abc"),
            lambda: disk.open("a").write_at(0, b"A"),
            lambda: disk.open("a").read_at(0, 3),
            lambda: disk.open("a").size(),
            lambda: disk.open("a").truncate(1),
            lambda: disk.open("a").sync(),
            lambda: disk.map("a"),
            lambda: disk.rename("a", "b"),
            lambda: disk.remove("b"),
            lambda: disk.exists("a"),
            disk.list,
            lambda: disk.remove_folder("folder"),
            disk.sync_folder,
            lambda: disk.lock("lock").release(),
            disk.free,
        )
        for use in uses:
            try:
                use()
            except DiskError as error:
                assert (error.operation, round_number) == (operation, 1)  # noqa: PT017 - counted below
                failures += 1
                use()
    assert failures == 1


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = SimDisk(capacity=10)
    with disk.create("a") as file:
        file.append(b"01234567")
        assert disk.free() == 2
        with pytest.raises(DiskFull):
            file.append(b"abc")
        assert disk.read("a") == b"01234567ab"
        assert disk.free() == 0
        with pytest.raises(DiskFull):
            file.truncate(11)
        with pytest.raises(DiskFull):
            file.write_at(20, b"x")
        file.write_at(0, b"overwriting needs no room"[:8])
        file.truncate(8)
        assert file.append(b"ab") == 8
    disk.remove("a")
    assert disk.free() == 10


def test_an_error_number_chooses_the_error() -> None:
    disk = SimDisk(faults=[Fails("create", error=errno.EDQUOT), Fails("open", error=errno.ENOENT)])
    with pytest.raises(DiskFull):
        disk.create("a")
    disk.create("a").close()
    with pytest.raises(NoSuchFile):
        disk.open("a")


def test_a_bit_flips_on_the_platter_and_in_every_view() -> None:
    disk = SimDisk(faults=[Flips("read_at", at=2, offset=1, bit=0)])
    durable_file(disk, "a", b"abc")
    view = disk.map("a")
    with disk.open("a", readonly=True) as file:
        assert file.read_at(0, 3) == b"abc"
        assert file.read_at(0, 3) == b"acc"
    assert bytes(view) == b"acc"
    disk.flip("a", 2, 7)
    disk.flip("a", 100, 0)
    assert disk.crash("none").read("a") == b"ac\xe3"


def test_a_power_cut_is_nothing_a_program_can_handle() -> None:
    disk = SimDisk(faults=[PowerCut("append", at=2)])
    with disk.create("a") as file:
        file.append(b"abc")
        assert not issubclass(PowerLoss, Exception)
        for use in (lambda: file.append(b"d"), file.sync, disk.list, lambda: disk.create("b")):
            with pytest.raises(PowerLoss):
                use()
    assert disk.crash("all").read("a") == b"abc"


def test_handles_and_disks_from_before_a_crash_are_worth_nothing() -> None:
    disk = SimDisk()
    durable_file(disk, "a", b"abc")
    file = disk.open("a")
    after = disk.crash("all")
    with pytest.raises(PowerLoss):
        file.append(b"x")
    with pytest.raises(PowerLoss):
        disk.list()
    assert after.read("a") == b"abc"


def test_a_killed_process_loses_its_locks_and_handles_but_nothing_that_it_wrote() -> None:
    first = SimDisk(process="first")
    second = SimDisk(first.medium, process="second")
    file = first.create("a")
    file.append(b"abc")
    first.lock("lock", note="for the journal")
    second.lock("other")
    with pytest.raises(FileLocked, match="process first for the journal"):
        second.lock("lock")
    restarted = first.kill()
    with pytest.raises(Killed):
        file.append(b"x")
    assert restarted.read("a") == b"abc"
    with restarted.lock("lock"), pytest.raises(FileLocked, match="process second"):
        restarted.lock("other")


def test_a_crash_frees_all_locks() -> None:
    disk = SimDisk()
    disk.lock("lock")
    assert disk.crash().lock("lock").name == "lock"


def test_a_sync_covers_what_was_written_before_it_began_and_nothing_after() -> None:
    def write_meanwhile(operation: str, _file: str) -> None:
        if operation == "disk.sync":
            second.append(b"during")

    disk = SimDisk(step=write_meanwhile)
    first = disk.create("a")
    disk.sync_folder()
    first.append(b"before,")
    second = disk.open("a")
    first.sync()
    assert disk.read("a") == b"before,during"
    assert disk.crash("none").read("a") == b"before,"


def test_names_that_appear_during_a_folder_sync_are_not_part_of_it() -> None:
    def create_meanwhile(operation: str, _file: str) -> None:
        if operation == "disk.sync_folder":
            disk.create("during").close()

    disk = SimDisk(step=create_meanwhile)
    disk.create("before").close()
    disk.sync_folder()
    assert disk.crash("none").list() == ("before",)


def test_cutting_a_mapped_part_is_refused_where_a_real_disk_would_end_the_process() -> None:
    disk = SimDisk()
    durable_file(disk, "a", b"0123")
    view = disk.map("a")
    with disk.open("a") as file:
        with pytest.raises(RuntimeError, match="mapped"):
            file.truncate(3)
        file.truncate(6)
        del view
        file.truncate(0)
    assert disk.read("a") == b""
