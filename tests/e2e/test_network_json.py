"""Clients of bare Zenoh, which know nothing of Heliograph, subscribe to a channel and push into another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import zenoh

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.interchange.zenoh_json import MAX_JSON, JsonStreams
from tests.e2e.link_support import LIMIT, Track, free_endpoint, own_meeting_folder, wait_until
from tests.e2e.network_support import Hosts
from tests.e2e.test_network_streams import Taker

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = Path(__file__).with_name("bare_zenoh_client.py")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Hosts(tmp_path)
    yield made
    made.clean_up()


def test_a_bare_client_hears_a_channel_as_json_and_in_its_stream_and_pushes_into_another(
    hosts: Hosts,
) -> None:
    endpoint = free_endpoint()
    with hg.Station(domain="e2e", listen=[endpoint]) as station:
        tracks, orders = station.channel("air.tracks", Track), station.channel("orders", Track)
        ordered: list[Track] = []
        orders.subscribe(ordered.append)
        taker = Taker(hosts, "b", endpoint)  # what nobody takes has no stream
        assert tracks.wait_matched(1, LIMIT)
        with JsonStreams(station, publish=[tracks], accept=[orders]) as streams:
            tracks.push(Track(1_000_000))  # nobody listens yet
            client = subprocess.Popen(
                [sys.executable, "-I", str(CLIENT), endpoint, "200"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert client.stdout is not None
            try:
                assert client.stdout.readline() == "ready\n"
                putter = station.mesh.network.plain_putter("hg1/e2e/json/air.tracks/out")  # type: ignore[union-attr]  # it is on a network
                assert wait_until(lambda: putter.is_heard)
                assert wait_until(lambda: tracks.stats().total.pending == 0)
                for i in range(200):
                    tracks.push(Track(i))
                said = [client.stdout.readline().strip() for _ in range(5)]
                assert said[0] == "json True 200"
                assert said[1:3] == ["live True", "pushed bare-2"]
                assert [line.split()[0] for line in said[3:]] == ["refused", "refused"]
                assert wait_until(lambda: sorted(track.id for track in ordered) == [7, 8])
                assert ordered[0] in (Track(7, 1.5), Track(8))
                assert streams.refused == 2
                out, _ = client.communicate("", LIMIT)
                assert out.split() == ["ended"]
                assert client.returncode == 0
            finally:
                client.kill()
                client.wait()
        assert taker.program.end() == 0


class Unanswerable:
    """A query of a client whose session is gone."""

    def __init__(self, payload: object) -> None:
        self.payload = payload

    def reply(self, *_: object) -> None:
        raise zenoh.ZError("the session is closed")

    reply_err = drop = reply


class Huge:
    """A payload that must not be copied."""

    def __len__(self) -> int:
        return MAX_JSON + 1

    def to_bytes(self) -> bytes:
        raise AssertionError("it was copied")


def test_a_client_that_cannot_be_answered_ends_nothing_and_what_is_too_large_is_not_copied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with hg.Station(domain="e2e", listen=[free_endpoint()]) as station:
        orders = station.channel("orders", Track)
        ordered: list[Track] = []
        orders.subscribe(ordered.append)
        with JsonStreams(station) as streams:
            known = SimpleNamespace(Query=Unanswerable, ZError=zenoh.ZError)
            with monkeypatch.context() as patched:
                patched.setattr(streams, "_network", SimpleNamespace(zenoh=known))
                event = {
                    "specversion": "1.0",
                    "id": "1",
                    "source": "/bare",
                    "type": "air.track",
                    "data": {"id": 7},
                }
                streams._take(orders, "in", Unanswerable(zenoh.ZBytes(json.dumps(event))))
                streams._take(orders, "in", Unanswerable(Huge()))
                streams._take(orders, "in", Unanswerable(None))
            assert wait_until(lambda: [track.id for track in ordered] == [7])
            assert streams.refused == 2
            assert f"an event of {MAX_JSON + 1} bytes" in caplog.text


def test_a_station_that_is_on_no_network_refuses() -> None:
    with hg.Station() as station, pytest.raises(NotPossible, match="add listen= or connect="):
        JsonStreams(station)
