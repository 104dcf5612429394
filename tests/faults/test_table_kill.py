"""Every row is in a table once, wherever the process that writes it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from heliograph.runtime.fault_points import TABLE_POINTS, VARIABLE
from tests.faults.table_player import BATCH, TABLES, numbers, state, strangers

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 6 * BATCH
EXPECTED = [(n, n * n if n >= 3 * BATCH else None) for n in range(LIMIT)]
UNREACHED = {("delta", "table-rewritten")}
"""delta-rs joins files in a single call."""
REPLACING = [
    ("table-staged", 1),
    ("table-moving", 1),
    ("table-moving", 2),
    ("table-moved", 1),
    ("table-committed", 1),
]


@pytest.mark.parametrize("kind", TABLES)
def test_rows_are_in_a_table_once_though_its_writer_was_killed_at_every_step(
    kind: str, tmp_path: Path
) -> None:
    table, token = tmp_path / "table", tmp_path / "token"
    for point in TABLE_POINTS:
        if (kind, point) in UNREACHED:
            continue
        token.touch()
        assert play(table, kind, f"{point}@{token}") == -signal.SIGKILL, point
        # What was uncommitted is not seen, and no batch is seen in part once a writer has been there again.
        assert play(table, kind, None, limit=0) == 0
        assert not strangers(table, kind), point
        assert numbers(table, kind) == EXPECTED[: len(numbers(table, kind))], point
    assert play(table, kind, None) == 0
    assert numbers(table, kind) == EXPECTED
    left = sorted(path.name for path in (table / "_heliograph").iterdir())
    assert left == (["lock", "table.json"] if kind == "parquet" else ["lock"])


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_is_replaced_has_the_old_state_or_the_new_one_wherever_its_writer_was_killed(
    kind: str, tmp_path: Path
) -> None:
    table, token = tmp_path / "table", tmp_path / "token"
    assert play(table, kind, None, BATCH, "replace") == 0
    before = BATCH
    for point, passes in REPLACING:
        token.touch()
        fault = f"{point}:{passes}@{token}"
        assert play(table, kind, fault, before + BATCH, "replace") == -signal.SIGKILL, point
        reached, found = state(table, kind)
        assert reached in (before, before + BATCH), point
        assert found == list(range(reached - BATCH, reached)), point
        before = reached
    assert play(table, kind, None, LIMIT + BATCH, "replace") == 0
    assert state(table, kind) == (LIMIT + BATCH, list(range(LIMIT, LIMIT + BATCH)))


def play(table: Path, kind: str, fault: str | None, limit: int = LIMIT, *how: str) -> int:
    arguments = [sys.executable, "-m", "tests.faults.table_player", str(table), kind, str(limit), *how]
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    return subprocess.run(
        arguments, env=environment | ({} if fault is None else {VARIABLE: fault}), timeout=120
    ).returncode
