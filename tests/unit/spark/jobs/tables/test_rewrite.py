"""Which small files are joined, and what becomes of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.spark.jobs.tables.rewrite import RewritePolicy, groups, join
from heliograph.spark.jobs.tables.workplace import DataFile
from tests.support import examples

if TYPE_CHECKING:
    from pathlib import Path

SIZES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 150)), max_size=30)


@given(sizes=SIZES, after=st.integers(1, 5))
@settings(max_examples=examples(100))
def test_joining_ends_with_at_most_a_few_small_files_and_large_enough_others(
    sizes: list[tuple[str, int]], after: int
) -> None:
    policy = RewritePolicy(100, after)
    files = [DataFile(f"day={day}/{n}.parquet", 1, size) for n, (day, size) in enumerate(sizes)]
    for number in range(100):
        found = groups(files, policy)
        if not found:
            break
        for group in found:
            assert len({file.folder for file in group}) == 1
            assert sum(file.bytes for file in group) <= policy.file_bytes
            files = [file for file in files if file not in group]
            files.append(
                DataFile(
                    f"{group[0].folder}/j{number}{group[0].path[-9:]}",
                    len(group),
                    sum(f.bytes for f in group),
                )
            )
    for day in "ab":
        small = [file for file in files if file.folder == f"day={day}" and file.bytes < 50]
        assert len(small) <= max(1, after - 1)
    assert sum(file.rows for file in files) == len(sizes)


def test_no_file_is_joined_when_that_is_turned_off() -> None:
    assert groups([DataFile(f"day=a/{n}.parquet", 1, 1) for n in range(50)], RewritePolicy(100, 0)) == []


def test_rows_of_older_files_get_the_columns_and_types_of_later_ones(tmp_path: Path) -> None:
    first = pa.table(
        {
            "id": pa.array([1, None], pa.int32()),
            "at": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
        }
    )
    later = pa.schema(
        [("id", pa.int64()), ("at", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("tag", pa.string())]
    )
    second = pa.table({"id": [3], "at": [{"x": 2, "y": "b"}], "tag": ["c"]}, schema=later)
    pq.write_table(first, tmp_path / "1.parquet")
    pq.write_table(second, tmp_path / "2.parquet")
    assert join([tmp_path / "1.parquet", tmp_path / "2.parquet"], later, tmp_path / "out" / "3.parquet") == 3
    assert pq.read_table(tmp_path / "out" / "3.parquet").to_pylist() == [
        {"id": 1, "at": {"x": 1, "y": None}, "tag": None},
        {"id": None, "at": None, "tag": None},
        {"id": 3, "at": {"x": 2, "y": "b"}, "tag": "c"},
    ]
