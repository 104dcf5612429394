"""How a channel is kept, across stations: opened as it is, refused otherwise, and kept for who cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def test_a_channel_that_is_kept_elsewhere_is_opened_as_it_is_kept(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", compaction="key", lifespan=60.0, priority=2)
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        kept = keeper.channel("air.tracks", Track, qos=qos)
        theirs = other.channel("air.tracks", Track)
        assert theirs.qos == qos
        assert theirs.push(Track(1))
        assert [track.id for track in kept.consumer(until="now")] == [1]


def test_a_station_with_a_folder_keeps_a_partition_of_a_channel_that_it_opens_so(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "a", domain="air") as one, hg.Station(tmp_path / "b", domain="air") as two:
        one.channel("air.tracks", Track, qos=PERSISTENT)
        ours = two.channel("air.tracks", Track)
        assert ours.qos == PERSISTENT
        assert ours.store is not None
        assert ours.store.kept_here


@pytest.mark.parametrize(
    ("asked", "policy"),
    [
        (hg.QoS(), "durability"),
        (hg.QoS(durability="transient"), "durability"),
        (hg.QoS(durability="persistent", compaction="key"), "compaction"),
        (hg.QoS(durability="persistent", ack="delivered"), "ack"),
    ],
)
def test_one_that_is_kept_otherwise_is_refused(tmp_path: Path, asked: hg.QoS, policy: str) -> None:
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as other:
        keeper.channel("air.tracks", Track, qos=PERSISTENT)
        with pytest.raises(
            hg.NotPossible, match=f"kept by a station.*otherwise: {policy} is .*leave out qos="
        ):
            other.channel("air.tracks", Track, qos=asked)
        assert other.channel("air.tracks", Track).qos == PERSISTENT


def test_a_keeper_that_comes_later_is_reported_and_no_push_is_lost_silently(tmp_path: Path) -> None:
    errors: list[tuple[str, BaseException]] = []
    with hg.Station(domain="air", on_error=lambda name, _, error: errors.append((name, error))) as other:
        volatile = other.channel("air.tracks", Track)
        named = volatile.supplier("radar-1")
        assert volatile.push(Track(0))
        live = volatile.consumer()
        with hg.Station(tmp_path / "data", domain="air") as keeper:
            kept = keeper.channel("air.tracks", Track, qos=PERSISTENT)
            assert wait_until(lambda: errors)
            ((name, error),) = errors
            assert name == "channel air.tracks"
            assert isinstance(error, hg.NotPossible)
            pushing: Any = volatile
            for push in (pushing.push, pushing.push_nowait, named.push, volatile.supplier().push):
                with pytest.raises(hg.NotPossible, match="durability is 'persistent' there, 'volatile' here"):
                    push(Track(1))
            assert kept.wait_matched(1, LIMIT)
            kept.push(Track(2))
            assert live.pull(LIMIT) == Track(2), "what is kept is still received"


def test_keepers_that_differ_are_not_merged_and_say_so(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    compacted = hg.QoS(durability="persistent", compaction="key")
    with hg.Station(tmp_path / "a") as one:
        one.channel("air.tracks", Track, qos=PERSISTENT).push(Track(1))
    with hg.Station(tmp_path / "b", domain="air") as two:
        ours = two.channel("air.tracks", Track, qos=compacted)
        with hg.Station(
            tmp_path / "a", domain="air", on_error=lambda _n, _h, error: errors.append(error)
        ) as one:
            theirs = one.channel("air.tracks", Track)
            assert wait_until(lambda: errors)
            assert "compaction is 'key' there, 'none' here" in str(errors[0])
            assert ours.push(Track(2))
            assert [track.id for track in theirs.consumer(until="now")] == [1]


def test_a_folder_remembers_how_a_channel_was(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", compaction="key", queue=77)
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=qos)
        station.channel("plain", Track, qos=PERSISTENT)
    with hg.Station(tmp_path / "data") as station:
        assert station.channel("air.tracks", Track).qos == qos
        assert station.channel("plain", Track).qos == PERSISTENT


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent", queue=77))
    (record,) = (tmp_path / "data").rglob("charter")
    record.write_text('{"policies": {"durability": "persistent", "queue": -1}}')
    with (
        hg.Station(tmp_path / "data") as station,
        pytest.raises(hg.JournalError, match=r"charter.*remove it and say qos="),
    ):
        station.channel("air.tracks", Track)


def test_a_station_keeps_for_others_what_nobody_keeps(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", compaction="key")
    with hg.Station(tmp_path / "data", domain="air") as keeper, hg.Station(domain="air") as one:
        keeper.keep_for_others()
        pushing = one.channel("air.tracks", Track, qos=qos)
        assert pushing.push(Track(1))
        with hg.Station(domain="air") as two:
            late = two.channel("air.tracks", Track)
            assert late.qos == qos
            assert late.consumer().pull(LIMIT) == Track(1)
        with pytest.raises(hg.NotPossible, match="needs a folder and a domain"):
            one.keep_for_others()


def test_helio_station_keeps_what_others_open_and_keeps_it_when_it_is_started_again(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from heliograph.cli import main; main()", "station", "--domain", "air"]
    for turn in range(2):
        started = subprocess.Popen(
            [*program, "--folder", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
        )
        try:
            assert started.stdout is not None
            assert ("keeping air.tracks" in started.stdout.readline()) == bool(turn)
            with hg.Station(domain="air") as other:
                tracks = other.channel("air.tracks", Track, qos=PERSISTENT)
                if turn:
                    assert tracks.push(Track(7))
                    assert tracks.consumer().pull(LIMIT) == Track(7)
        finally:
            started.send_signal(signal.SIGINT)
            started.communicate(timeout=LIMIT)
        assert started.returncode == 0
