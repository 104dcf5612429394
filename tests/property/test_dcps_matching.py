"""Writers and readers that come, change and go: who matches, what each is told and what arrives, by a model.

The model knows the rules that were typed from the standard (`tests.unit.qos.dds_text`), and not the code.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import heliograph as hg
from heliograph.facades import dcps
from tests.support import examples
from tests.unit.qos import dds_text

RULES = {row.policy: row.rules for row in dds_text.read() if row.rxo}
QUIET: Any = lambda *_: None  # noqa: E731 - mismatches are looked at in the statuses


class Track(hg.Event, name="dcps.track", key="id"):
    id: int
    n: int = 0


POLICIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "deadline": st.sampled_from([dcps.Deadline(time) for time in (None, 1_000.0, 2_000.0)]),
        "reliability": st.sampled_from([dcps.Reliability("best-effort"), dcps.Reliability("reliable")]),
        "destination_order": st.sampled_from(
            [dcps.DestinationOrder(), dcps.DestinationOrder("by-source-timestamp")]
        ),
    }
)
PARTITIONS = st.sampled_from([(), ("a",), ("b",), ("a*",), ("?", "abc"), ("*",)])
DEADLINES = st.sampled_from([None, 1_000.0, 2_000.0])


class Side:
    """A writer or reader with its own group, and what the model knows of it."""

    def __init__(self, end: Any, group: Any, policies: dict[str, Any], partition: tuple[str, ...]) -> None:
        self.end = end
        self.group = group
        self.policies = policies
        self.partition = partition
        self.matched_total = self.refused_total = 0
        self.expected: list[int] = []


def overlap(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    def is_pattern(name: str) -> bool:
        return "*" in name or "?" in name

    for a in ours or ("",):
        for b in theirs or ("",):
            if is_pattern(a) and is_pattern(b):
                continue
            if a == b or fnmatchcase(a, b) or fnmatchcase(b, a):
                return True
    return False


def state_of(writer: Side, reader: Side) -> str:
    if not overlap(writer.partition, reader.partition):
        return "apart"
    for policy, rules in RULES.items():
        if policy in writer.policies:
            for field, one in rules.items():
                offered = getattr(writer.policies[policy], field)
                if not dds_text.fits(one, offered, getattr(reader.policies[policy], field)):
                    return "incompatible"
    return "matched"


class Matching(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.station = hg.Station(on_error=QUIET)
        self.factory = dcps.DomainParticipantFactory.get_instance()
        self.participant = self.factory.create_participant(0, station=self.station)
        self.topic = self.participant.create_topic("air.tracks", Track)
        self.writers: list[Side] = []
        self.readers: list[Side] = []
        self.states: dict[tuple[int, int], str] = {}
        self.numbers = 0

    def teardown(self) -> None:
        self.participant.delete_contained_entities()
        self.factory.delete_participant(self.participant)
        self.station.close()

    @precondition(lambda self: len(self.writers) < 3)
    @rule(policies=POLICIES, partition=PARTITIONS)
    def create_writer(self, policies: dict[str, Any], partition: tuple[str, ...]) -> None:
        group = self.participant.create_publisher(dcps.PublisherQos(partition=dcps.Partition(partition)))
        writer = group.create_datawriter(self.topic, dcps.DataWriterQos(**policies))
        self.writers.append(Side(writer, group, policies, partition))
        self.settle()

    @precondition(lambda self: len(self.readers) < 3)
    @rule(policies=POLICIES, partition=PARTITIONS)
    def create_reader(self, policies: dict[str, Any], partition: tuple[str, ...]) -> None:
        group = self.participant.create_subscriber(dcps.SubscriberQos(partition=dcps.Partition(partition)))
        qos = dcps.DataReaderQos(**policies, history=dcps.History("keep-all"))
        self.readers.append(Side(group.create_datareader(self.topic, qos), group, policies, partition))
        self.settle()

    @precondition(lambda self: self.writers or self.readers)
    @rule(data=st.data(), deadline=DEADLINES)
    def change_policy(self, data: st.DataObject, deadline: float | None) -> None:
        side = data.draw(st.sampled_from(self.writers + self.readers))
        side.policies = {**side.policies, "deadline": dcps.Deadline(deadline)}
        kind = type(side.end.get_qos())
        more = {} if kind is dcps.DataWriterQos else {"history": dcps.History("keep-all")}
        side.end.set_qos(kind(**side.policies, **more))
        self.settle()

    @precondition(lambda self: self.writers or self.readers)
    @rule(data=st.data(), partition=PARTITIONS)
    def change_partition(self, data: st.DataObject, partition: tuple[str, ...]) -> None:
        side = data.draw(st.sampled_from(self.writers + self.readers))
        side.partition = partition
        side.group.set_qos(type(side.group.get_qos())(partition=dcps.Partition(partition)))
        self.settle()

    @precondition(lambda self: self.writers or self.readers)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        side = data.draw(st.sampled_from(self.writers + self.readers))
        side.group.delete_contained_entities()
        (self.writers if side in self.writers else self.readers).remove(side)
        self.states = {pair: one for pair, one in self.states.items() if id(side) not in pair}

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(self.writers))
        self.numbers += 1
        writer.end.write(Track(1, self.numbers))
        for reader in self.readers:
            if self.states[id(writer), id(reader)] == "matched":
                reader.expected.append(self.numbers)

    def settle(self) -> None:
        """Count what has changed for each pair."""
        for writer in self.writers:
            for reader in self.readers:
                pair = (id(writer), id(reader))
                before, now = self.states.get(pair), state_of(writer, reader)
                self.states[pair] = now
                if now != before and now == "matched":
                    writer.matched_total += 1
                    reader.matched_total += 1
                if now != before and now == "incompatible":
                    writer.refused_total += 1
                    reader.refused_total += 1

    @invariant()
    def both_sides_know_whom_they_match(self) -> None:
        for writer in self.writers:
            found = [r for r in self.readers if self.states[id(writer), id(r)] == "matched"]
            status = writer.end.status.peek("publication_matched")
            assert set(writer.end.get_matched_subscriptions()) == {one.end.instance_handle for one in found}
            assert (status.current_count, status.total_count) == (len(found), writer.matched_total)
            assert writer.end.status.peek("offered_incompatible_qos").total_count == writer.refused_total
        for reader in self.readers:
            found = [w for w in self.writers if self.states[id(w), id(reader)] == "matched"]
            status = reader.end.status.peek("subscription_matched")
            assert set(reader.end.get_matched_publications()) == {one.end.instance_handle for one in found}
            assert (status.current_count, status.total_count) == (len(found), reader.matched_total)
            assert reader.end.status.peek("requested_incompatible_qos").total_count == reader.refused_total
            alive = reader.end.status.peek("liveliness_changed")
            assert (alive.alive_count, alive.not_alive_count) == (len(found), 0)

    @invariant()
    def what_matched_writers_wrote_has_come(self) -> None:
        for reader in self.readers:
            got = [one.data.n for one in reader.end.take() if one.info.valid_data]
            assert sorted(got) == sorted(reader.expected)
            reader.expected.clear()


TestMatching = Matching.TestCase
TestMatching.settings = settings(max_examples=examples(25), stateful_step_count=20, deadline=None)
