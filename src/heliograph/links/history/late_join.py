"""Late join: fetches the history that other stations hold in memory, for a receiver that joins here.

A station keeps what was pushed in it, for as long as the supplier (transient-local) or the station
(transient) lives. A receiver that joins gets it from every station that is linked, and later from each one
that is met; `heliograph.channel.queueing.history_merge` makes the seam to what is live. Interest goes over
the same queue as the question, before it: so what is pushed after the answer was made up comes live.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.history.memory import meets
from heliograph.errors import BadFrame, FormatError, QueryFailed
from heliograph.links.history.pages import Page, PageReader, fitting_page
from heliograph.links.session import messages as m
from heliograph.model.event import Count, Name  # noqa: TC001 - msgspec reads them at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.history_merge import LateJoin
    from heliograph.channel.queueing.queue import Item
    from heliograph.links.history.server import Wanted
    from heliograph.links.session.link import Link
    from heliograph.links.session.rpc import Reply, Rpc
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import EventId
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

KEPT_LIMIT: Final = 5.0
"""Seconds for a station to give out what it has kept; then a late joiner goes on without."""
KEPT_AT_ONCE: Final = 1_024
"""Events of one page of it."""


class KeptAnswer(msgspec.Struct, array_like=True):
    """A page of what a station has kept."""

    page: Page
    floors: list[tuple[Name, Count, Count]]
    """Supplier, epoch and last sequence, at the instant when it was looked up."""
    rest: Count
    """What to ask for to get the next page; 0: there is none."""


class KeptAsk(msgspec.Struct, array_like=True):
    channel: Name
    rest: Count = 0


_kept: Final = msgspec.msgpack.Decoder(KeptAnswer).decode
_kept_ask: Final = msgspec.msgpack.Decoder(KeptAsk).decode


class LateJoinFetcher:
    """See the module. Both sides of it.

    Args:
        wanted: tells what a station wants of a channel.
        to_come: tells which events will be sent to a station that were pushed before it was ready for them.
    """

    def __init__(
        self,
        questions: Rpc,
        channel: Callable[[str], Channel[Any] | None],
        writer: EventWriter,
        *,
        wanted: Wanted,
        to_come: Callable[[int, str], Collection[EventId]],
        tasks: Tasks,
    ) -> None:
        self._questions = questions
        self._channel = channel
        self._writer = writer
        self._wanted = wanted
        self._to_come = to_come
        self._tasks = tasks
        self._lock = tasks.lock("kept elsewhere")
        self.fetching = 0
        """Stations that have been asked, and are waited for."""
        self._numbers = count(1)
        self._rests: dict[tuple[int, int], list[Item]] = {}
        questions.answer("kept", self._answer)
        questions.on_left(self._station_left)

    # In the station that has kept something

    def _station_left(self, station: int) -> None:
        """Nobody will ask for the rest."""
        for key in [key for key in self._rests if key[0] == station]:
            self._rests.pop(key, None)

    def _answer(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = _kept_ask(body)
        channel, conditions = self._channel(ask.channel), self._wanted(station, ask.channel)
        items: list[Item] = []
        floors: dict[tuple[str, int], int] = {}
        if ask.rest:
            items = self._rests.pop((station, ask.rest), [])
        elif channel is not None and conditions is not None:
            to_come = partial(self._to_come, station, ask.channel)
            items, floors = channel.neighbours.kept(conditions, to_come)
        page, taken = fitting_page(self._writer, items[:KEPT_AT_ONCE])
        rest = 0
        if taken < len(items):
            rest = next(self._numbers)
            self._rests[station, rest] = items[taken:]
        reply(KeptAnswer(page, [(*supplier, last) for supplier, last in floors.items()], rest))

    # In the station where somebody joins

    def fetch(self, channel: Channel[Any], late: list[LateJoin], links: list[Link]) -> None:
        """Have queues hold what is live until these stations have given out what they kept."""
        for link in links:
            held = [one for one in late if one.hold(link.station)]
            if held:
                with self._lock:
                    self.fetching += 1
                self._tasks.spawn_soon(f"kept of {channel.name}", partial(self._fetch, channel, held, link))

    def _fetch(self, channel: Channel[Any], late: list[LateJoin], link: Link) -> None:
        items: list[Item] = []
        floors: dict[tuple[str, int], int] = {}
        try:
            items, floors = self._ask(channel, link)
        except (QueryFailed, BadFrame, FormatError) as error:
            log.warning("what station %s has kept of %s is missing: %s", link.called, channel.name, error)
        finally:
            wants = channel.neighbours.late_joiners()
            for one in late:
                conditions = wants.get(one, {})
                channel.neighbours.release(one, [i for i in items if meets(conditions, i)], floors)
            with self._lock:
                self.fetching -= 1

    def _ask(self, channel: Channel[Any], link: Link) -> tuple[list[Item], dict[tuple[str, int], int]]:
        reader = PageReader(channel.name, self._writer.clock, channel.qos.missing)
        items: list[Item] = []
        left: dict[tuple[str, int], int] = {}
        ask, floors = KeptAsk(channel.name), dict[tuple[str, int], int]()
        while True:
            answer = m.decoded(_kept, self._questions.ask(link, "kept", ask, KEPT_LIMIT), link.name)
            found, refused = reader.read(answer.page, channel.types, link.name)
            items += found
            if refused:
                header, error = refused[0]
                channel.neighbours.unreadable(header.format_id, header, error)
            floors.update({(supplier, epoch): last for supplier, epoch, last in answer.floors})
            if not answer.rest:
                break
            ask = KeptAsk(channel.name, answer.rest)
        # A supplier that has left is in no list, but some of its events may still be on their way.
        for _, header, _ in items:
            who = (header.supplier, header.epoch)
            left[who] = max(left.get(who, 0), header.sequence)
        return items, {**left, **floors}
