"""The client of histories that other stations keep: reads their partitions, appends to them.

`heliograph.links.history.server` answers. Everything above the store is the same in both stations: consumers
read history, rejoin the live events at the seam, and remember how far they came.

Live events come by the keeper's gateway. Before a consumer reads history its station has told the keeper what
it wants, so whatever the last page of history does not hold comes live; what is in both is taken once, by
its offset. When the keeper was away, consumers read again from the last offset that came live.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from heliograph.errors import (
    AppendFailed,
    AppendTimeout,
    BatchTooLarge,
    HeliographError,
    HistoryDamaged,
    HistoryGone,
    NotPossible,
    QueryFailed,
)
from heliograph.links.groups.client import RemoteCoordinator, Way
from heliograph.links.history.cursor import RemoteCursor
from heliograph.links.history.pages import PageReader, page_size, read_page, to_page
from heliograph.links.history.server import KEEPER_LIMIT, AppendAsk, Marks, Progress, ReadAsk
from heliograph.links.session import messages as m
from heliograph.links.session.rpc import GONE
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from heliograph.channel.ack_protocol import Acking, JoinRequest
    from heliograph.channel.batch import OutgoingBatch
    from heliograph.channel.history.store import Level, StoreReceipt, Tombstone
    from heliograph.channel.publish.delayed import Later
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.selection import Selection
    from heliograph.links.session.link import Link
    from heliograph.links.session.rpc import Outcome, Rpc
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event
    from heliograph.model.history_epochs import Epochs
    from heliograph.qos.policies import Missing
    from heliograph.runtime.ports import Ports

AWAY_LIMIT: Final = 0.25
"""Seconds between two looks for a keeper that is away."""
APPEND_BYTES: Final = 32 << 20
"""Bytes that can be appended through a keeper at once."""

_marks: Final = msgspec.msgpack.Decoder(Marks).decode
_number: Final = msgspec.msgpack.Decoder(int | None).decode
_lease: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_progress: Final = msgspec.msgpack.Decoder(Progress).decode


class ToKeepers(NamedTuple):
    """How a keeper is asked."""

    keeper: Callable[[str, str, float], Link | None]
    """The link to the station that keeps a channel's partition now, waiting up to so many seconds."""
    questions: Rpc
    writer: EventWriter
    ports: Ports


class RemotePartition:
    """What another station keeps of a channel; see `heliograph.channel.history.store.HistoryPartition`.

    Args:
        channel: its name.
        partition: which part of its history; whoever keeps it at the moment is asked.
        types: gives the classes that the channel carries at this moment.
        way: how to ask.
        missing: whether events may lack fields that have a default.
        epochs: which writers wrote it, as its keeper has said.
    """

    kept_here = False

    def __init__(  # noqa: PLR0917 - what a keeper says of it, and how to ask
        self,
        channel: str,
        partition: str,
        types: Callable[[], tuple[type[Event], ...]],
        way: ToKeepers,
        missing: Missing,
        epochs: Epochs = (),
    ) -> None:
        self.partition = partition
        self.epochs = epochs
        self._channel = channel
        self._types = types
        self._missing: Missing = missing
        self._way = way
        self._questions = way.questions
        self._ports = way.ports
        self._reader = PageReader(channel, way.ports.clock, missing)
        self._decoding = way.ports.tasks.lock(f"pages of {channel}")
        """Several receivers may read the partition at once; a reader knows what it refused of one page."""
        self._away_since: int | None = None

    def met_again(self, epochs: Epochs) -> None:
        self.epochs = epochs

    @property
    def epoch_id(self) -> bytes:
        """The one that its keeper was in when it was last met."""
        return self.epochs[-1].id if self.epochs else b""

    @property
    def reachable(self) -> bool:
        return self._way.keeper(self._channel, self.partition, 0) is not None

    @property
    def watermark(self) -> int:
        return self._ask_marks().watermark

    @property
    def earliest(self) -> int:
        return self._ask_marks().earliest

    def read(
        self,
        start: int,
        most: int,
        below: int | None = None,
        *,
        as_kept: bool = False,
        only: Collection[str] | None = None,
    ) -> tuple[list[Item], int]:
        """As a store does; QueryFailed while the keeper is away or silent: that is no end of history."""
        link = self._link(0)
        ask = ReadAsk(self._channel, start, most, below)
        answer = self._questions.ask(link, "history.read", ask, KEEPER_LIMIT)
        page = read_page(answer, link.name)
        if page.gap is not None:
            kind, first, following = page.gap
            if kind == "gone":
                raise HistoryGone(self.partition, first, following)
            raise HistoryDamaged(self.partition, first, following, "its keeper cannot read it")
        with self._decoding:
            items, refused = self._reader.read(page, self._types(), link.name, as_kept=as_kept)
        refused = [one for one in refused if only is None or one.header.type in only]
        if not refused:
            return items, page.reached
        offset = refused[0].header.offset
        if offset is None or offset <= start:
            raise refused[0].error
        return [item for item in items if (item[1].offset or 0) < offset], offset

    def offset_at(self, append_ts: int) -> int:
        return self.ask_number("history.offset", (self._channel, append_ts)) or 0

    def cursor(
        self,
        name: str,
        owner: str | None = None,  # noqa: ARG002 - the keeper knows who asks
        epoch: int | None = None,  # noqa: ARG002 - only keepers ask on behalf of others
    ) -> RemoteCursor:
        return RemoteCursor(self, self._channel, name, self._ports)

    def supplier(self, name: str, owner: str | None = None) -> RemoteLease:  # noqa: ARG002 - as above
        return RemoteLease(self, self._channel, name)

    def desk(self, wish: JoinRequest, selection: Selection, acking: Acking) -> RemoteCoordinator:
        way = Way(
            self._channel,
            self._ports.clock,
            self._ports.tasks,
            self._types,
            self._missing,
            self.ask,
            self.ask_later,
        )
        return RemoteCoordinator(way, wish, selection, acking)

    def ask_later(self, topic: str, body: Any, came: Outcome) -> None:
        """Ask the keeper without waiting; told QueryFailed, at once, when it is away."""
        try:
            link = self._link(0)
        except QueryFailed as error:
            came(error)
        else:
            self._questions.ask_later(link, topic, body, came)

    def patience(self, timeout: float) -> float:
        """What is left of a time-out for a keeper that was silent or away for a part of it, or for all."""
        link, since = self._way.keeper(self._channel, self.partition, 0), self._away_since
        if link is not None:
            return self._questions.patience(link.station, timeout)
        now = self._ports.clock.monotonic_ns()
        return max(0.0, timeout - (now - (since or now)) / 1e9)

    def missed(self, since: int) -> bool:
        """Its keeper has answered nothing since an instant, which was too long; whether it is there."""
        link = self._way.keeper(self._channel, self.partition, 0)
        if link is not None:
            self._questions.missed(link.station, since)
        return link is not None

    def ask_number(self, topic: str, body: Any) -> int | None:
        link = self._link(KEEPER_LIMIT)
        number: int | None = m.decoded(
            _number, self._questions.ask(link, topic, body, KEEPER_LIMIT), link.name
        )
        return number

    def ask_progress(self, channel: str, consumer: str) -> Progress:
        link = self._link(KEEPER_LIMIT)
        answer = self._questions.ask(link, "history.cursor", (channel, consumer, 0), KEEPER_LIMIT)
        return m.decoded(_progress, answer, link.name)

    def ask(self, topic: str, body: Any, patient: bool) -> msgspec.Raw:
        """Ask the keeper; a patient one waits for a keeper that is away or not ready, for a while."""
        clock = self._ports.clock
        patience = self.patience(KEEPER_LIMIT) if patient else 0.0
        until = clock.monotonic_ns() + round(patience * 1e9)
        while True:
            try:
                link = self._link(seconds_until(clock, until))
                return self._questions.ask(link, topic, body, KEEPER_LIMIT)
            except QueryFailed:
                if not patient or clock.monotonic_ns() >= until:
                    raise
                self._ports.tasks.sleep(AWAY_LIMIT)

    def ask_lease(self, channel: str, supplier: str) -> tuple[int, int]:
        link = self._link(KEEPER_LIMIT)
        answer = self._questions.ask(link, "history.supplier", (channel, supplier, 0), KEEPER_LIMIT)
        return m.decoded(_lease, answer, link.name)

    def _ask_marks(self) -> Marks:
        link = self._link(KEEPER_LIMIT)
        answer = self._questions.ask(link, "history.marks", self._channel, KEEPER_LIMIT)
        return m.decoded(_marks, answer, link.name)

    def _link(self, timeout: float) -> Link:
        since = self._ports.clock.monotonic_ns()
        link = self._way.keeper(self._channel, self.partition, timeout)
        self._away_since = None if link is not None else self._away_since or since
        if link is None:
            whom = f"the keeper of {self._channel!r} (partition {self.partition})"
            raise QueryFailed(whom, "cannot be reached")
        return link


class RemoteStore(RemotePartition):
    """Where pushes go in a station that has no folder; see `heliograph.channel.history.store.HistoryStore`.

    They all go to one partition, for as long as the channel is open: names are leased, and repeated pushes
    found, where it is kept. While its keeper is away they raise, though another keeper may be there.
    """

    def wait_ready(self, timeout: float | None = None) -> None:
        self._link(KEEPER_LIMIT if timeout is None else timeout)

    def append(self, batch: OutgoingBatch, level: Level, timeout: float | None = None) -> StoreReceipt:  # noqa: ARG002 - waiting is for `wait_ready`: whoever calls this holds a lock
        return self._append(list(batch), level)

    def append_once(
        self,
        batch: OutgoingBatch,
        push_id: str,
        level: Level,
        timeout: float | None = None,  # noqa: ARG002 - as above
    ) -> StoreReceipt:
        return self._append(list(batch), level, push_id)

    def append_later(self, item: Item, later: Later, level: Level) -> StoreReceipt:
        """Have the keeper keep an event until its time."""
        return self._append([item], level, later=later)

    def cancel_later(self, push_id: str) -> bool:
        """Have the keeper never deliver it; False when it was too late for that."""
        return bool(self.ask_number("history.cancel", (self._channel, push_id)))

    def _append(
        self,
        items: Sequence[Item],
        level: Level,
        push_id: str | None = None,
        later: Later | None = None,
    ) -> StoreReceipt:
        link = self._link(0)
        receipt = RemoteReceipt(self.partition, str(items[0][1].id), self._ports)
        page = to_page(self._way.writer, items)
        if page_size(page) > APPEND_BYTES:
            raise BatchTooLarge(page_size(page), APPEND_BYTES, "bytes")
        ask = AppendAsk(self._channel, level, page, push_id, later)
        self._questions.ask_later(link, "history.append", ask, receipt.came)
        return receipt

    def forget(self, gone: Tombstone, level: Level) -> StoreReceipt:  # noqa: ARG002 - it is always refused
        raise NotPossible(self._channel, "a key is forgotten in the station that keeps the history")

    def finish(self) -> None:
        """What was appended is with the keeper already."""

    def close(self) -> None:
        """Whoever holds a cursor or a name lets go of it by itself."""


class RemoteLease:
    """A named supplier here, whose name is leased from the keeper."""

    def __init__(self, store: RemotePartition, channel: str, name: str) -> None:
        self._store = store
        self._key = (channel, name)
        self._open = True
        self.epoch, self.last_sequence = store.ask_lease(channel, name)

    def close(self) -> None:
        if self._open:
            self._open = False
            if self._store.reachable:  # else the keeper has let go of it
                with suppress(QueryFailed):
                    self._store.ask_number("history.unsupply", (*self._key, 0))


class RemoteReceipt:
    """The promise of an append at another station."""

    def __init__(self, partition: str, event: str, ports: Ports) -> None:
        self._partition = partition
        self._event = event
        self._clock = ports.clock
        self._since = ports.clock.monotonic_ns()
        self._ended = ports.tasks.event("append")
        self._error: BaseException | None = None
        self._lock = ports.tasks.lock("append")
        self._callbacks: list[Callable[..., object]] = []

    def came(self, answer: msgspec.Raw | HeliographError) -> None:
        """The keeper has answered, or never will: then nobody knows whether it had appended."""
        if isinstance(answer, QueryFailed) and answer.reason == GONE:
            seconds = (self._clock.monotonic_ns() - self._since) / 1e9
            gone = f"the keeper, {answer.peer}, has gone"
            self._error = AppendTimeout(self._partition, self._event, round(seconds, 3), gone)
        elif isinstance(answer, QueryFailed):
            self._error = AppendFailed(self._partition, answer.reason)
        elif isinstance(answer, HeliographError):
            self._error = answer
        with self._lock:
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def done(self) -> bool:
        return self._ended.is_set()

    def error(self) -> BaseException | None:
        return self._error

    def result(self, timeout: float | None = None) -> None:
        if not self._ended.wait(timeout):
            raise AppendTimeout(self._partition, self._event, timeout or 0.0)
        if self._error is not None:
            raise self._error

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self)
