"""A station takes in what other processes hand over: open channels, closed ones, live consumers."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.codec import encoder
from heliograph.codec.dynamic.classes import class_for
from heliograph.errors import BatchRefused, DiskError, FolderInUse
from heliograph.journal import station_folder as keepings
from heliograph.journal.format.folder import StationFolder
from heliograph.journal.inbox.adoption import InboxFolder
from heliograph.journal.inbox.staging import READY, StagedBatch, StageWriter, hand_over, key_of, make_inbox
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.maintenance import Maintenance
from heliograph.journal.station_folder import FOR_A_MOMENT, Keeping, wait_until_taken_in
from heliograph.model.event import format_of
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from heliograph.model.formats import Format

PERSISTENT = hg.QoS(durability="persistent")


class Total(hg.Event, name="air.total", key="id"):
    id: int
    count: float = 0.0


def write(
    folder: Path, number: int, *ids: int, channel: str = "totals", creates: bool = False, priority: int = 3
) -> None:
    """Hand a batch over, as a process of its own would."""
    ports = system_ports(folder)
    assert ports.disk is not None
    make_inbox(ports.disk)
    with StageWriter(ports, key_of(channel, "w", "c"), number, "p0") as stage:
        stage.add(format_of(Total), [encoder(Total).encode(Total(n)) for n in ids], priority)
        files = (stage.finish(),)
    batch = StagedBatch(channel=channel, writer="w", nonce="c", number=number, files=files, creates=creates)
    hand_over(ports, batch)


def is_empty(folder: Path) -> bool:
    return not list((folder / READY).glob("*.batch"))


def test_live_consumers_receive_a_batch_between_pushed_events(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        totals = station.channel("totals", Total, qos=PERSISTENT)
        got: list[tuple[int, str, int, int]] = []
        few: list[int] = []
        totals.subscribe(lambda e, h: got.append((e.id, h.supplier, h.sequence, h.priority)))
        totals.subscribe(lambda e: few.append(e.id), where="id % 2 = 0")
        totals.push(Total(1))
        write(tmp_path, 0, 2, 3, priority=5)
        assert wait_until(lambda: len(got) == 3)
        totals.push(Total(4))
        write(tmp_path, 1, 5)
        assert wait_until(lambda: len(got) == 5 and len(few) == 2)
        own = got[0][1]
        assert got == [(1, own, 1, 3), (2, "w", 1, 5), (3, "w", 2, 5), (4, own, 2, 3), (5, "w", 3, 3)]
        assert few == [2, 4]
        assert totals.stats().matched == 5 + 2


def test_an_iterating_consumer_goes_on_through_many_batches(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        totals = station.channel("totals", Total, qos=PERSISTENT)
        with totals.consumer(start="now") as consumer:
            pusher = threading.Thread(target=lambda: [totals.push(Total(1000 + n)) for n in range(100)])
            pusher.start()
            for number in range(10):
                write(tmp_path, number, *range(10 * number, 10 * number + 10))
            found = [event.id for event in (consumer.pull(timeout=10.0) for _ in range(200)) if event]
            pusher.join()
            assert consumer.pull(timeout=0.0) is None
        assert [n for n in found if n < 1000] == list(range(100))
        assert [n for n in found if n >= 1000] == list(range(1000, 1100))


def test_a_channel_that_nobody_has_open_gets_its_batches_too(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(1))
    with hg.Station(tmp_path) as station:
        write(tmp_path, 0, 2, 3)
        assert wait_until(lambda: is_empty(tmp_path))
        totals = station.channel("totals", Total)
        write(tmp_path, 1, 4)
        with totals.consumer(start="earliest") as consumer:
            assert [consumer.pull(timeout=10.0) for _ in range(4)] == [Total(n) for n in (1, 2, 3, 4)]


def test_a_durable_consumer_holds_what_it_lacks_though_nobody_has_the_channel_open(tmp_path: Path) -> None:
    limits = Limits(keep_seconds=0.0, grace_seconds=0.0)
    with hg.Station(tmp_path, journal=limits) as station:
        totals = station.channel("totals", Total, qos=PERSISTENT)
        totals.push(Total(1))
        with totals.consumer(name="billing", start="earliest") as billing:
            assert billing.pull(timeout=10.0) == Total(1)
        totals.push(Total(2))
    write(tmp_path, 0, 3)
    keeping = Keeping(system_ports(tmp_path), limits, note=FOR_A_MOMENT)
    try:
        keeping.take_in()
        ((writer, *_),) = keeping._unclaimed.values()
        assert writer.seal()
        writer.retain()
        assert writer.stats().dropped_events == 0
    finally:
        keeping.close()
    with hg.Station(tmp_path) as station:
        billing = station.channel("totals", Total).consumer(name="billing")
        assert [billing.pull(timeout=10.0) for _ in range(3)] == [Total(1), Total(2), Total(3)]


def test_what_was_handed_over_while_no_station_was_there_is_taken_in_by_the_next(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(1))
    write(tmp_path, 0, 2)
    write(tmp_path, 1, 3)
    with hg.Station(tmp_path) as station:
        totals = station.channel("totals", Total)
        with totals.consumer(start="earliest") as consumer:
            assert [consumer.pull(timeout=10.0) for _ in range(3)] == [Total(n) for n in (1, 2, 3)]


def test_a_batch_makes_no_channel_unless_it_says_so(tmp_path: Path) -> None:
    with hg.Station(tmp_path):
        write(tmp_path, 0, 1, channel="typo")
        assert wait_until(lambda: is_empty(tmp_path))
        assert "typo" in next((tmp_path / READY).glob("*.refused")).read_text()
        assert not (tmp_path / "channels" / "typo").exists()
        write(tmp_path, 0, 1, channel="new", creates=True)
        assert wait_until(lambda: is_empty(tmp_path))
        assert (tmp_path / "channels" / "new").exists()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_batch_of_a_type_that_the_channel_does_not_carry_is_refused(tmp_path: Path, is_open: bool) -> None:
    class Alarm(hg.Event, name="air.alarm"):
        level: int

    with hg.Station(tmp_path) as station:
        opened = station.channel("totals", Alarm, qos=PERSISTENT)
        if not is_open:
            opened.close()
        write(tmp_path, 0, 1, 2)
        assert wait_until(lambda: is_empty(tmp_path))
        (refused,) = (tmp_path / READY).glob("*.refused")
        assert "channel 'totals' carries air.alarm, not air.total" in refused.read_text()
    with StationFolder(tmp_path).reader("totals", StationFolder(tmp_path).partitions("totals")[0]) as reader:
        assert reader.watermark == 0


def test_a_station_waits_for_who_has_not_said_yet_that_it_is_for_a_moment(tmp_path: Path) -> None:
    disk = system_ports(tmp_path).disk
    assert disk is not None
    lock = disk.lock("lock", note="as a station")  # what one that was killed had written
    threading.Timer(0.05, lock.release).start()
    hg.Station(tmp_path).close()


def test_a_station_waits_for_who_has_the_folder_for_a_moment_and_not_for_a_station(tmp_path: Path) -> None:
    brief = Keeping(system_ports(tmp_path), note=FOR_A_MOMENT)
    threading.Timer(0.2, brief.close).start()
    with hg.Station(tmp_path):
        with pytest.raises(FolderInUse):
            Keeping(system_ports(tmp_path), note=FOR_A_MOMENT)
        with pytest.raises(FolderInUse):
            hg.Station(tmp_path)


def test_a_folder_keeps_the_formats_of_the_classes_with_which_a_channel_was_opened(
    tmp_path: Path,
) -> None:
    class Wider(hg.Event, name="air.total", key="id"):
        id: int
        count: float = 0.0
        weight: float = 0.0

    class Alarm(hg.Event, name="air.alarm"):
        level: int

    def kept() -> list[Format]:
        return StationFolder(tmp_path).declared("totals")

    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT)
        assert kept() == [format_of(Total)]
        station.channel("totals", Alarm)
        assert kept() == [format_of(Total), format_of(Alarm)]
    with hg.Station(tmp_path) as station:
        station.channel("totals", class_for(format_of(Total)))
        assert kept() == [format_of(Total)]
    with hg.Station(tmp_path) as station:
        station.channel("totals", Wider)
        assert kept() == [format_of(Wider)]
    with hg.Station(tmp_path) as station:
        station.channel("totals", class_for(format_of(Total)))
        assert kept() == [format_of(Wider)], "a class that was made of an old event declares nothing new"


def test_a_station_that_is_closed_has_no_file_of_its_folder_open(tmp_path: Path) -> None:
    def opened() -> list[str]:
        links = Path("/proc/self/fd").iterdir()
        return [str(link.readlink()) for link in links if link.is_symlink()]

    with hg.Station(tmp_path) as station:
        station.channel("totals", Total, qos=PERSISTENT).push(Total(1))
    assert [name for name in opened() if name.startswith(str(tmp_path))] == []
    with hg.Station(tmp_path), pytest.raises(FolderInUse):
        hg.Station(tmp_path)
    gc.collect()
    assert [name for name in opened() if name.startswith(str(tmp_path))] == []


@pytest.mark.parametrize("is_running", [True, False])
def test_a_batch_for_a_suspended_channel_is_refused_with_the_reason_and_can_be_written_again(
    tmp_path: Path, is_running: bool
) -> None:
    """Whether a station has the folder or the writer takes it in by itself."""

    def hand_over_batch() -> None:
        write(tmp_path, 0, 1, 2)
        batch = StagedBatch(channel="totals", writer="w", nonce="c", number=0, files=())
        wait_until_taken_in(system_ports(tmp_path), batch, 10.0)

    with hg.Station(tmp_path) as station:
        totals = station.manager.create("totals", Total, owner="anna")
        station.manager.suspend("totals", by="anna")
        if is_running:
            with pytest.raises(BatchRefused, match="restarted it"):
                hand_over_batch()
            assert totals.consumer(until="now").pull(0) is None
    if not is_running:
        with pytest.raises(BatchRefused, match="owner 'anna'"):
            hand_over_batch()
    with hg.Station(tmp_path) as station:
        station.manager.restart("totals", by="anna")
        totals = station.manager.find("totals", Total)
        if is_running:
            hand_over_batch()
    if not is_running:
        hand_over_batch()
    with hg.Station(tmp_path) as station:
        totals = station.channel("totals", Total)
        assert [total.id for total in totals.consumer(until="now")] == [1, 2]


def test_a_history_that_only_batches_write_is_sealed_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No station ever has the folder; a batch is taken in before maintenance comes to the partition."""
    monkeypatch.setattr(Maintenance, "look", lambda _: None)
    monkeypatch.setattr(keepings, "KEEP_ALL", replace(keepings.KEEP_ALL, head_events=8))
    for number in range(9):
        write(tmp_path, number, 2 * number, 2 * number + 1, creates=True)
        batch = StagedBatch(channel="totals", writer="w", nonce="c", number=number, files=())
        wait_until_taken_in(system_ports(tmp_path), batch, 30.0)
    folder = StationFolder(tmp_path)
    (partition,) = folder.partitions("totals")
    with folder.reader("totals", partition) as reader:
        manifest = reader.manifest
        assert [row.offset for row in reader.read(0)] == list(range(18))
    assert manifest.segments
    assert len(manifest.heads) <= 3


def test_an_inbox_that_cannot_be_looked_through_is_tried_again_ever_later_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = InboxFolder.exists
    left = [OSError("no descriptor left"), DiskError("exists", "inbox", "no"), RuntimeError("something else")]

    def failing(inbox: InboxFolder) -> bool:
        if left and getattr(inbox._disk, "folder", None) == str(tmp_path):
            raise left.pop()
        return looked(inbox)

    monkeypatch.setattr(InboxFolder, "exists", failing)
    with hg.Station(tmp_path) as station:
        totals = station.channel("totals", Total, qos=hg.QoS(durability="persistent"))
        write(tmp_path, 0, 1, 2)
        assert wait_until(lambda: "after 3 attempts that failed" in caplog.text)
        batch = StagedBatch(channel="totals", writer="w", nonce="c", number=0, files=())
        wait_until_taken_in(system_ports(tmp_path), batch, 10.0)
        assert [total.id for total in totals.consumer(until="now", start="earliest")] == [1, 2]
    told = [line for line in caplog.messages if "could not be looked through" in line]
    assert [line.split()[-2] for line in told] == ["0.1", "0.2", "0.4"]
