"""The behavioural scenarios of TAO's own event channel tests, with exact counts."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph import testing
from heliograph.facades import cos
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heliograph.channel.channel import Channel

ROUNDS = 20
SUPPLIERS = [f"s{n}" for n in range(5)]


class A(hg.Event, name="tao.a"):
    id: int = 0
    mask: int = 0


class B(hg.Event, name="tao.b"):
    id: int = 0
    mask: int = 0


@pytest.fixture(params=["inline", "pool", "bands"])
def threads(request: pytest.FixtureRequest) -> hg.Threads:
    return hg.Threads(request.param)


def counts_of(wishes: dict[str, dict[str, Any]], threads: hg.Threads) -> dict[str, int]:
    """Five suppliers push both types `ROUNDS` times; how many events each wish was given."""
    given: list[str] = []
    with hg.Station() as station:
        channel: Channel[A | B] = station.channel("tao", A, B, qos=hg.QoS(threads=threads))
        for name, wish in wishes.items():
            channel.subscribe(lambda _, name=name: given.append(name), **wish)
        suppliers = [channel.supplier(name) for name in SUPPLIERS]
        for _ in range(ROUNDS):
            for supplier in suppliers:
                supplier.push(A())
                supplier.push(B())
        assert channel.settle(LIMIT)
    return {name: given.count(name) for name in wishes}


def test_wildcards_for_source_and_type(threads: hg.Threads) -> None:
    assert counts_of(
        {
            "s and t": {"sources": ["s1"], "types": [A]},
            "s and any": {"sources": ["s1"]},
            "any and t": {"types": [A]},
            "any and any": {},
        },
        threads,
    ) == {"s and t": 20, "s and any": 40, "any and t": 100, "any and any": 200}


def test_negation_of_a_source_and_a_type(threads: hg.Threads) -> None:
    everything_but = "NOT (header.supplier = 's1' AND header.type = 'tao.a')"
    assert counts_of({"all but one": {"where": everything_but}}, threads) == {"all but one": 180}


def test_complex_filters(threads: hg.Threads) -> None:
    assert counts_of(
        {
            "not the source, and the type": {"where": "NOT header.supplier = 's1'", "types": [A]},
            "any, and not both": {"where": "TRUE AND NOT (header.supplier = 's1' AND header.type = 'tao.b')"},
        },
        threads,
    ) == {"not the source, and the type": 80, "any, and not both": 180}


def test_bit_masks_choose_none_both_or_one_of_two_suppliers(threads: hg.Threads) -> None:
    """Suppliers of unequal rates, so that one cannot be taken for the other."""
    given: list[str] = []
    with hg.Station() as station:
        channel = station.channel("tao", A, qos=hg.QoS(threads=threads))
        for name, where in {
            "none": "bitand(mask, 4) <> 0",
            "both": "bitand(mask, 3) <> 0",
            "one": "bitand(mask, 3) = 1",
        }.items():
            channel.subscribe(lambda _, name=name: given.append(name), where=where)
        for mask, times in ((1, 7), (2, 19)):
            with channel.supplier() as supplier:
                supplier.push_many([A(mask=mask)] * times)
        assert channel.settle(LIMIT)
    assert Counter(given) == {"both": 26, "one": 7}


def test_timeouts_in_five_seconds() -> None:
    """An interval of 100 ms, an interval of 200 ms together with a type, and a deadline that is met."""
    counts: Counter[str] = Counter({"interval": 0, "both": 0, "late": 0})
    with testing.rig() as helio:
        channel = helio.station.channel("tao", A)
        station = helio.station
        station.subscribe(hg.every(0.1), lambda _: counts.update(["interval"]))
        station.subscribe(hg.all_of(tick=hg.every(0.2), a=channel), lambda _: counts.update(["both"]))
        station.subscribe(
            hg.all_of(a=channel, watchdog=0.080), lambda m: counts.update(["late"] if m.missing else [])
        )
        for _ in range(100):
            channel.push(A())
            helio.settle()
            helio.clock.advance(0.05)
            helio.settle()
    assert counts == {"interval": 50, "both": 25, "late": 0}


@pytest.mark.parametrize("churners", [1, 4])
def test_connecting_and_disconnecting_a_hundred_times_leaves_nothing_behind(
    churners: int, threads: hg.Threads
) -> None:
    with hg.Station() as station:
        channel = station.channel("tao", A, qos=hg.QoS(threads=threads))
        stop = threading.Event()

        def supply() -> None:
            with channel.supplier() as supplier:
                while not stop.is_set():
                    supplier.push(A())

        def churn() -> None:
            for n in range(100):
                with (
                    channel.subscribe(lambda _: None, inline=n % 2 == 0 or None),
                    channel.supplier() as supplier,
                ):
                    supplier.push(A())

        supplying = threading.Thread(target=supply)
        churning = [threading.Thread(target=churn) for _ in range(churners)]
        for thread in (supplying, *churning):
            thread.start()
        for thread in churning:
            thread.join()
        stop.set()
        supplying.join()
        assert channel.settle(LIMIT)
        stats = channel.stats()
    assert (stats.consumers, stats.suppliers) == ({}, 1)
    assert stats.balanced


class PendingCommit:
    """A peer of both sides that counts how often it is disconnected."""

    def __init__(self) -> None:
        self.told = 0

    def push(self, _: Any) -> None:
        """Take it."""

    def disconnect_push_consumer(self) -> None:
        self.told += 1

    disconnect_push_supplier = disconnect_push_consumer


@pytest.mark.parametrize("churners", [1, 4])
def test_proxies_disconnected_a_hundred_times_tell_their_peers_each_time(churners: int) -> None:
    """With peers that are known and with one that is not, while events flow."""
    with hg.Station() as station:
        events = cos.EventChannel(station, "tao")
        peers = [(PendingCommit(), PendingCommit()) for _ in range(churners)]

        def churn(consumer: PendingCommit, supplier: PendingCommit) -> None:
            for n in range(100):
                out, entry = (
                    events.for_consumers().obtain_push_supplier(),
                    events.for_suppliers().obtain_push_consumer(),
                )
                out.connect_push_consumer(consumer)
                entry.connect_push_supplier(supplier if n % 2 else None)
                entry.push(n)
                out.disconnect_push_supplier()
                entry.disconnect_push_consumer()

        churning = [threading.Thread(target=churn, args=pair) for pair in peers]
        for thread in churning:
            thread.start()
        for thread in churning:
            thread.join()
        stats = events.channel.stats()
    assert [(consumer.told, supplier.told) for consumer, supplier in peers] == [(100, 50)] * churners
    assert (stats.consumers, stats.suppliers, stats.pushed) == ({}, 1, 100 * churners)
    assert stats.balanced


def test_a_thousand_changes_of_a_subscription_lose_nothing_of_what_all_of_them_want(
    threads: hg.Threads,
) -> None:
    """The kept part is every event of mask 1; what comes and goes is that of mask 2."""
    kept: list[int] = []
    with hg.Station() as station:
        channel = station.channel("tao", A, qos=hg.QoS(threads=threads))
        subscription = channel.subscribe(lambda e: kept.append(e.id) if e.mask == 1 else None)
        pushed = 0
        changing = threading.Event()

        def supply() -> None:
            nonlocal pushed
            while not changing.is_set():
                channel.push(A(pushed, mask=1))
                channel.push(A(pushed, mask=2))
                pushed += 1

        supplying = threading.Thread(target=supply)
        supplying.start()
        assert wait_until(lambda: pushed)
        for n in range(1000):
            subscription.change(where="bitand(mask, 1) = 1" if n % 2 else "mask > 0")
        changing.set()
        supplying.join()
        assert channel.settle(LIMIT)
    assert kept == list(range(pushed))


def test_a_proxy_refuses_to_be_connected_again() -> None:
    """The standard's answer; `change` is ours."""
    with hg.Station() as station:
        proxy = cos.EventChannel(station, "tao").for_suppliers().obtain_push_consumer()
        proxy.connect_push_supplier(None)
        with pytest.raises(hg.ChannelError, match="connected already"):
            proxy.connect_push_supplier(None)


def test_closing_a_channel_ends_everybody_who_waits_for_it() -> None:
    ended: list[int] = []
    with hg.Station() as station:
        channel = station.channel("tao", A)
        consumers = [channel.consumer() for _ in range(5)]
        waiting = [
            threading.Thread(target=lambda c=c, n=n: ended.append(n + sum(1 for _ in c)))
            for n, c in enumerate(consumers)
        ]
        for thread in waiting:
            thread.start()
        channel.close()
        for thread in waiting:
            thread.join(LIMIT)
    assert sorted(ended) == [0, 1, 2, 3, 4]


def test_only_what_the_other_side_wants_crosses_through_six_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    wishes = ["mask = 1", "mask = 2", "mask IN (1, 2)", "mask = 9", "mask > 2", "id < 0"]
    with hg.Station(domain="tao") as here, hg.Station(domain="tao") as there:
        source, sink = here.channel("tao", A), there.channel("tao", A)
        seen: list[A] = []
        subscription = sink.subscribe(seen.append, where="id < 0")
        assert source.wait_matched(1, LIMIT)
        for n, wish in enumerate(wishes, 1):
            probe, last_probe = A(10 * n), A(10 * n + 1)
            subscription.change(where=f"({wish}) OR id IN ({probe.id}, {last_probe.id})")
            assert wait_until(lambda: source.push(probe) and probe in seen)  # noqa: B023 - used at once
            source.push(last_probe)  # none is on its way any more when this one is there
            assert wait_until(lambda: last_probe in seen)  # noqa: B023 - used at once
            seen.clear()
            before = _events_sent(here)
            source.push_many([A(mask=mask) for mask in (0, 1, 2, 3)])
            source.push(last_probe)
            assert wait_until(lambda: last_probe in seen)  # noqa: B023 - used at once
            expected = [mask for mask in (0, 1, 2, 3) if _wants(wish, mask)]
            assert [event.mask for event in seen[:-1]] == expected
            assert _events_sent(here) - before == len(expected) + 1


def _wants(wish: str, mask: int) -> bool:
    return {
        "mask = 1": mask == 1,
        "mask = 2": mask == 2,
        "mask IN (1, 2)": mask in (1, 2),
        "mask = 9": False,
        "mask > 2": mask > 2,
        "id < 0": False,
    }[wish]


def _events_sent(station: hg.Station) -> int:
    assert station.mesh is not None
    (stats,) = station.mesh.stats()
    return stats.events_sent


@pytest.mark.parametrize("places", ["here", "there", "here and there"])
def test_a_supplier_cannot_tell_consumers_of_its_process_from_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, places: str
) -> None:
    """The same lines for sinks in this station, in another, and in both."""
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="tao") as here, hg.Station(domain="tao") as there:
        stations = {"here": here, "there": there}
        source = here.channel("tao", A)
        sinks = [stations[place].channel("tao", A).consumer() for place in places.split(" and ") * 2]
        assert source.wait_matched(len(sinks), LIMIT)
        assert all(source.push(A(n)) for n in range(200))
        for sink in sinks:
            assert [sink.pull(LIMIT) for _ in range(200)] == [A(n) for n in range(200)]
            assert sink.pull(0) is None


def test_who_only_consumes_gets_what_others_push(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="tao") as here, hg.Station(domain="tao") as there:
        source = here.channel("tao", A, access="supply")
        sink = there.channel("tao", A, access="consume")
        with sink.consumer() as consumer:
            assert source.wait_matched(1, LIMIT)
            source.push(A(1))
            assert consumer.pull(LIMIT) == A(1)
            with pytest.raises(hg.NotPossible, match="only consumes here"):
                sink.push(A(2))


def test_an_observer_sees_the_totals_under_random_connects() -> None:
    chance = random.Random(7)
    with hg.Station() as station:
        channel = station.channel("tao", A)
        open_now: list[Any] = []
        for _ in range(200):
            if open_now and chance.random() < 0.5:
                open_now.pop(chance.randrange(len(open_now))).close()
            else:
                opened: Any = (
                    channel.consumer() if chance.random() < 0.5 else channel.subscribe(lambda _: None)
                )
                open_now.append(opened)
            assert len(channel.stats().consumers) == len(open_now)
            assert channel.wait_matched(len(open_now), timeout=0)
            assert not channel.wait_matched(len(open_now) + 1, timeout=0)


def test_a_consumer_that_dies_is_dropped_and_the_channel_lives() -> None:
    """One raises for ever, one never comes back."""
    hung = threading.Event()
    got: list[int] = []

    def hang(_: A) -> None:
        hung.wait(LIMIT)

    def fail(_: A) -> None:
        raise RuntimeError("dead")

    with hg.Station(callback_limit=2.0, on_error=lambda *_: None) as station:
        channel = station.channel("tao", A)
        channel.subscribe(hang)
        channel.subscribe(fail)
        channel.subscribe(lambda e: got.append(e.id))
        channel.push_many([A(n) for n in range(10)])
        assert wait_until(lambda: "hang" not in channel.stats().consumers)
        channel.push_many([A(n) for n in range(10, 20)])
        assert wait_until(lambda: got == list(range(20)))
        assert wait_until(lambda: channel.stats().consumers["fail"].failed == 20)
        hung.set()


def test_five_thousand_random_connects_disconnects_and_pushes_with_recursion() -> None:
    chance = random.Random(11)
    steps = 5000
    with hg.Station() as station:
        channel = station.channel("tao", A)
        receivers: list[Any] = []
        pushed = 0

        def push_again(event: A) -> None:
            nonlocal pushed
            if event.id:
                pushed += 1
                channel.push(A(event.id - 1))

        def connect() -> Any:
            kind: Callable[[A], None] = (
                push_again
                if not any(getattr(r, "callback", None) is push_again for r in receivers)
                else (lambda _: None)
            )
            return channel.subscribe(kind, inline=kind is push_again)

        for _ in range(steps):
            what = chance.random()
            if what < 0.3 and len(receivers) < 50:
                receivers.append(connect())
            elif what < 0.55 and receivers:
                receivers.pop(chance.randrange(len(receivers))).close()
            else:
                pushed += 1
                channel.push(A(chance.randrange(4)))
        assert channel.settle(LIMIT)
        stats = channel.stats()
    assert stats.pushed == pushed
    assert stats.balanced
    assert len(stats.consumers) == len(receivers)
