"""Markdown pages as programs.

```python                  the blocks of one page run in order, in one namespace, in an empty folder;
                           each `#> ...` comment in them is a line that the page must print
```python file=events.py   written to that file of the folder instead; pytest runs those named test_*.py
```console                 after that, `$ helio ...` and `$ python ...` run there too; output shown below
                           must be printed, where `...` stands for anything; `(exit code 2)` as its last line
                           is expected; one with `&` at its end runs beside the others, until Ctrl-C
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


class Block(NamedTuple):
    """A fenced block: the words behind its fence, the number of its first line, and its lines."""

    info: list[str]
    first_line: int
    lines: list[str]


class Command(NamedTuple):
    """A command of a console block with what it should print and return."""

    arguments: list[str]
    output: str | None
    exit_code: int
    is_beside: bool = False
    """Whether it runs beside the commands that follow."""


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    blocks: list[Block] = []
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        if is_open:
            if line.rstrip() == "```":
                is_open = False
            else:
                blocks[-1].lines.append(line)
        elif line.startswith("```"):
            is_open = True
            blocks.append(Block(line[3:].split(), number + 1, []))
    if is_open:
        raise ValueError(f"the fence before line {blocks[-1].first_line} is never closed")
    return blocks


def script_of(blocks: list[Block]) -> str:
    """The program of a page; each line at its number in the page, so that tracebacks point there."""
    lines: list[str] = []
    for block in blocks:
        if block.info == ["python"]:
            lines += [""] * (block.first_line - 1 - len(lines)) + block.lines
    return "\n".join(lines) + "\n" if lines else ""


def files_of(blocks: list[Block]) -> dict[str, str]:
    """The files that a page shows, by name."""
    return {
        option.removeprefix("file="): "\n".join(block.lines) + "\n"
        for block in blocks
        for option in block.info[1:]
        if option.startswith("file=")
    }


def prints_of(script: str) -> list[str]:
    """The lines that a script says it prints."""
    return re.findall(r"#> ?(.*)$", script, re.MULTILINE)


def commands_of(blocks: list[Block]) -> list[Command]:
    """The `helio` and `python` commands of a page. Others, such as `make run`, are tested elsewhere."""
    commands: list[Command] = []
    for block in blocks:
        if block.info == ["console"]:
            for chunk in re.split(r"^\$ ", "\n".join(block.lines), flags=re.MULTILINE)[1:]:
                line, _, output = chunk.partition("\n")
                if line.startswith(("helio ", "python ")):
                    commands.append(_command(line, output.strip("\n")))
    return commands


def matches(output: str, shown: str) -> bool:
    """Whether a program printed what the page shows; `...` stands for anything, line ends do not count."""
    pattern = ".*".join(re.escape(part) for part in _tidy(shown).split("..."))
    return re.fullmatch(pattern, _tidy(output), re.DOTALL) is not None


def _command(line: str, output: str) -> Command:
    exit_code = 0
    if ending := re.search(r"(?:^|\n)\(exit code (\d+)\)$", output):
        exit_code, output = int(ending[1]), output[: ending.start()]
    command, is_beside, _ = line.partition(" &")
    return Command(shlex.split(command), output or None, exit_code, bool(is_beside))


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
