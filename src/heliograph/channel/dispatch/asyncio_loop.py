"""The asyncio loop of a station: for `async def` callbacks that were subscribed outside of any loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from heliograph.errors import NoThreadLeft

if TYPE_CHECKING:
    from heliograph.runtime.ports import Task, Tasks


class AsyncioLoop:
    """Runs in a task of its own, from the first callback that needs it until `stop`."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lock = tasks.lock("asyncio callbacks")
        self._running: tuple[asyncio.AbstractEventLoop, Task] | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None:
                loop = asyncio.new_event_loop()
                try:
                    task = self._tasks.spawn("asyncio callbacks", lambda: _run(loop))
                except NoThreadLeft:
                    loop.close()
                    raise
                self._running = loop, task
            return self._running[0]

    def stop(self, timeout: float) -> None:
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(loop.stop)
            task.join(timeout)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
