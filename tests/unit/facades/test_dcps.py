"""The DCPS face: entities, instances, statuses, conditions and listeners as the DDS text says."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import (
    AlreadyDeleted,
    BadParameter,
    ImmutablePolicy,
    IncompatibleQos,
    InconsistentPolicy,
    NotEnabled,
    OutOfResources,
    PreconditionNotMet,
    Unsupported,
    WriteTimeout,
)
from heliograph.facades import dcps
from heliograph.model.instance_change import CoherentPart
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 60.0


class Track(hg.Event, name="dcps.track", key="id"):
    id: int
    speed: float = 0.0


class Plane(hg.Event, name="dcps.plane", key="id"):
    id: int


@pytest.fixture
def participant() -> Iterator[dcps.DomainParticipant]:
    factory = dcps.DomainParticipantFactory.get_instance()
    with hg.Station() as station:
        participant = factory.create_participant(0, station=station)
        yield participant
        participant.delete_contained_entities()
        factory.delete_participant(participant)


class Ends:
    """A topic with a publisher and a subscriber."""

    def __init__(
        self,
        participant: dcps.DomainParticipant,
        publisher: dcps.PublisherQos | None = None,
        subscriber: dcps.SubscriberQos | None = None,
    ) -> None:
        self.participant = participant
        self.topic = participant.create_topic("air.tracks", Track)
        self.publisher = participant.create_publisher(publisher)
        self.subscriber = participant.create_subscriber(subscriber)

    def writer(self, **qos: Any) -> dcps.DataWriter[Track]:
        return self.publisher.create_datawriter(self.topic, dcps.DataWriterQos(**qos))

    def reader(self, **qos: Any) -> dcps.DataReader[Track]:
        return self.subscriber.create_datareader(self.topic, dcps.DataReaderQos(**qos))


@pytest.fixture
def ends(participant: dcps.DomainParticipant) -> Ends:
    return Ends(participant)


RELIABLE = dcps.Reliability("reliable")
KEEP_ALL = dcps.History("keep-all")


def values(samples: list[dcps.Sample[Track]]) -> list[tuple[int, float]]:
    return [(sample.data.id, sample.data.speed) for sample in samples if sample.info.valid_data]


def states(samples: list[dcps.Sample[Track]]) -> list[tuple[int, str, bool]]:
    return [(one.data.id, one.info.instance_state, one.info.valid_data) for one in samples]


# Samples and instances


def test_what_is_written_is_taken_with_its_states(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader()
    writer.write(Track(1, 5.0))
    (sample,) = reader.read()
    assert sample.data == Track(1, 5.0)
    assert (sample.info.sample_state, sample.info.view_state) == ("not-read", "new")
    assert sample.info.publication_handle == writer.instance_handle
    (again,) = reader.take()
    assert (again.info.sample_state, again.info.view_state) == ("read", "not-new")
    assert reader.take() == []


def test_of_each_instance_the_last_samples_are_kept(ends: Ends) -> None:
    writer = ends.writer()
    last, two, everything = (
        ends.reader(),
        ends.reader(history=dcps.History(depth=2)),
        ends.reader(history=KEEP_ALL),
    )
    for n in range(3):
        writer.write(Track(1, float(n)))
        writer.write(Track(2, float(n)))
    assert values(last.take()) == [(1, 2.0), (2, 2.0)]
    assert values(two.take()) == [(1, 1.0), (1, 2.0), (2, 1.0), (2, 2.0)]
    assert len(everything.take()) == 6


def test_an_instance_is_disposed_of_reborn_and_left(ends: Ends) -> None:
    writer = ends.writer(writer_data_lifecycle=dcps.WriterDataLifecycle(False))
    reader = ends.reader()
    writer.write(Track(1))
    writer.dispose(Track(1))
    assert states(reader.take()) == [(1, "disposed", True), (1, "disposed", False)]
    writer.write(Track(1, 2.0))
    (reborn,) = reader.take()
    assert (reborn.info.instance_state, reborn.info.view_state) == ("alive", "new")
    assert reborn.info.disposed_generation_count == 1
    writer.unregister_instance(Track(1))
    (left,) = reader.take()
    assert (left.info.instance_state, left.info.valid_data) == ("no-writers", False)
    writer.write(Track(1, 3.0))
    assert reader.take()[0].info.no_writers_generation_count == 1


def test_unregistering_disposes_unless_the_policy_says_otherwise(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader()
    writer.write(Track(1))
    writer.unregister_instance(Track(1))
    assert {one.info.instance_state for one in reader.take()} == {"disposed"}
    with pytest.raises(PreconditionNotMet, match="not registered"):
        writer.unregister_instance(Track(1))


def test_handles_name_instances_on_both_sides(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader()
    assert writer.lookup_instance(Track(7)) == reader.lookup_instance(Track(7)) == 0
    handle = writer.register_instance(Track(7))
    writer.write(Track(7, 1.0), handle)
    assert writer.lookup_instance(Track(7)) == handle
    assert writer.get_key_value(handle) == reader.get_key_value(reader.lookup_instance(Track(7))) == (7,)
    with pytest.raises(PreconditionNotMet):
        writer.write(Track(8), handle)
    with pytest.raises(BadParameter):
        reader.read_instance(99)


def test_one_instance_after_the_other_is_read(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    for n in (3, 1, 2):
        writer.write(Track(n))
        writer.write(Track(n, 1.0))
    handle, seen = 0, []
    while samples := reader.read_next_instance(handle):
        handle = samples[0].info.instance_handle
        seen.append(values(samples))
    assert seen == [[(n, 0.0), (n, 1.0)] for n in (3, 1, 2)]
    assert values(reader.take_instance(reader.lookup_instance(Track(1)))) == [(1, 0.0), (1, 1.0)]
    assert values(reader.take_next_instance(0, 1)) == [(3, 0.0)]


def test_ranks_count_what_follows_and_the_generations_between(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    writer.write(Track(1, 0.0))
    writer.dispose(Track(1))
    writer.write(Track(1, 1.0))
    writer.write(Track(1, 2.0))
    valid = [sample.info for sample in reader.read() if sample.info.valid_data]
    assert [info.sample_rank for info in valid] == [3, 1, 0] or [info.sample_rank for info in valid] == [
        2,
        1,
        0,
    ]
    assert [info.generation_rank for info in valid] == [1, 0, 0]
    (first,) = reader.read(1)
    assert (first.info.generation_rank, first.info.absolute_generation_rank) == (0, 1)


def test_reading_is_limited_to_states(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    writer.write(Track(1))
    assert values(reader.read(sample_states=["not-read"])) == [(1, 0.0)]
    assert reader.read(sample_states=["not-read"]) == []
    writer.write(Track(2))
    assert values(reader.read(view_states=["new"])) == [(2, 0.0)]
    writer.dispose(Track(1))
    assert {one.data.id for one in reader.read(instance_states=["disposed"])} == {1}
    assert reader.read_next_sample() is None
    with pytest.raises(BadParameter, match="none of"):
        reader.read(sample_states=["old"])  # type: ignore[list-item]
    with pytest.raises(BadParameter, match="max_samples=0"):
        reader.read(0)


# Entities


def test_what_contains_others_cannot_be_deleted_until_they_are(participant: dcps.DomainParticipant) -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    ends = Ends(participant)
    writer, reader = ends.writer(), ends.reader()
    condition = reader.create_readcondition()
    for delete, one in (
        (factory.delete_participant, participant),
        (participant.delete_topic, ends.topic),
        (participant.delete_publisher, ends.publisher),
        (participant.delete_subscriber, ends.subscriber),
        (ends.subscriber.delete_datareader, reader),
    ):
        with pytest.raises(PreconditionNotMet):
            delete(one)  # type: ignore[arg-type]  # each of its own
    reader.delete_readcondition(condition)
    ends.subscriber.delete_datareader(reader)
    ends.publisher.delete_datawriter(writer)
    participant.delete_publisher(ends.publisher)
    participant.delete_subscriber(ends.subscriber)
    participant.delete_topic(ends.topic)
    with pytest.raises(AlreadyDeleted):
        writer.write(Track(1))


def test_entities_are_enabled_with_their_factory_or_by_hand(participant: dcps.DomainParticipant) -> None:
    by_hand = dcps.EntityFactory(False)
    ends = Ends(participant, dcps.PublisherQos(entity_factory=by_hand))
    writer, reader = ends.writer(), ends.reader()
    with pytest.raises(NotEnabled):
        writer.write(Track(1))
    assert reader.get_subscription_matched_status().current_count == 0
    writer.set_qos(dcps.DataWriterQos(ownership=dcps.Ownership("exclusive")))  # not enabled: all can change
    writer.set_qos(dcps.DataWriterQos())
    writer.enable()
    assert reader.get_subscription_matched_status().current_count == 1
    writer.write(Track(1))
    assert values(reader.take()) == [(1, 0.0)]


def test_policies_that_cannot_change_or_contradict_are_refused(ends: Ends) -> None:
    reader = ends.reader()
    with pytest.raises(ImmutablePolicy, match="history cannot change"):
        reader.set_qos(dcps.DataReaderQos(history=KEEP_ALL))
    bad = dcps.DataReaderQos(deadline=dcps.Deadline(1.0), time_based_filter=dcps.TimeBasedFilter(2.0))
    with pytest.raises(InconsistentPolicy, match=r"time_based_filter\.separation"):
        reader.set_qos(bad)
    with pytest.raises(InconsistentPolicy):
        ends.subscriber.create_datareader(ends.topic, bad)
    with pytest.raises(InconsistentPolicy):
        ends.subscriber.set_default_datareader_qos(bad)
    reader.set_qos(dcps.DataReaderQos(deadline=dcps.Deadline(3.0)))
    assert reader.get_qos().deadline.period == 3.0


@pytest.mark.parametrize(
    "qos",
    [
        {
            "durability": dcps.Durability("persistent"),
            "durability_service": dcps.DurabilityService(cleanup_delay=1.0),
        },
        {
            "durability": dcps.Durability("persistent"),
            "durability_service": dcps.DurabilityService(max_samples=5),
        },
        {
            "durability": dcps.Durability("persistent"),
            "durability_service": dcps.DurabilityService(depth=2),
        },
    ],
)
def test_what_is_not_honoured_is_refused_where_it_is_set(ends: Ends, qos: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        ends.writer(**qos)


def test_multi_topics_are_refused_with_the_reason(participant: dcps.DomainParticipant) -> None:
    with pytest.raises(Unsupported, match=r"hg\.all_of"):
        participant.create_multitopic("a")


def test_a_topics_policies_are_copied_and_defaults_are_set(ends: Ends) -> None:
    topic_qos = dcps.TopicQos(reliability=RELIABLE, history=KEEP_ALL)
    copied = ends.subscriber.copy_from_topic_qos(dcps.DataReaderQos(user_data=dcps.UserData(b"u")), topic_qos)
    assert (copied.reliability, copied.history, copied.user_data.value) == (RELIABLE, KEEP_ALL, b"u")
    ends.subscriber.set_default_datareader_qos(copied)
    assert ends.subscriber.create_datareader(ends.topic).get_qos() == copied
    assert ends.publisher.copy_from_topic_qos(dcps.DataWriterQos(), topic_qos).history == KEEP_ALL


def test_domains_are_apart() -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    with hg.Station() as one, hg.Station() as other:
        participants = [factory.create_participant(n, station=s) for n, s in ((1, one), (2, other))]
        with pytest.raises(PreconditionNotMet, match="takes part in domain 1"):
            factory.create_participant(2, station=one)
        with pytest.raises(BadParameter, match="0 to 232"):
            factory.create_participant(-1)
        ends = [Ends(participant) for participant in participants]
        writer, reader = ends[0].writer(), ends[1].reader()
        writer.write(Track(1))
        assert reader.take() == []
        found = hg.explain(writer, reader)
        assert found.apart == ("the writer is in domain 1, the reader in domain 2",)
        assert factory.lookup_participant(2) is participants[1]
        for participant in participants:
            participant.delete_contained_entities()
            factory.delete_participant(participant)


# Statuses


def test_publication_matched_and_subscription_matched_count_who_comes_and_goes(ends: Ends) -> None:
    writer = ends.writer()
    first, second = ends.reader(), ends.reader()
    ends.subscriber.delete_datareader(first)
    status = writer.get_publication_matched_status()
    assert (status.total_count, status.current_count, status.current_count_change) == (2, 1, 1)
    assert writer.get_publication_matched_status().total_count_change == 0
    assert writer.get_matched_subscriptions() == (second.instance_handle,)
    assert second.get_subscription_matched_status().last_handle == writer.instance_handle
    ends.publisher.delete_datawriter(writer)
    after = second.get_subscription_matched_status()
    assert (after.total_count, after.current_count, after.current_count_change) == (1, 0, -1)


def test_incompatible_qos_is_told_to_both_once_with_each_policy(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    writer = ends.writer(deadline=dcps.Deadline(2.0))
    reader = ends.reader(deadline=dcps.Deadline(1.0), durability=dcps.Durability("persistent"))
    offered, requested = (
        writer.get_offered_incompatible_qos_status(),
        reader.get_requested_incompatible_qos_status(),
    )
    for status in (offered, requested):
        assert (status.total_count, status.total_count_change) == (1, 1)
        assert (status.last_policy_id, status.policies) == (2, {2: 1, 4: 1})
    writer.write(Track(1))
    assert reader.take() == []
    assert writer.get_publication_matched_status().total_count == 0
    assert wait_until(lambda: caplog.text.count("deadline (DDS 2.2.3.7): offered 2.0, requested 1.0") == 2)
    assert not hg.explain(writer, reader)


def test_a_mismatch_is_told_to_on_error_at_both_ends() -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    told: queue.Queue[tuple[str, BaseException]] = queue.Queue()
    with hg.Station(on_error=lambda who, _, error: told.put((who, error))) as station:
        participant = factory.create_participant(0, station=station)
        ends = Ends(participant)
        ends.writer(reliability=dcps.Reliability("best-effort"))
        ends.reader(reliability=RELIABLE)
        found = dict(told.get(timeout=LIMIT) for _ in range(2))
        assert set(found) == {"writer of air.tracks", "reader of air.tracks"}
        for error in found.values():
            assert isinstance(error, IncompatibleQos)
            assert error.policies == (11,)
            assert "the writer's reliability.kind='reliable'" in str(error)
        participant.delete_contained_entities()
        factory.delete_participant(participant)


class OtherTrack(hg.Event, name="dcps.track", key="id"):
    """Of the same name, with another type of a field."""

    id: str


def never_met(participant: dcps.DomainParticipant, cause: str) -> None:
    """Make a pair that never meets for this cause."""
    topic = participant.create_topic("air.tracks", Track)
    groups = ("a", "b") if cause == "partition" else ("a", "a")
    publisher = participant.create_publisher(dcps.PublisherQos(partition=dcps.Partition((groups[0],))))
    subscriber = participant.create_subscriber(dcps.SubscriberQos(partition=dcps.Partition((groups[1],))))
    publisher.create_datawriter(topic)
    if cause == "name":
        subscriber.create_datareader(participant.create_topic("air.track", Track))
    elif cause == "filter":
        fast = participant.create_contentfilteredtopic("fast", topic, "speed > 300 AND speed < %0", [100.0])
        subscriber.create_datareader(fast)
    else:
        subscriber.create_datareader(topic)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("partition", "no partition in common: the publisher has 'a', the subscriber 'b'"),
        ("name", "the writer's topic is 'air.tracks', the reader's 'air.track': probably a mistake"),
        ("filter", "lets nothing pass: speed > 300.0 and speed < 100.0 are never both true"),
    ],
)
def test_a_pair_that_never_meets_is_told_of_once_in_the_log_and_on_the_stations_channel(
    caplog: pytest.LogCaptureFixture, cause: str, said: str
) -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    with hg.Station() as station:
        told = station.channel("$station", hg.StationEvent).consumer(where="kind = 'mismatch'")
        participant = factory.create_participant(0, station=station)
        never_met(participant, cause)
        (event,) = told.read(10, LIMIT)
        assert said in event.text
        assert wait_until(lambda: caplog.text.count(said) == 1)
        assert told.read(10, 0) == []
        participant.delete_contained_entities()
        factory.delete_participant(participant)


def test_an_incompatible_pair_is_told_of_on_the_stations_channel() -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    with hg.Station(on_error=lambda *_: None) as station:
        told = station.channel("$station", hg.StationEvent).consumer(where="kind = 'error'")
        participant = factory.create_participant(0, station=station)
        ends = Ends(participant)
        ends.writer(deadline=dcps.Deadline(2.0))
        ends.reader(deadline=dcps.Deadline(1.0))
        texts = [one.text for _ in range(2) for one in told.read(1, LIMIT)]
        assert len(texts) == 2
        assert all("deadline (DDS 2.2.3.7): offered 2.0, requested 1.0" in text for text in texts)
        participant.delete_contained_entities()
        factory.delete_participant(participant)


def test_a_query_that_the_readers_filter_excludes_is_refused(ends: Ends) -> None:
    fast = ends.participant.create_contentfilteredtopic("fast", ends.topic, "speed > 300")
    reader = ends.subscriber.create_datareader(fast)
    with pytest.raises(BadParameter, match="never both true"):
        reader.create_querycondition("speed < %0", [100.0])
    reader.create_querycondition("speed < %0", [400.0])
    fast_and_slow = ends.participant.create_contentfilteredtopic(
        "x", ends.topic, "speed > 3 AND speed < %0", [9.0]
    )
    other = ends.subscriber.create_datareader(fast_and_slow)
    assert other.endpoint.never == ""
    fast_and_slow.set_expression_parameters([1.0])
    assert "never both true" in other.endpoint.never


def test_best_common_changes_as_little_as_will_do_and_says_what_was_granted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    factory = dcps.DomainParticipantFactory.get_instance()
    with hg.Station() as station:
        told = station.channel("$station", hg.StationEvent).consumer(where="kind = 'granted'")
        participant = factory.create_participant(0, station=station)
        ends = Ends(participant)
        writer = ends.writer(deadline=dcps.Deadline(2.0))
        asked = dcps.DataReaderQos(
            durability=dcps.Durability("persistent"), deadline=dcps.Deadline(1.0), history=KEEP_ALL
        )
        reader = ends.subscriber.create_datareader(ends.topic, asked, best_common=True)
        assert reader.get_matched_publications() == (writer.instance_handle,)
        assert [str(one) for one in reader.granted] == [
            "durability.kind: asked for 'persistent', granted 'volatile'",
            "deadline.period: asked for 1.0, granted 2.0",
        ]
        assert reader.get_qos().history == KEEP_ALL
        assert "granted 'volatile'" in told.read(1, LIMIT)[0].text
        same = ends.subscriber.create_datareader(ends.topic, best_common=True)
        assert same.granted == ()
        assert "granted as asked" in told.read(1, LIMIT)[0].text
        reader_of_more = ends.reader(deadline=dcps.Deadline(5.0), destination_order=BY_SOURCE)
        strong = ends.publisher.create_datawriter(
            ends.topic, dcps.DataWriterQos(deadline=dcps.Deadline(9.0)), best_common=True
        )
        assert reader_of_more.instance_handle in strong.get_matched_subscriptions()
        assert strong.get_qos().deadline.period == 2.0
        assert "granted as asked" in caplog.text
        participant.delete_contained_entities()
        factory.delete_participant(participant)


BY_SOURCE = dcps.DestinationOrder("by-source-timestamp")


def test_a_change_of_policy_brings_two_together_and_apart_again(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader(deadline=dcps.Deadline(10.0))
    assert reader.get_requested_incompatible_qos_status().total_count == 1
    writer.set_qos(dcps.DataWriterQos(deadline=dcps.Deadline(9.0)))
    assert hg.explain(writer, reader)
    assert reader.get_subscription_matched_status().current_count == 1
    assert writer.get_publication_matched_status().current_count == 1
    writer.write(Track(1))
    assert values(reader.take()) == [(1, 0.0)]
    writer.set_qos(dcps.DataWriterQos())
    assert reader.get_subscription_matched_status().current_count == 0
    assert reader.get_requested_incompatible_qos_status().total_count == 2


def test_an_inconsistent_topic_is_told_once(participant: dcps.DomainParticipant) -> None:
    factory = dcps.DomainParticipantFactory.get_instance()
    topic = participant.create_topic("air.tracks", Track)
    other = factory.create_participant(0, station=participant.domain.station)
    try:
        theirs = other.create_topic("air.tracks", Plane)
        for one in (topic, theirs):
            assert one.get_inconsistent_topic_status().total_count == 1
            assert one.get_inconsistent_topic_status().total_count_change == 0
    finally:
        other.delete_contained_entities()
        factory.delete_participant(other)


def test_a_full_reader_rejects_and_a_reliable_writer_waits_then_gives_up(ends: Ends) -> None:
    writer = ends.writer(reliability=dcps.Reliability("reliable", 0.05))
    reader = ends.reader(
        reliability=RELIABLE, history=KEEP_ALL, resource_limits=dcps.ResourceLimits(max_samples=2)
    )
    written = 0

    def write_on() -> None:
        nonlocal written
        while written < 10:
            writer.write(Track(1, float(written)))
            written += 1

    with pytest.raises(WriteTimeout, match="no room at a reader"):
        write_on()
    status = reader.get_sample_rejected_status()
    assert (status.total_count, status.last_reason) == (1, "samples")
    assert status.last_instance_handle == reader.lookup_instance(Track(1))
    got: list[tuple[int, float]] = []
    while samples := reader.take():
        got += values(samples)
    assert got == [(1, float(n)) for n in range(written)], "all that was written came, in order"
    writer.write(Track(1, 99.0))
    assert values(reader.take()) == [(1, 99.0)]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (dcps.ResourceLimits(max_instances=1), "instances"),
        (dcps.ResourceLimits(max_samples_per_instance=1), "samples-per-instance"),
    ],
)
def test_a_best_effort_reader_drops_what_it_rejects(
    ends: Ends, limits: dcps.ResourceLimits, reason: str
) -> None:
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL, resource_limits=limits)
    writer.write(Track(1))
    writer.write(Track(1 if reason == "samples-per-instance" else 2))
    assert reader.get_sample_rejected_status().last_reason == reason
    assert values(reader.take()) == [(1, 0.0)]


def test_a_writer_has_a_limit_of_instances(ends: Ends) -> None:
    writer = ends.writer(resource_limits=dcps.ResourceLimits(max_instances=1))
    writer.write(Track(1))
    with pytest.raises(OutOfResources, match="has 1 instances"):
        writer.write(Track(2))
    writer.unregister_instance(Track(1))
    writer.write(Track(2))


def test_deadlines_are_missed_on_both_sides_for_each_instance(ends: Ends) -> None:
    period = dcps.Deadline(0.05)
    writer, reader = ends.writer(deadline=period), ends.reader(deadline=period)
    writer.write(Track(1))
    writer.write(Track(2))
    assert wait_until(lambda: writer.status.peek("offered_deadline_missed").total_count >= 2)
    assert wait_until(lambda: reader.status.peek("requested_deadline_missed").total_count >= 2)
    assert writer.get_offered_deadline_missed_status().last_instance_handle in (1, 2)
    assert reader.get_requested_deadline_missed_status().last_instance_handle in (1, 2)
    writer.dispose(Track(1))
    writer.dispose(Track(2))
    before = reader.get_requested_deadline_missed_status().total_count
    quiet = ends.reader(deadline=dcps.Deadline(0.05))
    writer.write(Track(3))
    assert wait_until(lambda: quiet.status.peek("requested_deadline_missed").total_count >= 2)
    assert quiet.get_requested_deadline_missed_status().last_instance_handle == quiet.lookup_instance(
        Track(3)
    )
    assert before <= reader.get_requested_deadline_missed_status().total_count


@pytest.mark.parametrize("kind", ["manual-by-participant", "manual-by-topic"])
def test_a_manual_writer_that_says_nothing_is_lost_and_comes_back(ends: Ends, kind: Any) -> None:
    liveliness = dcps.Liveliness(kind, 0.1)
    writer, reader = ends.writer(liveliness=liveliness), ends.reader(liveliness=liveliness)
    writer.write(Track(1))
    reader.take()
    assert wait_until(lambda: writer.status.peek("liveliness_lost").total_count >= 1)
    assert wait_until(lambda: reader.status.peek("liveliness_changed").not_alive_count == 1)
    assert wait_until(lambda: reader.read(instance_states=["no-writers"]))
    if kind == "manual-by-topic":
        writer.write(Track(1, 1.0))
    else:
        ends.participant.assert_liveliness()
    assert wait_until(lambda: reader.status.peek("liveliness_changed").alive_count == 1)
    assert writer.get_liveliness_lost_status().total_count_change >= 1


def test_an_automatic_writer_stays_alive(ends: Ends) -> None:
    liveliness = dcps.Liveliness("automatic", 30.0)
    writer, reader = ends.writer(liveliness=liveliness), ends.reader(liveliness=liveliness)
    status = reader.get_liveliness_changed_status()
    assert (status.alive_count, status.last_publication_handle) == (1, writer.instance_handle)
    assert writer.is_asserted(0)
    ends.publisher.delete_datawriter(writer)
    after = reader.get_liveliness_changed_status()
    assert (after.alive_count, after.not_alive_count, after.alive_count_change) == (0, 0, -1)


def test_a_gap_in_what_a_writer_sent_is_a_lost_sample(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader()
    writer.write(Track(1))
    event, header = Track(1, 9.0), writer._supplier.next_header(Track(1))  # type: ignore[union-attr]
    reader._offer(event, msgspec.structs.replace(header, sequence=header.sequence + 3))
    status = reader.get_sample_lost_status()
    assert (status.total_count, status.total_count_change) == (3, 3)


def test_data_available_and_data_on_readers_change_until_data_is_read(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader()
    assert "data_available" not in reader.get_status_changes()
    writer.write(Track(1))
    assert "data_available" in reader.get_status_changes()
    assert "data_on_readers" in ends.subscriber.get_status_changes()
    assert ends.subscriber.get_datareaders() == [reader]
    reader.take()
    assert "data_available" not in reader.get_status_changes()
    assert "data_on_readers" not in ends.subscriber.get_status_changes()
    assert ends.subscriber.get_datareaders() == []


# Listeners and conditions


class Told:
    """A listener that remembers; told of what it has a mask for."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[str, Any]] = queue.Queue()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *given: self.calls.put((name, given))


def test_the_nearest_listener_is_told(participant: dcps.DomainParticipant) -> None:
    outer, middle, inner = Told(), Told(), Told()
    participant.set_listener(outer, ["subscription_matched", "publication_matched", "data_available"])
    topic = participant.create_topic("air.tracks", Track)
    subscriber = participant.create_subscriber(listener=middle, mask=["subscription_matched"])
    reader = subscriber.create_datareader(topic, listener=inner, mask=["data_available"])
    writer = participant.create_publisher().create_datawriter(topic)
    assert middle.calls.get(timeout=LIMIT)[0] == "on_subscription_matched"
    name, (entity, status) = outer.calls.get(timeout=LIMIT)
    assert (name, entity, status.current_count) == ("on_publication_matched", writer, 1)
    writer.write(Track(1))
    assert inner.calls.get(timeout=LIMIT) == ("on_data_available", (reader,))
    assert outer.calls.empty()


def test_data_on_readers_comes_in_the_place_of_data_available(participant: dcps.DomainParticipant) -> None:
    of_subscriber, of_reader = Told(), Told()
    topic = participant.create_topic("air.tracks", Track)
    subscriber = participant.create_subscriber(listener=of_subscriber, mask=["data_on_readers"])
    reader = subscriber.create_datareader(topic, listener=of_reader, mask=["data_available"])
    participant.create_publisher().create_datawriter(topic).write(Track(1))
    assert of_subscriber.calls.get(timeout=LIMIT) == ("on_data_on_readers", (subscriber,))
    assert of_reader.calls.empty()
    subscriber.notify_datareaders()
    assert of_reader.calls.get(timeout=LIMIT) == ("on_data_available", (reader,))


def test_a_listener_that_raises_hurts_nobody(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def on_data_available(self, reader: object) -> None:
            raise ValueError(reader)

    told = Told()
    ends.reader().set_listener(Broken())
    ends.reader().set_listener(told, ["data_available"])
    ends.writer().write(Track(1))
    assert told.calls.get(timeout=LIMIT)[0] == "on_data_available"
    assert wait_until(lambda: "a listener raised" in caplog.text)


def test_a_wait_set_waits_for_any_of_its_conditions(ends: Ends) -> None:
    reader = ends.reader()
    guard, status = dcps.GuardCondition(reader), reader.get_statuscondition()
    status.set_enabled_statuses(["subscription_matched"])
    data = reader.create_readcondition(sample_states=["not-read"])
    waitset = dcps.WaitSet()
    with pytest.raises(PreconditionNotMet, match="attach"):
        waitset.wait(0)
    for condition in (guard, status, data):
        waitset.attach_condition(condition)
    assert waitset.wait(0) == []
    writer = ends.writer()
    assert waitset.wait(LIMIT) == [status]
    reader.get_subscription_matched_status()
    writer.write(Track(1))
    assert waitset.wait(LIMIT) == [data]
    assert values(reader.read_w_condition(data)) == [(1, 0.0)]
    guard.set_trigger_value(True)
    assert waitset.wait(LIMIT) == [guard]
    waitset.detach_condition(guard)
    assert waitset.get_conditions() == (status, data)
    with pytest.raises(BadParameter, match="has no status"):
        status.set_enabled_statuses(["liveliness_lost"])


def test_a_query_condition_asks_for_data_that_meets_a_filter(ends: Ends) -> None:
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    fast = reader.create_querycondition("speed > %0", [300.0])
    writer.write(Track(1, 100.0))
    held = [fast.trigger_value]
    writer.write(Track(2, 400.0))
    held.append(fast.trigger_value)
    assert held == [False, True]
    assert values(reader.take_w_condition(fast)) == [(2, 400.0)]
    fast.set_query_parameters([50.0])
    assert values(reader.read_w_condition(fast)) == [(1, 100.0)]
    assert (fast.get_query_expression(), fast.get_query_parameters()) == ("speed > %0", [50.0])
    with pytest.raises(hg.ExpressionError):
        reader.create_querycondition("sped > 1")


def test_a_content_filtered_topic_has_a_filter_whose_parameters_change(ends: Ends) -> None:
    fast = ends.participant.create_contentfilteredtopic("fast", ends.topic, "speed > %0", [300.0])
    writer, reader = ends.writer(), ends.subscriber.create_datareader(fast)
    writer.write(Track(1, 100.0))
    writer.write(Track(2, 400.0))
    assert values(reader.take()) == [(2, 400.0)]
    fast.set_expression_parameters([50.0])
    writer.write(Track(1, 100.0))
    assert values(reader.take()) == [(1, 100.0)]
    assert reader.get_sample_lost_status().total_count == 0
    assert fast.get_related_topic() is ends.topic
    with pytest.raises(PreconditionNotMet, match="used by a reader"):
        ends.participant.delete_contentfilteredtopic(fast)
    with pytest.raises(hg.ExpressionError):
        ends.participant.create_contentfilteredtopic("bad", ends.topic, "sped > 1")


def test_the_built_in_topics_tell_of_all_entities_and_their_data(participant: dcps.DomainParticipant) -> None:
    participant.set_qos(dcps.DomainParticipantQos(user_data=dcps.UserData(b"p")))
    topic = participant.create_topic("air.tracks", Track, dcps.TopicQos(topic_data=dcps.TopicData(b"t")))
    publisher = participant.create_publisher(dcps.PublisherQos(group_data=dcps.GroupData(b"g")))
    writer = publisher.create_datawriter(topic, dcps.DataWriterQos(user_data=dcps.UserData(b"w")))
    builtin = participant.get_builtin_subscriber()
    found = {}
    for name in ("DCPSParticipant", "DCPSTopic", "DCPSPublication", "DCPSSubscription"):
        reader = builtin.lookup_datareader(name)
        assert reader is not None
        found[name] = [sample.data for sample in reader.read() if sample.info.instance_state == "alive"]
    assert found["DCPSParticipant"][0].policies["user_data"].value == b"p"
    assert found["DCPSTopic"][0].policies["topic_data"].value == b"t"
    (publication,) = found["DCPSPublication"]
    assert (publication.key, publication.topic_name) == (writer.instance_handle, "air.tracks")
    data = {name: publication.policies[name].value for name in ("user_data", "topic_data", "group_data")}
    assert data == {"user_data": b"w", "topic_data": b"t", "group_data": b"g"}
    assert found["DCPSSubscription"] == []
    publisher.delete_datawriter(writer)
    publications = builtin.lookup_datareader("DCPSPublication")
    assert publications is not None
    assert publications.read()[-1].info.instance_state == "disposed"


# Policies


def test_the_strongest_writer_is_heard_until_it_weakens_or_leaves(ends: Ends) -> None:
    exclusive = dcps.Ownership("exclusive")
    reader = ends.reader(ownership=exclusive, history=KEEP_ALL)
    weak = ends.writer(ownership=exclusive, ownership_strength=dcps.OwnershipStrength(1))
    strong = ends.writer(ownership=exclusive, ownership_strength=dcps.OwnershipStrength(5))
    weak.write(Track(1, 1.0))
    strong.write(Track(1, 2.0))
    weak.write(Track(1, 3.0))
    weak.write(Track(2, 4.0))
    assert values(reader.take()) == [(1, 1.0), (1, 2.0), (2, 4.0)]
    strong.set_qos(dcps.DataWriterQos(ownership=exclusive))
    weak.write(Track(1, 5.0))
    strong.write(Track(1, 6.0))
    assert values(reader.take()) == [(1, 5.0)]
    strong.set_qos(dcps.DataWriterQos(ownership=exclusive, ownership_strength=dcps.OwnershipStrength(9)))
    strong.write(Track(1, 7.0))
    weak.write(Track(1, 8.0))
    assert values(reader.take()) == [(1, 7.0)]
    ends.publisher.delete_datawriter(strong)
    reader.take()
    weak.write(Track(1, 9.0))
    assert values(reader.take()) == [(1, 9.0)]


def test_of_a_fast_instance_the_last_value_comes_when_the_separation_is_over(ends: Ends) -> None:
    writer = ends.writer()
    reader = ends.reader(history=KEEP_ALL, time_based_filter=dcps.TimeBasedFilter(0.2))
    for n in range(5):
        writer.write(Track(1, float(n)))
    writer.write(Track(2, 9.0))
    got: list[tuple[int, float]] = []

    def all_came() -> bool:
        got.extend(values(reader.take()))
        return (1, 4.0) in got

    assert wait_until(all_came)
    ours = [speed for number, speed in got if number == 1]
    assert ours[0] == 0.0
    assert ours[-1] == 4.0
    assert (2, 9.0) in got


def test_partitions_join_writers_and_readers_and_change_live(participant: dcps.DomainParticipant) -> None:
    ends = Ends(
        participant,
        dcps.PublisherQos(partition=dcps.Partition(("north",))),
        dcps.SubscriberQos(partition=dcps.Partition(("s*",))),
    )
    writer, reader = ends.writer(), ends.reader()
    writer.write(Track(1))
    assert reader.take() == []
    assert reader.get_requested_incompatible_qos_status().total_count == 0, "apart is not incompatible"
    assert "no partition in common" in str(hg.explain(writer, reader))
    ends.publisher.set_qos(dcps.PublisherQos(partition=dcps.Partition(("south",))))
    writer.write(Track(2))
    assert values(reader.take()) == [(2, 0.0)]
    ends.subscriber.set_qos(dcps.SubscriberQos(partition=dcps.Partition(("n*",))))
    assert reader.get_subscription_matched_status().current_count == 0
    writer.write(Track(3))
    assert values(reader.take()) == []


def test_readers_agree_on_the_last_value_by_source_time(ends: Ends) -> None:
    order = dcps.DestinationOrder("by-source-timestamp")
    writers = [ends.writer(destination_order=order) for _ in range(2)]
    reader, late = (ends.reader(destination_order=order) for _ in range(2))
    arrival = ends.reader()
    writers[0].write(Track(1, 1.0), source_timestamp=2_000)
    late.take()
    writers[1].write(Track(1, 2.0), source_timestamp=1_000)
    assert values(reader.take()) == [(1, 1.0)]
    assert values(late.take()) == [], "older than what was handed out"
    assert values(arrival.take()) == [(1, 2.0)]


def test_a_sample_is_gone_when_its_lifespan_is_over(ends: Ends) -> None:
    writer = ends.writer(lifespan=dcps.Lifespan(0.05))
    reader = ends.reader(history=KEEP_ALL)
    writer.write(Track(1))
    assert wait_until(lambda: not reader.read())
    writer.write(Track(2), source_timestamp=ends.participant.get_current_time() - 10**9)
    assert reader.take() == [], "it was too old when it came"


def test_a_coherent_set_is_seen_whole_or_not_at_all(participant: dcps.DomainParticipant) -> None:
    coherent = dcps.Presentation("topic", coherent=True)
    ends = Ends(
        participant, dcps.PublisherQos(presentation=coherent), dcps.SubscriberQos(presentation=coherent)
    )
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    ends.publisher.begin_coherent_changes()
    writer.write(Track(1))
    writer.write(Track(2))
    assert reader.take() == []
    ends.publisher.end_coherent_changes()
    assert values(reader.take()) == [(1, 0.0), (2, 0.0)]
    writer.write_part(Track(3), "write", CoherentPart(7, 0, 2), 1)
    assert reader.take() == [], "the second half never came"
    ends.publisher.delete_datawriter(writer)
    assert 3 not in {sample.data.id for sample in reader.take() if sample.info.valid_data}
    with pytest.raises(PreconditionNotMet, match="begin_coherent_changes"):
        ends.publisher.end_coherent_changes()


GROUP = dcps.Presentation("group", coherent=True, ordered=True)


class TwoTopics:
    """A publisher and a subscriber with access by group, and a writer and a reader of two topics each."""

    def __init__(self, participant: dcps.DomainParticipant, **reader: Any) -> None:
        self.publisher = participant.create_publisher(dcps.PublisherQos(presentation=GROUP))
        self.subscriber = participant.create_subscriber(dcps.SubscriberQos(presentation=GROUP))
        topics = [participant.create_topic(name, Track) for name in ("air.one", "air.two")]
        self.writers = [self.publisher.create_datawriter(topic) for topic in topics]
        qos = dcps.DataReaderQos(**{"history": KEEP_ALL, "reliability": RELIABLE, **reader})
        self.readers = [self.subscriber.create_datareader(topic, qos) for topic in topics]

    def write_set(self, *places: int) -> None:
        """One sample for each place, with its number, of the writer of that place."""
        self.publisher.begin_coherent_changes()
        for n, place in enumerate(places):
            self.writers[place].write(Track(n, float(n)))
        self.publisher.end_coherent_changes()

    def write_until_timeout(self, most: int) -> int:
        """How many sets it wrote before there was no room in time."""
        for number in range(most):
            try:
                self.write_set(0, 1)
            except WriteTimeout:
                return number
        return most

    def seen(self) -> list[tuple[int, float]]:
        """All samples in the order of the group: which reader, and the value."""
        self.subscriber.begin_access()
        found = [
            (self.readers.index(reader), sample.data.speed)
            for reader in self.subscriber.get_datareaders()
            for sample in reader.take(1)
            if sample.info.valid_data
        ]
        self.subscriber.end_access()
        return found


def test_a_set_of_a_group_is_seen_by_all_readers_or_by_none(participant: dcps.DomainParticipant) -> None:
    two = TwoTopics(participant)
    with pytest.raises(PreconditionNotMet, match="begin_access"):
        two.readers[0].take()
    two.write_set(0, 1, 1, 0)
    assert two.seen() == [(0, 0.0), (1, 1.0), (1, 2.0), (0, 3.0)]
    number = participant.domain.next_set()
    group = tuple((writer.instance_handle.rpartition(".")[2], 1) for writer in two.writers)
    part = CoherentPart(number, 0, 1, group)
    two.writers[0].write_part(Track(9), "write", part, 1)
    assert two.seen() == [], "half of it is here"
    two.writers[1].write_part(Track(9), "write", part, 1)
    assert sorted(two.seen()) == [(0, 0.0), (1, 0.0)]


def test_a_set_that_comes_during_an_access_is_seen_in_the_next(participant: dcps.DomainParticipant) -> None:
    two = TwoTopics(participant)
    two.subscriber.begin_access()
    assert two.readers[0].take() == []
    two.write_set(0, 1)
    assert two.readers[1].take() == [], "the other half would be missed"
    two.subscriber.end_access()
    assert two.seen() == [(0, 0.0), (1, 1.0)]
    with pytest.raises(PreconditionNotMet, match="begin_access"):
        two.subscriber.end_access()


def test_a_set_of_a_group_waits_until_there_is_room_for_all_of_it(
    participant: dcps.DomainParticipant,
) -> None:
    two = TwoTopics(participant, resource_limits=dcps.ResourceLimits(max_samples=2))
    two.write_set(0, 1, 1)
    two.write_set(0, 1)
    two.subscriber.begin_access()
    assert [len(reader.read()) for reader in two.readers] == [1, 2]
    two.subscriber.end_access()
    assert two.seen() == [(0, 0.0), (1, 1.0), (1, 2.0)]
    assert two.seen() == [(0, 0.0), (1, 1.0)]
    rejected = [reader.get_sample_rejected_status().total_count for reader in two.readers]
    assert sum(rejected) == 1


def test_sets_that_come_during_an_access_wait_within_the_limits_and_none_is_lost(
    participant: dcps.DomainParticipant,
) -> None:
    two = TwoTopics(participant, resource_limits=dcps.ResourceLimits(max_samples=2))
    two.subscriber.begin_access()
    written = two.write_until_timeout(50)
    assert written < 50
    assert sum(reader.get_sample_rejected_status().total_count for reader in two.readers) > 0
    two.subscriber.end_access()
    two.subscriber.begin_access()
    assert [len(reader.read()) for reader in two.readers] == [2, 2], "as many as there is room for"
    two.subscriber.end_access()
    got: list[tuple[int, float]] = []

    def came(sets: int) -> bool:
        got.extend(two.seen())
        return len(got) >= 2 * sets

    assert wait_until(lambda: came(written)), got
    two.write_set(0, 1)
    assert wait_until(lambda: came(written + 1)), got
    assert sorted(got) == [(0, 0.0)] * (written + 1) + [(1, 1.0)] * (written + 1)


def test_a_set_that_no_empty_cache_could_hold_is_rejected_whole(participant: dcps.DomainParticipant) -> None:
    two = TwoTopics(participant, resource_limits=dcps.ResourceLimits(max_samples=2))
    two.write_set(0, 1, 1, 1)
    assert two.seen() == []
    two.write_set(0, 1)
    assert two.seen() == [(0, 0.0), (1, 1.0)], "nobody waits for what can never come"


def test_disposal_is_part_of_a_coherent_set(participant: dcps.DomainParticipant) -> None:
    coherent = dcps.Presentation("topic", coherent=True)
    ends = Ends(
        participant, dcps.PublisherQos(presentation=coherent), dcps.SubscriberQos(presentation=coherent)
    )
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    writer.write(Track(1))
    ends.publisher.begin_coherent_changes()
    writer.write(Track(2))
    writer.dispose(Track(1))
    assert states(reader.read()) == [(1, "alive", True)]
    ends.publisher.end_coherent_changes()
    assert states(reader.take()) == [(1, "disposed", True), (1, "disposed", False), (2, "alive", True)]


@pytest.mark.parametrize("limit", ["max_samples", "max_samples_per_instance", "max_instances"])
def test_a_set_beyond_the_limits_enters_whole_or_not_at_all(
    participant: dcps.DomainParticipant, limit: str
) -> None:
    coherent = dcps.Presentation("topic", coherent=True)
    ends = Ends(
        participant, dcps.PublisherQos(presentation=coherent), dcps.SubscriberQos(presentation=coherent)
    )
    limits = dcps.ResourceLimits(**{limit: 2})
    writer = ends.writer()
    reader = ends.reader(history=KEEP_ALL, reliability=RELIABLE, resource_limits=limits)
    ends.publisher.begin_coherent_changes()
    for n in range(3):
        writer.write(Track(1 if limit == "max_samples_per_instance" else n, float(n)))
    ends.publisher.end_coherent_changes()
    assert reader.take() == []
    assert reader.get_sample_rejected_status().total_count == 3
    writer.write(Track(7))
    assert values(reader.take()) == [(7, 0.0)], "what follows is not held up"


def test_ordered_access_gives_samples_in_the_order_of_writing(participant: dcps.DomainParticipant) -> None:
    ordered = dcps.Presentation("topic", ordered=True)
    ends = Ends(
        participant, dcps.PublisherQos(presentation=ordered), dcps.SubscriberQos(presentation=ordered)
    )
    writer, reader = ends.writer(), ends.reader(history=KEEP_ALL)
    for n in range(4):
        writer.write(Track(n % 2, float(n)))
    assert [speed for _, speed in values(reader.take())] == [0.0, 1.0, 2.0, 3.0]


def test_a_late_joiner_gets_what_the_durability_keeps(ends: Ends) -> None:
    kept = dcps.Durability("transient-local")
    volatile = ends.writer()
    writer = ends.writer(durability=kept, history=dcps.History(depth=2))
    for n in range(4):
        volatile.write(Track(1, float(n)))
        writer.write(Track(2, float(n)))
    late = ends.reader(durability=kept, reliability=RELIABLE, history=KEEP_ALL)
    assert values(late.take()) == [(2, 2.0), (2, 3.0)]
    assert ends.reader(history=KEEP_ALL).take() == [], "a volatile reader gets what is written from now on"
    ends.publisher.delete_datawriter(writer)
    assert values(ends.reader(durability=dcps.Durability("transient-local")).take()) == []


def test_transient_samples_outlive_their_writer(ends: Ends) -> None:
    kept = dcps.Durability("transient")
    writer = ends.writer(
        durability=kept,
        durability_service=dcps.DurabilityService(depth=2),
        writer_data_lifecycle=dcps.WriterDataLifecycle(False),
    )
    for n in range(4):
        writer.write(Track(1, float(n)))
    ends.publisher.delete_datawriter(writer)
    late = ends.reader(durability=dcps.Durability("transient-local"), history=KEEP_ALL)
    ends.writer(durability=kept, durability_service=dcps.DurabilityService(depth=2))
    samples = late.take()
    assert values(samples) == [(1, 2.0), (1, 3.0)]
    assert {sample.info.instance_state for sample in samples} == {"no-writers"}


def transient(ends: Ends, **service: Any) -> dcps.DataWriter[Track]:
    return ends.writer(
        durability=dcps.Durability("transient"), durability_service=dcps.DurabilityService(**service)
    )


def late(ends: Ends) -> list[dcps.Sample[Track]]:
    return ends.reader(durability=dcps.Durability("transient"), reliability=RELIABLE, history=KEEP_ALL).take()


def test_what_is_over_is_forgotten_by_the_durability_service_after_its_delay(ends: Ends) -> None:
    at_once, later, never = (transient(ends, cleanup_delay=delay) for delay in (0.0, 0.2, None))
    for number, writer in enumerate((at_once, later, never)):
        writer.write(Track(number))
        writer.dispose(Track(number))
    assert {one.data.id for one in late(ends)} == {0, 1, 2}, "writers may write it again"
    for number, writer in enumerate((at_once, later, never)):
        writer.unregister_instance(Track(number))
    assert {one.data.id for one in late(ends)} == {1, 2}
    assert {one.info.instance_state for one in late(ends)} == {"disposed"}
    assert wait_until(lambda: {one.data.id for one in late(ends)} == {2})


def test_the_limits_of_the_durability_service_are_kept(ends: Ends) -> None:
    many = transient(ends, history="keep-all", max_samples=3)
    for n in range(5):
        many.write(Track(n % 2, float(n)))
    assert sorted(values(late(ends))) == [(0, 2.0), (0, 4.0), (1, 3.0)], "the oldest are forgotten"
    few = transient(ends, max_instances=1)
    few.write(Track(7))
    few.write(Track(8))
    each = transient(ends, history="keep-all", max_samples_per_instance=2)
    for n in range(4):
        each.write(Track(9, float(n)))
    found = values(late(ends))
    assert (7, 0.0) in found
    assert (8, 0.0) not in found
    assert [speed for number, speed in found if number == 9] == [2.0, 3.0]


def test_the_samples_of_a_writer_that_is_gone_are_of_one_generation(ends: Ends) -> None:
    writer = ends.writer(
        durability=dcps.Durability("transient"),
        durability_service=dcps.DurabilityService(history="keep-all"),
        writer_data_lifecycle=dcps.WriterDataLifecycle(False),
    )
    for n in range(3):
        writer.write(Track(1, float(n)))
    ends.publisher.delete_datawriter(writer)
    reader = ends.reader(durability=dcps.Durability("transient"), history=KEEP_ALL)
    ends.writer(
        durability=dcps.Durability("transient"),
        durability_service=dcps.DurabilityService(history="keep-all"),
    )
    samples = reader.take()
    assert values(samples) == [(1, 0.0), (1, 1.0), (1, 2.0)]
    assert {one.info.no_writers_generation_count for one in samples} == {0}
    assert {one.info.instance_state for one in samples} == {"no-writers"}


def test_transient_samples_expire_though_their_writer_is_gone(ends: Ends) -> None:
    writer = ends.writer(
        durability=dcps.Durability("transient"),
        lifespan=dcps.Lifespan(0.3),
        writer_data_lifecycle=dcps.WriterDataLifecycle(False),
    )
    with pytest.raises(Unsupported, match="cannot change"):
        writer.set_qos(msgspec.structs.replace(writer.get_qos(), lifespan=dcps.Lifespan(1.0)))
    writer.write(Track(1))
    ends.publisher.delete_datawriter(writer)
    again = ends.writer(durability=dcps.Durability("transient"), lifespan=dcps.Lifespan(0.3))
    assert wait_until(lambda: not values(late(ends)))
    again.write(Track(2))
    assert values(late(ends)) == [(2, 0.0)]


def test_what_a_writer_keeps_for_late_joiners_is_within_its_limits(ends: Ends) -> None:
    kept = dcps.Durability("transient-local")
    writer = ends.writer(durability=kept, resource_limits=dcps.ResourceLimits(max_samples=2))
    writer.write(Track(1))
    writer.write(Track(2))
    writer.write(Track(2, 1.0))
    with pytest.raises(OutOfResources, match="keeps 2 samples"):
        writer.write(Track(3))
    writer.unregister_instance(Track(1))
    writer.write(Track(3))
    each = ends.writer(
        durability=kept, history=KEEP_ALL, resource_limits=dcps.ResourceLimits(max_samples_per_instance=1)
    )
    each.write(Track(5))
    with pytest.raises(OutOfResources, match="max_samples_per_instance"):
        each.write(Track(5, 1.0))
    each.write(Track(6))


@pytest.mark.parametrize("limit", ["max_samples", "max_samples_per_instance"])
def test_a_writer_waits_while_its_limit_of_samples_is_not_at_readers(ends: Ends, limit: str) -> None:
    reader = ends.reader(
        history=KEEP_ALL,
        reliability=RELIABLE,
        resource_limits=dcps.ResourceLimits(max_samples_per_instance=1),
    )
    writer = ends.writer(
        reliability=dcps.Reliability("reliable", 0.05), resource_limits=dcps.ResourceLimits(**{limit: 2})
    )
    for n in range(3):
        writer.write(Track(1, float(n)))
    with pytest.raises(WriteTimeout, match="not at all readers"):
        writer.write(Track(1, 3.0))
    first = values(reader.take())
    writer.write(Track(1, 9.0))
    got: list[tuple[int, float]] = []

    def last_came() -> bool:
        got.extend(values(reader.take()))
        return (1, 9.0) in got

    assert wait_until(last_came)
    assert first + got == [(1, n) for n in (0.0, 1.0, 2.0, 9.0)]


def test_a_topic_whose_channel_is_open_in_another_way_is_refused_and_not_matched(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    kept = dcps.Durability("transient-local")
    station = ends.participant.domain.station
    station.channel("air.tracks@transient-local-1", Track, qos=hg.QoS(queue=7))
    with pytest.raises(hg.NotPossible, match="is open with"):
        ends.writer(durability=kept)
    assert ends.publisher.contained == ()
    reader = ends.reader(durability=kept)
    assert reader.get_subscription_matched_status().current_count == 0
    assert "transient-local" not in caplog.text


def test_an_instance_that_is_over_is_forgotten_after_a_while(ends: Ends) -> None:
    writer = ends.writer()
    reader = ends.reader(reader_data_lifecycle=dcps.ReaderDataLifecycle(autopurge_disposed=0.05))
    writer.write(Track(1))
    writer.dispose(Track(1))
    assert wait_until(lambda: reader.lookup_instance(Track(1)) == 0)


def test_transport_priority_is_the_priority_of_events(ends: Ends) -> None:
    channel = ends.topic.channel()
    headers: queue.Queue[hg.Header] = queue.Queue()
    channel.subscribe(lambda _, header: headers.put(header))
    writer = ends.writer(transport_priority=dcps.TransportPriority(7))
    writer.write(Track(1))
    assert headers.get(timeout=LIMIT).priority == 5
    writer.set_qos(dcps.DataWriterQos(transport_priority=dcps.TransportPriority(-1)))
    writer.write(Track(1))
    assert headers.get(timeout=LIMIT).priority == 2


def test_samples_wait_together_within_their_latency_budget(ends: Ends) -> None:
    writer = ends.writer(latency_budget=dcps.LatencyBudget(1_000.0))
    reader = ends.reader(latency_budget=dcps.LatencyBudget(1_000.0), history=KEEP_ALL)
    assert ends.reader().get_requested_incompatible_qos_status().last_policy_id == 5
    for n in range(3):
        writer.write(Track(n % 2, float(n)))
    assert reader.take() == [], "the budget is not used up"
    writer.dispose(Track(1))
    assert values(reader.take()) == [(0, 0.0), (0, 2.0), (1, 1.0)], "what came before goes before"
    for n in range(300):
        writer.write(Track(5, float(n)))
    assert len(reader.take()) == 256, "so many are sent at once, whatever the budget"
    assert writer.wait_for_acknowledgments(LIMIT)
    assert values(reader.take()) == [(5, float(n)) for n in range(256, 300)]
    writer.write(Track(6))
    ends.publisher.delete_datawriter(writer)
    assert (6, 0.0) in values(reader.take())


def test_a_latency_budget_ends_by_itself(ends: Ends) -> None:
    budget = dcps.LatencyBudget(0.02)
    writer, reader = ends.writer(latency_budget=budget), ends.reader(latency_budget=budget, history=KEEP_ALL)
    for n in range(10):
        writer.write(Track(1, float(n)))
    got: list[tuple[int, float]] = []

    def all_came() -> bool:
        got.extend(values(reader.take()))
        return len(got) == 10

    assert wait_until(all_came)
    assert got == [(1, float(n)) for n in range(10)]


def test_a_batch_that_finds_no_room_is_reported(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    budget = dcps.LatencyBudget(0.02)
    writer = ends.writer(latency_budget=budget, reliability=dcps.Reliability("reliable", 0.0))
    ends.reader(
        latency_budget=budget,
        reliability=RELIABLE,
        history=KEEP_ALL,
        resource_limits=dcps.ResourceLimits(max_samples=1),
    )
    for n in range(10):
        writer.write(Track(1, float(n)))
    assert wait_until(lambda: "no room at a reader" in caplog.text)


def test_a_topic_is_a_channel_that_plain_programs_use(ends: Ends) -> None:
    """A channel that a program has open as it likes is used as it is."""
    plain = ends.participant.domain.station.channel("air.planes", Plane)
    with plain.consumer() as consumer:
        topic = ends.participant.create_topic("air.planes", Plane)
        writer = ends.publisher.create_datawriter(topic)
        writer.write(Plane(7))
        assert consumer.pull(LIMIT) == Plane(7)
        assert writer.wait_for_acknowledgments(LIMIT)
