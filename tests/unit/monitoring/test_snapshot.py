"""Snapshots say what the ledger, the journal and the links say, of this station and of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import Closed
from heliograph.journal.consumers.lag import OUTSIDE
from heliograph.journal.consumers.outside_readers import note
from heliograph.journal.store import JournalStore
from heliograph.monitoring import doctor, snapshot
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


def test_a_snapshot_says_what_the_ledger_says() -> None:
    with hg.Station(name="tower") as station:
        tracks = station.channel("air.tracks", Track)
        tracks.subscribe(lambda _: None, where="speed > 300", name="fast")
        tracks.consumer(name="slow", queue=3, overflow="drop_oldest")
        for n in range(10):
            tracks.push(Track(n, 100.0 * n))
        assert tracks.settle(LIMIT)
        taken = station.snapshot()
        assert (taken.name, taken.domain, taken.links) == ("tower", None, ())
        (one,) = taken.channels
        stats = tracks.stats()
        assert (one.pushed, one.matched) == (10, stats.matched) == (10, 16)
        fast, slow = one.receivers
        assert (fast.kind, fast.where, fast.delivered, fast.types) == (
            "callback",
            "speed > 300",
            6,
            ("air.track",),
        )
        assert (slow.kind, slow.pending, slow.dropped, slow.limit) == ("consumer", 3, {"oldest": 7}, 3)
        assert one.dropped == {"oldest": 7}
        assert (one.delivered, one.pending) == (6, 3)
        assert [supplier.pushed for supplier in one.suppliers] == [10]


def test_a_snapshot_has_the_journal_and_how_far_durable_consumers_are(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        with tracks.consumer(name="billing") as billing:
            tracks.push_many([Track(n) for n in range(10)])
            assert len(billing.read(4, timeout=LIMIT)) == 4
        taken = station.snapshot("air.tracks")
        (one,) = taken.channels
        assert one.journal is not None
        assert (one.journal.earliest, one.journal.end) == (0, 10)
        assert one.journal.bytes > 0
        (durable,) = one.durable
        assert (durable.name, durable.is_group) == ("billing", False)
        assert durable.lag == 10 - durable.acknowledged
        assert 6 <= one.lag <= 10
        assert taken.free_bytes
        assert taken.folder == str(tmp_path)
        assert station.snapshot("another").channels == ()


def test_a_snapshot_has_readers_that_no_station_knows(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(n) for n in range(1_500)])
        store = tracks.store
        assert isinstance(store, JournalStore)
        assert station.ports.disk is not None
        # As a query of Spark does after each of its batches.
        note(station.ports.disk, "air.tracks", "totals", {store.partition: 100, "elsewhere": 7}, 5)
        taken = station.snapshot()
        (one,) = taken.channels[0].durable
        assert (one.name, one.acknowledged, one.lag, one.owner, one.seen_ts) == (
            "totals",
            100,
            1_400,
            OUTSIDE,
            5,
        )
        (finding,) = doctor.examine([taken], [], taken.time_ns)
        assert (finding.what, "look at its query" in finding.command) == ("lagging consumer", True)


def test_stations_of_a_domain_tell_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="a", name="one") as one, hg.Station(domain="a", name="two") as two:
        tracks = one.channel("air.tracks", Track)
        two.channel("air.tracks", Track).subscribe(lambda _: None, name="display")
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(1))

        def delivered() -> bool:
            told, silent = snapshot.ask_all(one.mesh)
            if silent:
                return False  # a busy machine
            (other,) = told
            channel = other.channel("air.tracks")
            return other.name == "two" and channel is not None and channel.delivered == 1

        assert wait_until(delivered)
        (link,) = one.snapshot().links
        assert (link.name, link.connected, link.events_sent) == ("two", True, 1)
        gateways = [r.kind for channel in one.snapshot().channels for r in channel.receivers]
        assert gateways == ["gateway"]


def test_a_station_that_is_closed_has_no_snapshot() -> None:
    with hg.Station() as station:
        pass
    with pytest.raises(Closed):
        station.snapshot()


def test_what_a_snapshot_lists_is_bounded_and_what_it_leaves_out_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "MAX_CHANNELS", 2)
    monkeypatch.setattr(snapshot, "MAX_RECEIVERS", 3)
    with hg.Station() as station:
        for name in ("a", "b", "c"):
            channel = station.channel(name, Track)
            for _ in range(5):
                channel.subscribe(lambda _: None)
        taken = station.snapshot()
        assert (len(taken.channels), taken.channels_left_out) == (2, 1)
        assert [(len(one.receivers), one.receivers_left_out) for one in taken.channels] == [(3, 2), (3, 2)]


def test_a_durable_function_that_raises_is_told_though_nothing_is_lost(tmp_path: Path) -> None:
    with hg.Station(tmp_path, on_error=lambda *_: None) as station:
        kept = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))

        def pager(track: Track) -> None:
            raise ValueError(track)

        kept.subscribe(pager, name="pager")
        kept.push(Track(1))
        assert wait_until(lambda: kept.raised()["pager"])
        (channel,) = (one for one in station.snapshot().channels if one.name == "kept")
        (receiver,) = channel.receivers
        assert receiver.failed
        assert not kept.stats().consumers["pager"].failed
