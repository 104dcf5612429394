"""Which lives of a pattern a run over its record still has to look at."""

from __future__ import annotations

from heliograph.spark.patterns.match_task import Life
from heliograph.spark.patterns.recording import going_on

LIVES = (Life("p1", 0, 0, 0), Life("p1", 10, 0, 0), Life("p1", 25, 0, 0), Life("p2", 0, 0, 0))


def test_a_life_counts_until_all_of_its_rows_were_read() -> None:
    assert going_on(LIVES, {"p1": 0, "p2": 0}) == LIVES
    assert going_on(LIVES, {"p1": 9, "p2": 3}) == LIVES
    assert going_on(LIVES, {"p1": 10, "p2": 3}) == LIVES[1:]
    assert going_on(LIVES, {"p1": 25}) == LIVES[2:3]


def test_the_last_life_of_a_partition_may_always_get_more() -> None:
    assert going_on(LIVES, {"p1": 1000}) == LIVES[2:3]
    assert going_on(LIVES, {}) == ()
