"""Whatever is lost, repeated or out of order: a receiver's state becomes that of its suppliers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.channel.resync import machine
from heliograph.channel.resync.machine import AskForState, ResyncMachine, Version
from tests.support import examples

SECOND = 1_000_000_000
GRACE, CHECK, PAUSE = SECOND // 10, SECOND, SECOND // 10
KEYS = st.integers(0, 3)
OPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"), st.integers(0, 1), KEYS, st.sampled_from(["come", "lost", "late", "twice"])
        ),
        st.tuples(st.just("drop"), st.integers(0, 1), KEYS),
        st.tuples(st.just("restart"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("late comes"), st.integers(0, 5)),
        st.tuples(st.just("time"), st.sampled_from([GRACE // 2, GRACE, PAUSE, CHECK, 6 * SECOND])),
        st.tuples(st.just("ask"), st.sampled_from(["whole", "part", "none", "unheard"])),
    ),
    max_size=60,
)


class World:
    """Two stations, each with keys of its own, and one receiver."""

    def __init__(self, *, versions: bool) -> None:
        self.versions = versions
        self.now = 0
        self.ids = [1, 2]
        self.lives = 2
        self.states: list[dict[Any, int]] = [{}, {}]
        self.latest: list[dict[Any, tuple[Version, int]]] = [{}, {}]
        self.sequences = [0, 0]
        self.late: list[tuple[Version, Any, int]] = []
        self.number = 0
        self.machine = ResyncMachine(grace=GRACE, check=CHECK, pause=PAUSE, longest=5 * SECOND)
        self.machine.offers(0, self.ids)
        self.delivered: dict[Any, int] = {}
        self.dropped: set[Any] = set()
        """Keys of which nobody was told that they are gone, or whose station was gone before it was heard."""
        self.heard: set[int] = set()
        """Stations that have said how far their suppliers are."""

    def push(self, who: int, key: int, fate: str) -> None:
        self.number += 1
        self.sequences[who] += 1
        named = (who, key)
        version = Version(str(self.ids[who]), 1, self.sequences[who])
        self.states[who][named] = self.number
        self.latest[who][named] = (version, self.number)
        if fate == "late":
            self.late.append((version, named, self.number))
        for _ in range({"come": 1, "twice": 2}.get(fate, 0)):
            self.receive(version, named, self.number)

    def receive(self, version: Version, key: Any, value: int) -> None:
        if self.machine.event(self.now, version, key, value):
            self.delivered[key] = value

    def drop(self, who: int, key: int) -> None:
        """The supplier has a key no more, and says so to nobody."""
        self.states[who].pop((who, key), None)
        self.latest[who].pop((who, key), None)
        self.dropped.add((who, key))

    def restart(self, who: int, *, keeps: bool) -> None:
        """As a new station, whose suppliers begin at 1; with its state or without."""
        if self.ids[who] not in self.heard:
            self.dropped |= self.states[who].keys()
            self.late = [one for one in self.late if one[0].supplier != str(self.ids[who])]
        self.lives += 1
        self.ids[who] = self.lives
        self.sequences[who] = 0
        self.latest[who] = {}
        if not keeps:
            self.states[who] = {}
        for key in list(self.states[who]):  # it says what it is, as programs do that begin
            self.push(who, key[1], "lost")
        self.machine.offers(self.now, self.ids)

    def answer(self, outcome: str) -> None:
        for action in self.machine.due(self.now):
            who = self.ids.index(action.station)
            marks = {(str(action.station), 1): self.sequences[who]}
            if outcome != "none":
                self.heard.add(action.station)
            if isinstance(action, AskForState):
                self.snapshot(action, who, marks, outcome)
            else:
                self.machine.told(self.now, action.station, None if outcome == "none" else marks)

    def snapshot(self, ask: AskForState, who: int, marks: Any, outcome: str) -> None:
        rows = (
            dict(self.latest[who]) if self.versions else {k: (None, v) for k, v in self.states[who].items()}
        )
        if outcome == "none" or not self.machine.begin(self.now, ask.station, ask.number, marks):
            self.machine.failed(self.now, ask.station, ask.number)
            return
        sent = list(rows.items())[: len(rows) // 2] if outcome == "part" else list(rows.items())
        self.machine.coming(ask.station, ask.number, [key for key, _ in sent])
        for key, (version, value) in sent:
            if self.machine.row(ask.station, marks, key, version, value):
                self.delivered[key] = value
        if outcome == "whole":
            self.machine.end(self.now, ask.station, ask.number)
        else:
            self.machine.failed(self.now, ask.station, ask.number)

    def step(self, op: tuple[Any, ...]) -> None:
        match op:
            case ("push", who, key, fate):
                self.push(who, key, fate)
            case ("drop", who, key):
                self.drop(who, key)
            case ("restart", who, keeps):
                self.restart(who, keeps=keeps)
            case ("late comes", index) if self.late:
                self.receive(*self.late.pop(index % len(self.late)))
            case ("time", passed):
                self.now += passed
            case ("ask", outcome):
                self.answer(outcome)

    def settle(self) -> None:
        """Nothing is lost any more, and time passes."""
        for _ in range(10):
            self.now += 6 * SECOND
            self.answer("whole")


@given(OPS, st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_the_receiver_ends_with_the_state_of_all_suppliers(
    ops: list[tuple[Any, ...]], versions: bool
) -> None:
    world = World(versions=versions)
    for op in ops:
        world.step(op)
    world.settle()
    assert world.machine.is_settled
    known = {key: one.event for key, one in world.machine.known.items()}
    wanted = {key: value for state in world.states for key, value in state.items()}
    assert {key: known.get(key) for key in wanted} == wanted
    assert known.keys() - wanted.keys() <= world.dropped  # nothing of a supplier that began anew without it
    assert {key: world.delivered.get(key) for key in wanted} == wanted  # its function was told so, too


@given(OPS, st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_receiver_that_has_forgotten_suppliers_ends_with_their_state_all_the_same(
    ops: list[tuple[Any, ...]], versions: bool
) -> None:
    before, machine.MAX_SOURCES = machine.MAX_SOURCES, 1  # type: ignore[misc]  # one of two at a time
    try:
        world = World(versions=versions)
        for op in ops:
            world.step(op)
            assert len(world.machine.sources) <= 1
        world.settle()
    finally:
        machine.MAX_SOURCES = before  # type: ignore[misc]  # as it was
    known = {key: value.event for key, value in world.machine.known.items()}
    wanted = {key: value for state in world.states for key, value in state.items()}
    assert {key: known.get(key) for key in wanted} == wanted


@given(OPS)
@settings(max_examples=examples(100), deadline=None)
def test_when_all_has_come_in_order_nothing_is_asked_for_again(ops: list[tuple[Any, ...]]) -> None:
    world = World(versions=True)
    world.answer("whole")
    asked = world.machine.counts.asked
    for op in ops:
        if op[0] == "push":
            world.step((*op[:3], "come"))
        elif op[0] == "time":
            world.step(op)
            world.answer("whole")
    world.settle()
    assert world.machine.counts.asked == asked
    assert world.machine.counts.repeated == 0
