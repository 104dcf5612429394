"""A ring's file: whole before it has a name, for this user only, and checked before it is trusted."""

from __future__ import annotations

import errno
import os
import platform
import resource
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import NoRoomForRing, RingClosed, RingDamaged, RingNotAvailable, UnsafeRuntimeFolder
from heliograph.ring import RingFolder, RingName, futex
from heliograph.ring.layout import MAX_SLOTS, VERSION
from heliograph.runtime.private_folder import domain_folder
from tests.ring_support import (
    LIMIT,
    PORTS,
    folder_for_a_test,
    needs_rings,
    open_files,
    reader_of,
    small_writer,
)

if TYPE_CHECKING:
    from pathlib import Path

folder = pytest.fixture(folder_for_a_test)
pytestmark = needs_rings


def test_only_this_user_can_open_a_ring(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.path.parent.stat().st_mode) == 0o700
        writer.path.chmod(0o640)
        with pytest.raises(RingDamaged, match="only this user"):
            reader_of(folder)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "shm"
    open_to_all.mkdir(mode=0o755)
    with pytest.raises(UnsafeRuntimeFolder, match="chmod 700"):
        domain_folder(open_to_all, "domain")


def test_memory_that_cannot_be_set_aside_is_refused_before_anything_is_written(
    folder: RingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(NoRoomForRing) as caught:
        small_writer(folder)
    assert caught.value.needed == 8192 + 16 * 64
    assert open_files(folder) == 0
    assert list(folder.path.iterdir()) == []


def test_the_kernels_own_refusal_has_the_same_name(folder: RingFolder) -> None:
    program = (
        "import sys; from tests.ring_support import PORTS; from heliograph.ring import RingFolder\n"
        "from heliograph.errors import NoRoomForRing\n"
        "try: RingFolder(sys.argv[1]).create(1, 0, PORTS, slots=1 << 14)\n"
        "except NoRoomForRing as error: print(error.needed)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, folder.path.name],
        capture_output=True,
        text=True,
        timeout=LIMIT * 3,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert int(run.stdout) == 8192 + (1 << 20)
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("slots", [0, 8, 17, MAX_SLOTS * 2])
def test_a_number_of_slots_that_no_ring_can_have_is_refused(folder: RingFolder, slots: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        small_writer(folder, slots=slots)


def test_where_there_can_be_no_ring_the_answer_says_why(
    folder: RingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    futex.missing.cache_clear()
    try:
        with pytest.raises(RingNotAvailable, match=r"aarch64.*sockets instead"):
            RingFolder("elsewhere")
        with pytest.raises(RingNotAvailable):
            small_writer(folder)
    finally:
        futex.missing.cache_clear()


def test_a_kernel_without_membarrier_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futex, "_SYS_MEMBARRIER", 9999)
    futex.missing.cache_clear()
    try:
        assert "membarrier" in (futex.missing() or "")
    finally:
        monkeypatch.undo()
        futex.missing.cache_clear()


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, b"NOTARING"), (8, bytes([VERSION + 1])), (16, b"\x11"), (16, b"\x00\x00\x00\x00\x01")],
    ids=["magic", "version", "slots", "slots of a larger file"],
)
def test_a_file_that_is_no_ring_is_refused(folder: RingFolder, offset: int, value: bytes) -> None:
    with small_writer(folder) as writer:
        with writer.path.open("r+b") as file:
            file.seek(offset)
            file.write(value)
        with pytest.raises(RingDamaged):
            reader_of(folder)


def test_a_ring_that_has_gone_is_said_to_be_closed(folder: RingFolder) -> None:
    with pytest.raises(RingClosed):
        folder.open(RingName(1, 2, 3), PORTS, reliable=True)


def test_a_link_in_the_place_of_a_ring_is_not_followed(folder: RingFolder, tmp_path: Path) -> None:
    with small_writer(folder) as writer:
        elsewhere = tmp_path / "copy"
        elsewhere.write_bytes(writer.path.read_bytes())
        elsewhere.chmod(0o600)
        name = RingName(9, 0, 1)
        link = folder.path / f"{9:016x}-0-{1:016x}.ring"
        link.symlink_to(elsewhere)
        try:
            with pytest.raises(RingDamaged, match="cannot be opened"):
                folder.open(name, PORTS, reliable=True)
        finally:
            link.unlink()


def test_two_openings_in_one_process_exclude_each_other(folder: RingFolder) -> None:
    with small_writer(folder) as writer:
        first = os.open(writer.path, os.O_RDWR)
        second = os.open(writer.path, os.O_RDWR)
        assert futex.try_lock(first, 60)
        assert not futex.try_lock(second, 60)
        assert futex.is_locked(second, 60)
        assert not futex.is_locked(first, 60)  # one's own lock is no obstacle
        os.close(first)
        assert futex.try_lock(second, 60)
        os.close(second)
