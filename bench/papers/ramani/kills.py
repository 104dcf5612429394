"""Kills of supplier, consumer, service and watchdog, singly and in pairs: how long until all agree again.

The service is `helio station --watchdog --ping 1` with a folder; a supplier and a consumer are processes of
their own, which are begun again at once when they are killed, as a service manager would. After each kill
the supplier says something new of every key, as soon as its pushes are taken again. A kill has been healed
when the consumer has all of it. The paper has no figures for this; its design promises that a service that
is killed is back within two ping periods, and that everybody rebinds.
"""

from __future__ import annotations

import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import heliograph as hg
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
KEYS = 50
KILLS = int(os.environ.get("HELIO_KILLS", "500"))
PING = 1.0
LIMIT = 60.0
VICTIMS = (
    ("service",),
    ("supplier",),
    ("consumer",),
    ("watchdog",),
    ("service", "supplier"),
    ("service", "consumer"),
    ("supplier", "consumer"),
    ("watchdog", "supplier"),
    ("watchdog", "consumer"),
)
PERSISTENT = hg.QoS(durability="persistent")


class Status(hg.Event, name="kills.status", key="key"):
    key: int
    value: int


class Role:
    """A process, begun again whenever it is killed, and what its lives have said."""

    def __init__(self, name: str, command: Callable[[], list[str]]) -> None:
        self.name = name
        self._command = command
        self._lines: queue.Queue[str] = queue.Queue()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self._command()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The watchdog tells of each kill; what another role says there is why it has ended by itself.
            stderr=subprocess.DEVNULL if self.name == "watchdog" else None,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._lines.put(line.strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def tell(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()

    def says(self, begin: str, limit: float = LIMIT) -> str | None:
        """The next line that begins so; None when there is none in time."""
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line.startswith(begin):
                return line
        return None


class Stage:
    """All roles, and the round that they are in."""

    def __init__(self, stack: ExitStack) -> None:
        domain = f"kills-{uuid4().hex[:8]}"
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        options = ("--domain", domain, "--folder", folder, "--ping", str(PING), "--no-page", "--watchdog")
        me = "bench.papers.ramani.kills"
        self.watchdog = Role("watchdog", lambda: ["heliograph.cli", "station", *options])
        self.service = self._service_pid()
        self.supplier = Role("supplier", lambda: [me, "supply", domain])
        self.consumer = Role("consumer", lambda: [me, "consume", domain])
        for role in (self.watchdog, self.supplier, self.consumer):
            stack.callback(role.kill)
        self.round = 0

    def _service_pid(self) -> int:
        line = self.watchdog.says("station")
        assert line is not None, "the service has not begun"
        return int(line.split("process ")[1].split(",")[0])

    def agree(self) -> float | None:
        """Have the supplier say something new; seconds until the consumer has all of it, None: never."""
        self.round += 1
        begun = time.monotonic()
        self.supplier.tell(str(self.round))
        return time.monotonic() - begun if self.consumer.says(f"all {self.round} ") else None

    def kill(self, victims: tuple[str, ...]) -> float | None:
        """Kill some, begin again what nobody else does; seconds until all agree, None: they never did."""
        begun = time.monotonic()
        for name in victims:
            if name == "service":
                os.kill(self.service, signal.SIGKILL)
            else:
                getattr(self, name).kill()
        for name in victims:
            if name != "service":
                getattr(self, name).start()
        took = self.agree()
        if "service" in victims or "watchdog" in victims:
            self.service = self._service_pid()
        return None if took is None else time.monotonic() - begun


@experiment("ramani-kills")
def kills(size: Size) -> Experiment:
    most = len(VICTIMS) if size.quick else KILLS
    healed: dict[tuple[str, ...], list[float]] = {victims: [] for victims in VICTIMS}
    missed = 0
    with ExitStack() as stack:
        stage = Stage(stack)
        assert stage.agree() is not None, "the roles have not met"
        started = [_start_seconds(stage) for _ in range(3)]
        for number in range(most):
            victims = VICTIMS[number % len(VICTIMS)]
            took = stage.kill(victims)
            if took is None:
                missed += 1
            else:
                healed[victims].append(took)
    rows = [
        (" + ".join(victims), str(len(found)), *(f"{value:.2f}" for value in _spread(found)))
        for victims, found in healed.items()
    ]
    slowest = max((value for found in healed.values() for value in found), default=0.0)
    late = sum(value > 2 * PING for found in healed.values() for value in found)
    return Experiment(
        "ramani-kills",
        "Ramani and others, section 3.1: kills of each role, singly and in pairs",
        f"{most} kills with SIGKILL; ping period {PING:g} s; {KEYS} keys. Seconds from the kill until the "
        "consumer has everything that the supplier says after it, with the start of the killed processes, "
        f"of which a program that only opens a station takes {statistics.median(started):.2f} s here.",
        ("killed", "kills", "median s", "90 % s", "slowest s"),
        tuple(rows),
        (
            Fact(f"After each of {most} kills all agreed again; {missed} were missed.", not missed),
            Fact(
                f"Within two ping periods, {2 * PING:g} s: all but {late} of {most}, the slowest in "
                f"{slowest:.2f} s.",
                not late,
            ),
        ),
    )


def _spread(found: list[float]) -> tuple[float, float, float]:
    if not found:
        return 0.0, 0.0, 0.0
    ordered = sorted(found)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))], ordered[-1]


def _start_seconds(stage: Stage) -> float:
    begun = time.monotonic()
    stage.consumer.kill()
    stage.consumer.start()
    assert stage.consumer.says("ready") is not None
    return time.monotonic() - begun


def opened(station: hg.Station) -> hg.Channel[Status]:
    """The channel, once a station is there that keeps it: it may have been killed at the same time."""
    while True:
        try:
            return station.channel("status", Status, qos=PERSISTENT)
        except hg.HeliographError:
            time.sleep(0.01)


def supply(domain: str) -> None:
    """Push what each line says of all keys, again and again until it is acknowledged."""
    with hg.Station(domain=domain, name="supplier") as station:
        status = opened(station)
        status.state("latest")
        for line in sys.stdin:
            events = [Status(key, int(line)) for key in range(KEYS)]
            while True:
                try:
                    status.push_many(events, timeout=5.0)  # type: ignore[call-arg]  # where it is kept
                    break
                except hg.HeliographError:
                    time.sleep(0.01)


def consume(domain: str) -> None:
    """Say so whenever all keys have the same value."""
    with hg.Station(domain=domain, name="consumer") as station:
        status = opened(station)
        known: dict[int, int] = {}

        def keep(one: Status) -> None:
            known[one.key] = one.value
            if len(known) == KEYS and len(set(known.values())) == 1:
                print("all", one.value, "keys", flush=True)

        healing = hg.Resync(by="state", grace=0.05, check=PING, pause=0.05)
        status.subscribe(keep, resync=healing)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    {"supply": supply, "consume": consume}[sys.argv[1]](sys.argv[2])
