"""Event classes in two versions, one pair for each way in which a class can change, and what must come of it.

The matrix is the changes, times who has the newer class, times how events are received. What is expected of
each cell is worked out here, from which version can be read as which, and not by the code that is tested.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

import heliograph as hg
from heliograph.model.annotations import i32  # noqa: TC001 - read when the class is made

if TYPE_CHECKING:
    from collections.abc import Callable


Version: TypeAlias = Literal["old", "new"]


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

    def cls(self, version: Version) -> type[hg.Event]:
        return self.old if version == "old" else self.new

    def make(self, version: Version, number: int) -> hg.Event:
        return self.make_old(number) if version == "old" else self.make_new(number)

    def reads(self, reader: Version | None, writer: Version) -> bool:
        """Whether a class of one version can have events of another; a program without the class has all."""
        if reader is None or reader == writer:
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


class Role(NamedTuple):
    """Who has which version: the one that the row is called by has the newer class."""

    keeper: Version
    receiver: Version | None
    pushed: tuple[Version, ...]


ROLES: Final = {
    "supplier": Role("old", "old", ("old", "new", "old")),
    "keeper": Role("new", "old", ("old", "old", "old")),
    "receiver": Role("old", "new", ("old", "old", "old")),
    "supplier, received without class": Role("old", None, ("old", "new", "old")),
}

WAYS: Final = ("live", "history", "durable", "group")
"""How events are received of a channel that is kept."""
ALL, REFUSED, STOPS, UNMATCHED, NONE = (
    "all events",
    "refused at push",
    "stops by name",
    "not matched",
    "–",  # noqa: RUF001 - a dash, as in any table
)


class Outcome(NamedTuple):
    """What has to come of a cell."""

    word: str
    refused: tuple[int, ...]
    """Which of the events cannot be pushed: IncompatibleFormats."""
    events: list[dict[str, Any]]
    """What the receiver gets."""
    stops: bool
    """Whether it is told IncompatibleFormats behind them."""


def expected_of_kept(change: Change, role: Role) -> Outcome:
    """On a channel that a station keeps: what can be read comes in order, up to what cannot."""
    kept = [
        (number, version)
        for number, version in enumerate(role.pushed)
        if version == role.keeper or change.goes_together
    ]
    refused = tuple(number for number in range(len(role.pushed)) if number not in dict(kept))
    events: list[dict[str, Any]] = []
    for number, version in kept:
        if not change.reads(role.receiver, version):
            return Outcome(STOPS, refused, events, True)
        events.append(as_read(change.make(version, number), change, role.receiver))
    return Outcome(REFUSED if refused else ALL, refused, events, False)


def expected_of_volatile(change: Change, role: Role) -> Outcome:
    """On a channel that nobody keeps: a supplier whose events cannot be read is not matched."""
    readable = [
        as_read(change.make(version, number), change, role.receiver)
        for number, version in enumerate(role.pushed)
        if change.reads(role.receiver, version)
    ]
    word = ALL if len(readable) == len(role.pushed) else UNMATCHED
    return Outcome(word, (), readable, False)


def as_read(event: hg.Event, change: Change, receiver: Version | None) -> dict[str, Any]:
    """The fields that a receiver has of an event: those of its class, or without one all."""
    values = plain(event)
    if receiver is None:
        return values
    fields = msgspec.structs.fields(change.cls(receiver))
    return {field.name: values.get(field.name, field.default) for field in fields}


def plain(event: Any) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def table() -> str:
    """The matrix in words, as the documentation has it."""
    rows = [
        "| change of the class | newer class | live, not kept | live | history | durable | group | Spark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, change in CHANGES.items():
        for who, role in ROLES.items():
            word = expected_of_kept(change, role).word
            volatile = NONE if who == "keeper" else expected_of_volatile(change, role).word
            # Spark has no class: what was kept it reads in columns that hold all versions.
            spark = NONE if who == "receiver" else word if word == REFUSED else ALL
            rows.append(f"| {name} | {who} | {volatile} | {' | '.join([word] * len(WAYS))} | {spark} |")
    return "\n".join(rows) + "\n"
