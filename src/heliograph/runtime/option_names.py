"""Misspelled, misplaced and missing arguments: which one, what was probably meant, and which call takes it.

    @names_options                              of functions and methods with options of their own
    def pull(self, timeout: float | None = None): ...

    class QoS(msgspec.Struct, metaclass=NamesOptions): ...

Python alone says "unexpected keyword argument". Calls that hand options on check them where they are used.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import msgspec

from heliograph.errors import UnknownOption, WrongArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

P = ParamSpec("P")
R = TypeVar("R")

OTHER_WORDS: Final = {
    "condition": "where",
    "filter": "where",
    "predicate": "where",
    "parameters": "params",
    "type": "types",
    "event_type": "types",
    "source": "sources",
    "maxsize": "queue",
    "max_queue": "queue",
    "ttl": "lifespan",
    "depth": "history",
    "persistent": "durability",
    "reliable": "reliability",
    "path": "folder",
    "limits": "journal",
    "delay": "deliver_after",
}
"""What people write for an option, and what it is called here."""

TAKEN_BY: Final = {
    "channel(qos=hg.QoS({}=...))": (
        "reliability", "durability", "history", "lifespan", "threads", "max_blocking", "ack_timeout",
        "resends", "compaction", "tombstones", "missing", "delivery_records", "delivery_rate",
        "ledger_interval",
    ),
    "Station(journal=hg.Limits({}=...))": (
        "head_bytes", "head_events", "head_seconds", "keep_bytes", "keep_seconds", "hold_unread",
        "hold_seconds", "drop_read", "grace_seconds", "merge_events", "merge_bytes",
    ),
    "Station({}=...)": (
        "folder", "domain", "transport", "config", "journal", "callback_limit", "peer_limit", "on_error",
    ),
    "station.channel({}=...)": ("qos", "mode", "access"),
    "subscribe({0}=...) and consumer({0}=...)": (
        "where", "params", "types", "sources", "group", "queue", "overflow", "separation", "dispatch",
        "start", "ack", "lease", "max_in_flight", "max_deliveries", "dead_letter", "order",
    ),
    "consumer({}=...)": ("until", "gap"),
    "subscribe({}=...)": ("inline", "views"),
    "push({}=...)": (
        "source_ts", "correlation_id", "headers", "id", "deliver_at", "deliver_after", "sub_priority",
    ),
    "pull({0}=...), read({0}=...) and deliveries({0}=...)": ("timeout",),
    "read({}=...)": ("max",),
    "station.schedule().task({}=...), or latency= with dispatch='deadline'": ("deadline",),
    "station.schedule().task({}=...)": ("period", "cost", "importance"),
}  # fmt: skip
"""Calls, and options that those who write them elsewhere are sent there for."""

_HOMES: Final = {option: call.format(option) for call, options in TAKEN_BY.items() for option in options}


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
        try:
            return call(*args, **options)
        except TypeError as error:
            # A traceback that ends here is Python's own: the call has not begun. Others come from inside.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise wrong_arguments(name, call, error) from None

    return checked


def wrong_arguments(name: str, call: Callable[..., object], error: TypeError) -> WrongArguments:
    """What to write in place of a call with arguments that are missing or too many."""
    needed = tuple(
        parameter.name
        for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name != "self"
    )
    return WrongArguments(name, str(error).partition("() ")[2] or str(error), needed)


def is_number(value: object) -> bool:
    """Whether it is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def insist_on_known(name: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """UnknownOption for the first option that the call of that name does not have."""
    for option in given:
        if option not in known:
            raise UnknownOption(name, option, known, instead_of(option, known))


def instead_of(option: str, known: Iterable[str]) -> str:
    """What to write in place of an option of other calls, or of another name; empty: look for a slip."""
    meant = OTHER_WORDS.get(option, option)
    if meant in known:
        return f"write {meant}="
    return f"it is for {_HOMES[meant]}" if meant in _HOMES else ""


class NamesOptions(msgspec.StructMeta):
    """Of a Struct whose fields are options."""

    if not TYPE_CHECKING:  # type checkers know the fields themselves

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - of a metaclass
            insist_on_known(cls.__name__, options, cls.__struct_fields__)
            return super().__call__(*args, **options)
