"""Replayable patterns: whatever happens, history gives the matches that the callback was given."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.testing import Rig
from tests.support import examples


class Order(hg.Event, name="shop.order"):
    customer: int
    number: int


class Payment(hg.Event, name="shop.payment"):
    customer: int
    number: int


PERSISTENT = hg.QoS(durability="persistent")
Step: TypeAlias = tuple[str, float]
KEYS = 3

PATTERNS: dict[str, Any] = {
    "both": lambda o, p: hg.all_of(o=o, p=p, within=2.0, by="customer", keys=1),
    "latest": lambda o, p: hg.all_of(o=o, p=p, reuse="latest", by="customer", keys=1),
    "unpaid": lambda o, p: hg.all_of(o=o, no=hg.none_of(p=p), within=2.0, by="customer", keys=2),
    "watched": lambda o, p: hg.all_of(o=o, p=p, watchdog=1.5, by="customer", keys=2),
    "ticked": lambda o, p: hg.all_of(tick=hg.every(1.0), p=hg.any_of(a=o, b=p)),
}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["order", "payment"]), st.integers(0, KEYS - 1).map(float)),
        st.tuples(st.sampled_from(["order", "payment"]), st.integers(0, KEYS - 1).map(float)),
        st.tuples(st.just("advance"), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        st.tuples(st.just("restart"), st.just(0.0)),
    ),
    max_size=30,
)


class Shop:
    """One life of a station with a pattern."""

    def __init__(self, rig: Rig, kind: str, seen: list[Any]) -> None:
        self.rig = rig
        self.kind = kind
        self.seen = seen
        self.orders = rig.station.channel("orders", Order, qos=PERSISTENT)
        self.payments = rig.station.channel("payments", Payment, qos=PERSISTENT)
        self.pattern = PATTERNS[kind](self.orders, self.payments.where("number >= 0"))
        self.subscription = rig.station.subscribe(self.pattern, seen.append, name="watch", replayable=True)

    def run(self, steps: list[Step]) -> Shop:
        """The station that is there in the end."""
        shop = self
        for number, (what, value) in enumerate(steps):
            if what == "advance":
                shop.rig.clock.advance(value)
            elif what == "restart":
                wall = shop.rig.clock.time_ns()
                shop.rig.station.close()
                rig = Rig(disk=shop.rig.disk, seed=number + 1)
                rig.clock.set_wall(wall / 1e9)
                shop = Shop(rig, self.kind, self.seen)
            elif what == "order":
                shop.orders.push(Order(int(value), number))
            else:
                shop.payments.push(Payment(int(value), number))
            shop.rig.settle()
        return shop

    def again(self, **only: Any) -> list[Any]:
        return [told(match) for match in self.rig.station.matches(self.pattern, name="watch", **only)]


def told(match: Any) -> tuple[Any, ...]:
    """All that a match says; classes of matches are made anew for each subscription."""
    return tuple(
        told(value) if type(value).__name__ in {"Match", "p", "no"} else value
        for value in (getattr(match, field) for field in match.__struct_fields__)
    )


@given(st.sampled_from(sorted(PATTERNS)), STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_history_gives_the_matches_that_the_callback_was_given_also_by_key(
    kind: str, steps: list[Step]
) -> None:
    seen: list[Any] = []
    shop = Shop(Rig(), kind, seen).run(steps)
    live = [told(match) for match in seen]
    assert shop.again() == live
    if kind != "ticked":
        for key in range(KEYS):
            assert shop.again(key=key) == [told(match) for match in seen if match.key == key]
    shop.rig.station.close()
