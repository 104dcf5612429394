"""Parameters between processes: who may set them, what holds, and what is left of a setter that died."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.errors import NoParameters, ParameterRefused
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, open_station, own_meeting_folder, wait_until
from tests.e2e.parameter_process import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import heliograph as hg


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@contextmanager
def running(*arguments: str) -> Iterator[Program]:
    program = Program(*arguments, module="tests.e2e.parameter_process")
    try:
        yield program
    finally:
        program.clean_up()


def sets(program: Program) -> None:
    program.says("ready")
    assert program.process.stdin is not None
    program.process.stdin.write("set\n")
    program.process.stdin.flush()
    program.says("set")


def rate_of(camera: hg.Channel[Any]) -> tuple[Any, str | None]:
    state = camera.parameters.get(LIMIT)["rate"]
    return state.value, state.set_by


def test_receivers_elsewhere_set_what_the_source_reads_and_the_policy_chooses() -> None:
    with ExitStack() as stack:
        source = stack.enter_context(running("source"))
        source.says("declared")
        station = stack.enter_context(open_station(name="watcher"))
        camera = station.channel("camera", Frame)
        assert rate_of(camera) == (10.0, None)
        sets(stack.enter_context(running("setter", "one", "one", "5")))
        source.says("changed rate 5.0")
        sets(stack.enter_context(running("setter", "two", "two", "30")))
        source.says("changed rate 30.0")
        assert rate_of(camera) == (30.0, "two")
        state = camera.parameters.get(LIMIT)["rate"]
        assert [(one.setter, one.value) for one in state.requests] == [("one", 5.0), ("two", 30.0)]


def test_who_may_not_set_a_parameter_is_refused_by_name_and_nothing_changes() -> None:
    with running("source") as source, open_station(name="stranger") as station:
        source.says("declared")
        camera = station.channel("camera", Frame)
        for values, reason in (
            ({"rate": 2.0}, "stations that have receivers of the channel, and this has none"),
            ({"zoom": 2}, "by the station that declares it only"),
            ({"region": "north"}, "may be set by display only, and this is stranger"),
        ):
            with pytest.raises(ParameterRefused, match=reason) as caught:
                camera.parameters.set(values, by="me", timeout=LIMIT)
            assert caught.value.parameter == next(iter(values))
            assert caught.value.setter == "me"
        derived = camera.derive("number")
        derived.subscribe(lambda _: None)
        camera.parameters.set(rate=2.0, by="me", timeout=LIMIT)  # receivers of what is derived count
        with pytest.raises(ParameterRefused, match="is at most 60, not 70"):
            camera.parameters.set(rate=70.0, by="me", timeout=LIMIT)
        assert rate_of(camera) == (2.0, "me")
    with open_station(name="alone") as station, pytest.raises(NoParameters):
        station.channel("camera", Frame).parameters.set(rate=2.0, timeout=0.1)


def test_what_a_killed_setter_wanted_holds_for_the_lease_and_its_next_life_takes_it_up() -> None:
    with running("source") as source, open_station(name="watcher") as station:
        source.says("declared")
        camera = station.channel("camera", Frame)
        with (
            running("setter", "display", "display-1", "5") as first,
            running("setter", "display", "display-1", "6") as second,
        ):
            second.says("ready")
            sets(first)
            camera.subscribe(lambda _: None)
            with pytest.raises(ParameterRefused, match="which is there"):
                camera.parameters.set(rate=7.0, by="display-1", timeout=LIMIT)
            first.kill()
            assert wait_until(lambda: camera.parameters.get(LIMIT)["rate"].requests[0].lapses)
            sets(second)
            assert wait_until(lambda: rate_of(camera) == (6.0, "display-1"))
            assert not any(line == "changed rate 10.0" for line in source.said), source.said
            second.kill()
        assert source.says("changed rate 10.0")
        assert rate_of(camera) == (10.0, None)


def test_a_source_that_was_killed_hears_again_what_was_set() -> None:
    with open_station(name="display") as station:
        camera = station.channel("camera", Frame)
        camera.subscribe(lambda _: None)
        with running("source") as source:
            source.says("declared")
            camera.parameters.set(rate=3.0, region="north", by="display-1", timeout=LIMIT)
            source.says("changed region north")
            source.kill()
        with running("source") as source:
            source.says("changed rate 3.0")
            source.says("changed region north")
            camera.parameters.unset("rate", "region", by="display-1", timeout=LIMIT)
            source.says("changed rate 10.0")


def test_what_was_set_lapses_when_the_channel_is_closed_and_its_setter_takes_it_up_by_opening_it() -> None:
    with running("source") as source, open_station(name="display") as station:
        source.says("declared")
        camera = station.channel("camera", Frame)
        camera.subscribe(lambda _: None)
        camera.parameters.set(rate=30.0, by="me", timeout=LIMIT)
        source.says("changed rate 30.0")
        camera.close()
        camera = station.channel("camera", Frame)
        camera.subscribe(lambda _: None)
        camera.parameters.set(rate=20.0, by="me", timeout=LIMIT)
        (request,) = camera.parameters.get(LIMIT)["rate"].requests
        assert (request.value, request.lapses) == (20.0, False)
        source.says("changed rate 20.0")
        camera.close()
        camera = station.channel("camera", Frame)
        assert wait_until(lambda: rate_of(camera) == (10.0, None))
