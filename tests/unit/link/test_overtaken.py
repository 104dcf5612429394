"""What a station that was overtaken did not get, against a count that goes forward and knows all."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.link import messages as m
from heliograph.link.overtaken import LONE, LONE_HEAD, missed_in
from tests.support import examples

STATION: Final = 7
ROW: Final = 3
CHANNELS: Final = {1: "x", 2: "x", 3: "y"}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("lone"), st.sampled_from([1, 2, 3])),
        st.tuples(st.just("run"), st.sampled_from([1, 2, 3]), st.integers(1, 50)),
        st.tuples(st.just("large"), st.sampled_from([1, 2, 3]), st.integers(1, 100)),
        st.tuples(st.just("takes"), st.sampled_from([ROW, 8]), st.sampled_from("xy"), st.booleans()),
    ),
    max_size=30,
)


def messages(*said: m.Message) -> bytes:
    return m.run_bytes(m.RECORDS, m.MESSAGES, len(said), m.array_of([m.encode(one) for one in said]))


@settings(max_examples=examples(200))
@given(steps=steps, read=st.floats(0, 1))
def test_what_was_not_read_is_counted_as_the_station_took_it(
    steps: list[tuple[str, int, int, bool]], read: float
) -> None:
    records: list[bytes] = []
    events: list[tuple[int, str, int]] = []  # the record that an event ends with, its channel, how many
    takes: set[str] = set()
    for what, of, *more in steps:
        number = more[0] if more else 1
        match what:
            case "lone":
                records.append(LONE_HEAD.pack(LONE, of) + b"event")
            case "run":
                records.append(m.run_bytes(m.UNIFORM, of, number, b"events"))
            case "large":
                records.extend(m.pieces(of, b"e" * number, 9))
                number = 1
            case _:
                channel, is_taken = str(more[0]), bool(more[1])
                if of == ROW and (channel in takes) == is_taken:
                    continue  # a writer says only what is new
                # The other reader is of the same station, in another session.
                records.append(messages(m.Takes(STATION, channel, takes=is_taken, row=of)))
                if of == ROW:
                    (takes.add if is_taken else takes.discard)(channel)
                continue
        if CHANNELS[of] in takes:
            events.append((len(records) - 1, CHANNELS[of], number))
    first = round(read * len(records))
    expected = Counter[str]()
    for last, channel, number in events:
        if last >= first:
            expected[channel] += number
    found = Counter[str]()
    for _, channel, number in missed_in(records[first:], (STATION, ROW), takes, CHANNELS):
        found[channel] += number
    assert found == expected


def test_the_place_of_each_record_is_told() -> None:
    records = [LONE_HEAD.pack(LONE, stream) for stream in (1, 3, 9)]
    assert list(missed_in(records, (STATION, ROW), {"x", "y"}, CHANNELS)) == [(1, "y", 1), (0, "x", 1)]
