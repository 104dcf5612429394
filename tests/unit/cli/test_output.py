from __future__ import annotations

import sys

import pytest

from heliograph.cli.output import print_table, printable


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


@pytest.mark.parametrize(
    ("text", "shown"), [("größe", "größe"), ("\x1b[0m", "\\x1b[0m"), ("a\tb", "a\\tb"), ("\u202e", "\\u202e")]
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
