"""The ledger balances at every instant, and counts what really happened."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.qos.policies import QoS
from heliograph.station import Station
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.channel import Channel

LIMIT = 30.0


class Sample(hg.Event, key="sensor"):
    sensor: int
    value: float


@pytest.fixture
def threads_change_often() -> Iterator[None]:
    """Fifty times more switches between threads than usual: more ways to meet at a bad moment."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "queued"])
@pytest.mark.usefixtures("threads_change_often")
def test_ten_thousand_snapshots_under_load_churn_and_drops_all_balance(inline: bool) -> None:
    stop = threading.Event()
    with Station(on_error=lambda *_: None) as station:
        channel = station.channel("samples", Sample, qos=QoS(queue=50, max_blocking=0.001))
        if inline:
            channel.subscribe(lambda _: None, inline=True)
        channel.subscribe(lambda _: None, overflow="drop_oldest", queue=5)
        channel.subscribe(lambda _: None, overflow="coalesce", queue=3)
        channel.subscribe(lambda _: 1 / 0, where="value > 0.9", overflow="drop_newest", queue=5)
        channel.subscribe(lambda _: None, group="g", overflow="drop_oldest")
        threads = [threading.Thread(target=_push_until, args=(stop, channel, seed)) for seed in range(8)]
        threads.append(threading.Thread(target=_churn_until, args=(stop, channel)))
        for thread in threads:
            thread.start()
        unbalanced = 0
        seen_pushed = set()
        for _ in range(10_000):
            stats = channel.stats()
            unbalanced += not stats.balanced
            seen_pushed.add(stats.pushed)
        stop.set()
        for thread in threads:
            thread.join(LIMIT)
        assert unbalanced == 0
        assert len(seen_pushed) > 100, "events flowed while the snapshots were taken"


def _push_until(stop: threading.Event, channel: Channel[Sample], seed: int) -> None:
    rng = random.Random(seed)
    with channel.supplier() as supplier:
        while not stop.is_set():
            try:
                if rng.random() < 0.1:
                    supplier.push_many([Sample(rng.randrange(10), rng.random()) for _ in range(20)])
                else:
                    supplier.push(Sample(rng.randrange(10), rng.random()), priority=rng.randrange(1, 6))
            except hg.QueueFull:
                continue


def _churn_until(stop: threading.Event, channel: Channel[Sample]) -> None:
    rng = random.Random(99)
    while not stop.is_set():
        consumer = channel.consumer(
            overflow="drop_newest", queue=rng.randrange(1, 20), group=rng.choice(["g", None])
        )
        subscription = channel.subscribe(
            lambda _: None, where="sensor < 5", inline=rng.random() < 0.5, name="churn"
        )
        consumer.read(max=rng.randrange(1, 10), timeout=0.0)
        subscription.close()
        consumer.close()


WHERE = st.sampled_from(
    [None, "sensor = 1", "value > 0.5", "sensor <> 2 AND value < 0.7", "sensor IN (0, 3)"]
)
ORACLE = {
    None: lambda s: True,
    "sensor = 1": lambda s: s.sensor == 1,
    "value > 0.5": lambda s: s.value > 0.5,
    "sensor <> 2 AND value < 0.7": lambda s: s.sensor != 2 and s.value < 0.7,
    "sensor IN (0, 3)": lambda s: s.sensor in (0, 3),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), WHERE, st.sampled_from(["consumer", "inline", "queued"])),
        st.tuples(st.just("leave"), st.integers(0, 9), st.none()),
        st.tuples(st.just("push"), st.integers(0, 3), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(1000))
@given(STEPS)
def test_an_oracle_that_counts_each_event_and_consumer_agrees(
    steps: list[tuple[str, object, object]],
) -> None:
    with Station() as station:
        channel = station.channel("samples", Sample)
        expected: Counter[str] = Counter()
        got: Counter[str] = Counter()
        members: list[tuple[str, object, object]] = []
        for number, (what, first, second) in enumerate(steps):
            if what == "join":
                name = f"m{number}"
                members.append((name, first, _join(channel, name, first, second, got)))
            elif what == "leave" and members:
                assert isinstance(first, int)
                name, _, receiver = members.pop(first % len(members))
                expected[name] = _drained(receiver, name, got, expected[name])
            elif what == "push":
                sample = Sample(first, second)  # type: ignore[arg-type]  # as the strategy says
                channel.push(sample)
                for name, where, _ in members:
                    expected[name] += ORACLE[where](sample)  # type: ignore[index,no-untyped-call]  # likewise
        for name, _, receiver in members:
            expected[name] = _drained(receiver, name, got, expected[name])
        stats = channel.stats()
        assert {n: c for n, c in got.items() if c} == {n: c for n, c in expected.items() if c}
        assert stats.matched == stats.total.delivered == sum(expected.values())


def _join(channel: Channel[Sample], name: str, where: object, kind: object, got: Counter[str]) -> object:
    if kind == "consumer":
        return channel.consumer(name=name, where=where)

    def count(_: Sample) -> None:
        got[name] += 1

    return channel.subscribe(count, name=name, where=where, inline=kind == "inline")


def _drained(receiver: object, name: str, got: Counter[str], expected: int) -> int:
    """Let a receiver have all that was pushed so far, then close it."""
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.subscription import QueuedReceiver, Receiver

    assert isinstance(receiver, Receiver)
    if isinstance(receiver, Consumer):
        got[name] += len(receiver.read(max=10_000, timeout=0.0))
    elif isinstance(receiver, QueuedReceiver):
        assert receiver.queue.wait_empty(LIMIT)
    receiver.close()
    return expected
