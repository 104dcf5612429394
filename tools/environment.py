"""Makes the environment `.venv` with everything at the pinned versions, and says how far it is.

    python tools/environment.py .venv          `make setup` does this, and with it every other target

Four steps: the environment, its pip, the packages, and a browser for tests of pages. On a terminal one line
changes as it goes on; elsewhere a line comes every few seconds. What pip says, with its warnings, is in
`setup.log` in the environment, and when a step fails the end of it is shown.

Only the standard library: nothing is installed yet.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REPOSITORY = Path(__file__).resolve().parents[1]
EXTRAS = "spark,tables,report,network,mcap,page,store,otel,foxglove"
STEPS = 4
QUIET_SECONDS = 5.0
"""Between two lines where nobody looks at a terminal."""
LINES_SHOWN = 15
"""Of the log, when a step fails."""
APT = ("apt-get", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::Retries=0")
APT_SECONDS = 300


class StepFailed(Exception):
    """A step that ended otherwise than well; what it said is in the log."""


class Progress:
    """Says which step is under way, how far it is and how long it took."""

    def __init__(self, out: TextIO, width: int = 100) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._width = width
        self._began = time.monotonic()
        self._step_began = self._told_at = self._began
        self._number = 0
        self._name = ""

    def begin(self, name: str) -> None:
        self._number += 1
        self._name = name
        self._step_began = self._told_at = time.monotonic()
        if self._is_terminal:
            self.note("")

    def note(self, text: str) -> None:
        """How far the step is; where there is no terminal only now and then."""
        now = time.monotonic()
        line = f"  {self._number}/{STEPS} {self._name}{f': {text}' if text else ''}"
        seconds = f"{now - self._step_began:4.0f} s"
        if self._is_terminal:
            self._rewrite(f"{line[: self._width - 10]:{self._width - 10}}{seconds}")
        elif now - self._told_at >= QUIET_SECONDS:
            self._told_at = now
            self._print(f"{line}, {seconds.strip()}")

    def done(self, text: str = "done") -> None:
        took = time.monotonic() - self._step_began
        if self._is_terminal:
            self._rewrite("")
        self._print(f"  {self._number}/{STEPS} {self._name:12} {text}, {took:.1f} s")

    def end(self) -> None:
        self._print(f"ready in {time.monotonic() - self._began:.0f} s")

    def say(self, text: str) -> None:
        if self._is_terminal:
            self._rewrite("")
        self._print(text)

    def _rewrite(self, line: str) -> None:
        self._out.write(f"\r\x1b[2K{line}")
        self._out.flush()

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class PipNotes:
    """What to tell of a running pip, from its lines and from what is installed so far."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._known = 0
        self._collected: set[str] = set()
        self._to_install = 0
        self._last = "looking up packages"

    def read(self, line: str) -> None:
        line = line.strip()
        if found := re.match(r"(?:Collecting|Obtaining) ([\w.-]+)", line):
            self._collected.add(found[1].lower())
            self._last = f"looking up {found[1]}, {len(self._collected)} so far"
        elif found := re.match(r"Downloading (\S+?)(?: \(([\d.]+ \wB)\))?$", line):
            size = f" ({found[2]})" if found[2] else ""
            self._last = f"downloading {found[1].rpartition('/')[2]}{size}, {len(self._collected)} looked up"
        elif line.startswith("Building wheel"):
            self._last = "building"
        elif line.startswith("Installing collected packages: "):
            self._to_install = line.count(",") + 1
            self._known = self._installed()

    def text(self) -> str:
        if not self._to_install:
            return self._last
        return f"installing {min(self._installed() - self._known, self._to_install)} of {self._to_install}"

    def _installed(self) -> int:
        return sum(1 for _ in self._environment.glob("lib/python*/site-packages/*.dist-info"))


def install(environment: Path, arguments: Sequence[str], progress: Progress, log: TextIO) -> str:
    """Run pip in the environment; returns what it did. StepFailed when it could not."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    notes, last = PipNotes(environment), ""
    with subprocess.Popen(  # noqa: S603 - the environment's own pip
        [*command, "--progress-bar", "off", "--no-input", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPOSITORY,
    ) as pip:
        try:
            for line in _lines(pip):
                if line:
                    log.write(line)
                    notes.read(line)
                    last = line.strip() if line.startswith("Successfully installed") else last
                progress.note(notes.text())
        except BaseException:
            pip.terminate()
            raise
    if pip.returncode:
        raise StepFailed
    return f"{last.count(' ') - 1} installed" if last else "all there"


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines of a process as they come, and an empty text when none came for a moment."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line


def install_browser(progress: Progress, log: TextIO) -> str:
    """Chromium for tests of pages, where it can be installed; they are skipped without it."""
    if shutil.which("chromium"):
        return "there already"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "not here: tests of pages in a browser are skipped (apt-get install chromium)"
    ends = time.monotonic() + APT_SECONDS
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", "chromium")):
        with subprocess.Popen(  # noqa: S603 - the machine's own package manager
            [*APT, *arguments], stdout=log, stderr=log, env=environment
        ) as apt:
            while apt.poll() is None:
                progress.note(f"apt-get {arguments[0]}")
                if time.monotonic() > ends:
                    apt.terminate()
                time.sleep(0.2)
        if apt.returncode:
            return "cannot be installed: tests of pages in a browser are skipped"
    return "installed"


def set_up(environment: Path, progress: Progress) -> None:
    """All steps; StepFailed when one of them did not end well."""
    progress.begin("environment")
    if not (environment / "bin" / "python").exists():
        made = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-m", "venv", str(environment)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            progress.say(made.stdout + made.stderr)
            raise StepFailed
    progress.done(str(environment))
    pinned = ("--constraint", str(REPOSITORY / "constraints.txt"))
    with (environment / "setup.log").open("w") as log:
        progress.begin("pip")
        progress.done(install(environment, [*pinned, "pip"], progress, log))
        progress.begin("packages")
        everything = ["--editable", f".[{EXTRAS}]", "--group", "dev", "--group", "bench"]
        building = ("--build-constraint", str(REPOSITORY / "constraints.txt"))
        progress.done(install(environment, [*pinned, *building, *everything], progress, log))
        progress.begin("chromium")
        progress.done(install_browser(progress, log))


def failed(environment: Path, progress: Progress) -> None:
    """Say what a step that failed said at last."""
    log = environment / "setup.log"
    if not log.exists():
        return
    lines = [line for line in log.read_text().splitlines() if line and not line.startswith("WARNING")]
    progress.say("\n".join(f"    {line}" for line in lines[-LINES_SHOWN:]))
    progress.say(f"set-up failed; all of it is in {log}, and the next `make` goes on from here")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the environment, and say how far it is.")
    parser.add_argument("environment", type=Path)
    environment = parser.parse_args().environment
    progress = Progress(sys.stdout, shutil.get_terminal_size().columns)
    progress.say(f"setting up {environment}; a first time takes minutes, mostly for Spark and its Java")
    try:
        set_up(environment, progress)
    except StepFailed:
        failed(environment, progress)
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted; the next `make` goes on from here")
        return 130
    progress.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
