"""The AsyncAPI document names every channel and what its events look like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema  # type: ignore[import-untyped]  # it has none

import heliograph as hg
from heliograph.cli import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Track(hg.Event, name="air.track", key="id"):
    id: int


class Weather(hg.Event, name="air.weather"):
    wind: float


def test_every_channel_of_a_folder_is_in_its_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hg.Station(tmp_path) as station:
        kept = hg.QoS(durability="persistent")
        station.channel("air", Track, Weather, qos=kept)
        station.channel("air.tracks", Track, qos=kept)
    file = tmp_path / "asyncapi.json"
    assert run(["journal", "asyncapi", str(tmp_path), str(file), "--title", "Airspace"]) == 0
    assert "asyncapi.json: 2 channels" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert (document["asyncapi"], document["info"]["title"]) == ("3.0.0", "Airspace")
    assert {name: sorted(channel["messages"]) for name, channel in document["channels"].items()} == {
        "air": ["air.track", "air.weather"],
        "air.tracks": ["air.track"],
    }
    assert sorted(document["operations"]) == [
        "receive.air",
        "receive.air.tracks",
        "send.air",
        "send.air.tracks",
    ]
    track = document["components"]["messages"]["air.track"]
    assert track["x-key"] == ["id"]
    jsonschema.Draft202012Validator(track["payload"]["schema"]).validate({"id": 7})
