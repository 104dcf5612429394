"""Values of options, as Spark hands them on: texts, checked one by one where they are written.

A parser takes the name of an option and its text, and returns the value or raises InvalidOption.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from heliograph.errors import InvalidOption, NotPossible
from heliograph.runtime.object_store import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Parser: TypeAlias = Callable[[str, str], Any]

SAME: Final = {
    "where": "filter",
    "folder": "path",
    "columns": "mode",
    "fail_on_data_loss": "failOnDataLoss",
}
"""What `heliograph.spark.read` calls an option that this source takes under both names."""
OTHER_WORDS: Final = {
    "timestampasof": "endingTimestamp",
    "versionasof": "endingOffsets",
    "startingversion": "startingOffsets",
    "endingversion": "endingOffsets",
    "startingtime": "startingTimestamp",
    "endingtime": "endingTimestamp",
    "topic": "channel",
    "maxoffsetspertrigger": "maxEventsPerTrigger",
    "maxfilespertrigger": "maxEventsPerTrigger",
    "maxrowspertrigger": "maxEventsPerTrigger",
    "minoffsetspertrigger": "minEventsPerTrigger",
    "maxrecordsperpartition": "maxEventsPerPartition",
    "mergeschema": "schemaEvolution",
}
"""What other sources call an option, and what it is called here."""

OF_SPARK: Final = frozenset(
    {
        "queryname",
        "checkpointlocation",
        "location",
        "provider",
        "owner",
        "comment",
        "collation",
        "external",
        "is_managed_location",
        "serialization.format",
        "transient_lastddltime",
    }
)
"""Options that Spark itself gives to sources and sinks, of a query or of a table: nobody misspelled them."""
TABLE_PREFIX: Final = "option."
"""With which Spark gives the options of a table a second time."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse(
    given: Mapping[str, str], parsers: Mapping[str, Parser], elsewhere: Mapping[str, str]
) -> dict[str, Any]:
    """The values of those options that are given; names are compared without case, as Spark does.

    `elsewhere` says of options that exist, but not here, where they belong. Spark's own are passed over,
    unless there is a parser for them.
    """
    known = {name.lower() for name in parsers}
    by_name: dict[str, str] = {}
    for said, value in given.items():
        name = said.lower()
        if name in SAME and SAME[name].lower() in known:
            name = SAME[name].lower()
        if name not in known and _is_of_spark(name):
            continue
        if by_name.get(name, value) != value:
            raise InvalidOption(said, value, f"it once: it is given as {by_name[name]!r}, too")
        by_name[name] = value
    _insist_on_known(by_name, {name.lower(): name for name in parsers}, elsewhere)
    return {
        name: parser(name, by_name[name.lower()])
        for name, parser in parsers.items()
        if name.lower() in by_name
    }


def _is_of_spark(name: str) -> bool:
    return name in OF_SPARK or name.startswith(TABLE_PREFIX)


def _insist_on_known(
    given: Mapping[str, str], known: Mapping[str, str], elsewhere: Mapping[str, str]
) -> None:
    for name, value in given.items():
        if name in known:
            continue
        misplaced = [where for option, where in elsewhere.items() if option.lower() == name]
        same = OTHER_WORDS.get(name, "").lower()
        near = [same] if same in known else difflib.get_close_matches(name, known, n=1)
        if name == "paths":
            allowed = "'path' is one folder: read each folder for itself, and union the frames"
        elif misplaced:
            allowed = f"it is for {misplaced[0]} only"
        elif near:
            allowed = f"did you mean {known[near[0]]!r}?"
        else:
            allowed = f"there are {', '.join(known.values())}"
        raise InvalidOption(name, value, allowed, exists=False)


def text(name: str, value: str) -> str:
    if not value:
        raise InvalidOption(name, value, "a text that is not empty")
    return value


def path_text(name: str, value: Any) -> str:
    """What was given as a path, as text."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidOption(name, f"{value!r:.60}", "a path")
    return os.fspath(value)


def place(name: str, value: str) -> str:
    """A folder as below, or the URL of a store of published segments."""
    return value if _is_store(name, text(name, value)) else folder(name, value)


def _is_store(name: str, value: str) -> bool:
    try:
        return is_remote(value)
    except NotPossible as error:
        raise InvalidOption(
            name, value, f"a folder that the driver and all workers see, or a store ({error.reason})"
        ) from None


def folder(name: str, value: str) -> str:
    """A path, also as the URL that Spark makes of one."""
    if not re.match(r"(?i)file:|[a-z][a-z0-9+.-]+:/", text(name, value)):
        return os.path.expanduser(value)  # noqa: PTH111 - a Path would drop what a later error has to quote
    url = urlsplit(value)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        allowed = "a folder that the driver and all workers see under this path; mount it, or copy it there"
        raise InvalidOption(name, value, allowed)
    return unquote(url.path)


def several(name: str, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
    if not all(found):
        raise InvalidOption(name, value, "names with commas between them")
    return found


def choice(*allowed: str) -> Callable[[str, str], str]:
    def parser(name: str, value: str) -> str:
        if value.lower() not in allowed:
            raise InvalidOption(name, value, " or ".join(allowed))
        return value.lower()

    return parser


def truth(name: str, value: str) -> bool:
    return choice("true", "false")(name, value) == "true"


def count(name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,17}", value):
        raise InvalidOption(name, value, "a whole number from 1 on")
    return int(value)


def size(name: str, value: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,14})\s*([kmg]?)b?", value.strip().lower())
    if not found:
        raise InvalidOption(name, value, "a number of bytes from 1 on, such as 500000, 512k, 64m or 1g")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def seconds(name: str, value: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)", value.strip().lower())
    if not found:
        raise InvalidOption(name, value, "a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS[found[2]]
