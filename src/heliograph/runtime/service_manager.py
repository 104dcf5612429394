"""Tells the service manager (systemd) that a service is ready, alive or stopping: one datagram each.

The protocol is that of `sd_notify(3)`: where `NOTIFY_SOCKET` names a socket, lines such as `READY=1` are sent
to it. `WATCHDOG_USEC` says how often the service has to say that it is alive.
"""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Send lines to the service manager; False when there is none, or it does not listen."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)
            sender.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


def watchdog_seconds() -> float | None:
    """How often to say `WATCHDOG=1`: half of what the service manager waits; None: it does not."""
    said = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", "")
    if not said.isdecimal() or not int(said) or (pid and pid != str(os.getpid())):
        return None
    return int(said) / 2e6
