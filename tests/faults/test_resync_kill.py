"""Suppliers and receivers are killed, singly and together: receivers end with the state of the suppliers."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.e2e.link_programs import Program
from tests.e2e.link_support import own_meeting_folder
from tests.support import EXAMPLES_FACTOR

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 200
ROUNDS = 20
MODULE = "tests.faults.resync_process"


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def supplier(life: int, kind: str) -> Program:
    program = Program("supply", str(life), str(KEYS), kind, module=MODULE)
    program.says("offers")
    return program


def push(program: Program, rounds: int) -> None:
    assert program.process.stdin is not None
    program.process.stdin.write(f"{rounds}\n")
    program.process.stdin.flush()


@pytest.mark.parametrize("kind", ["latest", "function"])
def test_receivers_converge_whoever_is_killed(kind: str) -> None:
    chance = Random(kind)
    with ExitStack() as stack:

        def started(program: Program) -> Program:
            stack.callback(program.clean_up)
            return program

        life = 1
        supplying = started(supplier(life, kind))
        receiving = started(Program("receive", str(KEYS), module=MODULE))
        staying = started(Program("receive", str(KEYS), module=MODULE))
        for turn in range(3 * EXAMPLES_FACTOR):
            victims = ("supplier", "receiver", "both")[chance.randrange(3) if turn > 2 else turn]
            push(supplying, ROUNDS)
            if victims != "receiver":
                supplying.kill()  # while it pushes
                life += 1
            if victims != "supplier":
                receiving.kill()
                receiving = started(Program("receive", str(KEYS), module=MODULE))
            if victims != "receiver":
                supplying = started(supplier(life, kind))
                push(supplying, ROUNDS)
            supplying.says(f"pushed {life} {ROUNDS}")
            for one in (receiving, staying):
                assert one.says(f"all {life} {ROUNDS}").endswith("same")
