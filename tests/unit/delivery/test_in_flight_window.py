"""The window as a story: events are handed out, come back, and are settled."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliograph.channel.ack_protocol import numbered, place_of, stream_of
from heliograph.delivery.in_flight_window import MAX_OUT, Dead, InFlightEvent, Window
from tests.support import examples

SECOND = 1_000_000_000


def window(*members: str, most: int = 100, **options: object) -> Window[str]:
    made: Window[str] = Window(**options)  # type: ignore[arg-type]  # options of the window
    for member in members or ("a",):
        made.join(member, most)
    return made


def numbers(handed: list[InFlightEvent[str]]) -> list[int]:
    return [one.number for one in handed]


def test_what_is_acknowledged_never_comes_again() -> None:
    w = window()
    w.offer(0, "x")
    assert w.take("a", 0) == [InFlightEvent(0, "x", 1, again=False)]
    assert w.ack(0)
    assert not w.ack(0)
    assert w.take("a", 0) == []
    assert w.is_idle()


def test_a_nak_brings_it_back_after_its_delay_and_says_so() -> None:
    w = window()
    w.offer(0, "x")
    w.take("a", 0)
    w.nak(0, "a", 0, delay_ns=SECOND)
    assert w.next_due == SECOND
    assert w.take("a", 0) == []
    w.tick(SECOND)
    assert w.take("a", SECOND) == [InFlightEvent(0, "x", 2, again=True)]


def test_a_lease_that_is_over_gives_the_event_to_another_member() -> None:
    w = window("a", "b", lease_ns=SECOND)
    w.offer(0, "x")
    w.take("a", 0)
    assert w.take("b", 0) == []
    w.tick(SECOND)
    assert numbers(w.take("b", SECOND)) == [0]
    assert w.nak(0, "a", SECOND) == []
    assert w.holds("b") == {0}


def test_a_late_acknowledgement_counts_while_nobody_else_has_it() -> None:
    w = window(lease_ns=SECOND)
    w.offer(0, "x")
    w.take("a", 0)
    w.tick(SECOND)
    assert w.ack(0)
    assert w.take("a", SECOND) == []


def test_a_member_holds_no_more_than_it_may() -> None:
    w = window(most=2)
    for number in range(3):
        w.offer(number, "x")
    assert numbers(w.take("a", 0, most=10)) == [0, 1]
    w.ack(1)
    assert numbers(w.take("a", 0, most=10)) == [2]


def test_after_so_many_deliveries_it_is_dead_until_it_is_buried() -> None:
    w = window(max_deliveries=2)
    w.offer(0, "x")
    w.take("a", 0)
    assert w.nak(0, "a", 0) == []
    w.take("a", 0)
    assert w.nak(0, "a", 0, delay_ns=SECOND) == [Dead(0, "x", 2)]
    assert w.take("a", 0) == []
    assert w.low() == 0
    w.ack(0)
    assert (w.low(), w.stats().dead) == (1, 1)


def test_the_low_watermark_waits_for_the_slowest_and_the_rest_is_told_above_it() -> None:
    w = window()
    for number in (5, 7, 9):
        w.offer(number, "x")
    w.take("a", 0, most=3)
    w.ack(7)
    assert (w.low(), w.acks_above(w.low())) == (5, {7})
    w.ack(5)
    assert (w.low(), w.acks_above(w.low())) == (9, set())
    w.ack(9)
    assert w.low() == 10


def test_by_key_later_events_of_a_key_wait_until_the_earlier_one_is_settled() -> None:
    w = window(by_key=True)
    for number, key in enumerate(["k", "k", "other", "k"]):
        w.offer(number, "x", key=(key,))
    assert numbers(w.take("a", 0, most=10)) == [0, 2]
    w.nak(0, "a", 0, delay_ns=SECOND)
    assert w.take("a", 0, most=10) == []
    w.tick(SECOND)
    assert numbers(w.take("a", SECOND, most=10)) == [0]
    w.ack(0)
    assert numbers(w.take("a", SECOND, most=10)) == [1]
    w.ack(1)
    assert numbers(w.take("a", SECOND, most=10)) == [3]


def test_a_key_stays_with_its_member_and_moves_when_that_leaves() -> None:
    w = window("a", "b", "c")
    for number in range(90):
        w.offer(number, "x", key=(number % 9,))
    shares = {name: {n % 9 for n in numbers(w.take(name, 0, most=100))} for name in "abc"}
    assert sum(len(share) for share in shares.values()) == 9
    w.leave("a")
    again = {name: {n % 9 for n in numbers(w.take(name, 0, most=100))} for name in "bc"}
    assert again["b"] | again["c"] == shares["a"]


def test_what_came_first_is_first_again() -> None:
    w = window()
    for number in range(3):
        w.offer(number, "x")
    w.take("a", 0, most=2)
    w.nak(0, "a", 0)
    w.nak(1, "a", 0)
    assert numbers(w.take("a", 0, most=3)) == [0, 1, 2]


KEYS = ("", "k", "l")


class WindowAgainstModel(RuleBasedStateMachine):
    """The model keeps where each event is; it knows nothing of heaps, ranks and shares."""

    by_key = False

    def __init__(self) -> None:
        super().__init__()
        self.window: Window[str] = Window(lease_ns=20, max_deliveries=3, by_key=self.by_key)
        self.now = 0
        self.keys: list[str] = []
        self.members: set[str] = set()
        self.open: dict[int, int] = {}
        """Unsettled events and how often each was handed out."""
        self.held_by: dict[int, tuple[str, int]] = {}
        """Who holds an event, and until when."""
        self.delayed: dict[int, int] = {}
        self.dead: set[int] = set()
        self.is_paused = False

    def add_dead_letter(self, dead: list[Dead[str]]) -> None:
        for one in dead:
            assert self.open[one.number] == one.attempts == 3
            assert one.number not in self.dead
            self.dead.add(one.number)
            self.held_by.pop(one.number, None)

    @rule(member=st.sampled_from("abc"))
    def come(self, member: str) -> None:
        if member not in self.members:
            self.members.add(member)
            self.window.join(member, 2)

    @rule(member=st.sampled_from("abc"))
    def go(self, member: str) -> None:
        self.members.discard(member)
        self.held_by = {n: held for n, held in self.held_by.items() if held[0] != member}
        self.add_dead_letter(self.window.leave(member))

    @rule(key=st.sampled_from(KEYS))
    def offer(self, key: str) -> None:
        self.open[len(self.keys)] = 0
        self.window.offer(len(self.keys), "x", key=(key,) if key else ())
        self.keys.append(key)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), most=st.integers(1, 4))
    def take(self, data: st.DataObject, most: int) -> None:
        member = data.draw(st.sampled_from(sorted(self.members)))
        for one in self.window.take(member, self.now, most):
            n = one.number
            assert not self.is_paused
            assert n in self.open
            assert n not in self.held_by
            assert n not in self.delayed
            assert n not in self.dead
            if self.by_key:
                assert all(m >= n or self.keys[m] != self.keys[n] for m in self.open)
            self.open[n] += 1
            assert (one.attempt, one.again) == (self.open[n], self.open[n] > 1)
            self.held_by[n] = (member, self.now + 20)
        assert sum(held[0] == member for held in self.held_by.values()) <= 2

    @rule()
    def pause_or_go_on(self) -> None:
        self.is_paused = not self.is_paused
        (self.window.pause if self.is_paused else self.window.go_on)(0)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, len(self.keys) - 1))
        if n in self.open and (self.open[n] or n in self.dead):
            assert self.window.ack(n)
            del self.open[n]
            self.held_by.pop(n, None)
            self.delayed.pop(n, None)
            self.dead.discard(n)

    @precondition(lambda self: self.held_by)
    @rule(data=st.data(), delay=st.sampled_from([0, 15]))
    def nak(self, data: st.DataObject, delay: int) -> None:
        n = data.draw(st.sampled_from(sorted(self.held_by)))
        member, _ = self.held_by.pop(n)
        dead = self.window.nak(n, member, self.now, delay)
        self.add_dead_letter(dead)
        if delay and not dead:
            self.delayed[n] = self.now + delay

    @rule(passed=st.integers(1, 30))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.delayed = {n: due for n, due in self.delayed.items() if due > self.now}
        self.held_by = {n: held for n, held in self.held_by.items() if held[1] > self.now}
        self.add_dead_letter(self.window.tick(self.now))

    @invariant()
    def nothing_is_lost_and_the_marks_are_right(self) -> None:
        assert self.window.low() == min(self.open, default=len(self.keys))
        settled = {n for n in range(len(self.keys)) if n not in self.open and n > self.window.low()}
        assert self.window.acks_above(self.window.low()) == settled
        stats = self.window.stats()
        assert stats.out == len(self.held_by)
        assert stats.delayed == len(self.delayed)
        dues = [*self.delayed.values(), *(due for _, due in self.held_by.values())]
        assert self.window.next_due == min(dues, default=None)

    def teardown(self) -> None:
        """At the end everything that lives can still be had, by one member alone."""
        for member in sorted(self.members):
            self.go(member)
        self.time_passes(100)
        self.window.go_on(0)
        self.window.join("last", 10_000)
        reached: set[int] = set()
        while handed := self.window.take("last", self.now, 100):
            reached |= {one.number for one in handed}
            for one in handed:
                self.window.ack(one.number)
        # With `by_key` an unburied event holds back its key, and only that.
        stuck = {self.keys[n] for n in self.dead} if self.by_key else set()
        assert {n for n in self.open if self.keys[n] not in stuck} - self.dead <= reached
        super().teardown()


class WindowByKeyAgainstModel(WindowAgainstModel):
    by_key = True


TestWindowAgainstModel = WindowAgainstModel.TestCase
TestWindowByKeyAgainstModel = WindowByKeyAgainstModel.TestCase
for case in (TestWindowAgainstModel, TestWindowByKeyAgainstModel):
    case.settings = settings(max_examples=examples(60), stateful_step_count=50)


def test_each_stream_has_a_low_watermark_of_its_own() -> None:
    w: Window[str] = Window()
    w.join("a", 10)
    for stream, place in ((0, 5), (1, 5), (0, 6), (1, 900)):
        w.offer(numbered(stream, place), f"{stream}:{place}")
    assert [handed.item for handed in w.take("a", 0, 10)] == ["0:5", "1:5", "0:6", "1:900"]
    w.ack(numbered(1, 5))
    w.ack(numbered(0, 6))
    assert (w.low(0), w.acks_above(5, 0)) == (5, {6})
    assert (w.low(1), w.acks_above(900, 1)) == (900, set())
    assert w.low(0) < w.behind(0)
    w.ack(numbered(0, 5))
    assert w.low(0) == w.behind(0)
    assert (w.low(0), w.low(1)) == (7, 900)


def test_a_stream_that_is_paused_takes_no_room_and_holds_back_no_key_of_the_others() -> None:
    w = window(by_key=True, most=2 * MAX_OUT)
    for place in range(3):
        w.offer(numbered(1, place), f"1:{place}", key=("k",))
        w.offer(numbered(0, place), f"0:{place}", key=("k",))
    assert [one.item for one in w.take("a", 0, 10)] == ["1:0"]
    w.give_back(numbered(1, 0))
    w.pause(1)
    for place in range(3):
        assert [one.item for one in w.take("a", 0, 10)] == [f"0:{place}"]
        w.ack(numbered(0, place))
    for place in range(3, MAX_OUT + 3):
        w.offer(numbered(1, place), f"1:{place}", key=("k",))
    is_full = [w.full]
    assert w.take("a", 0, 10) == []
    w.go_on(1)
    assert [*is_full, w.full] == [False, True]
    for place in range(4):
        assert [(one.item, one.again) for one in w.take("a", 0, 10)] == [(f"1:{place}", False)]
        w.ack(numbered(1, place))


@given(stream=st.integers(0, 1 << 20), place=st.integers(0, (1 << 64) - 1))
def test_a_number_names_a_stream_and_a_place_in_it(stream: int, place: int) -> None:
    number = numbered(stream, place)
    assert (stream_of(number), place_of(number)) == (stream, place)
    assert numbered(0, place) == place
