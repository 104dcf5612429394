"""`heliograph.spark.lag`: how far a streaming query is behind the channels that it reads.

    query = stream.writeStream...start()
    heliograph.spark.lag(query)             Lag(events=1200, bytes=98304, seconds=0.8)

It is measured where it is asked for: against the folder as it is now, from where the last finished batch
ended. So it needs to see that folder, as the driver does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.streaming.listener import SourceProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from heliograph.journal.reading.reader import PartitionReader


class Lag(NamedTuple):
    """What a query has still to read."""

    events: int
    bytes: int
    """About how many they take on disk."""
    seconds: float
    """How long the oldest of them has been durable."""


def lag(query: StreamingQuery) -> Lag | None:
    """How far a query is behind; None before its first batch, and for one that reads no channel of ours."""
    return total(lag_by_partition(query).values())


def total(lags: Iterable[Lag]) -> Lag | None:
    """Of several partitions together; None of none."""
    found = list(lags)
    if not found:
        return None
    return Lag(
        sum(one.events for one in found), sum(one.bytes for one in found), max(one.seconds for one in found)
    )


def planned_lag(source: SourceProgress) -> dict[tuple[str, str], Lag]:
    """What was left behind the batch of a source's progress when it was planned, by channel and partition."""
    latest = _json(source.latestOffset)
    if not isinstance(latest, dict) or "lag" not in latest:
        return {}
    return {
        (channel, partition): Lag(**one)
        for channel, partitions in latest["lag"].items()
        for partition, one in partitions.items()
    }


def lag_by_partition(query: StreamingQuery) -> dict[tuple[str, str], Lag]:
    """How far a query is behind, by channel and partition; empty before its first batch."""
    progress: Any = query.lastProgress
    found: dict[tuple[str, str], Lag] = {}
    for source in progress.sources if progress is not None else ():
        latest, end = _json(source.latestOffset), _json(source.endOffset)
        if isinstance(latest, dict) and latest.keys() >= {"path", "channels"} and isinstance(end, dict):
            found |= _partitions(latest, end)
    return found


def _json(text: Any) -> Any:
    return msgspec.json.decode(text) if isinstance(text, str) and text else text


def _partitions(latest: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Lag]]:
    from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - the package loads without the journal

    folder = StationFolder(latest["path"])
    for channel in dict.fromkeys([*latest["channels"], *end]):
        there = latest["channels"].get(channel, ()) if latest.get("assigned") else folder.partitions(channel)
        for partition in there:
            with folder.reader(channel, partition) as reader:
                at = end.get(channel, {}).get(partition, {"offset": reader.earliest})
                yield (channel, partition), behind(reader, at["offset"])


def behind(reader: PartitionReader, offset: int) -> Lag:
    """What lies between an offset of a partition and its durable end."""
    from heliograph.errors import HistoryDamaged, HistoryGone  # noqa: PLC0415 - as above

    watermark = reader.watermark
    offset = max(offset, reader.earliest)  # what retention has removed is not to be read any more
    if offset >= watermark:
        return Lag(0, 0, 0.0)
    size = sum(size for _, _, size in reader.sizes(offset, watermark))
    try:
        oldest = reader.read(offset, max_events=1)[0].append_ts
    except (HistoryGone, HistoryDamaged) as gap:
        following = reader.read(gap.next_available, max_events=1)
        oldest = following[0].append_ts if following else time.time_ns()
    return Lag(watermark - offset, size, max(0.0, (time.time_ns() - oldest) / 1e9))
