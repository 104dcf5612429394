"""Event classes in two versions, one pair for each way in which a class can change."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import heliograph as hg
from heliograph.annotations import i32  # noqa: TC001 - read when the class is made

if TYPE_CHECKING:
    from collections.abc import Callable


class OldMode(StrEnum):
    A = "a"


class NewMode(StrEnum):
    A = "a"
    B = "b"


class Same(hg.Event, name="v.same"):
    id: int
    note: str = "n"


class AddedOld(hg.Event, name="v.added"):
    id: int


class AddedNew(hg.Event, name="v.added"):
    id: int
    battery: float = 1.0


class DroppedOld(hg.Event, name="v.dropped"):
    id: int
    region: str


class DroppedNew(hg.Event, name="v.dropped"):
    id: int


class WidenedOld(hg.Event, name="v.widened"):
    id: int
    level: i32


class WidenedNew(hg.Event, name="v.widened"):
    id: int
    level: int


class ExtendedOld(hg.Event, name="v.extended"):
    id: int
    mode: OldMode


class ExtendedNew(hg.Event, name="v.extended"):
    id: int
    mode: NewMode


class ApartOld(hg.Event, name="v.apart"):
    id: int
    size: int


class ApartNew(hg.Event, name="v.apart"):
    id: int
    size: str


class Change(NamedTuple):
    """A class before and after a change, and what makes an event of each."""

    old: type[hg.Event]
    new: type[hg.Event]
    make_old: Callable[[int], hg.Event]
    make_new: Callable[[int], hg.Event]
    old_reads_new: bool
    new_reads_old: bool

    def cls(self, version: str) -> type[hg.Event]:
        return self.old if version == "old" else self.new

    def make(self, version: str, number: int) -> hg.Event:
        return self.make_old(number) if version == "old" else self.make_new(number)

    def reads(self, reader: str, writer: str) -> bool:
        """Whether a class of one version can have events of another."""
        if reader == writer:
            return True
        return self.old_reads_new if reader == "old" else self.new_reads_old

    @property
    def goes_together(self) -> bool:
        return self.old_reads_new or self.new_reads_old


CHANGES: Final = {
    "same": Change(Same, Same, lambda n: Same(n, "x"), lambda n: Same(n, "x"), True, True),
    "field added": Change(AddedOld, AddedNew, AddedOld, lambda n: AddedNew(n, 0.5), True, True),
    "field dropped": Change(DroppedOld, DroppedNew, lambda n: DroppedOld(n, "x"), DroppedNew, False, True),
    "type widened": Change(
        WidenedOld, WidenedNew, lambda n: WidenedOld(n, 7), lambda n: WidenedNew(n, 1 << 40), False, True
    ),
    "enum extended": Change(
        ExtendedOld,
        ExtendedNew,
        lambda n: ExtendedOld(n, OldMode.A),
        lambda n: ExtendedNew(n, NewMode.B),
        False,
        True,
    ),
    "incompatible": Change(
        ApartOld, ApartNew, lambda n: ApartOld(n, 7), lambda n: ApartNew(n, "x"), False, False
    ),
}
