"""Log lines as JSON, one object a line: for programs that collect logs.

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLogFormatter())
    logging.getLogger("heliograph").addHandler(handler)

    {"time": "2026-11-18T12:00:00.123456Z", "level": "WARNING", "logger": "heliograph.links.mesh.mesh",
     "message": "no link: …", "template": "no link: %s", "args": ["…"], "thread": "…", "pid": 4711}

`template` is the same for all lines of one kind, so that collectors can count and alert by it;
docs/reference/log-messages.md says of each what it means.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

MAX_ARGUMENT: Final = 1_000
"""Characters of one argument in a line."""


class JsonLogFormatter(logging.Formatter):
    """See the module."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _text(record.getMessage()),
            "template": _text(record.msg),
            "args": _arguments(record.args),
            "thread": record.threadName,
            "pid": record.process,
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__qualname__
            line["traceback"] = _text(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def _arguments(given: Any) -> list[Any]:
    values = () if given is None else given if isinstance(given, tuple) else (given,)
    return [
        value if value is None or isinstance(value, bool | int | float) else _text(value)[:MAX_ARGUMENT]
        for value in values
    ]


def _text(value: object) -> str:
    # Names of files may have bytes that are no text, which JSON cannot hold.
    return str(value).encode(errors="backslashreplace").decode()
