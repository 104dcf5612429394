"""What all entities of DDS have: QoS, statuses, a listener, enabling and deleting (2.2.2.1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from heliograph.errors import (
    AlreadyDeleted,
    ImmutablePolicy,
    IncompatibleQos,
    InconsistentPolicy,
    InvalidQoS,
    NotEnabled,
)
from heliograph.facades.dcps.conditions import StatusCondition
from heliograph.facades.dcps.listeners import Listening
from heliograph.facades.dcps.statuses import STATUSES, StatusBoard
from heliograph.qos.dds_policies import DDS_POLICIES, inconsistency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.facades.dcps.discovery import Domain
    from heliograph.facades.dcps.statuses import StatusKind
    from heliograph.qos.explanation import Explanation
    from heliograph.qos.request_offered import Incompatible

Q = TypeVar("Q")
S = TypeVar("S")


def check_consistent(name: str, qos: Any) -> None:
    """InconsistentPolicy for policies of one entity that contradict each other."""
    broken = inconsistency(qos)
    if broken is not None:
        value = getattr(qos, broken.policy)
        raise InconsistentPolicy(name, f"{value}: allowed is {broken.allowed} (DDS {broken.section})")


def check_changes(name: str, before: Any, after: Any) -> None:
    """ImmutablePolicy for what cannot change while an entity is enabled."""
    for policy in before.__struct_fields__:
        is_changed = getattr(before, policy) != getattr(after, policy)
        if is_changed and not DDS_POLICIES[policy][1].changeable:
            raise ImmutablePolicy(
                name,
                f"{policy} cannot change while it is enabled; delete it and create it with the other one",
            )


class Entity(Generic[Q]):
    """See the module.

    Attributes:
        instance_handle: its id, unique in the domain and for ever.
    """

    kind: str
    """Which statuses it has."""

    def __init__(
        self,
        domain: Domain,
        name: str,
        qos: Q,
        parent: Entity[Any] | None,
        listening: Listening,
    ) -> None:
        check_consistent(name, qos)
        self.domain = domain
        self.name = name
        self.instance_handle = domain.new_id()
        self.parent = parent
        self.status = StatusBoard(self.kind)
        self.is_enabled = False
        self.is_deleted = False
        self._qos = qos
        self._use(listening)
        self._condition = StatusCondition(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # Enabling and deleting

    def enable(self) -> None:
        """Take part. Once only; a second call does nothing."""
        self.check()
        if self.parent is not None and not self.parent.is_enabled:
            from heliograph.errors import PreconditionNotMet  # noqa: PLC0415 - seldom

            raise PreconditionNotMet(self.name, f"enable {self.parent.name} first")
        if not self.is_enabled:
            self.is_enabled = True
            self._enabled()

    def _enabled(self) -> None:
        """It takes part from here on."""

    def check(self) -> None:
        if self.is_deleted:
            raise AlreadyDeleted(self.name, "was deleted")

    def check_enabled(self) -> None:
        self.check()
        if not self.is_enabled:
            raise NotEnabled(self.name, "call enable() first")

    # QoS

    def get_qos(self) -> Q:
        return self._qos

    def set_qos(self, qos: Q) -> None:
        """Change policies; what cannot change while it is enabled, or contradicts, is refused whole."""
        self.check()
        if type(qos) is not type(self._qos):
            raise InvalidQoS("qos", qos, f"{type(self._qos).__name__}(...)")
        check_consistent(self.name, qos)
        self._check_supported(qos)
        if self.is_enabled:
            check_changes(self.name, self._qos, qos)
        self._qos = qos
        if self.is_enabled:
            self._qos_changed()

    def _check_supported(self, qos: Q) -> None:
        """Unsupported for what is allowed by the standard and not honoured here."""

    def _qos_changed(self) -> None:
        """It has other policies from here on."""

    # Statuses

    def set_listener(self, listener: Any, mask: Iterable[StatusKind] | None = None) -> None:
        """Have an object told of statuses; None: nobody. See `heliograph.facades.dcps.listeners`."""
        self._use(Listening(listener, mask))

    def _use(self, listening: Listening) -> None:
        self._listening = listening
        if listening.listener is not None:
            self.domain.is_listened_to = True

    def get_listener(self) -> Any:
        return self._listening.listener

    def get_statuscondition(self) -> StatusCondition:
        return self._condition

    def get_status_changes(self) -> frozenset[StatusKind]:
        """The statuses that have changed since they were read."""
        with self.domain.lock:
            return frozenset(self.status.changed)

    def read_status(self, kind: StatusKind, cls: type[S]) -> S:
        """A status with its counts, of the class that it has; changes are counted anew from here on."""
        with self.domain.lock:
            status = self.status.read(kind)
        assert isinstance(status, cls)
        return status

    def tell(self, kind: StatusKind) -> None:
        """A status has changed: wake who waits, and have the listener told. Under the domain's lock."""
        self.domain.notify()
        method = self._method(kind)
        if method is not None:
            self.domain.listeners.post(partial(self._call, method, kind))

    def report_apart(
        self, ours: str, other: str, explanation: Explanation, found: tuple[Incompatible, ...]
    ) -> None:
        """Tell the station's `on_error`, or the log, why two ends do not match. Without the lock."""
        numbers = tuple(dict.fromkeys(one.number for one in found))
        error = IncompatibleQos(f"{self.name} {ours}", str(explanation), other, numbers)
        self.domain.report(self.name, error)

    def _method(self, kind: StatusKind) -> Callable[..., object] | None:
        """The listener's method, of the nearest entity that has one."""
        if not self.domain.is_listened_to:
            return None
        entity: Entity[Any] | None = self
        while entity is not None:
            method = entity._listening.method(kind)  # noqa: SLF001 - of the same class
            if method is not None:
                return method
            entity = entity.parent
        return None

    def _call(self, method: Callable[..., object], kind: StatusKind) -> None:
        if self.is_deleted:
            return
        with self.domain.lock:
            status = self.status.read(kind)
        method(self, status)

    @property
    def statuses(self) -> tuple[StatusKind, ...]:
        return STATUSES[self.kind]
