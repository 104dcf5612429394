"""The forwarding rule: to which gateways an event goes on, by where it was pushed.

| pushed | goes on to |
|---|---|
| in this station | all gateways but those taps |
| in another station | relays, but for the one behind which it was pushed |
| in one that derives nothing | the same, and taps of what is asked for here |

Every station sends what was pushed there to all who want it, so what came from one goes to no other: in a
full mesh no event comes twice, and none runs in circles. A relay is a gateway to a worker of this station
that asked to have others' events by way of this station, and asks those for nothing.

Receivers of this station get an event wherever it was pushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Origin(NamedTuple):
    """Where what a supplier brings was pushed."""

    is_here: bool
    """Whether in this station."""
    worker: object | None = None
    """If elsewhere: the worker of this station behind which it was, if any."""
    is_derived_here: bool = False
    """If elsewhere: whether that station derives nothing for others, so that this one does."""


HERE: Final = Origin(is_here=True)
ELSEWHERE: Final = Origin(is_here=False)


class Relay(Protocol):
    """A gateway that gets what other stations push, too."""

    @property
    def name(self) -> str: ...

    @property
    def relayed(self) -> Any:
        """What is wanted behind it, in the words of links."""
        ...


class Forwarding:
    """See the module. Changed while the channel is still."""

    def __init__(self) -> None:
        self._relays: dict[str, tuple[Relay, object]] = {}
        self._taps: dict[str, Callable[[], bool]] = {}

    def relay(self, gateway: Relay, worker: object) -> None:
        """A gateway gets what other stations push, but not what comes from its worker."""
        self._relays[gateway.name] = (gateway, worker)

    def forget(self, gateway: str) -> None:
        """It gets that no longer."""
        self._relays.pop(gateway, None)
        self._taps.pop(gateway, None)

    def tap(self, name: str, is_asked: Callable[[], bool]) -> None:
        """A gateway derives what stations bring that do not, while programs of this station ask for it."""
        self._taps[name] = is_asked

    def asked_taps(self) -> set[str]:
        return {name for name, is_asked in self._taps.items() if is_asked()}

    def relays(self, apart_from: object | None = None) -> tuple[Relay, ...]:
        """The gateways that get it, but for those of one worker."""
        return tuple(gateway for gateway, worker in self._relays.values() if worker is not apart_from)

    def goes_on_to(self, gateways: Iterable[str], origin: Origin) -> list[str]:
        """Those of these gateways that get what was pushed there."""
        if origin.is_here:
            return [name for name in gateways if name not in self._taps]
        taps = self.asked_taps() if origin.is_derived_here else ()
        return [name for name in gateways if name in taps or self._passes(name, origin)]

    def _passes(self, gateway: str, origin: Origin) -> bool:
        relay = self._relays.get(gateway)
        return relay is not None and relay[1] is not origin.worker
