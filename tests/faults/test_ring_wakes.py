"""Two processes that fall asleep and wake each other in turn: no wake-up may be lost.

CI takes 10,000 sleeps, `make wakes` 10 million. A sleeper looks again after five seconds; when it then finds
something for which nobody rang, a wake-up was lost, and is counted. (After a tenth of a second, as sleepers
look otherwise, the bell of a writer that the kernel has stopped just before ringing would count too.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.faults.ring_process import LATEST_BELL, ring_of
from tests.ring_support import LIMIT, PORTS, folder_for_a_test, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.ring import RingFolder, RingReader, RingWriter

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ask_until(questions: RingWriter, answers: RingReader, sleeps: int) -> int:
    """Ask, and sleep until the answer is there, until there were so many sleeps; returns the round trips."""
    rounds = 0
    while answers.stats().sleeps < sleeps:
        question = rounds.to_bytes(8, "little")
        questions.append(question)
        assert answers.read(LIMIT) == question
        rounds += 1
    return rounds


def test_no_wake_up_is_lost_in_ten_thousand_sleeps(
    folder: RingFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "tests.faults.ring_process", "echo", folder.path.name, str(cores[-1])]
    with (
        pinned_to(cores[0]),
        folder.create(1, 0, PORTS, slots=1024, wait="block") as questions,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
        ring_of(folder, 2, reliable=True, look_every=LATEST_BELL) as answers,
    ):
        assert other.stdout is not None
        while not questions.stats().readers:
            answers.read(0.01)
        rounds = ask_until(questions, answers, examples(10_000) // 2)
        questions.close()
        others_sleeps, others_by_timeout = map(int, other.stdout.readline().split())
        own = answers.stats()
    sleeps, by_timeout = own.sleeps + others_sleeps, own.woken_by_timeout + others_by_timeout
    with capsys.disabled():
        print(f"\n{rounds:,} round trips, {sleeps:,} sleeps, {by_timeout} lost (woken by time-out)")
    assert by_timeout == 0
