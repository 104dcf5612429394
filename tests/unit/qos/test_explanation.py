"""`hg.explain`: each policy of a pair, and the smallest change that brings them together."""

from __future__ import annotations

import random
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.qos import dds_policies as dds
from heliograph.qos.explanation import Endpoint, explain, is_alike
from heliograph.qos.request_offered import policies_of
from tests.support import examples
from tests.unit.qos import dds_text
from tests.unit.qos.test_request_offered import VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES = {row.policy: row.rules for row in dds_text.read() if row.rxo}


def fits(offered: Mapping[str, Any], requested: Mapping[str, Any]) -> bool:
    """By the rules that were typed from the text."""
    return all(
        dds_text.fits(rule, getattr(offered[policy], field), getattr(requested[policy], field))
        for policy, rules in RULES.items()
        for field, rule in rules.items()
    )


def changed(policies: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    after = dict(policies)
    for change in changes:
        after[change.policy] = msgspec.structs.replace(after[change.policy], **{change.field: change.value})
    return after


def needs(offered: Mapping[str, Any], requested: Mapping[str, Any], *, change_offer: bool) -> int | None:
    """How many policies of one side have to change, by trying all values of every one and every two."""
    changing = offered if change_offer else requested
    for size in (0, 1, 2):
        for policies in combinations(RULES, size):
            for values in product(*(VALUES[policy] for policy in policies)):
                after = {**changing, **dict(zip(policies, values, strict=True))}
                if fits(after, requested) if change_offer else fits(offered, after):
                    return size
    return None


def test_the_smallest_change_is_as_small_as_trying_all_finds() -> None:
    chance = random.Random(15)
    judged = 0
    for _ in range(examples(60)):
        # Few policies differ, or all pairs would need more than two changes.
        base = {policy: chance.choice(values) for policy, values in VALUES.items()}
        offered, requested = dict(base), dict(base)
        for policy in chance.sample(list(VALUES), 3):
            offered[policy], requested[policy] = chance.choice(VALUES[policy]), chance.choice(VALUES[policy])
        found = explain(Endpoint(policies=offered), Endpoint(policies=requested))
        assert bool(found) == fits(offered, requested)
        for changes, change_offer in ((found.on_writer, True), (found.on_reader, False)):
            least = needs(offered, requested, change_offer=change_offer)
            policies = {change.policy for change in changes}
            assert least is None or len(policies) == least
            assert least is not None or len(policies) == 3
            judged += least is not None
    assert judged


def test_ten_thousand_pairs_match_after_the_change_and_not_after_less_of_it() -> None:
    chance = random.Random(22)
    for _ in range(10_000):
        offered = {policy: chance.choice(values) for policy, values in VALUES.items()}
        requested = {policy: chance.choice(values) for policy, values in VALUES.items()}
        found = explain(Endpoint(policies=offered), Endpoint(policies=requested))
        assert bool(found) == fits(offered, requested)
        assert fits(changed(offered, found.on_writer), requested)
        assert fits(offered, changed(requested, found.on_reader))
        for left_out in range(len(found.on_writer)):
            fewer = found.on_writer[:left_out] + found.on_writer[left_out + 1 :]
            assert not fits(changed(offered, fewer), requested)


def test_the_page_says_what_is_offered_what_is_requested_the_rule_and_both_remedies() -> None:
    page = str(
        hg.explain(
            dds.DataWriterQos(deadline=dds.Deadline(2.0)),
            dds.DataReaderQos(deadline=dds.Deadline(1.0), durability=dds.Durability("transient-local")),
        )
    )
    assert page == (
        "writer and reader do not match\n"
        "  durability (DDS 2.2.3.4): offered volatile, requested transient-local\n"
        "      kind: what is offered has to be at least what is requested\n"
        "  deadline (DDS 2.2.3.7): offered 2.0, requested 1.0\n"
        "      period: what is offered has to be at most what is requested\n"
        "the policies would fit\n"
        "  with the writer's durability.kind='transient-local' (set when it is created)\n"
        "   and the writer's deadline.period=1.0 (set_qos)\n"
        "  or with the reader's durability.kind='volatile' (set when it is created)\n"
        "   and the reader's deadline.period=2.0 (set_qos)"
    )


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ({"domain": 7}, "the writer is in domain 0, the reader in domain 7"),
        ({"topic": "air.track"}, "probably a mistake in one of the names"),
        ({"topic": "weather"}, "the writer's topic is 'air.tracks', the reader's 'weather'"),
        ({"type_name": "Plane"}, "the writer's type is Track, the reader's Plane"),
        ({"fields": (("id", "str"),)}, "field id is i64 at the writer, str at the reader"),
        (
            {
                "policies": policies_of(
                    dds.DataReaderQos(), dds.SubscriberQos(partition=dds.Partition(("b",)))
                )
            },
            "no partition in common: the publisher has 'a', the subscriber 'b'",
        ),
    ],
)
def test_what_never_meets_says_why(theirs: dict[str, Any], reason: str) -> None:
    ours = Endpoint(
        policies=policies_of(dds.DataWriterQos(), dds.PublisherQos(partition=dds.Partition(("a",)))),
        topic="air.tracks",
        type_name="Track",
        fields=(("id", "i64"),),
    )
    reader = policies_of(dds.DataReaderQos(), dds.SubscriberQos(partition=dds.Partition(("a*",))))
    assert explain(ours, msgspec.structs.replace(ours, policies=reader))
    found = explain(ours, msgspec.structs.replace(ours, **{"policies": reader, **theirs}))
    assert not found
    assert any(reason in one for one in found.apart), found.apart
    assert reason in str(found)


def test_the_qos_of_two_channels_is_explained_too() -> None:
    found = hg.explain(hg.QoS(reliability="best-effort"), hg.QoS())
    assert [one.policy for one in found.mismatches] == ["reliability"]
    assert "the writer's reliability='reliable'" in str(found)
    assert hg.explain(hg.QoS(), hg.QoS())


def test_what_has_no_policies_cannot_be_explained() -> None:
    with pytest.raises(NotPossible, match="a DataWriter, a DataWriterQos"):
        hg.explain("writer", dds.DataReaderQos())


def test_numbered_names_are_no_mistakes_of_each_other() -> None:
    assert is_alike("air.tracks", "air.track")
    assert not is_alike("motor.1", "motor.2")
    assert not is_alike("air.tracks", "weather")
