"""Checks times to wait where they are given."""

from __future__ import annotations

from typing import Any, Final

from heliograph.errors import NotPossible

LONGEST_WAIT: Final = 1e9
"""Seconds of a `timeout=`."""


def check_timeout(channel: str, timeout: Any, *, ends: bool = False) -> None:
    """NotPossible for what is no number of seconds, before anything is kept; for None if it has to end."""
    if timeout is None and not ends:
        return
    if type(timeout) not in (int, float) or not 0 <= timeout <= LONGEST_WAIT:
        allowed = f"seconds from 0 on, up to {LONGEST_WAIT:,.15g}{'' if ends else ', or None to wait'}"
        raise NotPossible(channel, f"timeout={timeout!r:.60}: {allowed}")
