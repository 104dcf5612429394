"""The event monitor as a story: what comes in, and what it says to do."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliograph.delivery.monitor import Delete, End, GiveUp, Monitor, Pass, Resend, Row, StartTimer
from tests.support import examples

SECOND = 1_000_000_000


def monitor(resends: int = 2) -> Monitor[str]:
    return Monitor(timeout_ns=SECOND, resends=resends)


def test_an_event_that_everybody_acknowledges_in_time_is_deleted() -> None:
    """Steps one to six, as they are drawn."""
    watch = monitor()
    assert watch.notify("e1", ("billing", "audit"), 0) == [
        StartTimer("e1", SECOND),
        Pass("e1", ("billing", "audit")),
    ]
    assert watch.acked("e1", "audit") == []
    assert watch.acked("e1", "billing") == [Delete("e1")]
    assert watch.array() == ()
    assert watch.next_due is None
    assert watch.tick(10 * SECOND) == []


def test_when_the_timer_rings_only_those_who_lack_it_get_it_again() -> None:
    watch = monitor()
    watch.notify("e1", ("a", "b", "c"), 0)
    watch.acked("e1", "b")
    assert watch.tick(SECOND) == [Resend("e1", ("a", "c"), 1), StartTimer("e1", 2 * SECOND)]
    watch.acked("e1", "a")
    assert watch.tick(2 * SECOND) == [Resend("e1", ("c",), 2), StartTimer("e1", 3 * SECOND)]
    assert watch.acked("e1", "c") == [Delete("e1")]
    assert (watch.resent, watch.deleted, watch.given_up) == (3, 1, 0)


def test_after_so_many_resends_it_gives_up_and_says_who_lacks_it() -> None:
    watch = monitor(resends=1)
    watch.notify("e1", ("a", "b"), 0)
    watch.acked("e1", "a")
    watch.tick(SECOND)
    assert watch.tick(2 * SECOND) == [GiveUp("e1", ("b",), 1)]
    assert watch.acked("e1", "b") == []
    assert (watch.given_up, watch.late, len(watch)) == (1, 1, 0)


def test_the_array_can_be_looked_at_and_follows_the_membership() -> None:
    watch = monitor()
    watch.notify("e1", ("a", "b"), 0, supplier="radar-1")
    watch.acked("e1", "a")
    assert watch.array() == (Row("radar-1", "e1", {"a": True, "b": False}, 0),)
    assert watch.left("a") == []
    assert watch.array() == (Row("radar-1", "e1", {"b": False}, 0),)
    assert watch.left("b") == [End("e1", ("b",))]


def test_an_event_that_a_consumer_left_behind_is_not_delivered_though_the_others_have_it() -> None:
    watch = monitor()
    watch.notify("e1", ("a", "b"), 0)
    assert watch.left("a") == []
    assert watch.acked("e1", "b") == [End("e1", ("a",))]
    watch.notify("e2", ("a", "b"), 0)
    watch.acked("e2", "a")
    assert watch.left("a") == [], "it has acknowledged"
    assert watch.acked("e2", "b") == [Delete("e2")]
    assert (watch.deleted, watch.ended) == (1, 1)


def test_an_event_for_nobody_has_been_delivered() -> None:
    assert monitor().notify("e1", (), 0) == [Delete("e1")]


def test_a_second_acknowledgement_changes_nothing() -> None:
    watch = monitor()
    watch.notify("e1", ("a", "b"), 0)
    assert watch.acked("e1", "a") == []
    assert watch.acked("e1", "a") == []
    assert watch.acked("e1", "stranger") == []
    assert watch.array()[0].state == {"a": True, "b": False}


def test_each_event_has_a_timer_of_its_own() -> None:
    watch = monitor()
    watch.notify("e1", ("a",), 0)
    watch.notify("e2", ("a",), SECOND // 2)
    assert watch.next_due == SECOND
    watch.acked("e1", "a")
    assert watch.next_due == SECOND + SECOND // 2
    assert watch.tick(SECOND) == []


CONSUMERS = ("a", "b", "c", "d")


class MonitorAgainstModel(RuleBasedStateMachine):
    """The model keeps, per event, who lacks it, how often it was sent, and when it rings."""

    def __init__(self) -> None:
        super().__init__()
        self.monitor: Monitor[int] = Monitor(timeout_ns=10, resends=2)
        self.now = 0
        self.numbers = 0
        self.members = set(CONSUMERS)
        self.left_behind: set[int] = set()
        self.model: dict[int, tuple[set[str], set[str], int, int]] = {}
        """Event: (all, lacking, resends, due)."""
        self.outcomes: dict[int, str] = {}

    def settle(self, actions: object) -> None:
        """Every event that ends, ends once."""
        assert isinstance(actions, list)
        for action in actions:
            if isinstance(action, Delete | GiveUp | End):
                assert action.event not in self.outcomes
                self.outcomes[action.event] = type(action).__name__

    @rule(chosen=st.sets(st.sampled_from(CONSUMERS)))
    def push(self, chosen: set[str]) -> None:
        self.numbers += 1
        consumers = tuple(sorted(chosen & self.members))
        self.settle(self.monitor.notify(self.numbers, consumers, self.now))
        if consumers:
            self.model[self.numbers] = (set(consumers), set(consumers), 0, self.now + 10)
        else:
            assert self.outcomes[self.numbers] == "Delete"

    @precondition(lambda self: self.numbers)
    @rule(data=st.data(), consumer=st.sampled_from(CONSUMERS))
    def ack(self, data: st.DataObject, consumer: str) -> None:
        event = data.draw(st.integers(1, self.numbers))
        self.settle(self.monitor.acked(event, consumer))
        if event in self.model:
            self.model[event][1].discard(consumer)
            self.end_complete()

    @rule(consumer=st.sampled_from(CONSUMERS))
    def leave(self, consumer: str) -> None:
        self.members.discard(consumer)
        self.settle(self.monitor.left(consumer))
        for event, (everybody, lacking, _, _) in self.model.items():
            if consumer in lacking:
                self.left_behind.add(event)
            everybody.discard(consumer)
            lacking.discard(consumer)
        self.end_complete()

    @rule(consumer=st.sampled_from(CONSUMERS))
    def come(self, consumer: str) -> None:
        self.members.add(consumer)

    @rule(passed=st.integers(1, 25))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        actions = self.monitor.tick(self.now)
        self.settle(actions)
        resent = {a.event: a for a in actions if isinstance(a, Resend)}
        for event, (everybody, lacking, resends, due) in list(self.model.items()):
            if due > self.now:
                assert event not in resent
            elif resends == 2:
                assert self.outcomes[event] == "GiveUp"
                del self.model[event]
            else:
                assert set(resent[event].consumers) == lacking
                self.model[event] = (everybody, lacking, resends + 1, self.now + 10)

    def end_complete(self) -> None:
        for event, (_, lacking, _, _) in list(self.model.items()):
            if not lacking:
                assert self.outcomes[event] == ("End" if event in self.left_behind else "Delete")
                del self.model[event]

    @invariant()
    def the_array_is_the_models(self) -> None:
        rows = {row.event: row for row in self.monitor.array()}
        assert rows.keys() == self.model.keys()
        for event, (everybody, lacking, resends, _) in self.model.items():
            assert rows[event].state == {name: name not in lacking for name in everybody}
            assert rows[event].resends == resends
        assert self.monitor.next_due == min((due for _, _, _, due in self.model.values()), default=None)


TestMonitorAgainstModel = MonitorAgainstModel.TestCase
TestMonitorAgainstModel.settings = settings(max_examples=examples(60), stateful_step_count=40)
