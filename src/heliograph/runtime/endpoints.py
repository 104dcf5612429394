"""Where a station listens on the network and where it connects to, as Zenoh writes it: `tcp/10.0.0.1:7447`.

Over tls and quic both ends show a certificate (`heliograph.links.keys`). Nothing is encrypted over tcp, and
nobody has to say who they are. So that is for one host, or for a network on which everybody may see and send
everything: that has to be said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from heliograph.errors import NotPossible

_ENDPOINT: Final = re.compile(
    r"(?P<protocol>[a-z]+)/(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/?#;\s]+):(?P<port>\d{1,5})"
)
PROTOCOLS: Final = ("tcp", "tls", "quic")
MAX_ENDPOINTS: Final = 64
REPAIR_EVENTS: Final = 65_536
REPAIR_BYTES: Final = 64 << 20
MAX_REPAIR_EVENTS: Final = 100_000_000
MAX_REPAIR_BYTES: Final = 1 << 40
EXAMPLE: Final = "protocol/host:port, such as 'tcp/127.0.0.1:7447'"


class EndpointAddress(msgspec.Struct, frozen=True):
    """One of them, taken apart."""

    protocol: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nothing that is said there leaves the host."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"


class Network(msgspec.Struct, frozen=True):
    """How a station meets those of other hosts."""

    listen: Sequence[str] = ()
    connect: Sequence[str] = ()
    insecure: bool = False
    identity: str | None = None
    """The folder of this station's certificate and key."""
    repair_events: int = REPAIR_EVENTS
    repair_bytes: int = REPAIR_BYTES
    """What each lane of a stream keeps in memory for stations that did not get it."""

    def __bool__(self) -> bool:
        return bool(self.listen or self.connect)


def why_not_endpoints(value: Any) -> str | None:
    """What is allowed in place of a value that is no list of endpoints."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return "a list of endpoints, such as ['tcp/127.0.0.1:7447']"
    if len(value) > MAX_ENDPOINTS:
        return f"at most {MAX_ENDPOINTS} endpoints"
    for each in value:
        try:
            parse(each)
        except NotPossible as error:
            return error.reason
    return None


def parse(text: Any) -> EndpointAddress:
    """An endpoint; NotPossible says what is wrong with it."""
    found = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise NotPossible(f"{text!r:.80}", EXAMPLE)
    if found["protocol"] not in PROTOCOLS:
        raise NotPossible(text[:80], f"{EXAMPLE}, with {', '.join(PROTOCOLS)} as protocol")
    if not 0 < int(found["port"]) < 65_536:
        raise NotPossible(text[:80], "a port from 1 to 65535")
    return EndpointAddress(found["protocol"], found["host"], int(found["port"]))


def check(network: Network) -> None:
    """NotPossible for what nobody can listen on or connect to, or should not without saying so."""
    encrypted = [one for one in (*network.listen, *network.connect) if parse(one).protocol != "tcp"]
    if encrypted and network.identity is None:
        raise NotPossible(
            encrypted[0], "needs keys: add identity='keys/site-a', a folder that helio keys add has made"
        )
    if network.identity is not None and not encrypted:
        raise NotPossible(
            f"identity={network.identity!r:.60}",
            "is for endpoints that are encrypted, such as 'tls/10.0.0.1:7447'; there are none",
        )
    for option, endpoints in (("listen", network.listen), ("connect", network.connect)):
        for text in endpoints:
            endpoint = parse(text)
            if not endpoint.is_loopback and endpoint.protocol == "tcp" and not network.insecure:
                raise NotPossible(
                    f"{option}={text}",
                    "nothing is encrypted over tcp, and whoever reaches it can read and send everything: "
                    "use tls/ with an identity, or add insecure=True where that is meant",
                )
