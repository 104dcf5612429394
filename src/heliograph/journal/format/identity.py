"""Which partition a station's folder keeps: one name, given once, in a file and in every history below it.

    inspect_identity(disk).problem              what is wrong with it; None when nothing is
    own_partition(disk, random)                 the name; BadJournalFile when it is lost or another's
    repair_identity(disk).steps                 writes the name again that the histories have

Under another name the histories, and the positions of their durable consumers, would not be found: a folder
whose name is lost or does not fit its histories is refused, and `helio journal repair` puts it right. When
there are histories of several names, the folder's own is the one that was written last.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import BadJournalFile, DiskError, NoSuchFile
from heliograph.journal.format import commit_file as commitfile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.names import CHANNELS, DELAYED, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.runtime.ports import Disk, Random

log = logging.getLogger(__name__)

PARTITION: Final = "partition"
_NAME: Final = re.compile(r"[0-9a-f]{16}")


class FolderIdentity(NamedTuple):
    """What is known of a folder's name."""

    name: str | None
    """As the file has it; None when it is missing or holds no name."""
    histories: tuple[str, ...]
    """The names of the histories that are there, the one that was written last first."""
    problem: str | None
    """Why the folder cannot be used under this name; None when it can."""

    @property
    def sound(self) -> bool:
        return self.problem is None

    @property
    def steps(self) -> list[str]:
        """What a repair does; nothing when nothing is wrong."""
        if self.problem is None:
            return []
        own, *others = self.histories
        steps = [f"write {own} into {PARTITION!r}, the name that its histories have: {self.problem}"]
        if others:
            steps.append(f"leave the histories of {', '.join(others)} as they are: {own} was written last")
        return steps


def inspect_identity(disk: Disk) -> FolderIdentity:
    """Compare the file with the histories. Nothing is changed."""
    try:
        content: bytes | None = disk.read(PARTITION)
    except NoSuchFile:
        content = None
    text = "" if content is None else content.decode("ascii", "replace")
    name = text if _NAME.fullmatch(text) else None
    if name is not None and any(place.endswith(f"/{name}") for place in _places(disk)):
        return FolderIdentity(name, (name,), None)  # of many channels, most often the first
    histories = _histories(disk)
    if not histories:
        return FolderIdentity(name, (), None)
    if content is None:
        problem = f"it is missing, and there are histories of {', '.join(histories)}"
    elif name is None:
        problem = f"it is damaged ({len(content)} bytes), and there are histories of {', '.join(histories)}"
    else:
        problem = f"it says {name}, and there are only histories of {', '.join(histories)}"
    return FolderIdentity(name, histories, problem)


def own_partition(disk: Disk, random: Random) -> str:
    """The name of this folder's partitions, which is given if there is none yet."""
    found = inspect_identity(disk)
    if found.problem is not None:
        raise BadJournalFile(
            PARTITION,
            f"{found.problem}: under another name these, and the places of their consumers, would not be "
            "found; bring back a copy of it, or run `helio journal repair`",
        )
    if found.name is None:
        if disk.exists(PARTITION):
            log.warning("the file %r held no name and there is no history: it is given a new one", PARTITION)
        name = f"{random.id64():016x}"
        _write(disk, name)
        return name
    return found.name


def repair_identity(disk: Disk) -> FolderIdentity:
    """Write the name again that the histories have; returns what was wrong. Have the folder's lock."""
    found = inspect_identity(disk)
    if found.problem is not None:
        with suppress(NoSuchFile):
            disk.rename(PARTITION, f"{PARTITION}.damaged")
        _write(disk, found.histories[0])
    return found


def _write(disk: Disk, name: str) -> None:
    temporary = f"{PARTITION}{TEMPORARY}-{name}"
    with suppress(NoSuchFile):
        disk.remove(temporary)  # of an attempt that was interrupted
    with disk.create(temporary) as file:
        file.append(name.encode())
        file.sync()
    disk.rename(temporary, PARTITION)
    disk.sync_folder()


def _histories(disk: Disk) -> tuple[str, ...]:
    """Names of all partitions below a folder; what is none of a station's is left out."""
    places = list(_places(disk))
    last = dict.fromkeys((place.rpartition("/")[2] for place in places), 0)
    if len(last) > 1:  # else the answer is clear
        for place in places:
            name = place.rpartition("/")[2]
            last[name] = max(last[name], _written_ts(disk, place))
    return tuple(sorted(last, key=lambda name: (-last[name], name)))


def _places(disk: Disk) -> Iterator[str]:
    for room in (CHANNELS, DELAYED):
        for channel in _folders(disk, room):
            for name in _folders(disk, f"{room}/{channel}"):
                if _NAME.fullmatch(name):
                    yield f"{room}/{channel}/{name}"


def _folders(disk: Disk, folder: str) -> list[str]:
    try:
        return [name[:-1] for name in disk.list(folder) if name.endswith("/")]
    except NoSuchFile:
        return []


def _written_ts(disk: Disk, place: str) -> int:
    """When a history was last written, as far as its files can tell."""
    found = 0
    with suppress(DiskError, BadJournalFile):
        found = manifests.load(disk, place).last_ts
    with suppress(DiskError, BadJournalFile):
        view = commitfile.CommitView(disk, place)
        try:
            found = max(found, view.current().append_ts)
        finally:
            view.close()
    return found
