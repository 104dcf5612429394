"""One call of the disk fails, each in turn: nothing of it happened, here or after a loss of power."""

from __future__ import annotations

import errno
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Literal

import pytest

from heliograph.errors import HeliographError
from heliograph.journal.format.channel_config import read_charter
from heliograph.sim import Fails, SimDisk
from heliograph.testing import Rig
from tests.manager_model import Model, Operation, perform, shown

if TYPE_CHECKING:
    from heliograph.manager import Manager

WING = "project.wing"
ASKED = (
    Operation("created", WING, "anna", "supply", ""),
    Operation("joined", WING, "bert", "consume", ""),
    Operation("suspended", WING, "anna", "", ""),
    Operation("restarted", WING, "anna", "", ""),
    Operation("transferred", WING, "anna", "", "bert"),
    Operation("left", WING, "anna", "", ""),
    Operation("destroyed", WING, "bert", "", ""),
    Operation("created", WING, "carl", "both", ""),
)
AT = range(1, 20)
KEPT: tuple[Literal["none", "all", "random"], ...] = ("none", "all", "random")
"""What of the changes that were not synced is left of a loss of power."""


def opened(rig: Rig) -> Manager:
    """Tried again, as everything here."""
    with suppress(HeliographError):
        return rig.station.manager
    return rig.station.manager


def play(manager: Manager) -> tuple[Model, int]:
    """What was acknowledged, and how often something failed; each thing is asked for twice if need be."""
    model, failed = Model(), 0
    for asked in ASKED:
        for _ in range(2):
            try:
                perform(manager, asked)
            except HeliographError:
                failed += 1
                assert shown(manager.channels()) == model.shown(), "what failed has changed something"
            else:
                model.do(asked)
                break
        assert shown(manager.channels()) == model.shown()
    return model, failed


@pytest.mark.parametrize("operation", ["append", "sync", "create", "rename", "sync_folder"])
def test_whatever_fails_is_as_if_it_had_not_been_asked_for(operation: str) -> None:
    struck = 0
    for at in AT:
        fault = Fails(operation, at=at, error=errno.ENOSPC, partial=at % 3 * 10)
        with ExitStack() as stack:
            try:
                rig = Rig(disk=SimDisk(faults=[fault]))
            except HeliographError:
                continue  # it was the station that could not be opened
            model, failed = play(opened(rig))
            later = Rig(disk=rig.disk.crash(KEPT[at % 3]), seed=1)
            stack.callback(later.station.close)
            assert shown(later.station.manager.channels()) == model.shown(), fault
            assert model.owner == {WING: "carl"}, "what failed once came about when it was asked for again"
            struck += failed
    assert struck, "none of them has hit anything"


def noted(disk: SimDisk) -> str | None:
    """Who has suspended the channel, for who takes in batches while no station has the folder."""
    return read_charter(disk, WING).suspended


def ask(manager: Manager, asked: Operation) -> int:
    """Until it is acknowledged; how often it was not."""
    try:
        perform(manager, asked)
    except HeliographError:
        perform(manager, asked)
        return 1
    return 0


@pytest.mark.parametrize("operation", ["append", "sync", "create", "rename", "sync_folder"])
def test_a_suspension_is_noted_for_batches_if_and_only_if_it_was_acknowledged(operation: str) -> None:
    struck = 0
    for at in range(1, 30):
        try:
            rig = Rig(disk=SimDisk(faults=[Fails(operation, at=at, error=errno.ENOSPC)]))
        except HeliographError:
            continue
        manager = opened(rig)
        ask(manager, ASKED[0])
        try:
            perform(manager, ASKED[2])
        except HeliographError:
            struck += 1
            assert noted(rig.disk) is None, "what is not suspended takes batches"
            perform(manager, ASKED[2])
        assert noted(rig.disk) == "anna"
        assert noted(rig.disk.crash(KEPT[at % 3])) == "anna", "it was acknowledged, and no station is there"
    assert struck, "none of them has hit anything"


@pytest.mark.parametrize("operation", ["append", "sync", "create", "rename", "sync_folder"])
def test_a_restart_that_was_recorded_has_happened_and_its_note_is_tried_again(operation: str) -> None:
    tried_again = 0
    for at in range(1, 35):
        try:
            rig = Rig(disk=SimDisk(faults=[Fails(operation, at=at, error=errno.ENOSPC)]))
        except HeliographError:
            continue
        manager = opened(rig)
        for asked in (ASKED[0], *ASKED[2:4]):
            ask(manager, asked)
        assert not manager.find_managed(WING).suspended
        tried_again += noted(rig.disk) is not None
        ask(manager, ASKED[1])
        assert noted(rig.disk) is None
        assert noted(rig.disk.crash(KEPT[at % 3])) is None
    # What fails with the folder's name alone has put the note in its place already.
    assert tried_again or operation == "sync_folder"
