"""Parameters of a channel: values that receivers set and a source's generator reads (ECho's proto-channels).

    # the source
    camera.parameters.declare(rate=hg.Parameter(10.0, minimum=1.0, maximum=60.0, policy="max"))
    while running: make_frame(); sleep(1 / camera.parameters["rate"])

    # a receiver
    camera.parameters.set(rate=2.0, by="display-1")

The station that declares a parameter keeps what others ask for: one request for each setter, by its name.
The *policy* makes one value of all of them: the last that came, the largest or the smallest; without any it
is the default. A request stays while the station that made it is there and has the channel, and `lease`
seconds longer: a setter that was started again within that time takes its own request up, one that died is
forgotten. Setters say again what they want when a source comes back.

`ParameterBook` decides; it is told the time and does nothing by itself. `ChannelParameters` is what users
reach as `channel.parameters`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

import msgspec

from heliograph.errors import NoParameters, NotPossible, ParameterRefused
from heliograph.errors.sentences import listed
from heliograph.model.formats import MAX_NAME
from heliograph.runtime.ports import seconds_until
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext

log = logging.getLogger(__name__)

ParameterValue: TypeAlias = bool | int | float | str
Policy: TypeAlias = Literal["last", "max", "min"]
Who: TypeAlias = Literal["anyone", "consumers", "owner"]

SET_TIMEOUT: Final = 5.0
"""Seconds to wait for a source, and for its answer."""
MAX_TEXT: Final = 4_096
"""Characters of a value that is text."""
MAX_PARAMETERS: Final = 100
"""Parameters of a channel, and values of one request."""
MAX_SETTERS: Final = 1_000
"""Requests for one parameter."""
HERE: Final = ""
"""The station that declares, among those who ask."""


class Parameter(msgspec.Struct, frozen=True):
    """How a parameter is declared; its type is that of the default: bool, int, float or str."""

    default: ParameterValue
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[ParameterValue, ...] | None = None
    """If given, the only values that it may have."""
    policy: Policy = "last"
    """Which of several requests holds."""
    who: Who | tuple[str, ...] = "consumers"
    """Who may set it: stations that have receivers of the channel, any station, only the one that declares
    it, or stations of these names."""
    lease: float = 5.0
    """Seconds that a request holds after the station of its setter has gone."""

    def why_not(self, value: Any) -> str:
        """Why it cannot have a value; empty when it can."""
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            return f"is {wanted.__name__}, not {value!r:.60}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"is finite, not {value}"
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return f"has at most {MAX_TEXT} characters, not {len(value)}"
        if self.choices is not None and value not in self.choices:
            return f"is one of {listed([repr(choice) for choice in self.choices])}, not {value!r:.60}"
        if self.minimum is not None and not isinstance(value, str) and value < self.minimum:
            return f"is at least {self.minimum:g}, not {value!r}"
        if self.maximum is not None and not isinstance(value, str) and value > self.maximum:
            return f"is at most {self.maximum:g}, not {value!r}"
        return ""

    def check(self, channel: str, name: str) -> None:
        """NotPossible for a declaration that makes no sense."""
        said = f"parameter {name!r}"
        if type(self.default) not in (bool, int, float, str):
            raise NotPossible(
                channel, f"{said}: its default is a bool, int, float or str, not {self.default!r:.60}"
            )
        if self.policy not in get_args(Policy):
            raise NotPossible(
                channel, f"{said}: policy={self.policy!r}: allowed are {', '.join(get_args(Policy))}"
            )
        if isinstance(self.who, str) and self.who not in get_args(Who):
            raise NotPossible(
                channel,
                f"{said}: who={self.who!r}: allowed are {', '.join(get_args(Who))} and a tuple of names",
            )
        if not self.lease >= 0:
            raise NotPossible(channel, f"{said}: lease={self.lease!r}: seconds, from 0 on")
        if why := self.why_not(self.default):
            raise NotPossible(channel, f"{said}: its default {why}")


class ParameterRequest(msgspec.Struct, frozen=True):
    """What one setter asks for."""

    setter: str
    value: ParameterValue
    set_ts: int
    """When it was last set, in ns since 1970 by the clock of the source."""
    lapses: bool = False
    """Whether its station has gone, so that it holds for the lease only."""


class ParameterState(msgspec.Struct, frozen=True):
    """A parameter at one instant, as its source has it."""

    value: ParameterValue
    declared: Parameter
    set_by: str | None = None
    """Whose request holds; None: the default does."""
    set_ts: int | None = None
    requests: tuple[ParameterRequest, ...] = ()


class _Held:
    """A request, and which station made it."""

    __slots__ = ("number", "request", "station", "until")

    def __init__(self, request: ParameterRequest, station: str, number: int) -> None:
        self.request = request
        self.station = station
        self.number = number
        self.until: int | None = None
        """The monotonic instant at which it lapses; None: its station is there."""


class ParameterBook:
    """What is declared and asked for; see the module. Each call returns the names whose value has changed."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._declared: dict[str, Parameter] = {}
        self._held: dict[str, dict[str, _Held]] = {}
        self._numbers = 0
        self.refused = 0
        """Requests that were."""

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def declare(self, name: str, parameter: Parameter) -> None:
        parameter.check(self._channel, name)
        if name in self._declared and self._declared[name] != parameter:
            raise NotPossible(self._channel, f"parameter {name!r} is declared otherwise already")
        if len(self._declared) >= MAX_PARAMETERS:
            raise NotPossible(self._channel, f"a channel has at most {MAX_PARAMETERS} parameters")
        self._declared[name] = parameter
        self._held.setdefault(name, {})

    def request(
        self, setter: str, station: str, values: Mapping[str, Any], may: Callable[[Parameter], str], now: int
    ) -> set[str]:
        """Take in what a setter asks for, all or nothing; None for a value takes its request back.

        Args:
            setter: by name.
            station: which it is of.
            values: by the names of parameters.
            may: why a setter may not set a parameter; empty when it may.
            now: ns since 1970.
        """
        for name, value in values.items():
            why = self._why_not(name, setter, station, value, may)
            if why:
                self.refused += 1
                raise ParameterRefused(self._channel, name, setter, why)
        before = {name: self._value(name) for name in values}
        for name, value in values.items():
            if value is None:
                self._held[name].pop(setter, None)
                continue
            self._numbers += 1
            kept = float(value) if type(self._declared[name].default) is float else value
            self._held[name][setter] = _Held(ParameterRequest(setter, kept, now), station, self._numbers)
        return {name for name, value in before.items() if self._value(name) != value}

    def _why_not(
        self, name: str, setter: str, station: str, value: Any, may: Callable[[Parameter], str]
    ) -> str:
        declared = self._declared.get(name)
        if declared is None:
            return f"is not declared there; declared: {listed(list(self._declared))}"
        if why := may(declared):
            return why
        held = self._held[name].get(setter)
        if held is not None and held.station != station and held.until is None:
            return f"is set under that name by station {held.station or 'that declares it'}, which is there"
        if held is None and len(self._held[name]) >= MAX_SETTERS:
            return f"is set by {MAX_SETTERS} already"
        return "" if value is None else declared.why_not(value)

    def station_left(self, station: str, monotonic: int) -> float | None:
        """What it asked for holds for the lease; in how many seconds the first of it lapses."""
        leases = []
        for name, held in self._held.items():
            for one in held.values():
                if one.station == station and one.until is None:
                    lease = self._declared[name].lease
                    one.until = monotonic + round(lease * 1e9)
                    one.request = msgspec.structs.replace(one.request, lapses=True)
                    leases.append(lease)
        return min(leases, default=None)

    def lapse(self, monotonic: int) -> tuple[set[str], float | None]:
        """Forget what has lapsed; the names that changed, and in how many seconds the next lapses."""
        changed: set[str] = set()
        left: list[float] = []
        for name, held in self._held.items():
            before = self._value(name)
            for setter in [s for s, one in held.items() if one.until is not None and one.until <= monotonic]:
                del held[setter]
            left += [(one.until - monotonic) / 1e9 for one in held.values() if one.until is not None]
            if self._value(name) != before:
                changed.add(name)
        return changed, min(left, default=None)

    def state(self, name: str) -> ParameterState:
        held = self._winner(name)
        return ParameterState(
            self._value(name),
            self._declared[name],
            None if held is None else held.request.setter,
            None if held is None else held.request.set_ts,
            tuple(one.request for one in sorted(self._held[name].values(), key=lambda one: one.number)),
        )

    def value(self, name: str) -> ParameterValue:
        return self._value(name)

    def _winner(self, name: str) -> _Held | None:
        held, policy = self._held[name].values(), self._declared[name].policy
        if not held:
            return None
        if policy == "last":
            return max(held, key=lambda one: one.number)
        sign = 1 if policy == "max" else -1
        ranked: Any = [(one.request.value, one.number) for one in held]
        wanted = max(ranked) if sign > 0 else min(ranked, key=lambda pair: (pair[0], -pair[1]))
        return next(one for one in held if (one.request.value, one.number) == wanted)

    def _value(self, name: str) -> ParameterValue:
        held = self._winner(name)
        return self._declared[name].default if held is None else held.request.value


class Asking(NamedTuple):
    """The station that a request comes from, as its link knows it."""

    station: str
    name: str = ""
    has_receivers: bool = False
    """Whether it has receivers of the channel, or of one that is derived from it."""


def _why_not_by(asking: Asking, parameter: Parameter) -> str:
    """Why a station may not set a parameter; empty when it may."""
    who = parameter.who
    if who == "anyone" or asking.station == HERE:
        return ""
    if who == "owner":
        return "may be set by the station that declares it only"
    if who == "consumers":
        needed = "may be set by stations that have receivers of the channel, and this has none"
        return "" if asking.has_receivers else needed
    is_named = asking.name and asking.name in who
    return "" if is_named else f"may be set by {listed(list(who))} only, and this is {asking.name or 'none'}"


class RemoteParameters(Protocol):
    """The parameters that linked stations declare; see `heliograph.links.services.parameters`."""

    def sources(self, channel: str, timeout: float) -> list[int]:
        """The stations that declare any, waiting up to so many seconds for the first."""
        ...

    def set(
        self, station: int, channel: str, setter: str, values: Mapping[str, Any], timeout: float
    ) -> None: ...

    def get(self, station: int, channel: str, timeout: float) -> dict[str, ParameterState]: ...

    def asking(self, channel: str, setter: str) -> AbstractContextManager[None]:
        """Within it, what the setter asked for before is not said to anybody."""
        ...

    def keep(self, channel: str, setter: str, values: Mapping[str, Any], told: Iterable[int]) -> None:
        """Say this to sources that come later, too."""
        ...

    def forget(self, channel: str) -> None:
        """Say nothing more of a channel, and to its sources that what was asked for is to lapse."""
        ...


class ChannelParameters:
    """Reached as `channel.parameters`; see the module."""

    def __init__(self, channel: Channel[Any], services: ChannelContext) -> None:
        self._channel = channel
        self._services = services
        self._remote: RemoteParameters | None = services.remote_parameters
        self._lock = channel.ports.tasks.lock(f"parameters of {channel.name}")
        self._book = ParameterBook(channel.name)
        self._callbacks: list[Callable[[str, ParameterValue], object]] = []
        self._news: deque[tuple[str, ParameterValue]] = deque()
        self._is_telling = False
        self._setters: set[str] = set()

    # The source

    def declare(self, **parameters: Parameter) -> ChannelParameters:
        """Say which parameters this station's suppliers go by; see `Parameter`."""
        for name, parameter in parameters.items():
            if not isinstance(parameter, Parameter):
                raise TypeError(f"{name}= is hg.Parameter(default, ...), not {parameter!r:.60}")
        with self._lock:
            for name, parameter in parameters.items():
                self._book.declare(name, parameter)
        self._services.changed(self._channel)
        return self

    def __getitem__(self, name: str) -> ParameterValue:
        """The value that holds now, of a parameter that is declared here."""
        with self._lock:
            if name not in self._book:
                raise KeyError(name)
            return self._book.value(name)

    def __len__(self) -> int:
        """How many are declared here."""
        return len(self._book)

    def on_change(self, callback: Callable[[str, ParameterValue], object]) -> Callable[..., object]:
        """Call a function with the name and the value of each parameter whose value has changed, one at a
        time.

        In a task of the station; also as a decorator.
        """
        self._callbacks.append(callback)
        return callback

    @property
    def refused(self) -> int:
        """Requests that this station has refused."""
        return self._book.refused

    # Receivers

    def set(
        self,
        values: Mapping[str, ParameterValue] | None = None,
        /,
        *,
        by: str | None = None,
        timeout: float = SET_TIMEOUT,
        **named: ParameterValue,
    ) -> None:
        """Ask the sources of the channel for these values, all or nothing at each source.

        Args:
            values: by name; `named` are the same.
            by: the name of the setter, under which it can go on after a restart; else the station is it.
            timeout: seconds to wait for a source, and for its answer.
            **named: see `values`.

        Raises NoParameters when no station declares any, and ParameterRefused with the reason when a source
        does not take them.
        """
        wanted = {**(values or {}), **named}
        if not wanted:
            raise NotPossible(self._channel.name, "set() without a value: set(rate=2.0)")
        self._ask(wanted, by, timeout)

    def unset(self, *names: str, by: str | None = None, timeout: float = SET_TIMEOUT) -> None:
        """Take back what was set: the requests of others hold, or the default."""
        if not names:
            raise NotPossible(self._channel.name, "unset() without a name: unset('rate')")
        self._ask(dict.fromkeys(names), by, timeout)

    def get(self, timeout: float = SET_TIMEOUT) -> dict[str, ParameterState]:
        """The parameters with their values, who set them and when; of several sources, the first one's."""
        return next(iter(self.by_source(timeout).values()))

    def by_source(self, timeout: float = SET_TIMEOUT) -> dict[str, dict[str, ParameterState]]:
        """The same for each station that declares any, by its id; that of this station is ""."""
        check_timeout(self._channel.name, timeout, ends=True)
        found: dict[str, dict[str, ParameterState]] = {}
        if len(self._book):
            found[HERE] = self.states()
        elsewhere = self._sources(0.0 if found else timeout)
        for station in elsewhere:
            assert self._remote is not None
            found[f"{station:016x}"] = self._remote.get(station, self._channel.name, timeout)
        if not found:
            raise NoParameters(self._channel.name)
        return found

    def states(self) -> dict[str, ParameterState]:
        """Those that are declared here."""
        with self._lock:
            return {name: self._book.state(name) for name in self._book.names()}

    def _sources(self, timeout: float) -> list[int]:
        return [] if self._remote is None else self._remote.sources(self._channel.name, timeout)

    def _ask(self, values: Mapping[str, Any], by: str | None, timeout: float) -> None:
        check_timeout(self._channel.name, timeout, ends=True)
        if by is not None and not (type(by) is str and 0 < len(by) <= MAX_NAME):
            raise NotPossible(self._channel.name, f"by={by!r:.60}: text of 1 to {MAX_NAME} characters")
        if len(values) > MAX_PARAMETERS:
            raise NotPossible(self._channel.name, f"at most {MAX_PARAMETERS} values at once")
        setter = by or self._services.station
        clock = self._channel.ports.clock
        until = clock.monotonic_ns() + round(timeout * 1e9)
        is_source = len(self._book) > 0
        if is_source:
            self.take_in(setter, Asking(HERE), values)
        stations = self._sources(0.0 if is_source else timeout)
        if not stations and not is_source:
            raise NoParameters(self._channel.name)
        if self._remote is None:
            return
        # Before it is known whether a source takes it: what one of them took is taken back on closing.
        self._setters.add(setter)
        with self._remote.asking(self._channel.name, setter):
            for station in stations:
                left = max(0.05, seconds_until(clock, until))
                self._remote.set(station, self._channel.name, setter, values, left)
            self._remote.keep(self._channel.name, setter, values, stations)

    # For links

    def take_in(self, setter: str, asking: Asking, values: Mapping[str, Any]) -> None:
        """A setter of a station asks for values; ParameterRefused says why not."""
        may = partial(_why_not_by, asking)
        now = self._channel.ports.clock.time_ns()
        try:
            with self._lock:
                changed = self._book.request(setter, asking.station, values, may, now)
                self._note(changed)
        except ParameterRefused as error:
            log.warning("%s", error)
            raise
        self._tell_soon()

    def station_left(self, station: str) -> None:
        """A linked station has gone."""
        with self._lock:
            seconds = self._book.station_left(station, self._channel.ports.clock.monotonic_ns())
        if seconds is not None:
            self._services.timers.after(seconds, self._lapse)

    def _lapse(self) -> None:
        with self._lock:
            changed, seconds = self._book.lapse(self._channel.ports.clock.monotonic_ns())
            self._note(changed)
        if seconds is not None:
            self._services.timers.after(seconds, self._lapse)
        self._tell_soon()

    def _note(self, changed: AbstractSet[str]) -> None:
        if self._callbacks:
            self._news.extend((name, self._book.value(name)) for name in sorted(changed))

    def _tell_soon(self) -> None:
        with self._lock:
            if self._is_telling or not self._news:
                return
            self._is_telling = True
        self._channel.ports.tasks.spawn_soon(f"parameters of {self._channel.name}", self._tell)

    def _tell(self) -> None:
        while True:
            with self._lock:
                if not self._news:
                    self._is_telling = False
                    return
                name, value = self._news.popleft()
            for callback in tuple(self._callbacks):
                try:
                    callback(name, value)
                except Exception as error:  # noqa: BLE001 - whatever a callback raises stays with it
                    self._channel.report(f"parameters of {self._channel.name}", None, error)

    def close(self) -> None:
        """The channel is closed here: what was set from here holds for the lease, as after a death."""
        if self._remote is not None and self._setters:
            self._remote.forget(self._channel.name)
