"""Channels whose history keeps the last event of each key, and forgets keys when told to."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import InvalidEvent, InvalidQoS, NotPossible
from heliograph.journal import store
from heliograph.journal.store import JournalStore
from heliograph.journal.writing import dedup_window as repeats
from heliograph.journal.writing import partition
from heliograph.testing import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.channel.channel import Channel

LIMIT = 10.0
BY_KEY = hg.QoS(durability="persistent", compaction="key", tombstones=0.0)


class Track(hg.Event, name="air.track", key="id"):
    id: int
    n: int


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Odd(hg.Event, name="odd", key=("colour", "at", "name")):
    colour: Colour
    at: datetime
    name: str
    n: int = 0


class Keyless(hg.Event, name="keyless"):
    n: int


@pytest.fixture
def tracks(tmp_path: Path) -> Iterator[Channel[Track]]:
    with hg.Station(tmp_path / "data") as station:
        yield station.channel("air.tracks", Track, qos=BY_KEY)


def compact(channel: Channel[Any]) -> None:
    kept = channel.store
    assert isinstance(kept, JournalStore)
    kept._writer.seal()
    kept._writer.tidy()


def kept(channel: Channel[Any]) -> list[tuple[int, Any]]:
    with channel.consumer(start="earliest", until="now") as consumer:
        return [(d.header.offset or 0, d.event) for d in consumer.deliveries(LIMIT)]


def test_a_late_joiner_gets_the_last_event_of_each_key_where_it_was(tracks: Channel[Track]) -> None:
    tracks.push_many([Track(n % 3, n) for n in range(10)])
    compact(tracks)
    assert kept(tracks) == [(n, Track(n % 3, n)) for n in (7, 8, 9)]
    tracks.push(Track(0, 10))
    assert kept(tracks)[-1] == (10, Track(0, 10))


def test_a_forgotten_key_is_gone(tracks: Channel[Track]) -> None:
    tracks.push_many([Track(1, 0), Track(2, 1)])
    assert tracks.forget(1)
    assert kept(tracks) == [(0, Track(1, 0)), (1, Track(2, 1))], "until it is compacted"
    compact(tracks)
    assert kept(tracks) == [(1, Track(2, 1))]
    tracks.push(Track(1, 3))
    assert kept(tracks) == [(1, Track(2, 1)), (3, Track(1, 3))]


def test_live_consumers_go_on_over_a_tombstone_and_get_nothing_of_it(tracks: Channel[Track]) -> None:
    with tracks.consumer(start="now") as consumer:
        tracks.push(Track(1, 0))
        tracks.forget(1)
        tracks.push(Track(2, 1))
        assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Track(1, 0), Track(2, 1)]
    assert tracks.stats().balanced


def test_a_durable_consumer_goes_on_behind_what_was_compacted(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        tracks = station.channel("air.tracks", Track, qos=BY_KEY)
        tracks.push_many([Track(0, n) for n in range(5)])
        with tracks.consumer(name="billing", start="earliest") as billing:
            assert [track.n for track in billing.read(2, LIMIT)] == [0, 1]
        tracks.push(Track(1, 5))
        compact(tracks)
        with tracks.consumer(name="billing", until="now") as billing:
            assert [track.n for track in billing] == [4, 5]
            assert billing.gaps == (), "compaction is no loss"


def test_an_end_among_compacted_offsets_is_reached(tracks: Channel[Track]) -> None:
    tracks.push_many([Track(0, n) for n in range(10)])
    compact(tracks)
    with tracks.consumer(start=0, until=5) as consumer:
        assert list(consumer) == []
    with tracks.consumer(start=3, until=10) as consumer:
        assert list(consumer) == [Track(0, 9)]


def test_keys_of_every_kind_are_known_again(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        odd = station.channel("odd", Odd, qos=BY_KEY)
        at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
        odd.push_many([Odd(Colour.RED, at, "x" * 100), Odd(Colour.BLUE, at, "é"), Odd(Colour.RED, at, "y")])
        odd.forget(Colour.RED, at, "x" * 100)
        odd.forget("b", at, "é")
        compact(odd)
        assert [event.name for _, event in kept(odd)] == ["y"]


@pytest.mark.parametrize("key", [(), (1, 2), ("1",), (1.5,), (None,)])
def test_a_key_that_no_event_has_is_refused(tracks: Channel[Track], key: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidEvent):
        tracks.forget(*key)


def test_which_type_is_meant_has_to_be_said_when_there_are_several(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        both: Channel[Any] = station.channel("both", Track, Odd, qos=BY_KEY)
        both.push(Track(1, 1))
        with pytest.raises(NotPossible, match="type="):
            both.forget(1)
        assert both.forget(1, type=Track)
        compact(both)
        assert kept(both) == []


def test_only_a_compacted_history_forgets(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        plain = station.channel("plain", Track, qos=hg.QoS(durability="persistent"))
        with pytest.raises(NotPossible, match="compaction='key'"):
            plain.forget(1)
        with pytest.raises(NotPossible, match="compaction='key'"):
            station.channel("volatile", Track).forget(1)


def test_who_cannot_push_cannot_have_a_key_forgotten(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        consumed = station.channel("consumed", Track, qos=BY_KEY, access="consume")
        with pytest.raises(NotPossible, match="only consumes here"):
            consumed.forget(1)
        closed = station.channel("closed", Track, qos=BY_KEY)
        closed.close()
        with pytest.raises(hg.Closed):
            closed.forget(1)


def test_types_without_a_key_are_refused_where_they_would_never_go(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        with pytest.raises(NotPossible, match="has no key"):
            station.channel("keyless", Keyless, qos=BY_KEY)
        channel: Channel[Any] = station.channel("air.tracks", Track, qos=BY_KEY)
        with pytest.raises(NotPossible, match="has no key"):
            station.channel("air.tracks", Keyless)
        assert channel.types == (Track,)


def test_compaction_without_a_journal_is_refused() -> None:
    with pytest.raises(InvalidQoS):
        hg.QoS(compaction="key")


def crashed_and_open(rig: Rig) -> tuple[Rig, Channel[Track]]:
    after = Rig(disk=rig.disk.crash(), seed=1)
    return after, after.station.channel("air.tracks", Track, qos=BY_KEY)


def test_a_push_that_was_compacted_away_is_recognised_when_it_is_repeated() -> None:
    """Else the repeated push would be the last of its key, and undo what came after it."""
    rig = Rig()
    tracks = rig.station.channel("air.tracks", Track, qos=BY_KEY)
    with tracks.consumer(start="earliest") as consumer:
        tracks.push(Track(1, 0), id="order-1")
        first = next(consumer.deliveries(LIMIT)).header.id
    tracks.push(Track(1, 1))
    compact(tracks)
    assert kept(tracks) == [(1, Track(1, 1))]
    for _ in range(3):
        rig, tracks = crashed_and_open(rig)
        assert tracks.push(Track(1, 0), id="order-1")
        assert tracks.push(Track(1, 0), id=str(first))
        assert [event.n for _, event in kept(tracks)][-1:] != [0]
        tracks.push(Track(1, 2))
        compact(tracks)
    assert [event for _, event in kept(tracks)] == [Track(1, 2)]


def test_ids_of_what_was_compacted_are_kept_as_far_back_as_ids_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (repeats, partition, store):
        monkeypatch.setattr(module, "WINDOW", 10)
    rig = Rig()
    tracks = rig.station.channel("air.tracks", Track, qos=BY_KEY)
    for n in range(20):
        tracks.push(Track(1, n), id=f"order-{n}")
        if n % 7 == 6:
            compact(tracks)
    compact(tracks)
    rig, tracks = crashed_and_open(rig)
    for n in range(10, 20):
        tracks.push(Track(1, n), id=f"order-{n}")
    assert kept(tracks) == [(19, Track(1, 19))]
    tracks.push(Track(1, 9), id="order-9")
    assert kept(tracks)[-1] == (20, Track(1, 9)), "it is forgotten"
