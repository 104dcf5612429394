"""What only the real ports can show: modes, links, system calls, processes and Ctrl-C."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import DiskError, DiskFull, FileLocked, NoSuchFile
from heliograph.runtime.ports import (
    BoundedQueue,
    LocalDisk,
    SystemClock,
    ThreadTask,
    ThreadTasks,
    system_ports,
)
from tests.conformance.ports_contract import ctrl_c_until_heard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from heliograph.runtime.ports import Buffer


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path / "data")


def test_reading_the_clock_is_the_builtin_itself() -> None:
    assert SystemClock.monotonic_ns is time.monotonic_ns
    assert SystemClock().time_ns is time.time_ns


def test_ports_without_a_folder_have_no_disk(tmp_path: Path) -> None:
    assert system_ports().disk is None
    ports = system_ports(tmp_path / "data")
    assert isinstance(ports.disk, LocalDisk)
    assert ports.disk.folder == str(tmp_path / "data")


def test_files_and_folders_belong_to_their_owner_alone(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "deep" / "data")
    disk.make_folder("f")
    disk.create("f/a").close()
    disk.lock("lock").release()
    modes = {
        path: stat.S_IMODE((tmp_path / "deep" / "data" / path).stat().st_mode)
        for path in (".", "f", "f/a", "lock")
    }
    assert modes == {".": 0o700, "f": 0o700, "f/a": 0o600, "lock": 0o600}


def test_descriptors_are_closed_in_programs_that_are_started(disk: LocalDisk) -> None:
    with disk.create("a") as file, disk.lock("lock") as lock:
        for descriptor in (file._descriptor, lock._descriptor, disk._root):
            assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    def descriptors() -> set[str]:
        return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough

    before = descriptors()
    with LocalDisk(tmp_path) as disk:
        disk.make_folder("f")
        with disk.create("f/a") as file:
            file.append(b"abc")
        disk.rename("f/a", "f/b")
        view = disk.map("f/b")
        del view
        disk.sync_folder("f")
        with disk.lock("f/lock"), pytest.raises(FileLocked):
            disk.lock("f/lock")
        for name in ("f", "f/b/c", "no/a"):
            with pytest.raises(DiskError):
                disk.open(name)
    assert descriptors() == before


def test_a_closed_disk_does_nothing(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.close()
    disk.close()
    with pytest.raises(DiskError):
        disk.list()


def test_a_folder_that_is_missing_is_not_made_when_that_was_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="nowhere"):
        LocalDisk(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_symbolic_links_inside_the_folder_are_not_followed(disk: LocalDisk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    inside = tmp_path / "data"
    (inside / "link").symlink_to(outside)
    (inside / "secret").symlink_to(outside / "secret")
    uses: list[Callable[[], object]] = [
        lambda: disk.read("secret"),
        lambda: disk.map("secret"),
        lambda: disk.open("secret"),
        lambda: disk.lock("secret"),
        lambda: disk.read("link/secret"),
        lambda: disk.create("link/new"),
        lambda: disk.list("link"),
        lambda: disk.rename("link/secret", "mine"),
        lambda: disk.remove("link/secret"),
    ]
    for use in uses:
        with pytest.raises(DiskError):
            use()
    assert disk.list() == ("link", "secret")
    assert (outside / "secret").read_bytes() == b"secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_disk_stays_with_its_folder_when_that_is_moved(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "moved")
    disk.create("a").close()
    assert (tmp_path / "moved" / "a").exists()


def test_short_writes_are_continued(disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    sizes = iter([1, 0, 4, 2, 5] + [3] * 100)

    def reluctant(descriptor: int, buffers: list[Buffer], offset: int) -> int:
        first = b"".join(buffers)[: next(sizes)]
        return real(descriptor, [first], offset)

    monkeypatch.setattr(os, "pwritev", reluctant)
    numbers = memoryview(bytes(range(8))).cast("i")
    with disk.create("a") as file:
        file.append(b"01234", b"", bytearray(b"56789"), numbers)
        file.write_at(2, b"in place")
    assert disk.read("a") == b"01in place" + bytes(range(8))


def test_a_failed_append_leaves_the_end_where_it_was(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    calls = 0

    def fails_on_second(descriptor: int, buffers: list[Buffer], offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "no room")
        return real(descriptor, [b"".join(buffers)[:2]], offset)

    with disk.create("a") as file:
        monkeypatch.setattr(os, "pwritev", fails_on_second)
        with pytest.raises(DiskFull, match="append of 'a' failed: No space left on device"):
            file.append(b"abcd")
        monkeypatch.undo()
        assert file.append(b"xyz") == 0
    assert disk.read("a") == b"xyz"


def test_after_a_failed_sync_a_handle_takes_nothing_more(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    with disk.create("a") as file:
        file.append(b"abc")
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(DiskError, match="sync of 'a' failed: Input/output error"):
            file.sync()
        monkeypatch.undo()
        uses: list[Callable[[], object]] = [
            file.sync,
            lambda: file.append(b"x"),
            lambda: file.write_at(0, b"x"),
            lambda: file.truncate(0),
        ]
        for use in uses:
            with pytest.raises(DiskError, match="earlier sync"):
                use()
        assert file.read_at(0, 9) == b"abc"


def test_syncing_calls_the_system_for_the_file_and_for_the_folder(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            os,
            name,
            lambda fd, name=name: synced.append((name, stat.S_ISDIR(os.fstat(fd).st_mode))),
        )
    disk.make_folder("f")
    with disk.create("f/a") as file:
        file.append(b"abc")
        file.sync()
    disk.sync_folder("f")
    assert synced == [("fdatasync", False), ("fsync", True)]


def test_a_new_root_is_synced_into_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    LocalDisk(tmp_path / "data").close()
    assert synced == [tmp_path.stat().st_ino]
    LocalDisk(tmp_path / "data").close()
    assert len(synced) == 1


HOLDER = """
import sys
from heliograph.runtime.ports import LocalDisk
disk = LocalDisk(sys.argv[1])
lock = disk.lock("lock", note="of the other")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_holds_between_processes_and_ends_with_a_killed_one(disk: LocalDisk) -> None:
    command = [sys.executable, "-c", HOLDER, disk.folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FileLocked) as caught:
            disk.lock("lock")
        assert caught.value.holder.startswith(f"pid {holder.pid} since 20")
        assert caught.value.holder.endswith("of the other")
        holder.kill()
        holder.wait()
        with disk.lock("lock", note="mine"):
            assert b"mine" in disk.read("lock")
        assert disk.read("lock") == b""


def test_tasks_are_named_daemon_threads() -> None:
    seen: list[threading.Thread] = []
    ThreadTasks().spawn("worker-7", lambda: seen.append(threading.current_thread())).join()
    assert seen[0].name == "worker-7"
    assert seen[0].daemon


def test_a_failed_task_is_logged_even_if_nobody_joins_it(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("gone")

    with caplog.at_level(logging.ERROR):
        task = ThreadTasks().spawn("worker", fail)
        with pytest.raises(LookupError):
            task.join()
    assert [record.message for record in caplog.records] == ["task 'worker' failed"]


def interrupted_once_waiting(wait: Callable[[], object], waiting: Callable[[], bool]) -> None:
    """Run `wait` in this thread and send it a Ctrl-C as soon as it waits."""

    def interrupt() -> None:
        while not waiting():
            time.sleep(0)
        send()

    with ctrl_c_until_heard() as send:
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        helper.join()


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_ctrl_c_interrupts_a_wait_for_a_queue_and_leaves_it_usable(timeout: float | None) -> None:
    queue: BoundedQueue[int] = ThreadTasks().queue("q", 1)
    interrupted_once_waiting(lambda: queue.get(timeout), lambda: queue._getters == 1)
    assert queue.put(1)
    interrupted_once_waiting(lambda: queue.put(2, timeout), lambda: queue._putters == 1)
    assert (queue._getters, queue._putters) == (0, 0)
    assert queue.get(0) == 1
    assert queue.put(3, 0)
    assert queue.take(5) == [3]


def test_ctrl_c_interrupts_joining_a_task() -> None:
    tasks = ThreadTasks()
    stop = tasks.event()
    task = tasks.spawn("worker", lambda: stop.wait(60.0))
    main_thread = threading.get_ident()

    def inside_join() -> bool:
        frame: FrameType | None = sys._current_frames()[main_thread]
        while frame is not None and frame.f_code is not ThreadTask.join.__code__:
            frame = frame.f_back
        return frame is not None

    interrupted_once_waiting(task.join, inside_join)
    stop.set()
    assert task.join(60.0)


def test_importing_the_ports_loads_nothing_heavy() -> None:
    code = "import sys, heliograph.runtime.ports, heliograph.sim; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pyarrow", "pandas", "pyspark", "msgspec", "asyncio"} & set(loaded)


def test_every_level_of_a_new_folder_is_private_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    LocalDisk(tmp_path / "a" / "b" / "c")
    levels = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [stat.S_IMODE(level.stat().st_mode) for level in levels] == [0o700] * 3
    assert [str(level.parent) for level in levels] == synced
