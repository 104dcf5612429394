"""Opens derived channels: for programs of this station, and for other stations that have asked.

A derived channel is open in a station that has the original open while a program here has asked for it
(`channel.derive`) or any linked station says that one there has. It is closed with the original, or when
nobody asks for it any more.

What another station asks for is data that has been rebuilt node by node within the limits of the parser; it
is checked here against this station's own class, as if it had been written here, and there are at most `MOST`
at a time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.derived_channel import DerivedChannel, Derives
from heliograph.channel.routing.forwarding import ELSEWHERE, HERE
from heliograph.channel.selection import ReceiverOptions, parsed
from heliograph.delivery.records import RESERVED
from heliograph.derived.failure_reports import FailureReports
from heliograph.derived.store import DerivedStore
from heliograph.derived.tap import Tap
from heliograph.derived.transform import Transform
from heliograph.errors import Closed, HeliographError, NotPossible
from heliograph.errors.sentences import station_text
from heliograph.links.interest.derivation_wire import read_derivation
from heliograph.links.session.rpc import reply_apart
from heliograph.model.event import Event, info_of
from heliograph.qos.policies import QoS
from heliograph.runtime.task_pool import TaskPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext
    from heliograph.channel.history.store import HistoryStore, OnDurable
    from heliograph.channel.selection import Selection
    from heliograph.filters.derivation import CheckedDerivation, Derivation
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.runtime.ports import Tasks

log = logging.getLogger(__name__)

PREFIX: Final = f"{RESERVED}derived."
"""How the names of derived channels begin."""
LONGEST_ORIGINAL: Final = 200
"""Characters of the original's name in that of a derived channel."""
MOST: Final = 256
"""Derived channels that a station opens for others."""
TAPS: Final = 4
"""Taps that pass on at the same time what had to wait."""


class Derivations:
    """See the module.

    Args:
        services: what the station's channels share.
        open_channel: makes a channel of (name, class, QoS, services, what to do before others know of it).
        channel: a channel of this station by its name, or None.
        channels: all of them.
        mesh: knows what others ask for; None without a domain.
    """

    def __init__(  # noqa: PLR0917 - what it puts together
        self,
        services: Callable[[], ChannelContext],
        open_channel: Callable[..., Channel[Any]],
        channel: Callable[[str], Channel[Any] | None],
        channels: Callable[[], Iterable[Channel[Any]]],
        mesh: Mesh | None,
        tasks: Tasks,
    ) -> None:
        self._services = services
        self._open_channel = open_channel
        self._channel = channel
        self._channels = channels
        self._mesh = mesh
        self._tasks = tasks
        self._lock = tasks.lock("derived channels")
        self._pool = TaskPool(tasks, "taps", limit=TAPS)
        self._refused: set[str] = set()
        self._is_wanted = self._is_looking = self._is_closed = False
        self._looking = tasks.lock("look for derived channels")
        if mesh is not None:
            mesh.watch(self.look_soon)
            mesh.answer("derived.open", self._asked_to_open)

    def derive(
        self,
        original: Channel[Any],
        select: str,
        where: Any,
        params: Any,
        *,
        into: type[Event] | None,
        type: type[Event] | None,  # noqa: A002 - as in `Channel.derive`
        sources: Iterable[str] | None,
    ) -> DerivedChannel[Any]:
        """See `Channel.derive`."""
        from heliograph.filters.derivation import Derivation  # noqa: PLC0415 - loaded when somebody derives

        _check_derivable(original)
        cls = _type_of(original, type)
        projection, condition = _bound(select, where, params)
        only = None
        if sources is not None:
            only = tuple(sorted({sources} if isinstance(sources, str) else set(sources)))
        derivation = Derivation(original.name, info_of(cls).name, projection, condition, only)
        made = derivation.over(info_of(cls).format)
        with self._lock:
            known = self._channel(name_of(derivation))
            if known is not None and known.derives is not None and not known.closed:
                _check_same(known, into)
                known.derives.asked[0] = True
                channel = known
                self._derive_for_older(known)
            else:
                channel = self._open(original, cls, made, into, is_asked=True)
            assert channel.derives is not None
        if self._mesh is not None:
            self._mesh.tell(channel)
        return DerivedChannel(channel, channel.derives)

    def _open(
        self,
        original: Channel[Any],
        cls: type[Event],
        made: CheckedDerivation,
        into: type[Event] | None,
        *,
        is_asked: bool,
    ) -> Channel[Any]:
        """Under the lock."""
        derivation = made.derivation
        name = name_of(derivation)
        derived_cls = made.class_made() if into is None else made.class_into(into)
        selection = original.selected(**_options(derivation, cls))
        transform = Transform(derivation, name, derived_cls, FailureReports(original, name))
        qos = _qos(original.qos, has_key=bool(info_of(derived_cls).key))
        services = msgspec.structs.replace(
            self._services(), open_later=lambda *_: None, suspended=lambda _: None, observe=lambda *_: None
        )
        if original.store is not None:
            store = self._store_of(original, name, derivation, selection, transform)
            services = msgspec.structs.replace(services, open_store=store)
        before = original.stats().pushed
        taps: list[Tap] = []
        derives = Derives(
            derivation,
            original,
            selection,
            transform,
            lambda: original.stats().pushed - before,
            lambda timeout: all(tap.wait_idle(timeout) for tap in taps),
            [is_asked],
        )

        def begin(channel: Channel[Any]) -> None:
            channel.derives = derives

        channel = self._open_channel(name, derived_cls, qos, services, begin)
        original.neighbours.count_derived(channel, name)
        if original.store is None:
            inlet = channel.neighbours.inlet(f"derived from {original.name}", HERE)
            tap = Tap(original, f"derived {derivation.digest}", selection, transform, inlet, self._pool)
            taps.append(tap)
            original.neighbours.join_gateway(tap)
            self._derive_for_older(channel)
        return channel

    def _derive_for_older(self, channel: Channel[Any]) -> None:
        """Have this station derive what stations bring that do not, if it is asked for here."""
        derives, mesh = channel.derives, self._mesh
        if mesh is None or derives is None or not derives.is_asked or channel.store is not None:
            return
        if all(mesh.derives_there(other.station) for other in mesh.stations()):
            return
        original, derivation = derives.original, derives.derivation
        name = f"derived {derivation.digest} elsewhere"
        if any(receiver.name == name for receiver in original.receivers()):
            return
        cls = next(cls for cls in original.types if info_of(cls).name == derivation.type)
        inlet = channel.neighbours.inlet(f"derived from {original.name} elsewhere", ELSEWHERE)
        reports = FailureReports(original, channel.name)
        transform = Transform(derivation, channel.name, derives.transform.cls, reports)
        selection = original.selected(**_options(derivation, cls))
        tap = Tap(original, name, selection, transform, inlet, self._pool)
        original.neighbours.join_tap(tap, lambda: derives.is_asked)
        mesh.tell(original)

    def _store_of(
        self,
        original: Channel[Any],
        name: str,
        derivation: Derivation,
        selection: Selection,
        transform: Transform,
    ) -> Callable[..., HistoryStore]:
        kept = original.store
        assert kept is not None

        def open_store(channel: str, types: Any, on_durable: OnDurable, qos: QoS) -> Any:
            if not kept.kept_here:
                assert self._mesh is not None, "what is kept elsewhere is reached by a mesh"
                self._ask_keepers(derivation)
                return self._mesh.open_store(channel, types, on_durable, qos)
            store = DerivedStore(
                name, kept, selection.conditions, transform, on_durable, partial(self._has_receivers, name)
            )
            original.neighbours.tap(store.durable)
            return store

        return open_store

    def _has_receivers(self, name: str) -> bool:
        channel = self._channel(name)
        return channel is not None and bool(channel.receivers())

    def closed(self, channel: Channel[Any]) -> None:
        """A channel of this station has been closed: what is derived from it ends with it."""
        if channel.derives is not None:
            original = channel.derives.original
            original.neighbours.count_derived(None, channel.name)
            tap = f"derived {channel.derives.derivation.digest}"
            for receiver in original.receivers():
                if receiver.name.startswith(tap) and isinstance(receiver, Tap):
                    original.drop_receiver(receiver)
                    if self._mesh is not None:
                        self._mesh.tell(original, again=True)
            store = channel.store
            if isinstance(store, DerivedStore):
                original.neighbours.untap(store.durable)
        for derived in self.of(channel):
            self._tasks.spawn_soon(f"closes {derived.name}", derived.close)

    def of(self, original: Channel[Any]) -> list[Channel[Any]]:
        """The channels of this station that are derived from one."""
        return [
            one for one in self._channels() if one.derives is not None and one.derives.original is original
        ]

    # For other stations

    def _ask_keepers(self, derivation: Derivation) -> None:
        """Have the stations that keep the original open it; NotPossible says why one cannot."""
        mesh = self._mesh
        assert mesh is not None
        for station in mesh.stations():
            if any(s.name == derivation.channel and s.keeper is not None for s in station.channels):
                if not mesh.derives_there(station.station):
                    raise NotPossible(
                        derivation.channel,
                        f"station {station_text(station.station, station.name)}, which keeps it, is of a "
                        "version that derives nothing: read whole events, or start a newer version there",
                    )
                mesh.ask(station.station, "derived.open", derivation.as_data())

    def _asked_to_open(self, _: int, body: msgspec.Raw, reply: Callable[[Any], None]) -> None:
        derivation = read_derivation(msgspec.msgpack.decode(body), "another station")
        work = partial(self._open_for_others, derivation)
        reply_apart(self._tasks, f"derives of {derivation.channel}", reply, work)

    def _open_for_others(self, derivation: Derivation) -> None:
        original = self._channel(derivation.channel)
        if original is None or original.closed or self._is_closed:
            return
        cls = next((cls for cls in original.types if info_of(cls).name == derivation.type), None)
        if cls is None or original.derives is not None:
            return
        with self._lock:
            known = self._channel(name_of(derivation))
            if known is not None and not known.closed:
                return
            opened = [one for one in self._channels() if one.derives and not one.derives.is_asked]
            if len(opened) >= MOST:
                raise NotPossible(
                    derivation.channel, f"{MOST} channels are derived for other stations already"
                )
            _check_derivable(original)
            self._open(original, cls, derivation.over(info_of(cls).format), None, is_asked=False)

    def look_soon(self) -> None:
        """Others may ask for something else by now, or there is another channel here."""
        with self._looking:
            self._is_wanted = True
            if self._is_looking or self._is_closed:
                return
            self._is_looking = True
        self._tasks.spawn_soon("derived channels", self._look)

    def _look(self) -> None:
        while True:
            with self._looking:
                if not self._is_wanted or self._is_closed:
                    self._is_looking = False
                    return
                self._is_wanted = False
            try:
                self._fit()
            except HeliographError:
                log.exception("derived channels could not be opened or closed")

    def _fit(self) -> None:
        """Open what other stations ask for, and close what nobody asks for any more."""
        assert self._mesh is not None
        said = [
            read_derivation(state.derived.data, station.name)
            for station in self._mesh.stations()
            for state in station.channels
            if state.derived is not None and state.derived.asked
        ]
        asked = {name_of(derivation): derivation for derivation in said}
        for derivation in asked.values():
            try:
                self._open_for_others(derivation)
            except Closed:
                continue  # the channel or the station has just been closed, and nothing is to be derived
            except HeliographError as error:
                if derivation.digest not in self._refused:
                    self._refused.add(derivation.digest)
                    log.warning("%s is not derived here: %s", derivation, error)
        for channel in self._channels():
            if channel.derives is not None and not channel.derives.is_asked and channel.name not in asked:
                channel.close()
            elif channel.derives is not None and not channel.closed:
                with self._lock:
                    self._derive_for_older(channel)

    def close(self) -> None:
        with self._looking:
            self._is_closed = True
        self._pool.close()


def name_of(derivation: Derivation) -> str:
    """The name of a derived channel: that of the original, as far as there is room, and its digest."""
    return f"{PREFIX}{derivation.channel[:LONGEST_ORIGINAL].rstrip('.')}.{derivation.digest}"


def _check_derivable(original: Channel[Any]) -> None:
    if original.admission is not None:
        original.admission.check_group(None)  # what is derived would be open to everybody
    if original.derives is not None:
        raise NotPossible(original.name, "is derived itself: derive from the original, with both in one")
    if original.monitor is not None:
        raise NotPossible(
            original.name,
            "its pushes wait until receivers have acknowledged the event, and a derived one is another: "
            "derive from a channel without ack='delivered'",
        )


def _check_same(known: Channel[Any], into: type[Event] | None) -> None:
    assert known.derives is not None
    cls = known.derives.transform.cls
    if into is not None and into not in cls.__mro__:
        given = cls.__mro__[1].__qualname__ if cls.__mro__[1] is not Event else "a class made for it"
        raise NotPossible(
            known.name, f"is open with {given}, and all in one process share it: give the same into=, or none"
        )


def _type_of(original: Channel[Any], given: type[Event] | None) -> type[Event]:
    if given is not None:
        if given not in original.types:
            raise NotPossible(
                original.name, f"type={given!r:.60}: it carries {', '.join(original.type_names)}"
            )
        return given
    if len(set(original.type_names)) > 1:
        raise NotPossible(
            original.name, f"carries {', '.join(original.type_names)}: say type=, which of them is derived"
        )
    found: type[Event] = original.types[0]
    return found


def _bound(select: Any, where: Any, params: Any) -> tuple[Any, Any]:
    """Projection and filter with the values of both; each value must be used in one of them."""
    from heliograph.filters import params as values  # noqa: PLC0415 - loaded when somebody derives
    from heliograph.filters.parser import parse_projection  # noqa: PLC0415 - likewise

    if not isinstance(select, str):
        raise TypeError(f"select= is text such as 'id, speed * 1.852 AS kmh', not {select!r:.60}")
    projection = parse_projection(select)
    condition = None if where is None else parsed(where, None)
    if params is None:
        return projection, condition
    return values.bind_both(projection, condition, params)


def _options(derivation: Derivation, cls: type[Event]) -> ReceiverOptions:
    from heliograph.filters.build import Built  # noqa: PLC0415 - loaded when somebody derives

    options: ReceiverOptions = {"types": (cls,)}
    if derivation.where is not None:
        options["where"] = Built(derivation.where.tree)
    if derivation.sources is not None:
        options["sources"] = derivation.sources
    return options


def _qos(original: QoS, *, has_key: bool) -> QoS:
    """As the original, without what is about keeping and acknowledging."""
    overflow = original.overflow
    return msgspec.structs.replace(
        original,
        durability="persistent" if original.journalled else "volatile",
        history=QoS().history,
        lifespan=None,
        ack=None,
        ack_timeout=QoS().ack_timeout,
        resends=QoS().resends,
        dead_letter=None,
        compaction=QoS().compaction,
        tombstones=QoS().tombstones,
        delivery_records="off",
        overflow="drop_oldest" if overflow == "coalesce" and not has_key else overflow,
    )
