"""The root of the error tree, and how the path of a field inside an event is written."""

from __future__ import annotations

from inspect import Parameter, Signature, get_annotations
from typing import Any, ClassVar, Final, dataclass_transform

ROOT: Final = "$"
"""How the event itself is written in a path; its field `a`, third element, is `$.a[2]`."""


@dataclass_transform()
class HeliographError(Exception):
    """Root of the tree: `except hg.HeliographError` catches all of it.

    An error takes facts and keeps them: its annotated fields, in their order, those of its base first. One
    that has none takes what any exception takes.
    """

    retriable: ClassVar[bool] = False
    _facts: ClassVar[Signature] = Signature()
    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[tuple[object, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=getattr(cls, name, Parameter.empty))
            for name in get_annotations(cls)
        ]
        cls._facts = Signature([*cls._facts.parameters.values(), *own])
        cls._names = tuple(cls._facts.parameters)
        cls._defaults = tuple(getattr(cls, name, Parameter.empty) for name in cls._names)

    def __init__(self, *facts: object, **named: object) -> None:
        more = self._defaults[len(facts) :]
        if self._names and (named or len(facts) > len(self._names) or Parameter.empty in more):
            bound = self._facts.bind(*facts, **named)  # takes ten times as long as all the rest
            bound.apply_defaults()
            facts, more = bound.args, ()
        super().__init__(*facts, *more)
        self.__dict__.update(zip(self._names, self.args, strict=False))

    # Errors compose their sentence from what __init__ was given, which is seldom what `args` holds.
    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[HeliographError], args: tuple[Any, ...], fields: dict[str, Any]) -> HeliographError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error
