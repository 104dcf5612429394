"""State between processes: many keys, versions of a class, and by hand."""

from __future__ import annotations

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
