"""Places in a history of several partitions: who is read when, and what waits where."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph.channel.history.positions import Cursors, FairQueue, PartitionPosition
from heliograph.errors import QueryFailed
from heliograph.model.event import Header
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item


class Reading(hg.Event):
    value: int


def item(partition: str, offset: int) -> Item:
    header = Header("c", "Reading", "s", 1, offset + 1, 0, b"", partition=partition, offset=offset)
    return Reading(offset), header, 0


def where(items: list[Item]) -> list[tuple[str | None, int | None]]:
    return [(header.partition, header.offset) for _, header, _ in items]


def test_a_partition_that_catches_up_does_not_delay_another() -> None:
    band = FairQueue(item("behind", offset) for offset in range(500))
    band.append(item("live", 7))
    assert ("live", 7) in where(band.pop(2))
    assert len(band) == 499
    assert (band.first("behind"), band.first("live"), band.first("unknown")) == (1, None, None)


@settings(max_examples=examples(200))
@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(1, 20))))
def test_each_partition_keeps_its_order_and_nothing_is_lost(steps: list[str | int]) -> None:
    band, offsets, popped = FairQueue(), Counter[str](), list[tuple[Any, Any]]()
    for step in steps:
        if isinstance(step, int):
            popped += where(band.pop(step))
        else:
            band.append(item(step, offsets[step]))
            offsets[step] += 1
        for name in offsets:
            gone = sum(partition == name for partition, _ in popped)
            assert band.first(name) == (gone if gone < offsets[name] else None)
    popped += where(band.pop(len(band)))
    assert not band
    for name, count in offsets.items():
        assert [offset for partition, offset in popped if partition == name] == list(range(count))


@pytest.mark.parametrize(
    ("position", "pausing", "reads", "ended"),
    [(5, False, True, False), (5, True, False, False), (7, False, False, True), (None, False, True, False)],
)
def test_a_place_reads_until_its_end_and_not_while_it_pauses(
    position: int | None, pausing: bool, reads: bool, ended: bool
) -> None:
    place = PartitionPosition(cast("Any", None), position, behind=True, until=7)
    place.pausing = pausing
    assert (place.reads, place.ended) == (reads, ended)


class Kept:
    """A partition that remembers cursors."""

    partition = "p"

    def __init__(self, position: int | None) -> None:
        self.position = position
        self.closed = 0

    def cursor(self, _name: str) -> Kept:
        return self

    def commit(self, position: int) -> None:
        self.position = position

    def close(self) -> None:
        self.closed += 1


def test_a_durable_consumer_begins_once_and_goes_on_from_then_on() -> None:
    kept = Kept(None)
    cursors = Cursors("billing", lambda _, met: met)
    assert cursors.open(cast("Any", kept), 40) == 40
    assert kept.position == 40
    assert cursors.open(cast("Any", kept), 90) == 40
    assert cursors.names() == ("p",)
    cursors.close()
    assert kept.closed == 1


def test_a_beginning_that_cannot_be_found_holds_no_name() -> None:
    kept = Kept(None)

    def begin(*_: object) -> int:
        raise QueryFailed("the keeper", "has not answered")

    cursors = Cursors("billing", begin)
    with pytest.raises(QueryFailed):
        cursors.open(cast("Any", kept), 0)
    assert kept.closed == 1
    assert cursors.of("p") is None
