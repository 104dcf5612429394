"""How far durable consumers are behind, seen from outside while their station runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import BadJournalFile, NoHistory
from heliograph.journal import CursorStore, lag
from heliograph.journal.consumers.outside_readers import note, noted
from heliograph.journal.folders import make_folder
from heliograph.journal.format.folder import StationFolder, cursor_folder
from heliograph.journal.names import CONSUMERS
from heliograph.runtime.ports import system_ports
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int


def opened(station: hg.Station) -> hg.Channel[Track]:
    return station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))


def test_each_place_is_told_while_the_station_runs_and_after(tmp_path: Path) -> None:
    with hg.Station(tmp_path, name="tower") as station:
        tracks = opened(station)
        tracks.push_many([Track(n) for n in range(6)])
        with tracks.consumer(name="billing", ack="manual", start="earliest") as billing:
            first, second, third = islice(billing.deliveries(timeout=0), 3)
            first.ack()
            third.ack()
            (place,) = lag(tmp_path, "air.tracks")
            assert (place.consumer, place.is_group) == ("billing", False)
            # Below 1, and 2 above it: 1, 3, 4 and 5 are left.
            assert (place.acknowledged, place.end, place.events) == (1, 6, 4)
            assert place.since_ts == second.header.append_ts
            assert place.partition == second.header.partition
            assert "tower" in place.owner
            tracks.push(Track(6))
            assert [(found.end, found.events) for found in lag(tmp_path)] == [(7, 5)]
            second.ack()
            assert [(found.acknowledged, found.events) for found in lag(tmp_path)] == [(3, 4)]
    assert [(found.acknowledged, found.events) for found in lag(tmp_path)] == [(3, 4)]
    with hg.Station(tmp_path) as station, opened(station).consumer(name="billing", until="now") as billing:
        assert len(list(billing)) == 4
    assert [(found.events, found.since_ts) for found in lag(tmp_path)] == [(0, None)]


def test_groups_are_named_as_such_attempts_are_told_and_suppliers_are_no_consumers(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = opened(station)
        with tracks.supplier("radar") as radar:
            radar.push(Track(1))
        with tracks.consumer(group="workers", ack="manual", max_deliveries=9, start="earliest") as worker:
            for delivery in islice(worker.deliveries(timeout=10), 3):
                delivery.nak()
    (place,) = lag(tmp_path)
    assert (place.consumer, place.is_group, place.events, place.attempts) == ("workers", True, 1, 3)


def test_nobody_waits_for_what_retention_has_removed(tmp_path: Path) -> None:
    with Keeper(tmp_path) as kept:
        kept.push(Track(0), Track(1))
        kept.seal()
        kept.clock.now += 5 * SECOND
        kept.push(Track(2))
        _commit(tmp_path, "slow", "p1", 1)
        assert [(found.acknowledged, found.events) for found in lag(tmp_path)] == [(1, 2)]
        partition = kept.writer._partition
        partition.limits = replace(partition.limits, keep_seconds=1.0)
        partition.retain()
        (place,) = lag(tmp_path)
        assert (place.acknowledged, place.events, place.since_ts) == (1, 1, FIRST_TIME + 5 * SECOND)


def test_what_is_damaged_is_still_to_be_acknowledged(tmp_path: Path) -> None:
    with Keeper(tmp_path) as kept:
        kept.push(Track(0), Track(1))
        (sealed,) = kept.seal()
        kept.clock.now += 5 * SECOND
        kept.push(Track(2))
        _commit(tmp_path, "slow", "p1", 1)
        sealed.unlink()
        (place,) = lag(tmp_path)
        assert (place.events, place.since_ts) == (2, FIRST_TIME + 5 * SECOND)


def _commit(folder: Path, name: str, partition: str, low: int) -> None:
    ports = system_ports(folder)
    assert ports.disk is not None
    make_folder(ports.disk, CONSUMERS)
    with closing(CursorStore(ports, cursor_folder("air.tracks"))) as store:
        store.open(name, owner="a test").commit({partition: low})


def test_channels_without_durable_consumers_have_no_rows_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        opened(station).push(Track(1))
    assert lag(tmp_path) == []
    with pytest.raises(NoHistory, match=r"air\.tracks"):
        lag(tmp_path, "air.track")
    with pytest.raises(NoHistory):
        lag(tmp_path / "elsewhere")


def test_a_damaged_place_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = opened(station)
        tracks.push(Track(1))
        for name in ("audit", "billing"):
            with tracks.consumer(name=name, start="earliest", until="now") as consumer:
                assert len(list(consumer)) == 1
    file = tmp_path / cursor_folder("air.tracks") / "cursors"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadJournalFile, match="helio journal repair --dry-run"):
        lag(tmp_path)


def test_readers_outside_of_the_station_say_themselves_how_far_they_are(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = opened(station)
        tracks.push_many([Track(n) for n in range(6)])
        disk = system_ports(tmp_path).disk
        assert disk is not None
        (partition,) = StationFolder(tmp_path).partitions("air.tracks")
        note(disk, "air.tracks", "totals/x", {partition: 2, "gone": 7}, 5)
        note(disk, "air.tracks", "totals/x", {partition: 4, "gone": 7}, 6)
        (place,) = lag(tmp_path, "air.tracks")
        assert (place.consumer, place.acknowledged, place.events, place.seen_ts) == ("totals/x", 4, 2, 6)
        assert place.owner == "a reader outside of the station"
        assert noted(disk, "air.trucks") == ()
        (file,) = (tmp_path / "readers" / "air.tracks").iterdir()
        file.write_bytes(b"torn")
        assert lag(tmp_path, "air.tracks") == []
