"""The shortest way from a push to another process: events without headers, written singly or in batches.

Where a queue that can (`EventQueue.takes_rows`) is the only target of a route, and nothing needs the header
of an event, a push makes none. It adds a row to what its supplier has waiting in that queue. If something
came back since a record was last written, somebody may wait for this one: the push writes it at once. So
it does if the last record was written some time ago, with all that has come since. Else it makes sure that
somebody will soon. `heliograph.channel.publish.codegen` makes that code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.model.event import Event, Header

ROW: Final = 4
"""A row is event, sequence, source_ts and station_seq. Rows stand one after the other in a list: adding
a row is one call, and so is taking a column."""
MakeHeader: TypeAlias = "Callable[[Any, str, int, int, int, int], Header]"
"""Of (event, supplier, epoch, sequence, source_ts, station_seq)."""


class Line(Protocol):
    """Where rows are written to, shared by all suppliers."""

    due_ns: int
    """Until when rows may wait for each other, in nanoseconds since 1970: some time after a record was last
    written, and 0 when something came back since."""


class PendingRows(Protocol):
    """What one supplier has waiting in a queue. Whoever adds holds the lock of the channel's entry."""

    rows: list[Any]
    """See `ROW`."""
    armed: bool
    """Whether somebody will write what is there."""

    write_one: Callable[[Any, int, int, int], bool]
    """Writes the event of a row by itself; False when that is not possible at once. For when no rows wait."""

    def calls(self) -> tuple[Callable[[PendingRows], bool], Callable[[], None], Callable[[], None]]:
        """What writes these rows, if that is possible without waiting; what to call if it was not, so that
        somebody will; and what to call to have it done soon."""
        ...


class RowQueue(Protocol):
    """A queue that takes rows."""

    line: Line
    waiting: int

    def rows_of(self, supplier: str, epoch: int, cls: type[Event], make_header: MakeHeader) -> PendingRows:
        """What a supplier has waiting here; the same for as long as the queue is there."""
        ...
