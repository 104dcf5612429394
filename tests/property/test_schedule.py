"""Response-time analysis against a simulated core: what was proved is the worst that was seen."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heliograph.errors import NotSchedulable
from heliograph.scheduling.analysis import PeriodicTask, admit
from tests.support import examples

TICK = 1e-3


def worst_responses(tasks: list[tuple[int, int]], ticks: int) -> list[int]:
    """A core that runs, tick by tick, the first task that has work; all are released at the start."""
    worst = [0] * len(tasks)
    waiting: list[list[list[int]]] = [[] for _ in tasks]  # per task: jobs as [released, left]
    for now in range(ticks):
        for n, (period, cost) in enumerate(tasks):
            if now % period == 0:
                waiting[n].append([now, cost])
        for n, jobs in enumerate(waiting):
            if jobs:
                jobs[0][1] -= 1
                if not jobs[0][1]:
                    worst[n] = max(worst[n], now + 1 - jobs.pop(0)[0])
                break
    return worst


@given(
    st.lists(
        st.tuples(st.integers(2, 15), st.integers(1, 6)), min_size=1, max_size=5, unique_by=lambda t: t[0]
    )
)
@settings(max_examples=examples(300))
def test_the_proved_response_is_the_worst_that_a_core_shows(drawn: list[tuple[int, int]]) -> None:
    """From the instant when all are released together, which is the worst, for longer than a busy period."""
    sets = sorted(drawn)
    load = sum(cost / period for period, cost in sets)
    assume(load <= 0.99)
    tasks = [
        PeriodicTask(str(n), period=p * TICK, cost=c * TICK, deadline=10.0) for n, (p, c) in enumerate(sets)
    ]
    proof = admit(tasks)
    assert proof.exact
    busy = sum(cost for _, cost in sets) / (1 - load)
    seen = worst_responses(sets, ticks=int(busy) + 2 * max(period for period, _ in sets))
    assert [round(a.response / TICK) for a in proof.tasks] == seen


@given(
    st.lists(
        st.tuples(st.integers(2, 15), st.integers(1, 6)), min_size=1, max_size=5, unique_by=lambda t: t[0]
    )
)
@settings(max_examples=examples(200))
def test_what_is_refused_would_have_been_late(drawn: list[tuple[int, int]]) -> None:
    sets = sorted(drawn)
    tasks = [PeriodicTask(str(n), period=p * TICK, cost=c * TICK) for n, (p, c) in enumerate(sets)]
    refused = None
    try:
        admit(tasks)
    except NotSchedulable as error:
        refused = error
    if refused is None:
        assert sum(cost / period for period, cost in sets) <= 1 + 1e-9
    else:
        upto = int(refused.task) + 1
        assert refused.response is None or worst_responses(sets[:upto], ticks=4000)[-1] > sets[upto - 1][0]
