"""The process of a band worker, started by `heliograph.workers.supervisor`: `python -m
heliograph.workers.process FD`.

1. read the order
2. pin this process and give it its real-time priority, if asked to, before there are threads
3. join the domain, have the consumers subscribed, and let all stations know of them that do not stand still
4. say that it is ready
5. give signs of life until the other end of the socket is closed; then deliver what waits, and end
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from select import POLLIN, poll
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.runtime.timeouts import LONGEST_WAIT
from heliograph.station import Station
from heliograph.workers.supervisor import (
    MAX_REPORT,
    MEET_LIMIT,
    START_LIMIT,
    WorkerOrder,
    WorkerReport,
    resolve,
)

if TYPE_CHECKING:
    from heliograph.model.event import EventId

SWITCH_INTERVAL: Final = 1e-4
"""Seconds after which a thread must let others have the interpreter: a callback waits no longer than that."""


class Wire:
    """The socket to whoever started this process."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._lock = Lock()
        self._poll = poll()  # not `select`: the descriptor has the number that it had in the other process
        self._poll.register(wire, POLLIN)

    def order(self) -> WorkerOrder:
        return msgspec.json.decode(self._wire.makefile("rb").readline(), type=WorkerOrder)

    def say(self, report: WorkerReport) -> None:
        """What is said here is heard, even if this process dies the next instant."""
        with self._lock, suppress(OSError):  # nobody listens any more: `is_closed` sees that
            self._wire.sendall(msgspec.json.encode(report) + b"\n")

    def say_of(self, channel: str, event: EventId, is_settled: bool) -> None:
        """Whether an event that came again is settled, or begun."""
        self.say(
            WorkerReport(settled=(channel, event)) if is_settled else WorkerReport(begun=(channel, event))
        )

    def is_closed(self, wait: float | None) -> bool:
        """Wait so long, or for ever, for the other end to be closed; whether it is."""
        return bool(self._poll.poll(None if wait is None else round(wait * 1_000)))


def main(descriptor: int) -> int:
    """One worker's life; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the station closes its workers itself
    with socket.socket(fileno=descriptor) as end:
        os.set_inheritable(descriptor, False)
        wire = Wire(end)
        order = wire.order()  # 1
        try:
            sys.path[:] = order.path
            _take_place(order)  # 2
            station = _listening(order, wire)
        except Exception as error:  # noqa: BLE001 - whatever it is, the station is told
            # A character takes six bytes of JSON at most.
            wire.say(WorkerReport(failed=f"{type(error).__name__}: {error}"[: MAX_REPORT // 8]))
            return 1
        with station:
            assert station.mesh is not None
            try:
                wire.say(WorkerReport(station=station.id))  # 4
                while not wire.is_closed(order.beat):  # 5
                    wire.say(WorkerReport(busy=station.busy()))
            except BaseException:  # sys.exit in a handler of a signal: its station starts another one
                station.mesh.gates.end()
                raise
    return 0


def _listening(order: WorkerOrder, wire: Wire) -> Station:
    setup = resolve(order.setup)
    station = Station(
        domain=order.domain,
        name=order.name,
        transport=order.transport,
        priority=order.priority,
        callback_limit=LONGEST_WAIT,  # whoever started this process sees to that
    )
    try:
        assert station.mesh is not None
        station.mesh.gates.supervisor = order.supervisor
        station.mesh.gates.is_relayed = order.is_relayed
        station.mesh.gates.tell_supervisor = wire.say_of
        if order.is_relayed:  # what it has open decides by which way events come
            station.mesh.meet({order.supervisor}, START_LIMIT)
        setup(station)  # 3
        station.mesh.wait_fetched(START_LIMIT)  # then comes what the process before has left
        if order.supervisor:
            station.mesh.meet({order.supervisor}, START_LIMIT)
        station.mesh.meet_all(MEET_LIMIT)
    except BaseException:
        station.close(0.0)
        raise
    return station


def _take_place(order: WorkerOrder) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    if order.fifo is not None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(order.fifo))
        except PermissionError:
            raise PermissionError(
                f"this user may not use real-time priority {order.fifo}: raise its limit (ulimit -r), or "
                "leave out fifo="
            ) from None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
