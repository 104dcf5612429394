"""The server of histories: answers other stations about the channels whose history this one keeps.

A station keeps one partition of a channel, so a question names the channel and no more. Of a history it
gives out what anybody in the asking station wants, it appends for stations that have no folder, and it
remembers how far durable consumers elsewhere have come in it.

Whoever is told that a history has no more goes on with what comes live. So a station is told that only when
this one has a gateway to it: a question that comes before, because the two have yet to agree on a way, is
answered as soon as they have. Else an event that is appended in between would reach it by neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.history.memory import meets
from heliograph.channel.publish.delayed import Later  # noqa: TC001 - msgspec reads it at run time
from heliograph.channel.selection import Selection, for_version
from heliograph.errors import (
    CursorHeld,
    HistoryDamaged,
    HistoryGone,
    HistoryReset,
    IncompatibleFormats,
    NotPossible,
    QueryFailed,
)
from heliograph.errors.sentences import station_text
from heliograph.journal.names import GROUP_PLACE
from heliograph.links.history.pages import MAX_PAGE, Page, PageReader, cut_page, why_not_kept
from heliograph.model.history_epochs import is_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.store import HistoryStore, Level, StoreReceipt
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
    from heliograph.links.session.rpc import Reply, Rpc
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Tasks

KEEPER_LIMIT: Final = 5.0
"""Seconds to wait for a keeper when a channel is opened, and for its answers."""


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
    """How far a durable consumer has come; see `heliograph.channel.history.store.HistoryCursor`."""

    position: int | None
    acks: frozenset[int] = frozenset()
    reach: int = 0
    epoch: int = 0
    attempts: dict[int, int] | None = None
    takes_back: bool = False
    """Whether nothing else is acknowledged, though an earlier message may have said so."""
    epoch_id: bytes = b""
    """Of the history, as its consumer has met it: see `heliograph.model.history_epochs`."""


_read_ask: Final = msgspec.msgpack.Decoder(ReadAsk).decode
_append_ask: Final = msgspec.msgpack.Decoder(AppendAsk).decode
_text: Final = msgspec.msgpack.Decoder(str).decode
_names: Final = msgspec.msgpack.Decoder(tuple[str, str]).decode
_place: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode
_time: Final = msgspec.msgpack.Decoder(tuple[str, int]).decode
_commit_ask: Final = msgspec.msgpack.Decoder(tuple[str, str, Progress]).decode


Wanted: TypeAlias = "Callable[[int, str], Mapping[type[Event], ReceiverCondition | AnyCondition] | None]"
"""What a station's consumers want of a channel, per type; None when that is not known."""


class HistoryServer:
    """Answers for the channels whose history this station keeps.

    Args:
        questions: where it answers.
        channel: a channel of this station by its name, or None.
        writer: turns events into runs.
        wanted: tells what a station wants of a channel, so that nothing else is sent.
        name_of: the name of a station that has one, else nothing.
        is_carried: whether a station gets what comes from now on of what it wants of a channel.
        tasks: has the lock, and answers what was held.
        keeps: whether a station keeps a partition of a channel itself.
        own: how this station is called.
    """

    def __init__(  # noqa: PLR0917 - what it is asked by, and what it has to know
        self,
        questions: Rpc,
        channel: Callable[[str], Channel[Any] | None],
        writer: EventWriter,
        wanted: Wanted,
        name_of: Callable[[int], str],
        is_carried: Callable[[int, str], bool],
        tasks: Tasks,
        *,
        keeps: Callable[[int, str], bool],
        own: str,
    ) -> None:
        self._channel = channel
        self._is_carried = is_carried
        self._tasks = tasks
        self._lock = tasks.lock("held questions")
        self._held: dict[int, list[tuple[msgspec.Raw, Reply]]] = {}
        """Questions for the end of a history, by the station that has no gateway yet."""
        self._writer = writer
        self._wanted = wanted
        self._name_of = name_of
        self._keeps = keeps
        self._own = own
        self._readers: dict[str, PageReader] = {}
        self.carry: Callable[[Channel[Any], list[Format]], object] | None = None
        """Has a channel carry events of further types, in a station that keeps for others."""
        self._cursors: dict[tuple[int, str, str], Any] = {}
        self._suppliers: dict[tuple[int, str, str], Any] = {}
        for topic, responder in (
            ("marks", self._marks),
            ("offset", self._offset),
            ("read", self._read),
            ("append", self._append),
            ("cancel", self._cancel_later),
            ("cursor", self._open_cursor),
            ("commit", self._commit),
            ("leave", self._leave),
            ("supplier", self._open_supplier),
            ("unsupply", self._close_supplier),
        ):
            questions.answer(f"history.{topic}", responder)
        questions.on_left(self._station_left)

    def _station_left(self, station: int) -> None:
        """Free what its consumers held, so that they can go on elsewhere."""
        with self._lock:
            self._held.pop(station, None)
        for held in (self._cursors, self._suppliers):
            for key in [key for key in held if key[0] == station]:
                held.pop(key).close()

    def _who(self, station: int) -> str:
        return station_text(station, self._name_of(station))

    def _store(self, name: str) -> HistoryStore:
        channel = self._channel(name)
        store = None if channel is None else channel.store
        if store is None or not store.kept_here:
            raise QueryFailed("this station", f"does not keep the history of {name!r}")
        return store

    def _check_reader(self, station: int, name: str, consumer: str = "") -> None:
        """NotPossible for who reads a channel that is for members only, and is no member.

        Members consume in groups, whose coordinator is in a station that keeps a partition.
        """
        channel = self._channel(name)
        admission = None if channel is None else channel.admission
        if admission is not None and not self._keeps(station, name):
            is_group = consumer.startswith(GROUP_PLACE)
            admission.check_group(consumer.removeprefix(GROUP_PLACE) if is_group else None)

    def _marks(self, _: int, body: msgspec.Raw, reply: Reply) -> None:
        store = self._store(_text(body))
        reply(Marks(store.partition, store.earliest, store.watermark))

    def _offset(self, _: int, body: msgspec.Raw, reply: Reply) -> None:
        name, append_ts = _time(body)
        reply(self._store(name).offset_at(append_ts))

    def _read(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        """A page of what anybody in that station wants; read on until there is something, up to a limit."""
        ask = _read_ask(body)
        self._check_reader(station, ask.channel)
        is_carried = self._is_carried(station, ask.channel)  # first: what is appended after this comes live
        store, conditions = self._store(ask.channel), self._wanted(station, ask.channel)
        start, reached, wanted = ask.start, -1, list[Any]()
        try:
            while not wanted and reached != start and start - ask.start < MAX_PAGE:
                start = ask.start if reached < 0 else reached
                items, reached = store.read(start, min(ask.most, MAX_PAGE), ask.below, as_kept=True)
                wanted = items if conditions is None else [i for i in items if _is_wanted(conditions, i)]
        except (HistoryGone, HistoryDamaged) as gap:
            if start == ask.start:
                kind = "gone" if isinstance(gap, HistoryGone) else "damaged"
                reply(Page([], 0, (kind, gap.first, gap.next_available)))
            else:
                reply(Page([], start))
            return
        if is_carried or reached != ask.start or (ask.below is not None and reached >= ask.below):
            reply(cut_page(self._writer, wanted, reached))
        else:
            self._hold(station, ask.channel, body, reply)

    def _hold(self, station: int, channel: str, body: msgspec.Raw, reply: Reply) -> None:
        with self._lock:
            if not self._is_carried(station, channel):
                self._held.setdefault(station, []).append((body, reply))
                return
        self._read(station, body, reply)

    def carried(self, station: int) -> None:
        """It is known how events reach a station: answer what had to wait for that, in another task."""
        with self._lock:
            held = self._held.pop(station, [])
        if held:
            self._tasks.spawn_soon("held questions", lambda: self._answer_held(station, held))

    def _answer_held(self, station: int, held: list[tuple[msgspec.Raw, Reply]]) -> None:
        for body, reply in held:
            try:
                self._read(station, body, reply)
            except Exception as error:  # noqa: BLE001 - whatever went wrong is for the one who asked
                reply(error)

    def _append(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _append_ask(body)
        store = self._store(ask.channel)
        channel = self._channel(ask.channel)
        assert channel is not None
        if channel.suspended is not None:
            raise channel.suspended()
        reader = self._readers.setdefault(
            ask.channel, PageReader(ask.channel, self._writer.clock, channel.qos.missing)
        )
        formats = list(map(reader.wire_of, ask.page.runs))
        if self.carry is not None and (new := [f for f in formats if f.name not in channel.type_names]):
            self.carry(channel, new)
        for fmt in formats:
            if problems := why_not_kept(fmt, channel.types, channel.qos.missing):
                pair = (self._who(station), self._own)
                raise IncompatibleFormats(fmt.name, fmt.name, problems, ask.channel, pair)
            channel.meet_version(fmt)
        items, refused = reader.read(ask.page, channel.types, self._who(station), as_kept=True)
        if refused:
            raise NotPossible(ask.channel, f"an event cannot be read where it is kept: {refused[0].error}")
        if channel.admission is not None:
            for supplier in {header.supplier for _, header, _ in items}:
                channel.admission.check_supplier(supplier)
        asked = sum(run.length for run in ask.page.runs)
        if asked != 1 and (ask.later is not None or ask.push_id is not None):
            raise NotPossible(ask.channel, f"{asked} events under the id of one push")
        if not asked or len(items) != asked:
            # Left out, they would be acknowledged with the others.
            raise NotPossible(
                ask.channel,
                f"{self._own}, which keeps it, can read {len(items)} of {asked} events that were pushed and "
                "has not the types of the others, so it keeps none of them: open it there with their types, "
                "or have a station keep it that keeps for others",
            )
        level: Level = "journal" if ask.level == "journal" else "synced"

        if ask.later is not None:
            receipt: StoreReceipt = channel.delayed.keep(items[0], ask.later, level, KEEPER_LIMIT)
        elif ask.push_id is None:
            receipt = store.append(OutgoingBatch.of(items), level)
        else:
            receipt = store.append_once(OutgoingBatch.of(items), ask.push_id, level, KEEPER_LIMIT)
        receipt.add_done_callback(lambda done: reply(done.error()))

    def _cancel_later(self, _: int, body: msgspec.Raw, reply: Reply) -> None:
        name, push_id = _names(body)
        self._store(name)  # who does not keep the history says so
        channel = self._channel(name)
        assert channel is not None
        reply(int(channel.delayed.cancel(None, push_id)))

    def _open_cursor(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, consumer, _ = _place(body)
        self._check_reader(station, name, consumer)
        key = (station, name, consumer)
        held = [other for other in self._cursors if other[1:] == key[1:] and other != key]
        if held:
            raise CursorHeld(consumer, self._who(held[0][0]))
        cursor = self._cursors[key] = self._store(name).cursor(consumer, self._who(station))
        reply(Progress(cursor.position, cursor.acks, cursor.reach, cursor.epoch, dict(cursor.attempts)))

    def _commit(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, consumer, progress = _commit_ask(body)
        self._check_reader(station, name, consumer)
        key = (station, name, consumer)
        if key not in self._cursors:
            # This keeper, or the way to it, was away: whoever had the cursor goes on, unless it is
            # another's by now, or this history is an earlier one than that was read.
            store = self._store(name)
            reached = max(progress.position or 0, progress.reach)
            if not is_of(progress.epoch_id, store.epochs, reached):
                raise HistoryReset(store.partition, min(store.watermark, reached), reached)
            self._cursors[key] = self._store(name).cursor(consumer, epoch=progress.epoch)
        cursor = self._cursors[key]
        keep = cursor.withdraw if progress.takes_back else cursor.commit
        keep(progress.position or 0, progress.acks, progress.reach, progress.attempts)
        reply(None)

    def _open_supplier(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name, supplier, _ = _place(body)
        channel = self._channel(name)
        if channel is not None and channel.admission is not None:
            channel.admission.check_supplier(supplier)
        lease = self._store(name).supplier(supplier, self._who(station))
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


def _is_wanted(conditions: Mapping[type[Event], ReceiverCondition | AnyCondition], item: Item) -> bool:
    """Whether anybody there may want it; of another version than this station's class, they decide."""
    if type(item[0]) in conditions:
        return meets(conditions, item)
    return for_version(Selection(dict(conditions)), type(item[0])) is not None
