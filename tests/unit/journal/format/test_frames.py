"""Frames and head headers, byte by byte."""

from __future__ import annotations

import pytest

from heliograph.errors import BadJournalFile
from heliograph.journal.format.frames import (
    FRAME_SIZE,
    HEAD_SIZE,
    MAX_BODY,
    Frame,
    FrameDamage,
    FrameMeta,
    HeadFile,
    HeadHeader,
    encode_frame,
)
from heliograph.journal.format.records import (
    Record,
    RecordRun,
    decode_large,
    decode_rows,
    decode_runs,
    encode_rows,
    rows_payload,
)
from heliograph.sim import SimDisk, SimFile
from tests.unit.journal.helpers import TRACK, track, tracks

HEADER = HeadHeader(b"p" * 16, b"saltsalt", 5, 123, 2)


def frame_bytes(base: int, count: int, *, salt: bytes = HEADER.salt, durable: int = 0) -> bytes:
    payload = rows_payload(count, [encode_rows(tracks(base, count))])
    return b"".join(encode_frame(FrameMeta(base, count, 2, 99, durable), [TRACK.description], payload, salt))


def head(*parts: bytes) -> tuple[SimFile, HeadFile]:
    file = SimDisk().create("head")
    file.append(HEADER.encode(), *parts)
    return file, HeadFile(file)


def test_a_frame_gives_back_what_was_put_in() -> None:
    _, reader = head(frame_bytes(5, 3, durable=4))
    frame = reader.frame(HEAD_SIZE)
    assert isinstance(frame, Frame)
    assert (frame.base, frame.events, frame.next, frame.epoch, frame.append_ts, frame.durable) == (
        5,
        3,
        8,
        2,
        99,
        4,
    )
    assert frame.descriptions() == [TRACK.description]
    assert decode_rows(frame.payload) == tracks(5, 3)


@pytest.mark.parametrize("count", [1, 15, 16, 65535, 65536])
def test_rows_encoded_apart_decode_as_one_array(count: int) -> None:
    rows = [track(n % 7) for n in range(count)]
    payload = rows_payload(count + 1, [encode_rows(rows), encode_rows([track(9)])])
    assert decode_rows(payload) == [*rows, track(9)]


def test_every_changed_byte_of_a_frame_is_noticed() -> None:
    good = frame_bytes(5, 2)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        _, reader = head(bytes(bad))
        assert isinstance(reader.frame(HEAD_SIZE), FrameDamage), at


def test_every_prefix_of_a_frame_is_noticed() -> None:
    good = frame_bytes(5, 2)
    for size in range(len(good)):
        _, reader = head(good[:size])
        assert isinstance(reader.frame(HEAD_SIZE), FrameDamage), size


def test_every_changed_byte_of_a_header_is_noticed() -> None:
    good = HEADER.encode()
    assert len(good) == HEAD_SIZE == FRAME_SIZE == 64
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        with pytest.raises(BadJournalFile):
            HeadHeader.decode(bytes(bad), "head")
    assert HeadHeader.decode(good, "head") == HEADER


def test_a_length_bomb_is_refused_before_anything_is_read() -> None:
    bad = bytearray(frame_bytes(5, 2))
    bad[4:8] = (MAX_BODY + 1).to_bytes(4, "little")
    _, reader = head(bytes(bad))
    found = reader.frame(HEAD_SIZE)
    assert isinstance(found, FrameDamage)
    assert found.reason == "its lengths cannot be right"


def test_a_file_of_another_partition_is_refused() -> None:
    file, _ = head()
    with pytest.raises(BadJournalFile, match="another partition"):
        HeadFile(file, b"q" * 16)


def test_a_frame_inside_of_a_body_is_not_taken_for_one() -> None:
    forged = frame_bytes(50, 1, salt=b"unlucky!")
    _, reader = head(b"damaged ", forged, frame_bytes(5, 1))
    found = reader.resync(HEAD_SIZE, 5)
    assert found is not None
    assert found.base == 5


def test_a_frame_that_was_half_written_when_first_read_is_read_again() -> None:
    whole = frame_bytes(5, 2)
    file, reader = head(whole[:70])
    assert isinstance(reader.frame(HEAD_SIZE), FrameDamage)
    file.append(whole[70:])
    assert isinstance(reader.frame(HEAD_SIZE), Frame)


@pytest.mark.parametrize("places", [40, [40, 41, 47]])
def test_a_run_gives_back_a_record_for_each_of_its_events(places: int | list[int]) -> None:
    run = RecordRun("radar", 2, 8, -1, TRACK.id, [b"a", b"", b"c"], 4, places, 5)
    numbers = range(40, 43) if isinstance(places, int) else places
    expected = [
        Record("radar", 2, 8 + n, -1, TRACK.id, body, 4, place, 5)
        for n, (body, place) in enumerate(zip([b"a", b"", b"c"], numbers, strict=True))
    ]
    assert list(run) == expected
    payload = rows_payload(3, [encode_rows([track(1)]), encode_rows([run]), encode_rows([track(2)])])
    assert decode_large(decode_runs(payload)) == [track(1), *expected, track(2)]
