"""What a replayable pattern took in, as events of a channel of its own, and its matches, found again.

    station.subscribe(match, callback, name="storms", replayable=True)
    list(station.matches(match, name="storms"))              # what the callback was given, in that order
    list(station.matches(match, name="storms", key="north")) # of one key, from that key's rows alone

The machine that looks for matches is a function of its inputs. Each of them is a row of the persistent
channel `_helio.inputs.<name>`, in the order in which it was taken in (`station_seq`):

    connect   the pattern is subscribed to; what was before is forgotten
    event     of a stream: the place in its channel's history, and the instant that it counted as
    tick      time alone has passed, up to an instant
    evict     a key gave way because there were too many

The clock is that of the histories: an event counts as of its `append_ts`, and no earlier than what was taken
in before it. A match is given to the callback once the rows that led to it are durable.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from heliograph.correlate.machine import Correlator
from heliograph.correlate.pattern import After, AllOf, AnyOf, Every, Leaf, NoneOf, leaves_of
from heliograph.errors import HistoryGone, NotPossible
from heliograph.event import Event
from heliograph.qos import QoS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from heliograph.channel.core import Channel
    from heliograph.channel.services import Services
    from heliograph.channel.supplier import Receipt
    from heliograph.correlate.machine import Match
    from heliograph.correlate.pattern import Node, Pattern
    from heliograph.event import Header

INPUTS: Final = "_helio.inputs."
PAGE: Final = 512
"""Rows and events that are read at once."""
PAGES: Final = 16
"""Pages of events that are remembered: streams are read a little out of order where priorities differ."""
EVERY_KEY: Final = object()


class Input(Event, name="helio.input"):
    """One row; see the module."""

    kind: str
    at: int
    """The instant on the pattern's clock, in nanoseconds since 1970."""
    leaf: int = -1
    """Of an event: the stream it came by, counted from the left."""
    channel: str = ""
    partition: str = ""
    offset: int = -1
    key: Any = None
    """What it goes by, in the form of `plain_key`."""
    pattern: str = ""
    """Of a connect: what was looked for."""


class InputLog:
    """Writes the rows of one pattern, in the order of calls."""

    def __init__(self, name: str, services: Services) -> None:
        qos = QoS(durability="persistent", ack="synced")
        self._supplier = services.open_channel(INPUTS + name, (Input,), qos).supplier()

    def connect(self, at: int, pattern: Pattern) -> Receipt:
        return self._supplier.push_nowait(Input("connect", at, pattern=described(pattern)))

    def event(self, leaf: int, header: Header, key: Hashable, at: int) -> Receipt:
        assert header.offset is not None
        place = (header.channel, header.partition or "", header.offset)
        return self._supplier.push_nowait(Input("event", at, leaf, *place, plain_key(key)))

    def tick(self, at: int) -> Receipt:
        return self._supplier.push_nowait(Input("tick", at))

    def evict(self, key: Hashable, at: int) -> Receipt:
        return self._supplier.push_nowait(Input("evict", at, key=plain_key(key)))

    def close(self) -> None:
        self._supplier.close()


def check_streams(name: str, pattern: Pattern) -> None:
    """NotPossible unless this station keeps the whole history of every stream."""
    for leaf in leaves_of(pattern):
        if isinstance(leaf, Leaf):
            store = leaf.stream.channel.store
            if store is None or not store.kept_here:
                raise NotPossible(
                    name,
                    f"replayable=True: {leaf.stream.channel.name!r} is not persistent and kept by this "
                    "station, so what it carried cannot be read again",
                )
            if leaf.stream.channel.qos.compaction == "key":
                raise NotPossible(
                    name,
                    f"replayable=True: {leaf.stream.channel.name!r} is compacted by key, which removes what "
                    "led to a match; use a channel without compaction",
                )


def matches(
    pattern: Pattern,
    inputs: Channel[Input],
    key_fields: dict[int, str],
    key: Any = EVERY_KEY,
) -> Iterator[Match]:
    """The matches that the rows of a channel give, of all keys or of one."""
    machine = Correlator(pattern, 0)
    events = _Events(pattern)
    wanted = plain_key(key)
    for row in _rows(inputs):
        match row.kind:
            case "connect":
                if row.pattern != described(pattern):
                    raise NotPossible(
                        inputs.name, f"was written for {row.pattern}; this is {described(pattern)}"
                    )
                machine = Correlator(pattern, row.at)
            case "tick":
                yield from machine.advance(row.at)
            case "event" if key is EVERY_KEY or row.key == wanted:
                event = events[row.leaf, row.offset]
                field = key_fields.get(row.leaf)
                own_key = None if field is None else getattr(event, field)
                yield from machine.offer(row.leaf, own_key, event, row.at)
            case "evict" if key is not EVERY_KEY and row.key == wanted:
                yield from machine.forget(key, row.at)
            case _:  # rows of other keys; and a whole machine evicts by itself, as it did
                pass


def plain_key(key: Any) -> Any:
    """A key as a row holds it."""
    match key:
        case Enum():
            return key.value
        case datetime():
            return (key if key.tzinfo is None else key.astimezone(UTC)).isoformat()
        case _:
            return key


def described(node: Node) -> str:
    """A pattern as text: equal for patterns that find the same."""
    match node:
        case Leaf(stream=stream):
            said = (
                f"{name}={_in_order(value)!r}"
                for name, value in sorted(stream.options.items())
                if value is not None
            )
            return f"{stream.channel.name}({', '.join(said)})"
        case Every(period=period):
            return f"every({period / 1e9:g})"
        case After(delay=delay):
            return f"after({delay / 1e9:g})"
        case AllOf() | AnyOf() | NoneOf():
            kind = {AllOf: "all_of", AnyOf: "any_of", NoneOf: "none_of"}[type(node)]
            said = (
                f"{name}={getattr(node, name)!r}"
                for name in node.__struct_fields__
                if name != "parts" and getattr(node, name) is not None
            )
            parts = (f"{name}={described(part)}" for name, part in node.parts.items())
            return f"{kind}({', '.join([*parts, *said])})"


def _in_order(value: Any) -> Any:
    """Without the order of a set, which differs from process to process."""
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value


def _rows(inputs: Channel[Input]) -> Iterator[Input]:
    store = inputs.store
    assert store is not None
    position = store.earliest
    while True:
        items, reached = store.read(position, PAGE)
        for row, _, _ in items:
            assert isinstance(row, Input)
            yield row
        if reached == position:
            return
        position = reached


class _Events:
    """Events of the streams by their places."""

    def __init__(self, pattern: Pattern) -> None:
        self._stores = [
            leaf.stream.channel.store if isinstance(leaf, Leaf) else None for leaf in leaves_of(pattern)
        ]
        self._pages: dict[tuple[int, int], dict[int, Event]] = {}

    def __getitem__(self, place: tuple[int, int]) -> Event:
        """Raises HistoryGone when retention was faster."""
        leaf, offset = place
        for (known, _), page in self._pages.items():
            if known == leaf and offset in page:
                return page[offset]
        store = self._stores[leaf]
        assert store is not None
        items, _ = store.read(offset, PAGE)
        page = {header.offset: event for event, header, _ in items if header.offset is not None}
        while len(self._pages) >= PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[leaf, offset] = page
        if offset not in page:
            raise HistoryGone(store.partition, offset, min(page, default=offset + 1))
        return page[offset]
