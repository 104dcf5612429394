"""First arrivals: tells the first copy of an event of another domain from later ones, in one channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.channel.batch import IncomingBatch
from heliograph.model.event import VIA
from heliograph.model.event_id_set import EventIdSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.model.event import Header
    from heliograph.model.event_id_set import Verdict
    from heliograph.runtime.ports import Ports


class FirstArrivals:
    """See the module."""

    def __init__(self, ports: Ports, channel: str) -> None:
        self._lock = ports.tasks.lock(f"first arrivals of {channel}")
        self._ids = EventIdSet(ports.clock.monotonic_ns)
        self.counts: dict[Verdict, int] = {"new": 0, "known": 0, "too old": 0, "no room": 0}
        """How many events were judged in which way."""

    def judge(self, header: Header) -> Verdict:
        """Whether this is the first copy of an event; from now on it is known."""
        with self._lock:
            verdict = self._ids.add(header.id)
            self.counts[verdict] += 1
        return verdict

    def forget(self, header: Header) -> None:
        """It was refused after it was judged: its next copy is the first."""
        with self._lock:
            self._ids.discard(header.id)
            self.counts["new"] -= 1

    def only_first(self, arrived: Sequence[Item]) -> tuple[Sequence[Item], int, int]:
        """Without those that came by a gateway and were here before; how many repeat, how many are refused.

        A batch in columns has no headers of its own, so none of it has come by a gateway.
        """
        if isinstance(arrived, IncomingBatch) or not any(map(_is_forwarded, arrived)):
            return arrived, 0, 0
        verdicts = [self.judge(item[1]) if _is_forwarded(item) else "new" for item in arrived]
        first = [item for item, verdict in zip(arrived, verdicts, strict=True) if verdict == "new"]
        repeated = verdicts.count("known")
        return first, repeated, len(arrived) - len(first) - repeated


def _is_forwarded(item: Item) -> bool:
    headers = item[1].headers
    return headers is not None and VIA in headers
