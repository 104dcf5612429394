"""A channel that was closed and is opened again: another channel of that name."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.station import Station
    from heliograph.testing import Rig

LIMIT = 10.0


class Note(hg.Event, name="note"):
    text: str


class Reading(hg.Event, name="reading"):
    value: int


def test_it_is_a_new_channel_with_other_types_and_another_quality_of_service(station: Station) -> None:
    first = station.channel("c", Note)
    first.close()
    second = station.channel("c", Reading, qos=hg.QoS(queue=7), mode="create")
    assert id(second) != id(first)
    assert second.type_names == ("reading",)
    heard: SimpleQueue[int] = SimpleQueue()
    second.subscribe(lambda reading: heard.put(reading.value))
    assert second.push(Reading(3))
    assert heard.get(timeout=LIMIT) == 3
    with pytest.raises(hg.Closed):
        first.push(Note("late"))
    assert set(station.stats()) == {"c"}


def test_while_it_is_being_closed_it_is_not_opened_again(station: Station) -> None:
    channel = station.channel("c", Note)
    begun, may_end = threading.Event(), threading.Event()

    def slow(_: Note) -> None:
        begun.set()
        assert may_end.wait(LIMIT)

    channel.subscribe(slow)
    channel.push(Note("n"))
    assert begun.wait(LIMIT)
    closing = threading.Thread(target=channel.close, args=(LIMIT,))
    closing.start()
    while not channel.closed:
        closing.join(0.001)
    with pytest.raises(hg.NotPossible, match="is being closed"):
        station.channel("c", Note)
    may_end.set()
    closing.join(LIMIT)
    assert station.channel("c", Note).push(Note("n"))


def test_its_history_goes_on(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        for number in range(3):
            channel = station.channel("c", Note, qos=hg.QoS(durability="persistent"))
            channel.push(Note(str(number)))
            with channel.consumer(start="earliest", until="now") as consumer:
                assert [note.text for note in consumer] == [str(n) for n in range(number + 1)]
            channel.close()


def test_a_pattern_of_names_meets_it_again(station: Station) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    station.subscribe("air.*", lambda note: heard.put(note.text))
    for number in range(3):
        channel = station.channel("air.notes", Note)
        channel.push(Note(str(number)))
        assert heard.get(timeout=LIMIT) == str(number)
        channel.close()
    assert heard.empty()


def test_what_could_not_be_opened_on_a_full_disk_can_be_when_there_is_room(helio: Rig) -> None:
    """Also if it has durable consumers: their places stayed locked."""
    kept = helio.station.channel("c", Note, qos=hg.QoS(durability="persistent"))
    kept.consumer(name="archive").close()
    kept.close()
    medium = helio.disk.medium
    capacity, medium.capacity = medium.capacity, 0
    with pytest.raises(hg.DiskFull):
        helio.station.channel("c", Note)
    medium.capacity = capacity
    assert helio.station.channel("c", Note).push(Note("n"))
