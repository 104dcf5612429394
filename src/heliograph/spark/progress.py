"""`heliograph.spark.progress_listener`: the progress of streaming queries as events of a channel.

    with hg.Station("data") as station:
        progress = station.channel("spark.progress", heliograph.spark.QueryProgress)
        spark.streams.addListener(heliograph.spark.progress_listener(progress))

Spark calls a listener in the process of the driver, over Spark Connect in that of the client; so that is
where the channel is open. Whoever subscribes to it sees queries start, advance, wait and end, with what each
batch left unread, without asking Spark: `where="kind = 'terminated' AND error <> ''"` is an alarm.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.errors import HeliographError
from heliograph.model.event import Event
from heliograph.spark.source.lag import planned_lag, total

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from heliograph.channel.channel import Channel

log = logging.getLogger(__name__)


class PartitionLag(Event, name="spark.partition_lag"):
    """What a batch left unread of one partition, when it was planned."""

    channel: str
    partition: str
    events: int
    bytes: int
    seconds: float


class QueryProgress(Event, name="spark.query_progress", key="query"):
    """What has become of a streaming query."""

    query: str
    """Its id, which stays the same when it is started again from its checkpoint."""
    run: str
    kind: str
    """`started`, `progress` (a batch is done), `idle` (there was nothing to do) or `terminated`."""
    at: datetime
    name: str = ""
    batch: int = -1
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    state_rows: int = 0
    """In the state of all stateful operators together."""
    watermark: datetime | None = None
    lag_events: int = 0
    """What the batch left unread of all channels of ours that the query reads."""
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    """How long the oldest of those events had been durable."""
    lags: list[PartitionLag] = []  # noqa: RUF012 - each event gets its own
    error: str = ""


def progress_listener(channel: Channel[QueryProgress]) -> StreamingQueryListener:
    """A listener for `spark.streams.addListener` that pushes what it hears of into a channel.

    A push that fails is logged, and the query goes on.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415 - Spark loads with it

    class ProgressListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            push(event, "started", _time(event.timestamp), name=event.name or "")

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
            progress = event.progress
            push(progress, "progress", _time(progress.timestamp), **_facts(progress))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
            push(event, "idle", _time(event.timestamp))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
            push(event, "terminated", datetime.now(UTC), error=event.exception or "")

    def push(about: Any, kind: str, at: datetime, **facts: Any) -> None:
        try:
            channel.push(QueryProgress(str(about.id), str(about.runId), kind, at, **facts))
        except HeliographError as error:
            log.warning("the progress of query %s cannot be pushed: %s", about.id, error)

    return ProgressListener()


def _facts(progress: Any) -> dict[str, Any]:
    lags = {key: one for source in progress.sources for key, one in planned_lag(source).items()}
    whole = total(lags.values())
    watermark = progress.eventTime.get("watermark")
    rate = progress.processedRowsPerSecond
    return {
        "name": progress.name or "",
        "batch": progress.batchId,
        "rows": progress.numInputRows,
        "rows_per_second": rate if rate == rate else 0.0,  # noqa: PLR0124 - NaN of a batch without time
        "batch_ms": progress.batchDuration,
        "state_rows": sum(one.numRowsTotal for one in progress.stateOperators),
        "watermark": None if watermark is None else _time(watermark),
        "lag_events": 0 if whole is None else whole.events,
        "lag_bytes": 0 if whole is None else whole.bytes,
        "lag_seconds": 0.0 if whole is None else whole.seconds,
        "lags": [PartitionLag(*key, **one._asdict()) for key, one in lags.items()],
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
