"""What `helio doctor` finds in a station's keys, ports and the hosts that it connects to.

A station that runs is looked at from outside, with the options or the file that it is started with: the port
may be another program's, the host may not be reached, and the certificate may be about to expire.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from heliograph.errors import HeliographError
from heliograph.monitoring.doctor import Finding
from heliograph.runtime.endpoints import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from heliograph.runtime.endpoints import Network

RENEW_BEFORE: Final = timedelta(days=30)
"""How long before its end a certificate is worth a word."""
REACH_LIMIT: Final = 2.0
"""Seconds that a host has to answer."""
LISTENING: Final = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


def examine_network(network: Network, domain: str, own: Collection[int]) -> Iterator[Finding]:
    """All findings; `own` are the processes of the domain's stations, which may have the ports already."""
    if network.identity is not None:
        yield from _identity(network.identity, domain)
    for endpoint in network.listen:
        yield from _port(endpoint, own)
    for endpoint in network.connect:
        yield from _reach(endpoint)


def _identity(folder: str, domain: str) -> Iterator[Finding]:
    from heliograph.links.keys import check_identity  # noqa: PLC0415 - of an extra

    try:
        identity = check_identity(folder, domain)
    except HeliographError as error:
        command = f"helio keys show {Path(folder).parent}"
        yield Finding("problem", "identity cannot be used", folder, str(error), command)
        return
    left = identity.until - datetime.now(UTC)
    if left < RENEW_BEFORE:
        text = f"its certificate ends on {identity.until:%Y-%m-%d}, in {left.days} days"
        command = f"helio keys renew {Path(folder).parent} {identity.name}; then start its station again"
        yield Finding("warning", "certificate ends soon", folder, text, command)


def _port(text: str, own: Collection[int]) -> Iterator[Finding]:
    endpoint = parse(text)
    host = endpoint.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_DGRAM if endpoint.protocol == "quic" else socket.SOCK_STREAM
    with socket.socket(family, kind) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, endpoint.port))
        except OSError as error:
            holder = _holder(endpoint.port)
            if holder in own:
                return
            by = "" if holder is None else f" by process {holder} ({_program(holder)})"
            text_ = f"cannot be listened on: {error.strerror}{by}"
            yield Finding("problem", "port not free", text, text_, f"ss -ltnp 'sport = :{endpoint.port}'")


def _reach(text: str) -> Iterator[Finding]:
    endpoint = parse(text)
    if endpoint.protocol == "quic":
        said = "over UDP nobody can tell from outside whether it is reached"
        yield Finding("note", "not looked at", text, said, "helio ls --links")
        return
    try:
        socket.create_connection((endpoint.host.strip("[]"), endpoint.port), REACH_LIMIT).close()
    except OSError as error:
        why = "does not answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        command = f"start the station that listens there; nc -vz {endpoint.host} {endpoint.port}"
        yield Finding("problem", "host not reached", text, f"cannot be connected to: {why}", command)


def _holder(port: int) -> int | None:
    """The process that listens on a port, if this user may know."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                is_there = columns[3] == LISTENING or "udp" in table
                if is_there and int(columns[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{columns[9]}]")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with suppress(OSError):
            if str(descriptor.readlink()) in sockets:
                return int(descriptor.parts[2])
    return None


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone by now"
