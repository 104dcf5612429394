"""Subscriptions as periodic tasks: admitted, refused, measured, compared."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heliograph as hg
from heliograph.errors import InvalidTask, NotPossible, NotSchedulable, UnknownOption
from heliograph.runtime.durations import Durations
from heliograph.scheduling.admission import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.testing import Rig


LIMIT = 10.0


class Track(hg.Event, name="air.track", key="id"):
    id: int


@pytest.fixture
def tracks(helio: Rig) -> hg.Channel[Track]:
    return helio.station.channel("air.tracks", Track)


def nothing(_: Track) -> None:
    """Takes no time."""


def taking(rig: Rig, seconds: float) -> Callable[[Track], None]:
    """A callback that takes so long, by the clock of the rig."""

    def callback(_: Track) -> None:
        rig.clock.advance(seconds)

    return callback


def push(rig: Rig, channel: hg.Channel[Track], times: int) -> None:
    for i in range(times):
        channel.push(Track(i))
        rig.settle()


def test_the_shorter_period_gets_the_higher_priority_also_later(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    schedule = helio.station.schedule()
    slow = schedule.task(tracks, nothing, name="slow", period=0.040, cost=0.005)
    assert slow.queue.priority == 5
    fast = schedule.task(tracks, nothing, name="fast", period=0.010, cost=0.002)
    assert (fast.queue.priority, slow.queue.priority) == (5, 4)
    assert [admitted.task.name for admitted in schedule.proof.tasks] == ["fast", "slow"]
    fast.close()
    assert [admitted.task.name for admitted in schedule.admit().tasks] == ["slow"]
    assert slow.queue.priority == 5


def test_a_task_that_does_not_fit_is_refused_with_the_numbers_and_nothing_changes(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    schedule = helio.station.schedule(preemptive=True)
    slow = schedule.task(tracks, nothing, name="slow", period=0.040, cost=0.020)
    proof = schedule.proof
    with pytest.raises(NotSchedulable) as refused:
        schedule.task(tracks, nothing, name="fast", period=0.010, cost=0.006)
    assert refused.value.task == "slow"
    assert refused.value.deadline == 0.040
    assert refused.value.utilisation == pytest.approx(1.1)
    assert schedule.proof is proof
    assert slow.queue.priority == 5
    assert list(tracks.stats().consumers) == ["slow"]


def test_a_cost_that_is_not_stated_is_measured_as_its_99_9th_percentile(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    schedule = helio.station.schedule()
    receiver = schedule.task(tracks, taking(helio, 0.002), name="measured", period=0.010)
    assert receiver.queue.priority == 1
    push(helio, tracks, 10)
    with pytest.raises(InvalidTask, match="has run 10 times"):
        schedule.admit()
    (seen,) = schedule.compare()
    assert (seen.cost, seen.proved, seen.laxity) == (None, None, None)
    assert seen.holds
    push(helio, tracks, RUNS - 10)
    (admitted,) = schedule.admit().tasks
    assert admitted.task.cost == pytest.approx(0.002, rel=0.016)
    assert admitted.task.cost >= 0.002
    assert receiver.queue.priority == 5


def test_what_was_measured_stands_beside_what_was_proved(helio: Rig, tracks: hg.Channel[Track]) -> None:
    schedule = helio.station.schedule()
    schedule.task(tracks, taking(helio, 0.002), name="radar", period=0.010, cost=0.002)
    push(helio, tracks, 5)
    report = schedule.compare()
    (seen,) = report
    assert (seen.runs, seen.overruns, seen.missed) == (5, 0, 0)
    assert (seen.worst, seen.proved, seen.deadline) == (0.002, 0.002, 0.010)
    assert seen.laxity == pytest.approx((0.008, 0.008, 0.008))
    assert report.holds
    assert "radar" in str(report)
    assert "laxity" in str(report)


def test_runs_that_break_the_statement_are_counted_and_the_proof_does_not_hold(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    schedule = helio.station.schedule()
    lengths = iter([0.001, 0.005, 0.020])
    schedule.task(
        tracks, lambda _: helio.clock.advance(next(lengths)), name="radar", period=0.010, cost=0.004
    )
    push(helio, tracks, 3)
    report = schedule.compare()
    (seen,) = report
    assert (seen.overruns, seen.missed) == (2, 1)
    assert seen.laxity is not None
    assert seen.laxity[0] == pytest.approx(-0.010)
    assert not report.holds


def test_a_follower_goes_on_at_its_rate_when_its_leader_is_closed(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    schedule = helio.station.schedule()
    leader = schedule.task(tracks, nothing, name="radar", period=0.010, cost=0.002)
    schedule.task(tracks, nothing, name="log", after=("radar",), cost=0.001)
    assert schedule.proof["log"].response >= 0.003
    leader.close()
    proof = schedule.admit()
    assert (proof["log"].period, proof["log"].response) == (0.010, 0.001)


def test_a_task_may_be_written_as_a_decorator_with_a_filter(helio: Rig, tracks: hg.Channel[Track]) -> None:
    schedule = helio.station.schedule()
    seen: list[int] = []

    @schedule.task(tracks, period=0.010, cost=0.001, where="id > 1")
    def on_track(track: Track, header: hg.Header) -> None:
        seen.append(track.id)

    push(helio, tracks, 4)
    assert seen == [2, 3]
    assert schedule.compare()[0].name == "on_track"
    tracks.unsubscribe(on_track)
    assert schedule.compare() == ()


def test_a_callback_that_raises_has_run(helio: Rig, tracks: hg.Channel[Track]) -> None:
    schedule = helio.station.schedule()
    receiver = schedule.task(tracks, lambda _: 1 / 0, name="broken", period=0.010, cost=0.001)
    push(helio, tracks, 2)
    assert schedule.compare()[0].runs == 2
    assert receiver.counts().failed == 2
    helio.errors.clear()


def test_the_more_important_of_one_rate_goes_first_where_sub_priorities_count(helio: Rig) -> None:
    tracks = helio.station.channel("ranked", Track, qos=hg.QoS(dispatch="ranked"))
    schedule = helio.station.schedule()
    queues = {}
    for name, importance in (("minor", 0), ("major", 7), ("middle", 3)):
        receiver = schedule.task(tracks, nothing, name=name, period=0.1, cost=0.01, importance=importance)
        queues[name] = receiver.queue
    header = hg.Header("ranked", "air.track", "s", 1, 1, 0, b"")
    waiting = {name: queue._ranking.waiting(Track(1), header, 0) for name, queue in queues.items()}  # type: ignore[union-attr]
    assert {head.priority for head in waiting.values()} == {5}
    assert sorted(waiting, key=lambda name: -waiting[name].sub_priority) == ["major", "middle", "minor"]


async def awaited(_: Track) -> None:
    """Not for a schedule."""


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"callback": awaited, "period": 0.1, "cost": 0.01}, NotPossible),
        ({"callback": nothing, "period": 0.1, "cost": 0.01, "priority": 5}, NotPossible),
        ({"callback": nothing, "period": 0.1, "cost": 0.01, "dispatch": "aged"}, NotPossible),
        ({"callback": nothing, "cost": 0.01}, InvalidTask),
        ({"callback": nothing, "period": 0.1, "cost": -1.0}, InvalidTask),
        ({"callback": nothing, "period": 0.1, "cost": 0.01, "after": ("nobody",)}, InvalidTask),
        ({"callback": nothing, "period": 0.1, "cost": 0.01, "name": "first"}, InvalidTask),
    ],
)
def test_what_makes_no_sense_is_refused(
    helio: Rig, tracks: hg.Channel[Track], said: dict[str, Any], error: type[Exception]
) -> None:
    schedule = helio.station.schedule()
    schedule.task(tracks, nothing, name="first", period=0.1, cost=0.01)
    with pytest.raises(error):
        schedule.task(tracks, **said)
    assert len(schedule.compare()) == 1
    assert list(tracks.stats().consumers) == ["first"]


def test_a_misspelled_option_is_refused_with_each_that_a_task_has(
    helio: Rig, tracks: hg.Channel[Track]
) -> None:
    misspelled: dict[str, Any] = {"perod": 2}
    with pytest.raises(UnknownOption, match="did you mean period=") as caught:
        helio.station.schedule().task(tracks, nothing, **misspelled)
    known = caught.value.known
    assert len(known) == len(set(known))
    assert "priority" not in known


def test_a_station_has_one_set_of_tasks(helio: Rig) -> None:
    schedule = helio.station.schedule(blocking=0.005)
    assert helio.station.schedule(blocking=0.005) is schedule
    with pytest.raises(NotPossible, match="already"):
        helio.station.schedule(preemptive=True)


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_never_too_short_and_hardly_too_long(durations: list[int], part: float) -> None:
    memory = Durations()
    for duration in durations:
        memory.add(duration)
    exact = next(d for d in sorted(durations) if sum(e <= d for e in durations) >= part * len(durations))
    assert exact <= memory.percentile(part) <= exact * 1.016 + 1
    assert (memory.least, memory.most) == (min(durations), max(durations))


@pytest.mark.parametrize("dispatch", ["strict", "ranked"])
def test_what_waits_keeps_its_order_when_its_task_gets_another_priority(helio: Rig, dispatch: Any) -> None:
    tracks, fast = helio.station.channel("slow", Track), helio.station.channel("fast", Track)
    schedule = helio.station.schedule()
    gate, seen = threading.Event(), []

    def slow(track: Track) -> None:
        gate.wait(LIMIT)
        seen.append(track.id)

    one = schedule.task(tracks, slow, period=1.0, cost=0.001, dispatch=dispatch)
    other = schedule.task(fast, nothing, period=0.01, cost=0.001)
    assert one.queue.priority == 4
    for i in range(200):
        tracks.push(Track(i))
    other.close()
    schedule.admit()
    assert one.queue.priority == 5
    for i in range(200, 210):
        tracks.push(Track(i))
    gate.set()
    helio.settle()
    assert seen == list(range(210))


def test_a_task_that_could_not_be_ordered_is_refused_and_nothing_has_changed(helio: Rig) -> None:
    schedule = helio.station.schedule()
    kept = helio.station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    with pytest.raises(NotPossible, match="group="):
        schedule.task(kept, nothing, period=0.1, cost=0.001, group="g")
    inline = helio.station.channel("inline", Track, qos=hg.QoS(threads=hg.Threads("inline")))
    with pytest.raises(NotPossible, match="inline"):
        schedule.task(inline, nothing, period=0.1, cost=0.001)
    assert kept.stats().consumers == {}
    schedule.task(kept, nothing, period=0.1, cost=0.001)
    assert len(schedule.admit().tasks) == 1


@pytest.mark.parametrize(
    "said", [{"period": -3.0}, {"period": 1.0, "deadline": "soon"}, {"after": ("nobody",)}]
)
def test_what_is_said_of_a_task_on_trial_is_checked_at_once(
    helio: Rig, tracks: hg.Channel[Track], said: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTask):
        helio.station.schedule().task(tracks, nothing, name="trial", **said)
    assert tracks.stats().consumers == {}
