"""MCAP files that its own library reads, and files of others that become channels."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import msgspec
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer

import heliograph as hg
from heliograph.cli import run
from heliograph.errors import UnreadableFile
from heliograph.history_rows import HistoryRows
from heliograph.interchange import mcap

if TYPE_CHECKING:
    from pathlib import Path


class Pose(hg.Event, name="robot.pose", key="robot"):
    robot: str
    x: hg.f32
    day: date = date(2026, 11, 18)
    price: Annotated[Decimal, hg.Digits(6, 2)] = Decimal("1.50")
    tags: dict[str, int] = msgspec.field(default_factory=lambda: {"a": 1})


KEPT = hg.QoS(durability="persistent")
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "v": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object"},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with hg.Station(tmp_path / "data") as station:
        poses = station.channel("robot.poses", Pose, qos=KEPT)
        for n in range(5):
            poses.push(Pose("r1", n / 2), source_ts=1_000 + n)
    return str(tmp_path / "data")


def written(file: Path, *messages: object, encoding: str = "json", kind: str = "jsonschema") -> Path:
    """A file of somebody else's."""
    with file.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        schema = writer.register_schema("lab.reading", kind, json.dumps(SCHEMA).encode())
        topic = writer.register_channel("/lab/readings", encoding, schema)
        for n, message in enumerate(messages):
            writer.add_message(
                topic, log_time=10 + n, publish_time=n, data=json.dumps(message).encode(), sequence=n
            )
        writer.finish()  # type: ignore[no-untyped-call]  # the library's
    return file


def test_its_own_library_reads_what_was_exported(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "poses.mcap"
    assert run(["journal", "export", folder, "robot.poses", str(file)]) == 0
    with file.open("rb") as stream:
        rows = list(make_reader(stream).iter_messages())
    assert [json.loads(message.data)["x"] for _, _, message in rows] == [0.0, 0.5, 1.0, 1.5, 2.0]
    schema, topic, message = rows[3]
    assert schema is not None
    assert (topic.topic, topic.message_encoding, schema.encoding) == ("robot.poses", "json", "jsonschema")
    assert json.loads(schema.data)["properties"]["day"] == {"type": "string", "format": "date"}
    assert json.loads(message.data)["price"] == "1.50"
    assert json.loads(schema.data)["properties"]["tags"]["additionalProperties"]["type"] == "integer"
    assert (message.publish_time, message.sequence) == (1_003, 4)


def test_what_was_exported_comes_back_with_the_very_same_types(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "poses.mcap"
    assert mcap.write(HistoryRows(folder, "robot.poses", None, None, None), "robot.poses", file) == 5
    assert run(["journal", "import", str(tmp_path / "again"), str(file)]) == 0
    with hg.Station(tmp_path / "again") as station:
        poses = station.channel("robot.poses", Pose, qos=KEPT)
        with poses.consumer(until="now") as consumer:
            got = [(delivery.event, delivery.header.source_ts) for delivery in consumer.deliveries()]
    assert got == [(Pose("r1", n / 2), 1_000 + n) for n in range(5)]


def test_json_of_others_becomes_a_channel_named_as_its_topic(tmp_path: Path) -> None:
    message = {"n": 1, "v": 2.5, "tags": ["a"], "more": {"deep": [1, None]}}
    file = written(tmp_path / "lab.mcap", message, {**message, "n": 2})
    with hg.Station(tmp_path / "data") as station:
        assert mcap.read(file, station) == {"lab.readings": 2}
        events: list[hg.Event] = list(station.channel("lab.readings").consumer(until="now"))
    assert [json.loads(event.to_json()) for event in events] == [message, {**message, "n": 2}]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda file: written(file, {"n": 1}),
            "message 0 of topic '/lab/readings' is not as its schema says",
        ),
        (
            lambda file: written(file, {}, encoding="cdr", kind="ros2msg"),
            "is cdr with ros2msg; read are json",
        ),
        (lambda file: file.write_bytes(b"nonsense") and file, "no whole MCAP file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(
    make: object, said: str, tmp_path: Path
) -> None:
    file = make(tmp_path / "bad.mcap")  # type: ignore[operator]
    with hg.Station(tmp_path / "data") as station, pytest.raises(UnreadableFile, match=said):
        mcap.read(file, station)


def test_a_damaged_file_never_ends_in_another_error(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "poses.mcap"
    mcap.write(HistoryRows(folder, "robot.poses", None, None, None), "robot.poses", file)
    whole = file.read_bytes()
    with hg.Station(tmp_path / "again") as station:
        for position in range(0, len(whole), 61):
            cut = tmp_path / "cut.mcap"
            cut.write_bytes(whole[:position])
            with pytest.raises(UnreadableFile):
                mcap.read(cut, station)
            cut.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
            with suppress(UnreadableFile):
                mcap.read(cut, station)


@pytest.mark.parametrize(
    ("topic", "name"), [("/robot/pose", "robot.pose"), ("a b/*", "a.b"), ("//", "topic"), ("x.y", "x.y")]
)
def test_a_topic_becomes_the_name_of_a_channel(topic: str, name: str) -> None:
    assert mcap.channel_name(topic) == name
