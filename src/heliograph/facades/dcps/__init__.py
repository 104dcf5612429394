"""The vocabulary of DDS (OMG DDS 1.4, DCPS), as a face of channels.

    from heliograph.facades import dcps

    participant = dcps.DomainParticipantFactory.get_instance().create_participant(0)
    topic = participant.create_topic("air.tracks", Track)
    writer = participant.create_publisher().create_datawriter(topic)
    reader = participant.create_subscriber().create_datareader(topic)
    writer.write(Track(id=7, speed=410.0))
    for sample in reader.take(): print(sample.data, sample.info.instance_state)

A domain is the stations of one domain name, a topic is a channel, a writer one of its suppliers, a reader one
of its receivers with a cache of instances (`heliograph.channel.queueing.reader_cache`). What is written
travels as the channel's events do. Names are the standard's, in Python's style: states and kinds are words,
times are seconds (None for infinite), NO_DATA is an empty list, other return codes are errors. Which policy
is honoured where, and what is refused, is in docs/reference/qos.md.
"""

from __future__ import annotations

from heliograph.channel.queueing.reader_cache import SampleInfo
from heliograph.facades.dcps.builtin import BuiltinReader, BuiltinSample, BuiltinSubscriber, BuiltinTopicData
from heliograph.facades.dcps.conditions import (
    Condition,
    GuardCondition,
    QueryCondition,
    ReadCondition,
    StatusCondition,
    WaitSet,
)
from heliograph.facades.dcps.participant import DomainParticipant, DomainParticipantFactory
from heliograph.facades.dcps.profiles import QosProfile, load_profiles
from heliograph.facades.dcps.publisher import Publisher
from heliograph.facades.dcps.reader import DataReader, Sample
from heliograph.facades.dcps.subscriber import Subscriber
from heliograph.facades.dcps.topic import ContentFilteredTopic, Topic
from heliograph.facades.dcps.writer import DataWriter
from heliograph.qos.dds_policies import (
    DataReaderQos,
    DataWriterQos,
    Deadline,
    DestinationOrder,
    DomainParticipantFactoryQos,
    DomainParticipantQos,
    Durability,
    DurabilityService,
    EntityFactory,
    GroupData,
    History,
    LatencyBudget,
    Lifespan,
    Liveliness,
    Ownership,
    OwnershipStrength,
    Partition,
    Presentation,
    PublisherQos,
    ReaderDataLifecycle,
    Reliability,
    ResourceLimits,
    SubscriberQos,
    TimeBasedFilter,
    TopicData,
    TopicQos,
    TransportPriority,
    UserData,
    WriterDataLifecycle,
)

__all__ = [
    "BuiltinReader",
    "BuiltinSample",
    "BuiltinSubscriber",
    "BuiltinTopicData",
    "Condition",
    "ContentFilteredTopic",
    "DataReader",
    "DataReaderQos",
    "DataWriter",
    "DataWriterQos",
    "Deadline",
    "DestinationOrder",
    "DomainParticipant",
    "DomainParticipantFactory",
    "DomainParticipantFactoryQos",
    "DomainParticipantQos",
    "Durability",
    "DurabilityService",
    "EntityFactory",
    "GroupData",
    "GuardCondition",
    "History",
    "LatencyBudget",
    "Lifespan",
    "Liveliness",
    "Ownership",
    "OwnershipStrength",
    "Partition",
    "Presentation",
    "Publisher",
    "PublisherQos",
    "QosProfile",
    "QueryCondition",
    "ReadCondition",
    "ReaderDataLifecycle",
    "Reliability",
    "ResourceLimits",
    "Sample",
    "SampleInfo",
    "StatusCondition",
    "Subscriber",
    "SubscriberQos",
    "TimeBasedFilter",
    "Topic",
    "TopicData",
    "TopicQos",
    "TransportPriority",
    "UserData",
    "WaitSet",
    "WriterDataLifecycle",
    "load_profiles",
]
