"""Random work on the simulated disk, beside the real one and beside a plain model of what is durable.

While the power is on, both disks must answer alike, errors included. When it goes, the model says exactly
what is left if nothing unsynced survives, and what must at least be left otherwise.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heliograph.errors import DiskError
from heliograph.runtime.ports import LocalDisk
from heliograph.sim import SimDisk
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.runtime.ports import Disk

T = TypeVar("T")

names = st.sampled_from(["a", "b", "f", "f/a", "f/b", "f/g", "a/x"])
folders = st.sampled_from(["", "f", "f/g", "a"])
data = st.binary(min_size=1, max_size=5)


def tree(disk: Disk, folder: str = "") -> dict[str, bytes | None]:
    """All files with their contents; folders with None."""
    found: dict[str, bytes | None] = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}" if folder else name
        if name.endswith("/"):
            found[path] = None
            found |= tree(disk, path[:-1])
        else:
            found[path] = disk.read(path)
    return found


class BesideTheRealDisk(RuleBasedStateMachine):
    """Every operation by name, on both disks."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.real = LocalDisk(self.folder.name)
        self.simulated = SimDisk()

    def teardown(self) -> None:
        self.real.close()
        self.folder.cleanup()

    def both(self, use: Callable[[Disk], object]) -> None:
        outcomes = []
        for disk in (self.real, self.simulated):
            try:
                outcomes.append(("returned", use(disk)))
            except DiskError as error:
                outcomes.append((type(error).__name__, error.reason))
        assert outcomes[0] == outcomes[1]

    @rule(name=names)
    def create(self, name: str) -> None:
        self.both(lambda disk: disk.create(name).close())

    @rule(name=names, data=data)
    def append(self, name: str, data: bytes) -> None:
        def use(disk: Disk) -> int:
            with disk.open(name) as file:
                file.append(data)
                return file.append(data, data)

        self.both(use)

    @rule(name=names, offset=st.integers(-1, 12), data=data)
    def write_at(self, name: str, offset: int, data: bytes) -> None:
        def use(disk: Disk) -> int:
            with disk.open(name) as file:
                file.write_at(offset, data)
                return file.append(b"!")

        self.both(use)

    @rule(name=names, size=st.integers(-1, 12))
    def truncate(self, name: str, size: int) -> None:
        def use(disk: Disk) -> int:
            with disk.open(name) as file:
                file.truncate(size)
                return file.size()

        self.both(use)

    @rule(name=names, offset=st.integers(-1, 12), size=st.integers(1, 20))
    def read_at(self, name: str, offset: int, size: int) -> None:
        def use(disk: Disk) -> bytes:
            with disk.open(name, readonly=True) as file:
                return file.read_at(offset, size)

        self.both(use)

    @rule(name=names)
    def map(self, name: str) -> None:
        self.both(lambda disk: bytes(disk.map(name)))

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda disk: disk.rename(old, new))

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.both(lambda disk: disk.remove(name))

    @rule(name=names)
    def make_folder(self, name: str) -> None:
        self.both(lambda disk: disk.make_folder(name))

    @rule(name=names)
    def remove_folder(self, name: str) -> None:
        self.both(lambda disk: disk.remove_folder(name))

    @rule(name=names)
    def exists(self, name: str) -> None:
        self.both(lambda disk: disk.exists(name))

    @rule(folder=folders)
    def sync_folder(self, folder: str) -> None:
        self.both(lambda disk: disk.sync_folder(folder))

    @invariant()
    def trees_are_equal(self) -> None:
        assert tree(self.real) == tree(self.simulated)


BesideTheRealDisk.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
TestBesideTheRealDisk = BesideTheRealDisk.TestCase


class Durable(RuleBasedStateMachine):
    """Files in one folder, appended to and replaced; a model of what a power loss leaves.

    A file of the model is a list that holds its live content and its durable content; names lead to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.live: dict[str, list[bytes]] = {}
        self.durable: dict[str, list[bytes]] = {}
        self.renamed: set[str] = set()
        """Names that were given, taken or moved since the folder was synced."""

    names = st.sampled_from(["a", "b", "c"])

    @rule(name=names, data=data)
    def append(self, name: str, data: bytes) -> None:
        if name not in self.live:
            self.disk.create(name).close()
            self.live[name] = [b"", b""]
            self.renamed.add(name)
        with self.disk.open(name) as file:
            file.append(data)
        self.live[name][0] += data

    @rule(name=names)
    def sync(self, name: str) -> None:
        if name in self.live:
            with self.disk.open(name) as file:
                file.sync()
            self.live[name][1] = self.live[name][0]

    @rule()
    def sync_folder(self) -> None:
        self.disk.sync_folder()
        self.durable = dict(self.live)
        self.renamed.clear()

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old in self.live:
            self.disk.rename(old, new)
            self.live[new] = self.live.pop(old)
            self.renamed |= {old, new}

    @rule(name=names)
    def remove(self, name: str) -> None:
        if name in self.live:
            self.disk.remove(name)
            del self.live[name]
            self.renamed.add(name)

    @rule()
    def lose_power_and_all_that_was_not_synced(self) -> None:
        self.disk = self.disk.crash("none")
        self.restart({name: [content[1]] * 2 for name, content in self.durable.items()})

    @rule()
    def lose_power_and_nothing(self) -> None:
        self.disk = self.disk.crash("all")
        self.restart({name: [content[0]] * 2 for name, content in self.live.items()})

    @rule(seed=st.integers(0, 2**16))
    def lose_power_and_chance_decides(self, seed: int) -> None:
        self.disk = SimDisk(self.disk.medium, seed=seed).crash("random")
        left = {name: self.disk.read(name) for name in self.disk.list()}
        for name, content in self.durable.items():
            if name not in self.renamed:
                assert left[name].startswith(content[1]), "synced under a synced name: all of it is there"
                assert len(left[name]) <= len(content[0])
        self.restart({name: [content] * 2 for name, content in left.items()})

    def restart(self, files: dict[str, list[bytes]]) -> None:
        self.live = files
        self.durable = dict(files)
        self.renamed.clear()

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        assert tree(self.disk) == {name: content[0] for name, content in self.live.items()}


Durable.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30)
TestDurable = Durable.TestCase
