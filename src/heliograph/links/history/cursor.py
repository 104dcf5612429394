"""The durable cursor of a consumer here in a partition that another station keeps.

A `RemoteCursor` is told, and tells the keeper in its own time: the latest that it was told, one question at a
time, and again after a while when the keeper is away. Whoever needs to know that the keeper has it waits on a
`PendingCommit`, for a moment or up to the limit for keepers; a keeper that hangs is waited for once, whoever
waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from heliograph.channel.history.feed import MOMENT
from heliograph.errors import HeliographError, QueryFailed
from heliograph.links.history.server import KEEPER_LIMIT, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heliograph.links.history.client import RemotePartition
    from heliograph.runtime.ports import Ports

log = logging.getLogger(__name__)

AWAY: Final = 0.25
"""Seconds between two attempts to tell a keeper that is away."""


class PendingCommit:
    """One thing that a cursor was told; see `heliograph.channel.history.store.Telling`."""

    def __init__(self, cursor: RemoteCursor, ports: Ports) -> None:
        self._cursor = cursor
        self._clock = ports.clock
        self.at = ports.clock.monotonic_ns()
        self._ended = ports.tasks.event("told")
        self._lock = ports.tasks.lock("told")
        self._calls: list[Callable[[HeliographError | None], object]] = []
        self.failure: HeliographError | None = None

    @property
    def is_kept(self) -> bool:
        return self._ended.is_set() and self.failure is None

    def soon(self) -> bool:
        kept = self._ended.wait(max(0.0, MOMENT - self._cursor.seconds_late()))
        if self.failure is not None:
            raise self.failure
        return kept

    def result(self) -> None:
        left = self.at / 1e9 + KEEPER_LIMIT - self._clock.monotonic_ns() / 1e9
        if not self._ended.wait(max(0.0, min(left, self._cursor.patience()))):
            raise self._cursor.given_up(self.at)
        if self.failure is not None:
            raise self.failure

    def then(self, call: Callable[[HeliographError | None], object]) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._calls.append(call)
                return
        call(self.failure)

    def end(self, failure: HeliographError | None = None) -> None:
        """The keeper has it, or never will."""
        with self._lock:
            self.failure = failure
            self._ended.set()
            calls, self._calls = self._calls, []
        for call in calls:
            call(failure)


class RemoteCursor:
    """See the module, and `heliograph.channel.history.store.HistoryCursor`."""

    def __init__(self, store: RemotePartition, channel: str, name: str, ports: Ports) -> None:
        self._store = store
        self._key = (channel, name)
        self._ports = ports
        self._lock = ports.tasks.lock(f"cursor {name}")
        self._next: Progress | None = None
        """What the keeper is told when it has answered what it was told before."""
        self._waiting: list[PendingCommit] = []
        self._asked: list[PendingCommit] = []
        self._is_asked = False
        self._is_away = False
        self._late_since: int | None = None
        self._failure: HeliographError | None = None
        self._leaving: PendingCommit | None = None
        self._has_left = False
        progress = store.ask_progress(channel, name)
        self.position, self.acks, self.reach = progress.position, progress.acks, progress.reach
        self.epoch = progress.epoch
        self.attempts: Mapping[int, int] = progress.attempts or {}

    def commit(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> PendingCommit:
        return self._commit(Progress(position, frozenset(acks), reach, self.epoch, _counted(attempts)))

    def withdraw(
        self,
        position: int,
        acks: Iterable[int] = (),
        reach: int = 0,
        attempts: Mapping[int, int] | None = None,
    ) -> PendingCommit:
        """What the keeper was told before, and may have by now or not, is not so."""
        return self._commit(
            Progress(position, frozenset(acks), reach, self.epoch, _counted(attempts), takes_back=True)
        )

    def _commit(self, progress: Progress) -> PendingCommit:
        told = PendingCommit(self, self._ports)
        progress.epoch_id = self._store.epoch_id
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._next = _after(self._next, progress)
            self._waiting.append(told)
            self._late_since = self._late_since or told.at
        self._tell()
        return told

    def close(self) -> PendingCommit | None:
        with self._lock:
            if self._leaving is not None:
                return None
            self._leaving = PendingCommit(self, self._ports)
            if self._next is None and not self._is_asked and not self._store.reachable:
                self._has_left = True  # the keeper has let go of it
                return None
        self._tell()
        return self._leaving

    def forsake(self) -> None:
        with self._lock:
            self._leaving = self._leaving or PendingCommit(self, self._ports)
            self._has_left, self._next = True, None

    def seconds_late(self) -> float:
        """How long the keeper has owed an answer."""
        since = self._late_since
        return 0.0 if since is None else (self._ports.clock.monotonic_ns() - since) / 1e9

    def patience(self) -> float:
        """Seconds that the keeper is waited for from now on."""
        return self._store.patience(KEEPER_LIMIT)

    def given_up(self, since: int) -> QueryFailed:
        """Somebody has waited long enough since an instant."""
        channel, name = self._key
        is_there = self._store.missed(since)
        return QueryFailed(
            f"the keeper of {channel!r} (partition {self._store.partition})",
            f"{'does not answer' if is_there else 'cannot be reached'}, so how far {name!r} has come is not "
            "kept there; what it has done since then may come again",
        )

    # Telling

    def _tell(self) -> None:
        with self._lock:
            if self._is_asked or self._is_away:
                return
            asked, self._next = self._next, None
            if asked is not None:
                self._asked, self._waiting = self._waiting, []
            elif self._leaving is None or self._has_left:
                return
            self._is_asked = True
            self._has_left = asked is None
        if asked is not None:
            self._store.ask_later("history.commit", (*self._key, asked), lambda came: self._came(came, asked))
        else:
            assert self._leaving is not None
            leaving = self._leaving
            self._store.ask_later("history.leave", (*self._key, 0), lambda _: leaving.end())

    def _came(self, answer: Any, asked: Progress) -> None:
        """The keeper has answered, or cannot."""
        error = answer if isinstance(answer, HeliographError) else None
        with self._lock:
            self._is_asked = False
            told, self._asked = self._asked, []
            if error is not None and error.retriable:
                self._next = asked if self._next is None else _after(asked, self._next)
                self._waiting = told + self._waiting
                told = []
                self._is_away = True
            elif error is not None:
                self._failure = error
                told, self._waiting, self._next = told + self._waiting, [], None
            self._late_since = self._waiting[0].at if self._waiting else None
        for one in told:
            one.end(error)
        if self._is_away:
            self._ports.tasks.spawn_soon("a keeper that is away", self._try_again)
        else:
            self._tell()

    def _try_again(self) -> None:
        self._ports.tasks.sleep(AWAY)
        with self._lock:
            self._is_away = False
            if self._leaving is not None and self.seconds_late() > KEEPER_LIMIT:
                return  # whoever has closed it was told
        self._tell()


def _counted(attempts: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if attempts is None else dict(attempts)


def _after(unsent: Progress | None, progress: Progress) -> Progress:
    """The later of two: it takes back what the one before it did, if that was not kept."""
    progress.takes_back = progress.takes_back or (unsent is not None and unsent.takes_back)
    return progress
