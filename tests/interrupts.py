"""Runs something at each instant of a call at which CPython runs signal handlers.

CPython looks for signals, and for exceptions that other threads have set, when a function begins, after a
call and at a jump back; nowhere else. A trace function stops at each of these instants in turn.
"""

from __future__ import annotations

import dis
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

LOOKED_AT: Final = ("CALL", "CALL_FUNCTION_EX", "RESUME")
WATCHED: Final = ("heliograph", "threading.py")
"""Parts of the file names of the code that is stopped in: ours, what is generated, and what locks are of."""


class Interrupt(BaseException):
    """What a signal handler raises."""


class Instants:
    """Counts the instants of one call, and acts at one of them."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.where: str | None = None
        """The line at which it acted; None when the call had ended before."""
        self._left = at
        self._act = act
        self._last: dict[FrameType, int] = {}
        self._codes: dict[CodeType, _Code] = {}

    def run(self, call: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)
            self._last.clear()

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in WATCHED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # one that is only closed reports what it raises
            self._arrive(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode":
            code = self._codes.get(frame.f_code)
            if code is None:
                code = self._codes[frame.f_code] = _Code(frame.f_code)
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if last is not None and code.looks_at(last, frame.f_lasti):
                self._arrive(frame)
        return self._step

    def _arrive(self, frame: FrameType) -> None:
        if self.where is not None:
            return
        self._left -= 1
        if self._left < 0:
            self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            sys.settrace(None)
            self._act()


class _Code:
    """Where CPython looks for signals in one function."""

    def __init__(self, code: CodeType) -> None:
        self._ops = {i.offset: i.opname for i in dis.get_instructions(code)}
        self._tries: Any = dis._parse_exception_table(code)  # type: ignore[attr-defined]  # there is no other way

    def looks_at(self, last: int, now: int) -> bool:
        """Whether it does between two instructions.

        An exception is raised as if by the first of them. If the block ends there, which the second is not in
        any more, it cannot be shown here.
        """
        op = self._ops[last]
        return (op in LOOKED_AT or "JUMP_BACKWARD" in op) and self._handler(last) == self._handler(now)

    def _handler(self, at: int) -> int | None:
        return next((entry.target for entry in self._tries if entry.start <= at < entry.end), None)


def interrupt() -> None:
    """Raise what a signal handler would."""
    raise Interrupt
