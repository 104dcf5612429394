"""What goes wrong outside of any call is told, and ends nothing else."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.channel.receive import acking_subscription
from heliograph.runtime import error_reporting
from heliograph.runtime.error_reporting import ErrorReports, reporter, run_all
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import wait_until
from tests.support import ScarceTasks

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


def test_who_reports_goes_on_though_the_one_who_is_told_does_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returns, told = threading.Event(), list[str]()
    is_all_told = threading.Event()

    def hangs(receiver: str, *_: object) -> None:
        told.append(receiver)
        assert returns.wait(20.0)
        if receiver == "third":
            is_all_told.set()

    reports = ErrorReports(system_ports().tasks, hangs)
    monkeypatch.setattr("heliograph.runtime.error_reporting.REPORT_LIMIT", 0.01)
    for receiver in ("first", "second", "third"):
        reports.tell(receiver, None, ValueError(receiver))
    assert "second" not in told
    returns.set()
    assert is_all_told.wait(20.0)
    assert told == ["first", "second", "third"]


def test_who_reports_waits_for_one_who_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.runtime.error_reporting.REPORT_LIMIT", 20.0)
    told: list[str] = []
    reports = ErrorReports(system_ports().tasks, lambda receiver, *_: told.append(receiver))
    for n in range(100):
        reports.tell(str(n), None, ValueError(n))
        assert len(told) == n + 1


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
        assert wait_until(lambda: set(got) == set(range(6)))  # `settle` waits for no group that acknowledges


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


def test_what_is_reported_while_no_thread_is_left_is_told_when_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_reporting, "REPORT_LIMIT", 0.01)
    told: list[str] = []
    tasks = ScarceTasks()
    tasks.prepare()
    reports = ErrorReports(tasks, lambda receiver, *_: told.append(receiver))
    tasks.left = 0
    reports.tell("first", None, ValueError("first"))
    reports.post("second", None, ValueError("second"))
    assert not told
    tasks.left = 1
    assert wait_until(lambda: told == ["first", "second"])


def test_who_raises_for_the_same_event_again_and_again_is_logged_ever_more_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = 0
    with caplog.at_level(logging.ERROR), hg.Station(tmp_path) as station:
        jobs = station.channel("jobs", Job, qos=hg.QoS(durability="persistent"))

        def work(_: Job) -> None:
            nonlocal raised
            raised += 1
            if raised < 20:
                raise ValueError("this job cannot be done")

        monkeypatch.setattr(acking_subscription, "FIRST_DELAY", 0.001)
        monkeypatch.setattr(acking_subscription, "LONGEST_DELAY", 0.002)
        jobs.subscribe(work, name="worker")
        jobs.push(Job(1))
        assert wait_until(lambda: raised == 20)
    lines = [record.getMessage() for record in caplog.records if "raised" in record.getMessage()]
    assert [line.split(" for event")[0] for line in lines] == [
        "worker raised",
        *(f"worker raised {times} times" for times in (2, 4, 8, 16)),
    ]
    assert caplog.text.count("Traceback") == 1
