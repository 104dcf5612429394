"""Groups that acknowledge: members share one stream and, on a persistent channel, one cursor."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.channel.routing.groups import score

if TYPE_CHECKING:
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.testing import Rig

LIMIT = 10.0
PERSISTENT = hg.QoS(durability="persistent")


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Note(hg.Event, name="note"):
    text: str


@pytest.fixture
def tracks(helio: Rig) -> hg.Channel[Track]:
    return helio.station.channel("air.tracks", Track, qos=PERSISTENT)


def next_of(consumer: Consumer[Track]) -> hg.Delivery[Track]:
    return next(consumer.deliveries(timeout=LIMIT))


def all_of(consumer: Consumer[Track]) -> list[Track]:
    return [d.event for d in consumer.deliveries(timeout=0)]


def test_each_event_goes_to_one_member_and_keys_stick(tracks: hg.Channel[Track]) -> None:
    tracks.push_many([Track(n % 10, float(n)) for n in range(200)])
    members = [tracks.consumer(group="workers", ack="manual") for _ in range(3)]
    shares = [all_of(member) for member in members]
    assert sorted(t.speed for share in shares for t in share) == [float(n) for n in range(200)]
    owners = Counter(key for share in shares for key in {t.id for t in share})
    assert set(owners.values()) == {1}
    for share in shares:
        for key in {t.id for t in share}:
            speeds = [t.speed for t in share if t.id == key]
            assert speeds == sorted(speeds)
    assert tracks.stats().balanced


def test_keys_are_shared_out_evenly_whoever_the_members_are() -> None:
    for one in range(200):  # numbers in place of names: their hashes are the same in every run
        first, second = one * 7919, one * 104_729 + 1
        keys = sum(score(first, (key,)) > score(second, (key,)) for key in range(100))  # type: ignore[arg-type]  # as said
        assert 25 < keys < 75


def test_a_group_goes_on_where_it_was_when_its_last_member_has_left(tracks: hg.Channel[Track]) -> None:
    tracks.push_many([Track(n) for n in range(4)])
    with tracks.consumer(group="workers", ack="manual") as one:
        first, _second = next_of(one), next_of(one)
        first.ack()
    with tracks.consumer(group="workers", ack="manual") as other:
        assert [(d.event.id, d.redelivered) for d in other.deliveries(timeout=0)] == [
            (1, True),
            (2, True),
            (3, True),
        ]


def test_what_a_member_held_goes_to_the_others_when_it_leaves(tracks: hg.Channel[Track]) -> None:
    one = tracks.consumer(group="workers", ack="manual")
    tracks.push_many([Track(n) for n in range(4)])
    held = all_of(one)
    assert len(held) == 4
    with tracks.consumer(group="workers", ack="manual") as other:
        assert all_of(other) == []
        one.close()
        assert sorted(track.id for track in all_of(other)) == [0, 1, 2, 3]


def test_a_member_that_stalls_loses_its_events_with_the_lease(tracks: hg.Channel[Track], helio: Rig) -> None:
    stalled = tracks.consumer(group="workers", ack="manual", lease=5.0)
    tracks.push(Track(1))
    held = next_of(stalled)
    with tracks.consumer(group="workers") as other:
        helio.clock.advance(5.0)
        # The key belongs to one of the two: whoever asks finds that the lease is over.
        found = all_of(other) + all_of(stalled)
        assert found == [Track(1)]
        assert held.ack()


def test_a_member_that_waits_finds_a_lease_that_ends_meanwhile() -> None:
    with hg.Station() as station:
        notes = station.channel("notes", Note)
        stalled = notes.consumer(group="workers", ack="manual", lease=0.05)
        other = notes.consumer(group="workers")
        got: list[hg.Delivery[Note]] = []
        waiting = threading.Thread(target=lambda: got.append(next(other.deliveries(timeout=LIMIT))))
        notes.push(Note("a"))
        assert next(stalled.deliveries(timeout=LIMIT)).attempt == 1
        waiting.start()
        waiting.join(LIMIT)
        assert (got[0].event, got[0].redelivered) == (Note("a"), True)


def test_events_without_a_key_go_to_whoever_asks(helio: Rig) -> None:
    notes = helio.station.channel("notes", Note, qos=PERSISTENT)
    one, other = notes.consumer(group="g", ack="manual"), notes.consumer(group="g", ack="manual")
    notes.push_many([Note(str(n)) for n in range(4)])
    taken = [next(m.deliveries(timeout=LIMIT)).event.text for m in (one, other, one, other)]
    assert taken == ["0", "1", "2", "3"]


def test_max_in_flight_holds_for_each_member(helio: Rig) -> None:
    notes = helio.station.channel("notes", Note, qos=PERSISTENT)
    members = [notes.consumer(group="g", ack="manual", max_in_flight=3) for _ in range(2)]
    notes.push_many([Note(str(n)) for n in range(10)])
    assert [len(list(m.deliveries(timeout=0))) for m in members] == [3, 3]


def test_members_agree_or_are_refused(tracks: hg.Channel[Track]) -> None:
    with tracks.consumer(group="workers", ack="manual", where="speed > 3"):
        with pytest.raises(hg.NotPossible, match="other terms"):
            tracks.consumer(group="workers", ack="auto", where="speed > 3")
        with pytest.raises(hg.NotPossible, match="all want the same"):
            tracks.consumer(group="workers", where="speed > 4")
        with pytest.raises(hg.NotPossible, match="all want the same"):
            tracks.consumer(group="workers")
        tracks.consumer(group="workers", where="speed > 3").close()
        with pytest.raises(hg.NotPossible, match="without an end"):
            tracks.consumer(group="workers", where="speed > 3", until="now")


def test_a_group_that_does_not_acknowledge_is_another_kind(helio: Rig) -> None:
    notes = helio.station.channel("notes", Note)
    with notes.consumer(group="g"), pytest.raises(hg.NotPossible, match="do not acknowledge"):
        notes.consumer(group="g", ack="manual")


def test_threads_share_a_stream_without_loss_or_repetition() -> None:
    with hg.Station() as station:
        notes = station.channel("notes", Note)
        seen: list[list[str]] = [[] for _ in range(4)]
        members = [notes.consumer(group="g", ack="auto", lease=60.0) for _ in seen]

        def work(mine: list[str], member: Consumer[Note]) -> None:
            mine.extend(note.text for note in member)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(seen, members, strict=True)]
        for thread in threads:
            thread.start()
        for n in range(2_000):
            notes.push(Note(str(n)))
        while notes.stats().consumers["group g"].pending:
            threading.Event().wait(0.001)
        for member in members:
            member.close()
        for thread in threads:
            thread.join(LIMIT)
    assert sorted(int(text) for mine in seen for text in mine) == list(range(2_000))


@pytest.mark.parametrize("name", ["group:workers", "supplier:radar-1"])
def test_a_durable_consumer_cannot_have_the_cursor_of_a_group_or_the_lease_of_a_supplier(
    name: str, helio: Rig
) -> None:
    tracks = helio.station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    with pytest.raises(hg.NotPossible, match="group="):
        tracks.consumer(name=name)
