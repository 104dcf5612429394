from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import heliograph as hg
from heliograph import cli, station
from heliograph.cli import app, run


def test_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"helio {hg.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["formats"], ["formats", "--help"]])
def test_a_command_alone_explains_itself(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage: helio" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["sub"], ["journal"], ["journal", "cat"], ["formats", "show"]])
def test_every_command_explains_itself_with_a_short_option(arguments: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*arguments, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.stdout == long.stdout


def test_every_command_takes_json() -> None:
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # get_command gives a group here
    commands = [
        command
        for name, found in groups.items()
        for command in getattr(found, "commands", {name: found}).values()
    ]
    assert len(commands) >= 3
    for command in commands:
        assert any("--json" in parameter.opts for parameter in command.params), command.name


def test_an_interrupt_ends_with_the_code_of_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(target: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.formats, "load", interrupted)
    assert run(["formats", "show", "x"]) == 130


def test_the_package_runs_as_a_program() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "heliograph.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert hg.__version__ in ran.stdout


def test_starting_loads_nothing_heavy() -> None:
    script = (
        "import sys; from heliograph.cli import run; run(['--version']); "
        "print(sorted({'rich', 'numpy', 'pyarrow', 'pandas', 'pyspark', 'msgspec'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_station_that_is_ended_while_it_starts_was_ended_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Starting:
        def __init__(self, *_: object, **__: object) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(station, "Station", Starting)
    assert run(["station"]) == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
