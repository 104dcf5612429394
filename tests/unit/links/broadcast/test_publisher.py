"""The broadcast's own task is in no pushing thread's way, and misses nothing that they left."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from heliograph.links.broadcast.carrier_choice import NORMAL
from heliograph.links.broadcast.gateway import ReaderSession
from heliograph.links.broadcast.publisher import Broadcast
from heliograph.links.session.wire_events import EventWriter
from heliograph.ring import RingName
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom

if TYPE_CHECKING:
    from collections.abc import Callable


class Paper:
    """A ring that keeps what is written."""

    largest = 1 << 20
    name = RingName(1, NORMAL, 1)

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def put(self, record: bytes) -> bool:
        self.records.append(record)
        return True


class Script:
    """Tasks of which the only one is run by the test; each time it waits, the next step is taken."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []
        self.run: Callable[[], None] = self._nothing
        self.rings = 0

    def lock(self, _: str) -> threading.Lock:
        return threading.Lock()

    def signal(self, _: str) -> Script:
        return self

    def spawn(self, _: str, run: Callable[[], None]) -> None:
        self.run = run

    def _nothing(self) -> None:
        """Before there is a task."""

    def notify(self) -> None:
        self.rings += 1

    def wait(self, _: float | None = None) -> bool:
        self.steps.pop(0)()
        return True


def test_what_comes_while_a_pushing_thread_writes_is_written_and_so_is_what_comes_afterwards() -> None:
    ring, tasks = Paper(), Script()
    clock = SystemClock()
    ports: Any = Ports(clock, cast("Any", tasks), SystemRandom())
    broadcast = Broadcast(
        cast("Any", ring),
        ports,
        EventWriter(clock),
        lambda _channel, _format: 1,
        lambda _station, _missed: None,
    )

    hearer = ReaderSession(7, 1)

    def tell(name: str) -> None:
        broadcast._told.append((hearer, name, True, 0))
        broadcast._pump()

    def tell_while_another_writes(name: str) -> None:
        broadcast._sending.acquire()
        tell(name)
        broadcast._sending.release()

    def end() -> None:
        broadcast._closed = True

    tasks.steps = [
        broadcast._sending.acquire,  # it wakes while a thread writes,
        lambda: tell("first"),  # which goes on writing, and another leaves something;
        broadcast._sending.release,
        lambda: tell_while_another_writes("second"),  # and later once more
        end,
    ]
    tasks.run()
    assert not tasks.steps
    assert tasks.rings == 2, "each time somebody leaves something the task is told"
    assert [b"first" in record for record in ring.records] == [True, False]
    assert b"second" in ring.records[1]
