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
    from collections.abc import Iterator

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
    behind = list(lag_by_partition(query).values())
    if not behind:
        return None
    return Lag(
        sum(one.events for one in behind),
        sum(one.bytes for one in behind),
        max(one.seconds for one in behind),
    )


def lag_by_partition(query: StreamingQuery) -> dict[tuple[str, str], Lag]:
    """How far a query is behind, by channel and partition; empty before its first batch."""
    progress: Any = query.lastProgress
    behind: dict[tuple[str, str], Lag] = {}
    for source in progress.sources if progress is not None else ():
        latest, end = _json(source.latestOffset), _json(source.endOffset)
        if isinstance(latest, dict) and latest.keys() >= {"path", "channels"} and isinstance(end, dict):
            behind |= _partitions(latest, end)
    return behind


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
                yield (channel, partition), _behind(reader, at["offset"])


def _behind(reader: PartitionReader, offset: int) -> Lag:
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
