"""A gateway's file: its two stations, and the channels that cross.

    # gateway.toml                       helio gateway gateway.toml, or hg.Gateway.from_file("gateway.toml")
    [gateway]
    name = "west-east"                   # and hops, start: as in hg.Gateway
    [here]
    domain = "west"                      # and folder, name, listen, connect, identity, insecure, transport,
    [there]                              # peer_limit, config: as in hg.Station
    domain = "east"
    connect = ["tcp/127.0.0.1:7447"]
    [[channels]]
    name = "air.**"                      # a name, or a pattern
    where = "altitude > 1000"
    both = true

A file with a mistake is refused whole, with its line and what is allowed there.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.configuration import line_of, text_of
from heliograph.errors import HeliographError, InvalidConfiguration
from heliograph.federation.gateway import HOPS, Gateway
from heliograph.links import PEER_LIMIT
from heliograph.station import Station

if TYPE_CHECKING:
    import os


class GatewaySaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[gateway]`."""

    name: str | None = None
    hops: int = HOPS
    start: str = "now"


class SideSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables `[here]` and `[there]`."""

    domain: str
    folder: str | None = None
    name: str = ""
    listen: list[str] = []
    connect: list[str] = []
    identity: str | None = None
    insecure: bool = False
    transport: str | None = None
    peer_limit: float = PEER_LIMIT
    config: str | None = None

    def open(self) -> Station:
        options: dict[str, Any] = msgspec.structs.asdict(self)
        return Station(options.pop("folder"), **options)


class ChannelSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `[[channels]]`."""

    name: str
    where: str | None = None
    params: dict[str, Any] | None = None
    both: bool = False


class GatewayFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says, checked."""

    here: SideSaid
    there: SideSaid
    channels: list[ChannelSaid]
    gateway: GatewaySaid = GatewaySaid()

    def open(self) -> Gateway:
        """Open its two stations and the gateway; closing that closes them."""
        here = self.here.open()
        try:
            there = self.there.open()
        except BaseException:
            here.close(0.0)
            raise
        said = self.gateway
        try:
            gateway = Gateway(here, there, hops=said.hops, name=said.name, start=said.start)
            gateway.owns_stations = True
            try:
                for channel in self.channels:
                    gateway.add(channel.name, where=channel.where, params=channel.params, both=channel.both)
            except BaseException:
                gateway.close()
                raise
        except BaseException:
            there.close(0.0)
            here.close(0.0)
            raise
        return gateway


def load(path: str | os.PathLike[str]) -> GatewayFile:
    """Read a file; InvalidConfiguration names the line of the first mistake."""
    text = text_of(path)
    try:
        found = msgspec.convert(tomllib.loads(text), GatewayFile)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(str(path), getattr(error, "lineno", 1), str(error)) from None
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        keys = tuple(part.split("[")[0] for part in where.rstrip("`").split(".") if part)
        raise InvalidConfiguration(
            str(path), line_of(text, keys) if keys else 1, f"{'.'.join(keys)}: {problem}" if keys else problem
        ) from None
    if not found.channels:
        raise InvalidConfiguration(str(path), 1, "no channel crosses: [[channels]] with a name")
    return found


def open_file(path: str | os.PathLike[str]) -> Gateway:
    """Open the gateway that a file describes; InvalidConfiguration where its values do not go together."""
    said = load(path)
    try:
        return said.open()
    except HeliographError as error:
        if error.retriable:
            raise
        raise InvalidConfiguration(str(path), 1, str(error)) from error
