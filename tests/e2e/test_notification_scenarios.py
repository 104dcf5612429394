"""The behavioural scenarios of TAO's Notification Service tests, with exact counts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 20.0
QUEUE = 4


class Alarm(hg.Event, name="notify.alarm"):
    id: int
    level: int = 0


PRIORITIES = [3, 1, 5, 2, 4, 1, 5, 3]
LATENCIES = [80.0, 10.0, 50.0, 70.0, 20.0, 60.0, 30.0, 40.0]
"""Of eight events, in the order in which they are pushed; further apart than the pushes can be."""


def pushed_eight(channel: hg.Channel[Alarm]) -> None:
    for n, (priority, latency) in enumerate(zip(PRIORITIES, LATENCIES, strict=True)):
        channel.push(Alarm(n), priority=priority, latency=latency)


@pytest.mark.parametrize(
    ("overflow", "dispatch", "kept", "reason"),
    [
        pytest.param("drop_oldest", "strict", [2, 6, 4, 7], "oldest", id="priority"),
        pytest.param("drop_newest", "strict", [2, 0, 3, 1], "newest", id="LIFO"),
        pytest.param("drop_soonest", "deadline", [7, 5, 3, 0], "soonest", id="deadline"),
    ],
)
def test_what_is_discarded_when_a_queue_is_full(
    overflow: Any, dispatch: Any, kept: list[int], reason: str
) -> None:
    """Eight events and room for four: which are left, and in which order they come."""
    with hg.Station() as station:
        qos = hg.QoS(queue=QUEUE, overflow=overflow, dispatch=dispatch)
        channel = station.channel("alarms", Alarm, qos=qos)
        with channel.consumer() as consumer:
            pushed_eight(channel)
            counts = channel.stats().consumers[consumer.name]
            assert (counts.pending, counts.dropped) == (4, {reason: 4})
            assert [alarm.id for alarm in consumer.read(timeout=LIMIT)] == kept
        assert channel.stats().balanced


def test_of_one_priority_the_first_is_discarded_first() -> None:
    """FIFO order of discarding."""
    with hg.Station() as station:
        channel = station.channel("alarms", Alarm, qos=hg.QoS(queue=QUEUE, overflow="drop_oldest"))
        with channel.consumer() as consumer:
            channel.push_many([Alarm(n) for n in range(8)])
            assert [alarm.id for alarm in consumer.read(timeout=LIMIT)] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("options", "order"),
    [
        pytest.param({"priority": 3}, [0, 1, 2, 3, 4, 5, 6, 7], id="FIFO"),
        pytest.param({}, [2, 6, 4, 0, 7, 3, 1, 5], id="priority"),
        pytest.param({"dispatch": "deadline"}, [1, 4, 6, 7, 2, 5, 3, 0], id="deadline"),
    ],
)
def test_the_order_in_which_events_come(options: dict[str, Any], order: list[int]) -> None:
    with hg.Station() as station:
        channel = station.channel("alarms", Alarm)
        with channel.consumer(**options) as consumer:
            pushed_eight(channel)
            got: list[int] = []
            while len(got) < len(order):
                got += [alarm.id for alarm in consumer.read(timeout=LIMIT)]
    assert got == order


def test_a_supplier_is_blocked_while_a_queue_is_full_and_loses_nothing() -> None:
    with hg.Station() as station:
        channel = station.channel("alarms", Alarm, qos=hg.QoS(queue=QUEUE, max_blocking=LIMIT))
        with channel.consumer() as consumer:
            for n in range(QUEUE):
                channel.push(Alarm(n))
            with pytest.raises(hg.QueueFull):
                channel.push_nowait(Alarm(-1))
            supplier = threading.Thread(
                target=lambda: [channel.push(Alarm(n)) for n in range(QUEUE, 100)], name="supplier"
            )
            supplier.start()
            assert [consumer.pull(LIMIT) for _ in range(100)] == [Alarm(n) for n in range(100)]
            supplier.join(LIMIT)
        assert channel.stats().balanced


def test_who_connects_again_goes_on_where_it_was_also_after_a_restart(tmp_path: Path) -> None:
    """Event persistence, and filters of a channel that a file keeps: nobody has to say them again."""
    file = tmp_path / "helio.toml"
    file.write_text('[channel.alarms]\nfilters.consumers = "level > 2"\n')
    qos = hg.QoS(durability="persistent")
    got: list[list[int]] = []
    for life in range(3):
        with hg.Station(tmp_path / "data", config=file) as station:
            channel = station.channel("alarms", Alarm, qos=qos)
            channel.push_many([Alarm(10 * life + n, level=n) for n in range(6)])
            with channel.consumer(name="billing", start="earliest") as consumer:
                got.append([alarm.id for _, alarm in zip(range(2), consumer, strict=False)])
            with channel.consumer(name="billing", where="id >= 0", start="earliest", until="now") as again:
                got.append([alarm.id for alarm in again])
    assert got == [[3, 4], [4, 5], [13, 14], [14, 15], [23, 24], [24, 25]]
