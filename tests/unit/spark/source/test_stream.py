"""The way of a stream: where it begins, how far each batch goes, what it says when history has gone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.errors import HistoryDamaged, InvalidOption, NoHistory
from heliograph.journal import lag
from heliograph.spark.source.options import parse_options
from heliograph.spark.source.partitions import ChannelPartitions, Key
from heliograph.spark.source.source import HeliographSource
from heliograph.spark.source.stream import Offsets, SourceStream, shares, to_json
from tests.support import examples
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Keeper, Keeper]]:
    """Ten events in one partition, thirty in another; ten a second."""
    with Keeper(tmp_path) as one, Keeper(tmp_path, partition="p2") as other:
        for keeper, count in ((one, 10), (other, 30)):
            for n in range(count):
                keeper.clock.now = FIRST_TIME + n * SECOND // 10
                keeper.push(Track(n))
        yield one, other


def stream(folder: Path, *, clock: Any = lambda: 0.0, **options: Any) -> SourceStream:
    said = {"path": str(folder), "channel": "air.tracks", "startingOffsets": "earliest"}
    said |= {name: str(value) for name, value in options.items()}
    parsed = parse_options(said, stream=True)
    return SourceStream(parsed, ChannelPartitions(parsed), clock)


def at(offsets: Offsets) -> dict[str, int]:
    return {name: entry["offset"] for name, entry in offsets["air.tracks"].items()}


def ranges(one: SourceStream, start: Offsets, end: Offsets) -> dict[str, tuple[int, int]]:
    return {part.partition: (part.first, part.next) for part in one.slices(start, end)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, {"p1": 0, "p2": 0}),
        ({"startingOffsets": "latest"}, {"p1": 10, "p2": 30}),
        ({"startingOffsets": '{"air.tracks": {"p2": 7}}'}, {"p1": 0, "p2": 7}),
        ({"startingOffsets": '{"air.tracks": {"p1": -1, "p2": -2}}'}, {"p1": 10, "p2": 0}),
        ({"startingTimestamp": FIRST_TIME // 10**6 + 500}, {"p1": 5, "p2": 5}),
        ({"startingTimestamp": FIRST_TIME // 10**6 + 2000}, {"p1": 10, "p2": 20}),
        (
            {"startingOffsetsByTimestamp": f'{{"air.tracks": {{"p2": {FIRST_TIME // 10**6 + 300}}}}}'},
            {"p1": 0, "p2": 3},
        ),
    ],
)
def test_a_stream_begins_where_it_was_told(
    kept: object, tmp_path: Path, options: dict[str, Any], expected: dict[str, int]
) -> None:
    assert at(stream(tmp_path, **options).initial()) == expected


def test_batches_follow_each_other_without_gap_until_nothing_is_left(kept: object, tmp_path: Path) -> None:
    one = stream(tmp_path, maxEventsPerTrigger=7)
    position, seen = one.initial(), dict.fromkeys(("p1", "p2"), 0)
    while (end := one.latest(position, limited=True)) != position:
        batch = ranges(one, position, end)
        assert 0 < sum(stop - first for first, stop in batch.values()) <= 7
        for name, (first, stop) in batch.items():
            assert first == seen[name]
            seen[name] = stop
        position = end
    assert seen == {"p1": 10, "p2": 30}


def test_a_limited_batch_takes_of_each_partition_in_proportion(kept: object, tmp_path: Path) -> None:
    one = stream(tmp_path, maxEventsPerTrigger=20)
    assert at(one.latest(one.initial(), limited=True)) == {"p1": 5, "p2": 15}


def test_a_trigger_that_wants_all_gets_all(kept: object, tmp_path: Path) -> None:
    one = stream(tmp_path, maxEventsPerTrigger=3, minEventsPerTrigger=3)
    assert at(one.latest(one.initial(), limited=False)) == {"p1": 10, "p2": 30}


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 10**12), min_size=1), st.integers(1, 10**12))
@settings(max_examples=examples(100))
def test_shares_add_up_and_nobody_gives_more_than_he_has(counts: dict[int, int], most: int) -> None:
    available = {Key("c", str(name)): count for name, count in counts.items()}
    most = min(most, sum(available.values()))
    found = shares(available, most)
    assert sum(found.values()) == most
    assert all(0 <= found[key] <= available[key] for key in available)


def test_bytes_limit_a_batch_and_one_event_always_fits(kept: Any, tmp_path: Path) -> None:
    watch = ChannelPartitions(parse_options({"path": str(tmp_path), "channel": "air.tracks"}, stream=True))
    total = sum(size for reader in watch.readers().values() for _, _, size in reader.sizes(0, 99))
    half = stream(tmp_path, maxBytesPerTrigger=total // 2)
    found = at(half.latest(half.initial(), limited=True))
    assert 18 <= sum(found.values()) <= 20
    tiny = stream(tmp_path, maxBytesPerTrigger=1)
    assert sum(at(tiny.latest(tiny.initial(), limited=True)).values()) == 1


def test_few_events_wait_for_others_but_not_for_ever(kept: Any, tmp_path: Path) -> None:
    now = [0.0]
    one = stream(tmp_path, clock=lambda: now[0], minEventsPerTrigger=50, maxTriggerDelay="10s")
    start = one.initial()
    assert one.latest(start, limited=True) == start
    now[0] = 9.9
    assert one.latest(start, limited=True) == start
    now[0] = 10.0
    end = one.latest(start, limited=True)
    assert sum(at(end).values()) == 40
    assert one.latest(end, limited=True) == end
    kept[0].push(*map(Track, range(50)))
    assert sum(at(one.latest(end, limited=True)).values()) == 90


def test_available_now_ends_at_what_was_there_and_waits_for_nothing(kept: Any, tmp_path: Path) -> None:
    one = stream(tmp_path, minEventsPerTrigger=1000, maxEventsPerTrigger=1000)
    one.stop_at_now()
    kept[0].push(Track(99))
    with Keeper(tmp_path, partition="p3") as new:
        new.push(Track(1))
        one._watch.readers(now=True)
        end = one.latest(one.initial() | {}, limited=True)
        assert at(end) | {"p3": 0} == {"p1": 10, "p2": 30, "p3": 0}
        assert one.latest(end, limited=True) == end


def test_a_new_partition_is_read_from_its_beginning(kept: object, tmp_path: Path) -> None:
    one = stream(tmp_path, startingOffsets="latest")
    start = one.initial()
    with Keeper(tmp_path, partition="p3") as new:
        new.push(Track(1), Track(2))
        one._watch.readers(now=True)
        end = one.latest(start, limited=True)
        assert ranges(one, start, end) == {"p3": (0, 2)}


@pytest.mark.parametrize(
    ("options", "tasks", "largest"),
    [
        ({}, 2, 30),
        ({"minPartitions": 8}, 8, 5),
        ({"minPartitions": 1000}, 40, 1),
        ({"maxEventsPerPartition": 7}, 7, 7),
        ({"maxEventsPerPartition": 7, "minPartitions": 2}, 7, 7),
    ],
)
def test_a_batch_has_as_many_tasks_as_were_asked_for(
    kept: object, tmp_path: Path, options: dict[str, Any], tasks: int, largest: int
) -> None:
    one = stream(tmp_path, **options)
    start = one.initial()
    slices = one.slices(start, one.latest(start, limited=True))
    assert len(slices) == tasks
    assert max(part.next - part.first for part in slices) == largest
    read = sorted((part.partition, n) for part in slices for n in range(part.first, part.next))
    assert read == [("p1", n) for n in range(10)] + [("p2", n) for n in range(30)]


def test_only_assigned_partitions_are_read(kept: object, tmp_path: Path) -> None:
    said = {"path": str(tmp_path), "assign": '{"air.tracks": ["p2"]}', "startingOffsets": "earliest"}
    options = parse_options(said, stream=True)
    one = SourceStream(options, ChannelPartitions(options))
    start = one.initial()
    assert at(one.latest(start, limited=True)) == {"p2": 30}
    assert one.report()["assigned"] is True
    with Keeper(tmp_path, partition="p3") as later:
        later.push(Track(1))
        one.stop_at_now()
        assert at(one.latest(start, limited=True)) == {"p2": 30}


def test_an_assigned_partition_that_is_not_there_is_refused_with_those_that_are(
    kept: object, tmp_path: Path
) -> None:
    options = parse_options({"path": str(tmp_path), "assign": '{"air.tracks": ["p9"]}'}, stream=True)
    with pytest.raises(InvalidOption, match="p1, p2"):
        ChannelPartitions(options)


@pytest.mark.parametrize("where", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_starting_time_behind_all_events_is_refused_when_that_was_asked_for(
    kept: object, tmp_path: Path, where: str
) -> None:
    late = FIRST_TIME // 10**6 + 60_000
    value = late if where == "startingTimestamp" else f'{{"air.tracks": {{"p1": {late}}}}}'
    assert at(stream(tmp_path, **{where: value}).initial())["p1"] == 10
    strict = stream(tmp_path, **{where: value}, startingOffsetsByTimestampStrategy="error")
    with pytest.raises(InvalidOption, match="startingOffsetsByTimestampStrategy=latest"):
        strict.initial()


def test_a_first_batch_is_read_again_as_it_was_planned(kept: Any, tmp_path: Path) -> None:
    """Spark does not keep where a query began; after a restart "latest" is somewhere else."""
    before = stream(tmp_path, startingOffsets="latest")
    start = before.initial()
    kept[0].push(Track(100), Track(101))
    planned = before.latest(start, limited=True)
    kept[0].push(Track(102))
    after = stream(tmp_path, startingOffsets="latest")
    again = after.initial()
    assert at(again) == {"p1": 13, "p2": 30}
    assert ranges(after, again, planned) == {"p1": (10, 12)}
    assert ranges(after, planned, after.latest(planned, limited=True)) == {"p1": (12, 13)}


def test_an_older_copy_of_a_folder_is_noticed(kept: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "channels", copy / "channels")
    kept[0].push(*map(Track, range(5)))
    newer = stream(tmp_path)
    end = newer.latest(newer.initial(), limited=True)
    with pytest.raises(HistoryDamaged) as raised:
        stream(copy).latest(end, limited=True)
    assert (raised.value.first, raised.value.next_available) == (10, 15)
    lenient = stream(copy, failOnDataLoss="false")
    back = lenient.latest(end, limited=True)
    assert at(back) == {"p1": 10, "p2": 30}
    assert lenient.slices(end, back) == []


@pytest.mark.parametrize("goes_on", [False, True], ids=["restarted", "running"])
def test_an_older_copy_that_was_written_further_is_noticed(goes_on: bool, tmp_path: Path) -> None:
    """Though it is longer by now than what was read, and has had as many writers."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Keeper(data) as keeper:
        keeper.push(*map(Track, range(10)))
    shutil.copytree(data, copy)
    with Keeper(data) as keeper:
        keeper.push(*map(Track, range(10, 15)))
    newer = stream(data)
    end = newer.latest(newer.initial(), limited=True)
    assert at(end) == {"p1": 15}
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    with Keeper(data) as keeper:
        keeper.push(*map(Track, range(100, 150)))
    again = newer if goes_on else stream(data)
    again._watch._look_at = 0.0
    with pytest.raises(HistoryDamaged, match="went back in time") as raised:
        again.latest(end, limited=True)
    assert (raised.value.first, raised.value.next_available) == (10, 15)
    lenient = stream(data, failOnDataLoss="false")
    back = lenient.latest(end, limited=True)
    assert at(back) == {"p1": 10}
    then = lenient.latest(back, limited=True)
    assert ranges(lenient, back, then) == {"p1": (10, 60)}


def test_another_partition_under_the_same_name_is_noticed(kept: object, tmp_path: Path) -> None:
    one = stream(tmp_path)
    end = one.latest(one.initial(), limited=True)
    end["air.tracks"]["p1"] |= {"epoch": 9}
    with pytest.raises(HistoryDamaged, match="epoch 1 and was in 9"):
        one.latest(end, limited=True)


def test_channels_come_by_name_by_list_and_by_pattern(tmp_path: Path) -> None:
    with Keeper(tmp_path, "air.tracks") as one, Keeper(tmp_path, "air.alarms"), Keeper(tmp_path, "sea"):
        one.push(Track(1))

        def channels(**said: str) -> list[str]:
            watch = ChannelPartitions(parse_options({"path": str(tmp_path), **said}, stream=True))
            return sorted(key.channel for key in watch.readers())

        assert channels(channel="sea") == ["sea"]
        assert channels(subscribe="sea, air.tracks") == ["air.tracks", "sea"]
        assert channels(subscribePattern=r"air\..*") == ["air.alarms", "air.tracks"]
        assert channels(subscribePattern="none") == []
        with pytest.raises(NoHistory, match=r"air\.alarms, air\.tracks, sea"):
            channels(channel="air")


def test_offsets_are_the_same_after_json() -> None:
    offsets: Offsets = {"c": {"p": {"epoch": 1, "offset": 5, "from": 2}}}
    from heliograph.spark.source.stream import from_json

    assert to_json(from_json(offsets)) == offsets


def test_a_checkpoint_that_calls_epochs_lives_is_read_too() -> None:
    from heliograph.spark.source.stream import from_json

    at = {"epoch": 3, "offset": 12, "from": 10}
    epochs = [[0, "9be1"], [7, "00ff"]]
    before = {"air": {"5f0c": {**at, "lives": epochs}}}
    now = {"air": {"5f0c": {**at, "epochs": epochs}}}
    assert to_json(from_json(before)) == now
    assert from_json(before) == from_json(now)


def test_what_spark_has_processed_is_listed_among_the_consumers(kept: object, tmp_path: Path) -> None:
    source = HeliographSource({"path": str(tmp_path), "channel": "air.tracks", "consumer": "totals"})
    reader: Any = source.streamReader(source.schema())
    reader.commit({"air.tracks": {"p1": {"epoch": 1, "offset": 4, "from": 0}, "p2": {"offset": 30}}})
    assert [(one.consumer, one.partition, one.acknowledged, one.events) for one in lag(tmp_path)] == [
        ("totals", "p1", 4, 6),
        ("totals", "p2", 30, 0),
    ]
    reader.stop()
    unnamed = HeliographSource({"path": str(tmp_path), "channel": "air.tracks"})
    other: Any = unnamed.streamReader(unnamed.schema())
    other.commit({"air.tracks": {"p1": {"offset": 5}}})
    other.stop()
    assert [one.acknowledged for one in lag(tmp_path)] == [4, 30]


def test_a_folder_that_cannot_be_written_stops_no_query(
    kept: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "readers").write_bytes(b"no folder")
    source = HeliographSource({"path": str(tmp_path), "channel": "air.tracks", "consumer": "totals"})
    reader: Any = source.streamReader(source.schema())
    reader.commit({"air.tracks": {"p1": {"offset": 4}}})
    reader.stop()
    assert "how far totals is cannot be told" in caplog.text
