"""Channel names and name patterns: what a name may be, and subscriptions to every channel that fits a
pattern."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, get_args

from heliograph.channel.receive.subscription import takes_header
from heliograph.channel.registry import Access
from heliograph.channel.selection import check_options, parsed
from heliograph.errors import ExpressionError, NotPossible, WrongEventType
from heliograph.model.event import info_of
from heliograph.qos.policies import QoS

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.receive.subscription import Receiver

log = logging.getLogger(__name__)

MAX_CHANNEL_NAME: Final = 255

_CHANNEL_NAME = re.compile(r"[^\s.*\x00-\x1f/\\]+(\.[^\s.*\x00-\x1f/\\]+)*")


def check_channel(name: str, types: tuple[type[Any], ...], qos: object, mode: object, access: object) -> None:
    """Refuse what no station could open."""
    if type(name) is not str or not _CHANNEL_NAME.fullmatch(name) or len(name) > MAX_CHANNEL_NAME:
        raise NotPossible(
            repr(name)[:40],
            f"a channel's name has 1 to {MAX_CHANNEL_NAME} characters: parts joined by dots, "
            "without spaces, slashes and asterisks",
        )
    for cls in types:
        info_of(cls)
    if qos is not None and not isinstance(qos, QoS):
        raise NotPossible(name, f"qos is a hg.QoS(...), not {qos!r:.60}")
    if mode not in (None, "create", "open"):
        raise NotPossible(name, f"mode={mode!r}: allowed are 'create' and 'open'")
    if access not in (None, *get_args(Access)):
        raise NotPossible(name, f"access={access!r:.60}: allowed are {', '.join(get_args(Access))}")


def types_needed(name: str, *, kept: bool, joined: bool) -> NotPossible:
    """Nobody has said what a channel carries: `kept` in the station's own folder, `joined` to a domain."""
    how = f"station.channel({name!r}, MyEvent)"
    if kept:
        return NotPossible(
            name,
            f"its history is in this folder, and its event class is not known: {how}; without the class, "
            "`helio journal cat` and heliograph.spark.read show it",
        )
    if joined:
        return NotPossible(name, f"no station of the domain has it open to learn its event types from: {how}")
    return NotPossible(name, f"a new channel needs its event types: {how}")


class NamePattern:
    """A pattern of channel names: `*` stands for one part of a name, `**` for any number."""

    def __init__(self, pattern: str, reserved: str | tuple[str, ...]) -> None:
        self.text = pattern
        self._reserved = reserved
        self._regex = re.compile(pattern_regex(pattern))

    def fits(self, name: str) -> bool:
        """Whether it fits the name of a channel; channels about channels are meant by name only."""
        is_about = name.startswith(self._reserved) and not self.text.startswith(self._reserved)
        return not is_about and self._regex.fullmatch(name) is not None


class ChannelWatch:
    """Calls a function with every channel whose name fits a pattern, once each.

    Args:
        pattern: of names.
        call: must not wait, nor open or close channels.
        reserved: names of channels about channels begin with this.
        forget: told when it is closed.
    """

    def __init__(
        self,
        pattern: str,
        call: Callable[[Channel[Any]], object],
        *,
        reserved: str | tuple[str, ...],
        forget: Callable[[ChannelWatch], object],
    ) -> None:
        self._pattern = NamePattern(pattern, reserved)
        self._call = call
        self._forget = forget
        self._met: set[Channel[Any]] = set()

    def wants(self, name: str) -> bool:
        return self._pattern.fits(name)

    def meet(self, channel: Channel[Any]) -> None:
        """Call it for a channel whose name fits and that has not been met before."""
        self._met = {met for met in self._met if not met.closed}
        if channel not in self._met and self.wants(channel.name):
            self._met.add(channel)
            self._call(channel)

    def close(self) -> None:
        self._forget(self)


class NamePatternSubscription:
    """One callback on every channel whose name fits a pattern."""

    def __init__(
        self,
        pattern: str,
        callback: Callable[..., object],
        options: dict[str, Any],
        *,
        reserved: str | tuple[str, ...],
        forget: Callable[[NamePatternSubscription], object],
    ) -> None:
        self.pattern = pattern
        self._names = NamePattern(pattern, reserved)
        self._forget = forget
        self._callback = callback
        self._options = options
        check_options("subscribe", options, "inline", "views", "name", "start")
        # What no channel could take is refused here: perhaps none is there yet.
        takes_header(callback)
        if options.get("where") is not None:
            parsed(options["where"], options.get("params"))
        self._met: dict[Channel[Any], Receiver] = {}

    def wants(self, name: str) -> bool:
        return self._names.fits(name)

    def meet(self, channel: Channel[Any]) -> None:
        """Subscribe to a channel if its name fits and it has not been met before."""
        self._met = {met: receiver for met, receiver in self._met.items() if not met.closed}
        if channel in self._met or not self.wants(channel.name):
            return
        try:
            self._met[channel] = channel.subscribe(self._callback, **self._options)
        except (ExpressionError, WrongEventType) as error:
            # What it asks for is about other events. Who opens the channel has nothing to do with it.
            log.info("pattern %r passes over %s: %s", self.pattern, channel.name, error)

    def close(self) -> None:
        self._forget(self)
        for receiver in self._met.values():
            receiver.close()


def pattern_regex(pattern: str) -> str:
    """Parts are matched as they are; only a whole part can be `*` or `**`."""
    if type(pattern) is not str or not pattern:
        wanted = "is text of at least one part, such as 'air.*' or '**'"
        raise NotPossible(f"pattern {pattern!r:.60}", wanted)
    parts = []
    for part in pattern.split("."):
        if "*" in part and part not in ("*", "**"):
            raise NotPossible(f"pattern {pattern!r}", "'*' and '**' stand for whole parts of a name")
        parts.append({"*": r"[^.]+", "**": r"[^.]+(?:\.[^.]+)*"}.get(part, re.escape(part)))
    return r"\.".join(parts)
