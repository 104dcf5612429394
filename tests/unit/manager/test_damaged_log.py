"""A log of activity in which a record has rotted: nothing is guessed, and a repair lets the manager go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import BadJournalFile, EventChannelNotFound
from heliograph.journal.tools.repair import repair
from heliograph.testing import Rig
from heliograph.testing import rig as opened_rig
from tests.unit.journal.helpers import ports

if TYPE_CHECKING:
    from heliograph.sim import SimDisk

WING = "project.wing"
LOG = "channels/_helio.activity"


class Drawing(hg.Event, name="drawing"):
    number: int


def rotted(nth: int) -> SimDisk:
    """What a station has left that created a channel (0), had bert (1) and carl (2) join, carl leave (3),
    and suspended it (4), with one record damaged.
    """
    rig = Rig()
    manager = rig.station.manager
    manager.create(WING, Drawing, owner="anna", access="supply")
    manager.join(WING, "bert")
    manager.join(WING, "carl")
    manager.leave(WING, "carl")
    manager.suspend(WING, by="anna")
    rig.station.close()
    disk = rig.disk
    (head,) = disk.list(f"{partition(disk)}/heads")
    name = f"{partition(disk)}/heads/{head}"
    data, at = disk.read(name), -1
    for _ in range(nth + 1):
        at = data.index(WING.encode(), at + 1)
    disk.flip(name, at, 0)
    return disk


def partition(disk: SimDisk) -> str:
    (name,) = (name for name in disk.list(LOG) if name.endswith("/"))
    return f"{LOG}/{name.rstrip('/')}"


def test_a_damaged_record_is_refused_with_what_to_do() -> None:
    with opened_rig(disk=rotted(3), seed=1) as rig:
        for _ in range(2):
            with pytest.raises(BadJournalFile, match=r"offsets 3 to 3 are damaged .* `helio journal repair"):
                rig.station.manager  # noqa: B018 - it is asked for


@pytest.mark.parametrize(
    ("nth", "members", "suspended"),
    [(2, ["anna", "bert"], True), (3, ["anna", "bert", "carl"], True), (4, ["anna", "bert"], False)],
)
def test_after_a_repair_the_manager_is_what_the_records_that_are_left_say(
    nth: int, members: list[str], caplog: pytest.LogCaptureFixture, *, suspended: bool
) -> None:
    disk = rotted(nth)
    Rig(disk=disk, seed=1).station.close()
    repair(ports(disk), partition(disk))
    with opened_rig(disk=disk, seed=2) as rig:
        manager = rig.station.manager
        assert f"_helio.activity lacks records at offsets {nth} to {nth}" in caplog.text
        found = manager.find_managed(WING)
        assert (found.owner, sorted(found.members), found.suspended) == ("anna", members, suspended)
        manager.find(WING, Drawing)
        assert manager.join(WING, "dora").membership.number == 6, "the lost one's number is not given again"


def test_a_channel_whose_creation_is_lost_is_not_the_managers_any_more() -> None:
    disk = rotted(0)
    Rig(disk=disk, seed=1).station.close()
    repair(ports(disk), partition(disk))
    with opened_rig(disk=disk, seed=2) as rig:
        with pytest.raises(EventChannelNotFound):
            rig.station.manager.find(WING)
        assert rig.station.channel(WING, Drawing).push(Drawing(1)), "what it holds is there"
