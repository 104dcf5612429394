"""Figure 15: up to which rate events are delivered as fast as they are meant to be pushed.

Each supplier pushes 500 events at exact instants, consumers count them in workers of their own. The ratio is
between the rate at which the last consumer had all of them and the rate that was asked for: 1 as long as the
channel keeps up. The paper draws rates up to 100 Hz; here they begin where those end.
"""

from __future__ import annotations

import threading
import time

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart

PAIRS = ((1, 1), (1, 5), (1, 10), (1, 20), (2, 1), (2, 5), (2, 10), (2, 20))
RATES = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
EVENTS = 500
SPIN = 0.0002
"""Seconds before an instant from which on a supplier spins: a sleep is not as exact."""
LIMIT = 30.0


class Tick(hg.Event, name="tao.tick"):
    n: int


def ratio(suppliers: int, consumers: int, rate: int, events: int) -> float:
    """The rate of delivery by the rate of pushes that was asked for."""
    with hg.Station() as station:
        channel = station.channel("tao", Tick)
        left = [suppliers * events] * consumers
        ended = [0.0] * consumers
        done = threading.Semaphore(0)

        def consume(number: int) -> None:
            def count(_: Tick) -> None:
                left[number] -= 1
                if not left[number]:
                    ended[number] = time.perf_counter()
                    done.release()

            channel.subscribe(count, name=f"consumer {number}")

        for number in range(consumers):
            consume(number)
        begin = time.perf_counter() + 0.05
        threads = [
            threading.Thread(target=_supply, args=(channel, begin, rate, events)) for _ in range(suppliers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(consumers):
            if not done.acquire(timeout=LIMIT):
                raise RuntimeError("not every event was delivered")
    return (events - 1) / rate / (max(ended) - begin)


def _supply(channel: hg.Channel[Tick], begin: float, rate: int, events: int) -> None:
    now = time.perf_counter
    with channel.supplier() as supplier:
        for n in range(events):
            due = begin + n / rate
            if (left := due - now() - SPIN) > 0:
                time.sleep(left)
            while now() < due:
                pass
            supplier.push(Tick(n))


@experiment("tao-spacing")
def figure_15(size: Size) -> Experiment:
    pairs = PAIRS[:1] if size.quick else PAIRS
    rates = (1_000,) if size.quick else RATES
    events = 20 if size.quick else EVENTS
    found = {pair: [ratio(*pair, rate, min(events, 2 * rate)) for rate in rates] for pair in pairs}
    series = [
        Series(f"{s} sup. {c} con.", tuple((rate, y, y, y) for rate, y in zip(rates, ys, strict=True)))
        for (s, c), ys in found.items()
    ]
    facts = []
    if not size.quick:
        for pair, at_least in (((1, 1), 2_000), ((1, 20), 500)):
            kept = max([rate for rate, y in zip(rates, found[pair], strict=True) if y >= 0.99], default=0)
            facts.append(
                Fact(
                    f"{pair[0]} supplier, {pair[1]} consumer(s): 0.99 of the rate up to {kept:,} Hz; "
                    f"at least {at_least:,}",
                    kept >= at_least,
                )
            )
    return Experiment(
        "tao-spacing",
        "TAO, Figure 15: minimum event spacing",
        "500 events of each supplier at exact instants, queued consumers; rate delivered by rate asked for. "
        "The paper kept up to 50 Hz.",
        ("rate (Hz)", *(f"{s} x {c}" for s, c in found)),
        tuple((f"{rate:,}", *(f"{ys[i]:.3f}" for ys in found.values())) for i, rate in enumerate(rates)),
        tuple(facts),
        chart(series, "event rate (Hz)", "effective / expected rate", log_x=True),
    )
