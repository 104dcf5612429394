"""What a station did not get of a broadcast, counted by channel from the records that it has not read.

A reader of the ring that stands still beyond its lease is ended. What it has not read is still in the ring at
that instant, since it held the writer up: so there is nothing to be counted for each station while events
flow. Between the events stands who takes what (`Takes`). Going backwards from what a station takes now tells
what it took at each of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from heliograph.link import messages as m
from heliograph.link.apart import APART

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LONE: Final = 3
"""The form of an event alone, beside those of runs."""
LONE_HEAD: Final = struct.Struct("<BI")
"""Form and stream: how a record of one event begins, a large one too."""
ALONE: Final = (LONE, APART)


def events_in(record: bytes) -> int:
    """How many events, or pieces of one, a record holds."""
    if record[0] in ALONE:
        return 1
    run = m.read_run(memoryview(record), "this station")
    return 0 if run.stream == m.MESSAGES else run.length


def missed_in(
    records: Sequence[bytes], reader: tuple[int, int], takes: set[str], channel_of: Mapping[int, str]
) -> Iterator[tuple[int, str, int]]:
    """The place of a record, a channel and how many of its events in it were for a reader; last ones first.

    Args:
        records: in the order of the ring.
        reader: that has not read any of them: its station and row.
        takes: the channels of which it takes events behind the last one.
        channel_of: by stream.
    """
    takes = set(takes)
    still_missing = 0  # bytes of an event whose last piece was seen already, and counted
    for place in range(len(records) - 1, -1, -1):
        record = records[place]
        if record[0] in ALONE:
            stream, events = LONE_HEAD.unpack_from(record)[1], 1
        else:
            run = m.read_run(memoryview(record), "this station")
            if run.stream == m.MESSAGES:
                for message in reversed(m.read_messages(run, "this station")):
                    if isinstance(message, m.Takes) and (message.station, message.row) == reader:
                        (takes.discard if message.takes else takes.add)(message.channel)
                continue
            stream, events = run.stream, run.length
            if run.form == m.PIECE:
                whole, here = m.piece_sizes(run)
                events = 0 if still_missing else 1
                still_missing = (still_missing or whole) - here
        channel = channel_of.get(stream, "")
        if events and channel in takes:
            yield place, channel, events
