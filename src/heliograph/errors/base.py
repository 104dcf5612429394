"""The root of the tree, and how a place inside an event is written."""

from __future__ import annotations

from typing import Any, ClassVar, Final

ROOT: Final = "$"
"""How the event itself is written in a path; its field `a`, third element, is `$.a[2]`."""


class HeliographError(Exception):
    """Root of the tree: `except hg.HeliographError` catches all of it."""

    retriable: ClassVar[bool] = False

    # Errors compose their sentence from what __init__ was given, which is seldom what `args` holds.
    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[HeliographError], args: tuple[Any, ...], fields: dict[str, Any]) -> HeliographError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error
