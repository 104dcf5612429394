"""Parquet copies of heads: all rows once, made once, and not where something is wrong or too large."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import heliograph as hg
from heliograph.journal.format.folder import StationFolder
from heliograph.journal.writing.segment_writer import segment_file
from heliograph.spark.source import head_copies as module
from heliograph.spark.source.head_copies import PREFIX, Copy, HeadCopies, head_copies, sweep
from heliograph.spark.source.plan import plan_read
from tests.unit.spark.histories import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Keeper]:
    """Offsets 0 to 9 sealed, 10 to 29 in a head."""
    with Keeper(tmp_path / "data") as keeper:
        for n in range(10):
            keeper.push(Track(n))
        keeper.seal()
        for n in range(10, 30):
            keeper.push(Track(n))
        yield keeper


def copied(copies: HeadCopies, folder: Path, first: int, end: int) -> list[Copy]:
    station = StationFolder(folder)
    with station.reader("air.tracks", "p1") as reader:
        return copies.files(reader, station.path, reader.manifest.heads[-1], first, end)


def ids(copy: Copy) -> list[int]:
    found: list[int] = pq.read_table(copy.path, columns=["id"]).column("id").to_pylist()
    return found


def test_a_copy_has_the_rows_of_the_head_and_is_made_once(kept: Keeper, tmp_path: Path) -> None:
    copies = HeadCopies(str(tmp_path))
    (first,) = copied(copies, tmp_path / "data", 10, 30)
    assert (first.first, first.next, ids(first)) == (10, 30, list(range(10, 30)))
    assert copied(copies, tmp_path / "data", 10, 30) == [first]
    assert copied(copies, tmp_path / "data", 15, 20) == [first]


def test_what_was_appended_since_is_added_and_few_rows_are_made_one_copy(
    kept: Keeper, tmp_path: Path
) -> None:
    copies = HeadCopies(str(tmp_path))
    (large,) = copied(copies, tmp_path / "data", 10, 30)
    for n in range(30, 36):
        kept.push(Track(n))
    both = copied(copies, tmp_path / "data", 10, 33)
    assert both[0] == large
    assert ids(both[1]) == [30, 31, 32]
    later = copied(copies, tmp_path / "data", 10, 36)
    assert [(copy.first, copy.next) for copy in later] == [(10, 30), (30, 36)]
    assert ids(both[1]) == [30, 31, 32]  # a frame may still be computed from it


def test_an_earlier_start_copies_the_rows_before(kept: Keeper, tmp_path: Path) -> None:
    copies = HeadCopies(str(tmp_path))
    assert ids(copied(copies, tmp_path / "data", 20, 30)[0]) == list(range(20, 30))
    (whole,) = copied(copies, tmp_path / "data", 12, 30)
    assert ids(whole) == list(range(12, 30))


def pushed(folder: Path, numbers: range, snapshot: Path | None = None, then: range = range(0)) -> None:
    """Keep tracks with these numbers; the folder is copied before `then` while it is being written."""
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(n) for n in numbers])
        if snapshot is not None:
            shutil.copytree(folder, snapshot)
        tracks.push_many([Track(n) for n in then])


def planned_ids(folder: Path, copies: HeadCopies) -> list[int]:
    plan = plan_read(folder, "air.tracks", None, None, fail_on_data_loss=True, copies=copies)
    assert plan.slices == ()
    found: list[int] = []
    for file in plan.files:
        rows = pq.read_table(file.path, columns=["_offset", "id"]).to_pylist()
        found += [row["id"] for row in rows if file.first <= row["_offset"] < file.next]
    return found


@pytest.mark.parametrize("while_written", [False, True])
def test_copies_of_a_history_are_not_read_once_an_older_copy_of_it_was_put_back(
    *, while_written: bool, tmp_path: Path
) -> None:
    folder, snapshot = tmp_path / "data", tmp_path / "snapshot"
    folder.mkdir()
    copies = HeadCopies(str(tmp_path))
    if while_written:
        pushed(folder, range(50), snapshot, range(1000, 1050))
    else:
        pushed(folder, range(50))
        shutil.copytree(folder, snapshot)
        pushed(folder, range(1000, 1050))
    assert planned_ids(folder, copies) == [*range(50), *range(1000, 1050)]
    for path in folder.iterdir():  # in place: the station's folder stays the same one
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(snapshot, folder, dirs_exist_ok=True)
    assert planned_ids(folder, copies) == [*range(50)]
    pushed(folder, range(2000, 2050))
    assert planned_ids(folder, copies) == [*range(50), *range(2000, 2050)]


def test_no_copy_is_made_that_would_not_fit_and_those_that_are_there_still_serve(
    kept: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(*args: Any) -> Any:
        data, facts = segment_file(*args)
        made.append(len(data))
        return data, facts

    monkeypatch.setattr(module, "segment_file", counted)
    (first,) = copied(HeadCopies(str(tmp_path)), tmp_path / "data", 10, 30)
    copies = HeadCopies(str(tmp_path), most_bytes=made[0] + 50)
    (first,) = copied(copies, tmp_path / "data", 10, 30)
    made.clear()
    for n in range(30, 40):
        kept.push(Track(n))
        assert copied(copies, tmp_path / "data", 10, n + 1) == [first]
    assert len(made) <= 1  # by which it was seen that nothing fits any more
    plan = plan_read(tmp_path / "data", "air.tracks", None, None, fail_on_data_loss=True, copies=copies)
    assert [(file.first, file.next) for file in plan.files] == [(0, 10), (10, 30)]
    assert [(part.first, part.next) for part in plan.slices] == [(30, 40)]


@pytest.mark.parametrize("limits", [{"most_events": 19}, {"most_bytes": 100}])
def test_what_exceeds_a_limit_is_left_to_tasks(kept: Keeper, tmp_path: Path, limits: dict[str, int]) -> None:
    copies = HeadCopies(str(tmp_path), **limits)
    assert copied(copies, tmp_path / "data", 10, 30) == []
    planned = plan_read(tmp_path / "data", "air.tracks", None, None, fail_on_data_loss=True, copies=copies)
    assert [(part.first, part.next) for part in planned.slices] == [(10, 30)]


def test_a_plan_with_copies_leaves_nothing_to_python(kept: Keeper, tmp_path: Path) -> None:
    copies = HeadCopies(str(tmp_path))
    for start, until in ((None, None), (3, 25), (12, 13), (29, None)):
        planned = plan_read(
            tmp_path / "data", "air.tracks", start, until, fail_on_data_loss=True, copies=copies
        )
        assert planned.slices == ()
        found = [(file.first, file.next) for file in planned.files]
        assert found[0][0] == (start or 0)
        assert found[-1][1] == (30 if until is None else until)
        assert all(a[1] == b[0] for a, b in pairwise(found))
        assert all(file.only_events for file in planned.files)


def test_a_damaged_head_is_not_copied(kept: Keeper, tmp_path: Path) -> None:
    (log,) = [path for path in (kept.place / "heads").iterdir() if path.stat().st_size > 200][-1:]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(bytes(data))
    assert copied(HeadCopies(str(tmp_path)), tmp_path / "data", 10, 30) == []


def test_copies_end_with_the_process_and_what_a_killed_one_left_is_swept(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal\n"
        "from heliograph.spark.source.head_copies import head_copies\n"
        "print(head_copies(sys.argv[1])._own_folder(), flush=True)\n"
        "if sys.argv[2] == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for how in ("end", "kill"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), how],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.startswith(str(tmp_path))
        assert [path.name.startswith(PREFIX) for path in tmp_path.iterdir()] == (
            [True] if how == "kill" else []
        )
    used = tmp_path / f"{PREFIX}used"
    used.mkdir()
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    sweep(str(tmp_path))
    assert list(tmp_path.iterdir()) == [used]
    os.close(descriptor)


def test_a_process_has_one_set_of_copies_per_folder(tmp_path: Path) -> None:
    assert head_copies() is head_copies()
    assert head_copies(str(tmp_path)) is not head_copies()
