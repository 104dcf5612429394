"""Shared memory where it works, the socket where it does not, and what is left when it ends."""

from __future__ import annotations

import errno
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.links.broadcast.reader_admission import NOT_THERE
from heliograph.links.broadcast.shared_memory import NOT_ASKED_FOR
from heliograph.ring import RingFolder, futex
from heliograph.runtime import private_folder
from tests.e2e.link_support import domain_with_rings
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.links import Carrier
    from heliograph.links.session.link import LinkStats

pytestmark = needs_rings
LIMIT = 20.0


class Blob(hg.Event, name="ring.blob"):
    n: int
    data: bytes = b""


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield from domain_with_rings()


def carriers_after_events(domain: str, *transports: Carrier | None) -> list[LinkStats]:
    """Two stations that have sent each other events; what the link of each says."""
    with ExitStack() as opened:
        stations = [opened.enter_context(hg.Station(domain=domain, transport=kind)) for kind in transports]
        for sender, receiver in (stations, reversed(stations)):
            sent, seen = sender.channel("blobs", Blob), receiver.channel("blobs", Blob).consumer()
            assert sent.wait_matched(1, LIMIT)
            events = [Blob(i, bytes(i % 7 * 100_000)) for i in range(50)]
            for event in events:
                sent.push(event)
            assert [seen.pull(LIMIT) for _ in events] == events
            seen.close()
        return [station.mesh.stats()[0] for station in stations if station.mesh is not None]


@pytest.mark.parametrize("kind", [None, "ring", "spinning-ring"])
def test_stations_talk_through_shared_memory_by_default_and_leave_none(
    domain: str, kind: Carrier | None
) -> None:
    found = carriers_after_events(domain, kind, None)
    assert [(stats.carrier, stats.carrier_reason) for stats in found] == [("ring", "")] * 2
    assert not (private_folder.memory_base() / domain).exists()


def test_a_station_with_rings_and_one_without_talk_by_socket_and_say_why(domain: str) -> None:
    found = carriers_after_events(domain, None, "socket")
    assert [(stats.carrier, stats.carrier_reason) for stats in found] == [
        ("socket", NOT_THERE),
        ("socket", NOT_ASKED_FOR),
    ]


def test_where_there_can_be_no_ring_the_socket_serves_and_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(futex, "missing", lambda: "needs 64-bit Linux on x86-64, this is a toaster")
        found = carriers_after_events(domain, None, None)
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("toaster" in stats.carrier_reason for stats in found)


@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, "bytes"), (errno.EMFILE, "Too many open files")])
def test_where_no_ring_can_be_made_the_socket_serves_and_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(code, "Too many open files")

    with monkeypatch.context() as small:
        small.setattr("os.posix_fallocate", full)
        found = carriers_after_events(domain, None, None)
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all(said in stats.carrier_reason for stats in found)


def test_where_somebody_else_can_enter_the_folder_of_rings_the_socket_serves_and_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shm").mkdir(mode=0o777)
    (tmp_path / "shm").chmod(0o777)
    monkeypatch.setattr(private_folder, "MEMORY", tmp_path)
    monkeypatch.setattr("heliograph.ring.folder.memory_base", lambda: tmp_path / "shm")
    found = carriers_after_events(domain, None, None)
    monkeypatch.undo()
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("can be entered by others" in stats.carrier_reason for stats in found)


def test_where_there_is_no_shared_memory_at_all_the_socket_serves_and_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("heliograph.ring.folder.memory_base", lambda: tmp_path / "missing" / "shm")
    found = carriers_after_events(domain, None, None)
    monkeypatch.undo()
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("No such file" in stats.carrier_reason for stats in found)


def test_rings_are_below_the_folder_that_the_environment_names(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = private_folder.memory_root() / "chosen"
    chosen.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv(private_folder.MEMORY_VARIABLE, str(chosen))
        with hg.Station(domain=domain) as one, hg.Station(domain=domain) as two:
            sent, seen = one.channel("blobs", Blob), two.channel("blobs", Blob).consumer()
            assert sent.wait_matched(1, LIMIT)
            sent.push(Blob(1))
            assert seen.pull(LIMIT) == Blob(1)
            assert len(list(chosen.glob(f"*/{domain}/*.ring"))) == 1


def test_a_relative_path_for_shared_memory_is_not_used_and_the_socket_says_why(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv(private_folder.MEMORY_VARIABLE, "shm")
        found = carriers_after_events(domain, None, None)
    assert [stats.carrier for stats in found] == ["socket", "socket"]
    assert all("shm: is no absolute path" in stats.carrier_reason for stats in found)


def test_a_transport_that_is_none_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(NotPossible, match="ring, spinning-ring, socket"):
        hg.Station(domain="x", transport="carrier pigeon")  # type: ignore[arg-type] # the mistake that is tested


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_a_transport_without_a_domain_is_refused(transport: Carrier) -> None:
    with pytest.raises(NotPossible, match="add domain="):
        hg.Station(transport=transport)


def test_a_folder_of_rings_that_was_removed_is_made_again(domain: str) -> None:
    with hg.Station(domain=domain) as one, hg.Station(domain=domain) as two:
        RingFolder(domain).path.rmdir()
        sent, seen = one.channel("blobs", Blob), two.channel("blobs", Blob).consumer()
        assert sent.wait_matched(1, LIMIT)
        sent.push(Blob(1))
        assert seen.pull(LIMIT) == Blob(1)
        assert one.mesh is not None
        assert one.mesh.stats()[0].carrier == "ring"


LEFT_BEHIND = """
import os, signal, sys
from pathlib import Path
from heliograph.ring import RingFolder
from tests.ring_support import PORTS

RingFolder("elsewhere", Path(sys.argv[1])).create(1, 1, PORTS, slots=16)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_station_of_any_domain(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = private_folder.memory_root() / f"heliograph-{domain}"
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, str(base)], check=False)
    assert len(list((base / "elsewhere").iterdir())) == 1
    with monkeypatch.context() as apart:
        apart.setattr("heliograph.ring.folder.memory_base", lambda: base)
        with hg.Station(domain=domain):
            assert not (base / "elsewhere").exists()
    base.rmdir()


def test_the_folder_of_a_station_that_has_no_ring_yet_is_left_to_it(domain: str) -> None:
    base = private_folder.memory_root() / f"heliograph-{domain}"
    elsewhere = RingFolder("elsewhere", base)
    RingFolder(domain, base).remove_dead()
    assert elsewhere.path.is_dir()
    for folder in base.iterdir():
        folder.rmdir()
    base.rmdir()


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lstat = tmp_path / "private", Path.lstat
    removed: list[Path] = []

    def remove_first(folder: Path) -> object:
        if folder == path and not removed:
            removed.append(path)
            path.rmdir()
        return lstat(folder)

    monkeypatch.setattr(Path, "lstat", remove_first)
    private_folder.make_private(path)
    assert removed
    assert path.is_dir()
