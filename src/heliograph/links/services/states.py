"""The states that linked stations offer: snapshots that cross a link page by page, and how far suppliers are.

A snapshot is taken once and waits here for the station that asks, which fetches page after page at its own
pace; what it does not fetch is forgotten with the station, or for a newer one.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from heliograph.channel.resync.subscription import PAGE, StatePage
from heliograph.errors import HeliographError, QueryFailed
from heliograph.links.history.pages import Page, PageReader, fitting_page
from heliograph.links.session import messages as m
from heliograph.model.event import Count, Name

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.resync.machine import Source
    from heliograph.channel.resync.offer import StateOffer, StateSnapshot
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.session.rpc import Reply
    from heliograph.links.session.wire_events import EventWriter

SNAPSHOT: Final = "state"
MARKS: Final = "state-marks"
MAX_SNAPSHOTS: Final = 16
"""Snapshots that wait for one station to fetch them."""

Marks = list[tuple[Name, Count, Count]]


class StateAsk(msgspec.Struct, array_like=True):
    channel: Name
    rest: Count = 0
    count_only: bool = False


class StateTold(msgspec.Struct, array_like=True):
    page: Page
    marks: Marks
    rest: Count
    rows: Annotated[int, Meta(ge=0)] = 0


_ask: Final = msgspec.msgpack.Decoder(StateAsk).decode
_told: Final = msgspec.msgpack.Decoder(StateTold).decode
_marks: Final = msgspec.msgpack.Decoder(Marks).decode


class LinkedStates:
    """See the module. Both sides of it."""

    def __init__(
        self, mesh: Mesh, channel: Callable[[str], Channel[Any] | None], writer: EventWriter
    ) -> None:
        self._mesh = mesh
        self._channel = channel
        self._writer = writer
        self._numbers = count(1)
        self._rests: dict[int, dict[int, tuple[list[Item], Marks]]] = {}
        """By station, what is left of snapshots for it."""
        mesh.answer(SNAPSHOT, self._answer)
        mesh.answer(MARKS, self._answer_marks)
        mesh.on_left(lambda station: self._rests.pop(station, None))

    # In the station that asks

    def offers(self, channel: str) -> dict[int, int]:
        return {
            other.station: state.offered_state
            for other in self._mesh.stations()
            for state in other.channels
            if state.name == channel and state.offered_state
        }

    def meet(self, timeout: float) -> None:
        self._mesh.meet_all(timeout)

    def page(self, station: int, channel: Channel[Any], rest: int, timeout: float) -> StatePage:
        told = self._ask(station, StateAsk(channel.name, rest), timeout)
        reader = PageReader(channel.name, self._writer.clock, channel.qos.missing)
        found = reader.read(told.page, channel.types, f"{station:016x}")
        if found.refused:
            header, error = found.refused[0]
            channel.neighbours.unreadable(header.format_id, header, error)
        return StatePage(_as_dict(told.marks), found.items, told.rest)

    def rows(self, station: int, channel: Channel[Any], timeout: float) -> int:
        return self._ask(station, StateAsk(channel.name, count_only=True), timeout).rows

    def marks(self, station: int, channel: Channel[Any], timeout: float) -> dict[Source, int]:
        told = self._mesh.ask(station, MARKS, channel.name, timeout)
        return _as_dict(m.decoded(_marks, told, f"{station:016x}"))

    def _ask(self, station: int, ask: StateAsk, timeout: float) -> StateTold:
        return m.decoded(_told, self._mesh.ask(station, SNAPSHOT, ask, timeout), f"{station:016x}")

    # In the station that offers

    def _answer_marks(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        name = m.decoded(msgspec.msgpack.Decoder(Name).decode, body, f"{station:016x}")
        reply(_as_list(self._offer(name).marks()))

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = m.decoded(_ask, body, f"{station:016x}")
        if not ask.rest:
            self._offer(ask.channel).ask(partial(self._taken, station, ask, reply))
            return
        items, marks = self._rests.get(station, {}).pop(ask.rest, (None, []))
        if items is None:
            raise QueryFailed(f"state of {ask.channel}", "is not kept any more; ask for it anew")
        self._send(station, items, marks, reply)

    def _taken(
        self, station: int, ask: StateAsk, reply: Reply, snapshot: StateSnapshot | HeliographError
    ) -> None:
        if isinstance(snapshot, HeliographError):
            reply(snapshot)
        elif ask.count_only:
            reply(StateTold(Page([]), [], 0, len(snapshot.items)))
        else:
            self._send(station, snapshot.items, _as_list(snapshot.marks), reply)

    def _send(self, station: int, items: list[Item], marks: Marks, reply: Reply) -> None:
        page, taken = fitting_page(self._writer, items[:PAGE])
        rest = 0
        if taken < len(items):
            rest = next(self._numbers)
            waiting = self._rests.setdefault(station, {})
            while len(waiting) >= MAX_SNAPSHOTS:
                waiting.pop(next(iter(waiting)), None)
            waiting[rest] = (items[taken:], marks)
        reply(StateTold(page, marks, rest, len(items)))

    def _offer(self, name: str) -> StateOffer:
        channel = self._channel(name)
        if channel is not None and channel.admission is not None:
            channel.admission.check_group(None)  # who heals by state is in no group, and so is no member
        offer = None if channel is None else channel.offered_state
        if offer is None:
            raise QueryFailed(f"state of {name}", "is not offered here any more")
        return offer


def _as_list(marks: dict[Source, int]) -> Marks:
    return [(*source, mark) for source, mark in marks.items()]


def _as_dict(marks: Marks) -> dict[Source, int]:
    return {(supplier, epoch): mark for supplier, epoch, mark in marks}
