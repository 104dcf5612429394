"""Joining a managed channel from another process, with the record synced; the paper has no figure for it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

JOINS = 500
ASKED = 0.005
"""Seconds: what half of all joins are to stay below."""
LIMIT = 60.0


class Drawing(hg.Event, name="join.drawing"):
    part: str


@experiment("wang-join")
def joins(size: Size) -> Experiment:
    rounds = 50 if size.quick else JOINS
    domain = f"join-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, hg.Station(domain=domain) as station:
        options = ("--domain", domain, "--folder", folder, "--no-page")
        keeper = subprocess.Popen(
            [sys.executable, "-m", "heliograph.cli", "station", *options],
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert keeper.stdout is not None
            keeper.stdout.readline()
            manager = station.domain_manager
            manager.create("wing", Drawing, owner="anna", lease=0)
            taken: dict[str, list[float]] = {"join": [], "find_managed": [], "leave": []}
            for number in range(rounds):
                user = f"user {number}"
                for call, ask in (
                    ("join", lambda user=user: manager.join("wing", user, access="consume", lease=0)),
                    ("find_managed", lambda: manager.find_managed("wing")),
                    ("leave", lambda user=user: manager.leave("wing", user)),
                ):
                    begun = time.perf_counter()
                    ask()
                    taken[call].append(time.perf_counter() - begun)
        finally:
            keeper.terminate()
            keeper.communicate(timeout=LIMIT)
    rows = []
    for call, found in taken.items():
        ordered = sorted(found)
        cells = (statistics.median(ordered), ordered[round(0.9 * (rounds - 1))], ordered[-1])
        rows.append((call, str(rounds), *(f"{1e3 * cell:.2f}" for cell in cells)))
    median = statistics.median(taken["join"])
    return Experiment(
        "wang-join",
        "Wang and others, section 2: joining from another process",
        f"{rounds} users join a channel for members only and leave it again, from another process than "
        "the one that keeps it. A record of each is synced before the call returns.",
        ("call", "calls", "median ms", "90 % ms", "slowest ms"),
        tuple(rows),
        (Fact(f"Half of all joins take less than 5 ms: {1e3 * median:.2f} ms.", median < ASKED),),
    )
