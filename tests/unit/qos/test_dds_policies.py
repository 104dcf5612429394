"""The policies of DDS against the text of the standard, as typed into dds_1_4.csv."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import InvalidQoS
from heliograph.qos import dds_policies as dds
from heliograph.runtime.declared_options import rows_of
from tests.unit.qos import dds_text

ROWS = dds_text.read()


def test_there_are_the_22_policies_in_the_order_of_the_text() -> None:
    assert list(dds.DDS_POLICIES) == [row.policy for row in ROWS]
    assert len(ROWS) == 22


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.policy)
def test_a_policy_is_declared_as_the_text_says(row: dds_text.Row) -> None:
    policy, declared = dds.DDS_POLICIES[row.policy]
    assert (declared.section, declared.number) == (row.section, row.id)
    assert set(declared.applies) == row.applies
    assert declared.changeable == row.changeable
    defaults = {name: option.default for name, option in rows_of(policy).items()}
    expected = {name: defaults[name] if value == "" else value for name, value in row.defaults.items()}
    assert defaults == expected
    assert all(not defaults[name] for name, value in row.defaults.items() if value == "")
    assert set(dds.match_rules(policy)) == set(row.rules)
    assert bool(row.rules) == row.rxo


@pytest.mark.parametrize("entity", dds.ENTITY_QOS)
def test_an_entity_has_the_policies_that_apply_to_it(entity: dds.EntityKind) -> None:
    fields = set(dds.ENTITY_QOS[entity].__struct_fields__)
    assert fields == {row.policy for row in ROWS if entity in row.applies}


def test_the_default_of_a_writer_is_reliable_and_of_a_reader_best_effort() -> None:
    """2.2.3.14 says so, beside the default of the policy."""
    assert dds.DataWriterQos().reliability.kind == "reliable"
    assert dds.DataReaderQos().reliability.kind == dds.TopicQos().reliability.kind == "best-effort"


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda: dds.Durability("for-ever"), "one of volatile, transient-local"),  # type: ignore[arg-type]
        (lambda: dds.Deadline(0), "seconds above 0"),
        (lambda: dds.History(depth=0), "a whole number from 1"),
        (lambda: dds.UserData("text"), "bytes"),  # type: ignore[arg-type]
        (lambda: dds.UserData(bytes(70_000)), "at most 65,536"),
        (lambda: dds.Partition(("a", "b\n")), "printable"),
        (lambda: dds.DataReaderQos(history=dds.Deadline()), "History(...)"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_is_allowed(make: Any, allowed: str) -> None:
    with pytest.raises(InvalidQoS) as caught:
        make()
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("qos", "policy"),
    [
        (
            dds.DataReaderQos(
                history=dds.History(depth=3), resource_limits=dds.ResourceLimits(max_samples_per_instance=2)
            ),
            "history",
        ),
        (
            dds.DataWriterQos(resource_limits=dds.ResourceLimits(max_samples=2, max_samples_per_instance=3)),
            "resource_limits",
        ),
        (
            dds.DataReaderQos(deadline=dds.Deadline(1.0), time_based_filter=dds.TimeBasedFilter(2.0)),
            "deadline",
        ),
        (
            dds.TopicQos(
                durability_service=dds.DurabilityService(depth=3, max_samples_per_instance=2, max_samples=9)
            ),
            "durability_service",
        ),
    ],
)
def test_policies_of_one_entity_that_contradict_each_other_are_found(qos: Any, policy: str) -> None:
    found = dds.inconsistency(qos)
    assert found is not None
    assert found.policy == policy
    assert dds.inconsistency(type(qos)()) is None


def test_every_row_of_the_table_names_a_public_page_that_says_so() -> None:
    known = ("OpenDDS: ", "Fast DDS: ", "Cyclone DDS: ", "rustdds: ")
    for row in dds_text.read():
        assert row.sources.startswith(known), row.policy
