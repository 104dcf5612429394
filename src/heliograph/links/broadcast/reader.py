"""Reads another station's broadcast ring: one thread per ring, which calls inline consumers itself.

Another one goes on from the next record when a callback takes long
(`heliograph.channel.dispatch.reader_handover`).

Its cursor holds the writer back, so nothing is lost while it is behind. A consumer's full queue must not hold
up other channels: what cannot be queued is put aside, and the other station is told by the link to pause that
channel (`heliograph.links.mesh.ingress`). A reader that stood still for so long that the writer has gone on
without it has lost events. It says so (`on_failed`), and from then on the link serves.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from heliograph.channel.batch import IncomingBatch
from heliograph.channel.dispatch.reader_handover import HandedOver
from heliograph.errors import BadFrame, FormatError, RingClosed, RingError
from heliograph.links.broadcast.large_events import APART
from heliograph.links.broadcast.loss_count import LONE, LONE_HEAD
from heliograph.links.broadcast.record_handler import copying_taker, held_taker
from heliograph.links.session import messages as m
from heliograph.links.session.wire_events import WireEventReader
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence

    from heliograph.channel.dispatch.reader_handover import Reader
    from heliograph.channel.publish.fast_path import Line
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.broadcast.record_handler import Take
    from heliograph.links.mesh.ingress import Ingress
    from heliograph.links.session.lifetimes import DeadlineOf
    from heliograph.ring import RingReader
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

AT_ONCE: Final = 1_024
"""Records that are taken before the ring is looked at again."""
PATIENCE_NS: Final = 100_000_000
"""What is called inline with them may take so long; then the rest is put aside, and the ring is read on."""
MAX_STREAMS: Final = 65_536
"""Streams of events that one broadcast may tell of."""
SMALL: Final = 512
"""Bytes of a record up to which a copy costs less than a view."""
HEAD: Final = LONE_HEAD.size


class BroadcastReader:
    """See the module; `heliograph.links.broadcast.best_effort_reader` has another one for best-effort rings.

    Args:
        reader: of the ring; closed at the end.
        station: this one.
        peer: the other one, for errors.
        arrivals: the way in for a channel's events; None when it is not open here.
        own: this station's own broadcasts, which are told that something came.
        on_failed: told why it ended before its time.
        on_overtaken: told that the other station goes on without this reader.
        on_ended: told, last, that nothing more comes.
        left_out: where to count what came too late to be handed on, by channel.
        unreadable: likewise what does not fit this station's class.
        refuse: told of events of a channel that nobody here will get.
        deadline_of: see `heliograph.links.session.lifetimes`.
        turn: the reading, which another thread may take over.
    """

    patience_ns = PATIENCE_NS

    def __init__(
        self,
        reader: RingReader,
        station: int,
        peer: str,
        ports: Ports,
        *,
        arrivals: Callable[[str], Ingress | None],
        own: Sequence[Line],
        on_failed: Callable[[BroadcastReader, str], None],
        on_overtaken: Callable[[BroadcastReader], None],
        on_ended: Callable[[], None],
        left_out: Counter[str],
        unreadable: Counter[str],
        refuse: Callable[[str, int], None],
        deadline_of: DeadlineOf,
        turn: Reader,
    ) -> None:
        self._turn = turn
        turn.go_on = self._listen
        self._reader = reader
        self._station = station
        self._peer = peer
        self._formats = FormatRegistry()
        self._arrivals = arrivals
        self._own = own
        self._on_failed = on_failed
        self._on_overtaken = on_overtaken
        self._on_ended = on_ended
        self._streams: dict[int, WireEventReader] = {}
        self._channels: set[str] = set()
        self._takers: dict[bytes, Take] = {}
        self._held_takers: dict[bytes, Take] = {}
        self._pieces = m.Pieces()
        self._now = ports.clock.monotonic_ns
        tasks = ports.tasks
        self._ended = tasks.event(f"end of {peer}'s broadcast")
        self._closing = tasks.lock(f"closing {peer}'s broadcast")
        self._is_open = True
        self._given_up = False
        self.taken = 0
        """Events for this station."""
        self._left_out = left_out
        self._unreadable = unreadable
        self._refuse = refuse
        self._deadline_of = deadline_of
        self._late_before = left_out.total()
        # What was read and not taken in yet: whoever takes the reading over goes on with it.
        self._records: Iterator[bytes] = iter(())
        self._run: tuple[Ingress, Sequence[Item]] | None = None
        self._are_many = False
        self._until = 0
        self._task = tasks.spawn(f"broadcast of {peer}", self._listen)

    def forget(self) -> None:
        """From any thread: channels of this station have come or gone."""
        self._takers, self._held_takers = {}, {}

    def finish(self) -> None:
        """Take in what is there now, however long that takes, and end; returns at once."""
        with self._closing:
            if self._is_open:
                self._reader.drain()

    def drain(self, timeout: float) -> None:
        """Take in what is there now, and end; when none of it was taken for so long, leave the rest out."""
        self.finish()
        taken = -1
        while not self._ended.wait(timeout):
            if taken == self.taken:
                self._given_up = True  # what it has in hand must not come behind what others bring meanwhile
                self.forget()
                return
            taken = self.taken

    def abandon(self) -> None:
        """In the child of a fork."""
        self._reader.abandon()

    def _listen(self) -> None:
        """Read until the end, or until another thread does."""
        try:
            self._turn.begin()
            self._read_on()
        except HandedOver:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other station must not write for nobody
            self._end(error)

    def _read_on(self) -> None:
        own, now, patience_ns, turn, reader = self._own, self._now, self.patience_ns, self._turn, self._reader
        turn.received()
        run, self._run = self._run, None
        if run is not None and isinstance(run[1], IncomingBatch) and run[1].done < len(run[1]):
            run[0].add(run[1][run[1].done :], self._until)
        self._take_records()
        while True:
            soon = False  # what callbacks wrote is answered soon, if it was a question
            for line in own:
                soon = soon or line.due_ns != 0
            records = reader.read_many(AT_ONCE, soon=soon)
            for line in own:  # first: what callbacks push is the answer, and may be waited for
                line.due_ns = 0
            self._until = now() + patience_ns
            if reader.holds:
                turn.is_taking = True
                self._take_held(cast("memoryview", records[0]), self._until)
                turn.run_claims()
                continue
            turn.received()
            self._records, self._are_many = iter(records), len(records) > 1
            self._take_records()

    def _take_records(self) -> None:
        """Take in what was read, and call whom that made ready."""
        now, until, are_many = self._now, self._until, self._are_many
        body: bytes | memoryview
        for data in self._records:
            if not data or (data[0] != LONE and data[0] != APART):
                self._take_run(memoryview(data), until)
                continue
            # Looked up anew for each: what one says or calls may change it.
            if len(data) < SMALL:
                head, body = data[:HEAD], data[HEAD:]
            else:  # the reader may have given a view
                head, body = bytes(data[:HEAD]), memoryview(data)[HEAD:]
            take = self._takers.get(head) or self._taker(head)
            if take is not None:
                self.taken += 1  # before: a thread that was relieved of the reading does not come back here
                take(body, until, are_many and now() >= until)
        self._turn.run_claims()

    def _end(self, error: BaseException) -> None:
        try:
            if isinstance(error, RingClosed):
                log.debug("broadcast of station %s ended: %s", self._peer, error)
            elif isinstance(error, RingError | BadFrame) and self._reader.was_ended:
                self._on_overtaken(self)
            elif isinstance(error, RingError | BadFrame):
                log.error("broadcast of station %s is read no more: %s", self._peer, error)
                self._on_failed(self, str(error))
            else:
                log.error("broadcast of station %s is read no more", self._peer, exc_info=error)
                self._on_failed(self, f"{type(error).__name__}: {error}")
        finally:
            self._turn.end()
            with self._closing:
                self._is_open = False
                self._reader.close()
            self._ended.set()
            self._ended_with(self._left_out.total() - self._late_before)
            self._on_ended()

    def _take_held(self, record: memoryview, until: int) -> None:
        """Take a large record in from where it lies in the ring."""
        if record[0] != LONE and record[0] != APART:
            self._take_run(memoryview(self._reader.copied()), until)  # many events, of which some may wait
            return
        head = bytes(record[:HEAD])
        take = self._held_takers.get(head) or self._held_taker(head)
        if take is not None:
            self.taken += 1
            take(record[HEAD:], until, False)

    def _taker(self, head: bytes) -> Take | None:
        """Where lone events of a stream go; None: nowhere here."""
        return self._made(head, self._takers, copying_taker)

    def _held_taker(self, head: bytes) -> Take | None:
        """The same for those that are read where they lie."""
        return self._made(head, self._held_takers, partial(held_taker, ring=self._reader))

    def _made(self, head: bytes, takers: dict[bytes, Take], make: Callable[..., Take | None]) -> Take | None:
        if len(head) < HEAD:
            raise BadFrame(self._peer, "a lone event is cut short")
        form, number = LONE_HEAD.unpack(head)
        stream = self._streams.get(number)
        arrivals = None if stream is None else self._way_in(stream, 1)
        if stream is None or arrivals is None:
            return None
        arrivals.channel.meet_version(stream.wire)
        take = make(stream, arrivals, apart=form == APART)
        if take is None:
            stream.undecodable += 1
            self._refuse(stream.channel, 1)
        else:
            takers[head] = take
        return take

    def _take_run(self, record: memoryview, until: int) -> None:
        run = m.read_run(record, self._peer)
        if run.stream == m.MESSAGES:
            for message in m.read_messages(run, self._peer):
                self._take_in(message)
            self.forget()
            return
        stream = self._streams.get(run.stream)
        if stream is None or stream.channel not in self._channels:
            return
        if run.form == m.PIECE:
            kept = memoryview(bytes(run.records))  # where it lies the next one will
            whole = self._pieces.add(msgspec.structs.replace(run, records=kept), self._peer)
            if whole is None:
                return
            self._pieces.clear()
            run = whole
        self._count(stream, run.length)
        arrivals = self._way_in(stream, run.length)
        if arrivals is not None:
            channel = arrivals.channel
            if stream.prepared_for is not channel.types:
                channel.meet_version(stream.wire)
            items = stream.read(run, channel.types, self._peer, 0, channel.qos.missing)
            self.taken += run.length
            if len(items) < run.length:
                self._refuse(stream.channel, run.length - len(items))
            self._run = arrivals, items
            if stream.refused:
                arrivals.refuse(items, stream.refused, until)
            elif items:
                arrivals.add(items, until)
            self._run = None

    def _count(self, stream: WireEventReader, events: int) -> None:
        """So many events of a channel that this station takes have come, in a run."""

    def _ended_with(self, late: int) -> None:
        if late:
            log.warning("%d events of station %s came too late", late, self._peer)

    def _take_in(self, message: m.Message) -> None:
        match message:
            case m.Announce():
                if message.stream not in self._streams:
                    self._streams[message.stream] = self._new_stream(message)
            case m.Takes(channel=name, takes=takes) if self._is_for_us(message):
                (self._channels.add if takes else self._channels.discard)(name)

    def _is_for_us(self, takes: m.Takes) -> bool:
        return takes.station == self._station and takes.row == self._reader.row

    def _new_stream(self, said: m.Announce) -> WireEventReader:
        if len(self._streams) >= MAX_STREAMS:
            raise BadFrame(self._peer, f"tells of more than {MAX_STREAMS} streams")
        try:
            fmt = self._formats.learn(said.format_id, said.description)
        except FormatError as error:
            raise BadFrame(self._peer, f"describes a format that cannot be: {error}") from None
        return WireEventReader(said.channel, fmt, self._unreadable, self._deadline_of)

    def _way_in(self, stream: WireEventReader, events: int) -> Ingress | None:
        if stream.channel not in self._channels:
            return None
        if self._given_up:
            self._left_out[stream.channel] += events
            return None
        arrivals = self._arrivals(stream.channel)
        if arrivals is None:
            self._refuse(stream.channel, events)
        return arrivals
