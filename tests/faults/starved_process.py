"""Opens stations and persistent channels with ever more descriptors to be had, until it works.

What failed half-way must leave nothing behind: with enough descriptors the same can be opened at once.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 64
"""Descriptors beyond those that are open, at most, that opening something takes."""


class Note(hg.Event, name="starved.note"):
    n: int


@contextmanager
def descriptors(number: int) -> Iterator[None]:
    """No more than so many beyond those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def failures(open_and_close: Callable[[int], None]) -> int:
    """How often it failed before there were enough; each time it works at once without a limit."""
    for number in range(MOST):
        try:
            with descriptors(number):
                open_and_close(number)
        except (OSError, hg.HeliographError):
            open_and_close(number)
        else:
            return number
    raise AssertionError("it never worked")


def main(folder: str) -> None:
    qos = hg.QoS(durability="persistent")

    def channel(number: int) -> None:
        with closing(station.channel(f"c{number}", Note, qos=qos)) as opened:
            opened.push(Note(number))

    def whole(number: int) -> None:
        with hg.Station(Path(folder) / f"s{number}") as one:
            one.channel("c", Note, qos=qos).push(Note(number))

    with hg.Station(Path(folder) / "channels") as station:
        print("channels", failures(channel), flush=True)
    print("stations", failures(whole), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
