"""Between stations: an event goes to every station that wants it, and to no other.

contract     what every kind of link does: transports and connections
unix         Unix sockets between the stations of one user on one host
meeting      the folder where they find each other
sequence     nothing is lost on a lane
messages     what stations say, as bytes
conditions   filters on their way to the source
gateway      events out                 arrivals   events in
link         one pair of stations       mesh       all of them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.core import Channel
    from heliograph.link.mesh import Mesh
    from heliograph.ports import Ports


def join(
    domain: str, name: str, station: int, ports: Ports, channel: Callable[[str], Channel[Any] | None]
) -> Mesh:
    """Join this user's stations of a domain on this host."""
    from heliograph.link.mesh import Identity, Mesh  # noqa: PLC0415 - stations on their own need no links
    from heliograph.link.unix import UnixTransport  # noqa: PLC0415 - as above

    mesh = Mesh(Identity(station, name, domain), UnixTransport(domain, station, ports.tasks), ports, channel)
    mesh.start()
    return mesh
