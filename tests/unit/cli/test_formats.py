from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli import run
from heliograph.model import field_types as ft
from heliograph.model.formats import Field, Format

AIR = """
import heliograph as hg

class Position(hg.Event):
    lat: float
    lon: float = 0.0

class Old(hg.Event, name="air.track", key="id"):
    id: hg.i32
    position: Position

class New(hg.Event, name="air.track", key="id"):
    id: int
    position: Position
    region: str = "unknown"

class Renamed(hg.Event, name="air.track", key="id"):
    id: int
    place: Position

class Outer:
    class Inner(hg.Event, body="native"):
        small: hg.u8
        large: float

not_a_class = 7
"""


@pytest.fixture
def air(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name of its own so that no test sees another's."""
    name = f"air_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(AIR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(output(capsys, *arguments, "--json", code=code))


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The single line that a failing command leaves on standard error."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("helio: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_show_lists_all_fields(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    heading, *table = output(capsys, "formats", "show", f"{air}:Old").splitlines()
    assert heading.startswith("air.track  id ")
    assert heading.endswith("  packed")
    assert [line.split() for line in table] == [
        ["field", "type", "key", "offset"],
        ["$.id", "i32", "key"],
        ["$.position", "record", "Position"],
        ["$.position.lat", "f64"],
        ["$.position.lon", "f64"],
    ]


def test_show_prints_one_json_document(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = document(capsys, "formats", "show", f"{air}:Outer.Inner")
    assert (shown["name"], shown["body"], shown["size"], shown["key"]) == ("Inner", "native", 16, [])
    assert len(bytes.fromhex(shown["id"])) == 12
    assert shown["fields"] == [
        {"path": "$.small", "type": "u8", "key": False, "offset": 0},
        {"path": "$.large", "type": "f64", "key": False, "offset": 8},
    ]


def test_show_says_how_a_native_body_is_laid_out(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    heading = output(capsys, "formats", "show", f"{air}:Outer.Inner").splitlines()[0]
    assert heading.endswith(f"native, {sys.byteorder}-endian, 16 bytes and what they refer to")


def test_an_exported_file_shows_the_same_format(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    exported = document(capsys, "formats", "export", f"{air}:Old", "-o", "old.hgf")
    assert exported["file"] == "old.hgf"
    assert document(capsys, "formats", "show", "old.hgf") == document(capsys, "formats", "show", f"{air}:Old")
    assert output(capsys, "formats", "export", f"{air}:Old", "-o", "old.hgf") == (
        f"old.hgf: air.track  id {exported['id']}\n"
    )


def test_check_accepts_a_compatible_change_and_tells_what_becomes_of_fields(
    air: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output(capsys, "formats", "export", f"{air}:Old", "-o", "old.hgf")
    assert output(capsys, "formats", "check", "old.hgf", f"{air}:New").splitlines() == [
        f"old.hgf can be read as {air}:New",
        "  default    $.region",
        "  widened    $.id: i32 to i64",
    ]


def test_check_refuses_a_rename_with_exit_code_1(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked = document(capsys, "formats", "check", f"{air}:Old", f"{air}:Renamed", code=1)
    assert checked["compatible"] is False
    (direction,) = checked["directions"]
    assert direction["ignored"] == ["$.position"]
    assert direction["widened"] == [{"path": "$.id", "writer": "i32", "reader": "i64"}]
    (problem,) = direction["problems"]
    assert "is it the writer's 'position'" in problem
    text = output(capsys, "formats", "check", f"{air}:Old", f"{air}:Renamed", code=1)
    assert "CANNOT be read as" in text
    assert problem in text


def test_check_can_refuse_all_missing_fields(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["formats", "check", f"{air}:Old", f"{air}:New"]
    assert document(capsys, *arguments, "--missing", "default")["compatible"]
    assert not document(capsys, *arguments, "--missing", "refuse", code=1)["compatible"]


def test_check_looks_in_both_directions_when_asked(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    checked = document(capsys, "formats", "check", f"{air}:Old", f"{air}:New", "--both", code=1)
    assert [direction["compatible"] for direction in checked["directions"]] == [True, False]
    assert checked["directions"][1]["problems"][0].startswith("$.id: i64 of the writer cannot be read as i32")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "nothing"], "'nothing' is no target: write module:Class, or the name of a *.hgf file"),
        (["show", ":"], "':' is no target"),
        (["show", "absent.hgf"], "cannot read absent.hgf: No such file or directory"),
        (["show", "no_such_module:Track"], "cannot import no_such_module: ModuleNotFoundError"),
        (["show", "{air}:Absent"], "has no Absent"),
        (["show", "{air}:not_a_class"], "7 is no event class"),
        (["show"], "Missing argument"),
        (["show", "{air}:Old", "--what"], "No such option"),
        (["check", "{air}:Old", "{air}:New", "--missing", "sometimes"], "--missing"),
        (["export", "{air}:Old"], "Missing option"),
        (["export", "{air}:Old", "-o", "absent/old.hgf"], "cannot write absent/old.hgf"),
        (["frobnicate"], "No such command"),
    ],
)
def test_bad_input_gets_one_clear_line(
    air: str, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert sentence in failure(capsys, "formats", *(a.format(air=air) for a in arguments))


def test_a_file_that_is_no_description_is_refused(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.hgf").write_bytes(b"\x00")
    assert "broken.hgf holds no format description" in failure(capsys, "formats", "show", "broken.hgf")
    Path("huge.hgf").write_bytes(b"\x00" * (2 << 20))
    assert "at most 1048576 are allowed" in failure(capsys, "formats", "show", "huge.hgf")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("def", "SyntaxError"),
        (
            "import heliograph as hg\nclass Bad(hg.Event):\n    x: set",
            "FormatError: set is no type for a field",
        ),
    ],
)
def test_a_module_that_fails_to_import_is_told_in_one_line(
    air: str, capsys: pytest.CaptureFixture[str], source: str, sentence: str
) -> None:
    name = f"failing_{air}"
    Path(f"{name}.py").write_text(source)
    assert sentence in failure(capsys, "formats", "show", f"{name}:Bad")


def test_what_a_module_prints_stays_out_of_the_document(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"chatty_{air}"
    Path(f"{name}.py").write_text(f"print('hello')\nfrom {air} import Old")
    assert run(["formats", "show", f"{name}:Old", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["name"] == "air.track"
    assert captured.err == "hello\n"


def test_names_from_outside_cannot_steer_the_terminal(air: str, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = Format("\x1b]0;title\x07", (Field("\x1b[2J[bold]", ft.Scalar("i8")),))
    Path("hostile.hgf").write_bytes(hostile.description)
    shown = output(capsys, "formats", "show", "hostile.hgf")
    assert "\x1b" not in shown
    assert "\\x1b[2J[bold]" in shown


def test_the_program_itself_answers_with_its_exit_code(air: str) -> None:
    command = [sys.executable, "-c", "from heliograph.cli import main; main()", "formats"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}

    def helio(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)

    assert helio("check", f"{air}:Old", f"{air}:New").returncode == 0
    assert helio("check", f"{air}:Old", f"{air}:Renamed").returncode == 1
    failed = helio("show", "nothing")
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
