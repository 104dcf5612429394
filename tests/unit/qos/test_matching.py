"""Matching: which policies keep an offer and a request apart, and in which stations must not differ."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from heliograph.qos import policies as qos
from heliograph.qos.matching import conflicts, differences, mismatches
from heliograph.qos.policies import QoS


@pytest.mark.parametrize("policy", ["reliability", "durability"])
def test_an_offer_meets_a_request_when_it_is_at_least_as_strong(policy: str) -> None:
    order = get_args(getattr(qos, policy.capitalize()))
    for i, offered in enumerate(order):
        for j, requested in enumerate(order):
            found = mismatches(
                msgspec.structs.replace(QoS(), **{policy: offered}),
                msgspec.structs.replace(QoS(), **{policy: requested}),
            )
            assert [mismatch.policy for mismatch in found] == ([] if i >= j else [policy])


def test_a_mismatch_says_both_sides() -> None:
    (found,) = mismatches(QoS(reliability="best-effort"), QoS())
    assert str(found) == "reliability: offered 'best-effort', requested 'reliable'"


def test_stations_of_one_history_agree_on_what_it_promises() -> None:
    kept = QoS(durability="persistent")
    assert conflicts(kept, QoS(durability="persistent", queue=5)) == ()
    assert [found.policy for found in conflicts(kept, QoS())] == ["durability"]
    waits = QoS(durability="persistent", ack="delivered")
    assert [found.policy for found in conflicts(kept, waits)] == ["ack"]


def test_every_policy_that_differs_is_named() -> None:
    assert [found.policy for found in differences(QoS(queue=5, priority=1), QoS())] == ["priority", "queue"]
