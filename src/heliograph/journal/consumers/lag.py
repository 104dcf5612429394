"""How far durable consumers and groups are behind the histories that a station keeps.

    for place in lag("data", "air.tracks"):
        place.consumer, place.partition, place.acknowledged, place.end, place.events

It is read from the folder, without a lock, so the station may be running. What is told is what is kept: the
acknowledgements of a batch that is just being delivered are not yet, and until when a consumer has its name
only its station knows; `seen_ts` is when that last wrote that it had heard of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from heliograph.errors import BadJournalFile, HistoryDamaged, HistoryGone
from heliograph.journal.consumers.cursor_repair import inspect_cursors
from heliograph.journal.consumers.cursors import CursorPosition, CursorState
from heliograph.journal.consumers.outside_readers import noted
from heliograph.journal.format.folder import StationFolder, cursor_folder
from heliograph.journal.names import GROUP_PLACE
from heliograph.journal.writing.producer_leases import PREFIX

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from heliograph.journal.reading.reader import PartitionReader


OUTSIDE: Final = "a reader outside of the station"
"""The owner of a position that a query of Spark has told."""


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """Where one durable consumer, or one group, is in one partition."""

    channel: str
    consumer: str
    is_group: bool
    partition: str
    acknowledged: int
    """All events below this offset are; the next one, if there is one, is not."""
    end: int
    """The offset behind the last durable event."""
    events: int
    """Offsets from there to the end that are not acknowledged, whether its filter wants their events or not;
    what retention has removed is not counted, what compaction has is."""
    since_ts: int | None
    """When the oldest of these was appended, in ns since 1970; None when there is none that can be read."""
    attempts: int
    """How often the one of these was handed out that was so most often, where `max_deliveries` has that
    counted; else 0."""
    owner: str
    """The last owner of the name."""
    seen_ts: int
    """When its owner was last heard of, in ns since 1970, as far as that is kept."""


def lag(folder: str | os.PathLike[str], channel: str | None = None) -> list[ConsumerLag]:
    """Every cursor of every durable consumer of a channel, or of all channels, in a station's folder.

    Raises NoHistory, and BadJournalFile when cursors or a partition are damaged.
    """
    station = StationFolder(folder)
    channels = station.channels() if channel is None else (channel,)
    return [place for name in channels for place in _of_channel(station, name)]


def _of_channel(station: StationFolder, channel: str) -> Iterator[ConsumerLag]:
    partitions = station.partitions(channel)
    # Before any watermark is read: cursors stay below those, which only go up.
    report = inspect_cursors(station.disk, cursor_folder(channel))
    if report is not None and not report.sound:
        raise BadJournalFile(
            report.file, f"{report.problem}; look at what `helio journal repair --dry-run` says"
        )
    kept = () if report is None else report.places
    states = [one.state for one in kept if not one.state.name.startswith(PREFIX)]
    outside = noted(station.disk, channel)
    if not states and not outside:
        return
    for partition in partitions:
        with station.reader(channel, partition) as reader:
            for state in states:
                if partition in state.positions:
                    yield _place(channel, partition, reader, state, state.positions[partition])
            for one in outside:
                if partition in one.positions:
                    state = CursorState(one.name, owner=OUTSIDE, seen_ts=one.seen_ts)
                    yield _place(channel, partition, reader, state, CursorPosition(one.positions[partition]))


def _place(
    channel: str, partition: str, reader: PartitionReader, state: CursorState, position: CursorPosition
) -> ConsumerLag:
    end, begin = reader.watermark, max(position.low, reader.earliest)
    acknowledged = sum(begin <= offset < end for offset in position.acks)
    return ConsumerLag(
        channel=channel,
        consumer=state.name.removeprefix(GROUP_PLACE),
        is_group=state.name.startswith(GROUP_PLACE),
        partition=partition,
        acknowledged=position.low,
        end=end,
        events=max(0, end - begin - acknowledged),
        since_ts=_appended(reader, begin) if begin < end else None,
        attempts=max(position.attempts.values(), default=0),
        owner=state.owner,
        seen_ts=state.seen_ts,
    )


def _appended(reader: PartitionReader, offset: int) -> int | None:
    """When the event there, or the next that can be read, was appended."""
    with suppress(HistoryGone, HistoryDamaged):
        try:
            rows = reader.read(offset, max_events=1)
        except (HistoryGone, HistoryDamaged) as gap:
            rows = reader.read(gap.next_available, max_events=1)
        return rows[0].append_ts if rows else None
    return None
