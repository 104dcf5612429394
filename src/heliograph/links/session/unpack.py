"""Unpacks numbered frames into batches and messages, each once and in order.

One unpacker belongs to one link and is used by its reader. A record counts as received when it has been
handed on, not before: what was acknowledged is never sent again, so a batch that could not be handed on must
not be. It comes again over the next connection, without the records of it that were; one that fails there
too, again and again, is left out and counted, because the link would end at it for ever.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Final

from heliograph.errors import BadFrame
from heliograph.links.contract import CONTROL, LANES
from heliograph.links.session import messages as m
from heliograph.links.session.retransmission import Batch, Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

log = logging.getLogger(__name__)

TRIES: Final = 3
"""How often a batch is tried, each time over a new connection, before it is left out."""


class Unpacker:
    """See the module.

    Args:
        peer: the other station, for errors.
        on_message: gets every message.
        on_run: gets every run of events, and how many of its first events to leave out.
        on_left_out: told of a run whose last events are given up, and how many those are.
    """

    def __init__(
        self,
        peer: str,
        on_message: Callable[[m.Message], None],
        on_run: Callable[[m.Run, int], None],
        on_left_out: Callable[[m.Run, int], None],
    ) -> None:
        self._peer = peer
        self._on_message = on_message
        self._on_run = on_run
        self._on_left_out = on_left_out
        self.missing: dict[int, tuple[int, int]] = {}
        """The first and last number of what is missing on a lane, as it was asked for."""
        self.heard = False
        """Whether events have come since somebody last set it to False."""
        self.unacked_records = 0
        self.unacked_bytes = 0
        """What has come since somebody last set these to 0."""
        self.left_out = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, because the other station does."""
        self.inboxes: list[Inbox[memoryview]] = [Inbox() for _ in range(LANES)]
        self._pieces = [m.Pieces() for _ in range(LANES)]
        self._failed: dict[int, tuple[int, int]] = {}

    @property
    def received(self) -> tuple[int, ...]:
        """Up to which number each lane has been handed on."""
        return tuple(inbox.received for inbox in self.inboxes)

    def take(self, frame: memoryview) -> bool:
        """Hand on what a DATA frame brings; whether something is found missing that was not asked for."""
        lane, first, count, only = m.read_data(frame, self._peer)
        inbox = self.inboxes[lane]
        self.unacked_records += count
        self.unacked_bytes += len(frame)
        if lane != CONTROL:
            self.heard = True
        if only is not None and not self.missing and inbox.follows(first):
            pieces = self._pieces[lane]
            if only.stream == m.MESSAGES or only.form == m.PIECE or pieces.parts:
                self._let_through(lane, count, 0, (only,))
                return False
            # The usual case: events of one stream, whole and in order. As `_let_through` has it.
            pieces.to_skip = 0
            try:
                self._on_run(only, 0)
            except Exception as error:
                if not self._leaves_out(lane, inbox.received + count, error, [(only, 0)]):
                    raise
                pieces.leave_out(only)
            else:
                inbox.received += count
            return False
        ready = inbox.take(Batch(first, count, frame[m.RUNS_AT :]))
        for batch, skip in ready:
            self._let_through(lane, batch.count, skip, batch.payload)
        return (not ready or lane in self.missing) and self._finds_gap(lane, inbox)

    def heard_of(self, sent: tuple[int, ...]) -> None:
        """The other station says up to which number it has sent each lane."""
        for lane, (inbox, last) in enumerate(zip(self.inboxes, sent, strict=True)):
            inbox.heard_of(last)
            wanted = inbox.wanted()
            if wanted is not None:
                self.missing[lane] = wanted

    def _finds_gap(self, lane: int, inbox: Inbox[memoryview]) -> bool:
        """Each gap is found once; heartbeats repeat it."""
        wanted = inbox.wanted()
        if wanted is None:
            self.missing.pop(lane, None)
            return False
        if self.missing.get(lane) == wanted:
            return False
        self.missing[lane] = wanted
        return True

    def _let_through(self, lane: int, count: int, skip: int, runs: tuple[m.Run, ...] | memoryview) -> None:
        """Hand on the runs of a batch, but for its first records, which came before."""
        inbox = self.inboxes[lane]
        pieces = self._pieces[lane]
        last = inbox.received + count - skip
        run = None
        left = 0
        to_come: Iterator[m.Run] = iter(())
        try:
            to_come = iter(runs if isinstance(runs, tuple) else m.read_runs(runs, count, self._peer))
            for run in to_come:
                left = 0
                if skip:
                    left = min(skip, run.length)
                    skip -= left
                if run.stream == m.MESSAGES:
                    for message in m.read_messages(run, self._peer)[left:]:
                        self._on_message(message)
                        inbox.received += 1
                elif left < run.length:
                    if run.form == m.PIECE or pieces.parts:
                        self._take_piece(pieces, run)
                    else:
                        pieces.to_skip = 0
                        self._on_run(run, left)
                    inbox.received += run.length - left
        except Exception as error:
            # The pieces of an event that follow this one are passed over by `leave_out`.
            whole = ((other, 0) for other in to_come if other.form != m.PIECE)
            lost = whole if run is None else chain(((run, left),), whole)
            if not self._leaves_out(lane, last, error, lost):
                raise
            pieces.leave_out(run)

    def _leaves_out(self, lane: int, last: int, error: Exception, lost: Iterable[tuple[m.Run, int]]) -> bool:
        """Whether the rest of a batch is given up: it could not be handed on, however often it was sent."""
        inbox = self.inboxes[lane]
        if not self._gives_up(lane, inbox.received + 1):
            return False
        self.left_out += last - inbox.received
        log.error(
            "records %d to %d of lane %d of station %s are left out: %s",
            inbox.received + 1,
            last,
            lane,
            self._peer,
            error,
        )
        inbox.received = last
        for run, skipped in lost:
            if run.stream != m.MESSAGES:
                self._on_left_out(run, run.length - skipped)
        return True

    def _take_piece(self, pieces: m.Pieces, run: m.Run) -> None:
        if run.form != m.PIECE:
            raise BadFrame(self._peer, "other events between the pieces of one")
        if pieces.to_skip:
            self.left_out += 1
        whole = pieces.add(run, self._peer)
        if whole is not None:
            self._on_run(whole, 0)
            pieces.clear()

    def _gives_up(self, lane: int, number: int) -> bool:
        """A record could not be handed on; whether that has happened often enough."""
        failed, tries = self._failed.get(lane, (0, 0))
        tries = tries + 1 if failed == number else 1
        self._failed[lane] = (number, tries)
        return tries >= TRIES
