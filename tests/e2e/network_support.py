"""What the tests of links between hosts share: processes of other hosts, and a network that can be cut.

A host is a meeting folder and a folder for shared memory of its own: what is told apart by them cannot meet
but over the network.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

from heliograph.runtime import private_folder
from tests.e2e.link_programs import Program
from tests.e2e.link_support import CONNECT, IDENTITY, LISTEN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Hosts:
    """Starts programs on other hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []

    def run(
        self,
        host: str,
        *arguments: str,
        listen: str = "",
        connect: str = "",
        identity: Path | None = None,
        module: str = "tests.e2e.link_process",
        prefix: Sequence[str] = (),
    ) -> Program:
        """A program of `link_process`, or of another module, on that host."""
        runtime = self._folder / host / "run"
        memory = self._folder / host / "shm"
        for folder in (runtime, memory):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {
            "XDG_RUNTIME_DIR": str(runtime),
            private_folder.MEMORY_VARIABLE: str(memory),
            LISTEN: listen,
            CONNECT: connect,
            IDENTITY: str(identity or ""),
        }
        self._programs.append(Program(*arguments, module=module, prefix=prefix, **environment))
        return self._programs[-1]

    def run_own(self, host: str, *arguments: str, listen: str = "", connect: str = "") -> Program:
        """A program of `network_process` on that host."""
        return self.run(host, *arguments, listen=listen, connect=connect, module="tests.e2e.network_process")

    def keep(self, host: str, folder: Path, endpoint: str) -> Program:
        """`helio station` on that host, which keeps what others open."""
        keeper = self.run(
            host,
            *("station", "--domain", "e2e", "--folder", str(folder), "--listen", endpoint),
            module="heliograph.cli",
        )
        keeper.says("station")
        return keeper

    def clean_up(self) -> None:
        for program in self._programs:
            program.clean_up()


class Cable:
    """A connection between two hosts that can be cut: whatever goes through it is passed on meanwhile."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp/").partition(":")
        self._far = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp/127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = Lock()
        self._open: list[socket.socket] = []
        self.is_cut = False
        """While it is true, whoever connects is hung up on."""
        self.cuts = 0
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Break what is open."""
        with self._lock:
            broken, self._open = self._open, []
        self.cuts += len(broken)
        for sock in broken:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_cut = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._accepting.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_cut:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._far)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for sock in (one, other):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    one.close()
