"""Misspelled options are named, with what there is instead."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.channel.channel import Channel
from heliograph.channel.publish.options import Said
from heliograph.channel.receive.ack_protocol import Acking
from heliograph.channel.receive.consumer import Consumer
from heliograph.channel.receive.options import Options
from heliograph.errors import UnknownOption
from heliograph.runtime.option_names import OTHER_WORDS, TAKEN_BY, names_options
from heliograph.scheduling.tasks import Statement
from heliograph.spark import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.testing import Rig


class Track(hg.Event, name="air.track"):
    id: int


CALLS: dict[str, tuple[Callable[..., object], str]] = {
    "QoS": (lambda _: hg.QoS(durabilty="persistent"), "durability"),  # type: ignore[call-arg]  # misspelled, as all below
    "Threads": (lambda _: hg.Threads(os_priority=True), "os_priorities"),  # type: ignore[call-arg]
    "Station": (lambda _: hg.Station(domainn="d"), "domain"),  # type: ignore[call-arg]
    "channel": (lambda c: c.station.channel("other", Track, qs=hg.QoS()), "qos"),
    "push_many": (lambda c: c.kept.push_many([], time_out=1.0), "timeout"),
    "every": (lambda c: c.kept.supplier().every(1.0, print, priorit=2), "priority"),
    "where": (lambda c: c.kept.where("id > :x", param={"x": 1}), "params"),
    "pull": (lambda c: c.kept.consumer().pull(timeut=1.0), "timeout"),
    "read": (lambda c: c.kept.consumer().read(maxx=1), "max"),
    "matches": (lambda c: c.station.matches(hg.any_of(a=c.kept), name="x", kee=1), "key"),
    "close": (lambda c: c.station.close(timeut=1.0), "timeout"),
    "reconfigure": (lambda c: c.kept.reconfigure(dispatsh="aged"), "dispatch"),
    "for_consumers": (lambda c: c.kept.for_consumers(wheer="id > 1"), "where"),
    "Limits": (lambda _: hg.Limits(keep_byte=3), "keep_bytes"),  # type: ignore[call-arg]
    "settle": (lambda c: c.kept.settle(timeut=1.0), "timeout"),
}


class Given:
    def __init__(self, helio: Rig) -> None:
        self.station: Any = helio.station
        self.kept: Any = helio.station.channel("kept", Track, qos=hg.QoS(durability="persistent"))


@pytest.mark.parametrize("call", CALLS)
def test_a_misspelled_option_is_named_with_what_was_meant(helio: Rig, call: str) -> None:
    do, meant = CALLS[call]
    with pytest.raises(UnknownOption, match=rf"{call}\(\) has no option .* did you mean {meant}=") as caught:
        do(Given(helio))
    assert meant in caught.value.known


MISPLACED: dict[str, tuple[Callable[..., object], str]] = {
    "subscribe(filter)": (lambda c: c.kept.subscribe(print, filter="id > 1"), "; write where="),
    "consumer(filter)": (lambda c: c.kept.consumer(filter="id > 1"), "; write where="),
    "read(filter)": (lambda _: read(None, "data", "kept", filter="id > 1"), "; write where="),  # type: ignore[call-arg, arg-type]
    "QoS(filter)": (lambda _: hg.QoS(filter="id > 1"), "; it is for subscribe(where=...) and"),  # type: ignore[call-arg]
    "subscribe(deadline)": (
        lambda c: c.kept.subscribe(print, deadline=1.0),
        "; it is for station.schedule().task(deadline=...), or latency= with dispatch='deadline'",
    ),
    "subscribe(durability)": (
        lambda c: c.kept.subscribe(print, durability="persistent"),
        "; it is for channel(qos=hg.QoS(durability=...))",
    ),
    "subscribe(until)": (lambda c: c.kept.subscribe(print, until="now"), "; it is for consumer(until=...)"),
    "consumer(timeout)": (lambda c: c.kept.consumer(timeout=1.0), "; it is for pull(timeout=...), read("),
    "channel(durability)": (
        lambda c: c.station.channel("other", Track, durability="persistent"),
        "; it is for channel(qos=hg.QoS(durability=...))",
    ),
    "QoS(keep_bytes)": (lambda _: hg.QoS(keep_bytes=9), "; it is for Station(journal=hg.Limits(keep_bytes="),  # type: ignore[call-arg]
    "push(lifespan)": (
        lambda c: c.kept.push(Track(1), lifespan=1.0),
        "; it is for channel(qos=hg.QoS(lifespan=...))",
    ),
    "push(delay)": (lambda c: c.kept.push(Track(1), delay=1.0), "; write deliver_after="),
    "Limits(durability)": (lambda _: hg.Limits(durability="x"), "; it is for channel(qos=hg.QoS("),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("call", MISPLACED)
def test_a_misplaced_option_is_sent_to_where_it_belongs(helio: Rig, call: str) -> None:
    do, hint = MISPLACED[call]
    with pytest.raises(UnknownOption, match=re.escape(hint)):
        do(Given(helio))


def test_who_is_said_to_take_an_option_takes_it() -> None:
    receivers = {*Options.__annotations__, *Acking.__annotations__, "start"}
    tasks = set(Statement.__annotations__)
    takers: dict[str, set[str]] = {
        "channel(qos=hg.QoS({}=...))": set(hg.QoS.__struct_fields__),
        "Station(journal=hg.Limits({}=...))": {field.name for field in dataclasses.fields(hg.Limits)},
        "Station({}=...)": _options_of(hg.Station),
        "station.channel({}=...)": _options_of(hg.Station.channel),
        "subscribe({0}=...) and consumer({0}=...)": receivers,
        "consumer({}=...)": _options_of(Channel.consumer),
        "subscribe({}=...)": _options_of(Channel.subscribe),
        "push({}=...)": set(Said.__annotations__),
        "pull({0}=...), read({0}=...) and deliveries({0}=...)": (
            _options_of(Consumer.pull) & _options_of(Consumer.read) & _options_of(Consumer.deliveries)
        ),
        "read({}=...)": _options_of(Consumer.read),
        "station.schedule().task({}=...), or latency= with dispatch='deadline'": tasks,
        "station.schedule().task({}=...)": tasks,
    }
    assert takers.keys() == TAKEN_BY.keys()
    for call, options in TAKEN_BY.items():
        assert set(options) <= takers[call], call
    assert set(OTHER_WORDS.values()) <= {option for options in TAKEN_BY.values() for option in options}


def _options_of(call: Callable[..., object]) -> set[str]:
    return set(inspect.signature(call).parameters)


def test_a_call_without_options_says_so() -> None:
    class Lamp:
        @names_options
        def light(self) -> None: ...

    lamp: Any = Lamp()
    with pytest.raises(UnknownOption, match=r"light\(\) has no option 'colour'; it has none"):
        lamp.light(colour="red")


def test_everything_else_stays_as_it_was() -> None:
    assert list(inspect.signature(hg.Station).parameters)[:2] == ["folder", "domain"]
    assert msgspec.structs.replace(hg.QoS(priority=2), queue=7) == hg.QoS(priority=2, queue=7)
    by_place: Any = hg.QoS
    with pytest.raises(TypeError, match="positional"):
        by_place("persistent")
