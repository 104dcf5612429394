"""Pages: events that cross as the answer to a question, or with one, instead of live.

A page names the formats of its events by itself, because it does not come in the order of any lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from heliograph.event import info_of
from heliograph.evolution import go_together
from heliograph.formats import FormatRegistry
from heliograph.link import messages as m
from heliograph.link.runs import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.channel.lane import Item
    from heliograph.event import Event
    from heliograph.formats import Format
    from heliograph.link.runs import EventWriter
    from heliograph.qos import Missing

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


def cut_page(writer: EventWriter, items: Sequence[Item], reached: int) -> Page:
    """A page of as many journalled events as may cross at once; it says where to go on."""
    page = to_page(writer, items, reached)
    while len(items) > 1 and page_size(page) > PAGE_BYTES:
        half = len(items) // 2
        offset = items[half][1].offset
        assert offset is not None
        items = items[:half]
        page = to_page(writer, items, offset)
    return page


class PageReader:
    """Turns pages back into events of this station's classes."""

    def __init__(self, channel: str, missing: Missing = "default") -> None:
        self._channel = channel
        self._missing = missing
        self._formats = FormatRegistry()
        self._streams: dict[bytes, Stream] = {}

    def items(self, page: Page, types: tuple[type[Event], ...], peer: str) -> list[Item]:
        found: list[Item] = []
        for run in page.runs:
            found += self._of_run(run, types, peer)
        return found

    def _of_run(self, run: PageRun, types: tuple[type[Event], ...], peer: str) -> Sequence[Item]:
        stream = self._streams.get(run.format_id)
        if stream is None:
            stream = Stream(self._channel, self.wire_of(run))
            self._streams[run.format_id] = stream
        return stream.read(_records(run), types, peer, missing=self._missing)

    def wire_of(self, run: PageRun) -> Format:
        if run.format_id in self._formats:
            return self._formats[run.format_id]
        return self._formats.learn(run.format_id, run.description)


class KeptReader(PageReader):
    """Likewise for who keeps them: in the versions in which they were pushed, so that nothing is lost.

    They must go together with this station's classes. Where those were made of a format, as no program here
    has them, it is the formats that must.
    """

    def __init__(self, channel: str, missing: Missing = "default") -> None:
        super().__init__(channel, missing)
        self._versions: dict[bytes, tuple[Stream, type[Event]]] = {}

    def _of_run(self, run: PageRun, types: tuple[type[Event], ...], peer: str) -> Sequence[Item]:
        wire = self.wire_of(run)
        own = next((cls for cls in types if info_of(cls).name == wire.name), None)
        if own is None or info_of(own).format.id == run.format_id:
            return super()._of_run(run, types, peer)
        from heliograph.classes import is_made, version_class  # noqa: PLC0415 - most have the same version

        if not is_made(own):
            readable = super()._of_run(run, types, peer)
            if len(readable) != run.length:
                return readable
        elif not go_together(wire, info_of(own).format):
            return []
        if run.format_id not in self._versions:
            self._versions[run.format_id] = (Stream(self._channel, wire), version_class(wire, own))
        stream, cls = self._versions[run.format_id]
        return stream.read(_records(run), (cls,), peer, missing=self._missing)


def _records(run: PageRun) -> m.Run:
    return m.Run(run.form, 0, run.length, memoryview(run.records))
