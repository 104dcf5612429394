"""Runs programs, those of `link_process` if nothing else is said, and listens to what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tests.e2e.link_support import LIMIT, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


class Program:
    """A running program, and what it has said."""

    def __init__(
        self,
        *arguments: str,
        module: str = "tests.e2e.link_process",
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def says(self, start: str, limit: float = 2 * LIMIT) -> str:
        """The first line that starts so, once it has been said."""
        assert wait_until(lambda: self._find(start) or self.process.poll() is not None, limit), self.said
        if self.process.poll() is not None:  # what it said last may not have been listened to
            self._listener.join(LIMIT)
        line = self._find(start)
        assert line is not None, f"it ended with {self.process.poll()} and said {self.said}"
        return line

    def stop(self) -> None:
        """Send SIGSTOP; what it reads before that takes effect, it has read when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)

    def end(self) -> int:
        """Close its standard input, which it waits for, and return its exit code."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(LIMIT)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        self._listener.join(LIMIT)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _find(self, start: str) -> str | None:
        return next((line for line in list(self.said) if line.startswith(start)), None)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())


def heard(hearer: Program) -> tuple[dict[str, int], bool, dict[str, int]]:
    """Of a program `hear`: how many events came of each channel, whether in order, and the known losses."""
    before = len(hearer.said)
    assert hearer.process.stdin is not None
    hearer.process.stdin.write("\n")
    hearer.process.stdin.flush()
    assert wait_until(lambda: len(hearer.said) > before)
    counts, ordered, missed = json.loads(hearer.said[-1].removeprefix("heard "))
    return counts, ordered, dict(sum(map(Counter, missed), Counter()))
