"""The coordinator of a group: hands events out to members, takes acks, redelivers, moves the durable
position.

Who asks does the work, in its own thread: an event goes from the queue into the window when somebody is there
to take it, delays and leases that are over are found when somebody asks, and a consumer that waits does so no
longer than until the next of them. Nothing runs while nobody asks.

What is kept of each partition, with cursors: the low watermark, the acknowledgements above it, and, before
the first event of a batch is handed out, how far that may go. After a crash those come again, marked as
redelivered. With `max_deliveries`, how often an event was handed out is kept too, before it is handed out
again: an event that kills whoever has it does not come for ever.

An acknowledgement is kept first and settles the event then. One that cannot be kept has not happened: whoever
acknowledges is told, the event comes again, and a keeper that may have it all the same is told otherwise.

Where another station keeps a partition, its cursor tells it in its own time, and nobody waits for that under
the lock. What must be kept before an event is handed out is waited for a moment; then that partition is
paused until it is kept, and the others go on.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from heliograph.channel.ack_protocol import Handed, numbered, place_of, stream_of
from heliograph.channel.history.feed import READ_AGAIN
from heliograph.channel.queueing.queue import BATCH
from heliograph.delivery.in_flight_window import MAX_OUT, Dead, Window
from heliograph.errors import CursorHeld, HeliographError, QueryFailed, WindowFull
from heliograph.model.history_epochs import epoch_at, is_written_in
from heliograph.runtime.ports import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.ack_protocol import AckOptions, Spot
    from heliograph.channel.history.positions import Cursors
    from heliograph.channel.history.store import HistoryCursor, Telling
    from heliograph.channel.queueing.journal_reading import JournalReading
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.delivery.in_flight_window import InFlightEvent as Taken
    from heliograph.delivery.in_flight_window import WindowStats
    from heliograph.model.event import Header
    from heliograph.model.history_epochs import Epochs
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

KEEP_NS: Final = 1_000_000_000
"""How long acknowledgements of a member that takes long for each event may wait before they are kept."""
State: TypeAlias = tuple[int, int, int, int, frozenset[int]]
"""What is kept of a stream: low watermark, acknowledgements above it, reach, changes of attempts, and what is
settled ahead."""


class Coordinator:
    """See the module; the arguments are those of
    `heliograph.channel.ack_protocol.OpenCoordinator`."""

    def __init__(
        self,
        ports: Ports,
        name: str,
        queue: EventQueue,
        terms: AckOptions,
        *,
        cursors: Cursors | None = None,
        taken: Sequence[Item] = (),
        add_dead_letter: Callable[[Item, int, str], object],
        on_full: Callable[[Header, WindowFull], object] | None = None,
    ) -> None:
        self.name = name
        self.terms = terms
        self.clock = ports.clock
        self._kept_at = ports.clock.monotonic_ns()
        """When it was last seen to that what is settled is kept."""
        self._queue = queue
        self._journal = queue.journal
        self._cursors = cursors
        self._bury = add_dead_letter
        self._on_full = on_full
        self._told_of: int | None = None
        """The event that held a full window last; of each it is told once."""
        self._tasks = ports.tasks
        self._lock = ports.tasks.lock(f"desk {name}")
        self._window: Window[Item] = Window(
            lease_ns=None if terms.lease is None else round(terms.lease * 1e9),
            max_deliveries=terms.max_deliveries,
            by_key=terms.order == "key",
        )
        self._streams: dict[str, _Stream] = {}
        self._by_number: list[_Stream] = []
        self._numbers = count()
        self._bells: dict[str, Callable[[], object]] = {}
        self._unburied: deque[Dead[Item]] = deque()
        self._reasons: dict[int, str] = {}
        """Why events were refused last that are not settled."""
        self._kept_acks: deque[int] = deque()
        """Numbers whose acknowledgement a keeper elsewhere has by now; settled by whoever asks next."""
        self.closed = False
        if self._journal is not None:
            self._journal.numbers_offsets = True
        with self._lock:
            self._offer(taken)

    def sit(self, member: str, ring: Callable[[], object]) -> CoordinatorMembership:
        with self._lock:
            self._window.join(member, self.terms.max_in_flight)
            self._bells[member] = ring
        return CoordinatorMembership(self, member)

    def number_of(self, spot: Spot) -> int | None:
        partition = spot.partition
        with self._lock:
            stream = self._streams.get(partition)
            if stream is None and self._cursors is not None and self._cursors.of(partition) is None:
                raise QueryFailed(f"the keeper of partition {partition}", "has not been met here, yet")
            if not is_written_in(spot.epoch, self._epochs().get(partition, ()), spot.offset):
                return None
            return numbered((stream or self._begin(partition)).number, spot.offset)

    def ready(self, _: EventQueue) -> None:
        self._ring_all()

    def members(self) -> tuple[str, ...]:
        return self._window.members()

    def put_off(self) -> int:
        return self.stats().delayed

    def stats(self) -> WindowStats:
        with self._lock:
            return self._window.stats()

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            self._settle_kept()
            self.closed = True
            try:
                for stream in self._by_number:
                    stream.ahead.clear()
                self._keep()
                tellings = [stream.telling for stream in self._by_number if stream.telling is not None]
            except BaseException:
                self._let_go()
                raise
            finally:
                self._queue.abandon(self._window.unsettled())
                self._queue.settle()
        try:
            wait_for_all(tellings)
        finally:
            # What could not be kept comes again; whoever closes is told, and it is closed all the same.
            self._let_go()

    # For seats

    def take(self, member: str, most: int) -> list[Handed]:
        """The next events for a member, without waiting but for a moment, for a keeper elsewhere."""
        concerns_others, is_kept = False, False
        while not is_kept:
            with self._lock:
                if self.closed or member not in self._bells:
                    return []  # it may have left while it was about to ask
                # First: what is picked belongs to these, or to later ones, which differ where that matters.
                epochs = self._epochs()
                picked, has_changed = self._pick(member, most)
                late = {stream for one in picked if (stream := self._stream_of(one.number)).needed}
            concerns_others = concerns_others or has_changed
            handed = self._kept_soon(member, picked, late) if late else picked
            # If not, their partition is paused by now, and there may be something of others.
            is_kept = bool(handed) or not picked
        if self.terms.ack == "before":
            with self._lock:
                for one in handed:
                    self._settle(one.number)
        if self._bury_all():
            self._ring_all()
        elif concerns_others:
            self._ring_all(but=member)
        return [_handed(*one, epochs) for one in handed]

    def ack(self, number: int) -> Telling | bool:
        """Whether it is settled now, and kept; or what tells when it is kept.

        Whoever waits for that in vain says so with `withdraw`.
        """
        try:
            with self._lock:
                self._settle_kept()
                if self.closed or not (self._window.is_known(number) or self._is_from_before(number)):
                    return False
                telling = self._keep_ack(number)
        except BaseException:
            self._bury_all()
            self._ring_all()
            raise
        if telling is not None:
            telling.then(lambda error: self._ack_is_kept(number) if error is None else None)
            return telling
        self._ring_all()
        return True

    def withdraw(self, number: int) -> None:
        """Whoever acknowledged it was told that this has failed, so it comes again, whatever was kept."""
        item = None
        with self._lock:
            is_gone = not self.closed and not self._window.is_known(number) and self._is_done(number)
        if is_gone and self._journal is not None:
            item = self._journal.read_one(self._stream_of(number).partition, place_of(number))
        with self._lock:
            if self.closed:
                return
            stream = self._stream_of(number)
            stream.acking.discard(number)
            if item is not None and not self._window.is_known(number):
                stream.done_before -= {place_of(number)}
                self._window.reopen(number, item, item[1].key)
                self._queue.done -= 1
            self._unburied.extend(self._window.come_again(number))
            stream.takes_back = True
            with suppress(HeliographError):  # told with the next that can be kept
                self._keep_stream(stream)
        self._bury_all()
        self._ring_all()

    def _ack_is_kept(self, number: int) -> None:
        """Told by whoever brings the keeper's answer, which must not wait for the lock."""
        self._kept_acks.append(number)
        self._ring_all()

    def settle(self, member: str, number: int) -> None:
        """Acknowledge what a member still holds; kept with the next batch, or after a second without one."""
        with self._lock:
            if self.closed or number not in self._window.holds(member):
                return
            stream = self._stream_of(number).number
            low, was_full = self._window.low(stream), self._window.full
            self._settle(number)
            self._keep_in_time()
            has_room = was_full and self._window.low(stream) > low and not self._is_full()
            is_over = self._journal is not None and self._has_ended()
        if has_room or is_over:
            self._ring_all(but=member)

    def nak(self, member: str, number: int, delay: float, reason: str = "") -> None:
        with self._lock:
            if self.closed:
                return
            now = self.clock.monotonic_ns()
            if reason and number in self._window.holds(member):
                self._reasons[number] = reason
            if delay < 0:
                self._unburied.extend(self._window.reject(number, member))
            else:
                self._unburied.extend(self._window.nak(number, member, now, round(delay * 1e9)))
        self._bury_all()
        self._ring_all()

    def extend(self, member: str, number: int, seconds: float) -> bool:
        """Let a member keep an event for so long from now on."""
        with self._lock:
            due = self.clock.monotonic_ns() + round(seconds * 1e9)
            return not self.closed and self._window.extend(number, member, due)

    def give_back(self, member: str, numbers: Iterable[int]) -> None:
        with self._lock:
            holds = self._window.holds(member)
            for number in numbers:
                if number in holds:
                    self._window.give_back(number)

    def leave(self, member: str) -> None:
        with self._lock:
            self._bells.pop(member, None)
            self._unburied.extend(self._window.leave(member))
        self._bury_all()
        self._ring_all()

    def wait_seconds(self) -> float | None:
        with self._lock:
            due = self._window.next_due
        # Somebody else may take an event while this one waits; its lease ends no sooner than this.
        least = self.terms.lease if len(self._bells) > 1 else None
        if due is None:
            return least
        left = max(0.0, seconds_until(self.clock, due))
        return left if least is None else min(left, least)

    def ended(self) -> bool:
        with self._lock:
            return self._has_ended()

    # Under the lock

    def _pick(self, member: str, most: int) -> tuple[list[Taken[Item]], bool]:
        """The next events for a member, and whether others may be concerned; kept, or on the way to be."""
        now = self.clock.monotonic_ns()
        if self._journal is not None and self._journal.parted:
            self._begin_anew(self._journal)
        self._settle_kept()
        self._unburied.extend(self._window.tick(now))
        picked, expired = self._take_in_time(member, now, most)
        brought = 0
        while not picked and not self._is_full() and (items := self._queue.take(BATCH)):
            self._offer(items)
            brought += len(items)
            picked, late = self._take_in_time(member, now, most)
            expired = expired or late
        if not picked and self._window.full:
            self._tell_full()
        is_before = self.terms.ack == "before"
        for one in picked if is_before else ():
            self._stream_of(one.number).ahead.add(place_of(one.number))
        if self._count(picked) or brought or not picked or is_before or self._is_reach_unkept(picked):
            self._keep_or_give_back(picked)
        return picked, brought > 1 or expired

    def _tell_full(self) -> None:
        held_by = self._window.held_by()
        if held_by is None or held_by.number == self._told_of or self._on_full is None:
            return
        self._told_of = held_by.number
        header = held_by.item[1]
        full = WindowFull(self.name, MAX_OUT, str(header.id), held_by.attempt)
        # In a task of its own: whoever is told may hang.
        self._tasks.spawn_soon(f"reports {self.name}", partial(self._on_full, header, full))

    def _take_in_time(self, member: str, now: int, most: int) -> tuple[list[Taken[Item]], bool]:
        """Of what is ready for a member, what can still be handed out; and whether any was too late for that.

        An event may have waited here, since others came first, or it was to come again.
        """
        expired = False
        while picked := self._window.take(member, now, most):
            in_time = [one for one in picked if not (one.item[2] and self._is_over(one))]
            expired = expired or len(in_time) < len(picked)
            if in_time:
                return in_time, expired
        return [], expired

    def _is_over(self, one: Taken[Item]) -> bool:
        if not self._queue.is_over(one.item[1], one.item[2]):
            return False
        self._window.expire(one.number)
        self._stream_of(one.number).attempts.pop(place_of(one.number), None)
        return True

    def _offer(self, items: Iterable[Item]) -> None:
        for item in items:
            header = item[1]
            place = next(self._numbers) if header.offset is None else header.offset
            stream = self._streams.get(header.partition or "") or self._begin(header.partition or "")
            if place in stream.done_before:
                self._queue.done += 1
                continue
            again, attempts = place < stream.reach_before, stream.attempts.get(place, 0)
            number = numbered(stream.number, place)
            dead = self._window.offer(number, item, header.key, again=again, attempts=attempts)
            self._unburied.extend(dead)
            stream.reach = max(stream.reach, place + 1)

    def _begin(self, partition: str) -> _Stream:
        """The first event of a partition is there: its cursor was opened before it was read."""
        cursor = None if self._cursors is None else self._cursors.of(partition)
        stream = self._streams[partition] = _Stream(len(self._by_number), partition, cursor)
        self._by_number.append(stream)
        self._window.remember(stream.number, stream.done_before)
        return stream

    def _begin_anew(self, journal: JournalReading) -> None:
        """Of a partition that went back in time: its offsets name other events, its keeper has an old cursor.

        What members hold of it is in no history any more, and cannot be acknowledged.
        """
        for partition, parted in tuple(journal.parted.items()):
            position = parted
            if self._cursors is not None and self._cursors.of(partition) is not None:
                try:
                    position = self._cursors.renew(partition, parted)
                except (QueryFailed, CursorHeld):
                    self._tasks.spawn_soon(f"goes on: {self.name}", self._ask_soon)
                    if partition in self._streams:  # what waits of it is in no history any more
                        self._window.pause(self._streams[partition].number)
                    continue
            stream = self._streams.pop(partition, None)
            if stream is not None:
                self._queue.abandon(self._window.give_up(stream.number), "set back")
                stream.end()
            journal.go_on_at(partition, min(parted, position))

    def _epochs(self) -> dict[str, Epochs]:
        """Of the partitions of a history: which writers wrote them."""
        return {} if self._journal is None else self._journal.epochs()

    def _ask_soon(self) -> None:
        self._tasks.sleep(READ_AGAIN)
        self._ring_all()

    def _stream_of(self, number: int) -> _Stream:
        return self._by_number[stream_of(number)]

    def _settle(self, number: int) -> bool:
        settled = self._window.ack(number)
        if settled is None:
            return False
        stream, place = self._stream_of(number), place_of(number)
        stream.attempts.pop(place, None)
        self._reasons.pop(number, None)
        stream.ahead.discard(place)
        self._queue.done += 1
        if self._queue.watch is not None:
            self._queue.watch(settled.item[1], "delivered", sends=settled.attempts)
        return True

    def _count(self, handed: list[Taken[Item]]) -> bool:
        """Count what comes again, where that has an end; True when there is something to keep."""
        if self.terms.max_deliveries is None or self._cursors is None:
            return False
        is_new = False
        for one in handed:
            stream, place = self._stream_of(one.number), place_of(one.number)
            if one.again and stream.attempts.get(place) != one.attempt:
                stream.attempts[place] = one.attempt
                stream.counted += 1
                is_new = True
        return is_new

    def _keep_ack(self, number: int) -> Telling | None:
        """Have an acknowledgement kept; None when it is, and settled."""
        stream = self._stream_of(number)
        stream.acking.add(number)
        try:
            self._keep_stream(stream)
        except BaseException:
            stream.acking.discard(number)
            self._unburied.extend(self._window.come_again(number))
            raise
        telling = stream.telling
        if telling is None:
            self._settle_acked(number)
        return telling

    def _settle_kept(self) -> None:
        """What a keeper elsewhere has confirmed, unless whoever waited was told otherwise before."""
        while self._kept_acks:
            number = self._kept_acks.popleft()
            if number in self._stream_of(number).acking:
                self._settle_acked(number)

    def _settle_acked(self, number: int) -> None:
        """What its cursor was told stays the same: there it was settled already."""
        stream, place = self._stream_of(number), place_of(number)
        if not self._settle(number) and self._window.settle_early(number):
            # It was handed out in an earlier life, and has not been taken from the queue in this one.
            stream.done_before |= {place}
            stream.attempts.pop(place, None)
        stream.acking.discard(number)

    def _is_from_before(self, number: int) -> bool:
        """Whether it was handed out in an earlier life, and has not been taken from the queue in this one."""
        stream, place = self._stream_of(number), place_of(number)
        return self._low(stream) <= place < stream.reach_before and not self._window.is_settled(number)

    def _is_done(self, number: int) -> bool:
        stream, place = self._stream_of(number), place_of(number)
        return place < self._low(stream) or self._window.is_settled(number) or place in stream.done_before

    def _has_ended(self) -> bool:
        """Without a journal, the end is where those who keep events in memory have given them out."""
        is_read = self._queue.ended
        return is_read and self._window.is_idle()

    def _is_full(self) -> bool:
        """Whether no more goes into the window, once what lies below the low watermarks is forgotten."""
        if self._window.full:
            for stream in self._by_number:
                self._state(stream)
        return self._window.full

    def _low(self, stream: _Stream) -> int:
        """Everything below is settled, or will be once what is being acknowledged is kept."""
        low = self._window.low(stream.number, stream.acking)
        if self._journal is not None:
            if low == self._window.behind(stream.number):
                low = max(low, self._journal.read_to(stream.partition))
            low = self._journal.lowest(stream.partition, default=low)
        return low

    def _state(self, stream: _Stream) -> tuple[State, set[int]]:
        """What is to be kept of a stream: what is settled, and what will be once this has been kept."""
        low, acking = self._low(stream), stream.acking_places()
        # Where an acknowledgement may still fail, nothing above it is forgotten.
        acks = self._window.acks_above(min((low, *acking)), stream.number) | stream.ahead
        if acking:
            acks = {place for place in acks | acking if place >= low}
        return (low, len(acks), stream.reach, stream.counted, frozenset(stream.ahead)), acks

    def _keep_in_time(self) -> None:
        """Have what a slow member has settled kept, which takes long to come to the end of a batch."""
        if self.clock.monotonic_ns() - self._kept_at < KEEP_NS:
            return
        with suppress(HeliographError):  # told with the next that can be kept, and to whoever closes
            self._keep()

    def _keep(self) -> None:
        """Have what is settled kept, where it has changed."""
        self._kept_at = self.clock.monotonic_ns()
        for stream in self._kept_streams():
            self._keep_stream(stream)

    def _keep_stream(self, stream: _Stream) -> None:
        state, acks = self._state(stream)
        if state != stream.told or stream.takes_back or stream.is_barred:
            stream.tell(state, acks)

    def _kept_streams(self) -> Iterable[_Stream]:
        """Those of which there is something to keep, also when nothing of them was handed out yet."""
        if self._journal is not None and self._cursors is not None:
            for partition in self._cursors.names():
                if partition not in self._streams:
                    self._begin(partition)
        return self._by_number

    def _keep_or_give_back(self, handed: list[Taken[Item]]) -> None:
        """What cannot be kept is not handed out: the one who asked is told, and it is there to be taken."""
        try:
            self._keep()
        except BaseException:
            for one in handed:
                self._window.give_back(one.number)
                stream, place = self._stream_of(one.number), place_of(one.number)
                stream.ahead.discard(place)
                if place in stream.attempts:
                    stream.attempts[place] -= 1
            raise

    def _is_reach_unkept(self, handed: list[Taken[Item]]) -> bool:
        """Whether what is handed out came with a batch that could not be kept."""
        streams = [self._stream_of(one.number) for one in handed]
        return any(stream.told is None or stream.told[2] != stream.reach for stream in streams)

    def _pause(self, stream: _Stream, telling: Telling) -> None:
        """Hand out nothing of a partition until its keeper has what it was told."""
        self._window.pause(stream.number)
        if self._journal is not None:
            self._journal.hold(stream.partition)
        # In a task of its own: who brings the answer must not wait for the lock.
        telling.then(lambda _: self._tasks.spawn_soon(f"goes on: {self.name}", lambda: self._go_on(stream)))

    # Without the lock

    def _kept_soon(self, member: str, handed: list[Taken[Item]], late: set[_Stream]) -> list[Taken[Item]]:
        """Of what was picked for a member, what may be handed out; the rest waits with its partition."""
        tellings = {stream: telling for stream in late if (telling := stream.needed) is not None}
        barred: HeliographError | None = None
        for stream, telling in tuple(tellings.items()):
            try:
                if telling.soon():
                    del tellings[stream]
            except HeliographError as error:
                barred = error
        with self._lock:
            holds = frozenset() if self.closed else self._window.holds(member)
            handed = [one for one in handed if one.number in holds]
            kept = [one for one in handed if not barred and self._stream_of(one.number) not in tellings]
            for one in handed:
                if one not in kept:
                    self._window.give_back(one.number)
            if barred is not None:
                raise barred
            for stream, telling in tellings.items():
                self._pause(stream, telling)
        return kept

    def _go_on(self, stream: _Stream) -> None:
        with self._lock:
            if self.closed:
                return
            self._window.go_on(stream.number)
        if self._journal is not None:
            self._journal.let_go(stream.partition)
        self._ring_all()

    def _let_go(self) -> None:
        if self._cursors is not None:
            self._cursors.close()

    def _bury_all(self) -> bool:
        """Give dead events away; one that cannot be is tried again when somebody asks next.

        True when one was: what it held back may be there for anybody now.
        """
        buried = False
        for _ in range(len(self._unburied)):
            try:
                dead = self._unburied.popleft()
            except IndexError:
                break  # others who ask bury at the same time
            try:
                self._bury(dead.item, dead.attempts, self._reasons.get(dead.number, ""))
            except HeliographError:
                log.exception("%s: a dead event could not be given away; it is tried again", self.name)
                self._unburied.append(dead)
                continue
            with self._lock:
                if self.closed or self._window.ack(dead.number) is None:
                    continue
                self._stream_of(dead.number).attempts.pop(place_of(dead.number), None)
                self._reasons.pop(dead.number, None)
                buried = True
                self._queue.failed_one()
                if self._queue.watch is not None:
                    self._queue.watch(dead.item[1], "failed", "dead", dead.attempts)
                self._keep()
        return buried

    def _ring_all(self, but: str | None = None) -> None:
        for member, ring in tuple(self._bells.items()):
            if member != but:
                ring()


def wait_for_all(tellings: Iterable[Telling]) -> None:
    """Until all of it is kept; raises the first that is not, once all have been waited for."""
    failed: HeliographError | None = None
    for telling in tellings:
        try:
            telling.result()
        except HeliographError as error:
            failed = failed or error
    if failed is not None:
        raise failed


class _Stream:
    """What the desk knows of one partition; of a channel without a history, of all there is."""

    __slots__ = (
        "_needed",
        "_telling",
        "acking",
        "ahead",
        "attempts",
        "counted",
        "cursor",
        "done_before",
        "number",
        "partition",
        "reach",
        "reach_before",
        "takes_back",
        "told",
    )

    def __init__(self, number: int, partition: str, cursor: HistoryCursor | None) -> None:
        self.number = number
        self.partition = partition
        self.cursor = cursor
        self.done_before = frozenset[int]() if cursor is None else cursor.acks
        self.reach = self.reach_before = 0 if cursor is None else cursor.reach
        self.attempts: dict[int, int] = {} if cursor is None else dict(cursor.attempts)
        """Of what came again and is not settled."""
        self.counted = 0
        """Changes of these."""
        self.ahead: set[int] = set()
        """What is settled before it is handed out, and has not been handed out yet."""
        self.acking: set[int] = set()
        """Numbers of what is settled once its acknowledgement has been kept."""
        self.takes_back = False
        """Whether its cursor was told of more than is acknowledged."""
        self.told: State | None = None
        """What its cursor was told last."""
        self._telling: Telling | None = None
        self._needed: Telling | None = None

    def tell(self, state: State, acks: Iterable[int]) -> None:
        """Have its cursor keep this."""
        if self.cursor is not None:
            keep = self.cursor.withdraw if self.takes_back else self.cursor.commit
            acking = self.acking_places()
            attempts = {place: times for place, times in self.attempts.items() if place not in acking}
            self._telling = keep(state[0], acks, self.reach, attempts)
            if self.told is None or self.told[2:] != state[2:]:
                self._needed = self._telling
        self.told, self.takes_back = state, False

    def end(self) -> None:
        """Nothing of it is acknowledged any more."""
        self.cursor, self.reach_before = None, 0
        self.acking.clear()
        self._telling = self._needed = None

    def acking_places(self) -> set[int]:
        return {place_of(number) for number in self.acking}

    @property
    def is_barred(self) -> bool:
        """Whether its cursor can keep nothing any more: telling it so says why."""
        return self._telling is not None and self._telling.failure is not None

    @property
    def telling(self) -> Telling | None:
        """What its cursor was told, while that is not kept."""
        if self._telling is not None and self._telling.is_kept:
            self._telling = None
        return self._telling

    @property
    def needed(self) -> Telling | None:
        """The same of what must be kept before anything is handed out: acknowledgements can wait."""
        if self._needed is not None and self._needed.is_kept:
            self._needed = None
        return self._needed


class CoordinatorMembership:
    """One consumer's place; see `heliograph.channel.ack_protocol.GroupMembership`."""

    def __init__(self, desk: Coordinator, member: str) -> None:
        self._desk = desk
        self._member = member

    def take(self, most: int = 1) -> list[Handed]:
        return self._desk.take(self._member, most)

    def ack(self, number: int) -> bool:
        settled = self._desk.ack(number)
        if isinstance(settled, bool):
            return settled
        try:
            settled.result()
        except BaseException:
            self._desk.withdraw(number)
            raise
        return True

    def withdraw(self, number: int) -> None:
        self._desk.withdraw(number)

    @property
    def lost(self) -> bool:
        return self._desk.closed

    def unsent(self) -> list[Spot]:
        return []

    def withdrawn(self) -> list[Spot]:
        return []

    def ack_later(self, number: int, outcome: Callable[[bool | HeliographError], object]) -> None:
        settled = self._desk.ack(number)
        if isinstance(settled, bool):
            outcome(settled)
        else:
            settled.then(lambda error: outcome(error or True))

    def nak(self, number: int, delay: float, reason: str = "") -> None:
        self._desk.nak(self._member, number, delay, reason)

    def extend(self, number: int, seconds: float) -> bool:
        return self._desk.extend(self._member, number, seconds)

    def settle(self, number: int) -> None:
        self._desk.settle(self._member, number)

    def wait_seconds(self) -> float | None:
        return self._desk.wait_seconds()

    def give_back(self, numbers: Iterable[int]) -> None:
        self._desk.give_back(self._member, numbers)

    def ended(self) -> bool:
        return self._desk.ended()

    def leave(self) -> None:
        self._desk.leave(self._member)

    def leave_behind(self) -> None:
        self.leave()


def _handed(number: int, item: Item, attempt: int, again: bool, epochs: Mapping[str, Epochs]) -> Handed:
    event, header, deadline = item
    epoch = epoch_at(epochs.get(header.partition or "", ()), header.offset or 0)
    if again:
        header = msgspec.structs.replace(header, redelivered=True)
    return Handed(number, event, header, attempt, deadline, epoch)
