"""A whole Spark application killed in mid-commit, and a task of it in mid-batch: each row is there once.

`faults/test_sink_kill.py` does the same at every point without Java, many times; this takes two whole lives
of Spark and is left to `make proof`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import heliograph as hg
from heliograph.runtime.fault_points import VARIABLE
from tests.e2e.link_support import wait_until
from tests.spark.totals import Total
from tests.support import examples

DRIVER = Path(__file__).parent / "programs" / "sink.py"
LIMIT = 240.0
EVENTS = 150


class Track(hg.Event, name="air.track", key="id"):
    id: int


def start(folder: Path, fault: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, VARIABLE: fault, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), str(folder / "data"), str(folder / "checkpoint")]
    return subprocess.Popen(command, env=env, start_new_session=True, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(examples(1) == 1, reason="`make proof` kills whole applications")
@pytest.mark.timeout(600)
def test_a_killed_application_goes_on_and_writes_each_row_once(tmp_path: Path) -> None:
    persistent = hg.QoS(durability="persistent")
    got: list[int] = []
    with hg.Station(tmp_path / "data") as station:
        station.channel("tracks", Track, qos=persistent).push_many([Track(n) for n in range(EVENTS)])
        totals = station.channel("totals", Total, qos=persistent)
        totals.push(Total(-1, "so that the format is known"))
        totals.subscribe(lambda event: got.append(event.id), start="earliest")

        token, told = tmp_path / "token", tmp_path / "token.pid"
        token.touch()
        first = start(tmp_path, f"stop:after-manifest@{token}")
        assert wait_until(lambda: told.exists() or first.poll() is not None, LIMIT)
        assert first.poll() is None
        os.killpg(first.pid, signal.SIGKILL)  # the driver and its Java
        committing = int(told.read_text())  # in a group of its own, and stopped; the others end by themselves
        os.kill(committing, signal.SIGKILL)
        first.wait(LIMIT)
        assert 1 < len(got) < EVENTS or wait_until(lambda: len(got) > 1)

        token.touch()
        second = start(tmp_path, f"after-staging@{token}")  # a task dies once its rows are staged
        assert second.wait(LIMIT) == 0
        assert not token.exists()
        assert wait_until(lambda: len(got) > EVENTS)
        with totals.consumer(start="earliest", until="now") as consumer:
            kept = [(d.event, d.header.supplier, d.header.sequence) for d in consumer.deliveries()]
    assert sorted(got) == [-1, *range(EVENTS)]
    written = kept[1:]
    assert sorted(event.id for event, *_ in written) == list(range(EVENTS))
    assert all(event == Total(event.id, f"n{event.id}", event.id / 2) for event, *_ in written)
    assert [(supplier, sequence) for _, supplier, sequence in written] == [
        ("totals", n) for n in range(1, EVENTS + 1)
    ]
    assert list((tmp_path / "data" / "inbox").rglob("*.rows")) == []
