"""What can be said to `spark.read.format("heliograph")` and to `readStream`, checked before anything is read.

    options = parse_options({"path": "data", "channel": "air.tracks", "filter": "speed > 300"}, stream=True)

An option that does not exist, a value that is not of its kind, and options that do not go together are
refused with what is allowed. `docs/guides/spark.md` has the table; names and meanings follow Spark's Kafka
source where it has the same thing. Names are compared without case, as Spark hands them on.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from heliograph.errors import InvalidOption
from heliograph.runtime.object_store import is_remote
from heliograph.spark.source.option_values import (
    choice,
    count,
    parse,
    place,
    seconds,
    several,
    size,
    text,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.journal.reading.reader import PartitionReader
    from heliograph.spark.source.option_values import Parser

ByPartition: TypeAlias = dict[str, dict[str, int]]
"""Channels to partitions to offsets or times."""
Mode: TypeAlias = Literal["typed", "envelope"]
Evolution: TypeAlias = Literal["ignore", "fail", "rescue"]
BadRecords: TypeAlias = Literal["fail", "skip", "column"]

EARLIEST: Final = -2
LATEST: Final = -1
"""How offsets in JSON say so, as for Kafka."""

NO_PATH: Final = (
    "the folder of the station that keeps the channel (of a table whose columns are written out Spark hands "
    "on no options: leave the columns out, or use CREATE TEMPORARY VIEW)"
)

STRATEGY: Final = "startingOffsetsByTimestampStrategy"
MAX_PATTERN: Final = 1000
"""Characters of `subscribePattern`."""


class Points(msgspec.Struct, frozen=True):
    """A point in each partition: by time if one is given, else by offset, else at an end of the history."""

    named: Literal["earliest", "latest"] = "earliest"
    offsets: ByPartition | None = None
    times_ns: ByPartition | None = None
    time_ns: int | None = None
    insists: bool = False
    """Whether a time that no event is as late as is refused; else it means the end."""
    everywhere: int | None = None
    """The same offset in every partition."""

    def offset(self, reader: PartitionReader, channel: str, partition: str) -> int:
        """Where it is in one partition. One that the JSON does not name is at its beginning."""
        if self.time_ns is not None:
            return self._offset_at(self.time_ns, reader, "startingTimestamp")
        if self.times_ns is not None:
            time_ns = self.times_ns.get(channel, {}).get(partition)
            if time_ns is None:
                return reader.earliest
            return self._offset_at(time_ns, reader, "startingOffsetsByTimestamp")
        if self.everywhere is not None:
            return self.everywhere
        if self.offsets is not None:
            offset = self.offsets.get(channel, {}).get(partition, EARLIEST)
        else:
            offset = EARLIEST if self.named == "earliest" else LATEST
        return reader.earliest if offset == EARLIEST else reader.watermark if offset == LATEST else offset

    def _offset_at(self, time_ns: int, reader: PartitionReader, option: str) -> int:
        found = reader.offset_at(time_ns)
        if self.insists and found >= reader.watermark:
            allowed = f"a time that some event of {reader.folder} is as late as, or {STRATEGY}=latest"
            raise InvalidOption(option, str(time_ns // 1_000_000), allowed)
        return found


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for. `channels`, `assigned` or `pattern` is given, not two of them."""

    path: str
    channels: tuple[str, ...] = ()
    assigned: dict[str, tuple[str, ...]] | None = None
    """Partitions of channels, when only these are wanted."""
    pattern: str | None = None
    where: str | None = None
    params: dict[str, Any] | list[Any] | None = None
    types: tuple[str, ...] | None = None
    mode: Mode = "typed"
    include_headers: bool = False
    evolution: Evolution = "fail"
    bad_records: BadRecords = "fail"
    fail_on_data_loss: bool = True
    starting: Points
    ending: Points
    max_events: int | None = None
    max_bytes: int | None = None
    min_events: int | None = None
    max_delay: float = 900.0
    """Seconds for which `min_events` is waited for."""
    min_tasks: int = 1
    max_in_task: int | None = None
    consumer: str | None = None
    """Under which name the progress of a stream is told."""


def parse_options(given: Mapping[str, str], *, stream: bool | None) -> SourceOptions:
    """The options of a batch read or of a stream; InvalidOption names the first that is wrong.

    With None it is not known yet which of the two it will be, and options of both are let through.
    """
    parsers = {
        **_EVERYWHERE,
        **({} if stream is True else _BATCH_ONLY),
        **({} if stream is False else _STREAM_ONLY),
    }
    elsewhere = dict.fromkeys(_STREAM_ONLY, "streams") | dict.fromkeys(_BATCH_ONLY, "batch reads")
    parsed = parse(given, parsers, elsewhere)
    if "path" not in parsed:
        raise InvalidOption("path", None, NO_PATH)
    _insist_on_one(parsed)
    _insist_on_companions(parsed)
    if "consumer" in parsed and is_remote(parsed["path"]):
        raise InvalidOption(
            "consumer",
            parsed["consumer"],
            "a stream from the folder of a station: in a store nobody notes it",
        )
    return SourceOptions(
        **{field: parsed[option] for option, field in _FIELDS.items() if option in parsed},
        starting=_points(parsed, "starting", "latest" if stream else "earliest"),
        ending=_points(parsed, "ending", "latest"),
    )


def _insist_on_one(parsed: Mapping[str, Any]) -> None:
    given = [name for name in _CHOICES if name in parsed]
    if not given:
        others = " or ".join(map(repr, _CHOICES[1:]))
        raise InvalidOption("channel", None, f"a channel; or give {others}")
    if len(given) > 1:
        raise InvalidOption(given[1], str(parsed[given[1]]), f"one of {', '.join(_CHOICES)}, not two")


def _insist_on_companions(parsed: Mapping[str, Any]) -> None:
    least, most = parsed.get("minEventsPerTrigger"), parsed.get("maxEventsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption("minEventsPerTrigger", str(least), f"at most maxEventsPerTrigger, {most}")
    if "maxTriggerDelay" in parsed and least is None:
        raise InvalidOption("minEventsPerTrigger", None, "a number of events, when maxTriggerDelay is given")
    if STRATEGY in parsed and not _TIMES & parsed.keys():
        raise InvalidOption("startingTimestamp", None, f"a time, when {STRATEGY} is given")
    for short, long in (("start", "starting"), ("until", "ending")):
        twice = [name for name in parsed if name.startswith(long) and name != STRATEGY]
        if short in parsed and twice:
            raise InvalidOption(short, None, f"either {short} or {twice[0]}")
    if "params" in parsed and "filter" not in parsed:
        raise InvalidOption("filter", None, "a condition, when params are given")


def _points(parsed: Mapping[str, Any], which: str, default: Literal["earliest", "latest"]) -> Points:
    insists = which == "starting" and parsed.get(STRATEGY) == "error"
    if f"{which}Timestamp" in parsed:
        return Points(time_ns=parsed[f"{which}Timestamp"], insists=insists)
    if f"{which}OffsetsByTimestamp" in parsed:
        return Points(times_ns=parsed[f"{which}OffsetsByTimestamp"], insists=insists)
    short = "start" if which == "starting" else "until"
    found: Points = parsed.get(f"{which}Offsets") or parsed.get(short) or Points(named=default)
    return found


# Kinds of values


def _one(name: str, value: str) -> tuple[str, ...]:
    return (text(name, value),)


def _assigned(name: str, value: str) -> dict[str, tuple[str, ...]]:
    allowed = 'JSON such as {"air.tracks": ["5f0c…"]}, with a partition for each channel'
    found: dict[str, tuple[str, ...]] = _json(name, value, dict[str, tuple[str, ...]], allowed)
    if not found or not all(found.values()):
        raise InvalidOption(name, value, allowed)
    return found


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(text(name, value))
    except re.error as error:
        raise InvalidOption(name, value, f"a regular expression of Python ({error})") from None
    if len(value) > MAX_PATTERN:
        raise InvalidOption(name, value, f"a regular expression of at most {MAX_PATTERN} characters")
    return value


def _json(name: str, value: str, kind: Any, allowed: str) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise InvalidOption(name, value, allowed) from None


def _params(name: str, value: str) -> Any:
    return _json(name, value, dict[str, Any] | list[Any], "a JSON object for :names or a JSON array for %0")


class _Position(msgspec.Struct):
    """An offset as a stream reports it; what else it says does not matter for where to start."""

    offset: int


def _offsets(name: str, value: str) -> Points:
    if value.lower() in ("earliest", "latest"):
        return Points(named="earliest" if value.lower() == "earliest" else "latest")
    allowed = (
        'earliest, latest, or JSON such as {"air.tracks": {"5f0c…": 1200}}, '
        "in which -2 is the earliest offset and -1 the latest"
    )
    found = _json(name, value, dict[str, dict[str, int | _Position]], allowed)
    offsets = {
        channel: {partition: p if isinstance(p, int) else p.offset for partition, p in partitions.items()}
        for channel, partitions in found.items()
    }
    if any(offset < EARLIEST for partitions in offsets.values() for offset in partitions.values()):
        raise InvalidOption(name, value, allowed)
    return Points(offsets=offsets)


def _point(name: str, value: str) -> Points:
    """A point as `heliograph.spark.read` has it, written as a text."""
    if value.lower() in ("earliest", "latest", "now"):
        return Points(named="earliest" if value.lower() == "earliest" else "latest")
    if re.fullmatch(r"[0-9]{1,18}", value):
        return Points(everywhere=int(value))
    if value.startswith("{"):
        return _offsets(name, value)
    try:
        return Points(time_ns=_time(name, value))
    except InvalidOption:
        allowed = (
            "earliest, latest, now, an offset, a time with its zone such as 2026-11-05T10:00:00+00:00, "
            'or JSON such as {"air.tracks": {"5f0c…": 1200}}'
        )
        raise InvalidOption(name, value, allowed) from None


def _time(name: str, value: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", value):
        return int(value) * 1_000_000
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        allowed = "milliseconds since 1970, or a time with its zone such as 2026-11-05T10:00:00+00:00"
        raise InvalidOption(name, value, allowed)
    return round(time.timestamp() * 1e6) * 1000


def _times(name: str, value: str) -> ByPartition:
    allowed = 'JSON such as {"air.tracks": {"5f0c…": 1762336800000}}, in milliseconds since 1970'
    found = _json(name, value, dict[str, dict[str, int]], allowed)
    if any(time < 0 for partitions in found.values() for time in partitions.values()):
        raise InvalidOption(name, value, allowed)
    return {
        channel: {partition: time * 1_000_000 for partition, time in partitions.items()}
        for channel, partitions in found.items()
    }


_CHOICES: Final = ("channel", "subscribe", "subscribePattern", "assign")
_TIMES: Final = frozenset({"startingTimestamp", "startingOffsetsByTimestamp"})
_EVERYWHERE: Final[dict[str, Parser]] = {
    "path": place,
    "channel": _one,
    "subscribe": several,
    "subscribePattern": _pattern,
    "assign": _assigned,
    "start": _point,
    "startingOffsets": _offsets,
    "startingTimestamp": _time,
    "startingOffsetsByTimestamp": _times,
    STRATEGY: choice("latest", "error"),
    "minPartitions": count,
    "maxEventsPerPartition": count,
    "filter": text,
    "params": _params,
    "types": several,
    "mode": choice("typed", "envelope"),
    "includeHeaders": truth,
    "schemaEvolution": choice("ignore", "fail", "rescue"),
    "badRecords": choice("fail", "skip", "column"),
    "failOnDataLoss": truth,
}
_STREAM_ONLY: Final[dict[str, Parser]] = {
    "maxEventsPerTrigger": count,
    "maxBytesPerTrigger": size,
    "minEventsPerTrigger": count,
    "maxTriggerDelay": seconds,
    "consumer": text,
}
_BATCH_ONLY: Final[dict[str, Parser]] = {
    "until": _point,
    "endingOffsets": _offsets,
    "endingTimestamp": _time,
    "endingOffsetsByTimestamp": _times,
}
_FIELDS: Final = {
    "path": "path",
    "channel": "channels",
    "subscribe": "channels",
    "subscribePattern": "pattern",
    "assign": "assigned",
    "filter": "where",
    "params": "params",
    "types": "types",
    "mode": "mode",
    "includeHeaders": "include_headers",
    "schemaEvolution": "evolution",
    "badRecords": "bad_records",
    "failOnDataLoss": "fail_on_data_loss",
    "maxEventsPerTrigger": "max_events",
    "maxBytesPerTrigger": "max_bytes",
    "minEventsPerTrigger": "min_events",
    "maxTriggerDelay": "max_delay",
    "minPartitions": "min_tasks",
    "maxEventsPerPartition": "max_in_task",
    "consumer": "consumer",
}
