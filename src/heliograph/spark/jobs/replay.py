"""`replay`: the rows of a data frame as events of a channel, at the pace of their source times.

    frame = heliograph.spark.read(spark, "data", "air.tracks", where="speed > 300").sample(0.1)
    with hg.Station("data") as station:
        again = station.channel("again.tracks", Track, qos=hg.QoS(durability="persistent"))
        jobs.replay(frame, station, again, name="load", speed=10)

Spark selects, joins, samples and sorts; the rows go into the channel `replay.NAME` of the station, once, and
the station replays that one (`heliograph.channel.replay`). Under the same name it goes on where it ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import InvalidOption, NotPossible
from heliograph.model.event import info_of
from heliograph.qos.policies import QoS
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from heliograph.channel.channel import Channel
    from heliograph.channel.replay import Replayed
    from heliograph.station import Station

FROM: Final = "replay."
"""Channels that hold what is replayed begin with this."""
ABOUT: Final = {
    "_source_ts": "source_ns",
    "_priority": "priority",
    "_correlation_id": "correlation_id",
    "_headers": "user",
}
"""What the sink takes as said about an event, and where a read has it."""


@names_options
def replay(
    frame: DataFrame,
    station: Station,
    to: Channel[Any],
    *,
    name: str,
    speed: float | None = 1.0,
    type: str | None = None,  # noqa: A002 - as the sink calls it
    sort: bool = True,
    progress: Callable[[Replayed], object] | None = None,
) -> Replayed:
    """Push the rows of a frame into a channel, in time.

    Args:
        frame: with the fields of the events as columns, and `header` as a read gives it: events keep source
            time, priority, correlation id and headers. Without it, `_source_ts` and the like as for a sink.
        station: that has both channels, and a folder.
        to: a persistent channel.
        name: of this replay; under the same name it goes on, and no row is pushed twice.
        speed: 2 is twice as fast as it was; None: as fast as possible.
        type: the event type of the rows, when the channel carries several.
        sort: by source time; False takes rows as they come.
        progress: called with what was done so far, after each event.

    Raises NotPossible or InvalidOption, before Spark does anything, for what cannot be.
    """
    folder = _folder(station, to)
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", name):
        raise InvalidOption("name", name, "letters, digits, - and _, in parts with dots between")
    if speed is not None:
        at_least("speed", speed, 1e-6)
    types = [info_of(cls).name for cls in to.types]
    if type is not None or len(types) > 1:
        one_of("type", str(type), types)
    source = station.channel(f"{FROM}{name}", *to.types, qos=QoS(durability="persistent"))
    writer = _rows(frame, sort=sort).write.format("heliograph").mode("append")
    options = {"path": folder, "channel": source.name, "runId": name, **({"type": type} if type else {})}
    writer.options(**options).save()
    return source.replay(to, speed=speed, by="source", name=name, progress=progress)


def _folder(station: Station, to: Channel[Any]) -> str:
    folder = getattr(station.ports.disk, "folder", None)
    if folder is None:
        raise NotPossible(to.name, "rows are kept before they are replayed: open hg.Station('data') for it")
    if not to.qos.journalled:
        raise NotPossible(
            to.name, "a replay goes on after a kill only in a persistent one: hg.QoS(durability='persistent')"
        )
    return str(folder)


def _rows(frame: DataFrame, *, sort: bool) -> DataFrame:
    """The columns that the sink takes, in one task, which writes them in their order."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark loads with it

    if "header" not in frame.columns:
        one = frame.coalesce(1)
        return one.sortWithinPartitions("_source_ts") if sort and "_source_ts" in frame.columns else one
    one = frame.coalesce(1)
    if sort:
        one = one.sortWithinPartitions("header.source_ns", "header.partition", "header.offset")
    fields = [f"`{name}`" for name in frame.columns if name != "header"]
    return one.select(*fields, *(f.col(f"header.{at}").alias(name) for name, at in ABOUT.items()))
