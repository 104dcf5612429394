"""A set of event ids that is exact, compact and bounded: which events of other domains were here before.

Sequence numbers of one supplier and epoch are bits in pages of 4,096. A page that is full costs a reference,
one with holes half a kilobyte: a supplier of whose events a filter lets some pass costs a bit per event. All
pages together stay below a limit in bytes. Beyond it the lowest pages of the supplier with the most go, and
what is older than the lowest page can no longer be told apart: it is refused, not taken twice. When each has
one page left a new supplier takes the place of the one that was silent longest, if for a day; that one is
forgotten whole, and a copy of its events that comes later still is taken for new.

Sequences begin at 1. Number 0 counts as known, so that the first page becomes full, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.model.event import EventId

Verdict: TypeAlias = Literal["new", "known", "too old", "no room"]
"""Of an id: it was not in the set and is now; it was; nobody knows; there are too many suppliers."""

Dump: TypeAlias = "list[tuple[str, int, int, int, list[tuple[int, bytes]]]]"
"""Of each supplier: its name and epoch, from where on it can be told apart, below which all are known, and
its pages."""

PAGE: Final = 4_096
"""Sequence numbers in one page."""
FULL: Final = (1 << PAGE) - 1
PAGE_BYTES: Final = 700
"""What a page with holes takes in memory, about."""
FULL_BYTES: Final = 120
"""What a full one takes: its number and a reference to the one that all share."""
SUPPLIER_BYTES: Final = 600
"""What a supplier takes besides its pages."""
LIMIT: Final = 4 << 20
"""Bytes of a set, unless its owner says otherwise."""
SILENCE: Final = 86_400.0
"""Seconds for which a supplier must have been silent before a full set forgets it."""


class _Supplier:
    """The sequence numbers of one supplier in one epoch."""

    __slots__ = ("heard_ns", "known_below", "pages", "told_from")

    def __init__(self) -> None:
        self.pages: dict[int, int] = {}
        """In the order of their numbers as far as events come in order."""
        self.known_below = 0
        """All below are in the set, but for what is below `told_from`."""
        self.told_from = 0
        """What is below cannot be told apart any more."""
        self.heard_ns = 0

    @property
    def bytes(self) -> int:
        holes = sum(1 for page in self.pages.values() if page is not FULL)
        return SUPPLIER_BYTES + holes * PAGE_BYTES + (len(self.pages) - holes) * FULL_BYTES


class EventIdSet:
    """See the module.

    Args:
        limit: bytes.
        now_ns: a clock that never goes back.
        silence: seconds for which a supplier must have been silent to be forgotten when there is no room.
    """

    def __init__(self, now_ns: Callable[[], int], limit: int = LIMIT, silence: float = SILENCE) -> None:
        self._now_ns = now_ns
        self._limit = limit
        self._silence_ns = round(silence * 1e9)
        self._suppliers: dict[tuple[str, int], _Supplier] = {}
        self.bytes = 0
        """What it takes, about."""

    def add(self, event: EventId) -> Verdict:
        """Put an id in; says whether it was there before."""
        name = event.supplier, event.epoch
        known = self._suppliers.get(name)
        if known is None:
            if not self._make_room(SUPPLIER_BYTES + PAGE_BYTES):
                return "no room"
            known = self._suppliers[name] = _Supplier()
            self.bytes += SUPPLIER_BYTES
        known.heard_ns = self._now_ns()
        if event.sequence < known.told_from:
            return "too old"
        if event.sequence < known.known_below:
            return "known"
        return self._add(known, event.sequence)

    def __contains__(self, event: EventId) -> bool:
        """Whether it is in the set, as far as that can be told."""
        known = self._suppliers.get((event.supplier, event.epoch))
        if known is None or event.sequence < known.told_from:
            return False
        number, bit = divmod(event.sequence, PAGE)
        return event.sequence < known.known_below or bool(known.pages.get(number, 0) >> bit & 1)

    def suppliers(self) -> Iterator[tuple[str, int]]:
        """Names and epochs of those of which it has ids."""
        return iter(tuple(self._suppliers))

    def discard(self, event: EventId) -> None:
        """Take an id out that was put in a moment ago."""
        known = self._suppliers.get((event.supplier, event.epoch))
        if known is None or event.sequence < known.told_from or event not in self:
            return
        number, bit = divmod(event.sequence, PAGE)
        if event.sequence < known.known_below:  # its page was full, and is kept one by one again
            for full in range(number, known.known_below // PAGE):
                known.pages[full] = FULL
                self.bytes += FULL_BYTES
            known.known_below = number * PAGE
        if known.pages[number] is FULL:
            self.bytes += PAGE_BYTES - FULL_BYTES
        known.pages[number] &= ~(1 << bit)

    def dump(self) -> Dump:
        """All that it knows, as plain data for `load`."""
        return [
            (
                name,
                epoch,
                one.told_from,
                one.known_below,
                [(number, b"" if page is FULL else page.to_bytes(PAGE // 8, "little"))
                 for number, page in one.pages.items()],
            )
            for (name, epoch), one in self._suppliers.items()
        ]  # fmt: skip

    def load(self, data: Dump) -> None:
        """Know what a set knew, in place of what it knows; ValueError for what no set has said."""
        self._suppliers, self.bytes = {}, 0
        for name, epoch, told_from, known_below, pages in data:
            one = self._suppliers[name, epoch] = _Supplier()
            one.told_from, one.known_below, one.heard_ns = told_from, known_below, self._now_ns()
            for number, page in pages:
                if len(page) not in (0, PAGE // 8):
                    raise ValueError(f"a page of {len(page)} bytes in a set of event ids")
                one.pages[number] = int.from_bytes(page, "little") if page else FULL
            self.bytes += one.bytes

    def _add(self, known: _Supplier, sequence: int) -> Verdict:
        number, bit = divmod(sequence, PAGE)
        page = known.pages.get(number)
        if page is None:
            page = 0 if number else 1
            self.bytes += PAGE_BYTES
        if page >> bit & 1:
            return "known"
        page |= 1 << bit
        if page == FULL:
            page = FULL
            self.bytes -= PAGE_BYTES - FULL_BYTES
        known.pages[number] = page
        if page is FULL:
            self._fold(known)
        if self.bytes > self._limit:
            self._make_room(0)
        return "new"

    def _fold(self, known: _Supplier) -> None:
        """Full pages from where all is known on need not be kept one by one."""
        number = known.known_below // PAGE
        while known.pages.get(number) is FULL:
            del known.pages[number]
            self.bytes -= FULL_BYTES
            number += 1
            known.known_below = number * PAGE

    def _make_room(self, wanted: int) -> bool:
        """Have so many bytes more within the limit; False when suppliers that are heard of take it all."""
        while self.bytes + wanted > self._limit:
            largest = max(self._suppliers.values(), key=lambda one: len(one.pages), default=None)
            if largest is not None and len(largest.pages) > 1:
                self._squeeze(largest)
            elif not self._forget_silent():
                return not wanted
        return True

    def _squeeze(self, known: _Supplier) -> None:
        """Give up the lowest page of a supplier."""
        number = min(known.pages)
        self.bytes -= FULL_BYTES if known.pages.pop(number) is FULL else PAGE_BYTES
        known.told_from = max(known.told_from, (number + 1) * PAGE)
        known.known_below = max(known.known_below, known.told_from)
        self._fold(known)

    def _forget_silent(self) -> bool:
        """Forget the supplier that was silent longest, if that is long enough."""
        if not self._suppliers:
            return False
        name, oldest = min(self._suppliers.items(), key=lambda pair: pair[1].heard_ns)
        if self._now_ns() - oldest.heard_ns < self._silence_ns:
            return False
        del self._suppliers[name]
        self.bytes -= oldest.bytes
        return True
