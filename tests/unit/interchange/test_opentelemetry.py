"""Spans of pushes and callbacks, and the context that travels with events."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import heliograph as hg
from heliograph.interchange.opentelemetry import inject, links_of, processing, traced
from tests.e2e.link_support import own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Spans:
    """What a program's provider was told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station() as opened:
        yield opened


def test_each_receiver_has_a_span_of_its_own_that_is_linked_to_the_push(
    station: hg.Station, spans: Spans
) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    got: list[Any] = []
    tracks.subscribe(lambda track: got.append(track.id), name="display")

    @tracks.subscribe(name="recorder")
    def record(track: Track, header: hg.Header) -> None:
        got.append(header.headers)

    tracks.push(Track(7), headers={"site": "north"}, priority=5)
    tracks.settle()
    (push,) = spans.named("push air.tracks")
    processed = spans.named("process air.tracks")
    assert push.kind is SpanKind.PRODUCER
    assert len(processed) == 2
    for span in processed:
        assert span.kind is SpanKind.CONSUMER
        assert [link.context.span_id for link in span.links] == [push.context.span_id]
        assert span.context.trace_id != push.context.trace_id
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "air.tracks"
    assert {span.attributes["messaging.client.id"] for span in processed if span.attributes} == {
        "display",
        "recorder",
    }
    carried = next(one for one in got if one != 7)
    assert carried["site"] == "north"
    assert f"{push.context.span_id:016x}" in carried["traceparent"]


def test_a_callback_that_joins_continues_the_trace_of_the_push(station: hg.Station, spans: Spans) -> None:
    tracks = traced(station.channel("air.tracks", Track), join=True, tracer_provider=spans.provider)
    tracks.subscribe(lambda track: None)
    with spans.provider.get_tracer("test").start_as_current_span("request"):
        tracks.push(Track(7))
    tracks.settle()
    (request,) = spans.named("request")
    (push,) = spans.named("push air.tracks")
    (process,) = spans.named("process air.tracks")
    assert push.parent is not None
    assert push.parent.span_id == request.context.span_id
    assert process.parent is not None
    assert process.parent.span_id == push.context.span_id
    assert process.context.trace_id == request.context.trace_id
    assert not process.links


def test_what_a_callback_pushes_belongs_to_its_span(station: hg.Station, spans: Spans) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    alerts = traced(station.channel("air.alerts", Track), tracer_provider=spans.provider)
    tracks.subscribe(alerts.push, name="alarm")
    tracks.push(Track(7))
    tracks.settle()
    (process,) = spans.named("process air.tracks")
    (alert,) = spans.named("push air.alerts")
    assert alert.parent is not None
    assert alert.parent.span_id == process.context.span_id


def test_a_callback_that_raises_is_an_error_in_its_span(spans: Spans) -> None:
    with hg.Station(on_error=lambda *_: None) as station:
        tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)

        @tracks.subscribe()
        def fail(track: Track) -> None:
            raise ValueError(track.id)

        tracks.push(Track(7))
        tracks.settle()
    (process,) = spans.named("process air.tracks")
    assert process.status.status_code is StatusCode.ERROR
    assert process.events[0].name == "exception"


def test_a_push_that_is_refused_is_an_error_in_its_span(station: hg.Station, spans: Spans) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    with pytest.raises(hg.InvalidEvent):
        tracks.push(Track("seven"))  # type: ignore[arg-type]
    (push,) = spans.named("push air.tracks")
    assert push.status.status_code is StatusCode.ERROR


async def _awaited(channel: Any, got: list[int]) -> None:
    import asyncio

    done = asyncio.Event()

    async def show(track: Track) -> None:
        got.append(track.id)
        done.set()

    channel.subscribe(show)
    assert await channel.apush(Track(7))
    await asyncio.wait_for(done.wait(), 10.0)


def test_async_pushes_and_callbacks_have_spans_too(station: hg.Station, spans: Spans) -> None:
    import asyncio

    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    got: list[int] = []
    asyncio.run(_awaited(tracks, got))
    assert got == [7]
    (push,) = spans.named("push air.tracks")
    (process,) = spans.named("process air.tracks")
    assert process.links[0].context.span_id == push.context.span_id


def test_a_batch_that_was_pulled_has_one_span_with_a_link_for_each_event(
    station: hg.Station, spans: Spans
) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    with tracks.consumer() as consumer:
        tracks.push(Track(7))
        tracks.push_nowait(Track(8))
        tracks.channel.push(Track(9))  # without a context
        deliveries = consumer.deliveries(timeout=10.0)
        headers = [next(deliveries).header for _ in range(3)]
        with processing(*headers, receiver="batch", group="g", tracer_provider=spans.provider):
            pass
    (process,) = spans.named("process air.tracks")
    pushed = {span.context.span_id for span in spans.named("push air.tracks")}
    assert {link.context.span_id for link in process.links} == pushed
    assert len(pushed) == 2
    assert process.attributes is not None
    assert process.attributes["messaging.batch.message_count"] == 3


def test_push_many_is_one_span(station: hg.Station, spans: Spans) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    assert tracks.push_many([Track(n) for n in range(5)])
    (push,) = spans.named("push air.tracks")
    assert push.attributes is not None
    assert push.attributes["messaging.batch.message_count"] == 5


def test_a_context_comes_back_from_a_history(tmp_path: Any, spans: Spans) -> None:
    with hg.Station(tmp_path) as station:
        kept = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        traced(kept, tracer_provider=spans.provider).push(Track(7))
    with hg.Station(tmp_path) as station:
        kept = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        with kept.consumer(start="earliest", until="now") as consumer:
            (delivery,) = consumer.deliveries()
    (push,) = spans.named("push air.tracks")
    (link,) = links_of(delivery.header)
    assert link.context.span_id == push.context.span_id


def test_a_context_crosses_a_link(spans: Spans, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="a") as radar, hg.Station(domain="a") as display:
        received = traced(display.channel("air.tracks", Track), tracer_provider=spans.provider)
        received.subscribe(lambda track: None)
        sent = traced(radar.channel("air.tracks", Track), tracer_provider=spans.provider)
        assert sent.wait_matched(consumers=1, timeout=10.0)
        sent.push(Track(7))
        assert wait_until(lambda: spans.named("process air.tracks"))
    (push,) = spans.named("push air.tracks")
    (process,) = spans.named("process air.tracks")
    assert process.links[0].context.span_id == push.context.span_id


def test_without_the_sdk_a_given_context_is_handed_on() -> None:
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    assert inject(headers) == headers
    assert inject() == {}


def test_a_traced_function_can_be_unsubscribed_and_the_rest_is_the_channels(
    station: hg.Station, spans: Spans
) -> None:
    tracks = traced(station.channel("air.tracks", Track), tracer_provider=spans.provider)
    got: list[Track] = []
    tracks.subscribe(got.append)
    tracks.unsubscribe(got.append)
    tracks.push(Track(7))
    tracks.settle()
    assert got == []
    assert tracks.name == "air.tracks"
    assert repr(tracks).startswith("traced(")
    with pytest.raises(TypeError, match="cannot be called"):
        tracks.subscribe(7)  # type: ignore[call-overload]
    with pytest.raises(hg.NotPossible):
        tracks.unsubscribe(print)


@pytest.mark.parametrize("count", [0, 2])
def test_what_cannot_be_processed_together_is_refused(count: int, station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    headers = [channel.next_header(Track(n)) for n in range(count)]
    with (
        pytest.raises(ValueError, match=r"at least one|continues one trace"),
        processing(*headers, join=True),
    ):
        pass


def test_without_the_package_the_extra_is_named() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import heliograph.interchange.opentelemetry"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode
    assert "heliograph[otel]" in done.stderr
