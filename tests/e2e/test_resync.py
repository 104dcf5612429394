"""State between processes: many keys, versions of a class, and by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def test_a_late_receiver_gets_ten_thousand_keys_page_by_page_and_each_once() -> None:
    program = Program("supply", "1", "10000", "function", module="tests.faults.resync_process")
    try:
        program.says("offers")
        with hg.Station(domain="e2e") as station:
            tracks = station.channel("tracks", Track)
            got: list[int] = []
            subscription = tracks.subscribe(lambda track: got.append(track.id), resync="state")
            assert wait_until(lambda: subscription.resync.stats().settled and len(got) >= 10_000)
            assert sorted(got) == list(range(10_000))
            counts = subscription.resync.stats().counts
            assert (counts.asked, counts.rows, counts.applied) == (1, 10_000, 10_000)
            assert tracks.stats().balanced
            assert len(tracks.fetch_state(LIMIT)) == 10_000
        result = CliRunner().invoke(app, ["state", "tracks", "--domain", "e2e", "--json"])
        assert len(msgspec.json.decode(result.stdout)) == 10_000
    finally:
        program.clean_up()


def test_who_asks_for_a_state_that_nobody_offers_is_told_so() -> None:
    with hg.Station(domain="e2e") as station:
        station.channel("tracks", Track)
        result = CliRunner().invoke(app, ["state", "tracks", "--domain", "e2e"])
        assert isinstance(result.exception, hg.NoState)


def test_a_state_is_offered_of_what_was_pushed_here_though_another_station_keeps_it(tmp_path: Path) -> None:
    persistent = hg.QoS(durability="persistent")
    with (
        hg.Station(tmp_path / "data", domain="e2e") as keeper,
        hg.Station(domain="e2e") as supplying,
        hg.Station(domain="e2e") as other,
    ):
        keeper.keep_for_others()
        tracks = supplying.channel("tracks", Track, qos=persistent)
        tracks.state("latest")
        tracks.push_many([Track(i) for i in range(5)])
        with tracks.supplier(name="radar") as radar:
            radar.push(Track(5))
            assert wait_until(lambda: len(tracks.fetch_state()) == 6)
        # What another station pushes is not of this one's state, though it comes here, too.
        elsewhere = other.channel("tracks", Track, qos=persistent)
        elsewhere.push(Track(7))
        got: dict[int, Track] = {}
        elsewhere.subscribe(lambda track: got.update({track.id: track}), resync="state")
        assert wait_until(lambda: got.keys() == set(range(6)))
        assert {track.id for track in elsewhere.fetch_state()} == set(range(6))


def test_a_quiet_live_channel_is_never_rebound() -> None:
    program = Program("supply", "1", "20", "latest", module="tests.faults.resync_process")
    try:
        program.says("offers")
        with hg.Station(domain="e2e", peer_limit=1.0) as station:
            tracks = station.channel("tracks", Track)
            quick = hg.Resync(grace=0.05, check=0.1, pause=0.05)
            subscription = tracks.subscribe(lambda _: None, resync=quick)
            assert wait_until(lambda: subscription.resync.stats().keys == 20)
            assert station.mesh is not None
            known = {other.station for other in station.mesh.stations()}
            asked = subscription.resync.stats().counts.asked
            # Silence is asked about each 0.1 s, and a peer is suspected after 1 s: nothing comes of either.
            quiet = time.monotonic() + 2.5
            while time.monotonic() < quiet:
                assert {other.station for other in station.mesh.stations()} == known
                assert subscription.resync.stats().counts.asked == asked
                time.sleep(0.05)
            assert subscription.resync.stats().settled
            assert program.process.poll() is None
    finally:
        program.clean_up()
