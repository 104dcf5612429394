"""What goes wrong outside of any call is told, and ends nothing else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.trouble import reporter, run_all

if TYPE_CHECKING:
    from pathlib import Path


class Job(hg.Event, name="trouble.job"):
    n: int


def raising(*_: object) -> None:
    raise RuntimeError("on_error raises")


def test_what_on_error_raises_is_logged_beside_what_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        reporter(raising)("billing", None, ValueError("the first"))
    assert "the first" in caplog.text
    assert "on_error raises" in caplog.text


def test_every_step_runs_and_the_first_error_is_raised() -> None:
    done: list[str] = []

    def fails(what: str) -> None:
        done.append(what)
        raise ValueError(what)

    with pytest.raises(ValueError, match="one"):
        run_all([lambda: fails("one"), lambda: fails("two"), lambda: done.append("three")])
    assert done == ["one", "two", "three"]


@pytest.mark.parametrize("durability", ["volatile", "persistent"])
@pytest.mark.parametrize("group", [None, "g"])
def test_the_next_event_comes_although_on_error_raises(
    tmp_path: Path, durability: str, group: str | None
) -> None:
    got: list[int] = []

    def on(job: Job) -> None:
        if job.n == 1 and 1 not in got:
            got.append(1)
            raise ValueError(job.n)
        got.append(job.n)

    with hg.Station(tmp_path, on_error=raising) as station:
        jobs = station.channel("jobs", Job, qos=hg.QoS(durability=durability))  # type: ignore[arg-type] # one of two
        jobs.subscribe(on, group=group)
        for n in range(6):
            jobs.push(Job(n))
        assert jobs.settle(10.0)
    assert set(got) == set(range(6))


def test_a_channel_that_cannot_be_closed_does_not_keep_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = hg.Station(tmp_path)
    jobs = station.channel("jobs", Job, qos=hg.QoS(durability="persistent"))
    close = jobs.close

    def fails(timeout: float) -> None:
        close(timeout)
        raise OSError("no")

    monkeypatch.setattr(jobs, "close", fails)
    with pytest.raises(OSError, match="no"):
        station.close()
    hg.Station(tmp_path).close()
