"""Events that other stations pushed, where this station's receivers are slow or inline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import heliograph as hg
from heliograph.event import Header, info_of

if TYPE_CHECKING:
    from heliograph.channel.lane import Item


class Reading(hg.Event, name="reading"):
    value: int


class Uncopied(list[Any]):
    """What came over a link; a part of it must not be copied for every event in it."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        assert not isinstance(index, slice), "copied"
        return super().__getitem__(index)


def arrived(*values: int) -> Uncopied:
    format_id = info_of(Reading).format.id
    headers = [Header("c", "reading", "there", 1, value, 0, format_id) for value in values]
    items: list[Item] = [(Reading(value), header, 0) for value, header in zip(values, headers, strict=True)]
    return Uncopied(items)


def test_what_is_left_of_a_run_is_not_copied_for_each_event(station: hg.Station) -> None:
    channel = station.channel("c", Reading)
    seen: list[int] = []
    channel.subscribe(lambda reading: seen.append(reading.value), inline=True)
    with channel.consumer() as consumer:
        assert channel.neighbours.intake("there").take_in(arrived(1, 2, 3)) == 3
        assert [reading.value for reading in consumer.read(max=3)] == seen == [1, 2, 3]
