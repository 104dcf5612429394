"""The directory of keepers: which station keeps a channel, asked to keep it, compared with how it is opened.

A station says how it keeps a channel when it says that it does. Who opens that channel without a QoS has it
so; who opens it otherwise is refused, at once if the keeper is known, and when it is met if not. A station
that keeps for others (`helio station --folder data`) is asked to keep what nobody keeps yet.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import InvalidQoS, NotPossible, QueryFailed
from heliograph.links.history.server import KEEPER_LIMIT
from heliograph.links.session import messages as m
from heliograph.model.event import info_of
from heliograph.model.formats import FormatRegistry
from heliograph.qos.matching import conflicts
from heliograph.qos.policies import QoS, policies_of, qos_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

MEET_LIMIT: Final = 1.0
"""Seconds for the stations that are there to say what they keep, when a channel is opened: one
that has no history here, or whose history is kept elsewhere."""


class KeepAsk(msgspec.Struct, array_like=True):
    """A station without a folder has a channel that nobody keeps yet."""

    channel: str
    policies: dict[str, str | int | float | None]
    formats: list[tuple[bytes, bytes]]
    """Id and description of each."""


_keep_ask: Final = msgspec.msgpack.Decoder(KeepAsk).decode


def recorded(mesh: Mesh, name: str, asked: QoS | None) -> QoS | None:
    """How a channel is kept in the domain; None when no station that can be asked now keeps it.

    NotPossible when it is kept otherwise than it is asked for.
    """
    mesh.meet_all(MEET_LIMIT)
    keepers = mesh.keepers_of(name)
    if not keepers:
        return None
    found = keepers[min(keepers)].kept_as()
    check_kept(mesh, name, asked or found)
    return found


def check_kept(mesh: Mesh, name: str, qos: QoS) -> None:
    """NotPossible when a station that is known now keeps a channel otherwise than it is asked for."""
    for state in mesh.keepers_of(name).values():
        check_state(name, state, qos)


def check_state(channel: str, state: m.ChannelState, qos: QoS) -> None:
    """The same for what one keeper has said."""
    where = f"is kept by a station of the domain (partition {state.keeper})"
    try:
        apart = conflicts(state.kept_as(), qos)
    except InvalidQoS as unknown:
        raise NotPossible(channel, f"{where} as this program cannot: {unknown}") from None
    if apart:
        how = "; ".join(f"{one.policy} is {one.offered!r} there, {one.requested!r} here" for one in apart)
        raise NotPossible(channel, f"{where} otherwise: {how}; leave out qos= to open it as it is kept")


def classes_of(mesh: Mesh, name: str) -> list[type[Event]]:
    """A class for each format that other stations have a channel with: versions of a type are several."""
    from heliograph.codec.dynamic.classes import class_for  # noqa: PLC0415 - most programs have the classes of their events

    return [class_for(fmt) for fmt in mesh.formats(name)]


def least_qos(mesh: Mesh, name: str) -> QoS | None:
    """What every station that has a channel offers: who asks for that gets the events of all.

    None for one that is kept: it is opened as its keeper has it.
    """
    states = [state for other in mesh.stations() for state in other.channels if state.name == name]
    if any(state.durability == "persistent" for state in states):
        return None
    is_reliable = all(state.reliability == "reliable" for state in states)
    return QoS(
        reliability="reliable" if is_reliable else "best-effort",
        ack="delivered" if is_reliable and any(state.acks for state in states) else None,
    )


def find_keepers(
    mesh: Mesh, channel: str, types: tuple[type[Event], ...], qos: QoS
) -> dict[str, m.ChannelState]:
    """Those who keep a channel, by partition, and as it is asked for; NotPossible when there is none.

    All stations that are there are met first: who knows the same keepers chooses the same one, and nobody is
    asked to keep what another keeps already.
    """
    mesh.meet_all(MEET_LIMIT)
    asked: set[int] = set()

    def is_kept(_: Mesh) -> bool:
        return bool(mesh.keepers_of(channel)) or _ask(mesh, channel, types, qos, asked)

    if not mesh.keepers_of(channel) and mesh.wait_for(is_kept, KEEPER_LIMIT):
        mesh.meet_all(MEET_LIMIT)  # the first of several that have just begun
    keepers = mesh.keepers_of(channel)
    if not keepers:
        raise NotPossible(
            channel,
            "durability='persistent' needs a folder, hg.Station('data'), or a station of the domain that "
            "has one and keeps this channel, as `helio station --folder data` does; none was "
            f"found within {KEEPER_LIMIT:g} s",
        )
    check_kept(mesh, channel, qos)
    return keepers


def _ask(mesh: Mesh, channel: str, types: tuple[type[Event], ...], qos: QoS, asked: set[int]) -> bool:
    """Ask stations that keep for others, each once; whether one has agreed."""
    formats = [info_of(cls).format for cls in types]
    ask = KeepAsk(channel, policies_of(qos), [(fmt.id, fmt.description) for fmt in formats])
    for other in mesh.stations():
        if other.station not in asked:
            asked.add(other.station)
            with suppress(QueryFailed):  # most stations keep nothing for others
                mesh.ask(other.station, "keep", ask, KEEPER_LIMIT)
                return mesh.wait_for(lambda _: bool(mesh.keepers_of(channel)), KEEPER_LIMIT)
    return False


class ForOthers:
    """Keeps what stations without a folder open, in classes made of the formats that they name.

    Args:
        open_channel: opens a channel of this station, or has it carry further types.
        opened: one that is open, by its name, or None.
        mesh: of this station; there it answers from now on.
        tasks: has the lock.
    """

    def __init__(
        self,
        open_channel: Callable[..., Channel[Any]],
        opened: Callable[[str], Channel[Any] | None],
        mesh: Mesh,
        tasks: Tasks,
    ) -> None:
        self._open_channel = open_channel
        self._opened = opened
        # Of several that ask at once, the first has the classes made.
        self._lock = tasks.lock("kept for others")
        mesh.keeper.carry = self._carry
        mesh.answer("keep", self._asked)

    def _asked(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        """Keep a channel that another station asks for."""
        ask: Any = m.decoded(_keep_ask, body, f"station {station:016x}")
        registry = FormatRegistry()
        formats = [registry.learn(*row) for row in ask.formats]
        qos = qos_of(ask.policies)
        if not qos.journalled:
            raise NotPossible(ask.channel, "only persistent channels are kept")
        self._keep(ask.channel, formats, qos)
        log.info("keeps %s, as station %016x asked for", ask.channel, station)
        reply(None)

    def _carry(self, channel: Channel[Any], formats: list[Format]) -> None:
        """Have a channel carry events of these types as well."""
        self._keep(channel.name, formats, None)

    def _keep(self, name: str, formats: list[Format], qos: QoS | None) -> None:
        """What it carries already it carries in any version."""
        from heliograph.codec.dynamic.classes import class_for  # noqa: PLC0415 - few stations keep for others

        with self._lock:
            opened = self._opened(name)
            carried = () if opened is None else opened.type_names
            new = {fmt.name: fmt for fmt in formats if fmt.name not in carried}
            self._open_channel(name, *map(class_for, new.values()), qos=qos)
