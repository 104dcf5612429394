"""Errors of Spark that name a sealed file, told as ranges of offsets; without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import heliograph as hg
import heliograph.spark
from heliograph.errors import HistoryDamaged
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.spark.source.damage import loss_in
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int


class SparkError(Exception):
    """Says what Spark says."""

    def __init__(self, file: Path) -> None:
        told = f"Encountered error while reading file {file.as_uri()}. SQLSTATE: KD001"
        super().__init__(f"[FAILED_READ_FILE.NO_HINT] {told}")


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty events from offset ten on, in row groups of ten."""
    monkeypatch.setattr(segmentwriter, "ROW_GROUP", 10)
    with Keeper(tmp_path / "with a blank") as keeper:
        keeper.push(*(Track(n) for n in range(10)))
        keeper.seal()
        keeper.push(*(Track(n) for n in range(40)))
        return keeper.seal()[-1]


def test_a_damaged_row_group_is_named_with_its_offsets(sealed: Path) -> None:
    group = pq.read_metadata(sealed).row_group(2)
    data = bytearray(sealed.read_bytes())
    data[group.column(0).data_page_offset + 2] ^= 1
    sealed.write_bytes(data)
    with pytest.raises(HistoryDamaged) as damaged, heliograph.spark.naming_loss():
        raise SparkError(sealed)
    assert (damaged.value.first, damaged.value.next_available) == (30, 40)
    assert isinstance(damaged.value.__cause__, SparkError)


def test_a_file_that_is_missing_is_named_with_all_its_offsets(sealed: Path) -> None:
    sealed.unlink()
    with pytest.raises(HistoryDamaged) as damaged, heliograph.spark.naming_loss():
        raise SparkError(sealed)
    assert (damaged.value.first, damaged.value.next_available) == (10, 50)


def test_errors_with_another_cause_stay_as_they_are(sealed: Path, tmp_path: Path) -> None:
    for error in (SparkError(sealed), SparkError(tmp_path / "sealed" / sealed.name), ValueError("no file")):
        with pytest.raises(type(error)) as stays, heliograph.spark.naming_loss():
            raise error
        assert stays.value is error
    assert loss_in("") is None
