"""`make setup` says how far it is, on a terminal and without one, and what failed."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "tools" / "environment.py"


def _loaded() -> Any:
    """A program beside the package: it is no module that could be imported."""
    spec = importlib.util.spec_from_file_location("set_up_environment", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup = _loaded()

PIP = """#!{python}
import sys, time
from pathlib import Path
arguments = sys.argv[sys.argv.index("install") + 1:]
said = [one for one in arguments if not one.startswith("-")]
print("WARNING: Location 'file:///nowhere/' is ignored: it is neither a file nor a directory.")
if "pip" in said:
    print("Requirement already satisfied: pip")
    sys.exit(0)
print("Collecting pyspark==4.3.0")
print("  Downloading pyspark-4.3.0.tar.gz (430.1 MB)")
print("Installing collected packages: py4j, pyspark", flush=True)
if {fails}:
    print("ERROR: No space left on device")
    sys.exit(1)
for name in ("py4j", "pyspark"):
    Path({packages!r}, name + ".dist-info").mkdir(parents=True)
    time.sleep(0.7)
print("Successfully installed py4j-0.10 pyspark-4.3.0")
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def made(folder: Path, *, fails: bool = False) -> Path:
    """An environment whose Python says what a pip says."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PIP.format(python=sys.executable, packages=str(packages), fails=fails))
    python.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "install_browser", lambda *_: "there already")


def test_each_step_is_told_with_its_time_and_no_warning_of_pip_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "QUIET_SECONDS", 0.2)
    out = io.StringIO()
    setup.set_up(made(tmp_path), setup.Progress(out))
    lines = out.getvalue().splitlines()
    done = [line for line in lines if ", " in line and "s" in line and ":" not in line]
    assert [line.split()[:2] for line in done] == [
        ["1/4", "environment"],
        ["2/4", "pip"],
        ["3/4", "packages"],
        ["4/4", "chromium"],
    ]
    assert "all there" in done[1]
    assert "2 installed" in done[2]
    assert any("packages: installing 1 of 2" in line for line in lines), lines
    assert "WARNING" not in out.getvalue()
    assert "WARNING: Location" in (tmp_path / "setup.log").read_text()
    assert "\r" not in out.getvalue()


def test_a_terminal_has_one_line_that_changes(tmp_path: Path) -> None:
    out = Terminal()
    setup.set_up(made(tmp_path), setup.Progress(out, 60))
    shown = [line.partition("\x1b[2K")[2] for line in out.getvalue().split("\r")]
    assert any("installing" in line for line in shown)
    widths = {len(line) for line in shown if "installing" in line and "\n" not in line}
    assert widths
    assert max(widths) <= 60


def test_what_failed_is_shown_with_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path, fails=True)
    monkeypatch.setattr(sys, "argv", ["environment.py", str(folder)])
    assert setup.main() == 1
    told = capsys.readouterr().out
    assert "ERROR: No space left on device" in told
    assert f"all of it is in {folder}/setup.log" in told
    assert "WARNING" not in told
    assert "ready in" not in told


def test_what_pip_says_becomes_a_note(tmp_path: Path) -> None:
    notes: Any = setup.PipNotes(tmp_path)
    assert notes.text() == "looking up packages"
    for line, note in (
        ("Collecting msgspec>=0.19", "looking up msgspec, 1 so far"),
        ("  Downloading x/msgspec-0.20.whl (200 kB)", "downloading msgspec-0.20.whl (200 kB), 1 looked up"),
        ("Requirement already satisfied: rich", "downloading msgspec-0.20.whl (200 kB), 1 looked up"),
        ("Installing collected packages: a, b, c", "installing 0 of 3"),
    ):
        notes.read(line)
        assert notes.text() == note


def test_it_runs_where_nothing_is_installed() -> None:
    """With the standard library alone: the Python of the machine has no package of ours."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), "--help"]
    assert (
        "Make the environment" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
