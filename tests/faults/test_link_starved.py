"""No descriptor or thread is left for a moment: stations meet when there are some again, and it was told."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import LinkStalled
from heliograph.runtime.ports import system_ports
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.support import ScarceTasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def starved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Program]:
    own_meeting_folder(monkeypatch, tmp_path)
    program = Program("starve", "x")
    yield program
    program.clean_up()


def test_a_station_that_had_no_descriptor_left_is_met_when_it_has_some(starved: Program) -> None:
    assert starved.process.stdin is not None
    starved.says("ready")
    starved.process.stdin.write("\n")
    starved.process.stdin.flush()
    starved.says("starving")
    with ExitStack() as stack:
        # Some dial it, and others it dials itself.
        others = [stack.enter_context(hg.Station(domain="e2e")) for _ in range(4)]
        channels = [other.channel("x", Track) for other in others]
        # An `accept` that waits has its descriptor already, so one may get through.
        assert not all(channel.wait_matched(1, 0) for channel in channels)
        starved.process.stdin.write("\n")
        starved.process.stdin.flush()
        told, stalls = json.loads(starved.says("told").removeprefix("told "))
        for place, channel in enumerate(channels):
            assert channel.wait_matched(1, LIMIT), (told, stalls)
            channel.push(Track(place))
            starved.says(f"got {place}")
    assert set(told) == {"LinkStalled"}
    assert sum(stalls.values()) >= len(told)


def test_a_station_that_had_no_thread_left_is_met_when_it_has_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    told: list[BaseException] = []
    ports, few = system_ports(), ScarceTasks()
    with (
        hg.Station(
            domain="e2e", ports=replace(ports, tasks=few), on_error=lambda _, __, error: told.append(error)
        ) as station,
        ExitStack() as stack,
    ):
        tracks = station.channel("x", Track)
        few.left = 0
        consumers = [
            stack.enter_context(stack.enter_context(hg.Station(domain="e2e")).channel("x", Track).consumer())
            for _ in range(6)
        ]
        assert wait_until(lambda: few.refused > 6)
        few.left = inf
        assert tracks.wait_matched(6, LIMIT)
        tracks.push(Track(1))
        assert all(consumer.pull(LIMIT) == Track(1) for consumer in consumers)
        assert station.mesh is not None
        assert sum(station.mesh.stalls.values()) >= 6
    assert told
    assert all(isinstance(error, LinkStalled | hg.NoThreadLeft) for error in told)


def test_a_channel_or_station_that_had_no_descriptor_left_can_be_opened_the_next_instant(
    tmp_path: Path,
) -> None:
    """However far opening came: no lock of a partition or folder is left behind."""
    program = Program(str(tmp_path), module="tests.faults.starved_process")
    try:
        assert int(program.says("channels").split()[1]) > 1, "it failed at several places"
        assert int(program.says("stations").split()[1]) > 1
    finally:
        program.clean_up()


def test_a_persistent_channel_for_which_no_thread_was_left_can_be_opened_the_next_instant(
    tmp_path: Path,
) -> None:
    ports, few = system_ports(tmp_path), ScarceTasks()
    qos = hg.QoS(durability="persistent")
    with hg.Station(tmp_path, ports=replace(ports, tasks=few)) as station:
        for number in range(8):
            few.left = number
            with suppress(hg.NoThreadLeft):
                station.channel("x", Track, qos=qos).push(Track(number))
            few.left = inf
            channel = station.channel("x", Track, qos=qos)
            assert channel.push(Track(number))
            with channel.consumer(start="earliest") as consumer:
                assert len(consumer.read(max=number + 1, timeout=LIMIT)) > 0
            channel.close()
    assert few.refused
