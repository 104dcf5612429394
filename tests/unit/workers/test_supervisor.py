"""When a worker is started again, and what it may be asked to be."""

from __future__ import annotations

import os

import pytest

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.workers.supervisor import FIRST_PAUSE, MOST_DEATHS, WINDOW, Deaths, new_order

SECOND = 1_000_000_000


def test_a_worker_is_started_again_at_once_then_after_longer_pauses_and_then_given_up() -> None:
    deaths = Deaths()
    pauses = [deaths.pause_after(i * SECOND) for i in range(MOST_DEATHS)]
    assert pauses == [0.0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, None]


def test_deaths_of_long_ago_do_not_count() -> None:
    deaths = Deaths()
    every = int((WINDOW / 2 + 1) * SECOND)
    assert [deaths.pause_after(i * every) for i in range(20)] == [0.0] + [FIRST_PAUSE] * 19


def order(**options: object) -> object:
    asked = {
        "setup": "plant:listen",
        "domain": "plant",
        "transport": "ring",
        "priority": 3,
        "name": None,
        "fifo": None,
        "core": None,
        **options,
    }
    return new_order(asked.pop("setup"), **asked)  # type: ignore[arg-type] # mistakes are what is tested


def inside() -> object:
    def listen(_: hg.Station) -> None: ...

    return listen


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"domain": None}, "domain="),
        ({"transport": lambda _: None}, "transport="),
        ({"priority": 6}, "1 \\(low\\) to 5"),
        ({"core": 4711}, "none of those"),
        ({"fifo": 10}, "needs core="),
        ({"fifo": 100, "core": min(os.sched_getaffinity(0))}, "1 to 99"),
        ({"setup": "listen"}, "module:function"),
        ({"setup": "__main__:listen"}, "module:function"),
        ({"setup": lambda _: None}, "module:function"),
        ({"setup": inside()}, "module:function"),
    ],
)
def test_what_a_worker_cannot_be_is_refused_where_it_is_written(
    options: dict[str, object], what: str
) -> None:
    with pytest.raises(NotPossible, match=what):
        order(**options)


def test_a_function_becomes_the_path_by_which_another_process_imports_it() -> None:
    made = order(setup=inside)
    assert (made.setup, made.name) == (f"{__name__}:inside", __name__)  # type: ignore[attr-defined] # an Order


def test_receivers_of_a_station_have_its_priority_unless_they_name_one() -> None:
    class Job(hg.Event, name="band.unit.job"):
        n: int

    with hg.Station(priority=4) as station:
        jobs = station.channel("jobs", Job)
        assert jobs.subscribe(print).selection.priority == 4
        assert jobs.subscribe(print, priority=1).selection.priority == 1
