"""Parameters of a channel: declared, set, refused, forgotten with who set them."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.parameters import Parameter, ParameterBook
from heliograph.errors import NoParameters, NotPossible, ParameterRefused

LIMIT = 20.0
SECOND = 1_000_000_000


class Frame(hg.Event, name="frame"):
    number: int


def anyone(_: Parameter) -> str:
    return ""


def book(**parameters: Parameter) -> ParameterBook:
    made = ParameterBook("camera")
    for name, parameter in parameters.items():
        made.declare(name, parameter)
    return made


@pytest.mark.parametrize(
    ("policy", "value", "setter"), [("last", 5.0, "c"), ("max", 30.0, "b"), ("min", 2.0, "a")]
)
def test_a_policy_makes_one_value_of_what_several_ask_for(policy: Any, value: float, setter: str) -> None:
    rates = book(rate=Parameter(10.0, policy=policy))
    for name, wanted in (("a", 2), ("b", 30.0), ("c", 5.0)):
        rates.request(name, "s", {"rate": wanted}, anyone, 7)
    state = rates.state("rate")
    assert (state.value, state.set_by, state.set_ts) == (value, setter, 7)
    assert [one.setter for one in state.requests] == ["a", "b", "c"]
    assert rates.request(setter, "s", {"rate": None}, anyone, 8) == {"rate"}
    for name in "abc":
        rates.request(name, "s", {"rate": None}, anyone, 8)
    assert (rates.state("rate").value, rates.state("rate").set_by) == (10.0, None)


def test_of_equal_wishes_the_last_one_holds_and_nothing_changes() -> None:
    rates = book(rate=Parameter(10.0, policy="max"))
    assert rates.request("a", "s", {"rate": 3.0}, anyone, 1) == {"rate"}
    assert rates.request("b", "s", {"rate": 3.0}, anyone, 2) == set()
    assert rates.state("rate").set_by == "b"


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        (Parameter(10.0, minimum=1.0), 0.5, "is at least 1, not 0.5"),
        (Parameter(10.0, maximum=60.0), 61, "is at most 60, not 61"),
        (Parameter(10.0), "fast", "is float, not 'fast'"),
        (Parameter(10.0), float("nan"), "is finite"),
        (Parameter(10), 2.5, "is int, not 2.5"),
        (Parameter(10), True, "is int, not True"),
        (Parameter("all", choices=("all", "north")), "south", "is one of 'all', 'north'"),
        (Parameter("all"), "x" * 5000, "has at most 4096 characters"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_whole_and_nothing_changes(
    parameter: Parameter, value: Any, said: str
) -> None:
    two = book(p=parameter, other=Parameter(1))
    with pytest.raises(ParameterRefused, match=said.replace("(", r"\(")) as caught:
        two.request("a", "s", {"other": 2, "p": value}, anyone, 1)
    assert (caught.value.parameter, caught.value.setter) == ("p", "a")
    assert two.value("other") == 1
    assert two.refused == 1
    with pytest.raises(ParameterRefused, match="is not declared there; declared: p, other"):
        two.request("a", "s", {"q": 1}, anyone, 1)


@pytest.mark.parametrize(
    "parameter",
    [
        Parameter([]),  # type: ignore[arg-type]  # what is tested
        Parameter(10.0, minimum=20.0),
        Parameter("a", choices=("b",)),
        Parameter(1, policy="first"),  # type: ignore[arg-type]  # what is tested
        Parameter(1, who="friends"),  # type: ignore[arg-type]  # what is tested
        Parameter(1, lease=-1.0),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(parameter: Parameter) -> None:
    with pytest.raises(NotPossible):
        book(p=parameter)


def test_a_request_outlives_its_station_for_the_lease_and_its_setter_takes_it_up_again() -> None:
    rates = book(rate=Parameter(10.0, lease=5.0))
    rates.request("display", "one", {"rate": 2.0}, anyone, 1)
    with pytest.raises(ParameterRefused, match="is set under that name by station one, which is there"):
        rates.request("display", "two", {"rate": 3.0}, anyone, 1)
    assert rates.station_left("one", 100 * SECOND) == 5.0
    assert rates.lapse(104 * SECOND) == (set(), 1.0)
    assert rates.state("rate").requests[0].lapses
    assert rates.request("display", "two", {"rate": 3.0}, anyone, 2) == {"rate"}
    assert rates.lapse(200 * SECOND) == (set(), None)
    assert rates.value("rate") == 3.0
    rates.station_left("two", 300 * SECOND)
    assert rates.lapse(305 * SECOND) == ({"rate"}, None)
    assert rates.value("rate") == 10.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["set", "unset", "left", "lapse"]), st.integers(0, 5)
        )
    )
)
def test_the_value_is_always_that_of_a_request_that_is_there_or_the_default(
    steps: list[tuple[str, str, int]],
) -> None:
    rates = book(rate=Parameter(-1, policy="max", lease=1.0))
    model: dict[str, tuple[int, int | None]] = {}
    now = 0
    for setter, step, value in steps:
        now += SECOND // 2
        if step == "set":
            rates.request(setter, setter, {"rate": value}, anyone, now)
            model[setter] = (value, None)
        elif step == "unset":
            rates.request(setter, setter, {"rate": None}, anyone, now)
            model.pop(setter, None)
        elif step == "left":
            rates.station_left(setter, now)
            if setter in model and model[setter][1] is None:
                model[setter] = (model[setter][0], now + SECOND)
        else:
            rates.lapse(now)
            model = {s: (v, until) for s, (v, until) in model.items() if until is None or until > now}
        assert rates.value("rate") == max((v for v, _ in model.values()), default=-1)


def test_a_source_reads_what_is_set_in_its_own_station_and_is_told_of_changes() -> None:
    with hg.Station() as station:
        camera = station.channel("camera", Frame)
        with pytest.raises(NoParameters, match="declare"):
            camera.parameters.set(rate=2.0, timeout=0.01)
        camera.parameters.declare(rate=hg.Parameter(10.0, maximum=60.0), region=hg.Parameter("all"))
        told: list[tuple[str, Any]] = []
        done = Event()

        @camera.parameters.on_change
        def changed(name: str, value: Any) -> None:
            told.append((name, value))
            if name == "region":
                done.set()

        assert camera.parameters["rate"] == 10.0
        camera.parameters.set(rate=2, by="display")
        camera.parameters.set({"region": "north"}, by="display")
        assert done.wait(LIMIT)
        assert told == [("rate", 2.0), ("region", "north")]
        state = camera.parameters.get()["rate"]
        assert (state.value, state.set_by, state.declared.default) == (2.0, "display", 10.0)
        camera.parameters.unset("rate", by="display")
        assert camera.parameters["rate"] == 10.0
        with pytest.raises(ParameterRefused, match="is at most 60"):
            camera.parameters.set(rate=61.0)
        assert camera.parameters.refused == 1
        with pytest.raises(KeyError):
            camera.parameters["zoom"]
        with pytest.raises(TypeError, match=r"hg\.Parameter"):
            camera.parameters.declare(zoom=3)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(NotPossible, match="declared otherwise"):
            camera.parameters.declare(rate=hg.Parameter(11.0))
