"""Delivery records: who got which event, when, after how many sends and in time or not, as events themselves.

    qos = hg.QoS(delivery_records="all")                        or "sampled", with delivery_rate
    station.channel("_helio.deliveries", hg.DeliveryRecord)     one per (event, receiver)
    station.channel("_helio.ledger", hg.LedgerRecord)           what each receiver has counted so far

Where a station has a folder both channels are persistent, and Spark reads them as any other. A station
without one opens them as a station of its domain keeps them, so that its records go into that history; where
nobody keeps them they are there for who listens, until somebody does. They are not recorded themselves.

A receiver's watch puts what it is told into a queue and goes on; one task makes records of it a few times a
second. When the queue is full records are lost, and the ledger says how many. Whether an event is sampled
follows from its id alone, so all its receivers are recorded, in every station, or none. Each record says at
which rate it was taken and how many outcomes its channel had seen by then: `max(seen)` is the n behind it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from zlib import crc32

from heliograph.delivery.latency_histogram import LatencyHistogram
from heliograph.errors import HeliographError, NotPossible
from heliograph.model.event import Event
from heliograph.qos.dispatch_order import as_ns, latency_of
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from heliograph.channel.channel import Channel
    from heliograph.channel.ledger import QueueCounts
    from heliograph.channel.observer import Outcome, Watch
    from heliograph.delivery.latency_histogram import LatencyCounts
    from heliograph.model.event import Header
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

RESERVED: Final = "_helio."
"""Channels whose names begin so are about channels, and not recorded."""
DELIVERIES: Final = RESERVED + "deliveries"
LEDGER: Final = RESERVED + "ledger"

EVERY: Final = 0.2
"""Seconds between two batches of records."""
BATCH: Final = 5_000
"""Outcomes that wait before a batch is made at once."""
MAX_WAITING: Final = 200_000
"""Outcomes that wait before further ones are lost, about 100 MB."""

CLOSE_LIMIT: Final = 1.0
"""Seconds for receivers of records that nobody kept to take them, before those are kept."""
PERSISTENT: Final = QoS(durability="persistent")
UNKEPT: Final = QoS(reliability="best-effort")
"""Of records that nobody keeps."""

_ALL: Final = 1 << 32


class DeliveryRecord(Event, name="helio.delivery"):
    """What became of one event for one receiver."""

    station: str
    channel: str
    receiver: str
    supplier: str
    epoch: int
    sequence: int
    """With supplier and epoch: which event."""
    partition: str | None
    offset: int | None
    outcome: str
    """delivered, failed, expired or dropped."""
    reason: str
    """Of a drop, as in the ledger."""
    sends: int
    at_ns: int
    """When, by the receiving station's clock."""
    source_ts: int
    append_ts: int | None
    lifetime_ns: int | None
    waited_ns: int
    """Since it was appended; on a channel without a history, since its source's time."""
    in_time: bool | None
    """Whether it was delivered before its deadline: within `latency_ns`, else within its lifespan; None when
    it has neither."""
    rate: float
    """Of all events, how many are sampled: 1.0 is all."""
    seen: int
    """Outcomes that the channel had seen in this station by then, sampled or not."""
    latency_ns: int | None = None
    """Within which it was to be delivered: as its push said, else as the channel says."""


class Dropped(Event, name="helio.dropped"):
    """Events dropped for one reason."""

    reason: str
    events: int


class LedgerRecord(Event, name="helio.ledger"):
    """What a receiver has counted since its channel was opened. Every row balances in itself.

    Rows count up within one life of a station. Sums over time and over lives are sums of final rows; of a
    station that runs, or was killed, the last row of each receiver that has no final one stands in for it.
    """

    station: str
    """Its id, of this life alone."""
    snapshot: int
    """Rows of one channel with the same number were taken at one instant."""
    at_ns: int
    channel: str
    receiver: str | None
    """None: the channel as a whole, with those who have left."""
    pushed: int
    """Events; of a receiver: 0."""
    matched: int
    """The sum of those that follow."""
    delivered: int
    failed: int
    expired: int
    dropped: int
    pending: int
    dropped_by: list[Dropped]
    lost_records: int
    """Delivery records that could not be made, in this station so far."""
    since_ns: int = 0
    """When this station was opened. Its id is new with every start, so rows of one life share it."""
    final: bool = False
    """Whether no later row follows: the receiver has left, or the station was closed."""


class _Told(NamedTuple):
    """One outcome, as a watch was told it."""

    channel: str
    receiver: str
    header: Header
    outcome: Outcome
    reason: str
    sends: int
    at_ns: int
    seen: int
    rate: float


class RecordsDomain(Protocol):
    """What the recorder of a station without a folder asks of its domain."""

    @property
    def reopened(self) -> dict[str, QoS]: ...

    def keepers_of(self, name: str) -> Collection[str]: ...

    def recorded(self, name: str, asked: QoS | None) -> QoS | None: ...


class Recorder:
    """Records what becomes of events on the channels of one station that ask for it.

    Args:
        station: its id, for the records.
        open_channel: opens a channel of that station, or takes the one that is there.
        channels: those that are open.
        domain: keeps records for a station that does not do so itself; None: it is on its own.
        durable: whether the station keeps histories itself.
    """

    def __init__(
        self,
        ports: Ports,
        station: str,
        open_channel: Callable[[str, tuple[type[Event], ...], QoS], Channel[Any]],
        channels: Callable[[], Iterable[Channel[Any]]],
        domain: RecordsDomain | None = None,
        *,
        durable: bool,
    ) -> None:
        self._ports = ports
        self._station = station
        self._open_channel = open_channel
        self._channels = channels
        if domain is not None:
            domain.reopened.update({DELIVERIES: UNKEPT, LEDGER: UNKEPT})
        self._domain = None if durable else domain
        self._durable = durable
        self._told: deque[_Told] = deque()
        self._lost = count()
        self._snapshots = count(1)
        self._since = ports.clock.time_ns()
        self._ended: deque[tuple[str, str, Callable[[], QueueCounts]]] = deque()
        """Receivers that have left, and what they have counted, which may still change."""
        self._due: dict[str, int] = {}
        """When the ledger of a channel is written next, on the monotonic clock."""
        self._intervals: dict[str, int] = {}
        self._latencies: dict[str, int | None] = {}
        self._histograms: dict[str, LatencyHistogram] = {}
        self._ways: tuple[Channel[Any], Channel[Any]] | None = None
        self._starting = ports.tasks.lock("start of delivery records")
        self._opening = False
        self._stopping = False
        self._is_last = False
        """Whether nothing is written after what is being written."""
        self._bell = ports.tasks.signal("delivery records")
        self._has_begun = False
        self._has_ended = ports.tasks.event("delivery records")

    def observe(self, channel: str, qos: QoS) -> _Observed | None:
        """The observer of a new channel; None when it asks for no records."""
        if qos.delivery_records == "off" or channel.startswith(RESERVED):
            return None
        self._intervals[channel] = round(qos.ledger_interval * 1e9)
        self._latencies[channel] = as_ns(qos.latency)
        self._histograms[channel] = LatencyHistogram()
        self._due[channel] = self._ports.clock.monotonic_ns() + self._intervals[channel]
        rate = 1.0 if qos.delivery_records == "all" else qos.delivery_rate
        return _Observed(channel, rate, self._ports.clock.time_ns, self._put, self._ended.append)

    def latencies(self, channel: str) -> LatencyCounts | None:
        """How long events of a channel waited, since it was opened; None when it records no deliveries."""
        found = self._histograms.get(channel)
        return None if found is None else found.counts()

    def start(self) -> None:
        """Open the ways that records go, once a channel asks for them. Under no lock."""
        with self._starting:
            if not self._intervals or self._opening:
                return
            self._opening = True
        self._ways = (self._opened(DELIVERIES, DeliveryRecord), self._opened(LEDGER, LedgerRecord))
        self._ports.tasks.spawn_soon("delivery records", self._run)

    def close(self) -> None:
        """Write what is left, and a last ledger of every channel."""
        self._stopping = True
        self._bell.notify()
        if self._ways is not None:
            self._run()  # in case that no thread was left for it until now
            self._has_ended.wait()

    def _opened(self, name: str, cls: type[Event]) -> Channel[Any]:
        if self._durable:
            return self._open_channel(name, (cls,), PERSISTENT)
        kept = None if self._domain is None else self._domain.recorded(name, None)
        if kept is not None:
            try:
                return self._open_channel(name, (cls,), kept)
            except NotPossible as error:
                log.info("%s", error)  # its keeper has just left
        return self._open_channel(name, (cls,), UNKEPT)

    def _follow(self) -> None:
        """Open anew what nobody kept when it was opened, and a station of the domain keeps by now."""
        assert self._ways is not None
        self._ways = self._kept(self._ways[0], DeliveryRecord), self._ways[1]
        self._ways = self._ways[0], self._kept(self._ways[1], LedgerRecord)

    def _kept(self, channel: Channel[Any], cls: type[Event]) -> Channel[Any]:
        if self._domain is None or channel.qos != UNKEPT:
            return channel
        if not channel.closed and not self._domain.keepers_of(channel.name):
            return channel
        log.info("%s is kept by a station of the domain now: receivers here subscribe again", channel.name)
        channel.close(CLOSE_LIMIT)
        return self._opened(channel.name, cls)

    def _keeper_is_away(self) -> bool:
        """Whether records go to another station, and it is not there: they wait for it."""
        assert self._ways is not None
        return self._domain is not None and any(
            channel.qos.journalled and not self._domain.keepers_of(channel.name) for channel in self._ways
        )

    def _put(self, told: _Told) -> None:
        if len(self._told) >= MAX_WAITING:
            next(self._lost)
            return
        self._told.append(told)
        if not len(self._told) % BATCH:
            self._bell.notify()

    def _run(self) -> None:
        with self._starting:
            if self._has_begun:
                return
            self._has_begun = True
        try:
            while not self._stopping:
                self._bell.wait(EVERY)
                self._write()
            self._due = dict.fromkeys(self._due, 0)
            self._is_last = True
            self._write()
        finally:
            self._has_ended.set()

    def _write(self) -> None:
        assert self._ways is not None
        try:
            if not self._stopping:
                self._follow()
            if self._keeper_is_away():
                if self._is_last and self._told:
                    log.warning(
                        "delivery records were not written: %s", f"{len(self._told)} wait for a keeper"
                    )
                return
            deliveries, ledger = self._ways
            while self._told:
                told = [self._told.popleft() for _ in range(min(len(self._told), BATCH))]
                deliveries.push_many([self._delivery(one) for one in told])
            rows = self._ledgers()
            if rows:
                ledger.push_many(rows)
        except HeliographError as error:
            # A full disk must not stop the recorder; what was in hand is gone, and the log says so.
            log.warning("delivery records were not written: %s", error)

    def _delivery(self, told: _Told) -> DeliveryRecord:
        header = told.header
        waited = told.at_ns - (header.source_ts if header.append_ts is None else header.append_ts)
        latency = latency_of(header)
        if latency is None:
            latency = self._latencies[told.channel]
        limit = header.lifetime_ns if latency is None else latency
        is_delivered = told.outcome == "delivered"
        in_time = None if limit is None else is_delivered and waited <= limit
        self._histograms[told.channel].add(waited, limit, is_delivered=is_delivered)
        return DeliveryRecord(
            self._station,
            told.channel,
            told.receiver,
            header.supplier,
            header.epoch,
            header.sequence,
            header.partition,
            header.offset,
            told.outcome,
            told.reason,
            told.sends,
            told.at_ns,
            header.source_ts,
            header.append_ts,
            header.lifetime_ns,
            waited,
            in_time,
            told.rate,
            told.seen,
            latency,
        )

    def _ledgers(self) -> list[LedgerRecord]:
        now = self._ports.clock.monotonic_ns()
        due = {name for name, at in self._due.items() if at <= now}
        rows = self._final_rows()
        for channel in self._channels() if due else ():
            if channel.name not in due:
                continue
            self._due[channel.name] = now + self._intervals[channel.name]
            stats, snapshot, at = channel.stats(), next(self._snapshots), self._ports.clock.time_ns()
            whole = self._ledger(snapshot, at, channel.name, None, stats.pushed, stats.total)
            whole.final = self._is_last
            rows.append(whole)
            for receiver, counts in stats.consumers.items():
                rows.append(self._ledger(snapshot, at, channel.name, receiver, 0, counts))
        return rows

    def _final_rows(self) -> list[LedgerRecord]:
        """The last row of each receiver that has left, once nothing of it is under way any more."""
        rows: list[LedgerRecord] = []
        for _ in range(len(self._ended)):
            channel, receiver, counted = left = self._ended.popleft()
            counts = counted()
            if counts.pending and not self._is_last:
                self._ended.append(left)
                continue
            at = self._ports.clock.time_ns()
            row = self._ledger(next(self._snapshots), at, channel, receiver, 0, counts)
            row.final = True
            rows.append(row)
        return rows

    def _ledger(  # noqa: PLR0917 - the beginning of a record, in its order
        self, snapshot: int, at: int, channel: str, receiver: str | None, pushed: int, counts: QueueCounts
    ) -> LedgerRecord:
        return LedgerRecord(
            self._station,
            snapshot,
            at,
            channel,
            receiver,
            pushed,
            counts.total,
            counts.delivered,
            counts.failed,
            counts.expired,
            sum(counts.dropped.values()),
            counts.pending,
            [Dropped(reason, events) for reason, events in sorted(counts.dropped.items())],
            int(self._lost.__reduce__()[1][0]),
            self._since,
        )


class _Observed:
    """Observes one channel."""

    def __init__(
        self,
        channel: str,
        rate: float,
        now: Callable[[], int],
        put: Callable[[_Told], None],
        ended: Callable[[tuple[str, str, Callable[[], QueueCounts]]], object],
    ) -> None:
        self._channel = channel
        self._ended = ended
        self._rate = rate
        self._now = now
        self._put = put
        self._seen = count(1).__next__

    def left(self, receiver: str, counts: Callable[[], QueueCounts]) -> None:
        self._ended((self._channel, receiver, counts))

    def watch(self, receiver: str) -> Watch:
        channel, rate, now, put, seen = self._channel, self._rate, self._now, self._put, self._seen
        below = round(rate * _ALL)

        def told(header: Header, outcome: Outcome, reason: str = "", sends: int = 1) -> None:
            number = seen()
            if below == _ALL or sample_place(header) < below:
                put(_Told(channel, receiver, header, outcome, reason, sends, now(), number, rate))

        return told


def sample_place(header: Header) -> int:
    """Where an event lies among all, from 0 to 2**32: the same in every process, and spread evenly."""
    return crc32(header.sequence.to_bytes(8, "little", signed=True), _seed(header.supplier, header.epoch))


@lru_cache(1024)
def _seed(supplier: str, epoch: int) -> int:
    return int.from_bytes(blake2b(f"{supplier}\0{epoch}".encode(), digest_size=4).digest(), "little")
