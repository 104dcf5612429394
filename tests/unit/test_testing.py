"""The rig for users' own tests."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.testing import Rig


class Beat(hg.Event, key="n"):
    n: int


def test_settle_returns_when_every_callback_has_been_called(helio: Rig) -> None:
    beats = helio.station.channel("beats", Beat)
    seen: list[int] = []
    beats.subscribe(lambda beat: seen.append(beat.n))
    beats.push_many([Beat(n) for n in range(1000)])
    helio.settle()
    assert seen == list(range(1000))


def test_settle_waits_for_what_callbacks_push(helio: Rig) -> None:
    late = helio.station.channel("a.late", Beat)
    early = helio.station.channel("b.early", Beat)
    seen: list[int] = []
    late.subscribe(lambda beat: seen.append(beat.n))
    early.subscribe(lambda beat: late.push(Beat(beat.n + 1)))
    for n in range(20):
        early.push(Beat(n))
    helio.settle()
    assert seen == list(range(1, 21))


def test_settle_waits_for_matches_of_what_channels_have_just_delivered(helio: Rig) -> None:
    beats = helio.station.channel("beats", Beat)
    found: list[int] = []
    both = hg.all_of(a=beats.where("n = 1"), b=beats.where("n = 2"))

    def slow(match: Any) -> None:
        threading.Event().wait(0.02)
        found.append(match.b.n)

    helio.station.subscribe(both, slow)
    for rounds in range(1, 11):
        beats.push(Beat(1))
        beats.push(Beat(2))
        helio.settle()
        assert len(found) == rounds


def test_settle_says_who_never_ends(helio: Rig) -> None:
    never = threading.Event()
    beats = helio.station.channel("beats", Beat)
    beats.subscribe(lambda _: never.wait())
    beats.push(Beat(1))
    with pytest.raises(AssertionError, match="beats still delivers"):
        helio.settle(timeout=0.05)
    never.set()


def test_time_stands_still_until_it_jumps(helio: Rig) -> None:
    beats = helio.station.channel("beats", Beat, qos=hg.QoS(lifespan=60.0))
    consumer = beats.consumer()
    beats.push(Beat(1))
    helio.clock.advance(59)
    assert consumer.pull(timeout=0.0) == Beat(1)
    beats.push(Beat(2))
    helio.clock.advance(61)
    assert consumer.pull(timeout=0.0) is None
    assert beats.stats().total.expired == 1
    with pytest.raises(ValueError, match="forwards"):
        helio.clock.advance(-1)


def test_headers_carry_the_rigs_time(helio: Rig) -> None:
    beats = helio.station.channel("beats", Beat)
    consumer = beats.consumer()
    helio.clock.set_wall(1_000.0)
    beats.push(Beat(1))
    assert next(consumer.deliveries()).header.source_ts == 1_000_000_000_000


def test_persistent_channels_work_in_memory(helio: Rig) -> None:
    beats = helio.station.channel("beats", Beat, qos=hg.QoS(durability="persistent"))
    beats.push_many([Beat(1), Beat(2)])
    assert list(beats.consumer(until="now")) == [Beat(1), Beat(2)]


RAISING = """
import heliograph as hg


class Beat(hg.Event, name="raising.beat"):
    n: int


def fails(_):
    raise ValueError("no such beat")


def test_one_that_nobody_looked_at(helio):
    beats = helio.station.channel("beats", Beat)
    beats.subscribe(fails, name="listener")
    beats.push(Beat(1))


def test_one_that_was_expected(helio):
    beats = helio.station.channel("beats", Beat)
    beats.subscribe(fails, name="listener")
    beats.push(Beat(1))
    helio.settle()
    assert [(name, str(error)) for name, error in helio.errors] == [("listener", "no such beat")]
    helio.errors.clear()
"""


def test_the_fixture_fails_a_test_whose_callback_raised(tmp_path: Path) -> None:
    (tmp_path / "test_raising.py").write_text(RAISING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        ".",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "listener raised ValueError('no such beat')" in done.stdout
    assert "2 passed, 1 error" in done.stdout
