"""Stations in two network namespaces, joined by a cable that can be pulled out, or be slow or lossy.

What this kernel or user cannot have is skipped, and pytest says why: namespaces need root, loss and delay the
kernel's netem.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from heliograph.links import keys
from tests.e2e.link_support import LIMIT, PEER_LIMIT, own_meeting_folder, wait_until
from tests.e2e.network_support import Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.link_programs import Program

ADDRESSES = {"a": "10.213.77.1", "b": "10.213.77.2"}


def command(*words: str) -> str:
    """Run it; why it failed, empty if it did not."""
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT)
    return "" if ran.returncode == 0 else (ran.stderr or ran.stdout or "it failed").strip()


def must(*words: str) -> None:
    failed = command(*words)
    assert not failed, f"{' '.join(words)}: {failed}"


class Cable:
    """Two namespaces, each a host, and what is between them."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        self._folder = folder
        self.namespaces = {side: f"hg{os.getpid()}{side}" for side in ADDRESSES}
        self.endpoint = f"tls/{ADDRESSES['a']}:7447"

    def make(self) -> str:
        """Make them; why that cannot be."""
        if shutil.which("ip") is None or shutil.which("tc") is None:
            return "ip and tc (iproute2) are not installed"
        for name in self.namespaces.values():
            if failed := command("ip", "netns", "add", name):
                return f"no network namespaces: {failed}"
        ends = {side: f"hg{os.getpid() % 100_000}{side}" for side in ADDRESSES}
        if failed := command("ip", "link", "add", ends["a"], "type", "veth", "peer", "name", ends["b"]):
            return f"no veth: {failed}"
        for side, name in self.namespaces.items():
            must("ip", "link", "set", ends[side], "netns", name, "name", "cable")
            must("ip", "-n", name, "addr", "add", f"{ADDRESSES[side]}/24", "dev", "cable")
            self.set("up", side)
            must("ip", "-n", name, "link", "set", "lo", "up")
        keys.make_authority(self._folder, "e2e")
        for side, address in ADDRESSES.items():
            keys.make_identity(self._folder, f"site-{side}", [address])
        return ""

    def set(self, state: str, side: str = "a") -> None:
        """Plug it in, or pull it out, at one end."""
        must("ip", "-n", self.namespaces[side], "link", "set", "cable", state)

    def shape(self, *how: str) -> str:
        """Make it slow or lossy in both directions; why that cannot be."""
        for name in self.namespaces.values():
            if failed := command("tc", "-n", name, "qdisc", "replace", "dev", "cable", "root", *how):
                return f"tc {' '.join(how)}: {failed}"
        return ""

    def run(self, side: str, *arguments: str) -> Program:
        return self._hosts.run(
            side,
            *arguments,
            listen=self.endpoint if side == "a" else "",
            connect="" if side == "a" else self.endpoint,
            identity=self._folder / f"site-{side}",
            prefix=("ip", "netns", "exec", self.namespaces[side]),
        )

    def remove(self) -> None:
        for name in self.namespaces.values():
            command("ip", "netns", "del", name)


@pytest.fixture
def cable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cable]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(PEER_LIMIT, str(LIMIT))  # on a busy machine a packet that was lost comes again late
    hosts = Hosts(tmp_path)
    made = Cable(hosts, tmp_path / "keys")
    try:
        if why := made.make():
            pytest.skip(why)
        yield made
    finally:
        hosts.clean_up()
        made.remove()


def exchange(cable: Cable, events: int) -> None:
    """Push so many events on one host: all come on the other, once and in order."""
    consumer = cable.run("b", "consume", "air.tracks", str(events))
    supplier = cable.run("a", "supply", "air.tracks", str(events))
    assert consumer.says("done", 3 * LIMIT) == f"done True 0 {events - 1}"
    assert supplier.end() == 0
    assert consumer.end() == 0


def test_events_cross_between_network_namespaces_over_tls(cable: Cable) -> None:
    exchange(cable, 5_000)


def test_a_cable_that_is_pulled_out_for_a_while_costs_nothing(cable: Cable) -> None:
    consumer = cable.run("b", "consume", "air.tracks", "100000")
    supplier = cable.run("a", "supply_forever", "air.tracks")
    assert wait_until(lambda: any(line.startswith("got") for line in consumer.said), 3 * LIMIT)
    for _ in range(2):
        cable.set("down")
        assert not wait_until(lambda: False, 1.0)
        cable.set("up")
    assert consumer.says("done", 3 * LIMIT) == "done True 0 99999"
    supplier.kill()
    assert consumer.end() == 0


@pytest.mark.parametrize(
    "how",
    [
        "tbf rate 4mbit burst 32kbit latency 200ms",
        "netem loss 1% delay 20ms",
        "netem loss 10% delay 50ms",
        "netem loss 30% delay 20ms",
        "netem delay 200ms 50ms",
    ],
)
def test_a_cable_that_is_slow_or_loses_packets_loses_no_event(cable: Cable, how: str) -> None:
    if why := cable.shape(*how.split()):
        pytest.skip(why)
    exchange(cable, 500)
