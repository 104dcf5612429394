"""Mistakes of the first hour: each is refused where it is written, and the sentence says what to write."""

from __future__ import annotations

import pickle
import re
import threading
from typing import TYPE_CHECKING, Any, Literal

import pytest

import heliograph as hg
from heliograph.channel.publish.store_sink import MANY
from heliograph.errors import WrongEventType
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heliograph.testing import Rig


class Reading(hg.Event, name="mistakes.reading"):
    value: int


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda c: c.push({"value": 1}), "no event; write Reading(**fields)"),
        (lambda c: c.push(7), "no event; write Reading(...)"),
        (lambda c: c.push(Reading(1), timeout=1.0), "elsewhere QoS(max_blocking=...)"),
        (lambda c: hg.all_of(a=c, withn=2), "did you mean within=?"),
        (lambda _: hg.QoS(queue=0), "from 1 to 2,147,483,648"),
        (
            lambda c: hg.none_of(a=c, within=1.0, by="value"),
            "for the all_of around it, hg.all_of(first=..., rest=hg.none_of(...), within=..., by='value')",
        ),
        (lambda c: hg.any_of(a=c, within=1.0), "hg.all_of(first=..., rest=hg.any_of(...), within=1.0)"),
        (lambda c: c.subscribe(print, where=lambda e: e.value > 1), 'hg.col("speed") > 300'),
        (lambda c: c.consumer(where=lambda e: e.value > 1), "not a function that only this process has"),
        (lambda c: c.where(lambda e: e.value > 1), "where= is text"),
        (lambda c: c.subscribe(print, where="value = :v", params={"v": [1]}), "but after IN: x IN :v"),
        (pickle.dumps, "station.channel('readings', ...) there"),
    ],
)
def test_the_sentence_says_what_to_write(mistake: Callable[[Any], object], sentence: str) -> None:
    with hg.Station() as station:
        readings = station.channel("readings", Reading)
        with pytest.raises(hg.HeliographError, match=re.escape(sentence)):
            mistake(readings)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda s: s.subscribe("air.*", print, where=lambda e: True), "where= is text"),
        (lambda s: s.subscribe("air.*", print, where="value >"), "value >"),
        (pickle.dumps, "open one where it is needed: hg.Station(domain=...)"),
    ],
)
def test_a_station_says_what_to_write(mistake: Callable[[Any], object], sentence: str) -> None:
    with hg.Station() as station, pytest.raises(hg.HeliographError, match=re.escape(sentence)):
        mistake(station)


def test_a_callback_without_an_argument_is_refused_where_it_is_written() -> None:
    with hg.Station() as station:
        readings = station.channel("readings", Reading)
        for subscribe in (readings.subscribe, lambda call: station.subscribe("other.*", call)):
            with pytest.raises(TypeError, match=r"called with the event; write `lambda event: ...`, or"):
                subscribe(lambda: None)
        with pytest.raises(TypeError, match=r"called with the match; write `lambda match: ...`"):
            station.subscribe(hg.all_of(a=readings, b=readings), lambda: None)  # type: ignore[arg-type,misc] # the mistake


def test_a_list_is_what_in_looks_into(helio: Rig) -> None:
    readings = helio.station.channel("readings", Reading)
    got: dict[str, list[int]] = {"in": [], "not in": [], "nothing": [], "not nothing": [], "beside": []}
    for name, where, ids in [
        ("in", "value IN :ids", [1, 3]),
        ("not in", "value NOT IN (:ids)", {1, 3}),
        ("nothing", "value IN :ids", []),
        ("not nothing", "value NOT IN :ids", ()),
        ("beside", "value IN (0, :ids)", range(2, 4)),
    ]:
        readings.subscribe(lambda e, to=got[name]: to.append(e.value), where=where, params={"ids": ids})
    readings.push_many([Reading(n) for n in range(5)])
    helio.settle()
    assert got == {
        "in": [1, 3],
        "not in": [0, 2, 4],
        "nothing": [],
        "not nothing": [0, 1, 2, 3, 4],
        "beside": [0, 2, 3],
    }
    with pytest.raises(hg.ExpressionError, match=r"at most 4,096 values"):
        readings.subscribe(print, where="value IN :ids", params={"ids": range(5000)})


def test_a_tilde_is_the_home_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with hg.Station("~/data"):
        assert (tmp_path / "data" / "channels").is_dir()
    with pytest.raises(hg.NotPossible, match=r"no user 'nobody-of-that-name'.*'\./~nobody-of-that-name/x'"):
        hg.Station("~nobody-of-that-name/x")
    assert not list(tmp_path.glob("~*"))


def test_a_plain_type_is_a_field_and_no_event() -> None:
    with hg.Station() as station, pytest.raises(hg.FormatError, match="value: int"):
        station.channel("readings", int)  # type: ignore[type-var] # the mistake


def test_a_domain_is_a_text_and_a_configuration_a_file() -> None:
    with pytest.raises(hg.NotPossible, match="domain 5"):
        hg.Station(domain=5)  # type: ignore[arg-type] # the mistake
    with pytest.raises(hg.NotPossible, match="path of a TOML file"):
        hg.Station(config={"channels": {}})  # type: ignore[arg-type] # the mistake


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"folder": 5}, "folder=5: .*a path"),
        ({"folder": ""}, "folder='': .*a path"),
        ({"name": 5}, "name=5: .*text"),
        ({"priority": 9}, "priority=9: .*1 .low. to 5"),
        ({"priority": "high"}, "priority='high': .*1 .low. to 5"),
        ({"on_error": "x"}, "on_error='x': .*a function of"),
    ],
)
def test_what_no_station_could_be_is_refused_by_name(said: dict[str, Any], named: str) -> None:
    with pytest.raises(hg.NotPossible, match=named):
        hg.Station(**said)


def test_several_events_are_pushed_together_and_sources_are_names() -> None:
    with hg.Station() as station:
        channel = station.channel("readings", Reading)
        with pytest.raises(hg.NotPossible, match=r"push\(\) takes one"):
            channel.push_many(Reading(1))
        with pytest.raises(hg.NotPossible, match="sources=5"):
            channel.consumer(sources=[5])  # type: ignore[list-item] # the mistake


@pytest.mark.parametrize("ack", ["memory", "delivered"])
def test_a_full_queue_says_which_events_of_a_batch_to_push_again(ack: Literal["memory", "delivered"]) -> None:
    with hg.Station() as station:
        channel = station.channel("readings", Reading, qos=hg.QoS(ack=ack, queue=3, max_blocking=0.01))
        with channel.consumer(), pytest.raises(hg.QueueFull, match=r"first 3 .* push \[3:\] again") as full:
            channel.push_many([Reading(i) for i in range(5)])
        assert full.value.pushed == 3


KINDS_OF_CHANNELS = {
    "plain": {},
    "kept": {"durability": "persistent"},
    "watched": {"ack": "delivered"},
    "kept and watched": {"durability": "persistent", "ack": "delivered"},
}


@pytest.mark.parametrize("kind", KINDS_OF_CHANNELS)
def test_an_event_that_does_not_fit_is_named_by_its_place_and_none_of_its_batch_is_pushed(
    helio: Rig, kind: str
) -> None:
    channel = helio.station.channel("readings", Reading, qos=hg.QoS(**KINDS_OF_CHANNELS[kind]))  # type: ignore[arg-type] # each has its own type
    # More than a journal keeps together, so that those before it would be in line already.
    batch: list[Any] = [Reading(n) for n in range(MANY + 3)]
    batch[MANY + 1] = Reading("one")  # type: ignore[arg-type] # the mistake
    with pytest.raises(hg.InvalidEvent, match=rf"\[{MANY + 1}\] of the batch, .* none is pushed") as invalid:
        channel.push_many(batch)
    assert invalid.value.index == MANY + 1
    batch[MANY + 1] = "one"
    with pytest.raises(WrongEventType, match=rf"\[{MANY + 1}\] of the batch, .* none is pushed") as wrong:
        channel.push_many(batch)
    assert wrong.value.index == MANY + 1
    with pytest.raises(WrongEventType, match=r"\[0\] of the batch"):
        channel.push_many(["one"])
    assert channel.stats().pushed == 0
    channel.push(Reading(1))
    assert channel.stats().pushed == 1


def test_a_row_of_columns_that_does_not_fit_is_named_by_its_place_too() -> None:
    class Strict(hg.Event, name="mistakes.strict", strict=True):
        value: int

    with hg.Station() as station:
        for cls in (Reading, Strict):
            channel: hg.Channel[Any] = station.channel(cls.__name__, cls)
            with pytest.raises(hg.InvalidEvent, match=r"\[2\] of the batch"):
                channel.push_many({"value": [1, 2, "three", 4]})
            assert channel.stats().pushed == 0


def test_a_filter_of_a_supplier_counts_nothing_of_a_batch_that_does_not_fit() -> None:
    with hg.Station() as station:
        supplier = station.channel("readings", Reading).supplier(where="value > 5")
        with pytest.raises(hg.InvalidEvent, match=r"\[1\] of the batch"):
            supplier.push_many([Reading(1), Reading("one")])  # type: ignore[arg-type] # the mistake
        assert supplier.filtered == 0
        supplier.push_many([Reading(1), Reading(9)])
        assert (supplier.filtered, supplier.pushed) == (1, 1)


def test_a_configuration_file_cannot_have_a_carrier_without_a_domain_either(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('[station]\ntransport = "ring"\n')
    with pytest.raises(hg.NotPossible, match="add domain="):
        hg.Station(config=file)


def test_what_a_callback_has_in_hand_when_closing_gives_up_is_counted_as_what_becomes_of_it() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_: Reading) -> None:
        begun.set()
        assert goes_on.wait(10)

    station = hg.Station()
    readings = station.channel("readings", Reading)
    readings.subscribe(slow, name="slow")
    readings.push_many([Reading(n) for n in range(3)])
    assert begun.wait(10)
    assert station.close(timeout=0) == {"readings/slow": 3}
    goes_on.set()
    assert wait_until(lambda: readings.stats().total.pending == 0)
    assert (readings.stats().total.delivered, readings.stats().total.dropped) == (1, {"closed": 2})


def test_a_misspelled_field_is_named_where_an_event_is_built_or_read() -> None:
    with pytest.raises(TypeError, match="'valu_e'"):
        Reading(valu_e=1)  # type: ignore[call-arg]  # the mistake
    with pytest.raises(hg.InvalidEvent, match=r"its fields are: value \(at \$\.valu_e\)"):
        Reading.from_json('{"valu_e": 1}')
