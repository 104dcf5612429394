"""Versions of a class that meet through a station that keeps their channel, or that has no class at all."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.batch import OutgoingBatch
from heliograph.links.history.client import RemotePartition
from heliograph.model.event import Header
from tests.e2e.event_versions import (
    AddedNew,
    AddedOld,
    ApartNew,
    ApartOld,
    DroppedNew,
    DroppedOld,
    ExtendedNew,
    ExtendedOld,
    NewMode,
    OldMode,
)
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

KEPT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def open_keeper(folder: Path, *classes: type[hg.Event]) -> hg.Station:
    """A station that keeps `x` with these classes, or without any what others ask for."""
    keeper = hg.Station(folder, domain="v", name="keeper")
    if classes:
        keeper.channel("x", *classes, qos=KEPT)
    else:
        keeper.keep_for_others()
    return keeper


def opened(station: hg.Station, *classes: type[hg.Event]) -> hg.Channel[Any]:
    return station.channel("x", *classes, qos=KEPT)


@pytest.mark.parametrize("kept_in", [(), (ExtendedOld,), (ExtendedNew,)])
@pytest.mark.parametrize("live", [False, True])
def test_a_durable_consumer_stops_at_what_it_cannot_read_and_goes_on_there_when_it_can(
    tmp_path: Path, kept_in: tuple[type[hg.Event], ...], live: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "heliograph")
    told: list[tuple[str, str]] = []
    with (
        open_keeper(tmp_path / "data", *kept_in),
        hg.Station(domain="v", name="old", on_error=lambda who, _, e: told.append((who, str(e)))) as one,
        hg.Station(domain="v", name="new") as other,
    ):
        old, new = opened(one, ExtendedOld), opened(other, ExtendedNew)
        consumer = old.consumer(name="billing") if live else None
        assert old.push(ExtendedOld(1, OldMode.A))
        if consumer is not None:
            assert consumer.pull(LIMIT) == ExtendedOld(1, OldMode.A)
        assert new.push(ExtendedNew(2, NewMode.B))
        assert old.push(ExtendedOld(3, OldMode.A))
        if consumer is None:
            consumer = old.consumer(name="billing")
            assert consumer.pull(LIMIT) == ExtendedOld(1, OldMode.A)
        for _ in range(2):
            with pytest.raises(hg.IncompatibleFormats, match="does not know B"):
                consumer.pull(LIMIT)
        consumer.close()
        assert one.mesh is not None
        assert [link.connections for link in one.mesh.stats()] == [1, 1], "no link was lost of it"
        with new.consumer(name="billing") as upgraded:
            assert upgraded.pull(LIMIT) == ExtendedNew(2, NewMode.B)
            assert upgraded.pull(LIMIT) == ExtendedNew(3, NewMode.A)
    ((who, why),) = told
    assert who == "billing"
    assert "does not know B" in why
    assert "Traceback" not in caplog.text, "nobody else was told"


@pytest.mark.parametrize("live", [False, True])
def test_a_consumer_that_waits_is_told_what_it_cannot_read_however_late_that_is_read(
    tmp_path: Path, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, may_answer = Event(), Event()
    read = RemotePartition.read

    def read_late(partition: RemotePartition, start: int, *args: Any, **options: Any) -> Any:
        if start == 1:
            is_asked.set()
            may_answer.wait(LIMIT)
        return read(partition, start, *args, **options)

    with (
        open_keeper(tmp_path / "data", ExtendedNew),
        hg.Station(domain="v", name="old", on_error=lambda *_: None) as one,
        hg.Station(domain="v", name="new") as other,
        ThreadPoolExecutor(1) as threads,
    ):
        old, new = opened(one, ExtendedOld), opened(other, ExtendedNew)
        consumer = old.consumer(name="billing") if live else None
        assert old.push(ExtendedOld(1, OldMode.A))
        if consumer is not None:
            assert consumer.pull(LIMIT) == ExtendedOld(1, OldMode.A)
            assert wait_until(lambda: consumer.pull(0) is None and not consumer.queue._watched)  # type: ignore[union-attr]  # it stays
        monkeypatch.setattr(RemotePartition, "read", read_late)
        assert new.push(ExtendedNew(2, NewMode.B))
        if consumer is None:
            consumer = old.consumer(name="billing")
            assert consumer.pull(LIMIT) == ExtendedOld(1, OldMode.A)
        pulled = threads.submit(consumer.pull, LIMIT / 2)
        assert is_asked.wait(LIMIT)
        assert wait_until(lambda: not consumer.queue._watched), "it waits to be told"
        may_answer.set()
        with pytest.raises(hg.IncompatibleFormats, match="does not know B"):
            pulled.result(LIMIT)


def test_a_push_that_waits_for_acknowledgements_is_not_told_that_of_who_cannot_read(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent", ack="delivered", ack_timeout=0.2, resends=1)
    with (
        hg.Station(tmp_path / "data", domain="v", on_error=lambda *_: None) as keeper,
        hg.Station(domain="v", on_error=lambda *_: None) as other,
    ):
        pushed = keeper.channel("x", ExtendedNew, qos=qos)
        consumer = other.channel("x", ExtendedOld, qos=qos).consumer(name="billing")
        assert pushed.wait_matched(1, LIMIT)
        assert pushed.push(ExtendedNew(1, NewMode.B)) is False
        with pytest.raises(hg.IncompatibleFormats):
            consumer.pull(LIMIT)
        assert pushed.stats().balanced


class Checked(hg.Event, name="v.added"):
    id: int

    def __post_init__(self) -> None:
        if self.id == 2:
            raise ValueError("two")


@pytest.mark.parametrize("live", [False, True])
def test_an_event_that_a_class_refuses_though_its_format_fits_is_not_acknowledged(
    tmp_path: Path, live: bool
) -> None:
    with (
        open_keeper(tmp_path / "data"),
        hg.Station(domain="v", on_error=lambda *_: None) as one,
        hg.Station(domain="v") as other,
    ):
        pushed, checked = opened(other, AddedOld), opened(one, Checked)
        consumer = checked.consumer(name="billing") if live else None
        if live:
            pushed.push_many([AddedOld(number) for number in range(6)])
        else:
            for number in range(6):
                pushed.push(AddedOld(number))
        consumer = consumer or checked.consumer(name="billing")
        assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Checked(0), Checked(1)]
        with pytest.raises(hg.DecodeError, match="two"):
            consumer.pull(LIMIT)
        consumer.close()
        with pushed.consumer(name="billing") as other_class:
            assert [other_class.pull(LIMIT) for _ in range(4)] == [AddedOld(n) for n in range(2, 6)]


def test_a_consumer_that_does_not_want_a_type_is_not_stopped_by_it(tmp_path: Path) -> None:
    with (
        open_keeper(tmp_path / "data"),
        hg.Station(domain="v", on_error=lambda *_: None) as one,
        hg.Station(domain="v") as other,
    ):
        old, new = opened(one, ExtendedOld, AddedOld), opened(other, ExtendedNew, AddedOld)
        both, only = old.consumer(name="both"), old.consumer(name="only", types=[AddedOld])
        for number in range(1, 4, 2):
            assert new.push(ExtendedNew(number, NewMode.B))
            assert new.push(AddedOld(number + 1))
        assert [only.pull(LIMIT), only.pull(LIMIT)] == [AddedOld(2), AddedOld(4)]
        with pytest.raises(hg.IncompatibleFormats):
            both.pull(LIMIT)
        later = old.consumer(types=[AddedOld], until="now")
        assert list(later) == [AddedOld(2), AddedOld(4)]


@pytest.mark.parametrize("kept_in", [(), (ExtendedOld,), (ExtendedNew,)])
@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_what_one_member_of_a_group_cannot_read_goes_to_one_that_can(
    tmp_path: Path, kept_in: tuple[type[hg.Event], ...], ack: Any
) -> None:
    told: list[BaseException] = []
    with (
        open_keeper(tmp_path / "data", *kept_in),
        hg.Station(domain="v", on_error=lambda _, __, error: told.append(error)) as one,
        hg.Station(domain="v") as other,
    ):
        old, new = opened(one, ExtendedOld), opened(other, ExtendedNew)
        assert old.push(ExtendedOld(1, OldMode.A))
        assert new.push(ExtendedNew(2, NewMode.B))
        assert old.push(ExtendedOld(3, OldMode.A))
        with old.consumer(group="crew", ack=ack) as member:
            (first,) = [next(iter(member.deliveries(LIMIT)))]
            assert first.event == ExtendedOld(1, OldMode.A)
            if ack == "manual":
                assert first.ack()
            for _ in range(2):
                with pytest.raises(hg.IncompatibleFormats, match="does not know B"):
                    next(iter(member.deliveries(LIMIT)))
        old.subscribe(lambda _: None, group="crew")
        assert wait_until(lambda: told)
        assert isinstance(told[0], hg.IncompatibleFormats)
        with new.consumer(group="crew", ack=ack) as member:
            got = []
            for delivery in member.deliveries(LIMIT):
                got.append(delivery.event)
                if ack == "manual":
                    delivery.ack()
                if len(got) == 2:
                    break
        assert sorted(event.id for event in got) == [2, 3]
        assert ExtendedNew(2, NewMode.B) in got


def test_a_member_at_the_keeper_gets_events_in_its_own_class_or_leaves(tmp_path: Path) -> None:
    with open_keeper(tmp_path / "data", AddedNew) as keeper, hg.Station(domain="v") as other:
        here, there = opened(keeper, AddedNew), opened(other, AddedOld)
        assert there.push(AddedOld(1))
        assert here.push(AddedNew(2, 0.5))
        with here.consumer(group="crew", where="battery > 0.7") as member:
            assert member.pull(LIMIT) == AddedNew(1, 1.0), "what it lacks has its default"
        with there.consumer(group="all") as member:
            assert [member.pull(LIMIT), member.pull(LIMIT)] == [AddedOld(1), AddedOld(2)]
    with open_keeper(tmp_path / "more", ExtendedOld) as keeper, hg.Station(domain="v") as other:
        here, there = opened(keeper, ExtendedOld), opened(other, ExtendedNew)
        assert there.push(ExtendedNew(1, NewMode.B))
        with here.consumer(group="crew") as member, pytest.raises(hg.IncompatibleFormats):
            member.pull(LIMIT)
        with there.consumer(group="crew") as member:
            assert member.pull(LIMIT) == ExtendedNew(1, NewMode.B)


@pytest.mark.parametrize("kept_in", [(), (DroppedNew,)])
def test_a_keeper_with_a_newer_class_hands_on_what_is_pushed_in_the_older_one(
    tmp_path: Path, kept_in: tuple[type[hg.Event], ...]
) -> None:
    with open_keeper(tmp_path / "data", *kept_in), hg.Station(domain="v") as newest:
        opened(newest, DroppedNew).push(DroppedNew(0))
    with (
        open_keeper(tmp_path / "data", *kept_in),
        hg.Station(domain="v") as one,
        hg.Station(domain="v") as other,
    ):
        supplied, consumed = opened(one, DroppedOld), opened(other, DroppedOld)
        live = consumed.consumer(start="now")
        called: list[hg.Event] = []
        consumed.subscribe(called.append, start="now")
        with (
            consumed.consumer(name="billing", start="now") as durable,
            consumed.consumer(group="crew", start="now") as member,
        ):
            assert supplied.push(DroppedOld(1, "north"))
            assert supplied.push_many([DroppedOld(n, "south") for n in (2, 3)])
            pushed = [DroppedOld(1, "north"), DroppedOld(2, "south"), DroppedOld(3, "south")]
            for consumer in (live, durable, member):
                assert [consumer.pull(LIMIT) for _ in range(3)] == pushed
            assert wait_until(lambda: called == pushed)


def test_several_keepers_may_have_several_versions(tmp_path: Path) -> None:
    told: list[tuple[str, BaseException]] = []
    with (
        open_keeper(tmp_path / "one", ExtendedOld) as first,
        open_keeper(tmp_path / "two", ExtendedNew) as second,
        hg.Station(domain="v", on_error=lambda who, _, error: told.append((who, error))) as one,
        hg.Station(domain="v") as other,
        hg.Station(domain="v") as tool,
    ):
        old, new = opened(one, ExtendedOld), opened(other, ExtendedNew)
        assert opened(first, ExtendedOld).push(ExtendedOld(1, OldMode.A))
        assert opened(second, ExtendedNew).push(ExtendedNew(2, NewMode.B))
        expected = [ExtendedNew(1, NewMode.A), ExtendedNew(2, NewMode.B)]
        for options in ({}, {"name": "billing"}, {"group": "crew"}):
            with new.consumer(start="earliest", **options) as consumer:  # type: ignore[arg-type]  # names of options
                assert _by_id(consumer, 2) == expected
        with tool.channel("x").consumer(group="tools") as member:
            assert [(event.id, event.mode.value) for event in _by_id(member, 2)] == [(1, "a"), (2, "b")]
        called: list[hg.Event] = []
        old.subscribe(called.append, start="earliest", name="called")
        assert wait_until(lambda: told)
        assert [(who, type(error)) for who, error in told] == [("called", hg.IncompatibleFormats)]
        assert called in ([], [ExtendedOld(1, OldMode.A)])
        assert old.stats().balanced
        assert new.stats().balanced


def test_a_keeper_hands_out_of_another_keepers_partition_in_the_version_in_which_it_was_pushed(
    tmp_path: Path,
) -> None:
    with (
        open_keeper(tmp_path / "one", DroppedNew) as first,
        open_keeper(tmp_path / "two", DroppedNew) as second,
        hg.Station(domain="v") as one,
    ):
        # The one whose partition comes first hands out to groups.
        kept = {channel.store.partition: channel for channel in _stores(first, second)}  # type: ignore[union-attr]  # it is kept
        later = kept[max(kept)]
        consumed = opened(one, DroppedOld)
        with consumed.consumer(group="crew", start="now") as member:
            assert member.pull(0) is None
            for number in range(3):
                _append_as(later, DroppedOld(number, "north"))
                assert member.pull(LIMIT) == DroppedOld(number, "north")


def _stores(*stations: hg.Station) -> list[hg.Channel[Any]]:
    return [opened(station, DroppedNew) for station in stations]


def _append_as(channel: hg.Channel[Any], event: hg.Event) -> None:
    """Have a keeper keep an event of another version, as it does for a station without a folder."""
    header = Header(channel.name, "v.dropped", "old", 1, event.id + 1, 1, hg.format_of(type(event)).id, 3)  # type: ignore[attr-defined]  # they have one
    assert channel.store is not None
    channel.store.append(OutgoingBatch.of([(event, header, 0)]), "synced").result(LIMIT)


def test_a_program_without_the_classes_gets_every_event_with_all_its_fields(tmp_path: Path) -> None:
    with (
        open_keeper(tmp_path / "data"),
        hg.Station(domain="v") as one,
        hg.Station(domain="v") as other,
        hg.Station(domain="v") as tool,
    ):
        old = opened(one, AddedOld)
        old.push(AddedOld(1))
        live: hg.Consumer[Any] = tool.channel("x").consumer(start="earliest")
        expected: list[dict[str, Any]] = [{"id": 1}]
        assert _taken(live, 1) == expected
        new = opened(other, AddedNew)  # first seen when the tool has the channel open
        for number in range(2, 10, 2):
            new.push(AddedNew(number, 0.5))
            old.push(AddedOld(number + 1))
            expected += [{"id": number, "battery": 0.5}, {"id": number + 1}]
        assert _taken(live, len(expected) - 1) == expected[1:]
        with hg.Station(domain="v") as later:
            assert _taken(later.channel("x").consumer(start="earliest"), len(expected)) == expected
            with later.channel("x").consumer(group="crew", start="earliest") as member:
                assert _taken(member, len(expected)) == expected


@pytest.mark.parametrize("transport", ["socket", "ring"])
def test_a_program_without_the_classes_gets_versions_that_appear_later_live(transport: Any) -> None:
    with (
        hg.Station(domain="v", transport=transport) as one,
        hg.Station(domain="v", transport=transport) as other,
        hg.Station(domain="v", transport=transport) as third,
        hg.Station(domain="v", transport=transport) as tool,
    ):
        old = one.channel("live", ApartOld)
        assert tool.mesh is not None
        assert tool.mesh.wait_for(lambda mesh: bool(mesh.formats("live")), LIMIT)
        consumer: hg.Consumer[Any] = tool.channel("live").consumer()
        assert old.wait_matched(1, LIMIT)
        old.push(ApartOld(1, 7))
        assert _taken(consumer, 1) == [{"id": 1, "size": 7}]
        new = other.channel("live", ApartNew)
        assert new.wait_matched(1, LIMIT)
        new.push(ApartNew(2, "x"))
        assert _taken(consumer, 1) == [{"id": 2, "size": "x"}]
        new.push_many([ApartNew(number, "x") for number in range(3, 9)])
        assert _taken(consumer, 6) == [{"id": number, "size": "x"} for number in range(3, 9)]
        called: list[Any] = []
        tool.channel("live").subscribe(called.append)
        latest = third.channel("live", ApartNew)
        assert latest.wait_matched(2, LIMIT)
        latest.push(ApartNew(9, "x"))
        assert wait_until(lambda: [event.id for event in called] == [9])
        assert tool.channel("live").stats().balanced


@pytest.mark.parametrize("durability", ["transient", "transient-local"])
def test_a_program_without_the_classes_that_joins_late_gets_what_was_kept_in_memory(durability: Any) -> None:
    qos = hg.QoS(durability=durability)
    with hg.Station(domain="v") as one, hg.Station(domain="v") as other, hg.Station(domain="v") as tool:
        one.channel("live", AddedOld, qos=qos).push(AddedOld(1))
        other.channel("live", AddedNew, qos=qos).push(AddedNew(2, 0.5))
        consumer: hg.Consumer[Any] = tool.channel("live", qos=qos).consumer()
        found = _taken(consumer, 2)
        assert sorted(found, key=lambda event: event["id"]) == [{"id": 1}, {"id": 2, "battery": 0.5}]


def test_what_a_keeper_has_otherwise_is_refused_with_the_field_both_types_and_both_stations(
    tmp_path: Path,
) -> None:
    for kept_in in ((), (ApartOld,)):
        with (
            open_keeper(tmp_path / f"data{len(kept_in)}", *kept_in) as keeper,
            hg.Station(domain="v", name="radar") as one,
            hg.Station(domain="v", name="display") as other,
        ):
            old, new = opened(one, ApartOld), opened(other, ApartNew)
            with pytest.raises(hg.IncompatibleFormats) as refused:
                new.push(ApartNew(1, "x"))
            said = str(refused.value)
            for part in (
                "$.size",
                "str",
                "i64",
                "keeper",
                "display",
                f"{keeper.id:016x}",
                f"{other.id:016x}",
            ):
                assert part in said, said
            assert old.push(ApartOld(2, 7))
            assert old.consumer().pull(LIMIT) == ApartOld(2, 7)


def _by_id(consumer: hg.Consumer[Any], number: int) -> list[Any]:
    """So many events, whichever partition came first."""
    found: list[Any] = [consumer.pull(LIMIT) for _ in range(number)]
    return sorted(found, key=lambda event: event.id)


def _taken(consumer: hg.Consumer[Any], number: int) -> list[dict[str, Any]]:
    """So many events as mappings of their fields."""
    found: list[Any] = [consumer.pull(LIMIT) for _ in range(number)]
    assert None not in found, found
    return [{name: getattr(event, name) for name in event.__struct_fields__} for event in found]
