"""Log lines as JSON."""

from __future__ import annotations

import json
import logging
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heliograph.runtime.json_logs import MAX_ARGUMENT, JsonLogFormatter


def line(message: str, *args: Any, error: BaseException | None = None) -> Any:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("heliograph.x", logging.WARNING, "x.py", 1, message, args, info)
    text = JsonLogFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_has_its_message_and_the_template_that_it_was_made_of() -> None:
    told = line("station %s (pid %d) is silent for %g s", "radar", 4711, 1.5)
    assert told["message"] == "station radar (pid 4711) is silent for 1.5 s"
    assert told["template"] == "station %s (pid %d) is silent for %g s"
    assert told["args"] == ["radar", 4711, 1.5]
    assert (told["level"], told["logger"]) == ("WARNING", "heliograph.x")
    assert told["time"].endswith("Z")


def test_an_exception_is_named_and_has_its_traceback() -> None:
    told = line("a timer's call raised", error=ValueError("seven"))
    assert told["error"] == "ValueError"
    assert "seven" in told["traceback"]


ANY_TEXT = st.text(st.characters())  # with what is no Unicode, as names of files may have


@given(
    ANY_TEXT, st.lists(st.one_of(ANY_TEXT, st.integers(), st.floats(), st.none(), st.booleans()), max_size=3)
)
def test_whatever_is_in_it_stays_one_line_of_json(text: str, values: list[Any]) -> None:
    template = text.replace("%", "%%") + "%s" * len(values)
    told = line(template, *values)
    assert len(told["args"]) == len(values)
    assert all(len(one) <= MAX_ARGUMENT for one in told["args"] if isinstance(one, str))
