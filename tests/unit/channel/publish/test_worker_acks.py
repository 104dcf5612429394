"""When an event that another station handed over is settled here: when all who wanted it are done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.channel.publish.worker_acks import WorkerAcks
from heliograph.model.event import EventId, Header
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from heliograph.channel.observer import Outcome


class Note(hg.Event, name="settling.note"):
    n: int


def header(sequence: int, *, redelivered: bool = False) -> Header:
    return Header("c", "settling.note", "s", 1, sequence, 0, b"", 3, (), 1, redelivered=redelivered)


class PendingCommit:
    def __init__(self) -> None:
        self.settling = WorkerAcks(system_ports().tasks)
        self.settling.supervisor = self
        self.events: list[tuple[int, bool]] = []
        self.in_hand: list[int] = []

    def begun(self, channel: str, event: EventId) -> None:
        assert channel == "c"
        self.in_hand.append(event.sequence)

    def settled(self, channel: str, event: EventId, again: bool) -> None:
        assert channel == "c"
        self.events.append((event.sequence, again))

    def done(self, receiver: str, sequence: int, outcome: Outcome = "delivered") -> None:
        self.settling.watch(receiver)(header(sequence), outcome)


def test_an_event_is_settled_when_the_last_receiver_is_done_with_it_however() -> None:
    told = PendingCommit()
    told.settling.expect(header(7), ["a", "b"])
    told.done("a", 7)
    told.settling.taken_in(header(7))
    assert told.events == []
    told.done("b", 7, "dropped")
    told.done("b", 7)
    assert told.events == [(7, False)]


def test_receivers_that_are_done_before_it_is_taken_in_wait_for_inline_ones() -> None:
    told = PendingCommit()
    told.settling.expect(header(7), ["a"])
    told.done("a", 7, "failed")
    assert told.events == []
    told.settling.taken_in(header(7))
    assert told.events == [(7, False)]


def test_what_nobody_here_wants_is_settled_at_once_and_what_comes_again_says_so() -> None:
    told = PendingCommit()
    told.settling.taken_in(header(8, redelivered=True))
    assert told.events == [(8, True)]


def test_events_of_others_are_nobodys_business() -> None:
    told = PendingCommit()
    told.done("a", 9)
    assert told.events == []


@pytest.mark.parametrize(("redelivered", "told_before"), [(True, [[], [1], [1, 2]]), (False, [[], [], []])])
def test_of_events_that_came_again_each_is_told_before_the_next_is_called(
    redelivered: bool, told_before: list[list[int]]
) -> None:
    told = PendingCommit()
    calls: list[list[int]] = []
    with hg.Station() as station:
        notes = station.channel("c", Note)
        notes.subscribe(lambda _: calls.append([number for number, _ in told.events]), inline=True)
        notes.settling = told.settling
        intake = notes.neighbours.intake("link", supervisor=told)
        items = [(Note(n), header(n, redelivered=redelivered), 0) for n in (1, 2, 3)]
        assert intake.take_in(items) == 3
    assert calls == told_before
    assert told.events == [(n, redelivered) for n in (1, 2, 3)]


class Handing:
    """A channel of a worker, with consumers that are not called but take what they are handed."""

    def __init__(self, station: hg.Station, consumers: int) -> None:
        self.told = PendingCommit()
        notes = station.channel("c", Note)
        notes.settling = self.told.settling
        notes.observer = self.told.settling
        self.consumers = [notes.consumer() for _ in range(consumers)]
        self.intake = notes.neighbours.intake("link", supervisor=self.told)

    def take_in(self, *numbers: int, redelivered: bool) -> int:
        return self.intake.take_in([(Note(n), header(n, redelivered=redelivered), 0) for n in numbers])


def test_an_event_that_came_again_is_handed_over_when_all_receivers_are_done_with_the_one_before() -> None:
    with hg.Station() as station:
        handing = Handing(station, consumers=2)
        first, second = handing.consumers
        assert handing.take_in(1, 2, redelivered=True) == 1
        assert handing.told.in_hand == [1]
        assert first.pull(0) == Note(1)
        assert handing.take_in(2, redelivered=True) == 0
        assert second.pull(0) == Note(1)
        assert handing.told.events == [(1, True)]
        assert handing.take_in(2, redelivered=True) == 1
        assert handing.told.in_hand == [1, 2]


def test_what_came_once_waits_for_those_that_came_again_and_not_for_others() -> None:
    with hg.Station() as station:
        handing = Handing(station, consumers=1)
        assert handing.take_in(1, redelivered=True) == 1
        assert handing.take_in(2, 3, redelivered=False) == 0
        assert handing.consumers[0].pull(0) == Note(1)
        assert handing.take_in(2, 3, redelivered=False) == 2
        assert handing.take_in(4, redelivered=True) == 0
        assert handing.told.in_hand == [1]


@pytest.mark.parametrize("redelivered", [False, True])
def test_what_is_let_go_because_the_session_is_over_is_not_settled(redelivered: bool) -> None:
    """Nobody here had it: the supervisor must hand it over again, or to the next process."""
    with hg.Station() as station:
        handing = Handing(station, consumers=1)
        assert handing.take_in(1, redelivered=redelivered) == 1
        assert handing.consumers[0].pull(0) == Note(1)
        handing.intake.close()
        assert handing.take_in(2, 3, redelivered=redelivered) == 2
        assert handing.told.events == [(1, redelivered)]
        assert not handing.told.settling.has_suspects


def test_what_is_dropped_because_the_process_ends_is_left_for_the_next_one() -> None:
    told = PendingCommit()
    for number in (1, 2):
        told.settling.expect(header(number), ["a"])
        told.settling.taken_in(header(number))
    told.settling.is_ending = True
    told.done("a", 1)
    told.done("a", 2, "dropped")
    assert told.events == [(1, False)]
