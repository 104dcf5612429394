"""Request and offer: all pairs of values against the rules that were typed from the text of DDS 1.4."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from heliograph.qos import dds_policies as dds
from heliograph.qos.request_offered import incompatible, policies_of, share_partition
from tests.unit.qos import dds_text

RULES = {row.policy: row.rules for row in dds_text.read() if row.rxo}
TIMES = (0.5, 1.0, 2.0, None)
SCOPES: tuple[dds.Scope, ...] = ("instance", "topic", "group")
KINDS: tuple[dds.LivelinessKind, ...] = ("automatic", "manual-by-participant", "manual-by-topic")
VALUES: dict[str, list[Any]] = {
    "durability": [dds.Durability(k) for k in ("volatile", "transient-local", "transient", "persistent")],
    "presentation": [
        dds.Presentation(scope, coherent, ordered)
        for scope, coherent, ordered in product(SCOPES, (False, True), (False, True))
    ],
    "deadline": [dds.Deadline(t) for t in TIMES],
    "latency_budget": [dds.LatencyBudget(t) for t in (0.0, *TIMES)],
    "ownership": [dds.Ownership(k) for k in ("shared", "exclusive")],
    "liveliness": [dds.Liveliness(k, t) for k, t in product(KINDS, TIMES)],
    "reliability": [dds.Reliability(k) for k in ("best-effort", "reliable")],
    "destination_order": [dds.DestinationOrder(k) for k in ("by-reception-timestamp", "by-source-timestamp")],
}


@pytest.mark.parametrize("policy", RULES)
def test_every_pair_of_values_is_judged_as_the_text_says(policy: str) -> None:
    for offered, requested in product(VALUES[policy], repeat=2):
        found = incompatible({policy: offered}, {policy: requested})
        expected = {
            field
            for field, rule in RULES[policy].items()
            if not dds_text.fits(rule, getattr(offered, field), getattr(requested, field))
        }
        assert {one.field for one in found} == expected, (offered, requested)
        assert all(one.policy == policy for one in found)


def test_the_pairs_are_of_all_policies_that_have_a_rule() -> None:
    assert set(VALUES) == set(RULES)


def test_the_defaults_of_a_writer_and_a_reader_go_together() -> None:
    writer = policies_of(dds.DataWriterQos(), dds.PublisherQos())
    reader = policies_of(dds.DataReaderQos(), dds.SubscriberQos())
    assert incompatible(writer, reader) == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        ((), (), True),
        ((), ("",), True),
        ((), ("a",), False),
        ((), ("*",), True),
        (("a",), ("a", "b"), True),
        (("a",), ("b",), False),
        (("a*",), ("abc",), True),
        (("abc",), ("a?c",), True),
        (("abc",), ("a[xb]c",), True),
        (("a*",), ("a*",), False),
        (("a*", "x"), ("a*", "x"), True),
        (("A",), ("a",), False),
    ],
)
def test_partitions_overlap_by_name_or_by_one_pattern(
    ours: tuple[str, ...], theirs: tuple[str, ...], shared: bool
) -> None:
    """2.2.3.13: of two names with wildcards neither meets the other."""
    assert share_partition(ours, theirs) is shared
    assert share_partition(theirs, ours) is shared
