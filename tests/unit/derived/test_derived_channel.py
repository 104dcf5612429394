"""Derived channels in one station: sharing, order, back-pressure, history, groups, statistics, refusals."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import ExpressionError, FormatError, InvalidOption, NotPossible, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 20.0
KMH = "id, speed * 2 AS double"


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    note: str = "a note that nobody derives"


class Fast(hg.Event, name="fast"):
    id: int
    double: float


class Ship(hg.Event, name="sea.ship"):
    id: int


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station() as open_station:
        yield open_station


def _push_until_full(channel: hg.Channel[Track]) -> int:
    for track in tracks(1000):
        try:
            channel.push(track)
        except QueueFull:
            return track.id
    raise AssertionError("it is never full")


def tracks(number: int) -> list[Track]:
    return [Track(n, float(n)) for n in range(number)]


def test_events_come_derived_once_with_their_headers_in_order(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    derived = channel.derive(KMH, where="speed > :least", params={"least": 2})
    got: list[Any] = []
    original: list[Any] = []
    channel.subscribe(lambda event, header: original.append(header))
    derived.subscribe(lambda event, header: got.append((event.id, event.double, header)))
    channel.push(Track(9, 9.0), priority=5, headers={"trace": "a"})
    channel.push_many(tracks(100))
    for track in tracks(20):
        channel.push(track)
    assert channel.settle(LIMIT)
    assert derived.settle(LIMIT)
    wanted = [9, *range(3, 100), *range(3, 20)]
    assert [(row, double) for row, double, _ in got] == [(n, 2.0 * n) for n in wanted]
    by_id = {header.id: header for header in original}
    for _, _, header in got:
        source = by_id[header.id]
        kept = ("supplier", "epoch", "sequence", "source_ts", "station_seq", "priority", "headers", "key")
        assert [getattr(header, name) for name in kept] == [getattr(source, name) for name in kept]
        assert header.channel == derived.name
        assert header.format_id == derived.format.id != source.format_id


def test_who_asks_for_the_same_shares_one_channel_and_one_evaluation(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    first = channel.derive(KMH, where="speed > 2")
    second = channel.derive("id,  speed*2 as double", where=hg.col("speed") > 2)
    third = channel.derive(KMH, where="speed > 3")
    assert first.digest == second.digest != third.digest
    counted = [first.consumer(), second.consumer(where="double > 100"), third.consumer()]
    channel.push_many(tracks(100))
    assert first.settle(LIMIT)
    assert third.settle(LIMIT)
    assert [len(consumer.read(1000, timeout=0)) for consumer in counted] == [97, 49, 96]
    assert first.stats().counts.derived == 97
    assert first.stats().channel.balanced
    assert channel.stats().balanced
    assert len(channel.receivers()) == 2


def test_a_class_of_ones_own_is_what_callbacks_get_and_one_process_has_one(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    derived = channel.derive(KMH, into=Fast)
    consumer = derived.consumer()
    channel.push(Track(1, 2.5))
    event = consumer.pull(LIMIT)
    assert isinstance(event, Fast)
    assert event.double == 5.0

    class Other(hg.Event, name="other"):
        id: int
        double: float

    assert channel.derive(KMH, into=Fast).digest == channel.derive(KMH).digest == derived.digest
    with pytest.raises(NotPossible, match="is open with Fast"):
        channel.derive(KMH, into=Other)
    with pytest.raises(FormatError, match="no field for double"):
        channel.derive("id, speed AS double, 1 AS more", into=Ship)


def test_a_full_queue_behind_the_derivation_holds_the_supplier_up_and_nothing_is_lost(
    station: hg.Station,
) -> None:
    qos = hg.QoS(queue=8, max_blocking=0.05)
    channel = station.channel("air.tracks", Track, qos=qos)
    derived = channel.derive(KMH)
    consumer = derived.consumer()
    pushed = _push_until_full(channel)
    assert 8 <= pushed < 200  # the queue, the tap's, and what the tap has in hand
    got = [event.id for event in consumer.read(1000, timeout=LIMIT)]
    while len(got) < pushed:
        got += [event.id for event in consumer.read(1000, timeout=LIMIT)]
    assert got == list(range(pushed))
    assert channel.push(Track(5000, 1.0))
    last: Any = consumer.pull(LIMIT)
    assert last.id == 5000
    assert channel.stats().balanced


def test_inline_receivers_are_called_outside_of_the_push_and_may_push_themselves(
    station: hg.Station,
) -> None:
    channel = station.channel("air.tracks", Track)
    derived = channel.derive(KMH, where="id < 1000")
    done, got = Event(), []

    def echo(event: Any) -> None:
        got.append(event.id)
        if event.id < 50:
            channel.push(Track(event.id + 1000, 0.0))
        if len(got) == 100:
            done.set()

    derived.subscribe(echo, inline=True)
    channel.push_many(tracks(100))
    assert done.wait(LIMIT)
    assert got == list(range(100))


def test_two_threads_of_one_supplier_keep_their_order(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    consumer = channel.derive(KMH).consumer()
    supplier = channel.supplier()
    threads = [Thread(target=lambda: [supplier.push(Track(n, 0.0)) for n in range(500)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    sequences = []
    for delivery in consumer.deliveries(timeout=LIMIT):
        sequences.append(delivery.header.sequence)
        if len(sequences) == 1500:
            break
    for thread in threads:
        thread.join()
    assert sequences == list(range(1, 1501))


def test_history_is_derived_as_it_is_read_and_a_durable_consumer_goes_on(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        channel.push_many(tracks(100))
        derived = channel.derive(KMH, where="speed >= 90")
        with derived.consumer(name="billing", start="earliest", until="now") as consumer:
            read = [(d.header.offset, d.event.double) for d in consumer.deliveries(timeout=LIMIT)]
        assert read == [(n, 2.0 * n) for n in range(90, 100)]
        live: Any = derived.consumer(start="now")
        channel.push_many(tracks(100))
        assert [live.pull(LIMIT).id for _ in range(10)] == list(range(90, 100))
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track)
        derived = channel.derive(KMH, where="speed >= 90")
        with (
            channel.consumer(name="billing", start="now") as plain,
            derived.consumer(name="billing", until="now") as consumer,
        ):
            assert [d.header.offset for d in consumer.deliveries(timeout=LIMIT)] == list(range(190, 200))
            assert plain.pull(0) is None


def test_the_seam_between_history_and_live_has_no_gap_and_no_repetition(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        channel.push_many(tracks(2000))
        derived = channel.derive(KMH, where="id % 2 = 0")
        pusher = Thread(target=lambda: [channel.push_many(tracks(100)) for _ in range(30)])
        pusher.start()
        offsets = []
        with derived.consumer(start="earliest") as consumer:
            for delivery in consumer.deliveries(timeout=LIMIT):
                offsets.append(delivery.header.offset)
                if len(offsets) == 2500:
                    break
        pusher.join()
        assert offsets == list(range(0, 5000, 2))
        assert derived.stats().channel.balanced


def test_a_group_shares_a_derived_stream(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        derived = channel.derive(KMH)
        members = [derived.consumer(group="workers", start="earliest") for _ in range(2)]
        channel.push_many(tracks(40))
        got: list[int] = []
        while len(got) < 40:
            for member in members:
                got += [event.double for event in member.read(5, timeout=0.1)]
        assert sorted(got) == [2.0 * n for n in range(40)]


def test_what_is_saved_is_told_for_the_derivation_and_for_each_receiver(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    derived = channel.derive(KMH, where="id >= 90")
    derived.consumer(name="all")
    derived.consumer(name="few", where="double >= 190")
    channel.push_many(tracks(100))
    stats = derived.stats()
    assert stats.counts.derived == 10
    assert stats.counts.bytes_before == 10 * (16 + len(Track(0, 0.0).note))
    assert stats.counts.bytes_after == 160
    assert stats.saved.events == 90
    assert stats.saved.bytes == stats.counts.bytes_before * 10 - 160
    assert stats.receivers["all"] == stats.saved
    assert stats.receivers["few"].bytes < stats.saved.bytes


def test_receivers_of_a_derived_channel_are_receivers_of_the_original(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    assert not channel.wait_matched(1, timeout=0)
    derived = channel.derive(KMH)
    assert not channel.wait_matched(1, timeout=0)
    Thread(target=derived.consumer).start()
    assert channel.wait_matched(1, timeout=LIMIT)


def test_closing_ends_the_work_and_a_closed_one_is_opened_anew(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    derived = channel.derive(KMH)
    derived.consumer()
    derived.close()
    assert channel.receivers() == ()
    assert derived.name not in station.stats()
    again = channel.derive(KMH)
    consumer = again.consumer()
    channel.push(Track(1, 1.0))
    event: Any = consumer.pull(LIMIT)
    assert event.double == 2.0
    channel.close()
    assert consumer.pull(LIMIT) is None


def test_what_cannot_be_derived_is_refused_with_the_reason(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    with pytest.raises(ExpressionError, match="did you mean speed"):
        channel.derive("id, sped")
    with pytest.raises(ExpressionError, match="parameter :k has no value"):
        channel.derive("id, speed * :k AS x")
    with pytest.raises(ExpressionError, match="which the expression does not use"):
        channel.derive("id, speed * :k AS x", where="id > :l", params={"k": 1, "l": 2, "m": 3})
    with pytest.raises(TypeError, match="select= is text"):
        channel.derive(["id"])  # type: ignore[call-overload]  # what is tested
    delivered = station.channel("air.delivered", Track, qos=hg.QoS(ack="delivered"))
    with pytest.raises(NotPossible, match="ack='delivered'"):
        delivered.derive("id")
    mixed: hg.Channel[Any] = station.channel("mixed", Track, Ship)
    with pytest.raises(NotPossible, match="say type="):
        mixed.derive("id")
    assert mixed.derive("id", type=Ship).event_type.__name__ == "Generated"
    derived: hg.Channel[Any] = station.channel(channel.derive("id").name)
    with pytest.raises(NotPossible, match="is derived itself"):
        derived.derive("id")


def test_patterns_of_names_do_not_meet_derived_channels(station: hg.Station) -> None:
    got: list[Any] = []
    channel = station.channel("air.tracks", Track)
    station.subscribe("**", got.append)
    channel.derive(KMH).consumer()
    channel.push(Track(1, 1.0))
    assert channel.settle(LIMIT)
    assert got == [Track(1, 1.0)]


def test_snapshots_and_metrics_say_what_was_saved(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track)
    channel.parameters.declare(rate=hg.Parameter(10.0))
    derived = channel.derive(KMH, where="id >= 90")
    derived.consumer(name="all")
    channel.push_many(tracks(100))
    assert derived.settle(LIMIT)
    snapshot = station.snapshot()
    original, found = snapshot.channel("air.tracks"), snapshot.channel(derived.name)
    assert original is not None
    assert [one.kind for one in original.receivers] == ["tap"]
    assert original.parameters == {"rate": 10.0}
    assert found is not None
    assert found.derived is not None
    assert (found.derived.original, found.derived.select, found.derived.where) == (
        "air.tracks",
        KMH,
        "id >= 90",
    )
    saved = derived.stats().saved
    assert (found.derived.derived, found.derived.saved_events, found.derived.saved_bytes) == (
        10,
        90,
        saved.bytes,
    )
    assert found.receivers[0].saved_bytes == saved.bytes
    label = f'{{channel="{derived.name}"}}'
    metrics = station.metrics()
    assert f"heliograph_channel_derived_events_total{label} 10" in metrics
    assert f"heliograph_channel_left_out_events_total{label} 90" in metrics
    assert f"heliograph_channel_saved_bytes_total{label} {saved.bytes}" in metrics


def test_a_table_of_the_history_has_the_columns_that_a_derived_channel_has(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        channel.push_many(tracks(100))
        wanted: Any = {"where": "id >= :least", "params": {"least": 95, "k": 2}}
        columns = "id, speed * :k AS double, header.offset AS place, note"
        table = channel.table(select=columns, **wanted)
        assert table.schema.names == ["id", "double", "place", "note"]
        rows = table.arrow().to_pylist()
        with channel.derive(columns, **wanted).consumer(start="earliest", until="now") as consumer:
            derived = [{**event.to_dict()} for event in consumer]
        assert rows == derived
        assert [row["place"] for row in rows] == list(range(95, 100))
        assert table.count() == 5
        with pytest.raises(InvalidOption, match="left out"):
            channel.table(select="id", columns=["id"])
        with pytest.raises(ExpressionError, match="no field 'nothing'"):
            channel.table(select="nothing")


class Picky(hg.Event, name="picky"):
    id: int
    double: float

    def __post_init__(self) -> None:
        if self.id == 3:
            raise RuntimeError("not three")


def _seen(derived: Any) -> list[int]:
    got: list[int] = []
    derived.subscribe(lambda event, header: got.append(event.id), name="seen")
    return got


@pytest.mark.parametrize("many", [False, True])
def test_an_event_that_the_class_of_derived_events_refuses_stays_alone(*, many: bool) -> None:
    told: list[Any] = []
    was_told = Event()

    def on_error(receiver: str, header: Any, error: BaseException) -> None:
        told.append((receiver, header.channel, str(error)))
        was_told.set()

    with hg.Station(on_error=on_error) as station:
        channel = station.channel("air.tracks", Track)
        derived = channel.derive(KMH, into=Picky)
        got = _seen(derived)
        if many:
            channel.push_many(tracks(40))
        else:
            for track in tracks(40):
                channel.push(track)
        assert derived.settle(LIMIT)
        assert got == [n for n in range(40) if n != 3]
        assert was_told.wait(LIMIT)
        assert told == [(derived.name, "air.tracks", "not three")]
        counts = derived.stats().counts
        assert (counts.derived, counts.failed) == (39, 1)


def test_what_waits_in_a_tap_is_derived_though_the_class_refuses_one_of_it(station: hg.Station) -> None:
    channel = station.channel("air.tracks", Track, qos=hg.QoS(queue=2, max_blocking=0.05))
    derived = channel.derive(KMH, into=Picky)
    consumer = derived.consumer()
    pushed = _push_until_full(channel)
    assert pushed > 3, "the third waits in the tap"
    got = [next(iter(consumer.deliveries(timeout=LIMIT))).event.id for _ in range(pushed - 1)]
    assert got == [n for n in range(pushed) if n != 3]
    channel.push(Track(100, 1.0))
    assert next(iter(consumer.deliveries(timeout=LIMIT))).event.id == 100


def test_a_history_is_derived_but_for_what_the_class_refuses(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        derived = channel.derive(KMH, into=Picky)
        got = _seen(derived)
        channel.push_many(tracks(8))
        assert channel.settle(LIMIT)
        assert derived.settle(LIMIT)
        assert got == [0, 1, 2, 4, 5, 6, 7]
        assert derived.stats().counts.failed == 1
        with derived.consumer(start="earliest", until="now") as consumer:
            assert [event.id for event in consumer] == [0, 1, 2, 4, 5, 6, 7]
