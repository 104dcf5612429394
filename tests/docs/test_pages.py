"""Everything that README and docs show runs as it is shown."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import (
    PAGES,
    ROOT,
    blocks_of,
    commands_of,
    files_of,
    matches,
    prints_of,
    script_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.pages import Command

BIN = Path(sys.executable).parent
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
WITH_PROGRAMS = [
    page
    for page in PAGES
    if {"python", "console"} & {b.info[0] for b in blocks_of(page.read_text()) if b.info}
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_the_programs_of_a_page_run_as_shown(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stations that run elsewhere on this machine have no part in what a page shows.
    monkeypatch.setitem(ENVIRONMENT, "XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    blocks = blocks_of(page.read_text())
    files = files_of(blocks)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if script := script_of(blocks):
        program = tmp_path / f"{page.stem}.md.py"
        program.write_text(script)
        outcome = run([sys.executable, "-W", "error", str(program)], tmp_path)
        assert outcome.returncode == 0, outcome.stderr
        if prints := prints_of(script):
            assert outcome.stdout.splitlines() == prints
    for name in files:
        if name.startswith("test_"):
            outcome = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name], tmp_path)
            assert outcome.returncode == 0, outcome.stdout
    with ExitStack() as beside:
        for command in commands_of(blocks):
            if command.is_beside:
                beside.enter_context(running(command, tmp_path))
                continue
            outcome = run(command.arguments, tmp_path)
            said = outcome.stdout + outcome.stderr
            assert outcome.returncode == command.exit_code, said
            if command.output is not None:
                assert matches(said, command.output), said


@contextmanager
def running(command: Command, folder: Path) -> Iterator[None]:
    """A command that runs beside others; when these have ended it has printed what the page shows."""
    with subprocess.Popen(
        command.arguments,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield
            shown = (command.output or "").splitlines()
            assert [process.stdout.readline().rstrip() for _ in shown] == shown
        finally:
            process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_there_are_pages_with_programs() -> None:
    assert {"README.md", "docs/tutorial/quickstart.md", "docs/guides/channels.md"} <= set(
        map(name_of, WITH_PROGRAMS)
    )


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [page.name[:4] for page in (ROOT / "docs" / "adr").glob("[0-9]*.md")]
    assert sorted(numbers) == sorted(set(numbers))
