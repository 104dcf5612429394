"""Access by group (2.2.3.6): coherent sets, and order, over all readers of a subscriber.

    subscriber.begin_access()
    for reader in subscriber.get_datareaders(): reader.take(1)
    subscriber.end_access()

A set of a publisher has parts of several writers. It is seen when every part has come that a reader of the
subscriber was matched for when the first one came, and there is room for all of it: then all caches get it at
once, under the lock of the domain, or at the end of the access that is going on. A set that lost a part, or
its writer, is never seen. A set that would not fit into empty caches is rejected as a whole. Sets that wait
for the end of an access count as if the caches had them: what the limits leave no room for is rejected, and
comes again to a reliable reader.

Samples of one publisher are in the order of their writing, which is that of `station_seq` in their headers;
those of different ones in the order of their arrival, as far as the first rule leaves it open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heliograph.channel.queueing.reader_cache import (
        Arrival,
        CacheLimits,
        Ignored,
        Refusal,
        SampleSelection,
    )
    from heliograph.facades.dcps.reader import DataReader
    from heliograph.model.instance_change import CoherentPart

Pair: TypeAlias = tuple[str, str]
"""A reader and a writer."""


class _GroupSet:
    """A set that has begun to come."""

    __slots__ = ("expected", "parts")

    def __init__(self, expected: dict[Pair, int]) -> None:
        self.expected = expected
        """How many parts each reader gets of each writer."""
        self.parts: dict[Pair, dict[int, Arrival]] = {pair: {} for pair in expected}

    def lacks(self, pair: Pair) -> bool:
        return pair in self.expected and len(self.parts[pair]) < self.expected[pair]

    @property
    def is_whole(self) -> bool:
        return not any(self.lacks(pair) for pair in self.expected)

    def of(self, reader: str) -> list[Arrival]:
        """The parts for a reader, in the order of their writing."""
        found = [one for pair, parts in self.parts.items() if pair[0] == reader for one in parts.values()]
        return sorted(found, key=lambda one: one.place)


class GroupAccess:
    """What a subscriber with access by group keeps. All of it under the lock of the domain."""

    def __init__(self) -> None:
        self.accessing = 0
        """How deep `begin_access` is nested."""
        self._sets: dict[tuple[str, int], _GroupSet] = {}
        """Those that are not seen yet, by the station of their publisher and their number."""
        self._whole: list[_GroupSet] = []
        """Those that wait for the end of an access, or for room."""

    def stage(
        self,
        readers: Iterable[DataReader[Any]],
        reader: DataReader[Any],
        arrival: Arrival,
        part: CoherentPart,
    ) -> Refusal | Ignored | None:
        """A part has come for a reader; None when the set is seen with it."""
        station = arrival.writer.rpartition(".")[0]
        pair = (reader.instance_handle, arrival.writer)
        for key, one in list(self._sets.items()):
            if key[0] == station and key[1] < part.number and one.lacks(pair):
                del self._sets[key]  # what a writer sends keeps its order: that set lost a part
        found = self._sets.get((station, part.number))
        if found is None:
            writers = {f"{station}.{writer}": size for writer, size in part.group}
            found = self._sets[station, part.number] = _GroupSet(
                {
                    (one.instance_handle, writer): size
                    for one in readers
                    for writer, size in writers.items()
                    if one.hears(writer)
                }
            )
        if pair not in found.expected:
            return "staged"  # the reader came after the set had begun
        found.parts[pair][part.place] = arrival._replace(part=None)
        if not found.is_whole:
            return "staged"
        why = self._no_room(readers, found, self._whole)
        if why is not None and why != "too-large":
            del found.parts[pair][part.place]
            return why
        del self._sets[station, part.number]
        if why is not None:
            return why
        if self.accessing or self._whole:
            self._whole.append(found)
            return "staged"
        self._show(readers, found)
        return None

    def _no_room(
        self, readers: Iterable[DataReader[Any]], found: _GroupSet, before: Sequence[_GroupSet] = ()
    ) -> Refusal | Literal["too-large"] | None:
        """Why a set cannot enter the caches, after others that wait."""
        whys = [one.cache.no_room_for(found.of(one.instance_handle)) for one in readers]
        if "too-large" in whys:
            return "too-large"
        if before:
            for one in readers:
                if _is_limited(one.cache.limits) and (parts := found.of(one.instance_handle)):
                    waiting = [part for other in before for part in other.of(one.instance_handle)]
                    why = one.cache.no_room_for([*waiting, *parts])
                    whys.append("samples" if why == "too-large" else why)
        return next((why for why in whys if why is not None), None)

    def _show(self, readers: Iterable[DataReader[Any]], found: _GroupSet) -> None:
        for reader in readers:
            if parts := found.of(reader.instance_handle):
                reader.take_set(parts)

    def end(self, readers: Iterable[DataReader[Any]]) -> None:
        """An access ends: what became whole meanwhile is seen, as far as there is room."""
        self.accessing -= 1
        while not self.accessing and self._whole and self._no_room(readers, self._whole[0]) is None:
            self._show(readers, self._whole.pop(0))

    def lose(self, reader: str, writer: str | None = None) -> None:
        """A reader has lost a writer, or is gone: sets that it lacks parts of never become whole."""
        for key, one in list(self._sets.items()):
            pairs = [pair for pair in one.expected if pair[0] == reader and writer in (None, pair[1])]
            if writer is not None and any(one.lacks(pair) for pair in pairs):
                del self._sets[key]
            elif writer is None:
                for pair in pairs:
                    del one.expected[pair], one.parts[pair]


def _is_limited(limits: CacheLimits) -> bool:
    return (limits.max_samples, limits.max_instances, limits.max_samples_per_instance) != (None, None, None)


def in_order(readers: Iterable[DataReader[Any]], wanted: SampleSelection, now: int) -> list[DataReader[Any]]:
    """The reader of each sample in turn, in the order of the module. Under the lock."""
    found = [
        (station, place, number, reader)
        for reader in readers
        for station, place, number in reader.cache.places(wanted, now)
    ]
    latest: dict[str, int] = {}
    keyed = []
    for station, place, number, reader in sorted(found, key=lambda one: one[:3]):
        latest[station] = max(latest.get(station, 0), number)
        keyed.append((latest[station], station, place, reader))
    return [reader for *_, reader in sorted(keyed, key=lambda one: one[:3])]
