"""`helio station --watchdog`: a station in a process of its own, which is begun again when it dies or hangs.

The watchdog asks the station for a sign of life over a link of its own, twice in a ping period. When there
was none for two periods the process is killed and begun again. The station ends with its watchdog, whatever
ends that.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from heliograph.cli.output import print_line, print_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.station import Station

LOOK_SECONDS: Final = 0.02
"""Between two looks at whether the process has ended."""
START_SECONDS: Final = 60.0
"""How long a station may take to begin: it reads what its folder has."""
EXTEND_SECONDS: Final = 10.0
"""How much longer a service manager is to wait for a station that has not begun yet, each time it is told."""
END_SECONDS: Final = 10.0
"""How long a station that is told to end may take for it."""
PR_SET_PDEATHSIG: Final = 1
WATCHED_BY: Final = "HELIO_WATCHED_BY"
"""In the environment of a station's process: the process of its watchdog."""


class Service:
    """The station's process, and what it is called in the domain."""

    def __init__(self, arguments: Sequence[str]) -> None:
        from heliograph.runtime.child_process import python_command  # noqa: PLC0415 - commands import late

        self.station: int | None = None
        self.process = subprocess.Popen(  # noqa: S603 - our own command, with the options of this one
            python_command("heliograph.cli", "station", *arguments, "--json"),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, WATCHED_BY: str(os.getpid())},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True, name="watched station").start()

    def wait_begun(self, wait: Callable[[], object]) -> bool:
        """Whether it has said which station it is; `wait` is called again and again until it has."""
        import msgspec  # noqa: PLC0415 - as above

        deadline, text = time.monotonic() + START_SECONDS, ""
        while time.monotonic() < deadline and self.process.poll() is None:
            wait()
            with suppress(queue.Empty):
                text += self._lines.get(timeout=LOOK_SECONDS)
                with suppress(ValueError, KeyError):
                    self.station = int(msgspec.json.decode(text)["station"], 16)
                    return True
        return False

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


def end_with_watchdog() -> None:
    """In the station's process: end when the watchdog does, also when that is killed."""
    watchdog = os.environ.pop(WATCHED_BY, "")
    if not watchdog:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(watchdog):  # it has ended before that was said
        os.kill(os.getpid(), signal.SIGKILL)


def watch(domain: str, arguments: Sequence[str], ping: float) -> None:
    """Run a station, and begin it again whenever it dies or hangs, until this process is told to end."""
    from heliograph.delivery.watchdog import EndService, Ping, Start, WatchdogMachine  # noqa: PLC0415 - as above
    from heliograph.runtime.service_manager import notify  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    service: Service | None = None
    answers: queue.Queue[int] = queue.Queue()
    with Station(domain=domain, name="helio watchdog") as here:
        clock = here.ports.clock
        machine = WatchdogMachine(ping=ping, now=clock.monotonic_ns())
        try:
            while True:
                now = clock.monotonic_ns()
                with suppress(queue.Empty):
                    while True:
                        machine.answered(answers.get_nowait())
                if service is not None and service.process.poll() is not None:
                    print_problem(f"the station ended with {service.process.returncode}; it is begun again")
                    service = None
                    machine.ended(now)
                for action in machine.due(now):
                    match action:
                        case Start():
                            service = _start(arguments, first=not machine.starts)
                            machine.started(clock.monotonic_ns())
                            notify("READY=1")
                        case Ping() if service is not None:
                            _ping(here, service, ping, answers)
                        case EndService() if service is not None:
                            print_problem(f"the station has not answered for {2 * ping:g} s; it is killed")
                            service.process.kill()
                notify("WATCHDOG=1")
                here.ports.tasks.sleep(LOOK_SECONDS)
        finally:
            notify("STOPPING=1")
            if service is not None:
                _end(service)


def _start(arguments: Sequence[str], *, first: bool) -> Service:
    from heliograph.runtime.service_manager import notify  # noqa: PLC0415 - as above

    def still_starting() -> None:
        """A folder that takes long to open is no hang: the service manager waits for it, too."""
        notify("WATCHDOG=1")
        if first:
            notify(f"EXTEND_TIMEOUT_USEC={round(EXTEND_SECONDS * 1e6)}")

    service = Service(arguments)
    if service.wait_begun(still_starting):
        print_line(
            f"station {service.station:016x}, process {service.process.pid}{'' if first else ', again'}"
        )
    return service


def _ping(here: Station, service: Service, ping: float, answers: queue.Queue[int]) -> None:
    """Ask it in a thread of its own: a station that hangs holds up nobody."""
    from heliograph.errors import HeliographError  # noqa: PLC0415 - as above

    def ask() -> None:
        assert here.mesh is not None
        with suppress(HeliographError):
            here.mesh.ask(service.station or 0, "here", None, ping)
            answers.put(here.ports.clock.monotonic_ns())

    here.ports.tasks.spawn_soon("ping", ask)


def _end(service: Service) -> None:
    service.process.terminate()
    try:
        service.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        service.process.kill()
        service.process.wait()
    if os.environ.get("NOTIFY_SOCKET"):
        print_line("stopped")
