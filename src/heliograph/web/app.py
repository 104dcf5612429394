"""The requests that a page answers: its files, samples, tails of channels, filters, history, why, metrics."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from heliograph.errors import ExpressionError, HeliographError
from heliograph.filters.check import check
from heliograph.filters.parser import parse
from heliograph.model.event import info_of
from heliograph.monitoring.prometheus import CONTENT_TYPE
from heliograph.web.sampler import Sampler
from heliograph.web.security import Guard
from heliograph.web.tail import Tail, Tails

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from heliograph.channel.channel import Channel
    from heliograph.station import Station

ASSETS: Final = {
    "page.js": "text/javascript",
    "page.css": "text/css",
    "uplot.js": "text/javascript",
    "uplot.css": "text/css",
    "uplot.LICENSE.txt": "text/plain",
}
MAX_STREAMS: Final = 24
"""Streams that are open at once, of all viewers."""
MAX_TEXT: Final = 4_000
"""Characters of a filter or name in a request."""
PATIENCE: Final = 5.0
"""Seconds after which a stream without news says that it lives."""


class StationPage:
    """The application of one station's page."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._sampler = Sampler(station)
        self._tails = Tails(station)
        self._streams = 0
        self.closing = threading.Event()

    def guarded(self, token: str) -> Guard:
        """As an ASGI application that asks for the token."""
        routes = [
            Route("/", self._index),
            Route("/assets/{name}", self._asset),
            Route("/api/overview", self._overview),
            Route("/api/stream", self._stream),
            Route("/api/channel", self._detail),
            Route("/api/check", self._check),
            Route("/api/history", self._history),
            Route("/api/tail", self._tail),
            Route("/api/why", self._why),
            Route("/metrics", self._metrics),
        ]
        return Guard(Starlette(routes=routes), token)

    def close(self) -> None:
        self.closing.set()
        self._sampler.close()

    async def _index(self, _: Request) -> Response:
        return Response(_file("index.html"), media_type="text/html")

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return _problem("there is no such file", 404)
        return Response(_file(name), media_type=ASSETS[name])

    async def _overview(self, _: Request) -> Response:
        return await self._answered(self._look)

    def _look(self) -> Any:
        with self._sampler.looking():
            if not self._sampler.samples:
                self._sampler.wait(0, PATIENCE)
            return self._sampler.overview()

    async def _detail(self, request: Request) -> Response:
        return await self._answered(partial(self._sampler.detail, _text(request, "channel")))

    async def _metrics(self, _: Request) -> Response:
        text = await asyncio.to_thread(self._station.metrics)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _check(self, request: Request) -> Response:
        channel, where = _text(request, "channel"), _text(request, "where")
        return await self._answered(partial(self._checked, channel, where))

    def _checked(self, name: str, where: str) -> Any:
        """Whether a filter fits the channel; where it is wrong, for the box that it is typed into."""
        if not where.strip():
            return {"ok": True}
        formats = self._formats(name)
        problem: ExpressionError | None = None
        try:
            tree = parse(where)
            for fmt in formats:
                try:
                    check(tree, fmt)
                except ExpressionError as error:
                    problem = error
                else:
                    return {"ok": True}
        except ExpressionError as error:
            problem = error
        if problem is None:
            return {"ok": False, "reason": "no station has this channel", "column": 1}
        return {"ok": False, "reason": problem.reason, "column": problem.column}

    def _formats(self, name: str) -> list[Any]:
        for channel in self._station.channels():
            if channel.name == name:
                return [info_of(cls).format for cls in channel.types]
        return [] if self._station.mesh is None else list(self._station.mesh.formats(name))

    async def _history(self, request: Request) -> Response:
        return await self._answered(partial(self._with_channel, _text(request, "channel"), _extent))

    async def _why(self, request: Request) -> Response:
        event, receiver = _text(request, "event"), _text(request, "receiver")
        ask = partial(
            self._with_channel,
            _text(request, "channel"),
            lambda one: self._station.asker.why(one, event, receiver, only_asks=True),
        )
        return await self._answered(ask)

    def _with_channel(self, name: str, ask: Callable[[Channel[Any]], Any]) -> Any:
        channel = self._tails.open(name)
        try:
            return ask(channel)
        finally:
            self._tails.release(name)

    async def _stream(self, request: Request) -> Response:
        return self._streamed(self._samples(request))

    async def _samples(self, request: Request) -> AsyncIterator[bytes]:
        seen = -1
        with self._sampler.looking():
            while not self.closing.is_set() and not await request.is_disconnected():
                number = await asyncio.to_thread(self._sampler.wait, max(seen, 0), PATIENCE)
                if number == seen:
                    yield b": alive\n\n"
                    continue
                seen = number
                yield _message("overview", await asyncio.to_thread(self._sampler.overview))

    async def _tail(self, request: Request) -> Response:
        name, where = _text(request, "channel"), _text(request, "where")
        try:
            start = _start(request)
            channel = await asyncio.to_thread(self._tails.open, name)
        except (HeliographError, ValueError) as error:
            return _problem(str(error), 400)
        try:
            tail = await asyncio.to_thread(Tail, channel, where, start)
        except ExpressionError as error:
            self._tails.release(name)
            return _json({"problem": error.reason, "column": error.column}, 400)
        except (HeliographError, TypeError, ValueError) as error:
            self._tails.release(name)
            return _problem(str(error), 400)
        # Not awaited: whoever goes away cancels what is awaited.
        end = threading.Thread(target=self._end_tail, args=(name, tail), daemon=True).start
        return self._streamed(self._events(request, tail), end)

    async def _events(self, request: Request, tail: Tail) -> AsyncIterator[bytes]:
        try:
            yield b"retry: 1000\n\n"
            while not self.closing.is_set() and not await request.is_disconnected():
                told = await asyncio.to_thread(tail.tick)
                yield b": alive\n\n" if told is None else _message("events", told, told.pop("place"))
        except HeliographError as error:
            yield _message("problem", {"problem": str(error)})

    def _end_tail(self, name: str, tail: Tail) -> None:
        with suppress(HeliographError):
            tail.close()
        with suppress(HeliographError):
            self._tails.release(name)

    def _streamed(self, made: AsyncIterator[bytes], end: Callable[[], object] = lambda: None) -> Response:
        if self._streams >= MAX_STREAMS:
            end()
            return _problem(f"{MAX_STREAMS} streams are open already: close a page", 503)
        self._streams += 1

        def ended() -> None:
            self._streams -= 1
            end()

        return _Stream(made, ended)

    async def _answered(self, ask: Callable[[], Any]) -> Response:
        try:
            return _json(await asyncio.to_thread(ask))
        except HeliographError as error:
            return _problem(str(error), 400)


class _Stream(StreamingResponse):
    """Calls `end` once it is over, also when who asked for it had gone before it began."""

    def __init__(self, made: AsyncIterator[bytes], end: Callable[[], object]) -> None:
        super().__init__(made, media_type="text/event-stream")
        self._made = made
        self._end = end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
            await self._made.aclose()  # type: ignore[attr-defined]  # it is a generator


def _extent(channel: Channel[Any]) -> Any:
    """What of a history is kept, for the slider."""
    if not channel.qos.journalled:
        return {"partitions": {}}
    return {"partitions": channel.neighbours.extents()}


def _start(request: Request) -> Any:
    """Where a tail begins: where it was, or what the slider says."""
    text = request.headers.get("last-event-id") or request.query_params.get("start") or ""
    if not text:
        return None
    if len(text) > MAX_TEXT:
        raise ValueError("a start of more than 4,000 characters")
    if text in ("earliest", "now"):
        return text
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        raise ValueError("start= is earliest, now, or {partition: offset}") from None


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:MAX_TEXT]


def _file(name: str) -> bytes:
    return (files("heliograph.web") / "assets" / name).read_bytes()


def _json(document: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def _problem(text: str, status: int) -> Response:
    return _json({"problem": text}, status)


def _message(kind: str, document: Any, place: Any = None) -> bytes:
    """A server-sent event; JSON has no line ends in it."""
    named = b"" if not place else b"id: " + msgspec.json.encode(place) + b"\n"
    return named + f"event: {kind}\n".encode() + b"data: " + msgspec.json.encode(document) + b"\n\n"
