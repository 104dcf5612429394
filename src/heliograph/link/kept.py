"""Persistent channels of stations that have no folder: their history is kept by another station.

`Keeper` answers for the channels that a station keeps; `RemoteStore` is what a channel elsewhere has in place
of a journal of its own, and asks it. Everything above the store is the same in both stations: consumers read
history, rejoin the live events at the seam, and remember how far they came.

Live events come by the keeper's gateway. Before a consumer reads history its station has told the keeper what
it wants, so whatever the last page of history does not hold comes live; what is in both is taken once, by
its offset. When the keeper was away, consumers read again from the last offset that came live.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph.channel.delayed import Later  # noqa: TC001 - msgspec reads it at run time
from heliograph.channel.history import meets
from heliograph.errors import (
    AppendFailed,
    AppendTimeout,
    BatchTooLarge,
    CursorHeld,
    HeliographError,
    HistoryDamaged,
    HistoryGone,
    NotPossible,
    QueryFailed,
)
from heliograph.link import messages as m
from heliograph.link.pages import MAX_PAGE, Page, PageReader, cut_page, page_size, read_page, to_page
from heliograph.link.questions import GONE
from heliograph.link.sharing import RemoteDesk, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.core import Channel
    from heliograph.channel.handing import Acking
    from heliograph.channel.lane import Item
    from heliograph.channel.pipeline import AnyOf, Condition
    from heliograph.channel.selection import Selection
    from heliograph.channel.store import Level, Store, StoreReceipt, Tombstone
    from heliograph.event import Event
    from heliograph.link.link import Link
    from heliograph.link.questions import Questions, Reply
    from heliograph.link.runs import EventWriter
    from heliograph.ports import Ports

KEEPER_LIMIT: Final = 5.0
"""Seconds to wait for a keeper when a channel is opened, and for its answers."""
AWAY_LIMIT: Final = 0.25
"""Seconds between two looks for a keeper that is away, to tell it how far a consumer has come."""


class ReadAsk(msgspec.Struct, array_like=True):
    channel: str
    start: int
    most: int
    below: int | None


class AppendAsk(msgspec.Struct, array_like=True):
    channel: str
    level: str
    page: Page
    push_id: str | None = None
    later: Later | None = None
    """Of an event that is to be delivered later."""


class Marks(msgspec.Struct, array_like=True):
    partition: str
    earliest: int
    watermark: int


class Progress(msgspec.Struct, array_like=True):
    """How far a durable consumer has come; see `heliograph.channel.store.Cursor`."""

    position: int | None
    acks: frozenset[int] = frozenset()
    reach: int = 0
    epoch: int = 0


APPEND_BYTES: Final = 32 << 20
"""Bytes that can be appended through a keeper at once."""

_read_ask: Final = msgspec.msgpack.Decoder(ReadAsk).decode
_append_ask: Final = msgspec.msgpack.Decoder(AppendAsk).decode
_marks: Final = msgspec.msgpack.Decoder(Marks).decode
_text: Final = msgspec.msgpack.Decoder(str).decode
_place: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode
_time: Final = msgspec.msgpack.Decoder(tuple[str, int]).decode
_number: Final = msgspec.msgpack.Decoder(int | None).decode
_lease: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_progress: Final = msgspec.msgpack.Decoder(Progress).decode
_commit_ask: Final = msgspec.msgpack.Decoder(tuple[str, str, Progress]).decode


Wanted: TypeAlias = "Callable[[int, str], Mapping[type[Event], Condition | AnyOf] | None]"
"""What a station's consumers want of a channel, per type; None when that is not known."""


class Keeper:
    """Answers for the channels whose history this station keeps.

    Args:
        questions: where it answers.
        channel: a channel of this station by its name, or None.
        writer: turns events into runs.
        wanted: tells what a station wants of a channel, so that nothing else is sent.
    """

    def __init__(
        self,
        questions: Questions,
        channel: Callable[[str], Channel[Any] | None],
        writer: EventWriter,
        wanted: Wanted,
    ) -> None:
        self._channel = channel
        self._writer = writer
        self._wanted = wanted
        self._readers: dict[str, PageReader] = {}
        self._cursors: dict[tuple[int, str, str], Any] = {}
        self._suppliers: dict[tuple[int, str, str], Any] = {}
        for topic, responder in (
            ("marks", self._marks),
            ("offset", self._offset),
            ("read", self._read),
            ("append", self._append),
            ("cursor", self._open_cursor),
            ("commit", self._commit),
            ("leave", self._leave),
            ("supplier", self._open_supplier),
            ("unsupply", self._close_supplier),
        ):
            questions.answer(f"history.{topic}", responder)

    def station_left(self, station: int) -> None:
        """Free what its consumers held, so that they can go on elsewhere."""
        for held in (self._cursors, self._suppliers):
            for key in [key for key in held if key[0] == station]:
                held.pop(key).close()

    def _store(self, name: str) -> Store:
        channel = self._channel(name)
        store = None if channel is None else channel.store
        if store is None or isinstance(store, RemoteStore):
            raise QueryFailed("this station", f"does not keep the history of {name!r}")
        return store

    def _marks(self, _: int, body: msgspec.Raw, reply: Reply) -> None:
        store = self._store(_text(body))
        reply(Marks(store.partition, store.earliest, store.watermark))

    def _offset(self, _: int, body: msgspec.Raw, reply: Reply) -> None:
        name, append_ts = _time(body)
        reply(self._store(name).offset_at(append_ts))

    def _read(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        """A page of what anybody in that station wants; read on until there is something, up to a limit."""
        ask = _read_ask(body)
        store, conditions = self._store(ask.channel), self._wanted(station, ask.channel)
        start, reached, wanted = ask.start, -1, list[Any]()
        try:
            while not wanted and reached != start and start - ask.start < MAX_PAGE:
                start = ask.start if reached < 0 else reached
                items, reached = store.read(start, min(ask.most, MAX_PAGE), ask.below)
                wanted = items if conditions is None else [i for i in items if meets(conditions, i)]
        except (HistoryGone, HistoryDamaged) as gap:
            if start == ask.start:
                kind = "gone" if isinstance(gap, HistoryGone) else "damaged"
                reply(Page([], 0, (kind, gap.first, gap.next_available)))
            else:
                reply(Page([], start))
            return
        reply(cut_page(self._writer, wanted, reached))

    def _append(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _append_ask(body)
        store = self._store(ask.channel)
        channel = self._channel(ask.channel)
        assert channel is not None
        reader = self._readers.setdefault(ask.channel, PageReader(ask.channel))
        items = reader.items(ask.page, channel.types, f"{station:016x}")
        level: Level = "journal" if ask.level == "journal" else "synced"

        if ask.later is not None:
            receipt: StoreReceipt = channel.delayed.keep(items[0], ask.later, level, KEEPER_LIMIT)
        elif ask.push_id is None:
            receipt = store.append(items, level)
        else:
            receipt = store.append_once(items[0], ask.push_id, level, KEEPER_LIMIT)
        receipt.add_done_callback(lambda done: reply(done.error()))

    def _open_cursor(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, consumer, _ = _place(body)
        key = (station, name, consumer)
        held = [other for other in self._cursors if other[1:] == key[1:] and other != key]
        if held:
            raise CursorHeld(consumer, f"station {held[0][0]:016x}")
        cursor = self._cursors[key] = self._store(name).cursor(consumer, f"station {station:016x}")
        reply(Progress(cursor.position, cursor.acks, cursor.reach, cursor.epoch))

    def _commit(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, consumer, progress = _commit_ask(body)
        key = (station, name, consumer)
        if key not in self._cursors:
            # This keeper, or the way to it, was away: whoever had the cursor goes on, unless it is
            # another's by now.
            self._cursors[key] = self._store(name).cursor(consumer, epoch=progress.epoch)
        self._cursors[key].commit(progress.position or 0, progress.acks, progress.reach)
        reply(None)

    def _open_supplier(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, supplier, _ = _place(body)
        lease = self._store(name).supplier(supplier, f"station {station:016x}")
        self._suppliers[station, name, supplier] = lease
        reply((lease.epoch, lease.last_sequence))

    def _close_supplier(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, supplier, _ = _place(body)
        lease = self._suppliers.pop((station, name, supplier), None)
        if lease is not None:
            lease.close()
        reply(None)

    def _leave(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, consumer, _ = _place(body)
        cursor = self._cursors.pop((station, name, consumer), None)
        if cursor is not None:
            cursor.close()
        reply(None)


class RemoteStore:
    """The history of a channel, kept by another station; see `heliograph.channel.store.Store`.

    Args:
        channel: its name.
        types: gives the classes that the channel carries at this moment.
        keeper: finds the link to the station that keeps it now, waiting up to so many seconds.
    """

    kept_here = False

    def __init__(
        self,
        channel: str,
        types: Callable[[], tuple[type[Event], ...]],
        *,
        keeper: Callable[[str, float], Link | None],
        questions: Questions,
        writer: EventWriter,
        ports: Ports,
    ) -> None:
        self._channel = channel
        self._types = types
        self._keeper = keeper
        self._questions = questions
        self._writer = writer
        self._ports = ports
        self._reader = PageReader(channel)
        self._cursors: list[RemoteCursor] = []
        self._leases: list[RemoteLease] = []
        if keeper(channel, KEEPER_LIMIT) is None:
            raise NotPossible(
                channel,
                "durability='persistent' needs a folder, hg.Station('data'), or a station of the domain that "
                "has one and keeps this channel; none was found",
            )
        self.partition = self._ask_marks().partition

    @property
    def watermark(self) -> int:
        return self._ask_marks().watermark

    @property
    def earliest(self) -> int:
        return self._ask_marks().earliest

    def wait_ready(self, timeout: float | None = None) -> None:
        self._link(KEEPER_LIMIT if timeout is None else timeout)

    def append(self, items: Sequence[Item], level: Level, timeout: float | None = None) -> StoreReceipt:  # noqa: ARG002 - waiting is for `wait_ready`: whoever calls this holds a lock
        return self._append(items, level)

    def append_once(
        self,
        item: Item,
        push_id: str,
        level: Level,
        timeout: float | None = None,  # noqa: ARG002 - as above
    ) -> StoreReceipt:
        return self._append([item], level, push_id)

    def append_later(self, item: Item, later: Later, level: Level) -> StoreReceipt:
        """Have the keeper keep an event until its time."""
        return self._append([item], level, later=later)

    def supplier(self, name: str, owner: str | None = None) -> RemoteLease:  # noqa: ARG002 - the keeper knows who asks
        lease = RemoteLease(self, self._channel, name)
        self._leases.append(lease)
        return lease

    def _append(
        self,
        items: Sequence[Item],
        level: Level,
        push_id: str | None = None,
        later: Later | None = None,
    ) -> StoreReceipt:
        link = self._link(0)
        receipt = RemoteReceipt(self.partition, str(items[0][1].id), self._ports)
        page = to_page(self._writer, items)
        if page_size(page) > APPEND_BYTES:
            raise BatchTooLarge(page_size(page), APPEND_BYTES, "bytes")
        ask = AppendAsk(self._channel, level, page, push_id, later)
        self._questions.ask_later(link, "history.append", ask, receipt.came)
        return receipt

    def forget(self, gone: Tombstone, level: Level) -> StoreReceipt:  # noqa: ARG002 - it is always refused
        raise NotPossible(self._channel, "a key is forgotten in the station that keeps the history")

    def read(self, start: int, most: int, below: int | None = None) -> tuple[list[Item], int]:
        """As a store does; QueryFailed while the keeper is away or silent: that is no end of history."""
        link = self._keeper(self._channel, 0)
        if link is None:
            raise QueryFailed(self._channel, "the station that keeps its history is away")
        ask = ReadAsk(self._channel, start, most, below)
        answer = self._questions.ask(link, "history.read", ask, KEEPER_LIMIT)
        page = read_page(answer, link.name)
        if page.gap is not None:
            kind, first, following = page.gap
            if kind == "gone":
                raise HistoryGone(self.partition, first, following)
            raise HistoryDamaged(self.partition, first, following, "its keeper cannot read it")
        return self._reader.items(page, self._types(), link.name), page.reached

    def offset_at(self, append_ts: int) -> int:
        return self.ask_number("history.offset", (self._channel, append_ts)) or 0

    def cursor(
        self,
        name: str,
        owner: str | None = None,  # noqa: ARG002 - the keeper knows who asks
        epoch: int | None = None,  # noqa: ARG002 - only keepers ask on behalf of others
    ) -> RemoteCursor:
        cursor = RemoteCursor(self, self._channel, name)
        self._cursors.append(cursor)
        return cursor

    def desk(self, member: str, selection: Selection, acking: Acking, *, raises_gaps: bool) -> RemoteDesk:
        way = Way(
            self._channel,
            self._ports.clock,
            self._ports.tasks,
            self._types,
            self._ask,
            self._ask_later,
        )
        return RemoteDesk(way, member, selection, acking, raises_gaps=raises_gaps)

    def finish(self) -> None:
        """What was appended is with the keeper already."""

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()
        for lease in self._leases:
            lease.close()

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

    def tell_progress(self, channel: str, consumer: str, progress: Progress) -> None:
        """CursorFenced when another has it now."""
        self._ask("history.commit", (channel, consumer, progress), patient=True)

    def ask_lease(self, channel: str, supplier: str) -> tuple[int, int]:
        link = self._link(KEEPER_LIMIT)
        answer = self._questions.ask(link, "history.supplier", (channel, supplier, 0), KEEPER_LIMIT)
        return m.decoded(_lease, answer, link.name)

    def _ask(self, topic: str, body: Any, patient: bool) -> msgspec.Raw:
        """Ask the keeper; a patient one waits for a keeper that is away or not ready, for a while."""
        clock = self._ports.clock
        until = clock.monotonic_ns() + round(KEEPER_LIMIT * 1e9)
        while True:
            try:
                link = self._link(KEEPER_LIMIT if patient else 0)
                return self._questions.ask(link, topic, body, KEEPER_LIMIT)
            except QueryFailed:
                if not patient or clock.monotonic_ns() >= until:
                    raise
                self._ports.tasks.sleep(AWAY_LIMIT)

    def _ask_later(self, topic: str, body: Any, came: Callable[[], None]) -> None:
        try:
            link = self._link(0)
        except QueryFailed:
            came()
        else:
            self._questions.ask_later(link, topic, body, lambda *_: came())

    def _ask_marks(self) -> Marks:
        link = self._link(KEEPER_LIMIT)
        answer = self._questions.ask(link, "history.marks", self._channel, KEEPER_LIMIT)
        return m.decoded(_marks, answer, link.name)

    def _link(self, timeout: float) -> Link:
        link = self._keeper(self._channel, timeout)
        if link is None:
            raise QueryFailed(f"the keeper of {self._channel!r}", "cannot be reached")
        return link


class RemoteCursor:
    """How far a durable consumer here has come, remembered by the keeper."""

    def __init__(self, store: RemoteStore, channel: str, name: str) -> None:
        self._store = store
        self._key = (channel, name)
        self._open = True
        progress = store.ask_progress(channel, name)
        self.position, self.acks, self.reach = progress.position, progress.acks, progress.reach
        self.epoch = progress.epoch

    def commit(self, position: int, acks: Iterable[int] = (), reach: int = 0) -> None:
        progress = Progress(position, frozenset(acks), reach, self.epoch)
        self._store.tell_progress(*self._key, progress)
        self.position, self.acks, self.reach = position, progress.acks, reach

    def close(self) -> None:
        if self._open:
            self._open = False
            try:
                self._store.ask_number("history.leave", (*self._key, 0))
            except QueryFailed:
                return  # a keeper that is away has let go of it


class RemoteLease:
    """A named supplier here, whose name is leased from the keeper."""

    def __init__(self, store: RemoteStore, channel: str, name: str) -> None:
        self._store = store
        self._key = (channel, name)
        self._open = True
        self.epoch, self.last_sequence = store.ask_lease(channel, name)

    def close(self) -> None:
        if self._open:
            self._open = False
            with suppress(QueryFailed):  # a keeper that is away has let go of it
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
            self._error = AppendTimeout(self._partition, self._event, round(seconds, 3))
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
