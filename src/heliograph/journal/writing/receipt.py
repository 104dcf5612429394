"""The receipt of an append: waited for from a thread or from asyncio."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from heliograph.errors import AppendTimeout
from heliograph.model.event import EventId
from heliograph.runtime.ports import wait_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from heliograph.journal.format.batch_marks import Mark
    from heliograph.journal.format.records import Record, RecordRun
    from heliograph.journal.writing.partition import Chunk
    from heliograph.runtime.ports import Flag, Tasks

log = logging.getLogger(__name__)

Level: TypeAlias = Literal["journal", "synced"]
"""When a receipt is fulfilled: once the rows are appended, or once they are on disk."""


class Adoption(NamedTuple):
    """A batch from outside: what to write, frame by frame, and what marks it as taken in."""

    frames: Iterable[Sequence[Chunk]]
    mark: Mark


class AppendReceipt:
    """One append. `first_offset` and `append_ts` hold once it is fulfilled.

    The event to wait on is made by the first thread that waits. Both sides change their part first and look
    at the other's then, so that neither misses the other.
    """

    __slots__ = (
        "_callbacks",
        "_done",
        "_error",
        "_final_callbacks",
        "_partition",
        "_tasks",
        "_waiter",
        "adoption",
        "append_ts",
        "attachment",
        "chunk",
        "first_offset",
        "is_final",
        "level",
        "lost",
        "records",
    )

    def __init__(
        self,
        records: Sequence[Record] | RecordRun,
        chunk: Chunk,
        level: Level,
        attachment: Any,
        *,
        tasks: Tasks,
        partition: str,
        adoption: Adoption | None = None,
    ) -> None:
        self.records = records
        self.attachment = attachment
        """What the caller gave with the records; kept in memory only."""
        self.level: Level = level
        self.chunk = chunk
        self.adoption = adoption
        """Of a batch from outside, which has no records here: its rows are in its own frames."""
        self.first_offset = -1
        self.append_ts = 0
        self._tasks = tasks
        self._partition = partition
        self._done = False
        self._error: BaseException | None = None
        self._waiter: Flag | None = None
        self._callbacks: list[Callable[[AppendReceipt], object]] = []
        self.is_final = False
        """Whether the rows are on disk, or never will be: at the level `journal` later than it is done."""
        self.lost: BaseException | None = None
        """Why they are not, then."""
        self._final_callbacks: list[Callable[[AppendReceipt], object]] = []

    def done(self) -> bool:
        return self._done

    def error(self) -> BaseException | None:
        """What `result` would raise, once it is done."""
        return self._error

    def result(self, timeout: float | None = None) -> int:
        """Wait until the level is met; returns the offset of the first record.

        Raises AppendFailed when the disk refused, JournalClosed when the writer was closed first, and
        AppendTimeout, which says nothing about what will become of it.
        """
        if not self._done:
            waiter = self._waiter
            if waiter is None:
                waiter = self._waiter = self._tasks.event("receipt")
            if not self.done() and not self._wait(waiter, timeout) and not self.done():
                raise AppendTimeout(self._partition, self._event_id(), timeout or 0.0)
        if self._error is not None:
            raise self._error
        return self.first_offset

    def _wait(self, waiter: Flag, timeout: float | None) -> bool:
        return wait_outside(self._tasks, waiter, timeout, self._partition)

    def add_done_callback(self, callback: Callable[[AppendReceipt], object]) -> None:
        """Call it once this is done: at once, or in the writer's task, which it must not keep waiting."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back(self._callbacks)

    def add_final_callback(self, callback: Callable[[AppendReceipt], object]) -> None:
        """As `add_done_callback`, but when it is final."""
        self._final_callbacks.append(callback)
        if self.is_final:
            self._call_back(self._final_callbacks)

    def wait_until_final(self, timeout: float | None = None) -> None:
        """Wait until the rows are on disk or never will be, whatever the level."""
        if self.is_final:
            return
        final = self._tasks.event("final receipt")
        self.add_final_callback(lambda _: final.set())
        if not final.wait(timeout) and not self.is_final:
            raise AppendTimeout(self._partition, self._event_id(), timeout or 0.0)

    def fulfil(self, error: BaseException | None = None, *, final: bool = True) -> None:
        """For the writer: the level is met, or never will be. Only the first call counts, and the first that
        is final."""
        # Before waiters are told: one that is told of a failure may repeat the push at once.
        if final and not self.is_final:
            self.lost = error
            self.is_final = True
            if self._final_callbacks:
                self._call_back(self._final_callbacks)
        if not self._done:
            self._error = error
            self._done = True
            if self._waiter is not None:
                self._waiter.set()
            if self._callbacks:
                self._call_back(self._callbacks)

    def _call_back(self, callbacks: list[Callable[[AppendReceipt], object]]) -> None:
        # Popping is atomic: a callback that is added just now is called by one side only.
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:
                log.exception("a callback of a receipt failed")

    def _event_id(self) -> str:
        if self.adoption is not None:
            return f"batch {self.adoption.mark.batch} of {self.adoption.mark.writer}"
        first = next(iter(self.records))
        return str(EventId(first.supplier, first.epoch, first.sequence))
