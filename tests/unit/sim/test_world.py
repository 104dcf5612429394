"""Simulated processes: their clocks, their chance and their deaths."""

from __future__ import annotations

import pytest

from heliograph.errors import FileLocked, SimulationError
from heliograph.sim import Killed, PowerCut, Process, Simulation

SECOND = 1_000_000_000


def test_processes_share_time_but_not_the_wall_the_disk_or_chance() -> None:
    simulation = Simulation(5)
    north = simulation.process("north", wall_offset_ns=3 * SECOND)
    south = simulation.process("south", wall_drift_ppm=-100)

    def main() -> None:
        simulation.tasks.sleep(1000)

    simulation.run(main)
    assert north.clock.monotonic_ns() == south.clock.monotonic_ns() == simulation.clock.monotonic_ns()
    assert north.clock.time_ns() - simulation.clock.time_ns() == 3 * SECOND
    assert south.clock.time_ns() - simulation.clock.time_ns() == -SECOND // 10
    north.disk.create("a").close()
    assert south.disk.list() == ()
    assert north.random.id64() != south.random.id64()


def test_setting_the_wall_clock_moves_no_deadline() -> None:
    simulation = Simulation(1)

    def main() -> int:
        before = simulation.clock.monotonic_ns()
        wall = simulation.clock.time_ns()
        simulation.clock.set_wall(by_ns=-3600 * SECOND)
        simulation.tasks.sleep(2)
        assert simulation.clock.time_ns() - wall == -3598 * SECOND
        return simulation.clock.monotonic_ns() - before

    assert simulation.run(main) == 2 * SECOND


def test_chance_follows_the_seed() -> None:
    def draw(seed: int) -> tuple[object, ...]:
        chance = Simulation(seed).random
        return chance.id64(), chance.below(10**9), chance.bits(64), chance.uniform(), chance.bytes(8)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def write_for_ever(process: Process, ended: list[str]) -> None:
    lock = process.disk.lock("lock", note="writing")
    try:
        with process.disk.create("log") as file:
            process.disk.sync_folder()
            while True:
                file.append(b"x")
                file.sync()
                process.tasks.sleep(1)
    except Killed:
        ended.append("killed")
        raise
    finally:
        lock.release()


def test_killing_a_process_ends_its_tasks_and_frees_its_locks_but_keeps_what_it_wrote() -> None:
    simulation = Simulation(2)
    ended: list[str] = []

    def main() -> None:
        keeper = simulation.process("keeper")
        task = keeper.tasks.spawn("writer", lambda: write_for_ever(keeper, ended))
        simulation.tasks.sleep(10.5)
        rival = simulation.process("rival", medium=keeper.disk.medium)
        with pytest.raises(FileLocked, match="process keeper writing"):
            rival.disk.lock("lock")
        medium = keeper.kill()
        assert ended == ["killed"]
        assert task.join()
        again = simulation.process("keeper", medium=medium)
        assert again.name == "keeper#2"
        with again.disk.lock("lock"):
            assert again.disk.read("log") == b"x" * 11

    simulation.run(main)


def test_a_power_cut_takes_the_whole_process_with_it() -> None:
    for seed in range(20):
        simulation = Simulation(seed)
        ended: list[str] = []

        def main(simulation: Simulation = simulation, ended: list[str] = ended) -> bytes:
            keeper = simulation.process("keeper", faults=[PowerCut("sync", at=4)])
            event = keeper.tasks.event("never")
            writer = keeper.tasks.spawn("writer", lambda: write_for_ever(keeper, ended))
            waiter = keeper.tasks.spawn("waiter", event.wait)
            assert writer.join()
            assert waiter.join()
            return simulation.process("keeper", medium=keeper.crash("random")).disk.read("log")

        assert simulation.run(main) in {b"xxx", b"xxxx"}
        assert ended == ["killed"]


def test_whoever_joins_a_task_hears_of_its_death() -> None:
    simulation = Simulation(1)
    heard: list[bool] = []

    def main() -> None:
        process = simulation.process("brief")
        victim = process.tasks.spawn("victim", lambda: process.tasks.sleep(1000))
        joiner = simulation.tasks.spawn("joiner", lambda: heard.append(victim.join()))
        simulation.tasks.sleep(1)
        process.kill()
        joiner.join()

    before = simulation.clock.monotonic_ns()
    simulation.run(main)
    assert heard == [True]
    assert simulation.clock.monotonic_ns() - before == SECOND


def test_what_goes_wrong_while_a_killed_task_unwinds_is_no_failure() -> None:
    simulation = Simulation(1)

    def clean_up_badly(process: Process) -> None:
        try:
            process.tasks.sleep(1000)
        finally:
            raise LookupError("nothing to clean")

    def main() -> None:
        process = simulation.process("brief")
        task = process.tasks.spawn("worker", lambda: clean_up_badly(process))
        simulation.tasks.sleep(1)
        process.kill()
        assert task.join()

    simulation.run(main)


def test_a_process_can_kill_itself() -> None:
    simulation = Simulation(1)
    reached: list[str] = []

    def main() -> None:
        process = simulation.process("brief")

        def work() -> None:
            process.kill()
            reached.append("never")

        assert process.tasks.spawn("worker", work).join()

    simulation.run(main)
    assert reached == []


def test_killing_the_process_of_main_ends_the_run_with_an_error() -> None:
    simulation = Simulation(1)
    with pytest.raises(SimulationError, match="main task was killed"):
        simulation.run(simulation.first.kill)
