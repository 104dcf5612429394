"""The shortest way from a push to another process: rows, which are written some at a time or at once.

Where a lane that can (`Lane.takes_rows`) is the only target of a route, and nothing needs the header of an
event, a push makes none. It adds a row to what its supplier has waiting in that lane. If something came back
since a record was last written, somebody may wait for this one: the push writes it (`Rows.write`). So it does
if the last record was written some time ago, with all that has come since. Else it makes sure that somebody
will soon (`Rows.arm`). `heliograph.channel.entry` makes that code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.event import Event, Header

Row: TypeAlias = "tuple[Event, int, int, int]"
"""Event, sequence, source_ts, station_seq."""
MakeHeader: TypeAlias = "Callable[[Any, str, int, int, int, int], Header]"
"""Of (event, supplier, epoch, sequence, source_ts, station_seq)."""


class Line(Protocol):
    """Where rows are written to, shared by all suppliers."""

    heard: bool
    """Whether something came back since a record was last written."""
    sent_ns: int
    """When that was, in nanoseconds since 1970."""
    together_ns: int
    """How long after it rows may wait for each other."""


class Rows(Protocol):
    """What one supplier has waiting in a lane. Whoever adds holds the lock of the channel's entry."""

    rows: list[Row]
    armed: bool
    """Whether somebody will write what is there."""

    write: Callable[[Any], bool]
    """Writes what is there, given these rows; False when that is not possible without waiting."""

    def left(self) -> None:
        """It was not possible: have somebody do it."""
        ...

    def arm(self) -> None:
        """Have somebody write what is there, soon."""
        ...


class RowLane(Protocol):
    """A lane that takes rows."""

    line: Line
    waiting: int

    def rows_of(self, supplier: str, epoch: int, cls: type[Event], make_header: MakeHeader) -> Rows:
        """What a supplier has waiting here; the same for as long as the lane is there."""
        ...
