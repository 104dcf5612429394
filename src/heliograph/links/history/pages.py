"""Pages: batches of history events in a request or a reply.

A page names the formats of its events by itself, because it does not come in the order of any queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from heliograph.links.session import messages as m
from heliograph.links.session.lifetimes import from_now
from heliograph.links.session.wire_events import Refused, WireEventReader
from heliograph.model.compatibility import compare, defaults_of, go_together, why_apart
from heliograph.model.event import info_of
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.queueing.queue import Item
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.qos.policies import Missing
    from heliograph.runtime.ports import Clock

MAX_PAGE: Final = 10_000
"""Events in one page."""
PAGE_BYTES: Final = 8 << 20
"""Bytes of a page from which on it is cut."""


class PageRun(msgspec.Struct, array_like=True):
    """Events of one format."""

    format_id: bytes
    description: bytes
    form: Annotated[int, Meta(ge=0, le=1)]
    length: Annotated[int, Meta(ge=1, le=MAX_PAGE)]
    records: msgspec.Raw


class Page(msgspec.Struct, array_like=True):
    """Events on their way, and where to go on."""

    runs: list[PageRun]
    reached: int = 0
    gap: tuple[str, int, int] | None = None
    """In place of events: "gone" or "damaged", the first offset and the next that can be read."""


_page: Final = msgspec.msgpack.Decoder(Page).decode


def read_page(data: msgspec.Raw, peer: str) -> Page:
    return m.decoded(_page, data, peer)


def to_page(writer: EventWriter, items: Sequence[Item], reached: int = 0) -> Page:
    page = Page([], reached)
    run: list[Item] = []
    for item in items:
        if run and type(run[0][0]) is not type(item[0]):
            page.runs.append(_run(writer, run))
            run = []
        run.append(item)
    if run:
        page.runs.append(_run(writer, run))
    return page


def page_size(page: Page) -> int:
    return sum(len(memoryview(run.records)) for run in page.runs)


def _run(writer: EventWriter, items: list[Item]) -> PageRun:
    cls = type(items[0][0])
    fmt = info_of(cls).format
    form, records = writer.run(cls, items)
    return PageRun(fmt.id, fmt.description, form, len(items), msgspec.Raw(records))


def fitting_page(writer: EventWriter, items: Sequence[Item]) -> tuple[Page, int]:
    """A page of as many of the first events as may cross at once, and how many those are."""
    page = to_page(writer, items)
    while len(items) > 1 and page_size(page) > PAGE_BYTES:
        items = items[: len(items) // 2]
        page = to_page(writer, items)
    return page, len(items)


def cut_page(writer: EventWriter, items: Sequence[Item], reached: int) -> Page:
    """A page of as many journalled events as may cross at once; it says where to go on."""
    page, taken = fitting_page(writer, items)
    if taken < len(items):
        offset = items[taken][1].offset
        assert offset is not None
        reached = offset
    return Page(page.runs, reached)


class Reading(NamedTuple):
    """What a page holds: events of this station's classes, and those that cannot be; both in order."""

    items: list[Item]
    refused: list[Refused]


class PageReader:
    """Turns pages back into events of this station's classes.

    Args:
        channel: its name.
        clock: this station's.
        missing: whether events may lack fields that have a default.
    """

    def __init__(self, channel: str, clock: Clock, missing: Missing = "default") -> None:
        self._channel = channel
        self._deadline_of = from_now(clock.monotonic_ns)
        self._missing = missing
        self._formats = FormatRegistry()
        self._streams: dict[bytes, WireEventReader] = {}
        self._as_pushed: dict[bytes, tuple[WireEventReader, type[Event]]] = {}

    def read(
        self, page: Page, types: tuple[type[Event], ...], peer: str, *, as_kept: bool = False
    ) -> Reading:
        """The events of a page; `as_kept`: in the versions in which they were pushed."""
        found = Reading([], [])
        for run in page.runs:
            stream, classes = self._as_kept(run, types) if as_kept else (self._stream(run), types)
            found.items.extend(stream.read(_records(run), classes, peer, missing=self._missing))
            found.refused.extend(stream.refused)
        return found

    def wire_of(self, run: PageRun) -> Format:
        if run.format_id in self._formats:
            return self._formats[run.format_id]
        return self._formats.learn(run.format_id, run.description)

    def _stream(self, run: PageRun) -> WireEventReader:
        stream = self._streams.get(run.format_id)
        if stream is None:
            stream = self._streams[run.format_id] = self._new_stream(self.wire_of(run))
        return stream

    def _new_stream(self, wire: Format) -> WireEventReader:
        return WireEventReader(self._channel, wire, deadline_of=self._deadline_of)

    def _as_kept(
        self, run: PageRun, types: tuple[type[Event], ...]
    ) -> tuple[WireEventReader, tuple[type[Event], ...]]:
        """What reads events exactly as they were pushed, if their type is carried here."""
        wire = self.wire_of(run)
        own = next((cls for cls in types if info_of(cls).name == wire.name), None)
        if own is None or any(info_of(cls).format.id == wire.id for cls in types):
            return self._stream(run), types
        from heliograph.codec.dynamic.classes import version_class  # noqa: PLC0415 - most have the same version

        found = self._as_pushed.get(run.format_id)
        if found is None:
            # A stream of its own: that of the class would be made ready anew for each run.
            found = self._as_pushed[run.format_id] = (self._new_stream(wire), version_class(wire, own))
        return found[0], (found[1],)


def why_not_kept(wire: Format, types: tuple[type[Event], ...], missing: Missing) -> tuple[str, ...]:
    """Why events of a format have no place in a channel that is kept with these classes; none: they have.

    They must go together: one of the two versions can be read as the other. Where a class was made of a
    format, as no program here has it, it is the formats that must.
    """
    from heliograph.codec.dynamic.classes import is_made  # noqa: PLC0415 - most have the same version

    for own in types:
        fmt = info_of(own).format
        if fmt.name != wire.name or fmt.id == wire.id:
            continue
        if is_made(own):
            if not go_together(wire, fmt):
                return compare(wire, fmt).problems
        elif missing == "refuse":
            return compare(wire, fmt, has_default=defaults_of(own), missing=missing).problems
        else:
            return why_apart(wire, fmt, defaults_of(own))
    return ()


def _records(run: PageRun) -> m.Run:
    return m.Run(run.form, 0, run.length, memoryview(run.records))
