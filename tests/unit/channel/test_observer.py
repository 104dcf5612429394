"""An observed channel tells of every event once what became of it, exactly as its ledger counts."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

import heliograph as hg
from heliograph.channel.receive.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.channel.observer import Outcome, Watch
    from heliograph.model.event import Header
    from heliograph.qos.policies import QoS


class Tick(hg.Event, key="n"):
    n: int


class Noted:
    """Counts outcomes by (receiver, outcome, reason)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Outcome, str, int]] = []

    def left(self, receiver: str, counts: object) -> None:
        """Nothing is written down of it here."""

    def watch(self, receiver: str) -> Watch:
        return partial(self._note, receiver)

    def _note(
        self, receiver: str, header: Header, outcome: Outcome, reason: str = "", sends: int = 1
    ) -> None:
        assert sends == 1
        self.seen.append((receiver, outcome, reason, header.sequence))

    def counts(self) -> Counter[tuple[str, str, str]]:
        assert len(set(self.seen)) == len(self.seen), "each event is told of once per receiver"
        return Counter((receiver, outcome, reason) for receiver, outcome, reason, _ in self.seen)


class Observed:
    """A station whose channels are observed."""

    def __init__(self) -> None:
        self.noted = Noted()
        self.station = hg.Station(on_error=lambda *_: None)
        services = self.station._services
        self.station._services = msgspec.structs.replace(services, observe=self._observe)

    def _observe(self, _name: str, _qos: QoS) -> Noted:
        return self.noted

    def ledger(self, name: str) -> Counter[tuple[str, str, str]]:
        found: Counter[tuple[str, str, str]] = Counter()
        stats = self.station.stats()[name]
        assert stats.balanced
        for receiver, counts in stats.consumers.items():
            found[receiver, "delivered", ""] = counts.delivered
            found[receiver, "failed", ""] = counts.failed
            found[receiver, "expired", ""] = counts.expired
            found.update({(receiver, "dropped", reason): n for reason, n in counts.dropped.items()})
        return +found


@pytest.fixture
def observed() -> Iterator[Observed]:
    made = Observed()
    with made.station:
        yield made


def odd_fails(tick: Tick) -> None:
    if tick.n % 2:
        raise ValueError(tick.n)


async def odd_fails_later(tick: Tick, _header: Header) -> None:
    odd_fails(tick)


@pytest.mark.parametrize("inline", [False, True])
def test_callbacks_are_told_as_delivered_or_failed(observed: Observed, inline: bool) -> None:
    ticks = observed.station.channel("ticks", Tick)
    ticks.subscribe(odd_fails, inline=inline)
    ticks.push_many([Tick(n) for n in range(10)])
    assert ticks.settle(5.0)
    assert observed.noted.counts() == {("odd_fails", "delivered", ""): 5, ("odd_fails", "failed", ""): 5}
    assert observed.noted.counts() == observed.ledger("ticks")


def test_async_callbacks_are_told_too(observed: Observed) -> None:
    ticks = observed.station.channel("ticks", Tick)
    ticks.subscribe(odd_fails_later)
    ticks.push_many([Tick(n) for n in range(10)])
    assert ticks.settle(5.0)
    assert observed.noted.counts() == observed.ledger("ticks")


def test_an_observed_callback_can_still_be_unsubscribed(observed: Observed) -> None:
    ticks = observed.station.channel("ticks", Tick)
    ticks.subscribe(odd_fails)
    ticks.unsubscribe(odd_fails)
    assert ticks.stats().consumers == {}


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "coalesce"])
def test_drops_are_told_by_reason(observed: Observed, policy: str) -> None:
    ticks = observed.station.channel("ticks", Tick)
    slow = ticks.consumer(name="slow", queue=3, overflow=policy)  # type: ignore[arg-type]  # one of three
    ticks.push_many([Tick(n % 5) for n in range(20)])
    assert slow.pull(1.0) is not None
    expected = observed.ledger("ticks")
    assert observed.noted.counts() == expected
    assert len([key for key in expected if key[1] == "dropped"]) >= 1


def test_what_a_closed_consumer_had_not_handed_out_is_told_as_dropped(observed: Observed) -> None:
    ticks = observed.station.channel("ticks", Tick)
    consumer = ticks.consumer(name="c")
    ticks.push_many([Tick(n) for n in range(100)])
    for _ in range(3):
        consumer.pull(1.0)
    consumer.close()
    assert observed.noted.counts() == {("c", "delivered", ""): 3, ("c", "dropped", "closed"): 97}
    handed = [n for _, outcome, _, n in observed.noted.seen if outcome == "delivered"]
    assert handed == [1, 2, 3]
    assert ticks.stats().departed.dropped == {"closed": 97}


def test_expired_events_are_told(observed: Observed) -> None:
    ticks = observed.station.channel("ticks", Tick, qos=hg.QoS(lifespan=1e-6))
    consumer = ticks.consumer(name="c")
    ticks.push(Tick(1))
    assert consumer.pull(0.01) is None
    assert observed.noted.counts() == {("c", "expired", ""): 1}


def test_without_an_observer_callbacks_are_called_as_they_are() -> None:
    with hg.Station() as station:
        ticks = station.channel("ticks", Tick)
        subscription = ticks.subscribe(odd_fails)
        assert isinstance(subscription, Subscription)
        assert subscription._call is odd_fails
        assert subscription.queue.watch is None
