"""A table of sealed files is whole wherever the process that registers them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from heliograph.runtime.fault_points import LINK_POINTS, VARIABLE
from tests.unit.spark.histories import Keeper
from tests.unit.spark.jobs.test_register import column, links, register, sealed, track

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
from heliograph.spark import jobs
jobs.register(sys.argv[1], "air.tracks", sys.argv[2], format=sys.argv[3], grace=0)
"""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_the_history_of_before_or_of_now_wherever_its_writer_was_killed(
    kind: str, tmp_path: Path
) -> None:
    with Keeper(tmp_path / "data") as keeper:
        keeper.writer._keeper._rewriter = None
        sealed(keeper, track(0))
        sealed(keeper, track(1))
        register(tmp_path, kind)
        partition = keeper.writer._partition
        partition.limits = replace(partition.limits, grace_seconds=0.0)
        whole = partition.limits
        for at, point in enumerate((*LINK_POINTS, "table-linked:2"), 1):
            before = column(tmp_path, kind)
            partition.limits = replace(whole, keep_bytes=0)
            keeper.writer.retain()  # the files of before are gone
            partition.limits = whole
            sealed(keeper, track(2 * at))
            sealed(keeper, track(2 * at + 1))
            assert run(tmp_path, kind, point) == -signal.SIGKILL, point
            now = [2 * at, 2 * at + 1]
            assert column(tmp_path, kind) == (before if point.startswith("table-linked") else now), point
            assert register(tmp_path, kind, grace=0).files == 2
            assert column(tmp_path, kind) == now, point
            assert len(links(tmp_path, kind)) == 2, point


def run(tmp_path: Path, kind: str, fault: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), str(tmp_path / kind), kind],
        env=os.environ | {VARIABLE: fault},
        timeout=120,
    ).returncode
