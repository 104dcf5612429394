"""Checks of what jobs are given, before Spark starts: InvalidOption says what is allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def one_of(option: str, value: str, allowed: Iterable[str]) -> str:
    allowed = tuple(allowed)
    if value not in allowed:
        raise InvalidOption(option, str(value), ", ".join(allowed))
    return value


def at_least(option: str, value: float, least: float) -> None:
    if isinstance(value, bool) or not value >= least:
        raise InvalidOption(option, str(value), f"a number from {least:g}")


def size(option: str, value: str | int) -> int:
    """Bytes, from a number or a text such as `256m`."""
    found = re.fullmatch(r"([0-9]{1,12})([kmg]?)b?", str(value).lower())
    if found is None or not int(found[1]):
        raise InvalidOption(option, str(value), "a size such as 256m")
    return int(found[1]) * _UNITS[found[2]]


def is_datetime(one: Any) -> bool:
    """Whether a field of a format is a datetime, or may be NULL instead."""
    return str(one.type).removesuffix(" | None") == "datetime"


def insist_on_filter(where: str | None, params: Any, formats: Iterable[Any]) -> None:
    """ExpressionError for a filter that fits none of these formats."""
    if where is None:
        if params is not None:
            raise InvalidOption("where", None, "a condition, when params are given")
        return
    from heliograph.spark.source.filters import conditions, parsed  # noqa: PLC0415 - only with a filter

    types: dict[str, list[Any]] = {}
    for fmt in formats:
        types.setdefault(fmt.name, []).append(fmt)
    conditions(parsed(where, params), types)
