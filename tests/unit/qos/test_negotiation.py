"""The best that both sides can have: it matches, nothing nearer does, and all of it is told."""

from __future__ import annotations

import random
from typing import Any

import pytest

from heliograph.qos import dds_policies as dds
from heliograph.qos.negotiation import Grant, for_reader, for_writer
from heliograph.qos.request_offered import policies_of
from tests.unit.qos import dds_text
from tests.unit.qos.test_request_offered import VALUES

RULES = {row.policy: row.rules for row in dds_text.read() if row.rxo}


def field_fits(policy: str, field: str, offered: Any, requested: Any) -> bool:
    rule = RULES[policy][field]
    return dds_text.fits(rule, getattr(offered[policy], field), getattr(requested[policy], field))


def pairs(own: Any, others: list[Any], side: str) -> list[tuple[Any, Any]]:
    """Offered and requested."""
    return [(other, own) if side == "reader" else (own, other) for other in others]


def is_equal(policy: str, field: str) -> bool:
    return RULES[policy][field] == "offered = requested"


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_what_is_granted_matches_all_others_and_no_more_is_changed_than_has_to_be(side: str) -> None:
    """For thousands of random sides: each field fits all others after, and is as asked where that fitted."""
    chance = random.Random(7)
    for _ in range(2_000):
        own = {policy: chance.choice(values) for policy, values in VALUES.items()}
        others = [
            {policy: chance.choice(values) for policy, values in VALUES.items()}
            for _ in range(chance.randint(0, 3))
        ]
        granted, grants = (for_reader if side == "reader" else for_writer)(own, others)
        told = {(grant.policy, grant.field): grant for grant in grants}
        for policy, rules in RULES.items():
            for field in rules:
                before, after = getattr(own[policy], field), getattr(granted[policy], field)

                if not is_equal(policy, field):
                    assert all(field_fits(policy, field, *pair) for pair in pairs(granted, others, side))
                if all(field_fits(policy, field, *pair) for pair in pairs(own, others, side)):
                    assert after == before
                assert ((policy, field) in told) == (after != before)
                if after != before:
                    assert told[policy, field] == Grant(policy, field, before, after)


def test_a_reader_gets_the_nearest_value_that_is_enough() -> None:
    asked = policies_of(
        dds.DataReaderQos(durability=dds.Durability("persistent"), deadline=dds.Deadline(1.0))
    )
    offers = [
        policies_of(dds.DataWriterQos(durability=durability, deadline=dds.Deadline(period)))
        for durability, period in (
            (dds.Durability("transient"), 2.0),
            (dds.Durability("transient-local"), 0.5),
        )
    ]
    granted, grants = for_reader(asked, offers)
    assert (granted["durability"].kind, granted["deadline"].period) == ("transient-local", 2.0)
    assert list(map(str, grants)) == [
        "durability.kind: asked for 'persistent', granted 'transient-local'",
        "deadline.period: asked for 1.0, granted 2.0",
    ]
    assert for_reader(asked, []) == (asked, ())


def test_others_that_do_not_agree_change_nothing() -> None:
    asked = policies_of(dds.DataReaderQos())
    offers = [
        policies_of(dds.DataWriterQos(ownership=dds.Ownership(kind))) for kind in ("shared", "exclusive")
    ]
    assert for_reader(asked, offers)[1] == ()
    assert for_reader(asked, offers[1:])[0]["ownership"].kind == "exclusive"
