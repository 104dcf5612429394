"""Events of a history as the command line shows and exports them. Commands import this when they run.

history = History("data", "air.tracks", "earliest", "now", "speed > 300")
for row in history.rows(): print(shown("air.tracks", row, headers=True))
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.cli.output import header_document
from heliograph.codec import mapping_decoder
from heliograph.codec.dynamic.reflect import mapping_to_json
from heliograph.errors import DecodeError
from heliograph.journal.format.records import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.history_rows import HistoryRow, HistoryRows

PART: Final = 1_000_000
"""Events in one file of an export to Parquet."""


def shown(channel: str, row: HistoryRow, *, headers: bool) -> Any:
    """What is printed of an event; of one whose body is no event, where it is and what is wrong."""
    try:
        body = mapping_to_json(row.format, mapping_decoder(row.format)(row.record.body))
    except DecodeError as error:
        return {"problem": str(error), "header": _header(channel, row)}
    event = msgspec.Raw(body)
    return {"header": _header(channel, row), "event": event} if headers else event


def _header(channel: str, row: HistoryRow) -> dict[str, Any]:
    return header_document(
        row.record,
        channel=channel,
        type=row.format.name,
        append_ts=row.append_ts,
        partition=row.partition,
        offset=row.offset,
    )


def write_json_lines(history: HistoryRows, channel: str, file: Path) -> int:
    """Events with their headers, one JSON object per line; returns how many."""
    events = 0
    with file.open("xb") as lines:
        for row in history.rows():
            lines.write(msgspec.json.encode(shown(channel, row, headers=True)) + b"\n")
            events += 1
    return events


def write_parquet(history: HistoryRows, _channel: str, folder: Path) -> int:
    """A folder of files laid out as sealed segments, per partition and million events; returns how many."""
    from heliograph.journal.writing.segment_writer import segment_file  # noqa: PLC0415 - for this one only

    events = 0
    folder.mkdir()
    for partition in history.partitions:
        rows = history.rows_of(partition)
        while part := list(islice(rows, PART)):
            runs = [Rows(row.offset, row.append_ts, [row.record]) for row in part]
            data, _ = segment_file(runs, history.formats)
            folder.joinpath(f"{partition}-{part[0].offset:020d}.parquet").write_bytes(data)
            events += len(part)
    return events
