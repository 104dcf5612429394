"""The simulated disk of one process: the contract `Disk` over a `Medium`, with faults.

    disk = SimDisk(seed=7, capacity=1 << 20, faults=[Fails("sync", at=3)])
    ...
    disk = disk.crash("random")     # power loss: what was not synced may be gone, and all handles are

It works alone or, made by a `Simulation`, as a place where tasks take turns. `Medium` says what survives.
"""

from __future__ import annotations

import errno
from random import Random as Generator
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, cast

from heliograph.errors import DiskError, FileLocked, NoSuchFile
from heliograph.runtime.local_disk import SYNC_FAILED, checked_name, disk_error
from heliograph.sim.faults import Fails, Fault, FaultPlan, Flips, PowerCut, PowerLoss
from heliograph.sim.medium import Content, Decide, Folder, Medium
from heliograph.sim.scheduler import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.runtime.ports import Buffer
    from heliograph.sim.medium import Node

Keep: TypeAlias = Literal["none", "all", "random"] | Decide
"""Which unsynced changes a crash leaves: none, all, by the seed, or as the given function decides."""

UNLIMITED = 1 << 40


class SimFile:
    """An open file of a `SimDisk`; see `heliograph.runtime.ports.File`."""

    def __init__(self, disk: SimDisk, name: str, content: Content, *, readonly: bool) -> None:
        self.name = name
        self._disk = disk
        self._content = content
        self._readonly = readonly
        self._end = len(content.live)
        self._sync_failed = False
        self._closed = False

    def append(self, *buffers: Buffer) -> int:
        start = self._end
        self._write("append", start, b"".join(buffers))
        return start

    def write_at(self, offset: int, data: Buffer) -> None:
        self._write("write_at", offset, bytes(data))

    def _write(self, operation: str, offset: int, data: bytes) -> None:
        fault = self._call(operation, writes=True)
        if offset < 0:
            raise disk_error(operation, self.name, errno.EINVAL)
        room = self._disk.room() - max(0, offset - len(self._content.live))
        grows = offset + len(data) - max(offset, len(self._content.live))
        if fault is not None:
            self._content.write(offset, data[: fault.partial])
            raise disk_error(operation, self.name, fault.error)
        if grows > room:
            self._content.write(offset, data[: max(0, len(data) - grows + room)])
            raise disk_error(operation, self.name, errno.ENOSPC)
        self._content.write(offset, data)
        self._end = max(self._end, offset + len(data))

    def read_at(self, offset: int, size: int) -> bytes:
        self._raise(self._call("read_at"), "read_at")
        if offset < 0:
            raise disk_error("read_at", self.name, errno.EINVAL)
        return bytes(self._content.live[offset : offset + max(0, size)])

    def size(self) -> int:
        self._raise(self._call("size"), "size")
        return len(self._content.live)

    def truncate(self, size: int) -> None:
        self._raise(self._call("truncate", writes=True), "truncate")
        if size < 0:
            raise disk_error("truncate", self.name, errno.EINVAL)
        if size - len(self._content.live) > self._disk.room():
            raise disk_error("truncate", self.name, errno.ENOSPC)
        self._content.resize(size)
        self._end = size

    def sync(self) -> None:
        # Others may write while this call lets them run; what they write is not part of this sync.
        written = list(self._content.pending)
        fault = self._call("sync", writes=not self._readonly)
        if fault is not None:
            self._content.fail_sync()
            self._sync_failed = True
        self._raise(fault, "sync")
        self._content.sync(written)

    def _call(self, operation: str, *, writes: bool = False) -> Fails | None:
        fault = self._disk.call(operation, self.name, self._content)
        if self._closed or (writes and self._readonly):
            raise disk_error(operation, self.name, errno.EBADF)
        if writes and self._sync_failed:
            raise DiskError(operation, self.name, SYNC_FAILED)
        return fault

    def _raise(self, fault: Fails | None, operation: str) -> None:
        if fault is not None:
            raise disk_error(operation, self.name, fault.error)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimFileLock:
    """A held lock of a `SimDisk`; see `heliograph.runtime.ports.FileLock`."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self.name = name
        self._disk = disk

    def release(self) -> None:
        locks = self._disk.medium.locks
        if self.name in locks and locks[self.name][0] is self:
            del locks[self.name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SimDisk:
    """The files of a simulated machine, as one process sees them.

    Args:
        medium: what holds them; give the same one to the next incarnation or to a second process.
        seed: decides what survives `crash("random")`.
        capacity: of a new medium, in bytes.
        faults: what goes wrong, and when.
        process: how the holder of a lock is named.
        step: called before each operation; the scheduler's, in a simulation.
        on_power_loss: called when a `PowerCut` strikes, before `PowerLoss` is raised.
    """

    def __init__(
        self,
        medium: Medium | None = None,
        *,
        seed: int = 0,
        capacity: int | None = None,
        faults: Iterable[Fault] = (),
        process: str = "simulated",
        step: Callable[[str, str], None] = lambda _operation, _file: None,
        on_power_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self.medium = Medium(capacity) if medium is None else medium
        self._seed = seed
        self._plan = FaultPlan(faults)
        self._process = process
        self._step = step
        self._on_power_loss = on_power_loss
        self._incarnation = self.medium.incarnation
        self._killed = False

    @property
    def calls(self) -> int:
        """How many operations were asked for; `PowerCut("any", at=n)` strikes the n-th."""
        return self._plan.calls

    def crash(self, keep: Keep = "none") -> SimDisk:
        """Power loss: everybody's handles and locks are gone. Returns the disk as it comes back."""
        self.medium.crash(self._decide(keep))
        return SimDisk(self.medium, seed=self._seed)

    def kill(self) -> SimDisk:
        """The process dies, the machine goes on: its handles and locks are gone, what it wrote is not."""
        self._killed = True
        locks = self.medium.locks
        for name in [name for name, (lock, _) in locks.items() if self._owns(lock)]:
            del locks[name]
        return SimDisk(self.medium, seed=self._seed)

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Let one bit of a file rot."""
        self._content("flip", name).flip(offset, bit)

    def _decide(self, keep: Keep) -> Decide:
        if keep == "none":
            return lambda _outcomes: 0
        if keep == "all":
            return lambda _outcomes: 1
        if keep == "random":
            return random_outcome(Generator(f"{self._seed}/crash {self.medium.incarnation}"))  # noqa: S311 - repeatable by intent
        return keep

    def _owns(self, lock: object) -> bool:
        return isinstance(lock, SimFileLock) and lock._disk is self  # noqa: SLF001 - one room

    def room(self) -> int:
        """Bytes that still fit."""
        capacity = self.medium.capacity
        return UNLIMITED if capacity is None else max(0, capacity - self.medium.used())

    def call(self, operation: str, file: str, content: Content | None = None) -> Fails | None:
        """An operation begins: let others run, then strike with the faults that are due."""
        self._step(f"disk.{operation}", file)
        self._refuse_without_power()
        fails = None
        for fault in self._plan.due(operation, file):
            match fault:
                case PowerCut():
                    self.medium.powered = False
                    self._on_power_loss()
                    raise PowerLoss
                case Flips() if content is not None:
                    content.flip(fault.offset, fault.bit)
                case Fails():
                    fails = fault
        return fails

    def _refuse_without_power(self) -> None:
        if not self.medium.powered or self._incarnation != self.medium.incarnation:
            raise PowerLoss
        if self._killed:
            raise Killed

    def _begin(self, operation: str, file: str) -> None:
        fault = self.call(operation, file)
        if fault is not None:
            raise disk_error(operation, file, fault.error)

    def _inside(self, operation: str, name: str) -> tuple[Folder, str]:
        """The folder that holds `name`, and the last part of it."""
        parts = checked_name(name)
        folder: Node = self.medium.root
        for part in parts[:-1]:
            folder = self._entry(operation, name, cast("Folder", folder), part)
            if not isinstance(folder, Folder):
                raise disk_error(operation, name, errno.ENOTDIR)
        return cast("Folder", folder), parts[-1]

    def _entry(self, operation: str, name: str, folder: Folder, leaf: str) -> Node:
        if leaf not in folder.live:
            raise disk_error(operation, name, errno.ENOENT)
        return folder.live[leaf]

    def _folder(self, operation: str, name: str) -> Folder:
        if not name:
            return self.medium.root
        node = self._entry(operation, name, *self._inside(operation, name))
        if not isinstance(node, Folder):
            raise disk_error(operation, name, errno.ENOTDIR)
        return node

    def _content(self, operation: str, name: str) -> Content:
        node = self._entry(operation, name, *self._inside(operation, name))
        if not isinstance(node, Content):
            raise disk_error(operation, name, errno.EISDIR)
        return node

    def _refuse_taken(self, operation: str, name: str) -> tuple[Folder, str]:
        folder, leaf = self._inside(operation, name)
        if leaf in folder.live:
            raise disk_error(operation, name, errno.EEXIST)
        return folder, leaf

    def create(self, name: str) -> SimFile:
        checked_name(name)
        self._begin("create", name)
        folder, leaf = self._refuse_taken("create", name)
        content = Content()
        self.medium.rename((folder, leaf, content))
        return SimFile(self, name, content, readonly=False)

    def open(self, name: str, *, readonly: bool = False) -> SimFile:
        checked_name(name)
        self._begin("open", name)
        return SimFile(self, name, self._content("open", name), readonly=readonly)

    def read(self, name: str) -> bytes:
        with self.open(name, readonly=True) as file:
            return file.read_at(0, file.size())

    def map(self, name: str) -> memoryview:
        checked_name(name)
        self._begin("map", name)
        return self._content("map", name).map()

    def rename(self, old: str, new: str) -> None:
        checked_name(old)
        checked_name(new)
        self._begin("rename", old)
        target, leaf = self._inside("rename", new)
        source, old_leaf = self._inside("rename", old)
        node = self._entry("rename", old, source, old_leaf)
        code = self._why_not_rename(old, node, new, target.live.get(leaf))
        if code:
            raise disk_error("rename", old, code)
        if (source, old_leaf) != (target, leaf):
            self.medium.rename((source, old_leaf, None), (target, leaf, node))

    @staticmethod
    def _why_not_rename(old: str, node: Node, new: str, there: Node | None) -> int:
        """The errno with which Linux refuses, or 0."""
        if new.startswith(old + "/"):
            return errno.EINVAL
        if old.startswith(new + "/"):
            return errno.ENOTEMPTY
        if there is None or type(there) is type(node):
            return errno.ENOTEMPTY if isinstance(there, Folder) and there.live and there is not node else 0
        return errno.EISDIR if isinstance(there, Folder) else errno.ENOTDIR

    def remove(self, name: str) -> None:
        checked_name(name)
        self._begin("remove", name)
        self._content("remove", name)
        folder, leaf = self._inside("remove", name)
        self.medium.rename((folder, leaf, None))

    def exists(self, name: str) -> bool:
        checked_name(name)
        self._begin("exists", name)
        try:
            folder, leaf = self._inside("exists", name)
        except NoSuchFile:
            return False
        return leaf in folder.live

    def list(self, folder: str = "") -> tuple[str, ...]:
        self._begin("list", folder)
        names = self._folder("list", folder).live
        return tuple(sorted(n + "/" if isinstance(node, Folder) else n for n, node in names.items()))

    def make_folder(self, name: str) -> None:
        checked_name(name)
        self._begin("make_folder", name)
        folder, leaf = self._refuse_taken("make_folder", name)
        self.medium.rename((folder, leaf, Folder()))

    def remove_folder(self, name: str) -> None:
        checked_name(name)
        self._begin("remove_folder", name)
        if self._folder("remove_folder", name).live:
            raise disk_error("remove_folder", name, errno.ENOTEMPTY)
        folder, leaf = self._inside("remove_folder", name)
        self.medium.rename((folder, leaf, None))

    def sync_folder(self, folder: str = "") -> None:
        # As with files: names that change while this call lets others run are not part of this sync.
        changed = self.medium.unsynced_names(self._folder("sync_folder", folder))
        self._begin("sync_folder", folder)
        self.medium.sync_names(changed)

    def lock(self, name: str, *, note: str = "") -> SimFileLock:
        checked_name(name)
        self._begin("lock", name)
        folder, leaf = self._inside("lock", name)
        if name in self.medium.locks:
            raise FileLocked(name, self.medium.locks[name][1])
        if leaf not in folder.live:
            self.medium.rename((folder, leaf, Content()))
        lock = SimFileLock(self, name)
        self.medium.locks[name] = lock, f"process {self._process} {note}".strip()
        return lock

    def free(self) -> int:
        self._begin("free", "")
        return self.room()


def random_outcome(generator: Generator) -> Decide:
    """Lost, kept or cut with equal chances; where it is cut, any byte with equal chances."""

    def decide(outcomes: int) -> int:
        kind = generator.randrange(min(outcomes, 3))
        return kind if kind < 2 else generator.randrange(2, outcomes)

    return decide
