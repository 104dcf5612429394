"""What a station that was overtaken did not get, against a count that goes forward and knows all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
from heliograph.channel.selection import conditions_for, parsed
from heliograph.links.broadcast import loss_count as overtaken
from heliograph.links.broadcast.loss_count import LONE, LONE_HEAD, LossCounter, missed_in
from heliograph.links.session import messages as m
from heliograph.links.session.wire_events import EventWriter, WireEventReader, said_of
from heliograph.model.event import Header, info_of
from heliograph.runtime.ports import SystemClock
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from heliograph.links.broadcast.loss_count import Wishes

STATION: Final = 7
ROW: Final = 3
READER: Final = (STATION, ROW)


class Track(hg.Event, name="track", key="id"):
    id: int
    text: str = ""


class Alarm(hg.Event, name="alarm"):
    id: int
    level: float = 0.0


CLASSES: Final[dict[int, tuple[str, type[Any]]]] = {1: ("x", Track), 2: ("x", Alarm), 3: ("y", Track)}
STREAMS: Final = {
    number: WireEventReader(channel, info_of(cls).format) for number, (channel, cls) in CLASSES.items()
}
WRITER: Final = EventWriter(SystemClock())


def when(cls: type[Any], text: str, sources: frozenset[str] | None = None) -> ReceiverCondition:
    found = conditions_for([cls], parsed(text, None), sources)[cls]
    assert isinstance(found, ReceiverCondition)
    return found


# What may be wished of a type, and whether an event of that number is let through by it.
FILTERS: Final[
    list[tuple[Callable[[type[Any]], ReceiverCondition | AnyCondition] | None, Callable[[int], bool]]]
] = [
    (lambda _: ReceiverCondition(), lambda _: True),
    (None, lambda _: False),
    (lambda cls: when(cls, "id < 0"), lambda _: False),
    (lambda cls: when(cls, "id % 2 = 0"), lambda n: n % 2 == 0),
    (lambda cls: when(cls, "header.sequence > 7 AND id % 3 = 0"), lambda n: n > 7 and n % 3 == 0),
    (lambda _: ReceiverCondition(None, frozenset({"another"})), lambda _: False),
    (lambda cls: AnyCondition((when(cls, "id = 2"), when(cls, "id > 20"))), lambda n: n == 2 or n > 20),
]
filters = st.tuples(*[st.sampled_from(range(len(FILTERS))) for _ in CLASSES])
numbers = st.sampled_from(sorted(CLASSES))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("lone"), numbers),
        st.tuples(st.just("run"), numbers, st.integers(1, 9)),
        st.tuples(st.just("large"), numbers, st.integers(1, 100)),
        st.tuples(st.just("takes"), st.sampled_from([ROW, 8]), st.sampled_from("xy"), st.booleans()),
    ),
    max_size=30,
)


def messages(*said: m.Message) -> bytes:
    return m.run_bytes(m.RECORDS, m.MESSAGES, len(said), m.array_of([m.encode(one) for one in said]))


def item(stream: int, number: int) -> Any:
    channel, cls = CLASSES[stream]
    info = info_of(cls)
    key = (number,) if info.key else ()
    return cls(number), Header(channel, info.name, "s", 1, number, 0, info.format.id, 3, key, number), 0


def lone(stream: int, number: int) -> bytes:
    event, header, _ = item(stream, number)
    return b"".join(WRITER.lone(LONE_HEAD.pack(LONE, stream), stream, event, said_of(header)))


def run(stream: int, first: int, events: int) -> bytes:
    form, data = WRITER.run(CLASSES[stream][1], [item(stream, first + n) for n in range(events)])
    return m.run_bytes(form, stream, events, data)


def large(stream: int, number: int, size: int) -> list[bytes]:
    _, data = WRITER.run(CLASSES[stream][1], [item(stream, number)])
    return m.pieces(stream, data, 1 + size % len(data))


def judge(**wishes: Wishes) -> LossCounter:
    return LossCounter(STREAMS, wishes, SystemClock().monotonic_ns)


def wished(chosen: tuple[int, ...]) -> dict[str, dict[type[Any], ReceiverCondition | AnyCondition]]:
    wishes: dict[str, dict[type[Any], ReceiverCondition | AnyCondition]] = {"x": {}, "y": {}}
    for (channel, cls), place in zip(CLASSES.values(), chosen, strict=True):
        make = FILTERS[place][0]
        if make is not None:
            wishes[channel][cls] = make(cls)
    return wishes


@settings(max_examples=examples(200))
@given(steps=steps, chosen=filters, read=st.floats(0, 1))
def test_what_was_not_read_is_counted_as_the_station_took_and_wanted_it(
    steps: list[tuple[str, int, Any, bool]], chosen: tuple[int, ...], read: float
) -> None:
    records: list[bytes] = []
    events: list[tuple[int, int, int, int, bool]] = []  # first and last record, place in it, stream, wanted
    takes: set[str] = set()
    last = 0
    for what, of, *more in steps:
        begins, count = len(records), 1
        match what:
            case "lone":
                records.append(lone(of, last + 1))
            case "run":
                count = more[0]
                records.append(run(of, last + 1, count))
            case "large":
                records.extend(large(of, last + 1, more[0]))
            case _:
                channel, is_taken = str(more[0]), bool(more[1])
                if of == ROW and (channel in takes) == is_taken:
                    continue  # a writer says only what is new
                # The other reader is of the same station, in another session.
                records.append(messages(m.Takes(STATION, channel, takes=is_taken, row=of)))
                if of == ROW:
                    (takes.add if is_taken else takes.discard)(channel)
                continue
        lets_through = FILTERS[chosen[of - 1]][1]
        if CLASSES[of][0] in takes:
            events += [(begins, len(records) - 1, n, of, lets_through(last + 1 + n)) for n in range(count)]
        last += count
    first = round(read * len(records))
    expected = {
        (ends - first, CLASSES[of][0], place)
        for begins, ends, place, of, is_wanted in events
        # Of what has been read in part nobody can ask.
        if ends >= first and (is_wanted or begins < first)
    }
    found = {
        (place, channel, event)
        for place, channel, missed in missed_in(records[first:], READER, takes, judge(**wished(chosen)))
        for event in range(missed.bit_length())
        if missed >> event & 1
    }
    assert found == expected


def test_the_place_of_each_record_is_told() -> None:
    records = [lone(1, 1), lone(3, 2), LONE_HEAD.pack(LONE, 9)]
    assert list(missed_in(records, READER, {"x", "y"}, judge())) == [(1, "y", 1), (0, "x", 1)]


def test_what_cannot_be_read_counts_as_wanted() -> None:
    broken = [LONE_HEAD.pack(LONE, 1) + b"\xc1", m.run_bytes(m.UNIFORM, 1, 3, b"\xc1")]
    asking = judge(x={Track: when(Track, "id < 0")})
    assert list(missed_in(broken, READER, {"x"}, asking)) == [(1, "x", 0b111), (0, "x", 1)]
    assert not asking.gave_up


def test_filters_that_take_too_long_are_asked_no_more_and_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overtaken, "ASKING_LIMIT", 3e-9)
    ticks = iter(range(100))
    asking = LossCounter(STREAMS, {"x": {Track: when(Track, "id < 0")}}, ticks.__next__)
    found = list(missed_in([lone(1, n) for n in range(6)], READER, {"x"}, asking))
    assert found == [(place, "x", 1) for place in (3, 2, 1, 0)], "the last two were asked about"
    assert asking.gave_up
    assert asking.wants("x", item(1, 1))
