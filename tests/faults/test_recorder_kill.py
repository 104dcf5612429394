"""A flight recorder that is killed in a cut-out: what it leaves is a beginning, and shows as one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import heliograph as hg
from tests.faults.recorder_process import AFTER, Track
from tests.support import examples

PROGRAM = Path(__file__).with_name("recorder_process.py")


def history(folder: Path, channel: str, *types: type[hg.Event]) -> list[Any]:
    with hg.Station(folder) as station:
        opened = station.channel(channel, *types)
        with opened.consumer(start="earliest", until="now") as consumer:
            return [(one.event, dict(one.header.headers or {})) for one in consumer.deliveries()]


def run(folder: Path, first: int, numbers: int, *, kill: bool) -> int:
    """Let it push so many numbers; returns the last that it has said."""
    last = first
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line)
            if last == first + numbers:
                break
        if kill:
            process.kill()
        else:
            process.stdin.write("\n")
            process.stdin.flush()
        for line in process.stdout:
            if line.endswith("\n"):
                last = int(line)
        process.wait(60.0)
    assert kill or process.returncode == 0
    return last


def test_a_recorder_that_is_killed_in_a_cut_out_leaves_its_beginning_once(tmp_path: Path) -> None:
    first = 0
    for turn in range(examples(2)):
        last = run(tmp_path / "data", first, AFTER + 100 + turn, kill=True)
        found = [
            event.id for event, _ in history(tmp_path / "data", "kept.tracks", Track) if event.id >= first
        ]
        assert found == list(range(first, first + len(found)))
        assert len(found) <= last - first + 2  # one may be pushed that it could not say
        first = last + 1_000
    last = run(tmp_path / "data", first, AFTER + 100, kill=False)
    kept = history(tmp_path / "data", "kept.tracks", Track)
    found = [event.id for event, _ in kept if event.id >= first]
    assert found == list(range(first, last + 1))  # it was closed, and had all
    cuts = [cut for cut, _ in history(tmp_path / "data", "kept.tracks.cuts", hg.CutOut)]
    ended = [cut for cut in cuts if cut.state == "ended"]
    assert [(cut.events, cut.missing) for cut in ended] == [(len(found), 0)]
    assert {headers["cut"] for event, headers in kept if event.id >= first} == {str(ended[0].cut)}
    begun = {cut.cut for cut in cuts if cut.state == "begun"}
    assert begun >= {int(headers["cut"]) for _, headers in kept} - {ended[0].cut}
