"""What the contracts of `Clock` and `Random` promise, on the machine and in simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.runtime.ports import seconds_until
from tests.conformance.ports_contract import WORLDS, World, make_world

if TYPE_CHECKING:
    from pathlib import Path

YEAR_2026_NS = 1_767_225_600_000_000_000


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return make_world(request.param, tmp_path)


def test_the_monotonic_clock_never_goes_back_and_moves_while_somebody_sleeps(world: World) -> None:
    def story() -> list[int]:
        readings = [world.clock.monotonic_ns() for _ in range(100)]
        world.tasks.sleep(0.002)
        return [*readings, world.clock.monotonic_ns()]

    readings = world.run(story)
    assert readings == sorted(readings)
    assert readings[-1] - readings[-2] >= 2_000_000


def test_the_wall_clock_counts_nanoseconds_since_1970(world: World) -> None:
    assert YEAR_2026_NS - 86_400 * 10**9 < world.clock.time_ns() < YEAR_2026_NS * 2


def test_a_deadline_becomes_a_time_out(world: World) -> None:
    now = world.clock.monotonic_ns()
    deadline = now + 100 * 10**9
    left = seconds_until(world.clock, deadline)
    assert (deadline - world.clock.monotonic_ns()) / 1e9 <= left <= 100.0
    assert seconds_until(world.clock, now - 1) == 0.0


def test_random_numbers_keep_their_ranges_and_reach_all_of_them(world: World) -> None:
    assert {world.random.below(3) for _ in range(200)} == {0, 1, 2}
    assert {world.random.bits(2) for _ in range(200)} == {0, 1, 2, 3}
    assert all(0.0 <= world.random.uniform() < 1.0 for _ in range(200))
    assert len(world.random.bytes(17)) == 17


def test_ids_are_64_bits_wide_differ_and_are_never_zero(world: World) -> None:
    ids = [world.random.id64() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(0 < i < 2**64 for i in ids)
    assert max(ids) > 2**62
