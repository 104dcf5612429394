"""What a station tells of itself on `$station`, and that nobody waits for it."""

from __future__ import annotations

import threading

import heliograph as hg
from heliograph.monitoring.station_events import MAX_SAID
from tests.e2e.link_support import LIMIT, wait_until


class Ping(hg.Event):
    n: int


def told(events: list[hg.StationEvent]) -> list[tuple[str, str, str]]:
    return [(one.kind, one.channel, one.receiver) for one in events]


def test_channels_that_open_and_close_and_callbacks_that_raise_are_told() -> None:
    events: list[hg.StationEvent] = []
    reported: list[str] = []
    with hg.Station(name="tower", on_error=lambda name, *_: reported.append(name)) as station:
        own = station.channel("$station", hg.StationEvent)
        own.subscribe(events.append)
        pings = station.channel("pings", Ping)
        station.channel("pings")  # it is open already
        pings.subscribe(lambda ping: ping.n // 0, name="divider")
        pings.push(Ping(1))
        assert pings.settle(LIMIT)
        assert wait_until(lambda: len(events) == 2)
        pings.close()
        assert wait_until(lambda: len(events) == 3)
    assert told(events) == [("opened", "pings", ""), ("error", "pings", "divider"), ("closed", "pings", "")]
    assert (events[0].name, events[0].text) == ("tower", "Ping")
    assert events[1].text.startswith("ZeroDivisionError")
    assert reported == ["divider"]


def test_trouble_with_its_own_receivers_is_not_told_on_it() -> None:
    errors: list[str] = []
    with hg.Station(on_error=lambda name, *_: errors.append(name)) as station:
        own = station.channel("$station", hg.StationEvent)
        own.subscribe(lambda event: 1 // len(event.receiver), name="watcher")
        station.channel("pings", Ping)
        assert wait_until(lambda: errors)
        assert own.settle(LIMIT)
        assert own.stats().pushed == 1
    assert errors == ["watcher"]


def test_a_receiver_that_takes_nothing_holds_no_station_up() -> None:
    gate = threading.Event()
    with hg.Station() as station:
        station.channel("$station", hg.StationEvent).subscribe(lambda _: gate.wait(LIMIT), queue=1)
        for n in range(20):
            station.channel(f"channel{n}", Ping)
        gate.set()


def test_a_pattern_of_all_names_does_not_mean_it_and_long_errors_are_cut() -> None:
    events: list[hg.StationEvent] = []
    everything: list[object] = []

    def fail(_: Ping) -> None:
        raise ValueError("x" * 10_000)

    with hg.Station(on_error=lambda *_: None) as station:
        station.subscribe("**", everything.append)
        station.channel("$station", hg.StationEvent).subscribe(events.append)
        pings = station.channel("pings", Ping)
        pings.subscribe(fail)
        pings.push(Ping(1))
        assert wait_until(lambda: [one for one in events if one.kind == "error"])
    assert everything == [Ping(1)]
    assert len(events[-1].text) == MAX_SAID
