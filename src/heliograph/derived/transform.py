"""The transform of a derived channel: makes derived events with their headers, and counts what that saves.

One for each derived channel of a station. Each version of the original's class has a function of its own,
which is generated when its first event comes. A version that lacks what the projection reads gives no
derived event, as one that lacks what a filter reads does not meet it. An event for which the class of derived
events raises gives none either: it is counted and told, and those after it are derived.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.derived_channel import DerivedCounts
from heliograph.codec.sizes import SIZES
from heliograph.errors import ExpressionError, FormatError
from heliograph.model.event import Event, Header, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.filters.derivation import Derivation

NO_HEADER: Final[Any] = None


class Transform:
    """See the module.

    Args:
        derivation: what to make.
        channel: the name of the derived channel.
        cls: of derived events here.
        report: told of what the class raises for an event. Locks are held, so it does not wait.
    """

    def __init__(
        self,
        derivation: Derivation,
        channel: str,
        cls: type[Event],
        report: Callable[[Header, Exception], None],
    ) -> None:
        self.derivation = derivation
        self.cls = cls
        self._channel = channel
        self._report = report
        self._info = info_of(cls)
        self._functions: dict[type[Event], Callable[..., Event] | None] = {}
        self._needs_header: dict[type[Event], bool] = {}
        self._derived = self._left_out = self._failed = self._before = self._after = 0

    def counts(self) -> DerivedCounts:
        return DerivedCounts(self._derived, self._left_out, self._before, self._after, self._failed)

    def items(self, items: Sequence[Item]) -> list[Item]:
        """Derived events with their headers; who calls is alone."""
        found: list[Item] = []
        before = after = 0
        own = SIZES[self.cls]
        for event, header, deadline in items:
            function = self.function(event.__class__)
            if function is None:
                self._left_out += 1
                continue
            try:
                derived = function(event, header)
                item = derived, self.header(header, derived), deadline
                size = own(derived)
            except Exception as error:  # noqa: BLE001 - code of the user's class: it stays with its event
                self._failed += 1
                self._report(header, error)
                continue
            found.append(item)
            before += SIZES[event.__class__](event)
            after += size
        self._derived += len(found)
        self._before += before
        self._after += after
        return found

    def batch(self, batch: OutgoingBatch) -> OutgoingBatch | None:
        """Events that were pushed together as one batch again; None where each is derived by itself."""
        cls = batch.events[0].__class__
        function = self.function(cls)
        if function is None or batch.given is not None or self._needs_header[cls]:
            return None
        own, size = SIZES[self.cls], SIZES[cls]
        try:
            events = [function(event, NO_HEADER) for event in batch.events]
            after = sum(map(own, events))
        except Exception:  # noqa: BLE001 - code of the user's class: `items` finds the events and says what it was
            return None
        self._derived += len(events)
        self._before += sum(map(size, batch.events))
        self._after += after
        shared = msgspec.structs.replace(
            batch.shared, channel=self._channel, type=self._info.name, format_id=self._info.format.id
        )
        return OutgoingBatch(
            events,
            shared,
            batch.sequence,
            batch.source_ts,
            batch.places,
            batch.deadline,
            sequences=batch.sequences,
        )

    def header(self, header: Header, event: Event) -> Header:
        """That of the original, but for whose the event is and what it is."""
        info = self._info
        # Positional: `replace` would cost four times as much.
        return Header(
            self._channel,
            info.name,
            header.supplier,
            header.epoch,
            header.sequence,
            header.source_ts,
            info.format.id,
            header.priority,
            info.key_of(event),
            header.station_seq,
            header.append_ts,
            header.partition,
            header.offset,
            header.lifetime_ns,
            header.hops,
            header.correlation_id,
            header.headers,
            header.redelivered,
        )

    def function(self, cls: type[Event]) -> Callable[..., Event] | None:
        """What derives events of a class; None: they lack what is read."""
        try:
            return self._functions[cls]
        except KeyError:
            found: Callable[..., Event] | None = None
            with suppress(ExpressionError, FormatError):
                made = self.derivation.over(info_of(cls).format)
                self._needs_header[cls] = made.needs_header
                found = made.function(self.cls)
            self._functions[cls] = found
            return found
