"""Acknowledgements across stations: a push waits for consumers elsewhere, and they get it again there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.batch import OutgoingBatch
from heliograph.errors import DeliveryTimeout, SupplierFenced, SupplierHeld
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture(params=["volatile", "persistent"])
def durability(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[hg.Station, hg.Station]]:
    """The first one keeps."""
    with (
        hg.Station(tmp_path / "data", domain="air", on_error=lambda *_: None) as a,
        hg.Station(domain="air", on_error=lambda *_: None) as b,
    ):
        yield a, b


def both(pair: tuple[hg.Station, hg.Station], **qos: Any) -> tuple[hg.Channel[Track], hg.Channel[Track]]:
    chosen = hg.QoS(**{"ack": "delivered", "ack_timeout": 60.0, **qos})
    return pair[0].channel("air.tracks", Track, qos=chosen), pair[1].channel("air.tracks", Track, qos=chosen)


def test_push_waits_for_a_consumer_in_another_station(
    pair: tuple[hg.Station, hg.Station], durability: Any
) -> None:
    ours, theirs = both(pair, durability=durability)
    with theirs.consumer(ack="manual") as consumer:
        assert ours.wait_matched(1, LIMIT)
        receipt = ours.push_nowait(Track(1))
        delivery = next(consumer.deliveries(timeout=LIMIT))
        with pytest.raises(DeliveryTimeout):
            receipt.result(timeout=0.05)
        delivery.ack()
        assert receipt.result(timeout=LIMIT)


def test_a_callback_elsewhere_gets_it_again_there_and_nobody_else_does(
    pair: tuple[hg.Station, hg.Station], durability: Any
) -> None:
    ours, theirs = both(pair, durability=durability, ack_timeout=0.05, resends=1000)
    good: list[int] = []
    tries: list[bool] = []

    def shaky(_: Track, header: hg.Header) -> None:
        tries.append(header.redelivered)
        if len(tries) < 3:
            raise ValueError("not yet")

    ours.subscribe(lambda track: good.append(track.id))
    theirs.subscribe(lambda track: good.append(track.id + 100))
    theirs.subscribe(shaky)
    assert ours.wait_matched(3, LIMIT)
    assert ours.push(Track(1))
    assert sorted(good) == [1, 101]
    assert tries == [False, True, True]


def test_push_is_false_when_nobody_elsewhere_acknowledges(
    pair: tuple[hg.Station, hg.Station], durability: Any
) -> None:
    ours, theirs = both(pair, durability=durability, ack_timeout=0.02, resends=1)
    with theirs.consumer(ack="manual"):
        assert ours.wait_matched(1, LIMIT)
        assert ours.push(Track(1)) is False


def test_nobody_waits_for_a_station_that_has_left_and_push_is_false(
    pair: tuple[hg.Station, hg.Station], durability: Any
) -> None:
    ours, theirs = both(pair, durability=durability)
    consumer = theirs.consumer(ack="manual")
    assert ours.wait_matched(1, LIMIT)
    receipt = ours.push_nowait(Track(1))
    assert next(consumer.deliveries(timeout=LIMIT)).event == Track(1)
    pair[1].close()
    assert receipt.result(timeout=LIMIT) is False


def test_what_a_station_acknowledged_right_before_it_left_was_delivered(
    pair: tuple[hg.Station, hg.Station], durability: Any
) -> None:
    ours, theirs = both(pair, durability=durability)
    consumer = theirs.consumer(ack="manual")
    assert ours.wait_matched(1, LIMIT)
    receipt = ours.push_nowait(Track(1))
    next(consumer.deliveries(timeout=LIMIT)).ack()
    pair[1].close()
    assert receipt.result(timeout=LIMIT)


def test_push_is_not_true_when_a_consumer_is_killed_in_the_midst_of_an_event(
    tmp_path: Path, durability: Any
) -> None:
    with hg.Station(tmp_path / "data", domain="e2e", on_error=lambda *_: None) as station:
        qos = hg.QoS(ack="delivered", durability=durability, ack_timeout=60.0)
        ours = station.channel("x", Track, qos=qos)
        program = Program("hang", "x", durability)
        try:
            assert ours.wait_matched(1, LIMIT)
            receipt = ours.push_nowait(Track(1))
            program.says("in hand")
            program.kill()
            assert receipt.result(timeout=LIMIT) is False
        finally:
            program.clean_up()


def test_a_station_that_would_not_acknowledge_is_not_sent_anything(
    pair: tuple[hg.Station, hg.Station],
) -> None:
    ours = pair[0].channel("air.tracks", Track, qos=hg.QoS(ack="delivered"))
    theirs = pair[1].channel("air.tracks", Track)
    theirs.consumer()
    assert wait_until(lambda: ours.stats().unmatched and theirs.stats().unmatched)
    assert "nobody acknowledges" in str(ours.stats().unmatched)
    assert "nobody acknowledges" in str(theirs.stats().unmatched)
    assert ours.push(Track(1))


def test_only_the_keeper_hears_all_acknowledgements(pair: tuple[hg.Station, hg.Station]) -> None:
    _, theirs = both(pair, durability="persistent")
    with pytest.raises(hg.NotPossible, match="in the station that keeps"):
        theirs.push(Track(1))


def test_a_named_supplier_that_is_killed_goes_on_without_loss_or_repetition(tmp_path: Path) -> None:
    """Each event says by its id which sequence its supplier meant it to have."""
    with hg.Station(tmp_path / "data", domain="e2e") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        for _ in range(3):
            program = Program("supply_named", "air.tracks")
            try:
                program.says("acked")
                before = len(program.said)
                assert wait_until(lambda: len(program.said) > before + 20)  # noqa: B023 - within this round
            finally:
                program.clean_up()
            acked = int(program.said[-2].split()[-1])  # the last line may be cut short
        radar = eventually(lambda: tracks.supplier("radar-1"))
        assert radar.last_sequence >= acked
        with tracks.consumer(until="now") as consumer:
            found = [(d.event.id, d.header.sequence) for d in consumer.deliveries()]
    assert found == [(n, n) for n in range(1, radar.last_sequence + 1)]


def test_what_a_killed_member_had_not_acknowledged_goes_to_the_next(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="e2e") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(n) for n in range(500)])
        program = Program("work", "air.tracks")
        try:
            assert wait_until(lambda: len(program.said) > 20 or program.process.poll() is not None)
        finally:
            program.clean_up()
        acked = {int(line.split()[1]) for line in program.said[:-1]}  # the last line may be cut short
        with eventually(lambda: tracks.consumer(group="workers", ack="manual", until="now")) as member:
            rest = {d.event.id: d.redelivered for d in member.deliveries(timeout=LIMIT) if d.ack()}
    assert acked
    assert acked.isdisjoint(rest)
    assert all(rest[n] for n in range(0, max(acked), 3))
    assert len(acked | rest.keys()) >= 500 - 2  # one was acknowledged and not said, one cut short


def test_a_name_that_another_station_holds_is_refused(pair: tuple[hg.Station, hg.Station]) -> None:
    ours, theirs = both(pair, durability="persistent", ack="synced")
    with theirs.supplier("radar-1") as radar:
        radar.push(Track(1))
        with pytest.raises(SupplierHeld):
            ours.supplier("radar-1")
    with ours.supplier("radar-1") as mine:
        assert mine.last_sequence == 1
        with pytest.raises(SupplierHeld, match="is held by"):
            theirs.supplier("radar-1")
    with pytest.raises(SupplierFenced):
        ours.store.append(OutgoingBatch.of([(Track(9), _header(ours), 0)]), "synced")  # type: ignore[union-attr]  # it is persistent


def _header(channel: hg.Channel[Track]) -> hg.Header:
    """Of the first event, as its first holder would push it again."""
    return next(channel.consumer(start="earliest").deliveries(timeout=LIMIT)).header


def test_a_push_is_repeated_under_its_id_through_the_keeper(pair: tuple[hg.Station, hg.Station]) -> None:
    ours, theirs = both(pair, durability="persistent", ack="synced")
    for channel in (theirs, ours, theirs):
        assert channel.push(Track(1), id="order-1")
    assert theirs.push(Track(2), id="order-2")
    with ours.consumer(until="now") as consumer:
        assert [track.id for track in consumer] == [1, 2]


def eventually(attempt: Callable[[], Any]) -> Any:
    """What it returns once the keeper has seen that the holder is dead."""
    found: list[Any] = []

    def tried() -> bool:
        try:
            found.append(attempt())
        except (hg.NotPossible, SupplierHeld):
            return False
        return True

    assert wait_until(tried)
    return found[0]
