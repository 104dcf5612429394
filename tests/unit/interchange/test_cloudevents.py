"""Events as CloudEvents and back."""

from __future__ import annotations

import pytest

import heliograph as hg
from heliograph.interchange.cloudevents import from_cloudevent, to_cloudevent


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


GOOD = {"specversion": "1.0", "id": "a:1:7", "source": "/radar", "type": "air.track", "data": {"id": 7}}


def test_an_event_goes_round_with_all_that_was_said_about_it() -> None:
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with hg.Station() as station:
        tracks = station.channel("air.tracks", Track)
        with tracks.consumer() as consumer:
            tracks.push(
                Track(7, 1.5),
                source_ts=1_234_567_890_123_456_789,
                priority=5,
                correlation_id="f",
                headers=trace,
            )
            delivery = next(consumer.deliveries(timeout=10.0))
            document = to_cloudevent(delivery.event, delivery.header)
            assert document["id"] == str(delivery.header.id)
            assert document["time"] == "2009-02-13T23:31:30.123456789Z"
            assert (document["type"], document["source"]) == ("air.track", "/heliograph/air.tracks")
            assert document["partitionkey"] == "7"
            received = from_cloudevent(Track, document)
            assert isinstance(received.event, Track)
            tracks.push(received.event, **received.options)
            again = next(consumer.deliveries(timeout=10.0))
    assert again.event == Track(7, 1.5)
    said = ("source_ts", "priority", "correlation_id", "headers")
    assert [getattr(again.header, name) for name in said] == [getattr(delivery.header, name) for name in said]


def test_defaults_fill_in_what_a_document_leaves_out() -> None:
    assert from_cloudevent(Track, GOOD) == (Track(7), {}, "a:1:7")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": ""}, "attribute 'id'"),
        ({"source": 7}, "attribute 'source'"),
        ({"specversion": "0.3"}, "of version 0.3"),
        ({"type": "air.weather"}, "is a 'air.weather'"),
        ({"datacontenttype": "text/xml"}, "as application/json, not text/xml"),
        ({"time": "yesterday"}, "'yesterday' is no time"),
        ({"time": "2026-11-18T10:00:00"}, "has no time zone"),
        ({"time": 7}, "text as in RFC 3339"),
        ({"data": {"id": "x"}}, "at \\$.id"),
        ({"data": [1]}, "air.track"),
    ],
)
def test_what_is_no_such_event_is_refused_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(hg.InvalidEvent, match=said):
        from_cloudevent(Track, {**GOOD, **change})
