"""Errors in replies: raised in the asking station as the same class with the same fields.

What a keeper refuses is refused to a consumer elsewhere as it is to one beside it: a name that somebody else
has is CursorHeld in both, so that programs need not know where a history is kept. Only classes of the table
below are made again of what another station says, and only of texts and numbers.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from heliograph import errors as e

NAMED: Final = {
    cls.__name__: cls
    for cls in (
        e.AppendFailed,
        e.AppendTimeout,
        e.BatchTooLarge,
        e.CannotTell,
        e.ChannelExists,
        e.CursorFenced,
        e.CursorHeld,
        e.EventChannelNotFound,
        e.HistoryDamaged,
        e.HistoryGone,
        e.HistoryReset,
        e.IncompatibleFormats,
        e.InvalidQoS,
        e.JournalBusy,
        e.JournalClosed,
        e.ManagerFenced,
        e.NameAlreadyUsed,
        e.NotAMember,
        e.NotOwner,
        e.NotPossible,
        e.ParameterRefused,
        e.StateFailed,
        e.SupplierFenced,
        e.SupplierHeld,
        e.Suspended,
        e.TooManyAcks,
    )
}

MAX_PROBLEMS: Final = 10
"""Fields of an error about two formats that cross a link."""
MAX_FACT: Final = 500
"""Characters of a text in an error that crosses a link."""


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """An error by its name, and what it was raised with."""

    name: str
    facts: tuple[Annotated[str, Meta(max_length=MAX_FACT)] | int | float | None, ...]


def refusal_of(error: BaseException) -> Refusal | None:
    """How an error crosses a link; None for those that cross as words only."""
    facts = _formats_facts(error) if isinstance(error, e.IncompatibleFormats) else error.args
    if type(error).__name__ not in NAMED or not all(
        isinstance(fact, str | int | float | None) for fact in facts
    ):
        return None
    return Refusal(type(error).__name__, tuple(map(_fact, facts)))


def _fact(fact: Any) -> Any:
    if isinstance(fact, str):
        return fact[:MAX_FACT]
    return int(fact) if isinstance(fact, bool) else fact


def error_of(refusal: Refusal | None) -> e.HeliographError | None:
    """The error that another station names; None when it names none that can be."""
    cls: Any = None if refusal is None else NAMED.get(refusal.name)
    if refusal is None or cls is None:
        return None
    try:
        error: e.HeliographError = (
            _of_formats(*refusal.facts) if cls is e.IncompatibleFormats else cls(*refusal.facts)
        )
        str(error)
    except (TypeError, ValueError):
        return None  # too few facts, or facts of other kinds
    return error


def _formats_facts(error: e.IncompatibleFormats) -> tuple[Any, ...]:
    """Its problems are as many as fields do not fit, so they come last."""
    pushed, kept = error.stations or (None, None)
    return (error.writer, error.reader, error.channel, pushed, kept, *error.problems[:MAX_PROBLEMS])


def _of_formats(
    writer: Any, reader: Any, channel: Any, pushed: Any, kept: Any, *problems: Any
) -> e.IncompatibleFormats:
    stations = None if pushed is None or kept is None else (pushed, kept)
    return e.IncompatibleFormats(writer, reader, problems, channel, stations)
