"""Misspelled options are named, with what there is instead."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.errors import UnknownOption
from heliograph.options import names_options

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
