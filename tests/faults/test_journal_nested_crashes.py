"""Power loss inside of recovery, and inside of the recovery from that, three deep; likewise in a repair."""

from __future__ import annotations

import itertools
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from heliograph.errors import BadJournalFile, NoSuchFile
from heliograph.journal.tools.inspection import verify
from heliograph.journal.tools.repair import repair
from heliograph.sim import PowerCut, PowerLoss, SimDisk
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, chunk, commit, history, partition, ports, tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACKED = 6
DEPTH = 3


def torn() -> SimDisk:
    """A writer died with rows that were written and not synced, and the next one in mid-append."""
    disk = SimDisk()
    writer = partition(disk)
    for n in range(3):
        commit(writer, tracks(2 * n, 2))
    writer.write([chunk(tracks(6, 2))])
    assert writer._head is not None
    with disk.open(writer._head.file.name) as file:
        file.append(b"HgFr torn")
    return disk.kill()


def cut(disk: SimDisk, at: int, act: Callable[[SimDisk], object]) -> SimDisk | None:
    """The disk after the power went at an operation of `act`; None when `act` has fewer."""
    running = SimDisk(disk.medium, seed=at, faults=[PowerCut("any", at=at)])
    try:
        act(running)
    except PowerLoss:
        return running.crash("random")
    return None


def operations(disk: Callable[[], SimDisk], act: Callable[[SimDisk], object]) -> int:
    there = SimDisk(disk().medium)
    act(there)
    return there.calls


def every_way(points: int) -> Iterator[tuple[int, ...]]:
    """Where the power goes: every operation once, then every pair and some of the triples by chance."""
    yield from ((at,) for at in range(1, points + 1))
    deeper = [*itertools.product(range(1, points + 1), repeat=2)]
    chance = Random(2026)
    yield from chance.sample(deeper, min(len(deeper), examples(60)))
    triples = [tuple(chance.randint(1, points) for _ in range(DEPTH)) for _ in range(examples(120))]
    yield from triples


def test_a_crash_inside_of_recovery_three_deep_loses_nothing_acknowledged() -> None:
    def recover(disk: SimDisk) -> None:
        partition(disk)._lock.release()

    deepest = 0
    for points in every_way(operations(torn, recover)):
        disk = torn()
        for depth, at in enumerate(points, 1):
            after = cut(disk, at, recover)
            if after is None:
                break
            disk, deepest = after, max(deepest, depth)
        writer = partition(disk.kill())
        assert writer.recovery.damage == (), points
        found = history(writer._disk)
        assert found in (tracks(0, ACKED), tracks(0, ACKED + 2)), points
        assert commit(writer, tracks(20, 1)) == len(found)
    assert deepest == DEPTH


def damaged() -> SimDisk:
    """A closed head with a bad frame in it, a manifest that is gone, and an open head."""
    disk = SimDisk()
    writer = partition(disk)
    for n in range(3):
        commit(writer, tracks(2 * n, 2))
    assert writer._head is not None
    name = writer._head.file.name
    writer.rotate()
    commit(writer, tracks(6, 2))
    disk = disk.kill()
    at = disk.read(name).index(b"HgFr", 70)
    disk.flip(name, at + 70, 1)
    disk.remove(f"{FOLDER}/manifest")
    disk.sync_folder(FOLDER)
    return disk


def test_a_crash_inside_of_a_repair_three_deep_loses_nothing_that_could_be_read() -> None:
    def coerce_event(disk: SimDisk) -> None:
        with suppress(BadJournalFile, NoSuchFile):
            repair(ports(disk), FOLDER)

    points_of_one = operations(damaged, coerce_event)
    deepest = 0
    for points in every_way(points_of_one):
        disk = damaged()
        for depth, at in enumerate(points, 1):
            after = cut(disk, at, coerce_event)
            if after is None:
                break
            disk, deepest = after, max(deepest, depth)
        disk = disk.kill()
        repair(ports(disk), FOLDER)
        report = verify(disk, FOLDER)
        assert report.sound, points
        assert [(lost.first, lost.next) for lost in report.lost] == [(2, 4)], points
        assert history(disk, 4) == tracks(4, 4), points
    assert deepest == DEPTH
