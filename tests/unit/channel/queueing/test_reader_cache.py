"""The reader cache: what it keeps of each instance, against a naive model and case by case."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliograph.channel.queueing.reader_cache import (
    ANY,
    NIL,
    Arrival,
    CacheLimits,
    ReaderCache,
    SampleSelection,
)
from heliograph.model.instance_change import CoherentPart
from tests.support import examples


def wrote(key: int, value: Any = None, writer: str = "w", ts: int = 0, **more: Any) -> Arrival:
    return Arrival("write", value, (key,), writer, ts, **more)


def data(cache: ReaderCache, *, take: bool = True, now: int = 0, wanted: SampleSelection = ANY) -> list[Any]:
    return [one for one, info in cache.select(wanted, take=take, now=now) if info.valid_data]


def test_the_oldest_sample_of_an_instance_makes_room() -> None:
    cache = ReaderCache(CacheLimits(depth=2))
    for n in range(4):
        assert cache.accept(wrote(1, n), 0) is None
    assert cache.accept(wrote(2, 9), 0) is None
    assert data(cache) == [2, 3, 9]
    assert cache.samples == 0


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (CacheLimits(depth=None, max_samples=1), "samples"),
        (CacheLimits(depth=None, max_samples_per_instance=1), "samples-per-instance"),
    ],
)
def test_a_full_cache_rejects_until_something_is_taken(limits: CacheLimits, why: str) -> None:
    cache = ReaderCache(limits)
    assert cache.accept(wrote(1, 1), 0) is None
    assert cache.accept(wrote(1, 2), 0) == why
    assert data(cache) == [1]
    assert cache.accept(wrote(1, 2), 0) is None


def test_an_instance_that_is_over_and_read_makes_room_for_another() -> None:
    cache = ReaderCache(CacheLimits(max_instances=1))
    cache.accept(wrote(1, 1), 0)
    assert cache.accept(wrote(2, 2), 0) == "instances"
    cache.accept(Arrival("dispose", 1, (1,), "w", 0), 0)
    assert cache.accept(wrote(2, 2), 0) == "instances", "nobody has read that it is over"
    cache.select(ANY, take=True, now=0)
    assert cache.accept(wrote(2, 2), 0) is None
    assert cache.lookup((1,)) == NIL


def test_of_two_equally_strong_writers_the_first_by_name_is_heard() -> None:
    cache = ReaderCache(CacheLimits(depth=None, exclusive=True))
    cache.accept(wrote(1, "b", "b"), 0)
    cache.accept(wrote(1, "a", "a"), 0)
    assert cache.accept(wrote(1, "b again", "b"), 0) == "not-owner"
    cache.writer_lost("a", 0)
    assert cache.accept(wrote(1, "b at last", "b"), 0) is None
    assert data(cache) == ["b", "a", "b at last"]


def test_an_owner_that_misses_its_deadline_hands_over() -> None:
    cache = ReaderCache(CacheLimits(depth=None, exclusive=True, deadline=100))
    cache.set_strength("strong", 9)
    cache.accept(wrote(1, 1, "strong"), 0)
    assert cache.accept(wrote(1, 2, "weak"), 10) == "not-owner"
    assert cache.tick(100) == ([1], False)
    assert cache.accept(wrote(1, 3, "weak"), 110) is None
    assert cache.accept(wrote(1, 4, "strong"), 120) is None
    assert cache.accept(wrote(1, 5, "weak"), 130) == "not-owner"


def test_a_deadline_is_reported_once_for_every_period() -> None:
    cache = ReaderCache(CacheLimits(deadline=100))
    cache.accept(wrote(1), 0)
    assert cache.next_due() == 100
    assert cache.tick(99) == ([], False)
    assert cache.tick(100) == ([1], False)
    assert cache.tick(150) == ([], False)
    assert cache.tick(390) == ([1], False), "periods in which nobody looked are one report"
    assert cache.next_due() == 400


def test_what_came_too_early_follows_when_the_separation_is_over() -> None:
    cache = ReaderCache(CacheLimits(depth=None, separation=100))
    assert cache.accept(wrote(1, 1), 0) is None
    assert cache.accept(wrote(1, 2), 10) == "separated"
    assert cache.accept(wrote(1, 3), 20) == "separated"
    assert cache.next_due() == 100
    assert cache.tick(100) == ([], True)
    assert data(cache) == [1, 3]


def test_all_orders_of_arrival_end_with_the_same_value_by_source_time() -> None:
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        cache = ReaderCache(CacheLimits(by_source=True))
        for ts in order:
            cache.accept(wrote(1, ts, ts=ts), 0)
        assert data(cache) == [3]
        assert cache.accept(wrote(1, 0, ts=2), 0) == "older"


def test_an_expired_sample_is_not_seen_though_nobody_looked() -> None:
    cache = ReaderCache(CacheLimits(depth=None))
    assert cache.accept(wrote(1, 1, expires=50), 60) == "expired"
    cache.accept(wrote(1, 2, expires=50), 0)
    cache.accept(wrote(1, 3), 0)
    assert data(cache, take=False, now=49) == [2, 3]
    assert data(cache, now=50) == [3]
    assert cache.samples == 0


def test_a_set_enters_when_its_last_part_comes_and_is_dropped_when_a_later_one_begins() -> None:
    cache = ReaderCache(CacheLimits(depth=None))
    parts = [wrote(n, n, part=CoherentPart(1, n, 3)) for n in range(3)]
    assert [cache.accept(part, 0) for part in parts[:2]] == ["staged", "staged"]
    assert data(cache) == []
    assert cache.accept(parts[2], 0) is None
    assert data(cache) == [0, 1, 2]
    cache.accept(wrote(5, 5, part=CoherentPart(2, 0, 2)), 0)
    cache.accept(wrote(6, 6, part=CoherentPart(3, 0, 1)), 0)
    assert data(cache) == [6]
    cache.accept(wrote(7, 7, part=CoherentPart(4, 0, 2)), 0)
    cache.writer_lost("w", 0)
    assert cache.accept(wrote(8, 8, part=CoherentPart(4, 1, 2)), 0) == "staged"


def test_an_instance_is_forgotten_when_its_delay_is_over() -> None:
    cache = ReaderCache(CacheLimits(purge_disposed=10, purge_nowriter=20))
    cache.accept(wrote(1), 0)
    cache.accept(wrote(2), 0)
    cache.accept(Arrival("dispose", None, (1,), "w", 0), 0)
    cache.accept(Arrival("unregister", None, (2,), "w", 0), 0)
    assert cache.next_due() == 10
    cache.tick(10)
    assert (cache.lookup((1,)), cache.lookup((2,))) == (NIL, 2)
    cache.tick(20)
    assert len(cache) == cache.samples == 0


KEYS = st.integers(0, 2)
WRITERS = st.sampled_from("ab")


class AgainstModel(RuleBasedStateMachine):
    """Samples and instances, with the last three samples of each instance, as a naive list has them."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ReaderCache(CacheLimits(depth=3))
        assert self.cache.is_light()
        self.kept: dict[int, list[tuple[int, int]]] = {}
        """Values of each key with their generation."""
        self.read: set[int] = set()
        self.writers: dict[int, set[str]] = {}
        self.state: dict[int, str] = {}
        self.generation: dict[int, int] = {}
        self.seen: set[int] = set()
        """Keys of which this generation was seen."""
        self.told: set[int] = set()
        """Keys with a sample that only tells of a state."""
        self.value = 0

    @rule(key=KEYS, writer=WRITERS, light=st.booleans())
    def write(self, key: int, writer: str, light: bool) -> None:
        self.value += 1
        if light:
            assert self.cache.put(self.value, (key,), writer, 0, None, 0, 0)
        else:
            assert self.cache.accept(wrote(key, self.value, writer), 0) is None
        if self.state.get(key, "alive") != "alive":
            self.generation[key] = self.generation.get(key, 0) + 1
            self.seen.discard(key)
        self.state[key] = "alive"
        self.writers.setdefault(key, set()).add(writer)
        self.kept[key] = [*self.kept.get(key, []), (self.value, self.generation.get(key, 0))][-3:]

    @rule(key=KEYS, writer=WRITERS)
    def dispose(self, key: int, writer: str) -> None:
        self.cache.accept(Arrival("dispose", None, (key,), writer, 0), 0)
        self.writers.setdefault(key, set()).add(writer)
        if self.state.get(key) != "disposed":
            self.told.add(key)
        self.state[key] = "disposed"
        self.kept.setdefault(key, [])

    @rule(key=KEYS, writer=WRITERS)
    def unregister(self, key: int, writer: str) -> None:
        self.cache.accept(Arrival("unregister", None, (key,), writer, 0), 0)
        self._leave(key, writer)

    @rule(writer=WRITERS)
    def lose(self, writer: str) -> None:
        self.cache.writer_lost(writer, 0)
        for key in self.writers:
            self._leave(key, writer)

    def _leave(self, key: int, writer: str) -> None:
        writers = self.writers.get(key, set())
        if writer in writers:
            writers.remove(writer)
            if not writers and self.state[key] == "alive":
                self.state[key] = "no-writers"
                self.told.add(key)

    @rule(
        take=st.booleans(),
        new_only=st.booleans(),
        states=st.sets(st.sampled_from(["alive", "disposed", "no-writers"])),
        fresh_only=st.booleans(),
    )
    def get(self, take: bool, new_only: bool, states: Any, fresh_only: bool) -> None:
        views: Any = frozenset(("new",)) if new_only else ANY.view_states
        samples: Any = frozenset(("not-read",)) if fresh_only else ANY.sample_states
        wanted = SampleSelection(view_states=views, sample_states=samples, instance_states=frozenset(states))
        found = self.cache.select(wanted, take=take, now=0)
        expected = [
            (value, self.state[key], value in self.read, key not in self.seen)
            for key in sorted(self.kept, key=lambda key: self.cache.lookup((key,)))
            if self.state[key] in states and (not new_only or key not in self.seen)
            for value, _ in self.kept[key]
            if not fresh_only or value not in self.read
        ]
        got = [
            (value, info.instance_state, info.sample_state == "read", info.view_state == "new")
            for value, info in found
            if info.valid_data
        ]
        assert got == expected
        for value, info in found:
            key = self.cache.key_of(info.instance_handle)
            assert key is not None
            self.seen.add(key[0])
            if info.valid_data:
                self.read.add(value)
                generation = dict(self.kept[key[0]])[value]
                newest = self.generation.get(key[0], 0)
                assert info.disposed_generation_count + info.no_writers_generation_count == generation
                assert info.absolute_generation_rank == newest - generation
                if take:
                    self.kept[key[0]].remove((value, generation))

    @precondition(lambda self: self.kept)
    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        assert self.cache.samples == sum(map(len, self.kept.values()))
        assert len(self.cache) == len(self.kept)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_a_part_that_comes_twice_completes_no_set() -> None:
    cache = ReaderCache(CacheLimits(depth=None))
    first, second = (wrote(1, n, part=CoherentPart(1, n, 2)) for n in range(2))
    assert [cache.accept(part, 0) for part in (first, first)] == ["staged", "staged"]
    assert cache.accept(second, 0) is None
    assert data(cache) == [0, 1]


def test_a_set_waits_as_a_whole_for_room_in_an_instance() -> None:
    cache = ReaderCache(CacheLimits(depth=None, max_samples_per_instance=2))
    assert cache.accept(wrote(1, "before"), 0) is None
    first, second = (wrote(1, n, part=CoherentPart(1, n, 2)) for n in range(2))
    assert cache.accept(first, 0) == "staged"
    assert cache.accept(second, 0) == "samples-per-instance"
    assert data(cache) == ["before"]
    assert cache.accept(second, 0) is None
    assert data(cache) == [0, 1]
