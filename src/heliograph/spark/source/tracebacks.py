"""Errors that Spark prints without the frames of ours in between: it shows the whole traceback, and what
matters is its last line."""

from __future__ import annotations

from functools import wraps
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from heliograph.errors import HeliographError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")


def told_shortly(method: Callable[P, T]) -> Callable[P, T]:
    """A method, or a generator, whose named errors come without the way that they took inside of it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except HeliographError as error:
            told = error.with_traceback(None)
        raise told from None

    @wraps(method)
    def iterated(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from cast("Iterator[Any]", method(*args, **kwargs))
        except HeliographError as error:
            told = error.with_traceback(None)
        else:
            return
        raise told from None

    return cast("Callable[P, T]", iterated) if isgeneratorfunction(method) else called
