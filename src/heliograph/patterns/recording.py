"""Records what a replayable pattern took in, as events of a channel of its own.

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

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from heliograph.codec.columnar.unify import unified
from heliograph.errors import FormatError, HistoryGone, NotPossible
from heliograph.model import field_types as ft
from heliograph.model.compatibility import split_optional
from heliograph.model.event import Event, info_of
from heliograph.model.formats import Field, Format
from heliograph.patterns.pattern import Leaf, leaves_of
from heliograph.patterns.replay import ReplayedInput as Taken
from heliograph.patterns.replay import described, from_text, replayed, to_text
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.context import ChannelContext
    from heliograph.channel.publish.supplier import Receipt
    from heliograph.model.event import Header
    from heliograph.patterns.machine import Match
    from heliograph.patterns.pattern import Pattern

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
    """Of a connect: what was looked for, in the words of `to_text`."""
    key_type: str = ""
    """Of a connect: the scalar that holds its keys; "any" where streams have keys of different types."""


class InputLog:
    """Writes the rows of one pattern, in the order of calls."""

    def __init__(self, name: str, services: ChannelContext) -> None:
        qos = QoS(durability="persistent", ack="synced")
        self._name = name
        self._channel = services.open_channel(INPUTS + name, (Input,), qos)
        self._supplier = self._channel.supplier()

    def connect(self, at: int, pattern: Pattern, key_fields: dict[int, str]) -> Receipt:
        """NotPossible when rows of another pattern are there."""
        said = to_text(pattern)
        store = self._channel.store
        assert store is not None
        for first, _, _ in store.read(store.earliest, 1)[0]:
            if (
                isinstance(first, Input) and first.kind == "connect"
            ):  # else retention took it, and its pattern
                insist_on_same(self._name, first.pattern, said)
        row = Input("connect", at, pattern=said, key_type=key_type(pattern, key_fields))
        return self._supplier.push_nowait(row)

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
    said = to_text(pattern)
    events = _Events(pattern)
    wanted = plain_key(key)
    own_keys: dict[Hashable, Hashable] = {}

    def taken_in() -> Iterator[Taken]:
        for row in _rows(inputs):
            if row.kind == "connect":
                insist_on_same(inputs.name, row.pattern, said)
            elif row.kind != "tick" and key is not EVERY_KEY and row.key != wanted:
                yield Taken("tick", row.at)  # what other keys brought has moved the clock of all
                continue
            event = None
            if row.kind == "event":
                event = events[row.leaf, row.offset]
                own = getattr(event, key_fields[row.leaf]) if row.leaf in key_fields else None
                if isinstance(own, Enum) or _is_written(own):
                    own_keys[row.key] = own
            yield Taken(row.kind, row.at, row.leaf, row.key, event)

    for match in replayed(pattern, taken_in()):
        yield match._replace(key=own_keys.get(match.key, match.key))


def insist_on_same(name: str, written: str, pattern: str) -> None:
    """NotPossible when rows were written for another pattern; both in the words of `to_text`."""
    if written != pattern:
        was, now = described(from_text(written)), described(from_text(pattern))
        raise NotPossible(name, f"was written for {was}; this is {now}, which needs a name of its own")


def plain_key(key: Any) -> Any:
    """A key as a row holds it."""
    if isinstance(key, Enum):
        return key.value
    if isinstance(key, Decimal):
        # Equal keys are one, however many digits the fields of their streams have behind the point.
        whole, _, fraction = f"{key:f}".partition(".")
        fraction = fraction.rstrip("0")
        return f"{whole}.{fraction}" if fraction else whole
    return str(key) if _is_written(key) else key


def _is_written(key: Any) -> bool:
    """Whether rows hold a key as text, because `hg.Any` has no such values."""
    return isinstance(key, UUID | Decimal) or type(key) is date


def key_type(pattern: Pattern, fields: dict[int, str]) -> str:
    """The scalar that holds the keys of all streams, "any" where none does; "" without keys."""
    return joined_key(
        _plain_type(info_of(cls).format.by_name[fields[number]].type)
        for number, leaf in enumerate(leaves_of(pattern))
        if number in fields and isinstance(leaf, Leaf)
        for cls in leaf.stream.options.get("types") or leaf.stream.channel.types
    )


def joined_key(names: Iterable[str]) -> str:
    """The scalar that holds the values of all these, "any" where none does; "" of nothing."""
    different = set(names)
    if len(different) < 2:
        return "".join(different)
    if "any" in different:
        return "any"
    scalars = [Field("key", ft.Scalar(cast("ft.ScalarName", name))) for name in different]
    try:
        return str(unified([Format("key", (one,)) for one in scalars]).fields[0].type)
    except FormatError:
        return "any"


def _plain_type(kind: ft.FieldType) -> str:
    kind = split_optional(kind)[0]
    if kind in (ft.Scalar("date"), ft.Scalar("uuid")) or isinstance(kind, ft.Decimal):
        return "str"
    return kind.base if isinstance(kind, ft.Enum) else str(kind)


def _rows(inputs: Channel[Input]) -> Iterator[Input]:
    store = inputs.store
    assert store is not None
    position = earliest = store.earliest
    while True:
        items, reached = store.read(position, PAGE)
        for row, header, _ in items:
            assert isinstance(row, Input)
            if header.offset == earliest and row.kind != "connect":
                raise HistoryGone(store.partition, 0, earliest)
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
