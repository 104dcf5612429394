"""Faults as data: what goes wrong with a simulated disk, and at which call.

    SimDisk(faults=[Fails("sync", at=3), PowerCut("append", at=9), Flips("append", at=5, offset=7, bit=0)])

The third sync raises an I/O error, a bit of the file flips at the fifth append, and at the ninth the power
goes. `operation` is the name of a method of `Disk` or `File`, or `"any"`; `at` counts its calls from 1;
`file`, when given, counts only calls on that file.
"""

from __future__ import annotations

import errno
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Fault:
    """Base of all faults; see the module for `operation`, `at` and `file`."""

    operation: str
    _: KW_ONLY
    at: int = 1
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Fails(Fault):
    """The call raises the error of an errno.

    Attributes:
        error: the errno; EIO unless told otherwise.
        partial: how many bytes of a write reach the file before it fails.
    """

    error: int = errno.EIO
    partial: int = 0


@dataclass(frozen=True, slots=True)
class PowerCut(Fault):
    """The power goes before the call takes effect: it raises `PowerLoss`, and so does every later one."""


@dataclass(frozen=True, slots=True)
class Flips(Fault):
    """A bit of a file flips, silently, just before the call. Without `file`, of the file that is called.

    Attributes:
        offset: the byte; beyond the end nothing happens.
        bit: which bit of it, 0 to 7.
    """

    offset: int = 0
    bit: int = 0


class PowerLoss(BaseException):
    """The simulated machine has no power. Not an `Exception`: no program can handle it."""


class FaultPlan:
    """Counts calls and says which faults are due."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.calls = 0
        self._faults = tuple(faults)
        self._seen = [0] * len(self._faults)

    def due(self, operation: str, file: str) -> list[Fault]:
        """The faults that strike this call."""
        self.calls += 1
        due = []
        for index, fault in enumerate(self._faults):
            if fault.operation in {operation, "any"} and fault.file in {None, file}:
                self._seen[index] += 1
                if self._seen[index] == fault.at:
                    due.append(fault)
        return due
