"""Live channels for Foxglove, asked for as its app asks: by its WebSocket protocol."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]  # it has none
import pytest
from websockets.sync.client import connect

import heliograph as hg
from heliograph.errors import MissingExtra
from heliograph.interchange.foxglove import FoxgloveServer
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from websockets.sync.client import ClientConnection

PROTOCOL: Any = "foxglove.sdk.v1"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


class Pose(hg.Event, name="robot.pose", key="robot"):
    robot: str
    x: float


class Viewer:
    """What Foxglove's app does: reads what is there, and asks for topics."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.topics: dict[str, dict[str, Any]] = {}

    def wait_for(self, topic: str) -> dict[str, Any]:
        while topic not in self.topics:
            told = json.loads(self._connection.recv(timeout=LIMIT))
            for one in told.get("channels", ()):
                self.topics[one["topic"]] = one
        return self.topics[topic]

    def wait_until_gone(self, topic: str) -> None:
        number = self.topics[topic]["id"]
        while True:
            told = json.loads(self._connection.recv(timeout=LIMIT))
            if told["op"] == "unadvertise" and number in told["channelIds"]:
                return

    def look_at(self, topic: str, is_seen: Callable[[], object]) -> None:
        """Ask until that is seen: Foxglove's server tells of a new topic before it knows it."""
        wanted = {"id": 7, "channelId": self.wait_for(topic)["id"]}
        for _ in range(30):
            self._connection.send(json.dumps({"op": "subscribe", "subscriptions": [wanted]}))
            if wait_until(is_seen, 1.0):
                return
        pytest.fail(f"nobody noticed that a viewer looks at {topic}")

    def look_away(self) -> None:
        self._connection.send(json.dumps({"op": "unsubscribe", "subscriptionIds": [7]}))

    def message(self) -> tuple[int, Any]:
        data: Any = ""
        while isinstance(data, str):  # what is text is no message of a topic
            data = self._connection.recv(timeout=LIMIT)
        kind, subscription, time_ns = struct.unpack_from("<BIQ", data)
        assert (kind, subscription) == (1, 7)
        return time_ns, json.loads(data[13:])


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station() as opened:
        yield opened


def test_a_viewer_gets_what_is_pushed_while_it_looks_and_nobody_is_subscribed_before_or_after(
    station: hg.Station,
) -> None:
    poses = station.channel("robot.poses", Pose)
    with FoxgloveServer(station, port=0) as server, connect(server.link, subprotocols=[PROTOCOL]) as made:
        viewer = Viewer(made)
        schema = json.loads(viewer.wait_for("robot.poses")["schema"])
        assert poses.receivers() == ()
        viewer.look_at("robot.poses", poses.receivers)
        poses.push(Pose(HOSTILE, 0.5), source_ts=1_234_567_890)
        time_ns, message = viewer.message()
        assert (time_ns, message) == (1_234_567_890, {"robot": HOSTILE, "x": 0.5})
        jsonschema.validate(message, schema)
        viewer.look_away()
        assert wait_until(lambda: not poses.receivers())


def test_a_viewer_that_goes_away_is_not_sent_to_any_more(station: hg.Station) -> None:
    poses = station.channel("robot.poses", Pose)
    with FoxgloveServer(station, port=0) as server:
        with connect(server.link, subprotocols=[PROTOCOL]) as made:
            Viewer(made).look_at("robot.poses", poses.receivers)
        assert wait_until(lambda: not poses.receivers())


def test_channels_come_and_go_as_topics_and_others_are_not_shown(station: hg.Station) -> None:
    with (
        FoxgloveServer(station, ["robot.*"], port=0) as server,
        connect(server.link, subprotocols=[PROTOCOL]) as made,
    ):
        viewer = Viewer(made)
        station.channel("secret.poses", Pose)
        poses = station.channel("robot.poses", Pose)
        viewer.wait_for("robot.poses")
        poses.close()
        viewer.wait_until_gone("robot.poses")
        assert viewer.topics.keys() == {"robot.poses"}


def test_what_is_kept_is_shown_with_the_time_of_appending(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station, FoxgloveServer(station, port=0) as server:
        poses = station.channel("robot.poses", Pose, qos=hg.QoS(durability="persistent"))
        with connect(server.link, subprotocols=[PROTOCOL]) as made:
            viewer = Viewer(made)
            viewer.look_at("robot.poses", poses.receivers)
            poses.push(Pose("r1", 1.0), source_ts=5)
            time_ns, _ = viewer.message()
        with poses.consumer(start="earliest", until="now") as consumer:
            (delivery,) = consumer.deliveries()
        assert time_ns == delivery.header.append_ts


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.org"])
def test_it_serves_no_other_host(station: hg.Station, host: str) -> None:
    with pytest.raises(hg.NotPossible, match="no password"):
        FoxgloveServer(station, host=host)


def test_a_port_that_is_taken_is_named(station: hg.Station) -> None:
    with FoxgloveServer(station, port=0) as server:
        port = int(server.link.rpartition(":")[2])
        with pytest.raises(hg.NotPossible, match=str(port)):
            FoxgloveServer(station, port=port)


def test_without_the_package_the_extra_is_named(station: hg.Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foxglove", None)
    with pytest.raises(MissingExtra, match="foxglove"):
        FoxgloveServer(station)


def test_helio_foxglove_shows_channels_of_other_stations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="robots", name="robot") as station:
        poses = station.channel("robot.poses", Pose)
        command = [
            sys.executable,
            "-m",
            "heliograph.cli",
            "foxglove",
            "--domain",
            "robots",
            "--port",
            "0",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            link = program.stdout.readline().split()[4].rstrip(";")
            with connect(link, subprotocols=[PROTOCOL]) as made:
                viewer = Viewer(made)
                viewer.look_at("robot.poses", lambda: poses.wait_matched(consumers=1, timeout=1.0))
                poses.push(Pose("r1", 2.0))
                assert viewer.message()[1] == {"robot": "r1", "x": 2.0}
            program.send_signal(signal.SIGTERM)
            assert program.wait(LIMIT) == 0
