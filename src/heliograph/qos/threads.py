"""Thread arrangements: in which threads the callbacks of a channel are called.

    pool      a number of workers; more are added for as long as callbacks wait for something
    bands     a worker for each priority, so that a higher one runs while a lower one is inside a callback;
              with `os_priorities` the OS lets it run first
    inline    the thread that pushes: fastest, not isolated

    hg.QoS(threads=hg.Threads("bands", os_priorities=True, core=1))

A consumer that is asked needs no thread, and `async def` callbacks are called on an event loop.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.runtime.option_names import NamesOptions

ThreadKind: TypeAlias = Literal["pool", "bands", "inline"]

MAX_POOL: Final = 64
"""Workers that a pool can have at rest."""


class Threads(msgspec.Struct, frozen=True, metaclass=NamesOptions):
    """See the module.

    Attributes:
        kind: "pool", "bands" or "inline".
        workers: of a pool; None: two, which is best where callbacks do not wait.
        os_priorities: with "bands": SCHED_FIFO for its workers, one core and a switch interval of 0.1 ms for
            the whole process, until the station is closed.
        core: which; None: the last that this process may use.
        background: with `os_priorities`: the lowest band is an ordinary thread, which takes what is left of
            the core. Where bands fill it, the kernel otherwise holds up all of them, because it keeps a part
            of each second for ordinary threads.
    """

    kind: ThreadKind = "pool"
    workers: int | None = None
    os_priorities: bool = False
    core: int | None = None
    background: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(ThreadKind):
            raise InvalidQoS("threads", self.kind, "one of " + ", ".join(get_args(ThreadKind)))
        if self.workers is not None:
            _check("workers", self.workers, 1, MAX_POOL)
            if self.kind != "pool":
                raise InvalidQoS("workers", self.workers, f"None with threads {self.kind!r}")
        if type(self.os_priorities) is not bool:
            raise InvalidQoS("os_priorities", self.os_priorities, "True or False")
        if self.os_priorities and self.kind != "bands":
            raise InvalidQoS("os_priorities", self.os_priorities, "False unless threads are 'bands'")
        if self.core is not None:
            _check("core", self.core, 0, 1 << 16)
            if not self.os_priorities:
                raise InvalidQoS("core", self.core, "None unless os_priorities=True")
        if type(self.background) is not bool:
            raise InvalidQoS("background", self.background, "True or False")
        if self.background and not self.os_priorities:
            raise InvalidQoS("background", self.background, "False unless os_priorities=True")


def _check(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidQoS(name, value, f"a whole number from {low} to {high}")
