"""Pushes under an id, which may be repeated, and suppliers with a name, which go on where they were."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec.structs import replace

import heliograph as hg
from heliograph.channel.batch import OutgoingBatch
from heliograph.errors import AppendFailed, AppendTimeout, DiskFull, JournalBusy, SupplierFenced, SupplierHeld
from heliograph.journal.store import JournalStore
from heliograph.journal.writing import dedup_window as repeats
from heliograph.model.event import EventId
from heliograph.testing import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heliograph.journal.format.records import Record, RecordRun

PERSISTENT = hg.QoS(durability="persistent")
LIMIT = 10.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def opened(rig: Rig) -> hg.Channel[Track]:
    return rig.station.channel("air.tracks", Track, qos=PERSISTENT)


@pytest.fixture
def tracks(helio: Rig) -> hg.Channel[Track]:
    return opened(helio)


def ids(channel: hg.Channel[Track]) -> list[int]:
    return [track.id for track in channel.consumer(start="earliest", until="now")]


def wait_until_final(store: JournalStore) -> None:
    """Until what was pushed is on disk, or never will be."""
    last = store._writer.between(lambda: None)
    assert last is not None
    last.wait_until_final(LIMIT)


def restarted(rig: Rig) -> Rig:
    return Rig(disk=rig.disk.crash(), seed=1)


def test_a_push_that_is_repeated_under_its_id_is_kept_once(tracks: hg.Channel[Track]) -> None:
    assert tracks.push(Track(1), id="order-1")
    assert tracks.push(Track(1), id="order-1")
    assert tracks.push_nowait(Track(1), id="order-1").result(LIMIT)
    assert tracks.push(Track(2), id="order-2")
    assert tracks.push(Track(3))
    assert ids(tracks) == [1, 2, 3]


def test_the_id_arrives_in_the_headers(tracks: hg.Channel[Track]) -> None:
    tracks.push(Track(1), id="order-1", headers={"site": "a"})
    delivery = next(tracks.consumer().deliveries(timeout=LIMIT))
    assert delivery.header.headers == {"site": "a", "push-id": "order-1"}


def test_ids_are_known_after_a_crash() -> None:
    rig = Rig()
    opened(rig).push(Track(1), id="order-1")
    after = restarted(rig)
    tracks = opened(after)
    assert tracks.push(Track(1), id="order-1")
    assert tracks.push(Track(2), id="order-2")
    assert ids(tracks) == [1, 2]
    after.station.close()


def test_a_push_whose_outcome_was_unknown_is_repeated_under_its_event_id(tracks: hg.Channel[Track]) -> None:
    """Also the first push under an id finds what is only in line for the disk."""
    unknown = _event_of_unknown_outcome(tracks)
    pushed = tracks.stats().pushed
    assert tracks.push(Track(1), id=unknown)
    assert len(ids(tracks)) == pushed
    assert tracks.push(Track(2), id=unknown)
    assert len(ids(tracks)) == pushed


def _event_of_unknown_outcome(tracks: hg.Channel[Track]) -> str:
    while True:
        try:
            tracks.push_nowait(Track(1)).result(timeout=0.0)
        except AppendTimeout as timeout:
            return timeout.event


def test_events_of_a_batch_have_ids_too(tracks: hg.Channel[Track]) -> None:
    tracks.push(Track(0), id="first")
    tracks.push_many([Track(1), Track(2)])
    deliveries = list(tracks.consumer(until="now").deliveries())
    for delivery in deliveries:
        tracks.push(delivery.event, id=str(delivery.header.id))
    assert ids(tracks) == [0, 1, 2]


def test_many_threads_that_push_one_id_keep_it_once(tracks: hg.Channel[Track]) -> None:
    threads = [threading.Thread(target=lambda: tracks.push(Track(1), id="order-1")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert ids(tracks) == [1]


def test_the_window_forgets_the_oldest(tracks: hg.Channel[Track], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "WINDOW", 4)
    tracks.push(Track(1), id="order-1")
    tracks.push_many([Track(n) for n in range(2, 12)])
    tracks.push(Track(1), id="order-1")
    assert ids(tracks) == [*range(1, 12), 1]


@pytest.fixture
def stuck(tracks: hg.Channel[Track], monkeypatch: pytest.MonkeyPatch) -> Iterator[hg.Channel[Track]]:
    """Its disk hangs: one event is being written, another fills the line."""
    monkeypatch.setattr("heliograph.journal.writing.group_commit.MAX_WAITING", 1)
    store = tracks.store
    assert isinstance(store, JournalStore)
    partition, begun, go_on = store._writer._partition, threading.Event(), threading.Event()
    sync = partition.sync

    def hanging() -> None:
        begun.set()
        go_on.wait()
        sync()

    monkeypatch.setattr(partition, "sync", hanging)
    # So that a push that waits without limit fails its test instead of hanging it.
    end = threading.Timer(LIMIT, go_on.set)
    end.start()
    tracks.push_nowait(Track(0))
    assert begun.wait(LIMIT)
    tracks.push_nowait(Track(1))
    yield tracks
    go_on.set()
    end.cancel()


def test_a_push_waits_for_its_place_in_line_no_longer_than_told(stuck: hg.Channel[Track]) -> None:
    with pytest.raises(JournalBusy):
        stuck.push(Track(2), timeout=0.01)


def test_so_does_one_for_asyncio(stuck: hg.Channel[Track]) -> None:
    with pytest.raises(JournalBusy):
        asyncio.run(stuck.apush(Track(2), timeout=0.01))


def test_a_push_for_asyncio_says_how_long_it_has_waited_for_the_disk(
    stuck: hg.Channel[Track], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.journal.writing.group_commit.MAX_WAITING", 1 << 20)
    with pytest.raises(AppendTimeout) as caught:
        asyncio.run(stuck.apush(Track(2), timeout=0.01))
    assert caught.value.seconds == 0.01


def test_the_first_push_under_an_id_waits_no_longer_than_told(stuck: hg.Channel[Track]) -> None:
    with pytest.raises(AppendTimeout) as caught:
        stuck.push(Track(2), id="order-2", timeout=0.01)
    assert caught.value.event == "order-2"


@pytest.mark.parametrize("ack", ["journal", "synced"])
def test_an_id_whose_event_was_lost_is_not_known(
    helio: Rig, monkeypatch: pytest.MonkeyPatch, ack: Literal["journal", "synced"]
) -> None:
    qos = hg.QoS(durability="persistent", ack=ack)
    tracks = helio.station.channel("air.tracks", Track, qos=qos)
    tracks.push(Track(1), id="order-1")
    store = tracks.store
    assert isinstance(store, JournalStore)
    wait_until_final(store)

    def refused() -> None:
        raise DiskFull("sync", "a head", "no space left")

    with monkeypatch.context() as full, suppress(AppendFailed):
        full.setattr(store._writer._partition, "_synced_head", refused)
        lost = tracks.push_nowait(Track(2), id="order-2")
        wait_until_final(store)
        lost.result(LIMIT)
    assert tracks.push(Track(2), id="order-2")
    assert tracks.push(Track(2), id="order-2")
    assert tracks.push(Track(3), id="order-3")
    wait_until_final(store)
    assert ids(tracks) == [1, 2, 3]


def test_what_came_before_the_first_id_is_forgotten_first(
    tracks: hg.Channel[Track], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "WINDOW", 2)
    known = repeats.DedupWindow()
    tracks.push_many([Track(n) for n in range(3)])
    store = tracks.store
    assert isinstance(store, JournalStore)
    rows = list(store._rows(0))
    receipt = store._writer.between(lambda: None)
    assert receipt is not None
    newer = next(tracks.consumer().deliveries())
    newest = replace(newer.header, sequence=100), replace(newer.header, sequence=101)
    known.note([(newer.event, header, 0) for header in newest], receipt)
    known.read_before(rows)
    assert all(str(header.id) in known for header in newest)
    assert [str(EventId(row.supplier, row.epoch, row.sequence)) in known for row in rows] == [
        False,
        True,
        True,
    ]


def test_without_a_journal_ids_are_refused(helio: Rig) -> None:
    volatile = helio.station.channel("volatile", Track)
    for push in (volatile.push, volatile.push_nowait):
        with pytest.raises(hg.NotPossible, match="durability='persistent'"):
            push(Track(1), id="order-1")
    delivered = helio.station.channel(
        "delivered", Track, qos=hg.QoS(durability="persistent", ack="delivered")
    )
    with pytest.raises(hg.NotPossible, match="watched only once"):
        delivered.push(Track(1), id="order-1")


# Suppliers with a name


def test_a_named_supplier_goes_on_behind_its_last_durable_event() -> None:
    rig = Rig()
    tracks = opened(rig)
    radar = tracks.supplier("radar-1")
    assert radar.last_sequence == 0
    for n in range(3):
        radar.push(Track(n))
    tracks.push(Track(100))
    after = restarted(rig)
    tracks = opened(after)
    with tracks.supplier("radar-1") as again:
        assert again.last_sequence == 3
        assert again.epoch == radar.epoch + 1
        again.push(Track(3))
        assert tracks.stats().pushed == 1
    found = [d.header for d in tracks.consumer(until="now", sources=["radar-1"]).deliveries()]
    assert [(h.epoch, h.sequence) for h in found] == [(1, 1), (1, 2), (1, 3), (2, 4)]
    after.station.close()


def test_notes_keep_the_search_for_the_last_event_short(helio: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.journal.writing.producer_leases.NOTE_EVERY", 10)
    tracks = opened(helio)
    with tracks.supplier("radar-1") as radar:
        for n in range(35):
            radar.push(Track(n))
    store = tracks.store
    assert store is not None
    read_from: list[int] = []
    suppliers = store._suppliers  # type: ignore[attr-defined]  # the search itself is under test
    rows = suppliers._rows

    def watched(start: int) -> object:
        read_from.append(start)
        return rows(start)

    monkeypatch.setattr(suppliers, "_rows", watched)
    with tracks.supplier("radar-1") as again:
        assert again.last_sequence == 35
    assert read_from[0] >= 20


def test_an_earlier_holder_is_fenced(helio: Rig) -> None:
    tracks = opened(helio)
    radar = tracks.supplier("radar-1")
    radar.push(Track(1))
    store = tracks.store
    assert store is not None
    with pytest.raises(SupplierHeld, match="is held by"):
        store.supplier("radar-1", "somebody else")
    helio.clock.advance(31)
    assert store.supplier("radar-1", "somebody else").last_sequence == 1
    with pytest.raises(SupplierFenced) as caught:
        radar.push(Track(2))
    assert (caught.value.epoch, caught.value.current) == (1, 2)
    assert ids(tracks) == [1]


def test_an_append_that_its_holder_began_before_it_was_replaced_is_refused(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks = opened(helio)
    radar = tracks.supplier("radar-1")
    radar.push(Track(1))
    store = tracks.store
    assert isinstance(store, JournalStore)
    rows, taken_over = store._rows_of, []

    def held_up(batch: OutgoingBatch) -> Sequence[Record] | RecordRun:
        """Between the first look at the lease and the place in line."""
        helio.clock.advance(31)
        taken_over.append(store.supplier("radar-1", "somebody else"))
        return rows(batch)

    monkeypatch.setattr(store, "_rows_of", held_up)
    with pytest.raises(SupplierFenced):
        radar.push(Track(2))
    assert taken_over[0].last_sequence == 1
    assert ids(tracks) == [1]


def test_an_earlier_holder_stays_fenced_after_a_restart() -> None:
    rig = Rig()
    first = opened(rig).supplier("radar-1")
    first.push(Track(1))
    first.close()
    second = opened(rig).supplier("radar-1")
    second.push(Track(2))
    after = restarted(rig)
    tracks = opened(after)
    store = tracks.store
    assert store is not None
    header = next(tracks.consumer().deliveries()).header
    with pytest.raises(SupplierFenced):
        store.append(OutgoingBatch.of([(Track(9), header, 0)]), "synced")
    after.station.close()


def test_a_name_is_free_when_its_supplier_is_closed(tracks: hg.Channel[Track]) -> None:
    with tracks.supplier("radar-1") as radar:
        radar.push(Track(1))
        with pytest.raises(hg.NotPossible, match="already"):
            tracks.supplier("radar-1")
        radar.push(Track(2))
    with tracks.supplier("radar-1") as again:
        assert again.last_sequence == 2


def test_without_a_journal_a_name_is_this_stations_own(helio: Rig) -> None:
    with helio.station.channel("volatile", Track).supplier("radar-1") as radar:
        assert radar.last_sequence == 0


def test_an_empty_id_and_a_header_that_looks_like_one_are_refused(tracks: hg.Channel[Track]) -> None:
    with pytest.raises(hg.InvalidEvent, match="id is empty"):
        tracks.push(Track(1), id="")
    with pytest.raises(hg.InvalidEvent, match="cannot hold 'push-id', which is ours; say id="):
        tracks.push(Track(1), headers={"push-id": "x"})


def test_push_nowait_does_not_wait_for_room_in_the_line(stuck: hg.Channel[Track]) -> None:
    with pytest.raises(JournalBusy):
        stuck.push_nowait(Track(2))
