"""The process of a band worker, started by `heliograph.bandworker`: `python -m heliograph.bandprocess FD`.

1. read the order
2. pin this process and give it its real-time priority, if asked to, before there are threads
3. join the domain, have the consumers subscribed, and let every station know of them
4. say that it is ready
5. give signs of life until the other end of the socket is closed; then deliver what waits, and end
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Final

import msgspec

from heliograph.bandworker import MAX_REPORT, START_LIMIT, Order, Report, resolve
from heliograph.station import Station

SWITCH_INTERVAL: Final = 1e-4
"""Seconds after which a thread must let others have the interpreter: a callback waits no longer than that."""


def main(descriptor: int) -> int:
    """One worker's life; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the station closes its workers itself
    with socket.socket(fileno=descriptor) as wire:
        os.set_inheritable(descriptor, False)
        order = msgspec.json.decode(wire.makefile("rb").readline(), type=Order)  # 1
        try:
            sys.path[:] = order.path
            _take_place(order)  # 2
            station = _listening(order)
        except Exception as error:  # noqa: BLE001 - whatever it is, the station is told
            # A character takes six bytes of JSON at most.
            reason = f"{type(error).__name__}: {error}"[: MAX_REPORT // 8]
            wire.sendall(_line(Report(failed=reason)))
            return 1
        with station:
            wire.sendall(_line(Report(station=station.id)))  # 4
            _beat(wire, station, order.beat)  # 5
    return 0


def _listening(order: Order) -> Station:
    setup = resolve(order.setup)
    station = Station(
        domain=order.domain, name=order.name, transport=order.transport, priority=order.priority
    )
    try:
        assert station.mesh is not None
        station.mesh.gates.supervisor = order.supervisor
        setup(station)  # 3
        station.mesh.meet_all(START_LIMIT)
    except BaseException:
        station.close(0.0)
        raise
    return station


def _beat(wire: socket.socket, station: Station, every: float | None) -> None:
    """Say again and again how long the longest callback has been running, until the other end is closed."""
    wire.settimeout(every)
    while True:
        try:
            if not wire.recv(1):
                return
        except TimeoutError:
            wire.sendall(_line(Report(busy=station.busy())))
        except OSError:
            return


def _take_place(order: Order) -> None:
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


def _line(report: Report) -> bytes:
    return msgspec.json.encode(report) + b"\n"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
