"""Where the rings of one user and domain are: `/dev/shm/heliograph-<uid>/<domain>/`, closed to others.

    folder = RingFolder("airspace")
    writer = folder.create(station, lane, ports)
    for name in folder.rings():                 # those whose writers live; what dead ones left is removed
        reader = folder.open(name, ports, reliable=True)

A ring is named `<station>-<lane>-<incarnation>.ring`. Its writer holds a lock on it for as long as its
process lives. The folder of a domain is removed when nothing is in it, and made again when a ring is.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from heliograph.errors import RingError, RingNotAvailable
from heliograph.ring import futex
from heliograph.ring.layout import DEFAULT_SLOTS, WRITER_LOCK
from heliograph.ring.reader import RingReader
from heliograph.ring.segment import RingName, RingSegment, insist_on_rings
from heliograph.ring.waiting import LOOK_EVERY
from heliograph.ring.writer import DEFAULT_LEASE, RingWriter
from heliograph.runtime.private_folder import domain_folder, memory_base

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.ring.waiting import WaitMode
    from heliograph.runtime.ports import Ports

MOST_TRIES: Final = 10
"""To make a ring in a folder that others remove when it is empty."""
_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,3})-([0-9a-f]{16})\.ring")


class RingFolder:
    """The rings of one domain; `RingNotAvailable` where there can be none."""

    def __init__(self, domain: str, base: Path | None = None) -> None:
        base = memory_base() if base is None else base
        insist_on_rings(base)
        self.domain = domain
        self.path = domain_folder(base, domain)

    def create(
        self,
        station: int,
        lane: int,
        ports: Ports,
        *,
        slots: int = DEFAULT_SLOTS,
        lease: float | None = DEFAULT_LEASE,
        wait: WaitMode = "spin",
    ) -> RingWriter:
        """A new ring of a station's lane, with so many slots of 64 bytes."""
        name = RingName(station, lane, ports.random.id64())
        segment = self._made(name, slots)
        return RingWriter(segment, name, ports, lease=lease, wait=wait)

    def _made(self, name: RingName, slots: int) -> RingSegment:
        for _ in range(MOST_TRIES):
            try:
                return RingSegment.create(self._path_of(name), name, slots)
            except FileNotFoundError:  # a station that left has removed the folder, which was empty
                domain_folder(self.path.parent, self.domain)
            except OSError as error:
                raise RingNotAvailable(str(self.path), f"no ring can be made: {error.strerror}") from None
        raise RingNotAvailable(str(self.path), "the folder is removed again and again")

    def open(
        self,
        name: RingName,
        ports: Ports,
        *,
        reliable: bool,
        wait: WaitMode = "spin",
        look_every: float = LOOK_EVERY,
        reuse: bool = False,
    ) -> RingReader:
        """A new reader of a ring; `RingClosed` when its writer has gone.

        Args:
            name: of the ring.
            ports: of this process.
            reliable: whether it holds the writer back.
            wait: how it waits.
            look_every: seconds after which a reader that sleeps looks whether the writer is alive.
            reuse: whether it gives a large event, by itself, as a view that holds until the next read: a
                reliable reader where it lies, until `let_go`, another one in memory that is used again and
                again. New memory for each is a page fault for every 4 KiB, which takes longer than to copy
                them.
        """
        try:
            segment = RingSegment.open(self._path_of(name))
        except OSError as error:
            raise RingNotAvailable(str(self._path_of(name)), f"cannot be mapped: {error.strerror}") from None
        try:
            return RingReader(
                segment, ports, reliable=reliable, wait=wait, look_every=look_every, reuse=reuse
            )
        except RingError:
            segment.close()
            raise

    def rings(self) -> list[RingName]:
        """The rings whose writers live. Removes those of dead processes."""
        return [name for name in _names(self.path) if _is_alive(self.path, name)]

    def leave(self) -> None:
        """Remove the folder if nothing is in it."""
        with suppress(OSError):
            self.path.rmdir()

    def remove_dead(self) -> None:
        """Remove the rings of dead processes, those of this user's other domains too."""
        self.rings()
        for path in self._other_domains():
            alive = [_is_alive(path, name) for name in _names(path)]
            if not all(alive):  # one without any ring may be that of a station which has none yet
                with suppress(OSError):
                    path.rmdir()

    def _other_domains(self) -> list[Path]:
        try:
            return [path for path in self.path.parent.iterdir() if path != self.path and path.is_dir()]
        except OSError:
            return []

    def _path_of(self, name: RingName) -> Path:
        return _path_of(self.path, name)


def _path_of(folder: Path, name: RingName) -> Path:
    return folder / f"{name.station:016x}-{name.lane}-{name.incarnation:016x}.ring"


def _names(folder: Path) -> list[RingName]:
    try:
        found = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    except OSError:  # whoever tidies up took the folder away, and all rings with it
        return []
    return sorted(RingName(int(m[1], 16), int(m[2]), int(m[3], 16)) for m in found if m)


def _is_alive(folder: Path, name: RingName) -> bool:
    """Whether the writer of a ring lives; removes the ring of a dead one."""
    path = _path_of(folder, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared, so that two who look at the same time do not take each other for the writer.
        if not futex.try_lock(descriptor, WRITER_LOCK, shared=True):
            return True
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)
