"""Conditions and wait sets (2.2.2.1.6): wait in one thread for several things at once.

    waitset = dcps.WaitSet()
    waitset.attach_condition(reader.create_readcondition())
    for condition in waitset.wait(timeout=1.0): ...

A guard condition is set by the program, a status condition by statuses of an entity, a read condition by
samples of a reader in certain states, and a query condition by those whose data meets a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from heliograph.errors import BadParameter, PreconditionNotMet
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.queueing.reader_cache import SampleSelection
    from heliograph.facades.dcps.discovery import Domain
    from heliograph.facades.dcps.entity import Entity
    from heliograph.facades.dcps.reader import DataReader
    from heliograph.facades.dcps.statuses import StatusKind


class Condition(Protocol):
    """Something to wait for."""

    @property
    def domain(self) -> Domain: ...

    @property
    def trigger_value(self) -> bool:
        """Whether it holds now."""
        ...

    def holds(self) -> bool:
        """The same, under the lock of its domain."""
        ...


def _holds_now(condition: Condition) -> bool:
    with condition.domain.lock:
        return condition.holds()


class GuardCondition:
    """Set and unset by the program."""

    def __init__(self, entity: Entity[Any]) -> None:
        self.domain = entity.domain
        self._value = False

    def set_trigger_value(self, value: bool) -> None:
        with self.domain.lock:
            self._value = value
            self.domain.notify()

    @property
    def trigger_value(self) -> bool:
        """Whether it holds now."""
        return _holds_now(self)

    def holds(self) -> bool:
        return self._value


class StatusCondition:
    """Holds while one of the enabled statuses of an entity has changed and was not read."""

    def __init__(self, entity: Entity[Any]) -> None:
        self.domain = entity.domain
        self._entity = entity
        self._enabled = frozenset(entity.statuses)

    def get_entity(self) -> Entity[Any]:
        return self._entity

    def get_enabled_statuses(self) -> frozenset[StatusKind]:
        return self._enabled

    def set_enabled_statuses(self, kinds: Iterable[StatusKind]) -> None:
        enabled = frozenset(kinds)
        if others := sorted(enabled - set(self._entity.statuses)):
            raise BadParameter(
                self._entity.name,
                f"has no status {others[0]}; it has {', '.join(self._entity.statuses) or 'none'}",
            )
        with self.domain.lock:
            self._enabled = enabled
            self.domain.notify()

    @property
    def trigger_value(self) -> bool:
        """Whether it holds now."""
        return _holds_now(self)

    def holds(self) -> bool:
        return bool(self._enabled & self._entity.status.changed)


class ReadCondition:
    """Holds while a reader has samples in these states."""

    def __init__(self, reader: DataReader[Any], wanted: SampleSelection) -> None:
        self.domain = reader.domain
        self.reader = reader
        self.wanted = wanted

    @property
    def trigger_value(self) -> bool:
        """Whether it holds now."""
        return _holds_now(self)

    def holds(self) -> bool:
        return self.reader.cache.has(self.wanted, self.domain.now())


class QueryCondition(ReadCondition):
    """Holds while a reader has samples in these states whose data meets a filter."""

    def __init__(self, reader: DataReader[Any], wanted: SampleSelection, query: str, parameters: Any) -> None:
        super().__init__(reader, wanted)
        self._query = query
        self._parameters = parameters

    def get_query_expression(self) -> str:
        return self._query

    def get_query_parameters(self) -> Any:
        return self._parameters

    def set_query_parameters(self, parameters: Any) -> None:
        """Other values for the parameters of the same filter."""
        wanted = self.reader.with_query(self.wanted, self._query, parameters)
        with self.domain.lock:
            self.wanted, self._parameters = wanted, parameters
            self.domain.notify()


class WaitSet:
    """Conditions of one domain; `wait` returns those that hold."""

    def __init__(self) -> None:
        self._conditions: list[Condition] = []

    def attach_condition(self, condition: Condition) -> None:
        if self._conditions and self._conditions[0].domain is not condition.domain:
            raise PreconditionNotMet("WaitSet", "its conditions are of another domain; use a second wait set")
        if condition not in self._conditions:
            self._conditions.append(condition)

    def detach_condition(self, condition: Condition) -> None:
        if condition not in self._conditions:
            raise PreconditionNotMet("WaitSet", "the condition is not attached")
        self._conditions.remove(condition)

    def get_conditions(self) -> tuple[Condition, ...]:
        return tuple(self._conditions)

    def wait(self, timeout: float | None = None) -> list[Condition]:
        """The conditions that hold, as soon as one does; none when the time is over."""
        check_timeout("WaitSet", timeout)
        conditions = tuple(self._conditions)
        if not conditions:
            raise PreconditionNotMet("WaitSet", "attach a condition first")
        found: list[Condition] = []

        def happened() -> bool:
            found[:] = [condition for condition in conditions if condition.holds()]
            return bool(found)

        conditions[0].domain.wait(happened, timeout)
        return found
