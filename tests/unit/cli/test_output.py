from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from heliograph.cli.output import age_text, print_json, print_json_line, print_table, printable, size_text

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


def test_a_table_that_fits_without_a_frame_is_printed_in_plain_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    print_table(["a", "b"], [("x" * 40, "y" * 38)])
    assert capsys.readouterr().out == f"a{' ' * 41}b\n{'x' * 40}  {'y' * 38}\n"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB"), (3 << 39, "1.5 TiB")]
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0 s"), (59, "59 s"), (61, "1 min"), (90_000, "1 d")])
def test_ages_are_in_their_largest_unit(seconds: int, text: str) -> None:
    assert age_text(0, seconds * 1_000_000_000) == text


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
