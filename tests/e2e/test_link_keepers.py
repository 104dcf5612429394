"""Several stations that keep one channel: a partition each, and consumers anywhere get all of them once."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import CursorHeld, QueryFailed, SupplierHeld
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def stations(tmp_path: Path) -> Iterator[list[hg.Station]]:
    """Two keepers and a station that has no folder."""
    with (
        hg.Station(tmp_path / "a", domain="air") as one,
        hg.Station(tmp_path / "b", domain="air") as two,
        hg.Station(domain="air") as other,
    ):
        yield [one, two, other]


@pytest.fixture
def channels(stations: list[hg.Station]) -> list[hg.Channel[Track]]:
    opened = [station.channel("air.tracks", Track, qos=PERSISTENT) for station in stations]
    for channel in opened:
        assert meets(channel, 2)
    return opened


def meets(channel: hg.Channel[Any], partitions: int) -> bool:
    """Whether a channel comes to know of so many partitions, all within reach."""
    journal = channel._journal
    assert journal is not None
    return wait_until(lambda: sum(p.reachable for p in journal.feed.partitions.values()) == partitions)


def ids(consumer: Any, number: int) -> list[int]:
    found: list[int] = []
    while len(found) < number and (event := consumer.pull(LIMIT)) is not None:
        found.append(event.id)
    return found


def test_two_stations_with_a_folder_keep_a_partition_each(channels: list[hg.Channel[Track]]) -> None:
    one, two, other = channels
    one.push_many([Track(i) for i in range(100)])
    two.push_many([Track(i) for i in range(100, 200)])
    for channel in channels:
        partitions = defaultdict(list)
        with channel.consumer(start="earliest", until="now") as consumer:
            for delivery in consumer.deliveries():
                partitions[delivery.header.partition].append((delivery.header.offset, delivery.event.id))
        assert sorted(partitions.values(), key=lambda rows: rows[0][1]) == [
            [(i, i) for i in range(100)],
            [(i, 100 + i) for i in range(100)],
        ]
    kept_here = [delivery.header.partition for delivery in other.consumer(until="now").deliveries()]
    assert set(kept_here) == {one.store.partition, two.store.partition}  # type: ignore[union-attr]  # persistent


def test_live_events_of_both_keepers_arrive_once_everywhere(channels: list[hg.Channel[Track]]) -> None:
    seen: list[list[int]] = [[] for _ in channels]
    for channel, into in zip(channels, seen, strict=True):
        channel.subscribe(lambda track, into=into: into.append(track.id))
    for channel in channels[:2]:
        assert channel.wait_matched(3, LIMIT)
    for i in range(300):
        channels[i % 3].push(Track(i))
    assert wait_until(lambda: all(len(found) >= 300 for found in seen))
    for found in seen:
        assert sorted(found) == list(range(300))
        for start in range(3):
            assert [i for i in found if i % 3 == start] == list(range(start, 300, 3))
    assert all(channel.stats().balanced for channel in channels)


def test_joins_at_any_instant_under_load_see_each_partition_once_and_in_order(
    channels: list[hg.Channel[Track]],
) -> None:
    rounds, many = 40, 50

    def push(channel: hg.Channel[Track], first: int) -> None:
        for n in range(rounds):
            channel.push_many([Track(first + many * n + i) for i in range(many)])

    pushing = [
        threading.Thread(target=push, args=(channel, 1_000_000 * place))
        for place, channel in enumerate(channels)
    ]
    for thread in pushing:
        thread.start()
    joined: list[hg.Consumer[Track]] = []
    while any(thread.is_alive() for thread in pushing) and len(joined) < 15:
        joined.append(channels[len(joined) % 3].consumer(start="earliest", queue=100))
        joined[-1].read(max=20, timeout=0.02)
    for thread in pushing:
        thread.join(LIMIT)
    joined += [channel.consumer(start="earliest") for channel in channels]
    for consumer in joined:
        found = ids(consumer, 3 * rounds * many - consumer.counts().delivered)
        for place in range(3):
            of_one = [i for i in found if i // 1_000_000 == place]
            assert of_one == list(range(of_one[0], 1_000_000 * place + rounds * many))
        assert consumer.counts().delivered == 3 * rounds * many
        assert consumer.pull(0.01) is None
    assert all(channel.stats().balanced for channel in channels)


def test_who_begins_now_gets_nothing_of_the_past_of_either(channels: list[hg.Channel[Track]]) -> None:
    one, two, _ = channels
    one.push(Track(1))
    two.push(Track(2))
    consumers = [channel.consumer(start="now") for channel in channels]
    one.push(Track(3))
    two.push(Track(4))
    for consumer in consumers:
        assert sorted(ids(consumer, 2)) == [3, 4]
        assert consumer.pull(0.01) is None


def test_an_instant_is_one_in_every_partition(channels: list[hg.Channel[Track]]) -> None:
    one, two, other = channels
    one.push_many([Track(1), Track(2)])
    two.push(Track(3))
    between = datetime.now(UTC)
    two.push_many([Track(4), Track(5)])
    one.push(Track(6))
    for channel in channels:
        with channel.consumer(start=between, until="now") as consumer:
            assert sorted(track.id for track in consumer) == [4, 5, 6]
        with channel.consumer(start="earliest", until=between) as consumer:
            assert sorted(track.id for track in consumer) == [1, 2, 3]
    assert one.store is not None
    assert two.store is not None
    with other.consumer(start={one.store.partition: 2, two.store.partition: 1}, until="now") as consumer:
        assert sorted(track.id for track in consumer) == [4, 5, 6]
    with other.consumer(until={two.store.partition: 2}) as consumer:
        assert [track.id for track in consumer] == [3, 4]


def test_stations_without_a_folder_agree_on_a_keeper_so_that_a_repeated_push_is_found(
    channels: list[hg.Channel[Track]],
) -> None:
    first = min(channel.store.partition for channel in channels[:2])  # type: ignore[union-attr]  # persistent
    for _ in range(12):
        with hg.Station(domain="air") as station:
            channel = station.channel("air.tracks", Track, qos=PERSISTENT)
            assert channel.store is not None
            assert channel.store.partition == first
            assert channel.push(Track(7), id="order-7")
    with channels[0].consumer(until="now") as consumer:
        assert [track.id for track in consumer] == [7]


def test_an_offset_alone_says_too_little_of_several_partitions(channels: list[hg.Channel[Track]]) -> None:
    with pytest.raises(hg.NotPossible, match=r"several partitions: say \{partition: offset\}"):
        channels[0].consumer(start=3)
    with pytest.raises(hg.NotPossible, match="no partition of its history that is known here"):
        channels[0].consumer(start={"elsewhere": 3})


def test_a_durable_consumer_goes_on_in_any_station(channels: list[hg.Channel[Track]]) -> None:
    for channel, first in zip(channels, (0, 100, 200), strict=True):
        channel.push_many([Track(i) for i in range(first, first + 100)])
    seen: list[int] = []
    for channel in (*channels, *channels):
        with channel.consumer(name="billing", ack="manual") as consumer:
            for _, delivery in zip(range(50), consumer.deliveries(timeout=LIMIT), strict=False):
                assert delivery.ack()
                seen.append(delivery.event.id)
    assert sorted(seen) == list(range(300)), "each once, wherever it went on"
    for first in (0, 100, 200):
        assert [i for i in seen if first <= i < first + 100] == list(range(first, first + 100))


@pytest.mark.parametrize("reopened_by", [0, 1])
def test_a_durable_consumer_gets_what_a_new_keeper_kept_while_it_was_closed(
    tmp_path: Path, reopened_by: int
) -> None:
    with hg.Station(tmp_path / "a", domain="air") as one:
        ours = one.channel("air.tracks", Track, qos=PERSISTENT)
        ours.push(Track(0))
        with ours.consumer(name="billing", start="now") as consumer:
            ours.push(Track(1))
            assert ids(consumer, 1) == [1]
            assert consumer.pull(0.01) is None  # asking for the next acknowledges
        with hg.Station(tmp_path / "b", domain="air") as two:
            theirs = two.channel("air.tracks", Track, qos=PERSISTENT)
            assert meets(ours, 2)
            assert meets(theirs, 2)
            ours.push(Track(2))
            theirs.push_many([Track(100), Track(101)])
            with (ours, theirs)[reopened_by].consumer(name="billing", start="now") as consumer:
                assert sorted(ids(consumer, 3)) == [2, 100, 101]
                assert consumer.pull(0.01) is None


def test_a_durable_consumer_is_exclusive_among_keepers(channels: list[hg.Channel[Track]]) -> None:
    for holder in channels:
        with holder.consumer(name="billing"):
            for channel in channels:
                if channel is not holder:
                    with pytest.raises(CursorHeld):
                        channel.consumer(name="billing")


def test_of_stations_that_open_a_durable_consumer_at_once_one_has_it(tmp_path: Path) -> None:
    for turn in range(6):
        domain, begin = f"air{turn}", threading.Barrier(2)
        has_it: list[hg.Consumer[Track]] = []
        with (
            hg.Station(tmp_path / f"a{turn}", domain=domain) as one,
            hg.Station(tmp_path / f"b{turn}", domain=domain) as two,
        ):

            def take(station: hg.Station, begin: threading.Barrier, has_it: list[hg.Consumer[Track]]) -> None:
                begin.wait(LIMIT)
                channel = station.channel("air.tracks", Track, qos=PERSISTENT)
                with suppress(CursorHeld):
                    has_it.append(channel.consumer(name="billing"))

            taking = [threading.Thread(target=take, args=(station, begin, has_it)) for station in (one, two)]
            for thread in taking:
                thread.start()
            for thread in taking:
                thread.join(LIMIT)
            assert len(has_it) == 1
            has_it[0].close()


def test_a_group_takes_events_of_all_partitions(channels: list[hg.Channel[Track]]) -> None:
    one, two, other = channels
    one.push_many([Track(i) for i in range(50)])
    two.push_many([Track(i) for i in range(50, 100)])
    members = [other.consumer(group="workers", ack="manual") for _ in range(2)]
    found: list[int] = []

    def take_some() -> bool:
        found.extend(d.event.id for member in members for d in member.deliveries(timeout=0.05) if d.ack())
        return len(found) >= 100

    assert wait_until(take_some)
    assert sorted(found) == list(range(100))


def test_two_desks_of_a_group_that_was_opened_apart_become_one(
    channels: list[hg.Channel[Track]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two keepers do that did not reach each other then."""
    with monkeypatch.context() as patch:
        patch.setattr("heliograph.links.history.client.RemotePartition.reachable", False)
        members = [channel.consumer(group="workers", start="earliest") for channel in channels[:2]]

    def desks() -> list[tuple[str, ...]]:
        return [group.desk.members() for channel in channels for group in channel.asking._groups.values()]

    assert len(desks()) == 2
    members.append(channels[2].consumer(group="workers"))
    for n in range(30):
        channels[n % 2].push(Track(n))
    found: list[int] = []

    def is_one() -> bool:
        for member in members:
            found.extend(track.id for track in member.read(timeout=0))
        return len(desks()) == 1 and len(desks()[0]) == len(members) and set(found) == set(range(30))

    assert wait_until(is_one), (desks(), sorted(found))


def test_while_one_keeper_is_away_the_others_are_read_and_then_what_it_kept(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "a", domain="air") as one, hg.Station(domain="air") as other:
        ours = one.channel("air.tracks", Track, qos=PERSISTENT)
        with hg.Station(tmp_path / "b", domain="air") as two:
            theirs = two.channel("air.tracks", Track, qos=PERSISTENT)
            away = other.channel("air.tracks", Track, qos=PERSISTENT)
            assert meets(away, 2)
            assert meets(ours, 2)
            consumers = [ours.consumer(), away.consumer(), away.consumer(start="now")]
            theirs.push(Track(1))
            for consumer in consumers:
                assert ids(consumer, 1) == [1]
        assert meets(ours, 1)
        ours.push(Track(2))
        for consumer in consumers:
            assert ids(consumer, 1) == [2]
        with hg.Station(tmp_path / "b", domain="air") as two:
            theirs = two.channel("air.tracks", Track, qos=PERSISTENT)
            theirs.push(Track(3))
            ours.push(Track(4))
            for consumer in consumers:
                assert sorted(ids(consumer, 2)) == [3, 4]
                assert consumer.pull(0.01) is None


def test_a_keeper_that_is_met_later_is_read_from_where_its_reader_began(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "b") as alone:
        alone.channel("air.tracks", Track, qos=PERSISTENT).push_many([Track(1), Track(2)])
    with hg.Station(tmp_path / "a", domain="air") as one:
        ours = one.channel("air.tracks", Track, qos=PERSISTENT)
        ours.push(Track(0))
        everything, news, durable = ours.consumer(), ours.consumer(start="now"), ours.consumer(name="billing")
        assert ids(everything, 1) == ids(durable, 1) == [0]
        with hg.Station(tmp_path / "b", domain="air") as two:
            theirs = two.channel("air.tracks", Track, qos=PERSISTENT)
            assert meets(ours, 2)
            assert meets(theirs, 2)
            theirs.push(Track(3))
            assert ids(everything, 3) == [1, 2, 3]
            assert ids(durable, 3) == [1, 2, 3]
            assert ids(news, 1) == [3]
            assert sorted(ids(theirs.consumer(), 4)) == [0, 1, 2, 3]
            for consumer in (everything, news, durable):
                assert consumer.pull(0.01) is None


def test_what_was_acknowledged_while_a_keeper_was_away_is_kept_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hg.Station(tmp_path / "a", domain="air") as one:
        ours = one.channel("air.tracks", Track, qos=PERSISTENT)
        with hg.Station(tmp_path / "b", domain="air") as two:
            theirs = two.channel("air.tracks", Track, qos=PERSISTENT)
            assert meets(ours, 2)
            ours.push_many([Track(i) for i in range(10)])
            theirs.push_many([Track(i) for i in range(100, 110)])
            consumer = ours.consumer(name="billing", ack="manual")
            deliveries = consumer.deliveries(timeout=LIMIT)
            held = [next(deliveries) for _ in range(20)]
            assert sorted(d.event.id for d in held) == [*range(10), *range(100, 110)]
        assert meets(ours, 1)
        for delivery in held:
            if delivery.event.id < 10:
                assert delivery.ack()
        ours.push(Track(10))
        last = next(deliveries)
        assert last.event.id == 10
        assert last.ack()
        with monkeypatch.context() as patch:
            patch.setattr("heliograph.links.history.cursor.KEEPER_LIMIT", 0.1)
            with pytest.raises(QueryFailed, match="cannot be reached"):
                next(delivery for delivery in held if delivery.event.id == 105).ack()
            with pytest.raises(QueryFailed, match="cannot be reached"):
                consumer.close()
        with hg.Station(tmp_path / "b", domain="air") as two:
            two.channel("air.tracks", Track, qos=PERSISTENT)
            assert meets(ours, 2)
            with ours.consumer(name="billing", until="now") as again:
                came = sorted(track.id for track in again)
        # Who acknowledged 105 was told that it may come again: the keeper may yet have been told.
        assert came in (list(range(100, 110)), [i for i in range(100, 110) if i != 105])


def test_a_named_supplier_is_exclusive_among_keepers_and_goes_on_behind_its_last_event(
    channels: list[hg.Channel[Track]],
) -> None:
    for turn, channel in enumerate((*channels, *channels)):
        with channel.supplier("radar-1") as radar:
            assert radar.last_sequence == 2 * turn
            radar.push_many([Track(turn), Track(turn)])
            for other in channels:
                if other is not channel:
                    with pytest.raises(SupplierHeld):
                        other.supplier("radar-1")
    rows = [delivery.header.id for delivery in channels[0].consumer(until="now").deliveries()]
    assert len(set(rows)) == 12, "no id comes twice, in whatever partition"


def test_a_suspended_channel_takes_nothing_from_any_station(stations: list[hg.Station]) -> None:
    """Kept by the station with the manager, by another one, or by the first for one without a folder."""
    managing, _, without = stations
    manager = managing.manager
    manager.create("air.managed", Track, owner="anna")
    opened = [station.channel("air.managed", Track, qos=PERSISTENT) for station in stations]
    assert all(meets(channel, 2) for channel in opened)
    assert all(channel.push(Track(n)) for n, channel in enumerate(opened))
    manager.suspend("air.managed", by="anna")

    def refuses(channel: hg.Channel[Track]) -> bool:
        try:
            channel.push(Track(100))
        except hg.Suspended as error:
            return error.owner == "anna"
        return False

    assert refuses(opened[0])
    # Others are told: what they push meanwhile came before.
    assert wait_until(lambda: all(map(refuses, opened[1:])))
    before = len(list(opened[0].consumer(until="now")))
    assert all(map(refuses, opened))
    with pytest.raises(hg.Suspended):
        opened[2].push(Track(101), deliver_after=60.0)
    late: hg.Supplier[Track] = without.channel("air.managed", Track).supplier()
    with pytest.raises(hg.Suspended):
        late.push(Track(102))
    assert len(list(opened[0].consumer(until="now"))) == before
    manager.restart("air.managed", by="anna")
    assert wait_until(lambda: not any(map(refuses, opened)))
    assert len(list(opened[0].consumer(until="now"))) > before


def test_the_keeper_itself_refuses_what_a_station_pushes_that_has_not_been_told(
    stations: list[hg.Station], monkeypatch: pytest.MonkeyPatch
) -> None:
    managing, _, without = stations
    managing.manager.create("air.managed", Track, owner="anna")
    monkeypatch.setattr("heliograph.links.mesh.mesh._hear_suspension", lambda *_: None)
    elsewhere = without.channel("air.managed", Track, qos=PERSISTENT)
    assert elsewhere.push(Track(1))
    managing.manager.suspend("air.managed", by="anna")
    with pytest.raises(hg.Suspended, match="anna"):
        elsewhere.push(Track(2))
    with pytest.raises(hg.Suspended):
        elsewhere.push(Track(3), deliver_after=60.0)
