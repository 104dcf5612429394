"""Why somebody gets an event, and why somebody else does not."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.explain import KINDS
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.testing import Rig


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Weather(hg.Event, name="air.weather"):
    wind: float = 0.0


@pytest.fixture(params=["volatile", "persistent"])
def air(helio: Rig, request: pytest.FixtureRequest) -> hg.Channel[Any]:
    return helio.station.channel("air", Track, Weather, qos=hg.QoS(durability=request.param))


@pytest.mark.parametrize(
    ("speed", "stopped_at"),
    [
        (50.0, "supplier filter"),
        (150.0, "supplier admin filter"),
        (250.0, "consumer admin filter"),
        (350.0, "consumer filter"),
        (450.0, None),
    ],
)
def test_an_event_has_no_step_behind_the_one_that_stopped_it(
    helio: Rig, air: hg.Channel[Any], speed: float, stopped_at: str | None
) -> None:
    """Four filters, each a little narrower than the one before, and what really happens."""
    radar = air.for_suppliers(where="speed > 200").supplier("radar", where="speed > 100")
    seen: list[Track] = []
    air.for_consumers(where="speed > 300").subscribe(seen.append, where="speed > 400", name="display")
    steps = radar.explain(Track(1, speed)).steps
    assert [s.kind for s in steps] == list(KINDS[: KINDS.index(stopped_at) + 1 if stopped_at else None])
    assert [step.passed for step in steps] == [step.kind != stopped_at for step in steps]
    assert seen == []
    radar.push(Track(1, speed))
    helio.settle()
    assert len(seen) == (stopped_at is None)


def test_it_says_so_in_words(air: hg.Channel[Any]) -> None:
    air.subscribe(lambda _: None, types=[Weather], name="storms")
    air.subscribe(lambda _: None, sources=["sonar"], name="boats")
    air.subscribe(lambda _: None, where="speed > :least", params={"least": 300}, name="fast")
    air.subscribe(lambda _: None, priority=5, name="alarm")
    explained = air.explain(Track(1, 200.0))
    assert str(explained).splitlines() == [
        "lookup           storms  wants no events of this type",
        "lookup           boats   listens to other suppliers",
        "lookup           fast    found",
        "consumer filter  fast    stopped",
        "lookup           alarm   found",
        "dispatch         alarm   queued at priority 5",
    ]
    assert explained.reaches == ("alarm",)
    assert air.stats().pushed == 0


def test_what_a_group_and_a_separation_may_yet_decide_is_said() -> None:
    with hg.Station() as station:
        air = station.channel("air", Track)
        air.subscribe(lambda _: None, group="crew", name="anna")
        air.subscribe(lambda _: None, separation=2.0, name="slow")
        steps = air.explain(Track(1, 200.0)).steps
    assert [step.detail for step in steps if step.kind == "dispatch"] == [
        "queued at priority 3, or another of group 'crew'",
        "queued at priority 3, unless another came within 2 s",
    ]


def test_filters_of_the_configuration_are_steps_too(tmp_path: Path) -> None:
    file = tmp_path / "helio.toml"
    file.write_text("""[channel.air]\nfilters = { suppliers = "speed > 200", consumers = "speed > 300" }""")
    with hg.Station(config=file) as station:
        air = station.channel("air", Track)
        air.for_consumers().subscribe(lambda _: None, name="display")
        radar = air.for_suppliers(where="speed > 100").supplier()
        last = [radar.explain(Track(1, speed)).steps[-1].kind for speed in (50.0, 150.0, 250.0, 350.0)]
    assert last == [KINDS[1], KINDS[1], KINDS[3], "dispatch"]


def test_a_changed_filter_is_the_one_that_is_asked(air: hg.Channel[Any]) -> None:
    admin = air.for_consumers(where="speed > 300")
    admin.subscribe(lambda _: None, name="display")
    assert air.explain(Track(1, 200.0)).reaches == ()
    admin.change(where="speed > 100")
    assert air.explain(Track(1, 200.0)).reaches == ("display",)


def test_filters_may_ask_for_the_header(air: hg.Channel[Any]) -> None:
    air.subscribe(lambda _: None, where="header.supplier = 'radar' AND header.sequence = 2", name="second")
    with air.supplier("radar") as radar:
        assert radar.explain(Track(1)).reaches == ()
        radar.push(Track(1))
        assert radar.explain(Track(1)).reaches == ("second",)


def test_it_raises_what_a_push_would_raise(air: hg.Channel[Any]) -> None:
    with pytest.raises(hg.InvalidEvent):
        air.explain(Track("one"))  # type: ignore[arg-type]  # on purpose
    with air.supplier("radar", types=[Track]) as radar, pytest.raises(hg.WrongEventType):
        radar.explain(Weather())


def test_the_generated_code_of_a_channel_can_be_seen_under_its_names_in_tracebacks(
    air: hg.Channel[Any],
) -> None:
    air.subscribe(lambda _: None, where="speed > 300", types=[Track], name="fast")
    code = air.explain(code=True)
    by_kind = {(one.event_type, one.kind): one for one in code.functions}
    assert {kind for _, kind in by_kind} >= {"push", "route", "filter of fast", "check"}
    assert {name for name, _ in by_kind} == {"air.track", "air.weather"}
    push = by_kind["air.track", "push"]
    assert "def push(event" in push.text
    assert "event.speed" in by_kind["air.track", "filter of fast"].text
    assert 300.0 in map(_number, by_kind["air.track", "filter of fast"].values.values())
    for one in code.functions:
        assert f"# {one.event_type}, {one.kind}: {one.file}\n" in str(code)
        assert one.text in str(code)
    only = air.explain(Weather(), code=True)
    assert {one.event_type for one in only.functions} == {"air.weather"}


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "").isdigit() else None


def test_a_traceback_names_a_file_that_explain_shows(helio: Rig) -> None:
    air = helio.station.channel("air", Track)
    frames: list[str] = []
    air.subscribe(
        lambda _: frames.extend(f.filename for f in traceback.extract_stack()), inline=True, name="curious"
    )
    air.push(Track(1))
    generated = {name for name in frames if name.startswith("<heliograph")}
    assert generated
    assert generated <= {one.file for one in air.explain(code=True).functions}


def test_explain_without_an_event_says_what_it_takes(air: hg.Channel[Any]) -> None:
    with pytest.raises(hg.NotPossible, match="takes an event, or code=True"):
        air.explain()  # type: ignore[call-overload] # a mistake
    with pytest.raises(hg.WrongEventType):
        air.explain(Other(), code=True)


class Other(hg.Event, name="air.other"):
    n: int = 0


def test_a_named_function_can_be_given_another_filter(helio: Rig) -> None:
    """On a persistent channel, where a durable consumer stands behind it."""
    air = helio.station.channel("air", Track, qos=hg.QoS(durability="persistent"))
    seen: list[int] = []
    subscription = air.subscribe(lambda track: seen.append(track.id), where="speed > 300", name="display")
    air.push(Track(1, 200.0))
    subscription.change(where="speed > 100")
    assert air.explain(Track(2, 200.0)).reaches == ("display",)
    air.push(Track(2, 200.0))
    air.push(Track(3, 50.0))
    air.push(Track(4, 400.0))
    assert wait_until(lambda: seen == [2, 4])
