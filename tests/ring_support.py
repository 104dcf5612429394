"""Rings for tests: in a domain of their own, which must be empty when the test is over."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from heliograph.errors import NoRoomForRing
from heliograph.ring import RingFolder, RingReader, RingWriter, missing
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.runtime.ports import Clock

PORTS = Ports(SystemClock(), ThreadTasks(), SystemRandom())
LIMIT = 60.0

needs_rings = pytest.mark.skipif(missing() is not None, reason=f"no rings here: {missing()}")


def open_files(folder: RingFolder) -> int:
    """Of a folder, those that this process has open."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since, by another thread
            found += entry.readlink().is_relative_to(folder.path)
    return found


def new_folder() -> RingFolder:
    return RingFolder(f"test-{PORTS.random.id64():016x}")


def folder_for_a_test() -> Iterator[RingFolder]:
    """The body of a fixture: nothing may be left in the folder, or it cannot be removed."""
    folder = new_folder()
    yield folder
    folder.rings()
    folder.leave()
    assert not folder.path.exists()


def reader_of(folder: RingFolder, *, reliable: bool = True) -> RingReader:
    """A reader of the newest, or only, ring of the folder."""
    return folder.open(folder.rings()[-1], PORTS, reliable=reliable, wait="block")


def small_writer(folder: RingFolder, *, slots: int = 16, lease: float | None = None) -> RingWriter:
    return folder.create(1, 0, PORTS, slots=slots, lease=lease, wait="block")


class Later:
    """The clock of a ring's writer, which can be put forward: a lease is over when the test says so."""

    def __init__(self) -> None:
        self.by_ns = 0

    @classmethod
    def of(cls, writer: RingWriter) -> Later:
        later = cls()
        writer._clock = writer._waiter._clock = cast("Clock", later)
        return later

    def monotonic_ns(self) -> int:
        return PORTS.clock.monotonic_ns() + self.by_ns


def without_room_for(lane: int, monkeypatch: pytest.MonkeyPatch) -> NoRoomForRing:
    """Let the machine have no memory for rings of one lane; returns what stations are told then."""
    create, error = RingFolder.create, NoRoomForRing("ring", 2, 1)

    def small(self: RingFolder, station: int, which: int, *args: Any, **more: Any) -> Any:
        if which == lane:
            raise error
        return create(self, station, which, *args, **more)

    monkeypatch.setattr(RingFolder, "create", small)
    return error
