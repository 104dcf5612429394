"""The term of a manager: of two programs that take themselves for the manager of a folder, one may act.

    fence = ManagerFence(disk, random, 3)   a new term, above all before it and 3, synced
    fence.check()                           ManagerFenced when a later manager has begun
    fence.hear(7)                           somebody has been answered by the manager of term 7

    <folder>/manager-term                   a checksummed number, and the token of the manager that wrote it

A folder has one station at a time, by a lock of the kernel that is free when its process has ended, however
it ended. The term is for where that is not enough: a lock on a network file system that was given away, a
lock file that was removed, a process that goes on in the middle of a call after it was given up. A manager
looks at the term before each record, writes its own into it, and acts no more once it has seen a later one.
Two that begin at the same instant may take the same number: of them the one that wrote last may act, which
the other knows by the random token beside it.

A later term that it was told of is noted, so that the next manager is above it: in a folder that was brought
back from a copy, others remember terms that this one has never had.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from heliograph.errors import BadJournalFile, ManagerFenced, NoSuchFile
from heliograph.journal.format.checksummed_file import Kind, load, pack
from heliograph.journal.names import ACTIVITY, TEMPORARY

if TYPE_CHECKING:
    from heliograph.runtime.ports import Disk, Random

log = logging.getLogger(__name__)

TERM: Final = "manager-term"
_KIND: Final = Kind(b"HELIOTRM", version=2, limit=64, called="term")
_TOKEN: Final = 16
_NOBODY: Final = b""
"""The token of a term that was only heard of."""


class _Term(msgspec.Struct, array_like=True, frozen=True):
    number: Annotated[int, Meta(ge=0)]
    token: Annotated[bytes, Meta(max_length=_TOKEN)]


class ManagerFence:
    """See the module. To be made by whoever has the lock of the folder.

    Args:
        disk: of the folder.
        random: makes the token.
        least: the latest term in the log: what a manager has done is there, whatever became of the file.
    """

    def __init__(self, disk: Disk, random: Random, least: int = 0) -> None:
        self._disk = disk
        self._seen = 0
        """The latest term that was heard of."""
        try:
            found = self._read().number
        except BadJournalFile as damaged:
            log.warning("the term of the manager is taken from its log: %s", damaged)
            found = 0
        self.term = max(found, least) + 1
        self._token = random.bytes(_TOKEN)
        _write(disk, _Term(self.term, self._token))

    def check(self) -> None:
        """ManagerFenced when another manager of this folder has begun since this one has."""
        found = self._read()
        self._seen = max(self._seen, found.number)
        if self._seen > self.term and found.number < self._seen:
            _write(self._disk, _Term(self._seen, _NOBODY))
        if self._seen > self.term or (found.number == self.term and found.token != self._token):
            raise ManagerFenced(ACTIVITY, self.term, self._seen)

    def hear(self, term: int) -> None:
        """Somebody knows of a manager of this folder with that term."""
        self._seen = max(self._seen, term)

    def _read(self) -> _Term:
        try:
            return load(_KIND, self._disk, TERM, _Term)
        except NoSuchFile:
            return _Term(0, _NOBODY)


def _write(disk: Disk, term: _Term) -> None:
    temporary = f"{TERM}{TEMPORARY}"
    with suppress(NoSuchFile):
        disk.remove(temporary)  # of an attempt that was interrupted
    with disk.create(temporary) as file:
        file.append(*pack(_KIND, term))
        file.sync()
    disk.rename(temporary, TERM)
    disk.sync_folder()
