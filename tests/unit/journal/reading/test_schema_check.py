"""Whether event classes have a place in a history, by what it holds already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import IncompatibleFormats
from heliograph.journal.reading.schema_check import check_classes
from heliograph.journal.station_folder import Keeping
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")
SEALED = hg.Limits(head_events=1)


class Text(hg.Event, name="order", key="id"):
    id: int
    symbol: str


class Number(hg.Event, name="order", key="id"):
    id: int
    symbol: int


class Renamed(hg.Event, name="order", key="id"):
    id: int
    ticker: str


class OtherKey(hg.Event, name="order"):
    id: int
    symbol: str


class Added(hg.Event, name="order", key="id"):
    id: int
    symbol: str
    size: int = 0


class Demanding(hg.Event, name="order", key="id"):
    id: int
    symbol: str
    size: int


class Removed(hg.Event, name="order", key="id"):
    id: int


class Wide(hg.Event, name="order", key="id"):
    id: int
    size: int
    note: str = ""


class Narrow(hg.Event, name="order", key="id"):
    id: int
    size: hg.i32


class Elsewhere(hg.Event, name="trade"):
    id: int


def keep(folder: Path, *events: hg.Event, limits: hg.Limits | None = None) -> None:
    with hg.Station(folder, journal=limits) as station:
        station.channel("desk", type(events[0]), qos=PERSISTENT).push_many(list(events))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keep_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a program did that compared nothing."""
    keep(folder, Text(1, "SAP"))
    with monkeypatch.context() as patched:
        patched.setattr(Keeping, "check_types", lambda *_: None)
        keep(folder, Number(2, 5))


@pytest.mark.parametrize("wrong", [Number, Renamed, OtherKey])
@pytest.mark.parametrize("limits", [None, SEALED])
def test_a_class_that_does_not_go_together_with_a_history_is_refused_and_nothing_is_written(
    tmp_path: Path, wrong: type[hg.Event], limits: hg.Limits | None
) -> None:
    keep(tmp_path, Text(1, "SAP"), Text(2, "IBM"), limits=limits)
    with hg.Station(tmp_path) as station:
        before = files(tmp_path)
        with pytest.raises(
            IncompatibleFormats, match=r"^desk: .*another name=, or a field that fits"
        ) as refused:
            station.channel("desk", wrong)
        assert files(tmp_path) == before
        assert refused.value.problems
        assert refused.value.channel == "desk"
        orders = station.channel("desk", Text)
        assert [order.id for order in orders.consumer(until="now")] == [1, 2]


def test_the_sentence_names_the_field_and_both_types(tmp_path: Path) -> None:
    keep(tmp_path, Text(1, "SAP"))
    with hg.Station(tmp_path) as station, pytest.raises(IncompatibleFormats) as refused:
        station.channel("desk", Number)
    assert str(refused.value) == (
        "desk: its history holds events 'order' that do not go together with this class: $.symbol: str "
        "of the writer cannot be read as i64: it is another type; give the class another name=, or "
        "a field that fits"
    )


def test_a_class_that_is_added_to_an_open_channel_is_compared_too(tmp_path: Path) -> None:
    keep(tmp_path, Text(1, "SAP"))
    with hg.Station(tmp_path) as station:
        orders: hg.Channel[Any] = station.channel("desk", Elsewhere)
        with pytest.raises(IncompatibleFormats):
            station.channel("desk", Number)
        assert station.channel("desk", Text) is orders
        assert orders.push(Text(2, "IBM"))


@pytest.mark.parametrize(
    ("kept", "opened"),
    [
        (Text(1, "SAP"), Added),
        (Added(1, "SAP"), Text),
        (Text(1, "SAP"), Demanding),
        (Demanding(1, "SAP", 2), Text),
        (Text(1, "SAP"), Removed),
        (Narrow(1, 2), Wide),
        (Wide(1, 2), Narrow),
        (Text(1, "SAP"), Elsewhere),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else type(one).__name__,
)
@pytest.mark.parametrize("missing", ["default", "refuse"])
def test_versions_that_go_together_open_a_history(
    tmp_path: Path, kept: hg.Event, opened: type[hg.Event], missing: Any
) -> None:
    keep(tmp_path, kept)
    with hg.Station(tmp_path) as station:
        qos = hg.QoS(durability="persistent", missing=missing)
        assert station.channel("desk", opened, qos=qos).types == (opened,)


def test_where_both_are_kept_each_class_is_given_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_both(tmp_path, monkeypatch)
    for cls, own in ((Text, [Text(1, "SAP")]), (Number, [Number(2, 5)])):
        caplog.clear()
        with hg.Station(tmp_path) as station:
            orders: hg.Channel[Any] = station.channel("desk", cls)
            assert list(orders.consumer(until="now")) == own
            assert "passed over" in caplog.text
    with hg.Station(tmp_path) as station:
        orders = station.channel("desk", Number)
        seen: list[int] = []
        orders.subscribe(lambda order: seen.append(order.symbol))
        orders.push(Number(3, 6))
        assert orders.settle(20.0)
        assert seen == [5, 6]


def test_where_both_are_kept_a_further_version_of_one_is_taken_and_a_third_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_both(tmp_path, monkeypatch)
    with hg.Station(tmp_path) as station:
        with pytest.raises(IncompatibleFormats):
            station.channel("desk", OtherKey)
        assert list(station.channel("desk", Added).consumer(until="now")) == [Added(1, "SAP")]


def test_a_head_that_is_damaged_is_compared_as_far_as_it_leads(tmp_path: Path) -> None:
    keep(tmp_path, Text(1, "SAP"))
    (head,) = tmp_path.glob("channels/desk/*/heads/*.log")
    place = str(head.parent.parent.relative_to(tmp_path))
    disk = system_ports(tmp_path).disk
    assert disk is not None
    whole = head.read_bytes()
    with pytest.raises(IncompatibleFormats):
        check_classes(disk, place, "desk", (Number,))
    for damaged in (whole.replace(b"HgFr", b"HgFx"), whole[:70], b""):
        head.write_bytes(damaged)
        check_classes(disk, place, "desk", (Number,))
