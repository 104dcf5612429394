"""Options of `format("heliograph")`: what they mean, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heliograph.errors import InvalidOption
from heliograph.spark.sink.options import parse_sink_options
from heliograph.spark.source.options import Points, parse_options

LEAST = {"path": "data", "channel": "air.tracks"}


def test_what_is_not_said_has_the_defaults_of_the_kafka_source() -> None:
    stream, batch = (parse_options(LEAST, stream=stream) for stream in (True, False))
    assert stream.channels == ("air.tracks",)
    assert stream.starting == Points(named="latest")
    assert (batch.starting, batch.ending) == (Points(named="earliest"), Points(named="latest"))
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert (stream.mode, stream.evolution, stream.bad_records) == ("typed", "fail", "fail")


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("maxEventsPerTrigger", "10", "max_events", 10),
        ("MAXBYTESPERTRIGGER", "64m", "max_bytes", 64 << 20),
        ("maxBytesPerTrigger", "500", "max_bytes", 500),
        ("minPartitions", "8", "min_tasks", 8),
        ("maxEventsPerPartition", "1000", "max_in_task", 1000),
        ("minEventsPerTrigger", "7", "min_events", 7),
        ("types", "a, b", "types", ("a", "b")),
        ("mode", "Envelope", "mode", "envelope"),
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("includeHeaders", "true", "include_headers", True),
        ("schemaEvolution", "rescue", "evolution", "rescue"),
        ("badRecords", "column", "bad_records", "column"),
        ("startingOffsets", "latest", "starting", Points(named="latest")),
        ("startingOffsets", '{"c": {"p": 3}}', "starting", Points(offsets={"c": {"p": 3}})),
        (
            "startingOffsets",
            '{"c": {"p": {"epoch": 1, "offset": 9, "from": 4}}}',
            "starting",
            Points(offsets={"c": {"p": 9}}),
        ),
        ("startingTimestamp", "1700000000123", "starting", Points(time_ns=1_700_000_000_123_000_000)),
        (
            "startingTimestamp",
            "2023-11-14T22:13:20+00:00",
            "starting",
            Points(time_ns=1_700_000_000_000_000_000),
        ),
        (
            "startingOffsetsByTimestamp",
            '{"c": {"p": 5}}',
            "starting",
            Points(times_ns={"c": {"p": 5_000_000}}),
        ),
    ],
)
def test_a_value_is_taken_as_it_is_meant(option: str, value: str, field: str, expected: Any) -> None:
    assert getattr(parse_options({**LEAST, option: value}, stream=True), field) == expected


def test_a_time_outranks_times_of_partitions_and_those_outrank_offsets() -> None:
    said = {
        **LEAST,
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": "{}",
        "startingTimestamp": "0",
    }
    assert parse_options(said, stream=True).starting == Points(time_ns=0)
    del said["startingTimestamp"]
    assert parse_options(said, stream=True).starting == Points(times_ns={})


def test_partitions_can_be_assigned() -> None:
    said = {"path": "data", "assign": '{"air.tracks": ["p1", "p2"]}'}
    assert parse_options(said, stream=False).assigned == {"air.tracks": ("p1", "p2")}


def test_a_time_that_no_event_is_as_late_as_means_the_end_or_is_refused() -> None:
    said = {**LEAST, "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "error"}
    assert parse_options(said, stream=False).starting == Points(time_ns=5_000_000, insists=True)
    said["startingOffsetsByTimestampStrategy"] = "latest"
    assert parse_options(said, stream=False).starting == Points(time_ns=5_000_000)


def test_delays_are_written_as_spark_writes_them() -> None:
    for text, seconds in {"500ms": 0.5, "2s": 2.0, "15m": 900.0, "1 h": 3600.0, "1d": 86400.0}.items():
        said = {**LEAST, "minEventsPerTrigger": "5", "maxTriggerDelay": text}
        assert parse_options(said, stream=True).max_delay == seconds


@pytest.mark.parametrize(
    ("said", "stream", "sentence"),
    [
        ({"channel": "c"}, True, "'path' is missing"),
        ({"path": "d"}, True, "'channel' is missing"),
        ({**LEAST, "subscribe": "b"}, True, "one of channel, subscribe, subscribePattern"),
        ({**LEAST, "channels": "b"}, True, "there is no option 'channels'; did you mean 'channel'?"),
        ({**LEAST, "zzz": "b"}, False, "there is no option 'zzz'; there are path, channel"),
        ({**LEAST, "endingOffsets": "latest"}, True, "it is for batch reads only"),
        ({**LEAST, "maxEventsPerTrigger": "1"}, False, "it is for streams only"),
        ({**LEAST, "where": "id > 1", "filter": "id > 2"}, True, "it once"),
        ({**LEAST, "timestampAsOf": "2026-01-01"}, False, "did you mean 'endingTimestamp'"),
        ({**LEAST, "versionAsOf": "5"}, False, "did you mean 'endingOffsets'"),
        ({**LEAST, "start": "5", "startingOffsets": "earliest"}, True, "either start or startingOffsets"),
        ({**LEAST, "until": "tomorrow"}, False, "earliest, latest, now, an offset, a time"),
        ({**LEAST, "until": "5"}, True, "batch reads"),
        ({**LEAST, "maxEventsPerTrigger": "0"}, True, "a whole number from 1 on"),
        ({**LEAST, "maxBytesPerTrigger": "many"}, True, "64m"),
        ({**LEAST, "failOnDataLoss": "yes"}, True, "true or false"),
        ({**LEAST, "mode": "json"}, True, "typed or envelope"),
        ({**LEAST, "schemaEvolution": "none"}, True, "ignore or fail or rescue"),
        ({**LEAST, "badRecords": "drop"}, True, "fail or skip or column"),
        ({**LEAST, "startingOffsets": "now"}, True, "earliest, latest, or JSON"),
        ({**LEAST, "startingOffsets": '{"c": {"p": -3}}'}, True, "-2 is the earliest"),
        ({**LEAST, "startingTimestamp": "2026-01-01"}, True, "a time with its zone"),
        ({**LEAST, "startingOffsetsByTimestamp": '{"c": 5}'}, True, "in milliseconds since 1970"),
        ({**LEAST, "maxTriggerDelay": "5s"}, True, "'minEventsPerTrigger' is missing"),
        ({**LEAST, "minEventsPerTrigger": "9", "maxEventsPerTrigger": "3"}, True, "at most"),
        ({**LEAST, "params": "{}"}, True, "'filter' is missing"),
        ({**LEAST, "assign": '{"c": ["p"]}'}, True, "one of channel, subscribe, subscribePattern, assign"),
        ({"path": "d", "assign": '{"c": []}'}, True, "a partition for each channel"),
        ({"path": "d", "assign": "{}"}, True, "a partition for each channel"),
        ({**LEAST, "minPartitions": "0"}, True, "a whole number from 1 on"),
        ({**LEAST, "maxEventsPerPartition": "many"}, False, "a whole number from 1 on"),
        ({**LEAST, "maxOffsetsPerTrigger": "5"}, True, "maxEventsPerTrigger"),
        (
            {**LEAST, "startingOffsetsByTimestampStrategy": "latest"},
            True,
            "'startingTimestamp' is missing",
        ),
        (
            {**LEAST, "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "never"},
            True,
            "latest or error",
        ),
        ({"path": "d", "subscribe": "a,,b"}, True, "names with commas"),
        ({"path": "d", "subscribePattern": "("}, True, "a regular expression"),
        ({"path": "", "channel": "c"}, True, "not empty"),
        ({"path": "hdfs://host/data", "channel": "c"}, True, "a folder that the driver and all workers see"),
        ({"path": "file://elsewhere/data", "channel": "c"}, True, "a folder that the driver and all workers"),
        ({"channel": "c", "paths": '["a", "b"]'}, False, "'path' is one folder"),
        ({"provider": "heliograph", "owner": "me"}, False, "leave the columns out"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(said: dict[str, str], stream: bool, sentence: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_options(said, stream=stream)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("data", "data"),
        ("file:/var/my%20data", "/var/my data"),
        ("file:///var/data", "/var/data"),
        ("file://localhost/var/data", "/var/data"),
        ("a:b", "a:b"),
    ],
)
def test_a_folder_is_a_path_or_the_url_that_spark_makes_of_one(given: str, path: str) -> None:
    assert parse_options({"path": given, "channel": "c"}, stream=True).path == path
    assert parse_sink_options({"path": given, "channel": "c"}, stream=False).path == path


def test_what_spark_itself_gives_to_every_source_is_passed_over() -> None:
    own = {"queryName": "q", "checkpointLocation": "c", "location": "file:/x", "owner": "me", "provider": "p"}
    own |= {"option.channel": "c", "comment": "tracks"}
    assert parse_options({**LEAST, **own}, stream=None) == parse_options(LEAST, stream=None)
    assert parse_sink_options({**LEAST, **own}, stream=False) == parse_sink_options(LEAST, stream=False)


def test_columns_can_be_asked_for_before_it_is_known_which_kind_of_read_it_will_be() -> None:
    said = {**LEAST, "endingOffsets": "latest", "maxEventsPerTrigger": "5"}
    assert parse_options(said, stream=None).max_events == 5


def test_the_words_of_read_are_taken_too() -> None:
    said = {"folder": "data", "channel": "c", "where": "id > 1", "columns": "envelope",
            "fail_on_data_loss": "false", "start": "7", "until": "now"}  # fmt: skip
    options = parse_options(said, stream=False)
    same = {"path": "data", "channel": "c", "filter": "id > 1", "mode": "envelope", "failOnDataLoss": "false"}
    plain = parse_options(same, stream=False)
    assert options == msgspec.structs.replace(
        plain, starting=Points(everywhere=7), ending=Points(named="latest")
    )
    time = parse_options({**LEAST, "start": "1970-01-01T00:00:01+00:00"}, stream=True).starting
    assert time == Points(time_ns=1_000_000_000)
