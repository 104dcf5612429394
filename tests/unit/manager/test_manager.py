"""Channels with owners and members: created, joined, suspended, transferred, destroyed, and there again."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel.publish.store_sink import StoreSink
from heliograph.errors import (
    AppendFailed,
    EventChannelNotFound,
    EventsUnderWay,
    NameAlreadyUsed,
    NotAMember,
    NotOwner,
    Suspended,
    UnknownOption,
)
from heliograph.journal.store import JournalStore
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.receipt import AppendReceipt
from heliograph.testing import Rig
from heliograph.testing import rig as opened_rig
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from heliograph.manager import Activity, Manager

WING = "project.wing"
LIMIT = 10.0


class Drawing(hg.Event, name="drawing"):
    part: str
    number: int


def drawings(numbers: range, part: str = "flap") -> list[Drawing]:
    return [Drawing(part, number) for number in numbers]


@pytest.fixture
def manager(helio: Rig) -> Manager:
    """With a channel of anna's, who only administers it."""
    manager = helio.station.manager
    manager.create(WING, Drawing, owner="anna", access="supply")
    return manager


@pytest.fixture
def lost() -> Rig:
    """As `helio`, with that channel, for tests at whose end it has lost its power and is not closed."""
    rig = Rig()
    rig.station.manager.create(WING, Drawing, owner="anna", access="supply")
    return rig


@contextmanager
def after_power_loss(rig: Rig) -> Iterator[Manager]:
    """The manager of the station that comes after this one."""
    later = Rig(disk=rig.disk.crash(), seed=1)
    try:
        yield later.station.manager
    finally:
        later.station.close()


def taken(consumer: hg.Consumer[Any]) -> list[int]:
    """The numbers of all that is there, acknowledged."""
    with consumer:
        return [drawing.number for drawing in consumer]


def log_of(station: hg.Station) -> list[Activity]:
    with station.channel("_helio.activity").consumer(start="earliest", until="now") as consumer:
        return list(consumer)


# Channels


def test_a_station_without_a_folder_has_no_manager() -> None:
    with hg.Station() as station, pytest.raises(hg.NotPossible, match="kept in a folder"):
        station.manager  # noqa: B018 - it is asked for


def test_a_station_has_one_manager(helio: Rig) -> None:
    assert helio.station.manager is helio.station.manager


def test_a_created_channel_is_persistent_and_found_by_its_name(helio: Rig) -> None:
    wing = helio.station.manager.create(WING, Drawing, owner="anna")
    assert wing.qos.durability == "persistent"
    assert helio.station.manager.find(WING, Drawing) is wing
    assert helio.station.channel(WING) is wing


def test_a_name_is_used_once(helio: Rig, manager: Manager) -> None:
    with pytest.raises(NameAlreadyUsed) as raised:
        manager.create(WING, Drawing, owner="bert")
    assert raised.value.owner == "anna"
    helio.station.channel("open", Drawing)
    with pytest.raises(NameAlreadyUsed, match="which the manager did not create"):
        manager.create("open", Drawing, owner="bert")


def test_a_history_that_was_kept_without_the_manager_is_not_taken_over(helio: Rig) -> None:
    kept = helio.station.channel("kept", Drawing, qos=hg.QoS(durability="persistent"))
    kept.push(Drawing("flap", 1))
    kept.close()
    with pytest.raises(NameAlreadyUsed):
        helio.station.manager.create("kept", Drawing, owner="bert")
    assert helio.station.channel("kept", Drawing).push(Drawing("flap", 2)), "it is as it was"


def test_what_a_crash_left_of_a_channel_before_its_creation_was_recorded_is_no_channel(helio: Rig) -> None:
    helio.station.channel("begun", Drawing, qos=hg.QoS(durability="persistent")).close()
    assert helio.station.manager.create("begun", Drawing, owner="bert").push(Drawing("flap", 1))


@pytest.mark.parametrize(
    ("ask", "error", "reason"),
    [
        (lambda m: m.create("_helio.own", Drawing, owner="anna"), hg.NotPossible, "channels about channels"),
        (lambda m: m.create("a b", Drawing, owner="anna"), hg.NotPossible, "a channel's name"),
        (lambda m: m.create("new", Drawing, owner=""), hg.NotPossible, "1 to 255 printable"),
        (lambda m: m.create("new", Drawing, owner=None), hg.NotPossible, "a member has a name"),
        (lambda m: m.create("new", owner="anna"), hg.NotPossible, "needs its event types"),
        (lambda m: m.create("new", Drawing, owner="anna", access="all"), hg.NotPossible, "access='all'"),
        (lambda m: m.create("new", Drawing, owner="anna", qos=hg.QoS()), hg.NotPossible, "is kept: qos="),
        (lambda m: m.create("new", Drawing, ownr="anna"), UnknownOption, "ownr"),
        (lambda m: m.join(WING, 7), hg.NotPossible, "user=7"),
        (lambda m: m.join(WING, "bert", where="prt = 1"), hg.ExpressionError, "prt"),
        (lambda m: m.join(WING, "bert", where=hg.col("part") == "flap"), hg.NotPossible, "so it is text"),
        (lambda m: m.join(WING, "bert", access="admin"), hg.NotPossible, "allowed are both, consume, supply"),
        (lambda m: m.find("project.tail"), EventChannelNotFound, "project.tail"),
        (lambda m: m.member(WING, "carl"), NotAMember, "carl"),
        (lambda m: m.channels("project*"), hg.NotPossible, "whole parts"),
        (lambda m: m.transfer(WING, by="anna"), hg.NotPossible, "no other member"),
        (lambda m: m.join(WING, "bert", history="no"), hg.NotPossible, "history='no': True or False"),
        (
            lambda m: m.join(WING, "bert", where="number = :n"),
            hg.ExpressionError,
            ":n has no value .given: none",
        ),
        (lambda m: m.channels(5), hg.NotPossible, "pattern 5: is text"),
        (lambda m: m.channels(""), hg.NotPossible, "pattern '': is text"),
        (lambda m: m.find([]), EventChannelNotFound, r"no channel \[\]"),
        (lambda m: m.leave(WING, []), NotAMember, r"\[\] is no member"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(
    helio: Rig, manager: Manager, ask: Callable[[Any], object], error: type[Exception], reason: str
) -> None:
    before, log = manager.channels(), log_of(helio.station)
    with pytest.raises(error, match=reason):
        ask(manager)
    assert manager.channels() == before
    assert log_of(helio.station) == log


def test_channels_are_browsed_by_patterns(manager: Manager) -> None:
    manager.create("project.tail", Drawing, owner="bert")
    manager.create("office", Drawing, owner="carl")
    assert [found.name for found in manager.channels()] == ["office", "project.tail", WING]
    assert [(found.name, found.owner) for found in manager.channels("project.*")] == [
        ("project.tail", "bert"),
        (WING, "anna"),
    ]
    assert manager.channels("office")[0].types == ("drawing",)


# Members


def test_a_member_that_joins_gets_what_comes_from_then_on(manager: Manager) -> None:
    wing = manager.find(WING, Drawing)
    wing.push_many(drawings(range(3)))
    bert = manager.join(WING, "bert")
    wing.push_many(drawings(range(3, 5)))
    assert taken(bert.consumer(until="now")) == [3, 4]


def test_a_member_may_choose_to_get_what_was_before_and_then_what_comes(manager: Manager) -> None:
    wing = manager.find(WING, Drawing)
    wing.push_many(drawings(range(3)))
    bert = manager.join(WING, "bert", history=True)
    with bert.consumer() as consumer:
        before = [consumer.pull(LIMIT) for _ in range(3)]
        wing.push_many(drawings(range(3, 5)))
        after = [consumer.pull(LIMIT) for _ in range(2)]
    assert before + after == drawings(range(5))


def test_a_member_gets_what_its_recorded_filter_lets_through(manager: Manager) -> None:
    bert = manager.join(WING, "bert", where="part = 'flap' AND number > 1")
    manager.find(WING, Drawing).push_many([*drawings(range(4)), *drawings(range(4), "rudder")])
    assert taken(bert.consumer(until="now")) == [2, 3]


def test_a_member_supplies_under_its_own_name(manager: Manager) -> None:
    bert = manager.join(WING, "bert", access="consume")
    anna = manager.member(WING, "anna").supplier()
    assert anna.push(Drawing("flap", 1))
    with bert.consumer() as consumer:
        delivery = next(consumer.deliveries(timeout=LIMIT))
    assert delivery.header.supplier == "anna"


def test_who_only_consumes_cannot_push_and_who_only_supplies_cannot_consume(manager: Manager) -> None:
    bert = manager.join(WING, "bert", access="consume")
    with pytest.raises(hg.NotPossible, match="'bert' only consumes here: it joined with access='consume'"):
        bert.supplier()
    anna = manager.member(WING, "anna")
    with pytest.raises(hg.NotPossible, match="'anna' only supplies here"):
        anna.consumer()
    with pytest.raises(hg.NotPossible, match="'anna' only supplies here"):
        anna.subscribe(print)


def test_what_was_said_when_joining_is_not_said_again(manager: Manager) -> None:
    bert = manager.join(WING, "bert")
    with pytest.raises(hg.NotPossible, match="where=: what 'bert' gets was said when it joined"):
        bert.consumer(where="number > 1")
    with pytest.raises(hg.NotPossible, match="group="):
        bert.subscribe(print, group="mine")
    with pytest.raises(UnknownOption, match="lese"):
        bert.consumer(lese=1.0)


def test_who_leaves_gets_and_gives_nothing_more(manager: Manager) -> None:
    bert = manager.join(WING, "bert")
    consumer, supplier = bert.consumer(), bert.supplier()
    bert.leave()
    assert consumer.pull(LIMIT) is None
    with pytest.raises(hg.Closed):
        supplier.push(Drawing("flap", 1))
    for ask in (bert.consumer, bert.supplier, bert.leave, lambda: manager.member(WING, "bert")):
        with pytest.raises(NotAMember):
            ask()


def test_of_many_who_join_under_one_name_one_is_a_member(helio: Rig, manager: Manager) -> None:
    """And of others, who leave at the same time, nothing is left."""
    manager.join(WING, "carl")
    refused: list[Exception] = []

    def join() -> None:
        try:
            manager.join(WING, "bert")
            manager.leave(WING, "carl")
        except hg.NotPossible as error:
            refused.append(error)

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert set(manager.find_managed(WING).members) == {"anna", "bert"}
    assert len(refused) == 3
    assert [r.kind for r in log_of(helio.station)] == ["created", "joined", "joined", "left"]


def test_who_joins_again_begins_anew(manager: Manager) -> None:
    wing = manager.find(WING, Drawing)
    bert = manager.join(WING, "bert")
    wing.push_many(drawings(range(2)))
    assert taken(bert.consumer(until="now")) == [0, 1]
    bert.leave()
    wing.push_many(drawings(range(2, 4)))
    manager.join(WING, "bert")
    wing.push_many(drawings(range(4, 6)))
    assert taken(bert.consumer(until="now")) == [4, 5]
    bert.leave()
    assert taken(manager.join(WING, "bert", history=True).consumer(until="now")) == list(range(6))


def test_retention_waits_for_nobody_who_has_left(manager: Manager) -> None:
    bert = manager.join(WING, "bert")
    bert.consumer().close()
    store: Any = manager.find(WING, Drawing).store
    (place,) = store._places()
    assert "bert" in place.consumer
    bert.leave()
    assert store._places() == ()


def let_retention_look(rig: Rig, wing: Any) -> None:
    """With all that is kept old enough to go, if nobody lacks it."""
    rig.clock.advance(10.0)
    writer = wing.store._writer
    writer.rotate()
    writer.seal()
    writer.retain()


def places(wing: Any) -> list[str]:
    return [place.consumer for place in wing.store._places()]


@pytest.mark.parametrize("limit", [{"keep_seconds": 0.0}, {"drop_read": True}])
def test_retention_waits_for_a_member_that_has_opened_nothing_yet(limit: dict[str, Any]) -> None:
    with opened_rig(journal=hg.Limits(grace_seconds=0.0, **limit)) as rig:
        manager = rig.station.manager
        wing: Any = manager.create(WING, Drawing, owner="anna")
        bert, carl = manager.join(WING, "bert"), manager.join(WING, "carl")
        wing.push_many(drawings(range(5)))
        assert taken(carl.consumer(until="now")) == list(range(5))
        let_retention_look(rig, wing)
        assert taken(bert.consumer(until="now")) == list(range(5))
        let_retention_look(rig, wing)
        anna = manager.member(WING, "anna")
        assert taken(anna.consumer(until="now")) == list(range(5)), "who creates it is a member too"
        let_retention_look(rig, wing)
        assert wing.store.earliest == 5, "nobody lacks anything"


def test_a_member_whose_place_could_not_be_written_has_one_when_the_channel_is_opened_again(
    lost: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = lost.station.manager

    def refused(*_: object) -> None:
        raise hg.DiskFull("append", "cursors", "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(JournalStore, "begin_consumer", refused)
        manager.join(WING, "bert")
    assert "'bert' has joined; a crash may let retention pass over it" in caplog.text
    with after_power_loss(lost) as later:
        assert places(later.find(WING, Drawing)) == ["group:member 2: bert"]


def test_who_left_before_the_channel_was_open_is_forgotten_when_it_is_opened(lost: Rig) -> None:
    manager = lost.station.manager
    manager.join(WING, "bert")
    manager.join(WING, "carl")
    with after_power_loss(lost) as later:
        later.leave(WING, "carl")
        wing = later.find(WING, Drawing)
        wing.consumer(name="billing").close()
        wing.consumer(group="member 7: carl").close()
        wing.close()
        kept = ["group:member 2: bert", "billing", "group:member 7: carl"]
        assert places(later.find(WING, Drawing)) == kept, "only carl's own is gone"


def test_places_of_a_destroyed_channel_hold_nothing_in_the_next_of_its_name(manager: Manager) -> None:
    bert = manager.join(WING, "bert")
    wing = manager.find(WING, Drawing)
    wing.push(Drawing("flap", 1))
    taken(bert.consumer(until="now"))
    manager.destroy(WING, by="anna")
    assert places(manager.create(WING, Drawing, owner="carl", access="supply")) == []


def test_a_crash_after_a_channel_was_destroyed_leaves_no_places(
    lost: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = lost.station.manager
    manager.join(WING, "bert").consumer().close()
    with monkeypatch.context() as patch:
        patch.setattr(JournalStore, "forget_consumer", lambda *_: None)
        manager.destroy(WING, by="anna")
    with after_power_loss(lost) as later:
        assert places(later.create(WING, Drawing, owner="carl", access="supply")) == []


def test_a_function_that_is_called_may_leave(manager: Manager) -> None:
    bert = manager.join(WING, "bert")
    bert.subscribe(lambda _: bert.leave())
    manager.find(WING, Drawing).push(Drawing("flap", 1))
    assert wait_until(lambda: "bert" not in manager.find_managed(WING).members)


# What the owner may ask for


def test_only_the_owner_administers_a_channel(manager: Manager) -> None:
    manager.join(WING, "bert")
    for ask in (manager.suspend, manager.restart, manager.transfer, manager.destroy):
        with pytest.raises(NotOwner, match="only its owner 'anna' may"):
            ask(WING, by="bert")


def test_nothing_is_pushed_while_a_channel_is_suspended_and_nothing_is_lost(manager: Manager) -> None:
    wing, bert = manager.find(WING, Drawing), manager.join(WING, "bert")
    anna = manager.member(WING, "anna").supplier()
    wing.push_many(drawings(range(2)))
    manager.suspend(WING, by="anna")
    later = bert.supplier()
    for push in (wing.push, anna.push, later.push, wing.push_nowait):
        with pytest.raises(Suspended, match="when its owner 'anna' has restarted it"):
            push(Drawing("flap", 9))
    with pytest.raises(Suspended):
        wing.push_many(drawings(range(9, 11)))
    with bert.consumer() as consumer:
        assert consumer.pull(LIMIT) == Drawing("flap", 0), "what is kept still comes"
        with pytest.raises(Suspended):
            wing.push(Drawing("flap", 9))
        manager.restart(WING, by="anna")
        assert all(push(Drawing("flap", n)) for n, push in enumerate((wing.push, anna.push, later.push), 2))
        assert [consumer.pull(LIMIT) for _ in range(4)] == drawings(range(1, 5))


def test_of_many_who_push_none_is_late_when_a_channel_is_suspended(manager: Manager) -> None:
    """Each push is acknowledged and kept, or refused and not kept; none is kept after `suspend` returned."""
    wing, pushed = manager.find(WING, Drawing), [0, 0, 0, 0]
    has_begun = threading.Barrier(len(pushed) + 1, timeout=LIMIT)

    def push(own: int) -> None:
        with wing.supplier() as supplier, suppress(Suspended):
            has_begun.wait()
            while supplier.push(Drawing("flap", own)):
                pushed[own] += 1

    threads = [threading.Thread(target=push, args=(own,)) for own in range(len(pushed))]
    for thread in threads:
        thread.start()
    has_begun.wait()
    manager.suspend(WING, by="anna")
    store: Any = wing.store
    store.wait_durable()
    kept = store.watermark
    for thread in threads:
        thread.join(LIMIT)
    assert store.watermark == kept == sum(pushed)


def test_what_was_accepted_for_later_waits_while_the_channel_is_suspended(
    helio: Rig, manager: Manager
) -> None:
    bert = manager.join(WING, "bert")
    wing = manager.find(WING, Drawing)
    wing.push(Drawing("flap", 1), deliver_after=60.0)
    wing.push(Drawing("flap", 2), deliver_after=120.0)
    manager.suspend(WING, by="anna")
    with bert.consumer() as consumer:
        helio.clock.advance(61.0)
        assert wing.delayed.queue.wait_empty(LIMIT)
        assert consumer.pull(0) is None
        assert wing.stats().delayed == 2
        manager.restart(WING, by="anna")
        assert consumer.pull(LIMIT) == Drawing("flap", 1)
        helio.clock.advance(60.0)
        assert consumer.pull(LIMIT) == Drawing("flap", 2)


def test_what_fell_due_while_a_channel_was_suspended_comes_in_the_next_life_once_it_is_restarted(
    lost: Rig,
) -> None:
    manager = lost.station.manager
    bert = manager.join(WING, "bert").user
    wing = manager.find(WING, Drawing)
    wing.push(Drawing("flap", 1), deliver_after=60.0)
    manager.suspend(WING, by="anna")
    lost.clock.advance(61.0)
    assert wing.delayed.queue.wait_empty(LIMIT)
    after = Rig(disk=lost.disk.crash(), seed=1)
    after.clock.advance(100.0)
    wing = after.station.channel(WING, Drawing)
    with pytest.raises(Suspended):  # though nobody has asked for the manager yet
        wing.push(Drawing("flap", 2))
    manager = after.station.manager
    with manager.member(WING, bert).consumer() as consumer:
        assert wing.delayed.queue.wait_empty(LIMIT)
        assert consumer.pull(0) is None
        manager.restart(WING, by="anna")
        assert consumer.pull(LIMIT) == Drawing("flap", 1)
    after.station.close()


@pytest.mark.parametrize("ack", ["synced", "delivered"])
def test_a_batch_that_a_suspension_cuts_says_how_much_of_it_is_kept(
    helio: Rig, monkeypatch: pytest.MonkeyPatch, ack: Any
) -> None:
    manager, asked = helio.station.manager, StoreSink.match_all
    qos = hg.QoS(durability="persistent", ack=ack)
    wing = manager.create(WING, Drawing, owner="anna", access="supply", qos=qos)
    store: Any = wing.store
    batch, parts = drawings(range(25_000)), []

    def suspended_between(supplier: Any, events: Any, said: Any) -> Any:
        """Each part of a batch comes by here before it takes its turn."""
        if len(events) > 1:
            parts.append(len(events))
            if len(parts) == 2:
                manager.suspend(WING, by="anna")
        return asked(supplier, events, said)

    with monkeypatch.context() as patch:
        patch.setattr(StoreSink, "match_all", suspended_between)
        with pytest.raises(
            Suspended, match=r"first 10000 of the batch are pushed; push \[10000:\]"
        ) as raised:
            wing.push_many(batch)
    assert raised.value.pushed == store.watermark == 10_000
    manager.restart(WING, by="anna")
    wing.push_many(batch[raised.value.pushed :])
    assert store.watermark == len(batch)


def test_a_channel_that_is_opened_while_it_is_suspended_is_suspended(helio: Rig, manager: Manager) -> None:
    manager.suspend(WING, by="anna")
    manager.find(WING, Drawing).close()
    again = helio.station.channel(WING, Drawing)
    with pytest.raises(Suspended):
        again.push(Drawing("flap", 1))
    manager.restart(WING, by="anna")
    assert again.push(Drawing("flap", 1))


def test_a_restart_does_not_open_what_is_barred_for_another_reason(helio: Rig, manager: Manager) -> None:
    manager.find(WING, Drawing).close()
    only_read = helio.station.channel(WING, Drawing, access="consume")
    manager.suspend(WING, by="anna")
    manager.restart(WING, by="anna")
    with pytest.raises(hg.NotPossible, match="only consumes here"):
        only_read.push(Drawing("flap", 1))


def test_the_owner_leaves_when_another_member_owns_the_channel(manager: Manager) -> None:
    manager.join(WING, "bert")
    with pytest.raises(hg.NotPossible, match="its owner 'anna' cannot leave"):
        manager.leave(WING, "anna")
    assert manager.transfer(WING, by="anna", to="bert") == "bert"
    manager.leave(WING, "anna")
    assert manager.find_managed(WING).owner == "bert"
    with pytest.raises(hg.NotPossible, match="no other member"):
        manager.transfer(WING, by="bert")


def test_chance_picks_the_new_owner_among_all_other_members() -> None:
    picked = set()
    for seed in range(24):
        rig = Rig(seed=seed)
        manager = rig.station.manager
        manager.create(WING, Drawing, owner="anna")
        for user in ("bert", "carl", "dora"):
            manager.join(WING, user)
        picked.add(manager.transfer(WING, by="anna"))
        rig.station.close()
    assert picked == {"bert", "carl", "dora"}


def test_a_channel_is_destroyed_when_nobody_lacks_events(helio: Rig, manager: Manager) -> None:
    wing, bert = manager.find(WING, Drawing), manager.join(WING, "bert", where="number > 0")
    wing.push_many(drawings(range(2)))
    with pytest.raises(EventsUnderWay) as raised:
        manager.destroy(WING, by="anna")
    assert raised.value.lacking == ("bert",)
    assert wing.push(Drawing("flap", 0)), "it goes on"
    assert taken(bert.consumer(until="now")) == [1]
    manager.destroy(WING, by="anna")
    with pytest.raises(hg.Closed):
        wing.push(Drawing("flap", 2))
    with pytest.raises(EventChannelNotFound):
        bert.consumer()
    assert [record.kind for record in log_of(helio.station)] == ["created", "joined", "destroyed"]


def test_events_that_are_to_come_later_are_under_way(manager: Manager) -> None:
    manager.join(WING, "bert")
    manager.find(WING, Drawing).push(Drawing("flap", 0), deliver_after=60.0)
    with pytest.raises(EventsUnderWay):
        manager.destroy(WING, by="anna")


def test_events_that_are_to_come_later_would_go_to_the_next_channel_of_that_name(manager: Manager) -> None:
    """Though nobody consumes now."""
    manager.find(WING, Drawing).push(Drawing("flap", 0), deliver_after=60.0)
    with pytest.raises(EventsUnderWay, match=r"events that are to be delivered later \(1\)") as raised:
        manager.destroy(WING, by="anna")
    assert (raised.value.lacking, raised.value.delayed) == ((), 1)


def test_events_whose_class_is_not_known_in_this_life_may_be_under_way(lost: Rig) -> None:
    class Note(hg.Event, name="note"):
        text: str

    manager = lost.station.manager
    manager.join(WING, "bert", access="consume")
    manager.find(WING, Note).push(Note("x"))  # not among those that it was created with
    with after_power_loss(lost) as later:
        later.find(WING, Drawing)
        with pytest.raises(hg.NotPossible, match="has events of note that 'bert' may lack"):
            later.destroy(WING, by="anna")
        later.find(WING, Note)
        with later.member(WING, "bert").consumer(until="now") as consumer:
            assert list(consumer) == [Note("x")]
        later.destroy(WING, by="anna")


def test_suppliers_go_on_while_a_history_is_looked_at_that_may_not_be_destroyed(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    wing, bert = manager.find(WING, Drawing), manager.join(WING, "bert", where="number < 0")
    wing.push_many(drawings(range(5)))
    looked: list[int] = []
    whole = JournalStore.read

    def reading(store: Any, start: int, *args: Any, **more: Any) -> Any:
        looked.append(start)
        if not manager._lock.locked():  # while it looks at what there is
            assert wing.push(Drawing("flap", -1 if len(looked) == 1 else 1))
        else:
            with pytest.raises(Suspended, match="is being destroyed"):
                wing.push(Drawing("flap", 1))
        return whole(store, start, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(JournalStore, "read", reading)
        with pytest.raises(EventsUnderWay):
            manager.destroy(WING, by="anna")
        assert looked == [0, 5], "the second time only the end"
    assert wing.push(Drawing("flap", 1))
    assert taken(bert.consumer(until="now")) == [-1]
    manager.destroy(WING, by="anna")


def test_of_two_who_destroy_a_channel_at_once_one_does(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.join(WING, "bert", where="number < 0")
    manager.find(WING, Drawing).push_many(drawings(range(5)))
    refused: list[EventChannelNotFound] = []
    whole = JournalStore.read

    def destroy() -> None:
        try:
            manager.destroy(WING, by="anna")
        except EventChannelNotFound as error:
            refused.append(error)

    other = threading.Thread(target=destroy)

    def reading(store: Any, *args: Any, **more: Any) -> Any:
        if other.ident is None:
            other.start()
            other.join(0.1)  # time to do harm
        return whole(store, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(JournalStore, "read", reading)
        manager.destroy(WING, by="anna")
        other.join()
    assert len(refused) == 1
    assert manager.create(WING, Drawing, owner="carl").push(Drawing("flap", 1))


def test_events_whose_lifespan_is_over_are_not_under_way(helio: Rig) -> None:
    manager = helio.station.manager
    qos = hg.QoS(durability="persistent", lifespan=60.0)
    manager.create(WING, Drawing, owner="anna", qos=qos).push(Drawing("flap", 0))
    with pytest.raises(EventsUnderWay):
        manager.destroy(WING, by="anna")
    helio.clock.advance(61.0)
    manager.destroy(WING, by="anna")


def test_a_channel_that_could_not_be_destroyed_stays_suspended_if_it_was(manager: Manager) -> None:
    wing = manager.find(WING, Drawing)
    manager.join(WING, "bert")
    wing.push(Drawing("flap", 0))
    manager.suspend(WING, by="anna")
    with pytest.raises(EventsUnderWay):
        manager.destroy(WING, by="anna")
    with pytest.raises(Suspended):
        wing.push(Drawing("flap", 1))


def test_a_destroyed_channels_name_is_free_and_its_members_see_nothing_of_the_old_one(
    helio: Rig, manager: Manager
) -> None:
    manager.find(WING, Drawing).push_many(drawings(range(3)))
    manager.destroy(WING, by="anna")
    again = manager.create(WING, Drawing, owner="carl")
    again.push(Drawing("flap", 9))
    assert taken(manager.join(WING, "bert", history=True).consumer(until="now")) == [9]
    with again.consumer(start="earliest", until="now") as consumer:
        assert [one.number for one in consumer] == [0, 1, 2, 9], "its history is kept all the same"
    helio.station.close()


# Recovery


def test_channels_owners_suspensions_and_members_are_there_again(lost: Rig) -> None:
    manager = lost.station.manager
    manager.join(WING, "bert", access="consume", where="number > 1")
    manager.join(WING, "carl", history=True)
    manager.create("project.tail", Drawing, owner="dora")
    manager.suspend("project.tail", by="dora")
    manager.create("gone", Drawing, owner="dora", access="supply")
    manager.destroy("gone", by="dora")
    manager.transfer(WING, by="anna", to="carl")
    manager.leave(WING, "anna")
    before = manager.channels()
    with after_power_loss(lost) as later:
        assert later.channels() == before
        tail = later.find("project.tail", Drawing)
        with pytest.raises(Suspended):
            tail.push(Drawing("flap", 1))
        later.find(WING, Drawing)
        with pytest.raises(hg.NotPossible, match="only consumes"):
            later.member(WING, "bert").supplier()
        with pytest.raises(NotOwner):
            later.suspend(WING, by="bert")
        with pytest.raises(NameAlreadyUsed):
            later.create(WING, Drawing, owner="eva")


def test_what_a_member_had_not_acknowledged_comes_again_by_its_own_filter(lost: Rig) -> None:
    """The program gives a function for the member; where it was and what it wants is known."""
    manager = lost.station.manager
    wing, bert = manager.find(WING, Drawing), manager.join(WING, "bert", where="part = 'flap'")
    wing.push_many([*drawings(range(3)), *drawings(range(3), "rudder")])
    consumer = bert.consumer(ack="manual")
    first, second = (next(consumer.deliveries()) for _ in range(2))
    first.ack()
    assert second.event.number == 1
    got: list[int] = []
    with after_power_loss(lost) as later:
        later.find(WING, Drawing).push(Drawing("flap", 3))
        later.member(WING, "bert").subscribe(lambda drawing: got.append(drawing.number))
        assert wait_until(lambda: len(got) == 3)
    assert got == [1, 2, 3]


def test_a_member_that_had_nothing_open_gets_all_since_it_joined(lost: Rig) -> None:
    manager = lost.station.manager
    wing = manager.find(WING, Drawing)
    wing.push_many(drawings(range(3)))
    manager.join(WING, "bert")
    wing.push_many(drawings(range(3, 5)))
    with after_power_loss(lost) as later:
        later.find(WING, Drawing)
        assert taken(later.member(WING, "bert").consumer(until="now")) == [3, 4]


def test_a_member_needs_the_event_class_once_in_each_life(lost: Rig) -> None:
    manager = lost.station.manager
    manager.join(WING, "bert")
    with after_power_loss(lost) as later:
        with pytest.raises(hg.NotPossible, match="its event class is not known"):
            later.member(WING, "bert").consumer()
        later.find(WING, Drawing).close()
        later.member(WING, "bert").consumer().close()


def test_data_goes_on_without_an_owner(lost: Rig) -> None:
    """It never comes back: others push, consume, join and leave; nobody administers."""
    manager = lost.station.manager
    manager.join(WING, "bert")
    with after_power_loss(lost) as later:
        wing = later.find(WING, Drawing)
        bert = later.member(WING, "bert")
        with bert.supplier() as supplier:
            supplier.push_many(drawings(range(3)))
        carl = later.join(WING, "carl", history=True)
        assert taken(carl.consumer(until="now")) == taken(bert.consumer(until="now")) == [0, 1, 2]
        carl.leave()
        assert wing.push(Drawing("flap", 3))
        for ask in (later.suspend, later.transfer, later.destroy):
            with pytest.raises(NotOwner):
                ask(WING, by="bert")


def test_a_suspended_channel_that_was_open_before_the_manager_was_asked_for_is_suspended(lost: Rig) -> None:
    manager = lost.station.manager
    manager.suspend(WING, by="anna")
    later = Rig(disk=lost.disk.crash(), seed=1)
    wing = later.station.channel(WING, Drawing)
    assert later.station.manager.find(WING, Drawing) is wing
    with pytest.raises(Suspended):
        wing.push(Drawing("flap", 1))
    later.station.close()


# The log


def test_every_operation_is_in_the_log_with_user_type_user_channel_and_time(
    helio: Rig, manager: Manager
) -> None:
    began = helio.clock.time_ns()
    manager.join(WING, "bert", access="consume", where="number > 1")
    helio.clock.advance(1.0)
    manager.suspend(WING, by="anna")
    manager.restart(WING, by="anna")
    manager.transfer(WING, by="anna")
    manager.leave(WING, "anna")
    manager.destroy(WING, by="bert")
    rows = [(r.user_type, r.user, r.channel, r.at_ns - began, r.kind) for r in log_of(helio.station)]
    second = 1_000_000_000
    assert rows == [
        ("supplier", "anna", WING, 0, "created"),
        ("consumer", "bert", WING, 0, "joined"),
        ("supplier", "anna", WING, second, "suspended"),
        ("supplier", "anna", WING, second, "restarted"),
        ("supplier", "anna", WING, second, "transferred"),
        ("supplier", "anna", WING, second, "left"),
        ("consumer", "bert", WING, second, "destroyed"),
    ]


def test_retention_drops_nothing_of_the_log() -> None:
    nothing = hg.Limits(keep_bytes=0, keep_seconds=0.0, drop_read=True, grace_seconds=0.0)
    rig = Rig(journal=nothing)
    manager = rig.station.manager
    manager.create(WING, Drawing, owner="anna")
    manager.join(WING, "bert")
    store: Any = rig.station.channel("_helio.activity").store
    assert store._writer.seal() == 1
    store._writer.retain()
    with after_power_loss(rig) as later:
        assert later.channels() == manager.channels()


def test_what_cannot_be_recorded_does_not_happen(lost: Rig) -> None:
    """A full disk: the error says so, and all is as before, for this station and the next."""
    manager = lost.station.manager
    wing = manager.find(WING, Drawing)
    manager.join(WING, "bert", access="supply")
    before, log = manager.channels(), log_of(lost.station)
    medium: Any = lost.disk.medium
    capacity, medium.capacity = medium.capacity, 0
    for ask in (
        lambda: manager.create("project.tail", Drawing, owner="bert"),
        lambda: manager.join(WING, "carl"),
        lambda: manager.leave(WING, "bert"),
        lambda: manager.suspend(WING, by="anna"),
        lambda: manager.transfer(WING, by="anna"),
        lambda: manager.destroy(WING, by="anna"),
    ):
        with pytest.raises((AppendFailed, hg.DiskError), match=r"(?i)no space"):
            ask()
        assert manager.channels() == before
    medium.capacity = capacity
    assert wing.push(Drawing("flap", 1)), "it is neither suspended nor destroyed"
    assert log_of(lost.station) == log
    manager.create("project.tail", Drawing, owner="bert")
    with after_power_loss(lost) as later:
        assert later.channels("project.wing") == before
        assert len(later.channels()) == 2


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C in whoever waits for the disk: what is in line is written all the same."""
    with monkeypatch.context() as patch:
        patch.setattr(AppendReceipt, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_who_was_cut_off_finds_out_what_became_of_it_by_asking_again(
    lost: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a call says after one that was cut off is what the next life of the station will say."""
    manager = lost.station.manager
    wing = manager.find(WING, Drawing)
    with cut_off(monkeypatch):
        manager.join(WING, "bert", access="supply")
    with pytest.raises(hg.NotPossible, match="a member already"):
        manager.join(WING, "bert")
    pushing = manager.member(WING, "bert").supplier()
    with cut_off(monkeypatch):
        manager.suspend(WING, by="anna")
    assert manager.find_managed(WING).suspended
    for push in (wing.push, pushing.push):
        with pytest.raises(Suspended):
            push(Drawing("flap", 1))
    with cut_off(monkeypatch):
        manager.leave(WING, "bert")
    with pytest.raises(NotAMember):
        manager.leave(WING, "bert")
    with pytest.raises(hg.Closed):
        pushing.push(Drawing("flap", 1))
    with cut_off(monkeypatch):
        manager.create("project.tail", Drawing, owner="carl")
    assert manager.find("project.tail", Drawing).push(Drawing("flap", 1))
    manager.join(WING, "dora")
    assert [record.number for record in log_of(lost.station)] == [1, 2, 3, 4, 5, 6]
    before = manager.channels()
    with after_power_loss(lost) as later:
        assert later.channels() == before


def test_nothing_goes_into_a_channel_that_may_be_destroyed(
    helio: Rig, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    wing = manager.find(WING, Drawing)
    with cut_off(monkeypatch):
        manager.destroy(WING, by="anna")
    with pytest.raises(Suspended):
        wing.push(Drawing("flap", 1))
    with pytest.raises(EventChannelNotFound):
        manager.find(WING)
    with pytest.raises(hg.Closed):
        wing.push(Drawing("flap", 1))
    assert manager.create(WING, Drawing, owner="bert").push(Drawing("flap", 2))
    assert [record.kind for record in log_of(helio.station)] == ["created", "destroyed", "created"]


def test_what_was_cut_off_and_never_written_has_not_happened(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    wing, before = manager.find(WING, Drawing), manager.channels()
    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "append", interrupted)
        for ask in (manager.suspend, manager.destroy):
            with pytest.raises(KeyboardInterrupt):
                ask(WING, by="anna")
            assert manager.channels() == before
    manager.find(WING)
    assert wing.push(Drawing("flap", 1))


def test_a_class_that_a_channel_cannot_have_is_not_remembered(helio: Rig, manager: Manager) -> None:
    class Other(hg.Event, name="drawing"):
        other: int

    with pytest.raises(hg.NotPossible, match="both called"):
        manager.find(WING, Other)
    manager.find(WING).close()
    manager.find(WING)
    assert helio.station.channel(WING).types == (Drawing,)


def test_who_has_left_has_left_though_what_it_had_open_could_not_be_closed_well(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bert = manager.join(WING, "bert")
    consumer, supplier = bert.consumer(), bert.supplier()

    def refused() -> None:
        raise hg.DiskFull("append", "cursors", "no space left")

    monkeypatch.setattr(consumer, "close", refused)
    bert.leave()
    assert "bert" not in manager.find_managed(WING).members
    assert "not all of it could be kept" in caplog.text
    with pytest.raises(hg.Closed):
        supplier.push(Drawing("flap", 1))


def test_a_log_that_need_not_be_synced_is_refused(tmp_path: Path) -> None:
    (tmp_path / "helio.toml").write_text('[channels]\nack = "memory"\n')
    with (
        hg.Station(tmp_path / "data", config=tmp_path / "helio.toml") as station,
        pytest.raises(hg.NotPossible, match="must be synced"),
    ):
        station.manager  # noqa: B018 - it is asked for


def test_a_closed_station_has_no_manager(helio: Rig, manager: Manager) -> None:
    anna = manager.member(WING, "anna")
    helio.station.close()
    for ask in (
        lambda: manager.join(WING, "bert"),
        lambda: manager.find(WING, Drawing),
        lambda: manager.find_managed(WING),
        manager.channels,
        lambda: manager.member(WING, "anna"),
        lambda: anna.membership,
        lambda: helio.station.manager,
    ):
        with pytest.raises(hg.Closed):
            ask()


def test_a_disk_that_takes_long_to_sync_keeps_the_manager_from_nothing(
    helio: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a record takes: the manager's own lock is not taken for that of an interrupted push."""
    monkeypatch.setattr("heliograph.runtime.ports.INSIDE", 0.0)
    manager = helio.station.manager
    manager.create(WING, Drawing, owner="anna", access="supply")
    manager.join(WING, "bert")
    manager.suspend(WING, by="anna")
    manager.restart(WING, by="anna")
    manager.leave(WING, "bert")
    manager.destroy(WING, by="anna")
    assert manager.channels() == ()
