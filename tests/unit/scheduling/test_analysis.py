"""Response-time analysis: the published figures of published task sets, and what is refused."""

from __future__ import annotations

import pytest

from heliograph.errors import InvalidTask, NotSchedulable
from heliograph.scheduling.analysis import PeriodicTask, TaskComparison, admit

MS = 1e-3


def responses(tasks: list[PeriodicTask], *, preemptive: bool = True) -> dict[str, float]:
    """In milliseconds."""
    proof = admit(tasks, preemptive=preemptive)
    return {a.task.name: round(a.response / MS, 6) for a in proof.tasks}


def test_three_tasks_of_burns_and_wellings_use_the_whole_core() -> None:
    """Process set C of "Real-Time Systems and Programming Languages": utilisation 1, and it fits."""
    tasks = [
        PeriodicTask("a", period=80 * MS, cost=40 * MS),
        PeriodicTask("b", period=40 * MS, cost=10 * MS),
        PeriodicTask("c", period=20 * MS, cost=5 * MS),
    ]
    assert responses(tasks) == {"c": 5, "b": 15, "a": 80}
    proof = admit(tasks)
    assert proof.utilisation == pytest.approx(1)
    assert proof.bound == pytest.approx(0.7798, abs=1e-4)
    assert proof.exact


def test_three_tasks_of_sha_and_goodenough_fit_above_the_utilisation_bound() -> None:
    """ "Real-Time Scheduling Theory and Ada": 82 % with tau 1 at 40 ms; tau 3 ends just at 300 ms."""
    tasks = [
        PeriodicTask("tau 1", period=100 * MS, cost=40 * MS),
        PeriodicTask("tau 2", period=150 * MS, cost=40 * MS),
        PeriodicTask("tau 3", period=350 * MS, cost=100 * MS),
    ]
    assert responses(tasks) == {"tau 1": 40, "tau 2": 80, "tau 3": 300}


def test_a_late_job_of_lehoczky_is_not_the_first_of_its_busy_period() -> None:
    """ "Fixed Priority Scheduling of Periodic Task Sets with Arbitrary Deadlines": the fifth takes 118."""
    tasks = [
        PeriodicTask("tau 1", period=70 * MS, cost=26 * MS),
        PeriodicTask("tau 2", period=100 * MS, cost=62 * MS, deadline=118 * MS),
    ]
    assert responses(tasks) == {"tau 1": 26, "tau 2": 118}
    late = [tasks[0], PeriodicTask("tau 2", period=100 * MS, cost=62 * MS, deadline=117 * MS)]
    with pytest.raises(NotSchedulable) as caught:
        admit(late)
    assert caught.value.task == "tau 2"
    assert caught.value.response == pytest.approx(118 * MS)


def test_the_second_message_of_davis_is_the_late_one_without_preemption() -> None:
    """ "CAN schedulability analysis: refuted, revisited and revised": 3.5 ms, not 3 as before."""
    tasks = [
        PeriodicTask("A", period=2.5 * MS, cost=1 * MS),
        PeriodicTask("B", period=3.5 * MS, cost=1 * MS, importance=1),
        PeriodicTask("C", period=3.5 * MS, cost=1 * MS),
    ]
    assert responses(tasks, preemptive=False) == {"A": 2, "B": 3, "C": 3.5}
    with pytest.raises(NotSchedulable) as caught:
        admit(
            [*tasks[:2], PeriodicTask("C", period=3.5 * MS, cost=1 * MS, deadline=3.25 * MS)],
            preemptive=False,
        )
    assert caught.value.task == "C"


def test_the_shorter_period_has_the_higher_priority_and_the_slowest_share_the_lowest() -> None:
    proof = admit([PeriodicTask(f"t{n}", period=(n + 1) * 10 * MS, cost=0.1 * MS) for n in range(7)])
    assert [(a.task.name, a.priority) for a in proof.tasks] == [
        ("t0", 5), ("t1", 4), ("t2", 3), ("t3", 2), ("t4", 1), ("t5", 1), ("t6", 1),
    ]  # fmt: skip
    assert not proof.exact


def test_tasks_of_one_priority_wait_for_each_other_to_end() -> None:
    proof = admit(
        [
            PeriodicTask("first", period=10 * MS, cost=1 * MS, importance=9),
            PeriodicTask("second", period=10 * MS, cost=3 * MS),
        ]
    )
    assert proof["first"].blocking == pytest.approx(3 * MS)
    assert proof["first"].response == pytest.approx(4 * MS)
    assert proof["second"].response == pytest.approx(4 * MS)


def test_a_follower_runs_at_its_leader_s_rate_and_is_late_by_its_leader_s_response() -> None:
    proof = admit(
        [
            PeriodicTask("publish", after=("filter",), cost=1 * MS),
            PeriodicTask("filter", after=("radar",), cost=2 * MS),
            PeriodicTask("radar", period=20 * MS, cost=3 * MS),
        ],
        preemptive=False,
    )
    assert [a.task.name for a in proof.tasks] == ["radar", "filter", "publish"]
    assert {a.period for a in proof.tasks} == {20 * MS}
    assert proof["radar"].response < proof["filter"].response < proof["publish"].response
    assert not proof.exact


def test_blocking_from_outside_is_added_to_every_response() -> None:
    tasks = [PeriodicTask("a", period=10 * MS, cost=1 * MS), PeriodicTask("b", period=20 * MS, cost=2 * MS)]
    before, after = admit(tasks), admit(tasks, blocking=5 * MS)
    assert [y.response - x.response for x, y in zip(before.tasks, after.tasks, strict=True)] == [
        pytest.approx(5 * MS),
        pytest.approx(5 * MS),
    ]


def test_more_work_than_a_core_has_is_refused_naming_the_task_and_its_load() -> None:
    with pytest.raises(NotSchedulable) as caught:
        admit(
            [
                PeriodicTask("busy", period=10 * MS, cost=9 * MS),
                PeriodicTask("late", period=20 * MS, cost=4 * MS, deadline=100.0),
            ]
        )
    assert caught.value.task == "late"
    assert caught.value.response is None
    assert caught.value.utilisation == pytest.approx(1.1)
    assert "never ends" in str(caught.value)
    assert (caught.value.blocking, caught.value.held_up) == ((), False)


def test_a_task_that_is_late_names_what_it_waits_for_and_whether_that_makes_it_late() -> None:
    quick, slow = (
        PeriodicTask("quick", period=10 * MS, cost=6 * MS),
        PeriodicTask("slow", period=50 * MS, cost=5 * MS),
    )
    small = PeriodicTask("small", period=60 * MS, cost=1 * MS)
    with pytest.raises(
        NotSchedulable, match=r"5\.000 ms for slow to end first, and would be in time"
    ) as late:
        admit([quick, slow, small], preemptive=False)
    assert (late.value.task, late.value.blocking, late.value.held_up) == ("quick", (("slow", 5 * MS),), True)
    with pytest.raises(
        NotSchedulable, match=r"3\.000 ms for slow and 2\.000 ms for blocking= to end"
    ) as both:
        admit([quick, PeriodicTask("slow", period=50 * MS, cost=3 * MS)], preemptive=False, blocking=2 * MS)
    assert both.value.blocking == (("slow", 3 * MS), ("blocking=", 2 * MS))
    with pytest.raises(NotSchedulable) as anyway:
        admit([PeriodicTask("long", period=10 * MS, cost=6 * MS, deadline=5 * MS), slow], preemptive=False)
    assert (anyway.value.blocking, anyway.value.held_up) == ((("slow", 5 * MS),), False)
    assert "in time without" not in str(anyway.value)
    with pytest.raises(NotSchedulable) as alone:
        admit([PeriodicTask("alone", period=10 * MS, cost=6 * MS, deadline=5 * MS), slow], preemptive=True)
    assert alone.value.blocking == ()


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([PeriodicTask("a", cost=1.0)], "a needs a period"),
        ([PeriodicTask("a", cost=0.0, period=1.0)], "a has a cost of 0.0"),
        ([PeriodicTask("a", cost=float("nan"), period=1.0)], "a has a cost of nan"),
        ([PeriodicTask("a", cost=0.1, period=-1.0)], "a has a period of -1.0"),
        ([PeriodicTask("a", cost=0.1, period=1.0, deadline=0.0)], "a has a deadline of 0.0"),
        ([PeriodicTask("a", cost=0.1, period=1.0)] * 2, "a is there twice"),
        ([PeriodicTask("a", cost=0.1, after=("b",))], "a comes after 'b', which is not in the set"),
        (
            [PeriodicTask("a", cost=0.1, after=("b",)), PeriodicTask("b", cost=0.1, after=("a",))],
            "a, b form a circle",
        ),
        (
            [PeriodicTask("a", cost=0.1, period=1.0), PeriodicTask("b", cost=0.1, period=2.0, after=("a",))],
            "b has a period of 2.0 s but comes after tasks of 1.0 s",
        ),
        ([PeriodicTask(str(n), cost=0.1, period=1.0) for n in range(1001)], "at most 1,000"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(tasks: list[PeriodicTask], sentence: str) -> None:
    with pytest.raises(InvalidTask, match=sentence):
        admit(tasks)


def test_no_tasks_fit() -> None:
    assert admit([]).tasks == ()


def test_a_proof_can_be_read_and_compared_with_what_was_measured() -> None:
    proof = admit(
        [
            PeriodicTask("radar", period=10 * MS, cost=2 * MS),
            PeriodicTask("log", period=40 * MS, cost=10 * MS),
        ]
    )
    assert "radar" in str(proof)
    assert proof["log"].laxity == pytest.approx(26 * MS)
    seen = proof.against({"radar": 1.9 * MS, "log": 15 * MS})
    assert seen == (
        TaskComparison("radar", proof["radar"].response, 1.9 * MS),
        TaskComparison("log", proof["log"].response, 15 * MS),
    )
    assert [comparison.holds for comparison in seen] == [True, False]
