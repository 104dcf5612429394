"""One run of a job: its passes over what is there, and what it tells meanwhile.

passes = Passes(done, follow=True, every=5.0, stop=stop, progress=show)
for _ in passes:                                     one, or one after the other until somebody says stop
    ...
    passes.tell(left)
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypedDict, TypeVar

from heliograph.spark.jobs.arguments import at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class HowFar(Protocol):
    """What every job says of itself: its dataclass has more."""

    left: int
    """Offsets that were durable when the pass began and were not read yet."""
    seconds: float


DoneT = TypeVar("DoneT", bound=HowFar)


class RunOptions(TypedDict, Generic[DoneT], total=False):
    """How a job is run."""

    follow: bool
    """Go on with what comes until `stop` is set, or Ctrl-C."""
    every: float
    """Seconds between two passes of such a job."""
    progress: Callable[[DoneT], object] | None
    """Called with what was done so far, after each batch."""
    stop: threading.Event | None
    """Ends `follow` after the batch in hand."""


class Passes(Generic[DoneT]):
    """Numbers from 0: one without `follow`; with it until `stop` is set, that many seconds apart."""

    def __init__(
        self,
        done: DoneT,
        *,
        follow: bool = False,
        every: float = 5.0,
        progress: Callable[[DoneT], object] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        at_least("every", every, 0)
        self._done = done
        self._follow, self._every = follow, every
        self._progress = progress
        self._stop = stop or threading.Event()
        self._began = time.monotonic()

    def __iter__(self) -> Iterator[int]:
        yield 0
        number = 0
        while self._follow and not self._stop.wait(self._every):
            number += 1
            yield number
        self._done.seconds = time.monotonic() - self._began

    def tell(self, left: int) -> None:
        """Say that a batch is done, and how many offsets are left of this pass."""
        self._done.left = left
        self._done.seconds = time.monotonic() - self._began
        if self._progress is not None:
            self._progress(self._done)
