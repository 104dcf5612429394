"""The condition under which a receiver wants an event: its filter, and the suppliers that it listens to.

A condition can be asked about one event at a time (`holds`), or becomes code of a route with those of others
(`heliograph.channel.routing.compiler`). `split` tells what can be decided before an event has its place among
the others: then nobody else waits while a filter takes long. The rest is decided as it enters the queue.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from heliograph.channel.queueing.queue import EventQueue
    from heliograph.filters.typed import Checked, Node
    from heliograph.model.event import Event, Header


class ReceiverCondition(msgspec.Struct, frozen=True, dict=True):
    """When a receiver wants an event of one type: the filter, and the suppliers it listens to."""

    checked: Checked | None = None
    sources: frozenset[str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it holds for every event."""
        return self.checked is None and self.sources is None

    @property
    def needs_each_header(self) -> bool:
        """Whether one header cannot stand for all events of a class that a supplier pushed together."""
        if self.checked is None:
            return False
        from heliograph.filters.schema import HEADER_FIELDS  # noqa: PLC0415 - only channels with filters load it
        from heliograph.filters.typed import columns  # noqa: PLC0415 - likewise

        read = [column.steps[0].key for column in columns(self.checked.node) if column.header]
        return any(HEADER_FIELDS[str(name)].of_each for name in read)

    @cached_property
    def needs_header(self) -> bool:
        """Whether it asks for anything but the event."""
        if self.checked is None:
            return self.sources is not None
        from heliograph.filters.typed import columns  # noqa: PLC0415 - only channels with filters load it

        return self.sources is not None or any(column.header for column in columns(self.checked.node))

    @property
    def split(self) -> tuple[ReceiverCondition, ReceiverCondition]:
        """What can be asked before an event has its place, and the rest: it holds when both do."""
        return self._halves or (self, ReceiverCondition())

    @cached_property
    def _halves(self) -> tuple[ReceiverCondition, ReceiverCondition] | None:
        """Both; None when all can be asked before. Not itself, or it would never be let go of."""
        if self.checked is None:
            return None
        from heliograph.filters.schema import around_the_place  # noqa: PLC0415 - only channels with filters do

        early, late = around_the_place(self.checked.node)
        if late is None:
            return None
        return ReceiverCondition(self._of(early), self.sources), ReceiverCondition(self._of(late))

    def _of(self, node: Node | None) -> Checked | None:
        assert self.checked is not None
        return None if node is None else msgspec.structs.replace(self.checked, node=node)

    def holds(self, event: Event, header: Header) -> bool:
        """The same answer as the generated code, for one event at a time: history, tests."""
        if self.sources is not None and header.supplier not in self.sources:
            return False
        return self.checked is None or self.evaluate(event, header) is True

    @cached_property
    def evaluate(self) -> Callable[..., Any]:
        """The generated filter, for one event at a time."""
        from heliograph.filters.python import compile_one  # noqa: PLC0415 - only channels with filters load it

        assert self.checked is not None
        return compile_one(self.checked)


class AnyCondition(msgspec.Struct, frozen=True):
    """When any of several receivers behind one queue wants an event."""

    alternatives: tuple[ReceiverCondition, ...]

    @property
    def is_open(self) -> bool:
        return any(condition.is_open for condition in self.alternatives)

    @property
    def needs_each_header(self) -> bool:
        return any(condition.needs_each_header for condition in self.alternatives)

    @property
    def needs_header(self) -> bool:
        return any(condition.needs_header for condition in self.alternatives)

    @property
    def split(self) -> tuple[ReceiverCondition | AnyCondition, ReceiverCondition | AnyCondition]:
        """As in a condition; with an alternative that cannot be asked before, none is."""
        is_late = any(not condition.split[1].is_open for condition in self.alternatives)
        return (ReceiverCondition(), self) if is_late else (self, ReceiverCondition())

    def holds(self, event: Event, header: Header) -> bool:
        return any(condition.holds(event, header) for condition in self.alternatives)


def for_source(
    condition: ReceiverCondition | AnyCondition, supplier: str
) -> ReceiverCondition | AnyCondition | None:
    """What is left of a condition for the events of one supplier; None: it never holds for them."""
    if isinstance(condition, ReceiverCondition):
        if condition.sources is None:
            return condition
        return ReceiverCondition(condition.checked) if supplier in condition.sources else None
    left = [for_source(alternative, supplier) for alternative in condition.alternatives]
    found = tuple(alternative for alternative in left if isinstance(alternative, ReceiverCondition))
    return AnyCondition(found) if found else None


def entering(
    holds: Mapping[EventQueue, Callable[[Any, Header], bool]],
    queues: Sequence[EventQueue],
    event: Any,
    header: Header,
) -> Sequence[EventQueue]:
    """The queues that an event enters now that it has its place, by the conditions of those that have one."""
    return [queue for queue in queues if queue not in holds or holds[queue](event, header)]
