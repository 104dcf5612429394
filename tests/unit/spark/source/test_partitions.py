"""When a stream looks for channels and partitions that are new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.spark.source import partitions as watching
from heliograph.spark.source.options import parse_options
from heliograph.spark.source.partitions import LOOK_AGAIN, PAUSE, ChannelPartitions
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Track(hg.Event, name="air.track", key="id"):
    id: int


class Looks:
    """A clock that stands still but for looking, which takes a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.count = 0

    def monotonic(self) -> float:
        return self.now

    def look(self, _: ChannelPartitions) -> None:
        self.now += self.seconds
        self.count += 1


def counted(looks: Looks, watch: ChannelPartitions, at: float) -> int:
    looks.now = at
    watch.readers()
    return looks.count


def test_looking_takes_a_tenth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1))
    options = parse_options({"path": str(tmp_path), "subscribePattern": "air.*"}, stream=True)
    for seconds, again in ((0.01, LOOK_AGAIN), (2.0, 2.0 + PAUSE * 2.0)):
        looks = Looks(seconds)
        monkeypatch.setattr(watching, "time", looks)
        monkeypatch.setattr(ChannelPartitions, "_look", lambda watch, looks=looks: looks.look(watch))
        watch = ChannelPartitions(options)
        assert counted(looks, watch, again - 0.1) == 1
        assert counted(looks, watch, again) == 2
        watch.readers(now=True)
        assert looks.count == 3, "who begins a query or a last batch wants to know all"
