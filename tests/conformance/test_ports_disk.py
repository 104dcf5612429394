"""What the contract of `Disk`, `File` and `FileLock` promises, on the machine and in simulations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import DiskError, FileExists, FileLocked, InvalidFileName, NoSuchFile
from tests.conformance.ports_contract import WORLDS, make_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heliograph.runtime.ports import Disk, File


@pytest.fixture(params=WORLDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return make_world(request.param, tmp_path).disk


def put(disk: Disk, name: str, *buffers: bytes) -> None:
    with disk.create(name) as file:
        file.append(*buffers)


def test_appends_follow_each_other_and_say_where_they_start(disk: Disk) -> None:
    with disk.create("a") as file:
        assert file.append(b"one", bytearray(b"two")) == 0
        assert file.append(memoryview(b"three")) == 6
        assert file.append() == 11
        assert file.size() == 11
    assert disk.read("a") == b"onetwothree"


def test_more_buffers_than_one_system_call_takes_are_appended_whole(disk: Disk) -> None:
    buffers = [bytes([i % 256]) * (i % 7) for i in range(5000)]
    with disk.create("a") as file:
        file.append(*buffers)
    assert disk.read("a") == b"".join(buffers)


def test_a_buffer_of_wider_items_counts_in_bytes(disk: Disk) -> None:
    numbers = memoryview(bytes(range(16))).cast("q")
    with disk.create("a") as file:
        file.append(numbers, b"end")
        assert file.append(b"!") == 19
    assert disk.read("a") == bytes(range(16)) + b"end!"


def test_a_reopened_file_is_appended_behind_its_end(disk: Disk) -> None:
    put(disk, "a", b"one")
    with disk.open("a") as file:
        assert file.append(b"two") == 3
    assert disk.read("a") == b"onetwo"


def test_a_new_file_cannot_take_a_name_that_is_taken(disk: Disk) -> None:
    put(disk, "a", b"kept")
    disk.make_folder("f")
    for name in ("a", "f"):
        with pytest.raises(FileExists) as caught:
            disk.create(name)
        assert (caught.value.operation, caught.value.file) == ("create", name)
    assert disk.read("a") == b"kept"


@pytest.mark.parametrize(
    "use",
    [
        lambda disk: disk.open("no"),
        lambda disk: disk.open("no", readonly=True),
        lambda disk: disk.read("no"),
        lambda disk: disk.map("no"),
        lambda disk: disk.rename("no", "new"),
        lambda disk: disk.remove("no"),
        lambda disk: disk.remove_folder("no"),
        lambda disk: disk.list("no"),
        lambda disk: disk.sync_folder("no"),
        lambda disk: disk.create("no/a"),
        lambda disk: disk.make_folder("no/a"),
        lambda disk: disk.lock("no/a"),
    ],
)
def test_what_is_not_there_is_named(disk: Disk, use: Callable[[Disk], object]) -> None:
    with pytest.raises(NoSuchFile, match="'no"):
        use(disk)
    assert disk.list() == ()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../b",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        "\udcff",
        "x" * 256,
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(disk: Disk, name: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: disk.create(name),
        lambda: disk.open(name),
        lambda: disk.read(name),
        lambda: disk.map(name),
        lambda: disk.remove(name),
        lambda: disk.exists(name),
        lambda: disk.rename(name, "b"),
        lambda: disk.rename("b", name),
        lambda: disk.make_folder(name),
        lambda: disk.remove_folder(name),
        lambda: disk.lock(name),
    ]
    for use in uses:
        with pytest.raises(InvalidFileName) as caught:
            use()
        assert caught.value.name == name
        assert "relative name" in str(caught.value)


def test_names_of_every_language_and_of_255_bytes_are_files(disk: Disk) -> None:
    names = sorted(["x" * 255, "Höhe", "高", "with space", "-dash"])
    for name in names:
        put(disk, name, name.encode())
    assert disk.list() == tuple(names)
    assert all(disk.read(name) == name.encode() for name in names)


def test_reading_returns_what_is_there_and_no_more(disk: Disk) -> None:
    put(disk, "a", b"0123456789")
    with disk.open("a", readonly=True) as file:
        assert file.read_at(2, 3) == b"234"
        assert file.read_at(8, 100) == b"89"
        assert file.read_at(10, 5) == b""
        assert file.read_at(1000, 5) == b""
        assert file.read_at(0, 1 << 60) == b"0123456789"


def test_writing_in_place_overwrites_and_leaves_zeros_in_a_gap(disk: Disk) -> None:
    put(disk, "a", b"0123")
    with disk.open("a") as file:
        file.write_at(1, b"xy")
        file.write_at(6, b"z")
        assert file.append(b"!") == 7
    assert disk.read("a") == b"0xy3\0\0z!"


def test_cutting_and_extending(disk: Disk) -> None:
    put(disk, "a", b"0123456789")
    with disk.open("a") as file:
        file.truncate(4)
        assert file.append(b"x") == 4
        file.truncate(7)
        assert file.append(b"y") == 7
    assert disk.read("a") == b"0123x\0\0y"


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.write_at(-1, b"x"),
        lambda file: file.truncate(-1),
        lambda file: file.read_at(-1, 2),
    ],
)
def test_a_negative_place_is_refused(disk: Disk, use: Callable[[File], object]) -> None:
    with disk.create("a") as file:
        file.append(b"abc")
        with pytest.raises(DiskError):
            use(file)
    assert disk.read("a") == b"abc"


@pytest.mark.parametrize(
    "use", [lambda f: f.append(b"x"), lambda f: f.write_at(0, b"x"), lambda f: f.truncate(0)]
)
def test_a_file_opened_for_reading_cannot_be_written(disk: Disk, use: Callable[[File], object]) -> None:
    put(disk, "a", b"abc")
    with disk.open("a", readonly=True) as file, pytest.raises(DiskError):
        use(file)
    assert disk.read("a") == b"abc"


@pytest.mark.parametrize(
    "use",
    [lambda f: f.append(b"x"), lambda f: f.read_at(0, 1), lambda f: f.sync(), lambda f: f.size()],
)
def test_a_closed_file_does_nothing(disk: Disk, use: Callable[[File], object]) -> None:
    with disk.create("a") as file:
        file.append(b"abc")
    file.close()
    with pytest.raises(DiskError):
        use(file)
    assert disk.read("a") == b"abc"


def test_two_handles_see_one_content(disk: Disk) -> None:
    with disk.create("a") as writer, disk.open("a", readonly=True) as reader:
        writer.append(b"abc")
        assert reader.read_at(0, 10) == b"abc"
        assert reader.size() == 3


def test_renaming_moves_and_replaces_but_keeps_open_handles(disk: Disk) -> None:
    put(disk, "old", b"old")
    put(disk, "new", b"new")
    with disk.open("new", readonly=True) as replaced, disk.open("old") as moved:
        disk.rename("old", "new")
        assert disk.list() == ("new",)
        assert disk.read("new") == b"old"
        assert replaced.read_at(0, 10) == b"new"
        moved.append(b"!")
    assert disk.read("new") == b"old!"


def test_renaming_to_itself_changes_nothing(disk: Disk) -> None:
    put(disk, "a", b"abc")
    disk.rename("a", "a")
    assert disk.read("a") == b"abc"


def test_renaming_between_folders(disk: Disk) -> None:
    disk.make_folder("f")
    disk.make_folder("g")
    put(disk, "f/a", b"abc")
    disk.rename("f/a", "g/b")
    disk.rename("g", "f/g")
    assert disk.list() == ("f/",)
    assert disk.list("f") == ("g/",)
    assert disk.read("f/g/b") == b"abc"


def test_files_and_folders_do_not_replace_each_other(disk: Disk) -> None:
    disk.make_folder("f")
    disk.make_folder("f/g")
    disk.make_folder("h")
    put(disk, "a", b"abc")
    for old, new in (("a", "f"), ("f", "a"), ("h", "f"), ("f", "f/g/h")):
        with pytest.raises(DiskError):
            disk.rename(old, new)
    needing_a_file: list[Callable[[str], object]] = [disk.remove, disk.open, disk.read, disk.map]
    for use in needing_a_file:
        with pytest.raises(DiskError):
            use("f")
    needing_a_folder: list[Callable[[str], object]] = [disk.list, disk.remove_folder, disk.sync_folder]
    for use in needing_a_folder:
        with pytest.raises(DiskError):
            use("a")
    with pytest.raises(DiskError):
        disk.create("a/b")
    assert disk.list() == ("a", "f/", "h/")


def test_an_empty_folder_is_replaced_by_a_renamed_one(disk: Disk) -> None:
    disk.make_folder("f")
    put(disk, "f/a", b"abc")
    disk.make_folder("g")
    disk.rename("f", "g")
    assert disk.read("g/a") == b"abc"


def test_a_removed_file_is_gone_but_open_handles_keep_it(disk: Disk) -> None:
    put(disk, "a", b"abc")
    with disk.open("a", readonly=True) as file:
        disk.remove("a")
        assert not disk.exists("a")
        assert file.read_at(0, 3) == b"abc"
    put(disk, "a", b"another")
    assert disk.read("a") == b"another"


def test_folders_are_listed_with_a_slash_and_removed_only_when_empty(disk: Disk) -> None:
    disk.make_folder("f")
    with pytest.raises(FileExists):
        disk.make_folder("f")
    put(disk, "f/b", b"")
    put(disk, "f/a", b"")
    disk.make_folder("f/c")
    assert disk.list() == ("f/",)
    assert disk.list("f") == ("a", "b", "c/")
    assert disk.exists("f")
    assert disk.exists("f/a")
    with pytest.raises(DiskError):
        disk.remove_folder("f")
    disk.remove("f/a")
    disk.remove("f/b")
    disk.remove_folder("f/c")
    disk.remove_folder("f")
    assert disk.list() == ()
    assert not disk.exists("f/a")


def test_a_mapping_is_read_only_shows_later_writes_and_outlives_the_name(disk: Disk) -> None:
    with disk.create("a") as file:
        file.append(b"0123456789")
        view = disk.map("a")
        assert view.readonly
        assert bytes(view) == b"0123456789"
        file.write_at(4, b"xyz")
        file.append(b"beyond")
        assert bytes(view) == b"0123xyz789"
        disk.remove("a")
        assert bytes(view[4:7]) == b"xyz"
        part = view[5:]
        view.release()
        assert bytes(part) == b"yz789"


def test_an_empty_file_maps_to_an_empty_view(disk: Disk) -> None:
    put(disk, "a")
    assert bytes(disk.map("a")) == b""


def test_syncing_what_is_there_succeeds_any_number_of_times(disk: Disk) -> None:
    disk.make_folder("f")
    with disk.create("f/a") as file:
        file.sync()
        file.append(b"abc")
        file.sync()
        file.sync()
    with disk.open("f/a", readonly=True) as file:
        file.sync()
    disk.sync_folder("f")
    disk.sync_folder()
    assert disk.read("f/a") == b"abc"


def test_a_lock_is_exclusive_names_its_holder_and_can_be_taken_again(disk: Disk) -> None:
    with disk.lock("lock", note="station north"):
        with pytest.raises(FileLocked, match=r"held by .*station north") as caught:
            disk.lock("lock")
        assert caught.value.file == "lock"
        assert caught.value.retriable
        with disk.lock("other"):
            assert disk.list() == ("lock", "other")
    with disk.lock("lock", note="station south"), pytest.raises(FileLocked, match="station south"):
        disk.lock("lock")


def test_releasing_a_lock_twice_does_not_release_the_next_holders(disk: Disk) -> None:
    first = disk.lock("lock")
    first.release()
    with disk.lock("lock"):
        first.release()
        with pytest.raises(FileLocked):
            disk.lock("lock")


def test_free_space_is_told(disk: Disk) -> None:
    assert disk.free() > os.sysconf("SC_PAGESIZE")
