"""The thirteen statuses of DDS (2.2.4.1): what has happened to an entity, with counts and changes.

A change is what came since the status was last read, by `get_..._status` or by a listener. `StatusBoard` is
the state of one entity, under the lock of its domain.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

StatusKind: TypeAlias = Literal[
    "inconsistent_topic",
    "offered_deadline_missed",
    "requested_deadline_missed",
    "offered_incompatible_qos",
    "requested_incompatible_qos",
    "sample_lost",
    "sample_rejected",
    "data_on_readers",
    "data_available",
    "liveliness_lost",
    "liveliness_changed",
    "publication_matched",
    "subscription_matched",
]


class CountStatus(msgspec.Struct, frozen=True):
    """inconsistent_topic, sample_lost, liveliness_lost."""

    total_count: int = 0
    total_count_change: int = 0


class DeadlineMissedStatus(msgspec.Struct, frozen=True):
    """offered_deadline_missed, requested_deadline_missed."""

    total_count: int = 0
    total_count_change: int = 0
    last_instance_handle: int = 0


class IncompatibleQosStatus(msgspec.Struct, frozen=True):
    """offered_incompatible_qos, requested_incompatible_qos."""

    total_count: int = 0
    total_count_change: int = 0
    last_policy_id: int = 0
    """The QosPolicyId of the first policy that kept the last one apart."""
    policies: dict[int, int] = {}
    """How often each policy did, by QosPolicyId."""


class SampleRejectedStatus(msgspec.Struct, frozen=True):
    """sample_rejected."""

    total_count: int = 0
    total_count_change: int = 0
    last_reason: str = "not-rejected"
    last_instance_handle: int = 0


class LivelinessChangedStatus(msgspec.Struct, frozen=True):
    """liveliness_changed."""

    alive_count: int = 0
    not_alive_count: int = 0
    alive_count_change: int = 0
    not_alive_count_change: int = 0
    last_publication_handle: str = ""


class MatchedStatus(msgspec.Struct, frozen=True):
    """publication_matched, subscription_matched."""

    total_count: int = 0
    total_count_change: int = 0
    current_count: int = 0
    current_count_change: int = 0
    last_handle: str = ""
    """Of the reader or writer."""


_KINDS: Final[dict[StatusKind, type[msgspec.Struct]]] = {
    "inconsistent_topic": CountStatus,
    "offered_deadline_missed": DeadlineMissedStatus,
    "requested_deadline_missed": DeadlineMissedStatus,
    "offered_incompatible_qos": IncompatibleQosStatus,
    "requested_incompatible_qos": IncompatibleQosStatus,
    "sample_lost": CountStatus,
    "sample_rejected": SampleRejectedStatus,
    "liveliness_lost": CountStatus,
    "liveliness_changed": LivelinessChangedStatus,
    "publication_matched": MatchedStatus,
    "subscription_matched": MatchedStatus,
}

STATUSES: Final[dict[str, tuple[StatusKind, ...]]] = {
    "topic": ("inconsistent_topic",),
    "writer": (
        "offered_deadline_missed",
        "offered_incompatible_qos",
        "liveliness_lost",
        "publication_matched",
    ),
    "subscriber": ("data_on_readers",),
    "reader": (
        "requested_deadline_missed",
        "requested_incompatible_qos",
        "sample_lost",
        "sample_rejected",
        "data_available",
        "liveliness_changed",
        "subscription_matched",
    ),
    "publisher": (),
    "participant": (),
}
"""Which entity has which."""


class StatusBoard:
    """The statuses of one entity. Under the lock of the domain."""

    def __init__(self, entity: str) -> None:
        self._values: dict[StatusKind, Any] = {
            kind: _KINDS[kind]() for kind in STATUSES[entity] if kind in _KINDS
        }
        self.changed: set[StatusKind] = set()

    def count(self, kind: StatusKind, by: int = 1, **last: Any) -> None:
        """It has happened once more, or so many times."""
        before = self._values[kind]
        self.set(
            kind,
            total_count=before.total_count + by,
            total_count_change=before.total_count_change + by,
            **last,
        )

    def set(self, kind: StatusKind, **values: Any) -> None:
        self._values[kind] = msgspec.structs.replace(self._values[kind], **values)
        self.changed.add(kind)

    def peek(self, kind: StatusKind) -> Any:
        return self._values[kind]

    def read(self, kind: StatusKind) -> Any:
        """The status; from here on changes are counted anew."""
        status = self._values[kind]
        fields = [name for name in status.__struct_fields__ if name.endswith("_change")]
        self._values[kind] = msgspec.structs.replace(status, **dict.fromkeys(fields, 0))
        self.changed.discard(kind)
        return status

    def incompatible(self, kind: StatusKind, policies: list[int]) -> None:
        """Another one is kept apart by these."""
        counts = dict(self._values[kind].policies)
        for number in policies:
            counts[number] = counts.get(number, 0) + 1
        self.count(kind, last_policy_id=policies[0], policies=counts)

    def matched(self, kind: StatusKind, handle: str, by: int) -> None:
        """One more, or one less."""
        before = self._values[kind]
        came = max(by, 0)
        self.set(
            kind,
            total_count=before.total_count + came,
            total_count_change=before.total_count_change + came,
            current_count=before.current_count + by,
            current_count_change=before.current_count_change + by,
            last_handle=handle,
        )

    def liveliness(self, handle: str, *, alive: int = 0, not_alive: int = 0) -> None:
        before = self._values["liveliness_changed"]
        self.set(
            "liveliness_changed",
            alive_count=before.alive_count + alive,
            not_alive_count=before.not_alive_count + not_alive,
            alive_count_change=before.alive_count_change + alive,
            not_alive_count_change=before.not_alive_count_change + not_alive,
            last_publication_handle=handle,
        )
