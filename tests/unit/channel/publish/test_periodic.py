"""Suppliers that make an event every period."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph import testing
from heliograph.channel.publish.periodic import Periodic, PeriodicStats
from heliograph.errors import InvalidEvent, NotPossible, TooManyTimers
from heliograph.testing import Rig

if TYPE_CHECKING:
    from heliograph.model.event import Header

LIMIT = 10.0
PERIOD = 0.1
GRID = 100_000_000


class Beat(hg.Event, name="site.beat"):
    number: int


class Numbered:
    """Makes beats with numbers."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Beat:
        self.made += 1
        return Beat(self.made)


def test_a_period_gives_exactly_one_event_in_each_stretch_of_its_length(helio: Rig) -> None:
    beats = helio.station.channel("site.beats", Beat)
    seen: list[Header] = []
    beats.subscribe(lambda _, header: seen.append(header))
    periodic = beats.supplier("roof").every(PERIOD, Numbered())
    for _ in range(50):
        helio.clock.advance(PERIOD)
        helio.settle()
    assert len(seen) == 50
    assert {header.supplier for header in seen} == {"roof"}
    instants = [header.source_ts for header in seen]
    assert [instant % GRID for instant in instants] == [0] * 50
    assert instants == list(range(instants[0], instants[0] + 50 * GRID, GRID))
    assert periodic.stats() == PeriodicStats(pushed=50, empty=0, failed=0, skipped=0)


def test_instants_that_were_missed_are_skipped_and_counted(helio: Rig) -> None:
    beats = helio.station.channel("site.beats", Beat)
    seen: list[int] = []
    beats.subscribe(lambda _, header: seen.append(header.source_ts))
    periodic = beats.supplier().every(PERIOD, Numbered())
    helio.clock.advance(PERIOD)
    helio.settle()
    helio.clock.advance(10 * PERIOD)  # as if nothing had run meanwhile
    helio.settle()
    helio.clock.advance(PERIOD)
    helio.settle()
    assert [later - seen[0] for later in seen] == [0, 10 * GRID, 11 * GRID]
    assert periodic.stats().skipped == 9


def test_a_slow_maker_skips_and_never_runs_twice_at_a_time(helio: Rig) -> None:
    beats = helio.station.channel("site.beats", Beat)
    entered, go_on = threading.Semaphore(0), threading.Semaphore(0)
    made = Numbered()

    def slow() -> Beat:
        entered.release()
        go_on.acquire(timeout=LIMIT)
        return made()

    periodic = beats.supplier().every(PERIOD, slow)
    helio.clock.advance(PERIOD)
    assert entered.acquire(timeout=LIMIT)
    for _ in range(5):
        helio.clock.advance(PERIOD)
    go_on.release()
    go_on.release()
    helio.settle()
    assert (made.made, periodic.stats().pushed, periodic.stats().skipped) == (2, 2, 4)


def test_the_grid_goes_on_after_a_restart_and_what_was_missed_is_skipped() -> None:
    rig = Rig()
    qos = hg.QoS(durability="persistent")
    rig.clock.set_wall(1_000_000_000.03)
    beats = rig.station.channel("site.beats", Beat, qos=qos)
    beats.supplier("roof").every(1.0, Numbered())
    for _ in range(3):
        rig.clock.advance(1.0)
        rig.settle()
    rig.station.close()
    after = Rig(disk=rig.disk, seed=1)
    after.clock.set_wall(1_000_000_010.4)
    beats = after.station.channel("site.beats", Beat, qos=qos)
    beats.supplier("roof").every(1.0, Numbered())
    for _ in range(2):
        after.clock.advance(1.0)
        after.settle()
    headers = [d.header for d in beats.consumer(start="earliest", until="now").deliveries()]
    assert [h.source_ts // 10**9 - 1_000_000_000 for h in headers] == [1, 2, 3, 11, 12]
    assert {h.source_ts % 10**9 for h in headers} == {0}
    after.station.close()


def test_each_waits_for_a_worker_at_its_own_priority(helio: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = helio.station.channel("site.beats", Beat)
    seen: list[Header] = []
    beats.subscribe(lambda _, header: seen.append(header))
    asked: list[int] = []
    schedule = beats.pools.strict.schedule

    def watched(run: object, priority: int) -> None:
        if isinstance(run, Periodic):
            asked.append(priority)
        schedule(run, priority)  # type: ignore[arg-type]  # whatever runs

    monkeypatch.setattr(beats.pools.strict, "schedule", watched)
    beats.supplier().every(PERIOD, Numbered(), priority=1)
    beats.supplier().every(PERIOD, Numbered(), priority=5)
    helio.clock.advance(PERIOD)
    helio.settle()
    assert {1, 5} <= set(asked)
    assert sorted(header.priority for header in seen) == [1, 5]


def test_what_raises_is_reported_and_the_next_instant_comes(helio: Rig) -> None:
    reported: list[tuple[str, BaseException]] = []
    with testing.rig(on_error=lambda name, _, error: reported.append((name, error))) as rig:
        beats = rig.station.channel("site.beats", Beat)
        answers = iter([ValueError("no"), None, Beat(1)])

        def make() -> Beat | None:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        periodic = beats.supplier("roof").every(PERIOD, make)
        for _ in range(3):
            rig.clock.advance(PERIOD)
            rig.settle()
        assert periodic.stats() == PeriodicStats(pushed=1, empty=1, failed=1, skipped=0)
    assert [(name, str(error)) for name, error in reported] == [("roof every 0.1 s", "no")]


def test_cancelling_closing_and_the_end_of_the_channel_stop_it(helio: Rig) -> None:
    beats = helio.station.channel("site.beats", Beat)
    made = Numbered()
    cancelled, closed, left = (beats.supplier(name) for name in ("a", "b", "c"))
    periodic = cancelled.every(PERIOD, made)
    closed.every(PERIOD, made)
    left.every(PERIOD, made)
    assert periodic.cancel()
    assert not periodic.cancel()
    closed.close()
    assert len(helio.station.timers) == 1
    beats.close()
    helio.clock.advance(PERIOD)
    helio.settle()
    assert len(helio.station.timers) == 0
    assert beats.stats().pushed == 0


def test_what_makes_no_sense_is_refused(helio: Rig) -> None:
    supplier = helio.station.channel("site.beats", Beat).supplier()
    for period in (0, -1, 1e-9, float("nan"), "1", True):
        with pytest.raises(NotPossible, match="period"):
            supplier.every(period, Numbered())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(NotPossible, match="called"):
        supplier.every(1.0, Beat(1))  # type: ignore[arg-type]  # on purpose
    helio.station.timers._limit = 0
    with pytest.raises(TooManyTimers):
        supplier.every(1.0, Numbered())


def test_a_priority_that_no_push_could_have_is_refused_at_once(helio: Rig) -> None:
    roof = helio.station.channel("site.beats", Beat).supplier("roof")
    with pytest.raises(InvalidEvent, match="priority"):
        roof.every(PERIOD, Numbered(), priority=9)
    assert len(helio.station.timers) == 0


def test_one_that_is_cancelled_is_forgotten_by_its_supplier(helio: Rig) -> None:
    roof = helio.station.channel("site.beats", Beat).supplier("roof")
    roof.every(PERIOD, Numbered()).cancel()
    assert not roof._periodic


def test_nothing_is_made_once_the_channel_is_closed(helio: Rig) -> None:
    beats = helio.station.channel("site.beats", Beat)
    make = Numbered()
    beats.supplier("roof").every(PERIOD, make)
    beats.close()
    assert len(helio.station.timers) == 0
    helio.clock.advance(PERIOD)
    helio.settle()
    assert make.made == 0
