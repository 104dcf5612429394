"""Misspelled options, named: which one, what there is instead, and what was probably meant.

    @names_options                              of functions and methods with options of their own
    def pull(self, timeout: float | None = None): ...

    class QoS(msgspec.Struct, metaclass=NamesOptions): ...

Python alone says "unexpected keyword argument". Calls that hand options on check them where they are used.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from heliograph.errors import UnknownOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

P = ParamSpec("P")
R = TypeVar("R")


def names_options(call: Callable[P, R]) -> Callable[P, R]:
    """The same call; UnknownOption in place of Python's TypeError for an option that it does not have."""
    name = call.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    known = tuple(
        parameter.name
        for parameter in inspect.signature(call).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name != "self"
    )

    @wraps(call)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        if options:
            insist_on_known(name, options, known)
        return call(*args, **options)

    return checked


def insist_on_known(name: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """UnknownOption for the first option that the call of that name does not have."""
    for option in given:
        if option not in known:
            raise UnknownOption(name, option, known)


class NamesOptions(msgspec.StructMeta):
    """Of a Struct whose fields are options."""

    if not TYPE_CHECKING:  # type checkers know the fields themselves

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - of a metaclass
            insist_on_known(cls.__name__, options, cls.__struct_fields__)
            return super().__call__(*args, **options)
