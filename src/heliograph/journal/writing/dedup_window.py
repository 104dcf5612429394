"""Deduplication: a push whose id is among the last events of a partition is not appended again.

The window is the journal itself. An event that was pushed under an id of its own carries it in its headers,
and every event has an EventId, so nothing else has to be kept: the first push under an id reads the
last `WINDOW` rows, and from then on what is appended is noted. Of rows that were compacted since, the files
have kept the ids. That holds across restarts, and for what another station appends here. An id is known until
its rows are lost for good, also at the level `journal`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from heliograph.model.event import PUSH_ID, EventId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from heliograph.channel.queueing.queue import Item
    from heliograph.journal.format.compacted_ids import CompactedIds
    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.receipt import AppendReceipt

WINDOW: Final = 65_536
"""Events, the last of a partition, among which an id is looked for."""


class DedupWindow:
    """The ids of the last events. Looking and adding needs a lock; `settled` needs none."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, AppendReceipt | None] = OrderedDict()

    def __contains__(self, push_id: str) -> bool:
        return push_id in self._known

    def receipt(self, push_id: str) -> AppendReceipt | None:
        """The append of an id that is known; None when it is on disk."""
        return self._known[push_id]

    def read_before(self, records: Iterable[Record | CompactedIds]) -> None:
        """Rows that are or were on disk, in their order, and older than what was noted."""
        older = [
            one
            for record in records
            for one in _ids(record.supplier, record.epoch, record.sequence, record.headers)
        ]
        for one in reversed(older):
            if one not in self._known:
                self._known[one] = None
                self._known.move_to_end(one, last=False)
        self._add((), None)

    def note(self, items: Iterable[Item], receipt: AppendReceipt) -> None:
        """Events that are being appended; forgotten again if they cannot be."""
        ids: list[str] = []
        for _, header, _ in items:
            ids += _ids(header.supplier, header.epoch, header.sequence, header.headers)
        self._add(ids, receipt)

    def settled(self, items: Iterable[Item], *, kept: bool) -> None:
        """What became of them."""
        for _, header, _ in items:
            for one in _ids(header.supplier, header.epoch, header.sequence, header.headers):
                if not kept:
                    self._known.pop(one, None)
                elif one in self._known:
                    self._known[one] = None

    def _add(self, ids: Iterable[str], receipt: AppendReceipt | None) -> None:
        for one in ids:
            self._known[one] = receipt
        # Most events have one id, those with an id of their own two.
        while len(self._known) > 2 * WINDOW:
            self._known.popitem(last=False)


def _ids(supplier: str, epoch: int, sequence: int, headers: Mapping[str, str] | None) -> list[str]:
    ids = [str(EventId(supplier, epoch, sequence))]
    if headers is not None and PUSH_ID in headers:
        ids.append(headers[PUSH_ID])
    return ids
