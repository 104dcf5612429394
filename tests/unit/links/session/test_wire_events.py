"""Runs of events as bytes and back: both forms give the same events, and forged ones are refused."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.batch import OutgoingBatch
from heliograph.errors import BadFrame
from heliograph.links.session import messages as m
from heliograph.links.session.wire_events import UNIFORM_FROM, EventWriter, WireEventReader
from heliograph.model.event import Header
from heliograph.runtime.ports import system_ports
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item
    from heliograph.model.formats import Format


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Plain(hg.Event, name="run.plain", key=("id", "colour")):
    id: int
    colour: Colour
    note: str | None = None


class Flat(hg.Event, name="run.flat"):
    id: int
    raw: bytes


class Wide(hg.Event, name="run.wide", body="native"):
    id: int
    x: float


class Small(hg.Event, name="run.flat"):
    id: int


class Even(hg.Event, name="run.flat"):
    id: int

    def __post_init__(self) -> None:
        if self.id % 2:
            raise ValueError(self.id)


WRITER = EventWriter(system_ports().clock)
FORMAT: dict[type[hg.Event], Format] = {cls: hg.format_of(cls) for cls in (Plain, Flat, Wide)}
STREAM = {cls: WireEventReader("air", fmt) for cls, fmt in FORMAT.items()}
NUMBER = st.integers(0, 2**63 - 1)
INSTANT = st.integers(-(2**63), 2**63 - 1)


def an_event(cls: type[hg.Event], number: int) -> hg.Event:
    if cls is Plain:
        return Plain(number, list(Colour)[number % 2], "x" * (number % 3) or None)
    return Flat(number, bytes(number % 5)) if cls is Flat else Wide(number, number / 3)


def headers(cls: type[hg.Event]) -> st.SearchStrategy[Header]:
    return st.builds(
        Header,
        st.just("air"),
        st.just(FORMAT[cls].name),
        st.sampled_from(["a", "b"]),
        st.sampled_from([1, 2]),
        NUMBER,
        INSTANT,
        st.just(FORMAT[cls].id),
        st.sampled_from([3, 5]),
        st.just(()),
        NUMBER,
        st.none() | INSTANT,
        st.sampled_from([None, "p"]),
        st.none() | NUMBER,
        st.none() | NUMBER,
        st.integers(0, 254),
        st.sampled_from([None, "c"]),
        st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        st.booleans(),
    )


def alike(cls: type[hg.Event], count: int, *, dense: bool, partition: str | None) -> list[Item]:
    """A run of one supplier, as a supplier or a journal makes it."""
    step = 1 if dense else 2
    fmt = FORMAT[cls]
    return [
        (
            an_event(cls, i),
            Header(
                "air",
                fmt.name,
                "radar",
                7,
                100 + i * step,
                1_000 + i,
                fmt.id,
                4,
                (),
                50 + i * step,
                None if partition is None else 2_000 + i // 3,
                partition,
                None if partition is None else 9 + i * step,
            ),
            0,
        )
        for i in range(count)
    ]


def arrived(item: Item, cls: type[hg.Event]) -> tuple[hg.Event, Header]:
    """What the other side should make of an item: one more hop, the key taken from the event."""
    event, header, _ = item
    key = tuple(getattr(event, name) for name in FORMAT[cls].key)
    return event, msgspec.structs.replace(header, hops=header.hops + 1, key=key)


def crossed(cls: type[hg.Event], items: list[Item], skip: int = 0) -> tuple[int, list[Any]]:
    form, records = WRITER.run(cls, items)
    run = m.Run(form, 1, len(items), memoryview(records))
    return form, [item[:2] for item in STREAM[cls].read(run, (cls,), "peer", skip)]


@pytest.mark.parametrize("cls", FORMAT)
@pytest.mark.parametrize("partition", [None, "p"])
@pytest.mark.parametrize("dense", [True, False])
def test_a_run_of_one_supplier_crosses_in_columns(
    cls: type[hg.Event], dense: bool, partition: str | None
) -> None:
    items = alike(cls, 9, dense=dense, partition=partition)
    assert crossed(cls, items) == (m.UNIFORM, [arrived(item, cls) for item in items])
    assert crossed(cls, items, skip=4)[1] == [arrived(item, cls) for item in items[4:]]


@settings(max_examples=examples(60))
@given(st.sampled_from(list(FORMAT)), st.sets(st.integers(0, 12), min_size=1), st.booleans())
def test_what_was_pushed_together_crosses_as_it_is(
    cls: type[hg.Event], wanted: set[int], has_gaps: bool
) -> None:
    fmt, places = FORMAT[cls], sorted(wanted) if has_gaps else range(7, 7 + len(wanted))
    first = Header("air", fmt.name, "radar", 7, 100 + places[0], 1_000, fmt.id, 4, (), places[0])
    sequences = [100 + place for place in places] if has_gaps else None
    events = [an_event(cls, place) for place in places]
    bulk = OutgoingBatch(events, first, 100 + places[0], 1_000, places, 0, sequences)
    run = m.Run(m.UNIFORM, 1, len(bulk), memoryview(WRITER.bulk(cls, bulk)))
    items = STREAM[cls].read(run, (cls,), "peer")
    assert [item[:2] for item in items] == [arrived(item, cls) for item in bulk]


def test_a_short_run_crosses_with_whole_headers() -> None:
    items = alike(Flat, UNIFORM_FROM - 1, dense=True, partition=None)
    assert crossed(Flat, items) == (m.RECORDS, [arrived(item, Flat) for item in items])


@settings(max_examples=examples(60))
@given(st.data())
def test_whatever_headers_say_arrives(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(list(FORMAT)))
    chosen = data.draw(st.lists(headers(cls), min_size=1, max_size=6))
    if data.draw(st.booleans()):  # mostly alike: what makes a run uniform, or nearly
        chosen = [msgspec.structs.replace(chosen[0], sequence=i) for i, _ in enumerate(chosen)]
    items: list[Item] = [(an_event(cls, i), header, 0) for i, header in enumerate(chosen)]
    assert crossed(cls, items)[1] == [arrived(item, cls) for item in items]


def test_an_event_that_does_not_fit_costs_no_other() -> None:
    items = alike(Flat, 6, dense=True, partition=None)
    _, records = WRITER.run(Flat, items)
    value = msgspec.msgpack.decode(records)
    value[-1][2] = ["no number", b""]
    stream = WireEventReader("air", FORMAT[Flat])
    run = m.Run(m.UNIFORM, 1, 6, memoryview(msgspec.msgpack.encode(value)))
    assert [event.id for event, _, _ in stream.read(run, (Flat,), "peer")] == [0, 1, 3, 4, 5]  # type: ignore[attr-defined]  # Flat
    assert stream.undecodable == 1


@pytest.mark.parametrize("events", [2, 6])
def test_what_a_class_refuses_is_named(events: int) -> None:
    """In records, and in columns."""
    items = alike(Flat, events, dense=True, partition=None)
    form, records = WRITER.run(Flat, items)
    assert (form == m.UNIFORM) is (events >= UNIFORM_FROM)
    stream = WireEventReader("air", FORMAT[Flat])
    read = stream.read(m.Run(form, 1, events, memoryview(records)), (Even,), "peer")
    assert [header.id for _, header, _ in read] == [header.id for _, header, _ in items[::2]]
    assert [one.header.id for one in stream.refused] == [header.id for _, header, _ in items[1::2]]
    stream.read(m.Run(form, 1, events, memoryview(records)), (Small,), "peer")
    assert stream.refused == []


def test_a_class_of_another_version_reads_a_run_in_columns() -> None:
    form, records = WRITER.run(Flat, alike(Flat, 5, dense=True, partition=None))
    run = m.Run(form, 1, 5, memoryview(records))
    read = WireEventReader("air", FORMAT[Flat]).read(run, (Small,), "peer")
    assert [event for event, _, _ in read] == [Small(i) for i in range(5)]


FORGED: dict[str, tuple[int, Any]] = {
    "a supplier that is too long": (0, "x" * 300),
    "a negative epoch": (1, -1),
    "a priority that is none": (2, 9),
    "too many hops": (3, 255),
    "a partition that is a list": (4, ["p"]),
    "a number beyond 64 bits": (5, 2**63),
    "fewer sequences than events": (5, [1, 2]),
    "more station sequences than events": (6, list(range(20))),
    "times that are text": (7, ["x"] * 6),
    "offsets without end": (9, list(range(7))),
    "fewer events than announced": (10, [[1, b""]]),
    "no list of events": (10, 5),
}


@pytest.mark.parametrize(("place", "value"), FORGED.values(), ids=FORGED.keys())
def test_columns_that_cannot_be_are_refused(place: int, value: Any) -> None:
    _, records = WRITER.run(Flat, alike(Flat, 6, dense=True, partition="p"))
    forged = msgspec.msgpack.decode(records)
    forged[place] = value
    run = m.Run(m.UNIFORM, 1, 6, memoryview(msgspec.msgpack.encode(forged)))
    with pytest.raises(BadFrame):
        WireEventReader("air", FORMAT[Flat]).read(run, (Flat,), "peer")


@pytest.mark.parametrize(
    "forged", [{"channel": "sea"}, {"type": "other"}, {"hops": 255}], ids=["channel", "type", "hops"]
)
def test_a_header_that_belongs_elsewhere_is_refused(forged: dict[str, Any]) -> None:
    event, header, _ = alike(Flat, 1, dense=True, partition=None)[0]
    records = msgspec.msgpack.encode([(event, msgspec.structs.replace(header, **forged), 0)])
    with pytest.raises(BadFrame):
        WireEventReader("air", FORMAT[Flat]).read(
            m.Run(m.RECORDS, 1, 1, memoryview(records)), (Flat,), "peer"
        )


def test_a_key_that_was_made_up_is_not_believed() -> None:
    event, header, _ = alike(Flat, 1, dense=True, partition=None)[0]
    forged = msgspec.structs.replace(header, key=([[{}]], "unhashable"))
    run = m.Run(m.RECORDS, 1, 1, memoryview(msgspec.msgpack.encode([(event, forged, 0)])))
    ((_, read, _),) = WireEventReader("air", FORMAT[Flat]).read(run, (Flat,), "peer")
    assert read.key == ()


def test_records_of_another_number_than_announced_are_refused() -> None:
    run = m.Run(m.RECORDS, 1, 3, memoryview(b"\x91\xc0"))
    with pytest.raises(BadFrame):
        WireEventReader("air", FORMAT[Flat]).read(run, (Flat,), "peer")


@given(st.binary(min_size=1, max_size=300), st.integers(1, 64))
@settings(max_examples=examples(100))
def test_pieces_make_the_whole_again(records: bytes, most: int) -> None:
    together = m.Pieces()
    found = [
        together.add(run, "peer")
        for payload in m.pieces(4, records, most)
        for run in m.read_runs(memoryview(payload), 1, "peer")
    ]
    assert found[-1] == m.Run(m.RECORDS, 4, 1, memoryview(records))
    assert found[:-1] == [None] * (len(found) - 1)
    # Until it has been handed on, its last piece may come again.
    (again,) = m.read_runs(memoryview(m.pieces(4, records, most)[-1]), 1, "peer")
    assert together.add(again, "peer") == found[-1]
    together.clear()
    assert not together.parts


def piece(whole: int, part: bytes, stream: int = 4) -> m.Run:
    return m.Run(m.PIECE, stream, 1, memoryview(whole.to_bytes(8, "little") + part))


@pytest.mark.parametrize(
    "runs",
    [
        [piece(5, b"")],
        [piece(5, b"123456")],
        [piece(5, b"123"), piece(6, b"123")],
        [piece(5, b"123"), piece(5, b"12", stream=9)],
        [piece(5, b"123"), piece(5, b"123")],
        [piece(m.MAX_EVENT + 1, b"123")],
    ],
    ids=["empty", "longer", "another size", "another stream", "too much", "too large"],
)
def test_pieces_that_do_not_fit_are_refused(runs: list[m.Run]) -> None:
    together = m.Pieces()
    *sound, forged = runs
    assert [together.add(run, "peer") for run in sound] == [None] * len(sound)
    with pytest.raises(BadFrame):
        together.add(forged, "peer")
