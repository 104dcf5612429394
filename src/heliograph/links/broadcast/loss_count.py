"""Counts what a station lost of a broadcast, from the records that it has not read.

A reader of the ring that stands still beyond its lease is ended. What it has not read is still in the ring at
that instant, since it held the writer up: so there is nothing to be counted for each station while events
flow. Between the events stands who takes what (`Takes`). Going backwards from what a station takes now tells
what it took at each of them.

A channel's events are in the ring for all who want some of them. Which of them one station wants is asked
here, of its filters as they are now (`LossCounter`), for a limited time: from then on its channels decide.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from heliograph.channel.batch import IncomingBatch
from heliograph.channel.routing.conditions import ReceiverCondition
from heliograph.errors import BadFrame, DecodeError
from heliograph.links.broadcast.large_events import APART, decode_large
from heliograph.links.broadcast.queue import OVERTAKEN
from heliograph.links.session import messages as m
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.conditions import AnyCondition
    from heliograph.links.broadcast.gateway import BroadcastGateway, ReaderSession
    from heliograph.links.session.wire_events import WireEventReader

Wishes: TypeAlias = "Mapping[type[Event], ReceiverCondition | AnyCondition]"
"""What a station wants of a channel; event types that are not named are not wanted."""

LONE: Final = 3
"""The form of an event alone, beside those of runs."""
LONE_HEAD: Final = struct.Struct("<BI")
"""Form and stream: how a record of one event begins, a large one too."""
ALONE: Final = (LONE, APART)
ASKING_LIMIT: Final = 1.0
"""Seconds for which the filters of a station are asked what it did not get: as long as a reader that misses
nothing is waited for."""
SELF: Final = "this station"
IN_DOUBT: Final = "what they may not let through is among what it is said not to have got"


def events_in(record: bytes) -> int:
    """How many events, or pieces of one, a record holds."""
    if record[0] in ALONE:
        return 1
    run = m.read_run(memoryview(record), SELF)
    return 0 if run.stream == m.MESSAGES else run.length


def events_by_channel(records: Iterable[bytes], streams: Mapping[int, WireEventReader]) -> Counter[str]:
    """How many events of each channel records hold, whoever wants them; a large one with its last piece."""
    found: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for record in records:
        if record[0] in ALONE:
            number, events = LONE_HEAD.unpack_from(record)[1], 1
        else:
            run = m.read_run(memoryview(record), SELF)
            number, events = run.stream, run.length
            if number != m.MESSAGES and run.form == m.PIECE:
                whole, here = m.piece_sizes(run)
                channel = streams[number].channel
                parts[channel] += here
                events = parts[channel] >= whole
                if events:
                    parts[channel] = 0
        if number != m.MESSAGES and number in streams:
            found[streams[number].channel] += events
    return found + Counter(channel for channel, left in parts.items() if left)


class LossCounter:
    """Tells which events the filters of a station let through.

    Args:
        streams: what this station has written, by number.
        wishes: what that one wants, by channel.
        now: the monotonic clock.
    """

    def __init__(
        self, streams: Mapping[int, WireEventReader], wishes: Mapping[str, Wishes], now: Callable[[], int]
    ) -> None:
        self.streams = streams
        self._wishes = wishes
        self._now = now
        self._until = now() + round(ASKING_LIMIT * 1e9)
        self._by_stream: dict[
            WireEventReader, tuple[type[Event], ReceiverCondition | AnyCondition] | None
        ] = {}
        self.gave_up = False
        """Whether some were not asked about, because it took too long."""

    def wants(self, channel: str, item: Item) -> bool:
        """Whether it wants an event of a channel that it takes."""
        wishes = self._wishes.get(channel)
        if wishes is None or self._is_late():
            return True
        condition = wishes.get(type(item[0]))
        return condition is not None and condition.holds(item[0], item[1])

    def lone(self, stream: WireEventReader, record: bytes) -> int:
        """As `run`, of an event that is a record by itself."""
        return self._wanted(stream, 1, lambda cls: _read_lone(stream, cls, record))

    def run(self, stream: WireEventReader, run: m.Run) -> int:
        """Which events of a run it wants: a bit for each. All that cannot be asked about."""
        return self._wanted(stream, run.length, lambda cls: stream.read(run, (cls,), SELF))

    def _wanted(
        self, stream: WireEventReader, events: int, read: Callable[[type[Event]], Sequence[Item] | None]
    ) -> int:
        wish = self._wish(stream)
        if wish is None:
            return 0
        cls, condition = wish
        if condition.is_open or self._is_late():
            return (1 << events) - 1
        try:
            items = read(cls)
        except (ValueError, RecursionError, DecodeError, BadFrame):
            items = None
        if items is None or len(items) != events:
            return (1 << events) - 1
        if isinstance(items, IncomingBatch) and not condition.needs_each_header:
            items = [(event, items.first, 0) for event in items.events]
        holds = condition.holds
        return int("".join(["1" if holds(event, header) else "0" for event, header, _ in reversed(items)]), 2)

    def _wish(self, stream: WireEventReader) -> tuple[type[Event], ReceiverCondition | AnyCondition] | None:
        """The class and the condition that events of a stream go by; None: none of them is wanted."""
        if stream not in self._by_stream:
            wishes = self._wishes.get(stream.channel)
            if wishes is None:
                return Event, ReceiverCondition()
            found = [wish for wish in wishes.items() if info_of(wish[0]).name == stream.wire.name]
            self._by_stream[stream] = found[0] if found else None
        return self._by_stream[stream]

    def _is_late(self) -> bool:
        self.gave_up = self.gave_up or self._now() >= self._until
        return self.gave_up


def _read_lone(stream: WireEventReader, cls: type[Event], record: bytes) -> Sequence[Item] | None:
    body = memoryview(record)[LONE_HEAD.size :]
    if record[0] == APART:
        read_apart = stream.apart_reader((cls,), "default")
        lone = None if read_apart is None else read_apart(*decode_large(body))
    else:
        read_lone = stream.lone_reader((cls,), "default")
        lone = None if read_lone is None else read_lone(body)
    return None if lone is None else [(lone[0], stream.header_of(lone), 0)]


def missed_in(
    records: Sequence[bytes], reader: tuple[int, int], takes: set[str], judge: LossCounter
) -> Iterator[tuple[int, str, int]]:
    """The place of a record, a channel, and which of its events there were for a reader; last ones first.

    Args:
        records: in the order of the ring.
        reader: that has not read any of them: its station and row.
        takes: the channels of which it takes events behind the last one.
        judge: asks its filters. Of each event there is a bit.
    """
    takes = set(takes)
    large: _Large | None = None
    for place in range(len(records) - 1, -1, -1):
        record = records[place]
        if record[0] in ALONE:
            stream = judge.streams.get(LONE_HEAD.unpack_from(record)[1])
            wanted = judge.lone(stream, record) if stream is not None and stream.channel in takes else 0
        else:
            run = m.read_run(memoryview(record), SELF)
            if run.stream == m.MESSAGES:
                for message in reversed(m.read_messages(run, SELF)):
                    if isinstance(message, m.Takes) and (message.station, message.row) == reader:
                        (takes.discard if message.takes else takes.add)(message.channel)
                continue
            stream = judge.streams.get(run.stream)
            if run.form == m.PIECE:
                large = large or _Large(place)
                if not large.is_whole_with(run):
                    continue
                (place, run), large = (large.place, large.whole()), None  # noqa: PLW2901 - it counts where it ends
            wanted = judge.run(stream, run) if stream is not None and stream.channel in takes else 0
        if wanted and stream is not None:
            yield place, stream.channel, wanted
    if large is not None and (stream := judge.streams.get(large.stream)) and stream.channel in takes:
        yield large.place, stream.channel, 1  # its beginning was read: nobody can ask about it


def would_miss(
    records: Sequence[bytes],
    hearer: ReaderSession,
    judge: LossCounter,
    gateways: Mapping[str, BroadcastGateway],
) -> bool:
    """Whether there is an event for a reader in records that it has not read, or behind them."""
    if any(missed_in(records, (hearer.station, hearer.row), hearer.takes, judge)):
        return True
    for channel in hearer.takes:
        gateway = gateways.get(channel)
        if gateway is not None and any(judge.wants(channel, item) for item in gateway.waiting()):
            return True
    return False


def count_missed(
    found: Iterable[tuple[int, str, int]],
    first: int,
    hearer: ReaderSession,
    gateways: Mapping[str, BroadcastGateway],
    *,
    reason: str = OVERTAKEN,
) -> Counter[str]:
    """How many events of each channel a reader did not get; the ledgers of their gateways count them too.

    Args:
        found: by `missed_in`, with all records from the first one unread.
        reason: under which they are counted.
    """
    missed: Counter[str] = Counter()
    for place, channel, events in found:
        missed[channel] += events.bit_count()
        gateway = gateways.get(channel)
        if gateway is not None:
            new = gateway.count_overtaken(first + place, events, reason)
            for hearing in gateway.hearings_of(hearer)[-1:]:
                hearing.missed += new
    return missed


class _Large:
    """An event in pieces, of which the last one was met first."""

    def __init__(self, place: int) -> None:
        self.place = place
        """Of its last piece."""
        self._pieces: list[m.Run] = []
        self._size = 0

    @property
    def stream(self) -> int:
        return self._pieces[0].stream

    def is_whole_with(self, piece: m.Run) -> bool:
        whole, here = m.piece_sizes(piece)
        self._pieces.append(piece)
        self._size += here
        return self._size >= whole

    def whole(self) -> m.Run:
        pieces = m.Pieces()
        *_, whole = [pieces.add(piece, SELF) for piece in reversed(self._pieces)]
        assert whole is not None
        return whole
