"""Runs all suites, and runs the few tests that failed there again alone: is one broken, or unsteady?

Some tests start many processes and are sensitive to how two busy cores share their time. A run of all
suites with at most `MAX_UNSTEADY` failures is accepted if each of these tests then passes `TIMES` times in a
row. It is printed as unsteady, and is a defect to be looked into. A failure that comes again fails the run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

MAX_UNSTEADY = 3
"""More failures than that are not chance."""
TIMES = 5
"""A test that fails in every second run passes five in a row in one case of 32."""


def run(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failed"
        code = run("--failed-to", str(file), *arguments)
        failed = file.read_text().splitlines() if file.exists() else []
    if code != 1 or not 0 < len(failed) <= MAX_UNSTEADY:
        return code  # nothing failed, or a budget was exceeded, or too much is broken
    print(f"run again alone, {TIMES} times: {', '.join(failed)}", flush=True)
    for _ in range(TIMES):
        code = run("-q", *failed)
        if code:
            return code
    print(f"UNSTEADY: failed among all suites, passed {TIMES} times alone: {', '.join(failed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
