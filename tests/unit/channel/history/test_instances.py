"""The history of instances: what a late joiner gets, and that its counts are those of what it has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.history.instances import InstanceLimits, InstanceStore
from heliograph.codec.sizes import size_of
from heliograph.model.event import Header
from heliograph.model.instance_change import CHANGE
from tests.ring_support import PORTS
from tests.support import examples


class Plot(hg.Event, name="test.plot", key="id"):
    id: int
    n: int = 0


class StillClock:
    """A clock that is set by hand."""

    now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


class Kept:
    """A store, and a clock that stands still."""

    def __init__(self, *, per_supplier: bool = False, byte_limit: int = 1 << 30, **limits: Any) -> None:
        self.clock = StillClock()
        self.store = InstanceStore(
            InstanceLimits(**limits), byte_limit, self.clock, PORTS.tasks, per_supplier=per_supplier
        )
        self.number = 0

    def do(self, change: str, key: int, supplier: str = "w") -> None:
        self.number += 1
        headers = None if change == "write" else {CHANGE: change}
        header = Header(
            "c", "test.plot", supplier, 1, self.number, 0, bytes(12), key=(key,), station_seq=self.number
        )
        item = (Plot(key, self.number), msgspec.structs.replace(header, headers=headers), 0)
        self.store.keep(item)
        self.store.keep(item)  # a push that was interrupted asks again

    def found(self) -> list[tuple[int, str]]:
        items: list[Any] = sorted(self.store.items(), key=lambda item: item[1].station_seq)
        return [(item[0].n, (item[1].headers or {}).get(CHANGE, "write")) for item in items]


def test_a_state_takes_no_place_of_a_sample_and_goes_when_the_instance_is_written_again() -> None:
    kept = Kept(depth=2)
    for change in ("write", "write", "write", "dispose"):
        kept.do(change, 1)
    assert kept.found() == [(2, "write"), (3, "write"), (4, "dispose")]
    kept.do("write", 1)
    assert kept.found() == [(3, "write"), (5, "write")]


def test_what_one_writer_left_another_one_may_write() -> None:
    kept = Kept(depth=None)
    kept.do("write", 1, "a")
    kept.do("write", 1, "b")
    kept.do("unregister", 1, "a")
    kept.do("write", 1, "b")
    assert kept.found() == [(1, "write"), (2, "write"), (3, "unregister"), (4, "write")]
    kept.do("over", 1, "b")
    assert kept.found() == [], "disposed of, and nobody writes it"


@pytest.mark.parametrize(("delay", "left"), [(0, 0), (10, 1), (None, 1)])
def test_what_is_over_is_forgotten_after_the_delay(delay: int | None, left: int) -> None:
    kept = Kept(cleanup_delay=delay)
    kept.do("write", 1)
    kept.do("dispose", 1)
    assert len(kept.found()) == 2, "its writer may write it again"
    kept.store.supplier_left("w")
    assert bool(kept.found()) == bool(left)
    kept.clock.now += 20
    assert bool(kept.found()) == (delay is None)


CHANGES = st.tuples(
    st.sampled_from(["write", "write", "dispose", "unregister", "over", "leave"]),
    st.integers(0, 3),
    st.sampled_from("ab"),
)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(CHANGES, max_size=40),
    st.booleans(),
    st.sampled_from([1, 2, None]),
    st.sampled_from([None, 2]),
    st.sampled_from([None, 3]),
)
def test_counts_are_those_of_what_is_kept(
    changes: list[tuple[str, int, str]],
    per_supplier: bool,
    depth: int | None,
    instances: int | None,
    samples: int | None,
) -> None:
    kept = Kept(per_supplier=per_supplier, depth=depth, max_instances=instances, max_samples=samples)
    for change, key, supplier in changes:
        if change == "leave":
            kept.store.supplier_left(supplier)
        else:
            kept.do(change, key, supplier)
    items = kept.store.items()
    assert kept.store.kept == len(items)
    assert kept.store.bytes == sum(size_of(item[0]) for item in items)
    written = [item for item in items if item[1].headers is None]
    assert kept.store.samples == len(written)
    assert samples is None or len(written) <= samples
