"""What a supplier offers: its current state, as a function tells it or as the latest event of each key.

    tracks.state(lambda: table.values())        # called when a receiver asks
    tracks.state("latest")                      # what this station pushed last of each key

A snapshot says how far each supplier of this station was when it was taken (its marks): all that was pushed
up to there is in it. With a function that holds for programs that change their state first and push then. The
function runs in a task of its own, and once for all who ask at the same time.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from heliograph.channel.resync.machine import MAX_AHEAD, MAX_KEYS, Numbers
from heliograph.errors import Closed, HeliographError, NotPossible, StateFailed, WrongEventType
from heliograph.model.event import DELAYED_EPOCHS, Event, Header, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from heliograph.channel.channel import Channel
    from heliograph.channel.queueing.queue import Item
    from heliograph.channel.resync.machine import Source

StateSource: TypeAlias = "Callable[[], Iterable[Event]] | Literal['latest']"
STATE_SUFFIX: Final = "-state"
"""How the supplier in the header of a row ends that is of no single event."""

FEW_SOURCES: Final = 1_000
"""Suppliers of one station that are remembered though they are closed."""

_NUMBERS: Final = count(1)


class StateSnapshot(NamedTuple):
    """The state of a station's suppliers."""

    marks: dict[Source, int]
    items: list[Item]


Told: TypeAlias = "Callable[[StateSnapshot | HeliographError], object]"


def key_of(header: Header) -> Hashable:
    """By what two events are about the same."""
    return header.type, header.key


class StateOffer:
    """Made by `Channel.state`."""

    def __init__(
        self, channel: Channel[Any], source: StateSource, supplier: str, forget: Callable[[], object]
    ) -> None:
        if source != "latest" and not callable(source):
            raise NotPossible(
                channel.name, f"state({source!r:.60}): 'latest', or a function that returns events"
            )
        self._channel = channel
        self._source = source
        self._forget = forget
        self._lock = channel.ports.tasks.lock(f"state of {channel.name}")
        self._asked: list[Told] = []
        self._is_running = False
        self._latest: dict[Hashable, Item] = {}
        self._numbers: dict[Source, Numbers] = {}
        self._receiver: Any = None
        self._supplier = supplier + STATE_SUFFIX
        self._own_names = supplier.rpartition("-")[0] + "-"
        """How the names begin of this station's suppliers that were given none."""
        self._named: set[Source] = set()
        """Those that were, as far as they are known."""
        self.number = next(_NUMBERS)
        """Tells this offer from one before it."""
        self.is_closed = False
        self.snapshots = 0
        """How many were taken."""
        if source == "latest":
            keyless = [info_of(cls).name for cls in channel.types if not info_of(cls).key]
            if keyless:
                raise NotPossible(
                    channel.name, f"state('latest') goes by keys, and {keyless[0]!r} has none: key=..."
                )
            inline = not channel.qos.journalled and channel.monitor is None
            self._receiver = channel.subscribe(self._keep, inline=inline)

    def close(self) -> None:
        """Offer nothing more."""
        with self._lock:
            self.is_closed = True
        if self._receiver is not None:
            self._receiver.close()
        self._forget()

    def ask(self, told: Told) -> None:
        """Have a snapshot told, in a task of its own."""
        with self._lock:
            self._asked.append(told)
            starts, self._is_running = not self._is_running, True
        if starts:
            self._channel.ports.tasks.spawn_soon(f"state of {self._channel.name}", self._tell_all)

    def marks(self) -> dict[Source, int]:
        """How far each supplier of this station is."""
        if callable(self._source):
            return self._channel.pushed_by_suppliers()
        with self._lock:
            if len(self._numbers) > FEW_SOURCES:
                self._forget_closed()
            return {source: numbers.low for source, numbers in self._numbers.items()}

    def _tell_all(self) -> None:
        while True:
            with self._lock:
                asked, self._asked = self._asked, []
                if not asked:
                    self._is_running = False
                    return
            taken = self._taken()
            for told in asked:
                told(taken)

    def _taken(self) -> StateSnapshot | HeliographError:
        self.snapshots += 1
        try:
            return Closed(f"state of {self._channel.name}") if self.is_closed else self._take()
        except HeliographError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever the user's function raised is for the one who asked
            self._channel.report(f"state of {self._channel.name}", None, error)
            return StateFailed(self._channel.name, type(error).__name__, str(error)[:500])

    def _take(self) -> StateSnapshot:
        if not callable(self._source):
            with self._lock:
                marks = {source: numbers.low for source, numbers in self._numbers.items()}
                return StateSnapshot(marks, list(self._latest.values()))
        marks = self.marks()  # first: what is pushed while the function runs comes by itself
        items = []
        for event in self._source():
            items.append((event, self._header(event), 0))
            if len(items) > MAX_KEYS:
                raise NotPossible(self._channel.name, f"a state of more than {MAX_KEYS:,} rows")
        return StateSnapshot(marks, items)

    def _header(self, event: Any) -> Header:
        if type(event) not in self._channel.types:
            raise WrongEventType(self._channel.name, f"{event!r:.60}", self._channel.type_names)
        info = info_of(type(event))
        return Header(
            self._channel.name,
            info.name,
            self._supplier,
            1,
            0,
            self._channel.ports.clock.time_ns(),
            info.format.id,
            key=tuple(getattr(event, name) for name in info.key),
        )

    def _keep(self, event: Event, header: Header) -> None:
        source, key = (header.supplier, header.epoch), key_of(header)
        if header.epoch >= DELAYED_EPOCHS or (header.hops and not self._is_own(source)):
            return  # put off, and of no order; or pushed by another station, which has a state of its own
        with self._lock:
            numbers = self._numbers.get(source)
            if numbers is None:
                numbers = self._numbers[source] = Numbers(header.sequence - 1)
            numbers.add(header.sequence)
            if len(numbers.above) > MAX_AHEAD:
                numbers.raise_to(numbers.expected)
            before = self._latest.get(key)
            is_older = (
                before is not None
                and (before[1].supplier, before[1].epoch) == source
                and before[1].sequence > header.sequence
            )
            if not is_older and (before is not None or len(self._latest) < MAX_KEYS):
                self._latest[key] = (event, header, 0)

    def _is_own(self, source: Source) -> bool:
        """Whether events that came over a link are of this station: where another one keeps them, all do."""
        if source[0].startswith(self._own_names) or source in self._named:
            return True
        if self._channel.store is None or self._channel.store.kept_here:
            return False
        self._named = set(self._channel.pushed_by_suppliers())
        return source in self._named

    def _forget_closed(self) -> None:
        """Forget how far suppliers were that are closed and have made no row what it is. Under the lock."""
        rows = {(header.supplier, header.epoch) for _, header, _ in self._latest.values()}
        last = list(self._numbers)[-FEW_SOURCES // 2 :]
        kept = rows.union(last)
        self._numbers = {source: one for source, one in self._numbers.items() if source in kept}


def as_row(header: Header) -> Header:
    """The header of a row as a receiver sees it."""
    return msgspec.structs.replace(header, redelivered=True)
