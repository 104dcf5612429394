"""Delivery records of a domain: a station without a folder has its records kept by one that has."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.delivery.records import DELIVERIES, LEDGER
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

ALL = hg.QoS(delivery_records="all", ledger_interval=0.05)
EVENTS = 20

RECEIVER = """
import heliograph as hg
from tests.e2e.link_support import Track

qos = hg.QoS(delivery_records="all", ledger_interval=0.05)
with hg.Station(domain="air") as station:
    tracks = station.channel("air.tracks", Track, qos=qos)
    with tracks.consumer(name="far") as consumer:
        print("ready", flush=True)
        for _ in range(20):
            assert consumer.pull(60.0) is not None
    print("done", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def outcomes(station: hg.Station) -> Counter[tuple[str, str]]:
    """What the history of deliveries has, by receiver."""
    records = station.channel(DELIVERIES, hg.DeliveryRecord)
    found = records.consumer(start="earliest", until="now")
    return Counter((record.receiver, record.outcome) for record in found)


def durabilities(station: hg.Station) -> dict[str, str]:
    return {one.name: one.qos.durability for one in station.channels() if one.name in (DELIVERIES, LEDGER)}


def ledgers(station: hg.Station) -> set[str | None]:
    rows = station.channel(LEDGER, hg.LedgerRecord).consumer(start="earliest", until="now")
    return {row.receiver for row in rows if row.final}


@pytest.mark.parametrize("keeper_comes_first", [True, False])
def test_records_of_a_process_without_a_folder_are_in_the_keepers_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, keeper_comes_first: bool
) -> None:
    far: subprocess.Popen[str] | None = None

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        program = subprocess.Popen(
            [sys.executable, "-c", RECEIVER], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    if not keeper_comes_first:
        far = start()
    with caplog.at_level(logging.WARNING), hg.Station(tmp_path / "data", domain="air") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=ALL)
        far = far or start()
        near: list[Track] = []
        tracks.subscribe(near.append, name="near")
        assert tracks.wait_matched(2, LIMIT)
        tracks.push_many([Track(n) for n in range(EVENTS)])
        expected = Counter({("near", "delivered"): EVENTS, ("far", "delivered"): EVENTS})
        assert wait_until(lambda: outcomes(keeper) == expected)
        _, errors = far.communicate("\n", timeout=LIMIT)
        assert (far.returncode, errors) == (0, "")
        assert "far" in ledgers(keeper)
    assert caplog.text == ""
    with hg.Station(tmp_path / "data") as again:
        assert outcomes(again) == expected


def test_records_that_nobody_kept_are_kept_from_when_a_keeper_comes(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with hg.Station(domain="air", on_error=lambda _n, _h, error: errors.append(error)) as other:
        theirs = other.channel("air.tracks", Track, qos=ALL)
        got: list[Track] = []
        theirs.subscribe(got.append, name="display")
        assert durabilities(other) == {DELIVERIES: "volatile", LEDGER: "volatile"}
        theirs.push(Track(1))
        assert wait_until(lambda: got)
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=ALL)
            kept_now = {DELIVERIES: "persistent", LEDGER: "persistent"}
            assert wait_until(lambda: durabilities(other) == kept_now)
            assert kept.wait_matched(1, LIMIT)
            kept.push(Track(2))
            # The first one, too, if its record was still to be written when the keeper came.
            assert wait_until(lambda: outcomes(keeper)["display", "delivered"] in {1, 2}), outcomes(keeper)
    assert errors == []


def test_a_station_that_records_nothing_reads_the_records_of_the_keeper(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with (
        hg.Station(tmp_path / "data", domain="air") as keeper,
        hg.Station(domain="air", on_error=lambda _n, _h, error: errors.append(error)) as other,
    ):
        tracks = keeper.channel("air.tracks", Track, qos=ALL)
        tracks.subscribe(lambda _: None, name="near")
        tracks.push_many([Track(n) for n in range(EVENTS)])
        assert wait_until(lambda: outcomes(other) == {("near", "delivered"): EVENTS})
    assert errors == []


def test_records_wait_for_a_keeper_that_is_away(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with hg.Station(domain="air", on_error=lambda _n, _h, error: errors.append(error)) as other:
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            keeper.channel("air.tracks", Track, qos=ALL)
            theirs = other.channel("air.tracks", Track, qos=ALL)
            theirs.subscribe(lambda _: None, name="display")
        theirs.push_many([Track(n) for n in range(EVENTS)])
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            keeper.channel("air.tracks", Track, qos=ALL)
            assert wait_until(lambda: outcomes(keeper) == {("display", "delivered"): EVENTS})
    assert errors == []
