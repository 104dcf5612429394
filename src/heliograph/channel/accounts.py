"""What a channel has counted besides its open suppliers and lanes: inline callbacks, and who has left.

A member that leaves hands in what it had counted. A lane that still delivers when it is closed goes on
counting among the leaving until it is done. Inline callbacks have no lane: pushing threads log what each did,
and the log is counted when somebody looks.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from heliograph.channel.ledger import LaneCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.channel.consumer import Receiver
    from heliograph.channel.pipeline import InlineResult


class Accounts:
    """See the module. Used while no push is half done, except that anyone may append to `inline_log`."""

    def __init__(self) -> None:
        self.inline_log: deque[InlineResult] = deque()
        self.pushed = 0
        self.matched = 0
        self._departed = LaneCounts()
        self._leaving: list[Receiver] = []

    def leave(self, receiver: Receiver) -> None:
        self._leaving.append(receiver)

    @property
    def departed(self) -> LaneCounts:
        """What receivers that have left have counted so far."""
        return sum((r.counts() for r in self._leaving), self._departed)

    def fold(self, receivers: Mapping[str, Receiver]) -> None:
        """Bring the counts of inline callbacks and of members that have left up to date."""
        self.fold_inline(receivers)
        for receiver in list(self._leaving):
            counts = receiver.counts()
            if not counts.pending:
                self._departed += counts
                self._leaving.remove(receiver)

    def fold_inline(self, receivers: Mapping[str, Receiver]) -> None:
        """Each result adds to `matched` and to subscriptions alike; one may have left while it was called."""
        results = Counter([self.inline_log.popleft() for _ in range(len(self.inline_log))])
        for (targets, called, raised), times in results.items():
            self.matched += called.bit_count() * times
            for i, subscription in enumerate(targets.subscriptions):
                if called >> i & 1:
                    failed = bool(raised >> i & 1)
                    known = receivers.get(subscription.name) is subscription
                    if known or subscription in self._leaving:
                        subscription.add(times, failed=failed)
                    else:
                        self._departed += LaneCounts(failed=times) if failed else LaneCounts(delivered=times)
