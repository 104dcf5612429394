"""Quality of service: what is refused where it is written, and what goes together."""

from __future__ import annotations

from typing import Any

import pytest

import heliograph as hg
from heliograph.qos.policies import QoS, policies
from heliograph.runtime.declared_options import rows_of


def test_the_defaults_never_drop_silently() -> None:
    default = QoS()
    assert (default.reliability, default.durability) == ("reliable", "volatile")
    assert (default.ack_level, default.overflow_policy) == ("memory", "block")


@pytest.mark.parametrize(
    ("durability", "ack", "overflow"),
    [
        ("volatile", "memory", "block"),
        ("transient-local", "memory", "block"),
        ("transient", "memory", "block"),
        ("persistent", "synced", "journal"),
    ],
)
def test_what_push_waits_for_follows_from_the_durability(durability: Any, ack: str, overflow: str) -> None:
    chosen = QoS(durability=durability)
    assert (chosen.ack_level, chosen.overflow_policy) == (ack, overflow)


def test_best_effort_drops_the_oldest_by_name() -> None:
    assert QoS(reliability="best-effort").overflow_policy == "drop_oldest"


@pytest.mark.parametrize(
    "values",
    [
        {"reliability": "sure"},
        {"durability": "forever"},
        {"ack": "yes"},
        {"overflow": "spill"},
        {"history": 0, "durability": "transient"},
        {"history": 1.5, "durability": "transient"},
        {"lifespan": 0},
        {"lifespan": float("nan")},
        {"overflow": "drop_soonest"},
        {"priority": 0},
        {"priority": 6},
        {"priority": True},
        {"max_blocking": -1},
        {"queue": 0},
        {"ack": "synced"},
        {"ack": "delivered", "reliability": "best-effort"},
        {"dead_letter": "air.dead"},
        {"resends": -1},
        {"ack_timeout": 0},
        {"overflow": "journal"},
        {"overflow": "drop_oldest", "durability": "persistent"},
        {"overflow": "block", "reliability": "best-effort"},
        {"history": 5},
        {"history": 5, "durability": "persistent"},
    ],
)
def test_a_value_that_cannot_be_honoured_is_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(hg.InvalidQoS) as caught:
        QoS(**values)
    assert caught.value.policy in values
    assert caught.value.allowed in str(caught.value)


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        ({"overflow": "journal"}, "durability='persistent'"),
        ({"overflow": "drop_soonest"}, "dispatch='deadline'"),
        ({"ack": "delivered", "reliability": "best-effort"}, "reliability='reliable'"),
    ],
)
def test_what_a_value_needs_is_said(values: dict[str, Any], needed: str) -> None:
    with pytest.raises(hg.InvalidQoS, match=f"or this one with {needed}$"):
        QoS(**values)


def test_every_policy_is_a_field_and_every_field_a_policy() -> None:
    assert list(rows_of(QoS)) == list(policies()) == list(QoS.__struct_fields__)
