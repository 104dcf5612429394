"""Delayed delivery against a model: whatever is pushed, whenever it ends, each event comes once, in time."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.testing import Rig
from tests.support import examples


class Note(hg.Event, name="note"):
    number: int


PERSISTENT = hg.QoS(durability="persistent")
Step: TypeAlias = tuple[str, float]

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.just(0.0)),
        st.tuples(st.just("later"), SECONDS),
        st.tuples(st.just("advance"), SECONDS),
        st.tuples(st.just("cancel"), st.just(0.0)),
        st.tuples(st.sampled_from(["close", "kill", "crash"]), st.just(0.0)),
    ),
    max_size=25,
)


def ended(rig: Rig, how: str) -> Rig:
    """The next life of a station, at the same time of day."""
    if how == "close":
        rig.station.close()
    disk = {"close": lambda: rig.disk, "kill": rig.disk.kill, "crash": rig.disk.crash}[how]()
    after = Rig(disk=disk, seed=rig.clock.monotonic_ns() % 10_000)
    # To the nanosecond: as a float it may be a little earlier, and what was due would not be any more.
    after.clock._wall = rig.clock.time_ns()
    return after


@given(STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_each_event_comes_once_and_not_before_its_instant(steps: list[Step]) -> None:
    rig = Rig()
    channel = rig.station.channel("notes", Note, qos=PERSISTENT)
    now, due, can_be_cancelled = 0.0, dict[int, float](), list[int]()
    for number, (what, seconds) in enumerate([*steps, ("advance", 100.0)]):
        if what in ("push", "later"):
            later: dict[str, Any] = {"deliver_after": seconds, "id": str(number)} if what == "later" else {}
            channel.push(Note(number), **later)
            due[number] = now + seconds
            if later:
                can_be_cancelled.append(number)
        elif what == "cancel":
            if can_be_cancelled:
                other = can_be_cancelled.pop(number % len(can_be_cancelled))
                waits = due[other] > now
                assert channel.cancel(str(other)) == waits, "exactly what has not come yet"
                if waits:
                    del due[other]
                assert not channel.cancel(str(other))
        elif what == "advance":
            rig.clock.advance(seconds)
            now += seconds
        else:
            rig = ended(rig, what)
            channel = rig.station.channel("notes", Note, qos=PERSISTENT)
        rig.settle()
        came = [note.number for note in channel.consumer(start="earliest", until="now")]
        expected = [number for number, instant in due.items() if instant <= now]
        assert sorted(came) == sorted(expected)
        assert channel.stats().delayed == len(due) - len(came)
        assert channel.stats().balanced
    rig.station.close()
