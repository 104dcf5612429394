"""Filters of suppliers and of admins, and publications."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.selection import conditions_for
from heliograph.errors import (
    ExpressionError,
    InvalidEvent,
    NotPossible,
    UnknownOption,
    WrongEventType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.testing import Rig


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Weather(hg.Event, name="air.weather"):
    wind: float = 0.0


@pytest.fixture(params=["volatile", "persistent"])
def air(helio: Rig, request: pytest.FixtureRequest) -> hg.Channel[Any]:
    return helio.station.channel("air", Track, Weather, qos=hg.QoS(durability=request.param))


def seen_by(channel: hg.Channel[Any]) -> list[Any]:
    seen: list[Any] = []
    channel.subscribe(seen.append)
    return seen


def points(channel: hg.Channel[Any], where: str) -> dict[str, tuple[Any, Any]]:
    """The four filter points: (how to push, how to receive) with a filter at that point alone."""
    return {
        "supplier": (channel.supplier(where=where).push, channel.subscribe),
        "supplier admin": (channel.for_suppliers(where=where).supplier().push, channel.subscribe),
        "consumer admin": (channel.push, channel.for_consumers(where=where).subscribe),
        "consumer": (channel.push, lambda callback: channel.subscribe(callback, where=where)),
    }


@pytest.mark.parametrize("point", ["supplier", "supplier admin", "consumer admin", "consumer"])
def test_a_filter_at_each_point_alone_stops_an_event(helio: Rig, air: hg.Channel[Any], point: str) -> None:
    push, receive = points(air, "speed > 300")[point]
    seen: list[Any] = []
    receive(seen.append)
    assert push(Track(1, 200.0))
    assert push(Track(2, 400.0))
    helio.settle()
    assert seen == [Track(2, 400.0)]


def test_every_way_to_push_is_filtered_and_counted(helio: Rig, air: hg.Channel[Any]) -> None:
    seen = seen_by(air)
    supplier = air.supplier("radar", where="speed > :least", params={"least": 300})
    supplier.push(Track(1))
    assert supplier.push_nowait(Track(2)).result()
    asyncio.run(supplier.apush(Track(3)))
    supplier.push_many([Track(4), Track(5, 400.0), Track(6)])
    supplier.push(Track(7), deliver_after=1.0)
    supplier.push(Track(8, 500.0), deliver_after=1.0)
    helio.clock.advance(1)
    helio.settle()
    assert seen == [Track(5, 400.0), Track(8, 500.0)]
    assert supplier.filtered == 6
    with pytest.raises(NotPossible, match="no header"):
        supplier.push_nowait(Track(9)).header  # noqa: B018 - it raises


@pytest.mark.parametrize("track", [Track(1), Track(1, 400.0)], ids=["stopped", "let through"])
@pytest.mark.parametrize(
    ("said", "error"),
    [({"bogus": 1}, UnknownOption), ({"priority": 99}, InvalidEvent), ({"deliver_after": -1}, InvalidEvent)],
)
def test_what_a_push_cannot_say_is_refused_also_of_what_is_stopped(
    air: hg.Channel[Any], track: Track, said: dict[str, Any], error: type[Exception]
) -> None:
    supplier = air.supplier("radar", where="speed > 300")
    with pytest.raises(error):
        supplier.push(track, **said)
    with pytest.raises(error):
        supplier.push_nowait(track, **said)
    with pytest.raises(error):
        asyncio.run(supplier.apush(track, **said))
    assert supplier.filtered == 0


@pytest.mark.parametrize("track", [Track(1), Track(1, 400.0)], ids=["stopped", "let through"])
def test_a_time_limit_is_for_pushes_that_wait_for_the_disk(helio: Rig, track: Track) -> None:
    """Of what is stopped as well: a mistake does not wait for the first event that passes."""
    suppliers: dict[str, Any] = {
        durability: helio.station.channel(durability, Track, qos=hg.QoS(durability=durability)).supplier(
            where="speed > 300"
        )
        for durability in ("volatile", "persistent")
    }
    assert suppliers["persistent"].push(track, timeout=5.0)
    with pytest.raises(NotPossible, match="timeout"):
        suppliers["persistent"].push(track, timeout=-1)
    for push in (suppliers["volatile"].push, suppliers["persistent"].push_nowait):
        with pytest.raises(UnknownOption):
            push(track, timeout=5.0)


def test_what_is_stopped_takes_no_sequence(helio: Rig, air: hg.Channel[Any]) -> None:
    headers: list[hg.Header] = []
    air.subscribe(lambda _, header: headers.append(header))
    supplier = air.supplier(where="id > 1")
    for i in range(4):
        supplier.push(Track(i))
    helio.settle()
    assert [header.sequence for header in headers] == [1, 2]


def test_a_publication_refuses_what_was_not_declared(air: hg.Channel[Any]) -> None:
    radar = air.supplier("radar", types=[Track])
    assert radar.push(Track(1))
    with pytest.raises(WrongEventType, match=r"air\.track"):
        radar.push(Weather())
    with pytest.raises(InvalidEvent):
        radar.push(Track("one"))  # type: ignore[arg-type]  # on purpose
    assert air.stats().pushed == 1


def test_a_filter_about_other_fields_lets_nothing_of_a_type_through(helio: Rig, air: hg.Channel[Any]) -> None:
    seen = seen_by(air)
    both = air.supplier(where="wind > 1.0")
    both.push(Track(1))
    both.push(Weather(2.0))
    helio.settle()
    assert seen == [Weather(2.0)]


def test_an_admin_changes_the_filter_of_all_it_opened(helio: Rig, air: hg.Channel[Any]) -> None:
    seen: list[Any] = []
    consumers = air.for_consumers(where="id > 0")
    receiver = consumers.subscribe(seen.append, where="speed > 100")
    consumers.subscribe(print).close()
    suppliers = air.for_suppliers(where="speed < 500")
    radar = suppliers.supplier()
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: consumers.change(where="id > 1"),
        suppliers.change,
    ]
    for change in changes:
        change()
        for track in (Track(1, 200.0), Track(2, 200.0), Track(3, 600.0), Track(4, 50.0)):
            radar.push(track)
        helio.settle()
    assert [track.id for track in seen] == [1, 2, 2, 2, 3]
    consumers.close()
    suppliers.close()
    assert receiver.name not in air.stats().consumers
    with pytest.raises(hg.Closed):
        radar.push(Track(1))


def test_a_filter_that_changes_during_a_push_is_the_new_one_for_the_next(
    helio: Rig, air: hg.Channel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first push of a type compiles the filter; one that replaces it meanwhile must not be forgotten."""
    seen = seen_by(air)
    suppliers = air.for_suppliers(where="id > 0")
    radar = suppliers.supplier()

    def compiled_late(*asked: Any) -> Any:
        monkeypatch.undo()
        found = conditions_for(*asked)
        suppliers.change(where="id < 0")
        return found

    monkeypatch.setattr("heliograph.channel.admin.conditions_for", compiled_late)
    for i in (1, 2, -3):
        radar.push(Track(i))
    helio.settle()
    assert seen == [Track(1), Track(-3)]
    assert radar.filtered == 1


def test_a_filter_that_changes_while_a_receiver_is_opened_is_its_filter_too(
    helio: Rig, air: hg.Channel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, seen = air.for_consumers(where="id > 1"), list[int]()
    subscribe = air.subscribe

    def subscribe_meanwhile(*given: Any, **options: Any) -> Any:
        receiver = subscribe(*given, **options)
        admin.change(where="id > 5")
        return receiver

    monkeypatch.setattr(air, "subscribe", subscribe_meanwhile)
    admin.subscribe(lambda track: seen.append(track.id), where="id < 9")
    air.push_many([Track(n) for n in range(12)])
    helio.settle()
    assert seen == [6, 7, 8]


@pytest.mark.parametrize(
    ("own", "error"), [({"where": "wind > 1.0"}, ExpressionError), ({"group": "displays"}, NotPossible)]
)
def test_when_one_receiver_cannot_have_a_filter_all_keep_the_one_before(
    helio: Rig, air: hg.Channel[Any], own: dict[str, Any], error: type[Exception]
) -> None:
    consumers = air.for_consumers()
    seen: dict[str, list[Any]] = {name: [] for name in ("first", "last", "later")}
    consumers.subscribe(seen["first"].append)
    refusing = consumers.consumer(**own)
    consumers.subscribe(seen["last"].append)
    with pytest.raises(error):
        consumers.change(where="speed > 300")
    consumers.subscribe(seen["later"].append)
    air.push(Track(1))
    helio.settle()
    assert all(tracks == [Track(1)] for tracks in seen.values())
    refusing.close()
    consumers.change(where="speed > 300")
    air.push(Track(2))
    air.push(Track(3, 400.0))
    helio.settle()
    assert all(tracks == [Track(1), Track(3, 400.0)] for tracks in seen.values())


def test_what_is_closed_is_not_held_by_its_admin(air: hg.Channel[Any]) -> None:
    suppliers, consumers = air.for_suppliers(), air.for_consumers()
    with suppliers.supplier(), consumers.consumer(), consumers.subscribe(print):
        member = consumers.subscribe(print, group="printers", ack="auto")
        assert len(suppliers._suppliers) == 1
        assert len(consumers._receivers) == 3
        air.unsubscribe(print)
        assert len(consumers._receivers) == 1
    assert not suppliers._suppliers
    assert not consumers._receivers
    member.close()


def test_consumers_of_an_admin_can_be_asked_and_decorated(helio: Rig, air: hg.Channel[Any]) -> None:
    admin = air.for_consumers(types=[Track], sources=["radar", "sonar"])
    consumer = admin.consumer(sources=["radar"])
    seen: list[int] = []

    @admin.subscribe(where="id > 1")
    def on_track(track: Track) -> None:
        seen.append(track.id)

    for name in ("radar", "sonar", "lidar"):
        with air.supplier(name) as supplier:
            supplier.push(Track(len(name)))
            supplier.push(Weather())
    helio.settle()
    assert consumer.pull(1.0) == Track(5)
    assert consumer.pull(0) is None
    assert seen == [5, 5]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"where": "no_such > 1"}, ExpressionError),
        ({"where": "speed >"}, ExpressionError),
        ({"where": "header.priority = 3"}, NotPossible),
        ({"types": [hg.DeliveryRecord]}, WrongEventType),
        ({"sources": ["radar"]}, UnknownOption),
    ],
)
def test_a_mistake_fails_where_it_is_written(
    air: hg.Channel[Any], said: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        air.supplier("radar", **said)
    with pytest.raises(error):
        air.for_suppliers(**said)
    assert air.supplier("radar").filtered == 0


def test_consumers_whom_a_supplier_does_not_serve_are_not_in_its_way(helio: Rig) -> None:
    """No lock is taken and no filter evaluated for those who listen to others only."""
    air = helio.station.channel("air", Track)
    radar, sonar = air.supplier("radar"), air.supplier("sonar")
    for i in range(5):
        air.subscribe(lambda _: None, where="speed / id > :least", params={"least": i}, sources=["ghost"])
    assert not radar.entry.routes[Track].has_queue
    air.subscribe(lambda _: None, sources=["radar"], where="id > 1")
    assert radar.entry.routes[Track].has_queue
    assert not sonar.entry.routes[Track].has_queue
    late = air.supplier("late")
    assert not late.entry.routes[Track].has_queue
    assert late.entry.routes is sonar.entry.routes
    air.subscribe(lambda _: None)
    assert sonar.entry.routes[Track].always is not None
    assert radar.entry.routes[Track].always is None
