"""Misspelled options are named, with what there is instead."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.channel.ack_protocol import Acking
from heliograph.channel.channel import Channel
from heliograph.channel.publish.options import Said
from heliograph.channel.receive.consumer import Consumer
from heliograph.channel.selection import ReceiverOptions
from heliograph.errors import InvalidOption, NotPossible, UnknownOption, WrongArguments
from heliograph.runtime.option_names import OTHER_WORDS, TAKEN_BY, names_options
from heliograph.scheduling.admission import Statement
from heliograph.spark import jobs, matches, read, register

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


def _untyped(call: Any) -> Any:
    """A call that may be wrong on purpose."""
    return call


class Given:
    def __init__(self, helio: Rig) -> None:
        self.station: Any = helio.station
        self.other: Any = helio.station.channel("volatile", Track)
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
    receivers = {*ReceiverOptions.__annotations__, *Acking.__annotations__, "start"}
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


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda _: _untyped(read)(None), "'folder' and 'channel'; write read(spark, folder, channel)"),
        (lambda c: c.station.timers.after("5"), "'call'; write after(seconds, call)"),
        (lambda c: c.kept.replay(), "missing 1 required positional argument: 'to'; write replay(to)"),
        (lambda c: c.kept.replay(c.kept, 2.0), "positional arguments"),
        (lambda _: _untyped(jobs.archive)(None), "write archive(spark, folder, channel, to)"),
    ],
)  # fmt: skip
def test_a_missing_argument_is_named_with_what_to_write(
    call: Callable[[Any], object], sentence: str, helio: Rig
) -> None:
    with pytest.raises(WrongArguments, match=re.escape(sentence)) as error:
        call(Given(helio))
    assert isinstance(error.value, TypeError)


def test_an_error_from_inside_of_a_call_stays_as_it_is() -> None:
    @names_options
    def outer(given: Any) -> Any:
        return len(given)

    @names_options
    def deeper(given: Any) -> Any:
        return outer()  # type: ignore[call-arg]  # the mistake of somebody else

    with pytest.raises(TypeError, match="has no len") as error:
        outer(3)
    assert not isinstance(error.value, hg.HeliographError)
    with pytest.raises(WrongArguments, match=re.escape("outer() missing 1")):
        deeper(3)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda c: c.kept.replay("x"), NotPossible, "replay('x'): into a channel of this station"),
        (lambda c: c.kept.replay(c.other, speed="fast"), NotPossible, "speed='fast': a number above 0"),
        (lambda c: c.station.timers.after("5", print), NotPossible, "after('5', ...): a number of seconds"),
        (lambda c: c.station.timers.after(float("nan"), print), NotPossible, "after(nan, ...)"),
        (lambda c: c.station.timers.every(0, print), NotPossible, "every(0, ...): a period is above 0"),
        (
            lambda _: _untyped(read)(None, "data", "x"),
            InvalidOption,
            "'spark' cannot be 'None'; allowed is a session",
        ),
        (
            lambda _: _untyped(matches)("local[2]", "data", "x"),
            InvalidOption,
            "such as heliograph.spark.session()",
        ),
        (lambda _: _untyped(register)(None), InvalidOption, "'spark' cannot be 'None'"),
    ],
)
def test_a_value_of_another_kind_is_refused_where_it_is_given(
    call: Callable[[Any], object], error: type[hg.HeliographError], sentence: str, helio: Rig
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        call(Given(helio))
