"""One callback on every channel whose name fits a pattern, now and later."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from heliograph.channel.selection import check_options
from heliograph.errors import ExpressionError, NotPossible, WrongEventType

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.consumer import Receiver
    from heliograph.channel.core import Channel

log = logging.getLogger(__name__)


class PatternSubscription:
    """One callback on every channel whose name fits a pattern."""

    def __init__(
        self,
        pattern: str,
        callback: Callable[..., object],
        options: dict[str, Any],
        *,
        reserved: str,
        forget: Callable[[PatternSubscription], object],
    ) -> None:
        self.pattern = pattern
        self._reserved = reserved
        self._forget = forget
        self._callback = callback
        self._options = options
        self._regex = re.compile(_pattern_regex(pattern))
        check_options("subscribe", options, "inline", "name", "start")
        self._met: dict[str, Receiver] = {}

    def meet(self, channel: Channel[Any]) -> None:
        """Subscribe to a channel if its name fits and it has not been met before."""
        if channel.name in self._met or not self._regex.fullmatch(channel.name):
            return
        if channel.name.startswith(self._reserved) and not self.pattern.startswith(self._reserved):
            return  # channels about channels are meant by name only
        try:
            self._met[channel.name] = channel.subscribe(self._callback, **self._options)
        except (ExpressionError, WrongEventType) as error:
            # What it asks for is about other events. Who opens the channel has nothing to do with it.
            log.info("pattern %r passes over %s: %s", self.pattern, channel.name, error)

    def close(self) -> None:
        self._forget(self)
        for receiver in self._met.values():
            receiver.close()


def _pattern_regex(pattern: str) -> str:
    """Parts are matched as they are; only a whole part can be `*` or `**`."""
    if not pattern:
        raise NotPossible("subscribe", "a pattern has at least one part, such as 'air.*' or '**'")
    parts = []
    for part in pattern.split("."):
        if "*" in part and part not in ("*", "**"):
            raise NotPossible(f"pattern {pattern!r}", "'*' and '**' stand for whole parts of a name")
        parts.append({"*": r"[^.]+", "**": r"[^.]+(?:\.[^.]+)*"}.get(part, re.escape(part)))
    return r"\.".join(parts)
