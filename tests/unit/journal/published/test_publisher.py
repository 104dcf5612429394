"""Published segments: what a reader of the store sees, at every step and after every interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import DiskError, HistoryGone, NoHistory, NoSuchFile, StoreTaken
from heliograph.journal.format.folder import StationFolder, partition_folder
from heliograph.journal.published import layout
from heliograph.journal.published.publisher import SegmentPublisher
from heliograph.journal.published.store_disk import StoreDisk
from heliograph.journal.reading.reader import PartitionReader
from heliograph.runtime.object_store import object_store
from heliograph.runtime.ports import Ports, SystemRandom, ThreadTasks
from tests.unit.spark.histories import SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from heliograph.runtime.object_store import ObjectStore

PLACE = partition_folder("air.tracks", "p1")


class Track(hg.Event):
    id: int


class Faulty:
    """A store whose nth change fails, before or after it took effect; then all of them do."""

    def __init__(self, inner: ObjectStore, fails_at: int, *, after: bool) -> None:
        self.url = inner.url
        self._inner = inner
        self._left = fails_at
        self._after = after

    def _change(self, do: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            raise DiskError("put", "anything", "the line is cut")
        done = do()
        if self._left == 0:
            raise DiskError("put", "anything", "the answer is lost")
        return done

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return bool(self._change(lambda: self._inner.put_if_absent(name, data)))

    def remove(self, names: Iterable[str]) -> None:
        self._change(lambda: self._inner.remove(names))

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        return self._inner.get(name, start, end)

    def list(self, prefix: str, after: str = "") -> list[str]:
        return self._inner.list(prefix, after)


def publisher_of(
    keeper: Keeper, tmp_path: Path, objects: ObjectStore | None = None, **options: Any
) -> SegmentPublisher:
    ports = Ports(keeper.clock, ThreadTasks(), SystemRandom(), None)
    return SegmentPublisher(ports, hg.Store(str(tmp_path / "store"), **options), objects)


def publish(publisher: SegmentPublisher, keeper: Keeper) -> int:
    partition = keeper.writer._partition
    uploaded = publisher.publish(partition._disk, PLACE, partition.manifest)
    publisher.write_domain()
    return uploaded


def sealed(keeper: Keeper, *ids: int) -> None:
    keeper.push(*(Track(number) for number in ids))
    keeper.seal()


def in_store(tmp_path: Path, start: Any = None) -> list[int]:
    ids: list[int] = hg.history(tmp_path / "store", "air.tracks", start=start).arrow()["id"].to_pylist()
    return ids


def without_merging(keeper: Keeper) -> None:
    keeper.writer._keeper._rewriter = None


def drop(keeper: Keeper) -> None:
    """What retention does with all that is sealed, once."""
    limits = keeper.writer._partition.limits
    keeper.drop_sealed()
    keeper.writer._partition.limits = limits


def test_sealed_events_are_read_from_the_store_alone_and_heads_are_not_there(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        publisher = publisher_of(keeper, tmp_path)
        sealed(keeper, 1, 2, 3)
        keeper.push(Track(4))
        assert publish(publisher, keeper) == 1
        assert publish(publisher, keeper) == 0
        assert in_store(tmp_path) == [1, 2, 3]
        keeper.seal()
        assert publish(publisher, keeper) == 1
        assert in_store(tmp_path) == [1, 2, 3, 4]
        assert in_store(tmp_path, start=3) == [4]
        (tmp_path / "data").rename(tmp_path / "gone")
        folder = StationFolder(tmp_path / "store")
        assert folder.channels() == ("air.tracks",)
        assert folder.watermarks("air.tracks") == {"p1": 4}
        (tmp_path / "gone").rename(tmp_path / "data")


def test_a_reader_that_is_open_sees_what_is_published_later(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        publisher = publisher_of(keeper, tmp_path)
        sealed(keeper, 1)
        publish(publisher, keeper)
        disk = StoreDisk(object_store(tmp_path / "store"), keeper.clock)
        monotonic = iter(range(0, 10**12, 2 * SECOND))
        keeper.clock.monotonic_ns = lambda: next(monotonic)
        with PartitionReader(disk, PLACE) as reader:
            assert reader.watermark == 1
            sealed(keeper, 2, 3)
            publish(publisher, keeper)
            disk.list("channels")  # the look that a stream takes once a second
            assert reader.watermark == 3
            assert [row.offset for row in reader.read(0)] == [0, 1, 2]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_wherever_publishing_is_interrupted_readers_see_the_old_or_the_new_and_it_goes_on(
    at: int, after: bool, tmp_path: Path
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        without_merging(keeper)
        sealed(keeper, 1)
        publish(publisher_of(keeper, tmp_path), keeper)
        sealed(keeper, 2)
        sealed(keeper, 3)
        faulty = Faulty(object_store(tmp_path / "store"), at, after=after)
        try:
            publish(publisher_of(keeper, tmp_path, faulty), keeper)
        except DiskError:
            seen = in_store(tmp_path)
            assert seen in ([1], [1, 2, 3])
        else:
            assert at > 4
        publish(publisher_of(keeper, tmp_path), keeper)
        assert in_store(tmp_path) == [1, 2, 3]
        objects = object_store(tmp_path / "store")
        assert len([name for name in objects.list(f"{PLACE}/") if "/sealed/" in name]) == 3
        found = layout.newest_domain(objects)
        assert found is not None
        assert found[1].partitions[PLACE].next == 3


def test_what_the_folder_drops_leaves_the_store_after_its_grace(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        without_merging(keeper)
        publisher = publisher_of(keeper, tmp_path, grace_seconds=60.0)
        sealed(keeper, 1)
        sealed(keeper, 2)
        publish(publisher, keeper)
        drop(keeper)
        sealed(keeper, 3)
        publish(publisher, keeper)
        assert in_store(tmp_path) == [3]
        with pytest.raises(HistoryGone):
            in_store(tmp_path, start=0)
        objects = object_store(tmp_path / "store")
        assert len(objects.list(f"{PLACE}/sealed/")) == 3
        keeper.clock.now += 61 * SECOND
        publish(publisher, keeper)
        assert len(objects.list(f"{PLACE}/sealed/")) == 1


def test_a_store_keeps_longer_than_the_folder_if_it_is_told_to(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        without_merging(keeper)
        publisher = publisher_of(keeper, tmp_path, keep_seconds=3600.0)
        sealed(keeper, 1)
        publish(publisher, keeper)
        keeper.clock.now += 1800 * SECOND
        sealed(keeper, 2)
        publish(publisher, keeper)
        drop(keeper)
        sealed(keeper, 3)
        publish(publisher, keeper)
        assert in_store(tmp_path) == [1, 2, 3]
        keeper.clock.now += 1900 * SECOND
        publish(publisher, keeper)
        assert in_store(tmp_path) == [2, 3]


def test_what_was_dropped_before_it_was_uploaded_is_a_gap_that_readers_are_told_of(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        without_merging(keeper)
        publisher = publisher_of(keeper, tmp_path, keep_seconds=None)
        sealed(keeper, 1)
        publish(publisher, keeper)
        sealed(keeper, 2)
        drop(keeper)
        sealed(keeper, 3)
        publish(publisher, keeper)
        with pytest.raises(hg.HistoryDamaged, match="before they were in the store") as caught:
            in_store(tmp_path)
        assert (caught.value.first, caught.value.next_available) == (1, 2)
        rest = hg.history(tmp_path / "store", "air.tracks", fail_on_data_loss=False)
        assert rest.arrow()["id"].to_pylist() == [1, 3]


def test_merged_segments_replace_those_that_they_were_made_from(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        publisher = publisher_of(keeper, tmp_path, grace_seconds=0.0)
        for number in range(8):
            sealed(keeper, number)
        publish(publisher, keeper)
        keeper.writer.tidy()
        publish(publisher, keeper)
        assert in_store(tmp_path) == list(range(8))
        publish(publisher, keeper)
        objects = object_store(tmp_path / "store")
        assert len(objects.list(f"{PLACE}/sealed/")) == len(keeper.writer._partition.manifest.segments)


def test_of_two_copies_of_a_history_the_one_opened_last_is_published_and_the_other_stops(
    tmp_path: Path,
) -> None:
    with Keeper(tmp_path / "data") as keeper, Keeper(tmp_path / "copy") as copy:
        first, second = publisher_of(keeper, tmp_path), publisher_of(copy, tmp_path)
        sealed(keeper, 1)
        publish(first, keeper)
        sealed(copy, 7)
        publish(second, copy)
        assert in_store(tmp_path) == [7]
        sealed(keeper, 2)
        with pytest.raises(StoreTaken, match="give each a store of its own"):
            publish(first, keeper)
        for number in range(20):  # manifests of before are removed, and still nothing goes through
            sealed(copy, number)
            publish(second, copy)
        with pytest.raises(StoreTaken):
            publish(first, keeper)


def test_one_manifest_tells_of_ten_thousand_channels(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        publisher = publisher_of(keeper, tmp_path)
        sealed(keeper, 1)
        publish(publisher, keeper)
        entry = publisher._domain[1].partitions[PLACE]
        publisher._pending = {partition_folder(f"channel.{n}", "p1"): entry for n in range(10_000)}
        publisher.write_domain()
        objects = object_store(tmp_path / "store")
        assert len(objects.list("domain/")) == 2
        assert len(objects.get(objects.list("domain/")[-1])) < 1_000_000
        calls: list[str] = []
        counting = _Counting(objects, calls)
        assert len(StoreDisk(counting).list("channels")) == 10_001
        assert calls == ["list", "get"]


class _Counting:
    def __init__(self, inner: ObjectStore, calls: list[str]) -> None:
        self.url = inner.url
        self._inner = inner
        self._calls = calls

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._inner.put_if_absent(name, data)

    def remove(self, names: Iterable[str]) -> None:
        self._inner.remove(names)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        self._calls.append("get")
        return self._inner.get(name, start, end)

    def list(self, prefix: str, after: str = "") -> list[str]:
        self._calls.append("list")
        return self._inner.list(prefix, after)


def test_two_stations_tell_one_domain_of_their_partitions(tmp_path: Path) -> None:
    with Keeper(tmp_path / "a") as one, Keeper(tmp_path / "b", partition="p2") as other:
        first, second = publisher_of(one, tmp_path), publisher_of(other, tmp_path)
        sealed(one, 1)
        sealed(other, 2)
        place = partition_folder("air.tracks", "p2")
        first.publish(one.writer._partition._disk, PLACE, one.writer._partition.manifest)
        second.publish(other.writer._partition._disk, place, other.writer._partition.manifest)
        second.write_domain()
        first.write_domain()
        assert sorted(in_store(tmp_path)) == [1, 2]


def test_only_what_is_read_comes_from_the_store(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        sealed(keeper, *range(100))
        publish(publisher_of(keeper, tmp_path), keeper)
        calls: list[str] = []
        disk = StoreDisk(_Counting(object_store(tmp_path / "store"), calls))
        with PartitionReader(disk, PLACE) as reader:
            calls.clear()
            reader.learn(reader.manifest.segments[0])
            assert calls == ["get"]  # the footer
            assert len(reader.read(0)) == 100
            assert calls == ["get", "get"]  # and one row group


def test_a_damaged_file_is_not_published(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        sealed(keeper, 1)
        [path] = keeper.seal()
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
        with pytest.raises(hg.JournalError, match="helio journal verify"):
            publish(publisher_of(keeper, tmp_path), keeper)


def test_a_store_without_anything_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(NoHistory):
        hg.history(tmp_path / "store", "air.tracks")
    with Keeper(tmp_path / "data") as keeper:
        sealed(keeper, 1)
        publish(publisher_of(keeper, tmp_path), keeper)
    with pytest.raises(NoHistory, match=r"air\.tracks"):
        hg.history(tmp_path / "store", "other")


def test_nothing_is_written_through_a_reader(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        sealed(keeper, 1)
        publish(publisher_of(keeper, tmp_path), keeper)
    disk = StoreDisk(object_store(tmp_path / "store"))
    for change in (disk.create, disk.remove, disk.make_folder, disk.open, disk.lock):
        with pytest.raises(DiskError, match="read only"):
            change("x")
    with pytest.raises(NoSuchFile):
        PartitionReader(disk, partition_folder("air.tracks", "p9"))


def test_what_is_not_in_the_store_yet_is_not_too_old_for_the_folder(tmp_path: Path) -> None:
    with Keeper(tmp_path / "data") as keeper:
        without_merging(keeper)
        publisher = publisher_of(keeper, tmp_path)
        keeper.writer._shared.publisher = publisher
        partition = keeper.writer._partition
        partition.limits = replace(partition.limits, keep_seconds=10.0, hold_unread=True)
        sealed(keeper, 1)
        keeper.clock.now += 100 * SECOND
        keeper.writer.retain()
        held = partition.manifest.segments
        publish(publisher, keeper)
        keeper.writer.retain()
        assert (len(held), len(partition.manifest.segments)) == (1, 0)
        keeper.writer._shared.publisher = None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": ""}, "Store.url"),
        ({"url": "hdfs://a/b"}, "there are stores at s3://"),
        ({"url": "data", "keep_seconds": -1.0}, "Store.keep_seconds"),
        ({"url": "data", "grace_seconds": "long"}, "Store.grace_seconds"),
    ],
)
def test_what_no_store_can_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.HeliographError, match=message):
        hg.Store(**options)
