"""Streams over a network in memory that loses, repeats and reorders puts, and frames of the session."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.links.contract import StreamKey
from heliograph.links.session import messages as m
from heliograph.links.streams.layout import (
    PIECE,
    PIECE_BYTES,
    events_put,
    heartbeat_put,
    pieces_of,
    read_piece,
    read_put,
)
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.runtime.ports import system_ports
from tests.conformance.link_contract import Track, wait_until

LIMIT = 15.0

if TYPE_CHECKING:
    from collections.abc import Iterator


class Pair:
    """Two stations that are linked, of which one pushes and the other takes."""

    def __init__(self, seed: int, *, repair_events: int = 65_536, **faults: float) -> None:
        self.rng = random.Random(seed)
        self.network = MemoryNetwork(system_ports(), streams=True, **faults)
        options: dict[str, Any] = {"domain": "pair", "transport": self.network.transport}
        self.source = hg.Station(**options, repair_events=repair_events)
        self.taker = hg.Station(**options)
        self.seen: list[int] = []

    def channels(self, qos: hg.QoS) -> tuple[hg.Channel[Track], hg.Channel[Track]]:
        ours, theirs = (one.channel("air.tracks", Track, qos=qos) for one in (self.source, self.taker))
        return ours, theirs

    def missed(self) -> int:
        assert self.taker.mesh is not None
        return sum(sum(link.missed.values()) for link in self.taker.mesh.stats())

    def close(self) -> None:
        self.network.loss = 0.0
        for station in (self.source, self.taker):
            station.close(1.0)


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_cannot_be_repaired_is_counted_alike_at_both_ends_and_the_rest_comes_once_and_in_order(
    pairs: list[Pair], seed: int
) -> None:
    pair = Pair(seed, repair_events=20, loss=0.3, duplication=0.1, reordering=0.2)
    pairs.append(pair)
    ours, theirs = pair.channels(hg.QoS(reliability="best-effort", queue=10_000))
    theirs.subscribe(lambda track: pair.seen.append(track.id))
    assert ours.wait_matched(1, LIMIT)
    pushed = 0
    for _ in range(60):
        burst = pair.rng.randrange(1, 60)
        for _ in range(burst):
            ours.push(Track(pushed))
            pushed += 1
    pair.network.loss = 0.0

    def is_settled() -> bool:
        total = ours.stats().total
        return total.pending == 0 and len(pair.seen) + pair.missed() == pushed

    assert wait_until(is_settled, LIMIT), (ours.stats().total, len(pair.seen), pair.missed(), pushed)
    total = ours.stats().total
    assert pair.seen == sorted(set(pair.seen))
    assert total.dropped.get("overrun", 0) == pair.missed()
    assert total.delivered == len(pair.seen)
    assert pair.source.mesh is not None
    assert sum(sum(stream.lost.values()) for stream in pair.source.mesh.streams()) == pair.missed()


@pytest.mark.parametrize("seed", range(3))
def test_whoever_changes_what_it_wants_has_what_it_wants_all_the_time_once_and_in_order(
    pairs: list[Pair], seed: int
) -> None:
    pair = Pair(seed, loss=0.2, duplication=0.1, reordering=0.2)
    pairs.append(pair)
    ours, theirs = pair.channels(hg.QoS(max_blocking=LIMIT))
    receiver = theirs.subscribe(lambda track: pair.seen.append(track.id), where="id % 3 = 0")
    assert ours.wait_matched(1, LIMIT)
    for i in range(1_500):
        if pair.rng.random() < 0.005:
            receiver.change(where=pair.rng.choice(["id % 3 = 0", "id >= 0", "id % 3 = 0 OR id % 5 = 0"]))
        ours.push(Track(i))
    receiver.change(where="id % 3 = 0")
    kept = [i for i in range(1_500) if i % 3 == 0]
    assert wait_until(lambda: [i for i in pair.seen if i % 3 == 0] == kept, LIMIT), (
        sorted(set(kept) - set(pair.seen))[:20],
        len(pair.seen),
        pair.source.mesh.streams(),  # type: ignore[union-attr]  # it has one
        pair.taker.mesh.streams(),  # type: ignore[union-attr]  # it has one
    )
    assert pair.seen == sorted(set(pair.seen))
    assert pair.missed() == 0
    assert wait_until(lambda: ours.stats().total.pending == 0)


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (3,), (4,), (5,), (1, 4), (0, 1, 2, 3, 4, 5)])
def test_a_stream_brings_each_priority_in_its_own_order_and_a_large_event_though_any_piece_is_lost(
    pairs: list[Pair], monkeypatch: pytest.MonkeyPatch, lost: tuple[int, ...]
) -> None:
    class Block(hg.Event, name="air.block"):
        id: int
        body: bytes = b""

    pair = Pair(1)
    pairs.append(pair)
    streams = pair.network.streams_of(pair.taker.id)
    assert streams is not None
    come, dropped = streams.came, []

    def lose(key: StreamKey, data: bytes) -> None:
        put = read_put(data, "the source")
        piece = read_piece(put, "the source")[1] // PIECE_BYTES if put.kind == PIECE else -1
        if piece in lost:
            dropped.append(piece)
        else:
            come(key, data)

    monkeypatch.setattr(streams, "came", lose)
    ours, theirs = (one.channel("air.blocks", Block) for one in (pair.source, pair.taker))
    came: list[tuple[int, int, int]] = []
    theirs.subscribe(lambda block, header: came.append((header.priority, block.id, len(block.body))))
    assert ours.wait_matched(1, LIMIT)
    for i in range(30):
        ours.push(Block(i, b"x" * (3_000_000 if i == 10 else i)), priority=1 + i % 5)
    assert wait_until(lambda: len(came) == 30, LIMIT)
    for priority in range(1, 6):
        ids = [number for own, number, _ in came if own == priority]
        assert ids == sorted(ids)
    assert {number: size for _, number, size in came}[10] == 3_000_000
    assert pair.source.mesh is not None
    (stream,) = [one for one in pair.source.mesh.streams() if one.channel == "air.blocks"]
    assert (stream.events, stream.readers) == (30, 1)
    assert pair.taker.mesh is not None
    (taken,) = [one for one in pair.taker.mesh.streams() if one.channel == "air.blocks"]
    assert (taken.events, taken.repaired) == (30, int(bool(lost)))
    assert tuple(dropped) == lost


def test_a_put_that_is_none_of_a_stream_is_left_out_and_harms_nobody(pairs: list[Pair]) -> None:
    pair = Pair(1)
    pairs.append(pair)
    ours, theirs = pair.channels(hg.QoS())
    theirs.subscribe(lambda track: pair.seen.append(track.id))
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(0))
    assert wait_until(lambda: pair.seen == [0])
    assert pair.source.mesh is not None
    publisher = pair.source.mesh.gates.streams
    assert publisher is not None
    (gateway,) = publisher._gateways.values()
    streams = pair.network.streams_of(pair.taker.id)
    assert streams is not None
    (putter,) = gateway.putters.values()
    rng = random.Random(3)
    for i in range(1, 201):
        streams.came(putter._key, rng.randbytes(rng.randrange(80)))  # type: ignore[attr-defined]  # of memory
        ours.push(Track(i))
    assert wait_until(lambda: pair.seen == list(range(201)))


@pytest.mark.parametrize("kind", ["many", "number", "unknown class", "garbage", "piece", "early"])
def test_a_put_that_somebody_forged_loses_no_event_and_makes_few_questions(
    pairs: list[Pair], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pair = Pair(1)
    pairs.append(pair)
    ours, theirs = pair.channels(hg.QoS())
    theirs.subscribe(lambda track: pair.seen.append(track.id))
    assert ours.wait_matched(1, LIMIT)
    ours.push(Track(0))
    assert wait_until(lambda: pair.seen == [0])
    assert pair.source.mesh is not None
    publisher = pair.source.mesh.gates.streams
    assert publisher is not None
    questions: list[object] = []
    repair = publisher.repair

    def counted(*of: Any) -> None:
        questions.append(of)
        repair(*of)

    monkeypatch.setattr(publisher, "repair", counted)
    (gateway,) = publisher._gateways.values()
    streams = pair.network.streams_of(pair.taker.id)
    assert streams is not None
    (putter,) = gateway.putters.values()
    number = gateway.number
    forged = {
        "many": events_put(number, 2, 1_000_000, b"x"),
        "number": heartbeat_put(number, 1 << 40),
        "unknown class": events_put(number, 2, 1, m.run_bytes(m.RECORDS, 77, 1, b"\x91\xc0")),
        "garbage": events_put(number, 2, 1_000, m.run_bytes(m.RECORDS, 1, 1_000, b"\xc1" * 40)),
        "piece": pieces_of(number, 2, 9, b"x" * (PIECE_BYTES + 1))[0],
        "early": events_put(number, 9, 1_000_000, b"x"),
    }[kind]
    streams.came(putter._key, forged)  # type: ignore[attr-defined]  # of memory
    taken = pair.taker.mesh._streaming  # type: ignore[union-attr]  # it has one
    assert taken is not None
    before = taken.taken
    assert wait_until(lambda: taken.taken > before or bool(questions))
    for i in range(1, 51):
        ours.push(Track(i))
    assert wait_until(lambda: pair.seen == list(range(51)), LIMIT), (pair.seen, len(questions))
    assert wait_until(lambda: ours.stats().total.pending == 0, LIMIT)
    assert ours.stats().total.delivered == 51
    assert pair.missed() == 0
    assert len(questions) <= 60  # one for each put at most


def test_puts_of_a_station_that_nobody_knows_are_not_kept_and_those_of_a_known_one_within_a_bound(
    pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.links.streams.reader.MAX_HELD_BYTES", 10_000)
    pair = Pair(1)
    pairs.append(pair)
    ours, theirs = pair.channels(hg.QoS())
    theirs.subscribe(lambda track: pair.seen.append(track.id))
    assert ours.wait_matched(1, LIMIT)
    streams = pair.network.streams_of(pair.taker.id)
    assert streams is not None
    assert pair.taker.mesh is not None
    reader = pair.taker.mesh._streaming
    assert reader is not None
    before = reader.taken
    for station in (77, pair.source.id):
        for number in range(1_000, 1_300):
            put = events_put(number, 1, 1, b"x" * 480)
            streams.came(StreamKey("air.tracks", "0" * 32, station, 3), put)
    assert wait_until(lambda: reader.taken >= before + 600)
    assert {station for station, _ in reader._early} == {pair.source.id}
    assert reader._early_bytes == 20 * 500
    assert sum(len(data) for early in reader._early.values() for _, data in early) == 20 * 500
    ours.push(Track(0))
    assert wait_until(lambda: pair.seen == [0])
    pair.source.close(1.0)
    assert wait_until(lambda: not reader._early)
    assert reader._early_bytes == 0
