"""Links between stations: an event goes to every station that wants it, and to no other.

contract     what every transport and connection does
transports   Unix sockets, Zenoh between hosts, a network in memory; discovery of stations
session      the conversation with one peer: messages, numbered streams, requests and replies
mesh         all peers of a station: egress, ingress, failure detector
interest     what a station wants of others' channels, and whether two stations' channels go together
streams      events to other hosts, put once for all stations that want the same
broadcast    one shared-memory ring per station, read by all peers of the host
history      histories that another station keeps
groups       groups whose members are in several stations
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.dispatch.reader_handover import NewReader
    from heliograph.links.contract import Transport
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.transports.zenoh import ZenohTransport
    from heliograph.runtime.endpoints import Network
    from heliograph.runtime.ports import Ports


Carrier = Literal["ring", "spinning-ring", "socket"]
"""What carries live events between stations of one host; where there can be no ring, a socket does."""


PEER_LIMIT: Final = 5.0
"""Seconds after which a peer that says nothing is suspected: ten heartbeats."""


class Identity(NamedTuple):
    """Who a station is: its id, unique for ever, the name it was given, and its domain."""

    station: int
    name: str
    domain: str


def check_joining(
    domain: str | None,
    transport: Callable[[int], Transport] | Carrier | None,
    peer_limit: float | None,
    network: Network | None = None,
) -> None:
    """Refuse what no station could join a domain by, and what is about a domain where there is none."""
    if transport is not None and not callable(transport) and transport not in get_args(Carrier):
        raise NotPossible(
            f"transport={transport!r:.60}",
            f"allowed are {', '.join(get_args(Carrier))}, and what makes a transport",
        )
    if domain is None and peer_limit not in (None, PEER_LIMIT):
        raise NotPossible(
            f"peer_limit={peer_limit!r:.60}", "is about other stations of a domain: add domain="
        )
    if domain is None and transport is not None:
        raise NotPossible(
            f"transport={transport!r:.60}", "carries events between the stations of a domain: add domain="
        )
    if network is None:
        return
    where = ", ".join((*network.listen, *network.connect))
    if not network and network.insecure:
        raise NotPossible("insecure=True", "is about listen= and connect=, and there are none: leave it out")
    if network and domain is None:
        raise NotPossible(where, "only stations of one domain meet on the network: add domain=")
    if network and callable(transport):
        raise NotPossible(where, "this station has a transport of its own: leave out listen= and connect=")
    from heliograph.runtime.endpoints import check  # noqa: PLC0415 - `helio --help` needs none

    check(network)
    if network.identity is not None:
        from heliograph.links.keys import check_identity  # noqa: PLC0415 - most stations have no keys

        assert domain is not None, "an identity without endpoints is refused, and endpoints without a domain"
        check_identity(network.identity, domain)


def join(
    identity: Identity,
    ports: Ports,
    channel: Callable[[str], Channel[Any] | None],
    new_reader: NewReader,
    *,
    transport: Callable[[int], Transport] | Carrier | None = None,
    peer_limit: float | None = PEER_LIMIT,
    report: Callable[[str, None, BaseException], object] | None = None,
    network: Network | None = None,
) -> Mesh:
    """Join the stations of a domain: this user's on this host, unless another transport is given.

    Those of other hosts, too, where there is a network to listen or connect to.
    """
    from heliograph.links.broadcast.shared_memory import Rings, rings_of  # noqa: PLC0415 - as the next
    from heliograph.links.mesh.failure_detector import check_limit  # noqa: PLC0415 - as above
    from heliograph.links.mesh.mesh import Mesh  # noqa: PLC0415 - stations on their own need no links
    from heliograph.links.streams.gateway import StreamLimits  # noqa: PLC0415 - as above
    from heliograph.links.transports.backoff import Stalls  # noqa: PLC0415 - as the next

    check_limit(peer_limit)
    if not isinstance(identity.domain, str):
        raise NotPossible(f"domain {identity.domain!r:.60}", "a domain is a text, such as 'airspace'")
    stalls = Stalls(report)
    made: Transport
    other_hosts: ZenohTransport | None = None
    if callable(transport):
        made, rings = transport(identity.station), Rings()
    else:
        from heliograph.links.transports.unix import UnixTransport  # noqa: PLC0415 - as above

        made = UnixTransport(identity.domain, identity.station, ports, stalls)
        rings = rings_of(identity.domain, transport or "ring")
        if network:
            from heliograph.links.transports.combined import CombinedTransport  # noqa: PLC0415 - as above
            from heliograph.links.transports.zenoh import ZenohTransport  # noqa: PLC0415 - as above

            here = made
            other_hosts = ZenohTransport(
                identity.domain,
                identity.station,
                ports,
                stalls,
                network=network,
                peer_limit=peer_limit,
                is_near=lambda station: station in here.others(),
            )
            made = CombinedTransport(here, other_hosts)
    limits = StreamLimits() if network is None else StreamLimits(network.repair_events, network.repair_bytes)
    mesh = Mesh(
        identity,
        made,
        ports,
        channel,
        new_reader,
        rings=rings,
        peer_limit=peer_limit,
        stalls=stalls,
        stream_limits=limits,
    )
    if other_hosts is not None:
        other_hosts.on_unreachable = mesh.suspect
    try:
        mesh.start()
    except BaseException:
        mesh.close(0.0)
        raise
    return mesh
