from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from heliograph.cli.output import print_json, print_json_line, print_table, printable

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_plain_table_has_aligned_columns_and_never_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(["name", "note"], [("a", long), ("longer", None)])
    assert capsys.readouterr().out == f"name    note\na       {long}\nlonger\n"


def test_a_table_on_a_terminal_takes_cells_literally(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    print_table(["name"], [("[bold]a[/bold]",)])
    drawn = capsys.readouterr().out
    assert "[bold]a[/bold]" in drawn
    assert len(drawn.splitlines()) == 5


def test_a_table_that_is_wider_than_the_terminal_is_printed_value_by_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    ids = [f"{n:016x}" for n in range(3)]
    print_table(["id", "channel", "seen"], [(one, f"air.{'x' * 40}", f"{'9' * 30}Z") for one in ids])
    printed = capsys.readouterr().out
    assert printed.splitlines()[:4] == [
        f"     id  {ids[0]}",
        f"channel  air.{'x' * 40}",
        f"   seen  {'9' * 30}Z",
        "",
    ]
    assert all(one in printed for one in ids)


HOSTILE = "nbsp\xa0 del\x7f csi\x9b31m osc\x9d bidi\u202e line\u2028 tag\U000e0041 größe 日本"


@pytest.mark.parametrize("print_it", [print_json, print_json_line])
def test_json_is_valid_and_has_nothing_that_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str], print_it: Callable[[object], None]
) -> None:
    document = {"text": HOSTILE, HOSTILE: ["\x1b[2J\x00\n", 'a "quoted" \\u00a0']}
    print_it(document)
    printed = capsys.readouterr().out
    assert json.loads(printed) == document
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "größe 日本" in printed


@pytest.mark.parametrize(
    ("text", "shown"), [("größe", "größe"), ("\x1b[0m", "\\x1b[0m"), ("a\tb", "a\\tb"), ("\u202e", "\\u202e")]
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
