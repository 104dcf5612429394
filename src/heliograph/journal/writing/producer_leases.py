"""Leases of named suppliers: one holder at a time, fenced by epochs, with the last durable sequence.

    lease = NamedSuppliers(...).open("radar-1", owner)   # SupplierHeld while another owner's lease runs
    lease.epoch, lease.last_sequence

What is kept of a supplier is its epoch and a note of its sequence at some offset; how far it came after that
is found in the journal. An append under another epoch than the last is refused: its holder has been replaced.
That is checked where appends get in line, and replacing a holder goes through that line too: what was before
it is counted, and nothing of the old holder comes behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.errors import CursorFenced, CursorHeld, SupplierFenced, SupplierHeld
from heliograph.model.event import DELAYED_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.history.store import Tombstone
    from heliograph.journal.consumers.cursors import Cursor, CursorStore
    from heliograph.journal.format.records import Record
    from heliograph.journal.writing.receipt import AppendReceipt
    from heliograph.model.event import Header

PREFIX: Final = "supplier:"
NOTE_EVERY: Final = 10_000
"""Events of a supplier after which its sequence is noted: so many at most are read when it is opened again,
and as many as others pushed meanwhile."""
# Names that no partition has, so that retention does not take a supplier for a consumer.
_SEQUENCE, _OFFSET = "#sequence", "#offset"


class ProducerLease:
    """A name, as its present holder has it."""

    def __init__(self, cursor: Cursor, last_sequence: int, offset: int) -> None:
        self.epoch = cursor.epoch
        self.last_sequence = last_sequence
        """Of its last durable event, in whatever epoch; 0 when there is none."""
        self._cursor = cursor
        self._next_note = last_sequence + NOTE_EVERY
        self._note: tuple[int, int] | None = None
        cursor.commit({_SEQUENCE: last_sequence, _OFFSET: offset})

    def check(self, header: Header | Tombstone) -> None:
        """Called with each append: SupplierFenced for one of an earlier holder."""
        self.check_epoch(header.supplier, header.epoch)

    def check_epoch(self, name: str, epoch: int) -> None:
        if epoch != self.epoch:
            raise SupplierFenced(name, epoch, self.epoch)
        try:
            self._cursor.renew()
        except CursorFenced as fenced:
            raise SupplierFenced(name, epoch, fenced.current) from fenced

    def appending(self, last: int, count: int, receipt: AppendReceipt, watermark: int) -> None:
        """An append is under way; now and then its end is noted, and kept once it is durable."""
        if self._note is not None and self._note[1] <= watermark:
            self._cursor.commit({_SEQUENCE: self._note[0], _OFFSET: self._note[1]})
            self._note = None
        if last >= self._next_note:
            self._next_note = last + NOTE_EVERY
            receipt.add_final_callback(lambda final: self._appended(last, count, final))

    def close(self) -> None:
        self._cursor.close()

    def _appended(self, last: int, count: int, receipt: AppendReceipt) -> None:
        if receipt.lost is None:
            self._note = (last, receipt.first_offset + count)


class ProducerLeases:
    """Those of one channel.

    Args:
        cursors: where their epochs are kept.
        rows: reads the journal from an offset on.
        watermark: of the journal.
        between: see `PartitionWriter.between`.
    """

    def __init__(
        self,
        cursors: Callable[[], CursorStore],
        rows: Callable[[int], Iterable[Record]],
        watermark: Callable[[], int],
        between: Callable[[Callable[[], object]], AppendReceipt | None],
    ) -> None:
        self._cursors = cursors
        self._rows = rows
        self._watermark = watermark
        self._between = between
        self._held: dict[str, ProducerLease] = {}

    def load(self, cursors: CursorStore) -> None:
        """Know the epochs of earlier lives, so that their holders are refused."""
        for full in cursors.names():
            if full.startswith(PREFIX):
                name = full.removeprefix(PREFIX)
                self._held[name] = _Fence(cursors.state(full).epoch)

    def open(self, name: str, owner: str) -> ProducerLease:
        try:
            cursor = self._cursors().open(PREFIX + name, owner)
        except CursorHeld as held:
            raise SupplierHeld(name, held.owner) from held
        before = self._between(lambda: self._hold(name, _Fence(cursor.epoch)))
        if before is not None:
            before.wait_until_final()
        watermark = self._watermark()
        known = cursor.positions()
        last = known.get(_SEQUENCE, 0)
        if known:
            for record in self._rows(known.get(_OFFSET, 0)):
                if record.supplier == name and record.epoch < DELAYED_EPOCHS:
                    last = max(last, record.sequence)
        lease = ProducerLease(cursor, last, watermark)
        self._between(lambda: self._hold(name, lease))
        return lease

    def _hold(self, name: str, lease: ProducerLease) -> None:
        """From now on; SupplierFenced when another holder has replaced this one."""
        held = self._held.get(name)
        if held is not None and held.epoch > lease.epoch:
            raise SupplierFenced(name, lease.epoch, held.epoch)
        self._held[name] = lease

    def check(self, name: str, epoch: int) -> None:
        """SupplierFenced when a name is another's by now."""
        held = self._held.get(name)
        if held is not None:
            held.check_epoch(name, epoch)

    def held(self, header: Header | Tombstone) -> ProducerLease | None:
        """The lease under which an append is made, checked; most suppliers have no name, and need none."""
        held = self._held.get(header.supplier)
        if held is not None:
            held.check(header)
        return held


class _Fence(ProducerLease):
    """What is left of a holder of an earlier life: its epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = 0

    def check_epoch(self, name: str, epoch: int) -> None:
        if epoch < self.epoch:
            raise SupplierFenced(name, epoch, self.epoch)

    def appending(self, last: int, count: int, receipt: AppendReceipt, watermark: int) -> None:
        """Nothing is noted: its holder opens it again, or is refused."""

    def close(self) -> None:
        """There is nothing to give back."""
