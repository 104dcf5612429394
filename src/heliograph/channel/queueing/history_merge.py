"""The stage of late joiners: history that other stations hold comes first, then live events, each once.

The seam is exact. A queue that has asked other stations holds what comes live meanwhile. With what a station
has kept comes how far each of its suppliers was at that instant: what is live up to there has been kept, or
was not worth keeping, and is left out; what is live from there on follows. What gateways between domains have
brought is no station's own, and several may have kept it: of that each event passes once, by its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from heliograph.channel.queueing.stage import Stage
from heliograph.model.event import VIA
from heliograph.model.event_id_set import EventIdSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.channel.queueing.queue import Item

Floors: TypeAlias = "Mapping[tuple[str, int], int]"
"""The last sequence of each (supplier, epoch) at the instant when its station gave out what it had kept."""


class LateJoin(Stage):
    """See the module. It is the first stage of its queue, so that the others see what was kept as well."""

    idle = True
    wants_history = False
    """Whether its receiver asked for what was kept."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[int] = set()
        self._holds = 0
        self._floors: dict[tuple[str, int], int] = {}
        self._forwarded = EventIdSet(lambda: 0, silence=0)  # the longest known is forgotten first

    def hold(self, station: int) -> bool:
        """Give nothing out until a `release` follows; False when this station has been asked before."""
        with self.queue.lock:
            if station in self._asked or self.queue.closed:
                return False
            self._asked.add(station)
            self._hold(1)
            return True

    def release(self, kept: Sequence[Item], floors: Floors) -> None:
        """What one station had kept is here; its receiver's condition holds for all of it."""
        self.queue.let_in(lambda: self._release(kept, floors))

    def _release(self, kept: Sequence[Item], floors: Floors) -> bool:
        """Whether whoever takes is to look, also when nothing waits: so it hears that the end is there."""
        self._hold(-1)
        queue = self.queue
        if queue.closed:
            queue.drop_each(kept, "closed")
            return False
        self._floors.update(floors)
        is_new = self.idle
        if self.idle:
            self.idle = False
            queue.stages_changed()
        live = queue.take_out()
        for item in kept:
            if self._is_first(item):
                self.pass_on(item, beyond=True)
            else:
                queue.drop_each((item,), "kept")
        for item in live:
            # By what this station says alone: what others have kept may wait here too. What waits has passed
            # here before, unless this is the first to say something.
            self._pass_above(item, floors, beyond=True, is_new=is_new)
        return not self._holds

    @property
    def ended(self) -> bool:
        """Whether all stations that were asked have said what they kept, and nothing of it waits."""
        with self.queue.lock:
            return not self._holds and not self.queue.waiting

    def floor(self, supplier: str, epoch: int) -> int:
        """The last event of a supplier that was, or might have been, among what was kept."""
        return self._floors.get((supplier, epoch), 0)

    def admit(self, item: Item, *, beyond: bool) -> bool:
        return self._pass_above(item, self._floors, beyond=beyond)

    def _pass_above(self, item: Item, floors: Floors, *, beyond: bool, is_new: bool = True) -> bool:
        """Only what is live beyond what was kept."""
        header = item[1]
        is_forwarded = header.headers is not None and VIA in header.headers
        is_above = is_forwarded or header.sequence > floors.get((header.supplier, header.epoch), 0)
        if is_above and (not is_new or self._is_first(item)):
            return self.pass_on(item, beyond=beyond)
        self.queue.drop_each((item,), "kept")
        return False

    def _is_first(self, item: Item) -> bool:
        """Whether it is no copy of what a gateway between domains has brought."""
        header = item[1]
        if header.headers is None or VIA not in header.headers:
            return True
        return self._forwarded.add(header.id) == "new"

    def _hold(self, more: int) -> None:
        self._holds += more
        self.queue.withhold(self._holds > 0)
