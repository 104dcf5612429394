"""Programs with answerers, as processes of their own."""

from __future__ import annotations

import os
import sys
import time

import heliograph as hg
from tests.e2e.link_process import say
from tests.e2e.link_support import LIMIT, transport


class Ask(hg.Event, name="price.ask"):
    part: str


class Price(hg.Event, name="price.price"):
    part: str
    pid: int


def answer() -> None:
    """Answer until standard input ends; a part called "bad" is refused, "slow" is never answered."""
    with hg.Station(
        domain="e2e", transport=transport(), name="answerer", on_error=lambda *_: None
    ) as station:
        prices = station.channel("prices", Ask, Price)

        @prices.answer
        def quote(ask: Ask) -> Price:
            say("asked", ask.part)
            if ask.part == "bad":
                raise LookupError("no such part")
            if ask.part == "slow":
                time.sleep(LIMIT)
            return Price(ask.part, os.getpid())

        say("answers", os.getpid())
        sys.stdin.read()


if __name__ == "__main__":
    answer()
