"""What a simulated disk holds: as programs see it, and as a power loss would leave it.

Every file has two contents, the live one and the durable one, and a list of changes that separate them;
every folder likewise has live and durable names. `sync` carries changes over. A crash decides for each
change that was not synced whether it survived, and what is durable then is all there is.

The model is that of a journalling file system at its least helpful:

- writes to a file reach the platter in any order; a write may be cut at any byte; a gap reads as zeros;
- a change of size is ordered: if it is lost, so is everything done to that file after it;
- syncing a file says nothing about its name, and syncing a folder nothing about what is in the files;
- names change in any order, except that a change which builds on a lost one is lost too; a rename, even
  between two folders, happens wholly or not at all;
- after a failed sync the changes it should have carried over are never carried over by a later one.

Who survives is asked of a `Decide`: given how many outcomes there are, it picks one. Outcome 0 is "lost",
1 is "kept", and the others, for a write, are the places where it may be cut.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from heliograph.runtime.ports import Buffer

Decide: TypeAlias = Callable[[int], int]


class MappedBytes(bytearray):
    """The memory behind a mapping; plain bytearrays cannot be referred to weakly."""


@dataclass(eq=False, slots=True)
class FileChange:
    """Something done to a file's content: bytes written at an offset, or, without bytes, a new size."""

    offset: int
    data: bytes | None
    doomed: bool = False

    def apply(self, content: bytearray, upto: int | None = None) -> None:
        if self.data is None:
            _resize(content, self.offset)
            return
        data = self.data[:upto]
        if not data:
            return
        if len(content) < self.offset:
            _resize(content, self.offset)
        content[self.offset : self.offset + len(data)] = data

    def outcomes(self) -> int:
        """Lost, kept, or cut after some of its bytes; whether a size changed is one bit."""
        return 1 + len(self.data) if self.data else 2


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


@dataclass(eq=False, slots=True)
class Content:
    """One file, whatever its names are."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[FileChange] = field(default_factory=list)
    _maps: list[weakref.ref[MappedBytes]] = field(default_factory=list)

    def write(self, offset: int, data: Buffer) -> None:
        self._change(FileChange(offset, bytes(data)))
        for mapped in self._mappings():
            visible = self.live[offset : min(offset + len(data), len(mapped))]
            mapped[offset : offset + len(visible)] = visible

    def resize(self, size: int) -> None:
        if any(size < len(mapped) for mapped in self._mappings()):
            raise RuntimeError(
                "a mapped part of a file was cut off: on a real disk, reading it ends the process"
            )
        self._change(FileChange(size, None))

    def _change(self, change: FileChange) -> None:
        change.apply(self.live)
        self.pending.append(change)

    def sync(self, changes: list[FileChange]) -> None:
        """Carry these changes over; what was written after the sync began is not among them."""
        asked = set(changes)
        left = []
        for change in self.pending:
            if change in asked and not change.doomed:
                change.apply(self.durable)
            else:
                left.append(change)
        self.pending = left

    def fail_sync(self) -> None:
        """The system drops what it could not write: no later sync brings it to the disk."""
        for change in self.pending:
            change.doomed = True

    def map(self) -> memoryview:
        mapped = MappedBytes(self.live)
        self._maps = [m for m in self._maps if m() is not None]
        self._maps.append(weakref.ref(mapped))
        return memoryview(mapped).toreadonly()

    def _mappings(self) -> list[MappedBytes]:
        return [mapped for ref in self._maps if (mapped := ref()) is not None]

    def crash(self, decide: Decide) -> None:
        for change in self.pending:
            outcome = decide(change.outcomes())
            if outcome == 0 and change.data is None:
                break
            if outcome:
                change.apply(self.durable, None if outcome == 1 else outcome - 1)
        self.pending.clear()
        self._maps.clear()
        self.live = bytearray(self.durable)

    def flip(self, offset: int, bit: int) -> None:
        """A bit rots, in what is read now and in what the platter holds."""
        for content in (self.live, self.durable, *self._mappings()):
            if offset < len(content):
                content[offset] ^= 1 << bit


@dataclass(eq=False, slots=True)
class Folder:
    """Names, each of a file or of another folder."""

    live: dict[str, Content | Folder] = field(default_factory=dict)
    durable: dict[str, Content | Folder] = field(default_factory=dict)


Node: TypeAlias = Content | Folder


@dataclass(frozen=True, eq=False, slots=True)
class Naming:
    """A change of names: each entry of a folder, and what it leads to from now on; None removes it."""

    entries: tuple[tuple[Folder, str, Node | None], ...]

    def apply(self, *, durable: bool) -> None:
        for folder, name, node in self.entries:
            names = folder.durable if durable else folder.live
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class Medium:
    """The platter and the cache above it. Several simulated processes may share one."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.root = Folder()
        self.powered = True
        self.incarnation = 0
        """Counts the times the power went; a handle from before that is worth nothing."""
        self.locks: dict[str, tuple[object, str]] = {}
        self._namings: list[Naming] = []

    def rename(self, *entries: tuple[Folder, str, Node | None]) -> None:
        """Change names, at once and all together."""
        naming = Naming(entries)
        naming.apply(durable=False)
        self._namings.append(naming)

    def unsynced_names(self, folder: Folder) -> list[Naming]:
        return [n for n in self._namings if any(entry[0] is folder for entry in n.entries)]

    def sync_names(self, namings: list[Naming]) -> None:
        for naming in namings:
            if naming in self._namings:
                naming.apply(durable=True)
                self._namings.remove(naming)

    def used(self) -> int:
        """Bytes in files that have a name."""
        return _used(self.root)

    def _contents(self) -> list[Content]:
        """Every file that has, had or may get back a name, each once, in a fixed order."""
        nodes: list[Node] = [self.root]
        nodes += [node for naming in self._namings for _, _, node in naming.entries if node is not None]
        seen: set[Node] = set()
        contents = []
        while nodes:
            node = nodes.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Content):
                contents.append(node)
            else:
                nodes += node.live.values()
                nodes += node.durable.values()
        return contents

    def crash(self, decide: Decide) -> None:
        """The power goes: only what is durable, and what `decide` lets survive, is there afterwards."""
        contents = self._contents()
        lost: set[tuple[Folder, str]] = set()
        for naming in self._namings:
            slots = {(folder, name) for folder, name, _ in naming.entries}
            if slots & lost or not decide(2):
                lost |= slots
            else:
                naming.apply(durable=True)
        self._namings.clear()
        for content in contents:
            content.crash(decide)
        _revert(self.root)
        self.locks.clear()
        self.powered = True
        self.incarnation += 1


def _used(folder: Folder) -> int:
    return sum(len(n.live) if isinstance(n, Content) else _used(n) for n in folder.live.values())


def _revert(folder: Folder) -> None:
    folder.live = dict(folder.durable)
    for node in folder.live.values():
        if isinstance(node, Folder):
            _revert(node)
