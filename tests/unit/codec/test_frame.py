"""Frames: header and body in one buffer, and everything that a forged one can say."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg
from heliograph import codec
from heliograph.codec import frame
from heliograph.formats import FormatRegistry


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


class Scan(hg.Event, name="air.scan"):
    samples: NDArray[np.float64]


def header_of(event: hg.Event, **changes: Any) -> hg.Header:
    fmt = hg.format_of(event)
    header = hg.Header("air.tracks", fmt.name, "radar-1", 1, 2, 3, fmt.id)
    return msgspec.structs.replace(header, **changes)


def frame_of(event: hg.Event, **changes: Any) -> bytes:
    return b"".join(frame.encode(header_of(event, **changes), codec.encoder(type(event)).encode_parts(event)))


def registry_of(*classes: type[hg.Event]) -> FormatRegistry:
    registry = FormatRegistry()
    for cls in classes:
        registry.register(hg.format_of(cls))
    return registry


TRACK = Track(7, 410.0)


def test_header_and_event_arrive() -> None:
    changes: dict[str, Any] = {
        "key": (7, "x", b"y", True, datetime(2026, 1, 1, tzinfo=UTC)),
        "headers": {"traceparent": "00-ab"},
        "append_ts": 5,
        "partition": "p",
        "redelivered": True,
    }
    header, event = frame.read(frame_of(TRACK, **changes), registry_of(Track), Track)
    assert event == TRACK
    assert header == header_of(TRACK, **changes)
    assert str(header.id) == "radar-1:1:2"


def test_without_a_class_the_event_arrives_as_a_mapping() -> None:
    assert frame.read(frame_of(TRACK), registry_of(Track))[1] == {"id": 7, "speed": 410.0}


def test_the_body_is_a_read_only_view_at_a_multiple_of_eight() -> None:
    for name in ("a", "ab", "abc", "abcdefgh"):
        data = bytearray(frame_of(TRACK, channel=name))
        _, body = frame.decode(data)
        assert body.obj is data
        assert body.readonly
        assert (len(data) - len(body)) % 8 == 0


def test_parts_of_the_body_are_not_copied() -> None:
    samples = np.arange(100.0)
    event = Scan(samples)
    buffers = frame.encode(header_of(event), codec.encoder(Scan).encode_parts(event))
    assert any(np.shares_memory(np.frombuffer(buffer, np.uint8), samples) for buffer in buffers)


def test_arrays_are_aligned_in_an_aligned_frame() -> None:
    data = np.frombuffer(frame_of(Scan(np.arange(5.0))), np.uint8)
    aligned = np.zeros(len(data) // 8 + 1, np.uint64).view(np.uint8)[: len(data)]
    aligned[:] = data
    _, event = frame.read(aligned.data, registry_of(Scan), Scan)
    assert event.samples.flags.aligned


def test_a_format_that_nobody_described_is_unknown() -> None:
    with pytest.raises(hg.UnknownFormat) as caught:
        frame.read(frame_of(TRACK), registry_of(Scan), Track)
    assert caught.value.format_id == hg.format_of(Track).id
    assert caught.value.retriable


def test_the_id_of_another_format_is_refused() -> None:
    forged = frame_of(TRACK, format_id=hg.format_of(Scan).id)
    with pytest.raises(hg.IncompatibleFormats):
        frame.read(forged, registry_of(Track, Scan), Track)
    with pytest.raises(hg.DecodeError):
        frame.read(forged, registry_of(Track, Scan), Scan)


def test_a_frame_over_the_limit_is_refused_unread() -> None:
    data = frame_of(TRACK)
    assert frame.decode(data, max_size=len(data))
    with pytest.raises(hg.DecodeError, match="at most"):
        frame.decode(data, max_size=len(data) - 1)


def test_a_header_over_the_limit_is_refused_when_it_leaves() -> None:
    with pytest.raises(hg.InvalidEvent, match="at most 65535"):
        frame_of(TRACK, headers={"x": "y" * 70_000})


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (struct.pack("<BBHI", 2, 0, 0, 0), "version 2"),
        (struct.pack("<BBHI", 1, 1, 0, 0), "version 1.1"),
        (struct.pack("<BBHI", 1, 0, 0xFFFF, 0), "sizes say"),
        (struct.pack("<BBHI", 1, 0, 0, 0xFFFF_FFFF), "sizes say"),
        (struct.pack("<BBHI", 1, 0, 8, 0), "sizes say"),
        (b"\1\0\0", "begins with 8"),
        (b"", "begins with 8"),
    ],
    ids=["version", "reserved", "header", "body", "short", "cut", "empty"],
)
def test_a_forged_start_is_refused(start: bytes, reason: str) -> None:
    with pytest.raises(hg.DecodeError, match=reason) as caught:
        frame.decode(start)
    assert caught.value.path == "frame"


def with_header(data: bytes) -> bytes:
    return struct.pack("<BBHI", 1, 0, len(data), 0) + data + bytes(-len(data) % 8)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"channel": "x" * 256}, "header.channel"),
        ({"format_id": b"short"}, "header.format_id"),
        ({"priority": 6}, "header.priority"),
        ({"priority": "high"}, "header.priority"),
        ({"epoch": None}, "header.epoch"),
        ({"key": (1,) * 33}, "header.key"),
        ({"key": (1, [2])}, "header.key[1]"),
        ({"key": (None,)}, "header.key[0]"),
        ({"hops": 256}, "header.hops"),
        ({"headers": {str(n): "" for n in range(65)}}, "header.headers"),
        ({"headers": {"a": "x" * 4097}}, "header.headers[...]"),
        ({"headers": {"a": 1}}, "header.headers[...]"),
    ],
    ids=str,
)
def test_a_header_that_breaks_a_limit_is_refused_with_its_path(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(hg.DecodeError) as caught:
        frame.decode(frame_of(TRACK, **changes))
    assert caught.value.path == path


@pytest.mark.parametrize(
    "data",
    [b"\x90", b"\xc0", b"", b"\x91" * 60_000, b"\xdc\xff\xff", b"\x81\xa1a\x01"],
    ids=lambda d: str(d[:4]),
)
def test_bytes_that_are_no_header_are_refused(data: bytes) -> None:
    with pytest.raises(hg.DecodeError) as caught:
        frame.decode(with_header(data))
    assert caught.value.path.startswith("header")
