"""A peer or a receiver that takes nothing makes no process grow beyond what its queues may hold in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program, heard
from tests.e2e.link_support import LIMIT, TRANSPORT, Track, own_meeting_folder, transport, wait_until
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
BOUND = 16 * MIB
ON_ITS_WAY = 48 * MIB
"""What a link may hold besides: what was sent and not acknowledged, a ring, buffers of sockets."""
EVENTS = 400


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def memory(pid: str = "self") -> int:
    """Bytes of a process that are its own, not shared with others as a ring is."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(fields["RssAnon"].split()[0]) * 1024


def large(number: int) -> Track:
    return Track(number, region=f"{number:08}" * (MIB // 8))


@pytest.mark.parametrize("overflow", ["block", "drop_oldest"])
def test_a_stopped_peer_makes_its_supplier_grow_by_no_more_than_the_bound(
    run: Callable[..., Program], overflow: Literal["block", "drop_oldest"]
) -> None:
    with hg.Station(domain="e2e", transport=transport(), peer_limit=300.0) as station:
        qos = hg.QoS(queue_bytes=BOUND, max_blocking=0.05, overflow=overflow)
        tracks = station.channel("x", Track, qos=qos)
        peer = run("hear", "x")
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(large(0))
        assert wait_until(lambda: heard(peer)[0]["x"] == 1)
        peer.stop()
        before, pushed = memory(), 1
        full: hg.QueueFull | None = None
        while pushed < EVENTS and full is None:
            try:
                pushed += tracks.push(large(pushed))
            except hg.QueueFull as error:
                full = error
        grown, waiting = memory() - before, tracks.stats().total.waiting_bytes
        assert waiting <= BOUND + 2 * MIB
        assert grown < BOUND + ON_ITS_WAY, f"{grown / MIB:.0f} MiB after {pushed} events"
        assert (full is not None) == (overflow == "block")
        assert full is None or full.bytes_waiting >= BOUND
        peer.go_on()
        if overflow == "block":
            assert wait_until(lambda: heard(peer)[0]["x"] == pushed)
        assert wait_until(lambda: not tracks.stats().total.waiting_bytes)
        assert tracks.stats().balanced
