"""The trader: suppliers and services export themselves with properties, and others find them by description.

    export = station.trader.export("radar", "radar-1", channel="air.tracks", properties={"site": "north"})
    for offer in station.trader.query("kind = 'radar'", properties={"site": "north"}): ...
    export.withdraw()

There is no trader's process that could fail: each station offers what it has exported as the state of the
channel `_helio.trader` (`heliograph.channel.resync`), and a query asks all of them. So an offer is there
for as long as its station is, and is gone when its process is; with a lease also when it is not renewed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from heliograph.delivery.records import RESERVED
from heliograph.errors import NoOffer, NoState, NotPossible
from heliograph.model.event import Event
from heliograph.runtime.option_names import names_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.channel.channel import Channel

TRADER: Final = f"{RESERVED}trader"
MAX_TEXT: Final = 1_000
"""Characters of a kind, a name, a channel or a description."""
MAX_OFFERS: Final = 10_000
"""Offers of one station."""
TRADER_TIMEOUT: Final = 5.0
"""Seconds that a query waits for the stations of the domain."""


class Offer(Event, name="helio.offer", key="id"):
    """What somebody has exported."""

    id: str
    """Unique for ever."""
    kind: str
    """What sort of service it is, as programs agree: "radar", "prices"."""
    name: str
    station: str
    """Of the station that exported it."""
    channel: str = ""
    """Where it supplies, or answers."""
    description: str = ""
    properties: Any = None
    """A map of texts, numbers and truth values by name."""


class Export:
    """Made by `Trader.export`."""

    def __init__(self, trader: Trader, offer: Offer, lease: float | None) -> None:
        self.offer = offer
        self._trader = trader
        self._lease = lease
        self.until: int | None = None
        """When it is gone unless it is renewed, in nanoseconds of the monotonic clock; None: never."""
        self.renew()

    def renew(self) -> None:
        """Have a lease begin anew."""
        if self._lease is not None:
            self.until = self._trader.now() + round(self._lease * 1e9)

    def withdraw(self) -> None:
        """Offer it no more."""
        self._trader.withdraw(self)

    def __enter__(self) -> Export:
        return self

    def __exit__(self, *_: object) -> None:
        self.withdraw()


class Binding:
    """An offer that fits a description, and another one once that is gone; made by `Trader.bind`."""

    def __init__(self, find: Callable[[], list[Offer]], is_there: Callable[[Offer], bool], what: str) -> None:
        self._find = find
        self._is_there = is_there
        self._what = what
        self._offer: Offer | None = None
        self.rebound = 0
        """How often another offer took the place of one that was gone."""

    def offer(self) -> Offer:
        """The offer, looked for again if its station is gone; NoOffer when none fits."""
        if self._offer is None or not self._is_there(self._offer):
            found = self._find()
            if not found:
                raise NoOffer(self._what)
            self.rebound += self._offer is not None
            self._offer = found[0]
        return self._offer


class Trader:
    """See the module; reached as `station.trader`.

    Args:
        channel: `_helio.trader` of this station.
        station: its id, as text.
        new_id: makes an id that is unique for ever.
        stations: the ids of the stations that are there, this one among them.
    """

    def __init__(
        self,
        channel: Channel[Any],
        station: str,
        new_id: Callable[[], str],
        stations: Callable[[], set[str]],
    ) -> None:
        self._channel = channel
        self._station = station
        self._new_id = new_id
        self._stations = stations
        self._exports: dict[str, Export] = {}
        self._offered: Any = None
        self.now = channel.ports.clock.monotonic_ns

    @names_options
    def export(
        self,
        kind: str,
        name: str,
        *,
        channel: str = "",
        description: str = "",
        properties: Mapping[str, Any] | None = None,
        lease: float | None = None,
    ) -> Export:
        """Offer a service to all stations of the domain.

        Args:
            kind: what sort of service it is.
            name: of this one; need not be unique.
            channel: where it supplies, or answers questions.
            description: for people.
            properties: texts, numbers and truth values by name.
            lease: seconds after which it is gone unless `renew` is called; None: with its station.
        """
        texts: dict[str, Any] = {"kind": kind, "name": name, "channel": channel, "description": description}
        for option, value in texts.items():
            if (
                not isinstance(value, str)
                or len(value) > MAX_TEXT
                or (option in ("kind", "name") and not value)
            ):
                raise NotPossible(
                    "export", f"{option}={value!r:.60}: text of at most {MAX_TEXT:,} characters"
                )
        if lease is not None and (type(lease) not in (int, float) or not 0.01 <= lease <= 1e6):
            raise NotPossible("export", f"lease={lease!r:.60}: seconds from 0.01 on, or None")
        if len(self._exports) >= MAX_OFFERS:
            raise NotPossible("export", f"a station offers at most {MAX_OFFERS:,} services: withdraw() some")
        held: dict[Any, Any] = dict(properties or {})
        fits = (isinstance(key, str) and isinstance(value, str | int | float) for key, value in held.items())
        if not all(fits):
            allowed = "texts, numbers and truth values by name"
            raise NotPossible("export", f"properties={properties!r:.60}: {allowed}")
        offer = Offer(self._new_id(), kind, name, self._station, channel, description, held or None)
        made = self._exports[offer.id] = Export(self, offer, lease)
        if self._offered is None:
            self._offered = self._channel.state(self._offers)
        return made

    def withdraw(self, export: Export) -> None:
        self._exports.pop(export.offer.id, None)

    @names_options
    def query(
        self,
        where: str | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        timeout: float = TRADER_TIMEOUT,
    ) -> list[Offer]:
        """The offers of all stations that fit, by kind and name.

        Args:
            where: a filter over the fields of `Offer`, such as "kind = 'radar' AND name LIKE 'r%'".
            properties: all of them have these values.
            timeout: seconds to wait for the stations of the domain.
        """
        wanted = dict(properties or {}).items()
        try:
            found = self._channel.fetch_state(timeout, where=where)
        except NoState:
            return []
        fits = [offer for offer in found if wanted <= (offer.properties or {}).items()]
        return sorted(fits, key=lambda offer: (offer.kind, offer.name, offer.id))

    @names_options
    def bind(self, where: str | None = None, *, properties: Mapping[str, Any] | None = None) -> Binding:
        """An offer that fits, looked for again by itself when its station is gone."""
        if where is not None:
            self._channel.select(where=where)  # refused here, before anything is looked for
        return Binding(
            lambda: self.query(where, properties=properties),
            lambda offer: offer.station in self._stations(),
            f"{where or 'any'}{f' with {dict(properties)}' if properties else ''}",
        )

    def _offers(self) -> list[Offer]:
        now = self.now()
        for id_, export in tuple(self._exports.items()):
            if export.until is not None and export.until <= now:
                self._exports.pop(id_, None)
        return [export.offer for export in tuple(self._exports.values())]
