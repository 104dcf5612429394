"""Histories that are merged and compacted between planning and reading, and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import heliograph as hg
from heliograph.journal.maintenance.compactor import rewrite
from tests.unit.spark.histories import Keeper
from tests.unit.spark.source.test_read import plan, ranges, rows

if TYPE_CHECKING:
    from collections.abc import Iterator


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Keeper]:
    """Two segments with offsets 0 to 19, of five keys, and a head with one more event."""
    with Keeper(tmp_path) as keeper:
        partition = keeper.writer._partition
        partition.limits = replace(partition.limits, compact=True)
        keeper.writer._keeper._rewriter = None  # the test says when
        for n in range(20):
            keeper.push(Track(n % 5, float(n)))
            if n in (9, 19):
                keeper.seal()
        keeper.push(Track(0, 20.0))
        yield keeper


def compact(keeper: Keeper) -> None:
    keeper.writer._keeper._rewriter = rewrite
    keeper.writer.tidy()  # or the keeper's own task, which may have been faster
    assert keeper.writer.stats().segments == 1


def test_a_read_that_was_planned_before_finds_its_files_and_rows_after(kept: Keeper, tmp_path: Path) -> None:
    planned = plan(tmp_path)
    compact(kept)
    assert ranges(planned) == ([(0, 10), (10, 20)], [(20, 21)])
    by_name = [pq.read_table(file.path).column("_offset").to_pylist() for file in planned.files]
    assert by_name == [list(range(10)), list(range(10, 20))], "they have their grace"
    by_offset = [row["header"]["offset"] for row in rows(tmp_path, planned)]
    assert by_offset == [*range(15, 20), 20], "whoever goes by offsets reads what is there now"


@pytest.mark.parametrize("start", [0, 7, 15, 17, 19])
@pytest.mark.parametrize("until", [8, 15, 16, 20, 21])
def test_a_compacted_history_is_read_from_and_up_to_any_offset(
    kept: Keeper, tmp_path: Path, start: int, until: int
) -> None:
    if start < until:
        compact(kept)
        found = [row["header"]["offset"] for row in rows(tmp_path, plan(tmp_path, start, until))]
        assert found == [n for n in range(15, 21) if start <= n < until]


def test_values_and_offsets_of_compacted_rows_belong_together(kept: Keeper, tmp_path: Path) -> None:
    compact(kept)
    assert [(row["header"]["offset"], row["id"], row["speed"]) for row in rows(tmp_path, plan(tmp_path))] == [
        (n, n % 5, float(n)) for n in range(15, 21)
    ]
    for file in plan(tmp_path).files:
        assert Path(file.path).exists()
