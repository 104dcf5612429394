"""What `format("heliograph")` says when something is wrong: in its own words, and without our own frames."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import FormatError, HistoryDamaged
from heliograph.journal.format.folder import StationFolder
from heliograph.spark.source.lag import behind
from heliograph.spark.source.source import HeliographSource
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track"):
    id: int


class Named(hg.Event, name="air.named"):
    id: list[int]


def source(folder: Path) -> HeliographSource:
    return HeliographSource({"path": str(folder), "channel": "air.tracks"})


def test_types_without_common_columns_are_told_in_the_words_of_options(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1), Named([1]))
        with pytest.raises(FormatError) as refused:
            source(tmp_path).schema()
    sentence = str(refused.value)
    assert 'with .option("types", ...), or set .option("mode", "envelope")' in sentence
    assert "columns=" not in sentence


def test_an_error_of_a_task_shows_one_frame_of_ours(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(Track(1))
        (sealed,) = keeper.seal()
        reader: Any = source(tmp_path).reader(source(tmp_path).schema())
        (part,) = reader.partitions()
        sealed.write_bytes(b"")
        with pytest.raises(HistoryDamaged) as refused:
            list(reader.read(part))
    frames = [
        frame
        for frame in traceback.extract_tb(refused.value.__traceback__)
        if "heliograph/" in frame.filename
    ]
    assert len(frames) == 1
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_lag_leaves_out_what_retention_has_removed(tmp_path: Path) -> None:
    with Keeper(tmp_path) as keeper:
        keeper.push(*map(Track, range(10)))
        keeper.seal()
        keeper.push(*map(Track, range(10, 15)))
        keeper.drop_sealed()
        with StationFolder(tmp_path).reader("air.tracks", "p1") as reader:
            assert reader.earliest == 10
            assert behind(reader, 3).events == 5
            assert behind(reader, 12).events == 3
