"""Thread arrangements: in which threads the callbacks of a channel are called.

    pool      a number of workers; more are added for as long as callbacks wait for something
    bands     a worker for each priority, so that a higher one runs while a lower one is inside a callback;
              with `os_priorities` the OS lets it run first
    inline    the thread that pushes: fastest, not isolated

    hg.QoS(threads=hg.Threads("bands", os_priorities=True, core=1))

How many workers each priority has, and what the OS knows of them, a class of the user's own can say:
`hg.Threads("bands", strategy=Mine())`, see `ThreadStrategy`.

A consumer that is asked needs no thread, and `async def` callbacks are called on an event loop.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.runtime.declared_options import Object, Option, Rule, refusals, rows_of, whole
from heliograph.runtime.option_names import NamesOptions

ThreadKind: TypeAlias = Literal["pool", "bands", "inline"]

MAX_POOL: Final = 64
"""Workers that a pool can have at rest."""


class ThreadStrategy(Protocol):
    """Decides the number and the priority of the threads that call callbacks."""

    def workers(self, priority: int) -> int:
        """How many threads call callbacks with events of a priority, 1 to 5: from 1 to `MAX_POOL`."""
        ...

    def begin(self, priority: int) -> object:
        """Called in each of them before its first callback: give it an OS priority, a core, a name."""
        ...

    def end(self, priority: int) -> object:
        """Called in each of them when it ends."""
        ...


def _why_no_strategy(value: Any) -> str | None:
    methods = ("workers", "begin", "end")
    if value is None or all(callable(getattr(value, method, None)) for method in methods):
        return None
    return "an object with the methods workers, begin and end, each with a priority"


class Threads(msgspec.Struct, frozen=True, metaclass=NamesOptions):
    """See the module."""

    kind: Annotated[ThreadKind, Option("which threads call callbacks")] = "pool"
    workers: Annotated[
        int | None,
        Option("of a pool; None: two, which is best where callbacks do not wait", whole(1, MAX_POOL)),
    ] = None
    os_priorities: Annotated[
        bool,
        Option(
            'with "bands": SCHED_FIFO for its workers, one core and a switch interval of 0.1 ms for the '
            "whole process, until the station is closed"
        ),
    ] = False
    core: Annotated[
        int | None, Option("which core; None: the last that this process may use", whole(0, 1 << 16))
    ] = None
    background: Annotated[
        bool,
        Option(
            "with `os_priorities`: the lowest band is an ordinary thread, which takes what is left of the "
            "core. Where bands fill it, the kernel otherwise holds up all of them, because it keeps a "
            "part of each second for ordinary threads"
        ),
    ] = False

    strategy: Annotated[
        ThreadStrategy | None,
        Option(
            'with "bands": an object of your own class, which says how many workers each priority has and is '
            "called in each of them when it begins and ends",
            Object("an object with `workers`, `begin` and `end`, each with a priority", _why_no_strategy),
        ),
    ] = None

    def __post_init__(self) -> None:
        for name, allowed in refusals(self, rows_of(Threads), THREAD_RULES):
            raise InvalidQoS("threads" if name == "kind" else name, getattr(self, name), allowed)


THREAD_RULES: Final = (
    Rule(
        "workers",
        "any",
        lambda threads: threads.workers is not None and threads.kind != "pool",
        "None unless threads are a 'pool'",
    ),
    Rule(
        "os_priorities",
        "True",
        lambda threads: threads.os_priorities and threads.kind != "bands",
        "False unless threads are 'bands'",
    ),
    Rule(
        "core",
        "any",
        lambda threads: threads.core is not None and not threads.os_priorities,
        "None unless os_priorities=True",
    ),
    Rule(
        "background",
        "True",
        lambda threads: threads.background and not threads.os_priorities,
        "False unless os_priorities=True",
    ),
    Rule(
        "strategy",
        "any",
        lambda threads: threads.strategy is not None and (threads.kind != "bands" or threads.os_priorities),
        "None unless threads are 'bands' without os_priorities",
    ),
)
