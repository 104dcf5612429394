"""Makes the folders of a journal, so that they survive a power loss."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.errors import FileExists, NoSuchFile

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk


def make_folder(disk: Disk, name: str) -> None:
    """A folder whose name survives a power loss, whoever made it."""
    with suppress(FileExists):
        disk.make_folder(name)
    disk.sync_folder(name.rpartition("/")[0])


def made_folder(disk: Disk, name: str) -> bool:
    """See to it that a folder is there, unsynced, and the one that holds it; whether it was made."""
    try:
        disk.make_folder(name)
    except FileExists:
        return False
    except NoSuchFile:
        made_folder(disk, name.rpartition("/")[0])
        disk.make_folder(name)
    return True
