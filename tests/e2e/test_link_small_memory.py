"""Rings where there is little shared memory, and stations that push as soon as they have come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph.links.broadcast import reader_admission as airing
from heliograph.ring.layout import file_size
from heliograph.ring.segment import LEFT_TO_OTHERS
from heliograph.runtime.private_folder import MEMORY_VARIABLE
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, ring_station
from tests.ring_support import needs_rings

ROOT = Path(__file__).parents[2]
STATIONS = 16
IN_A_SMALL_CONTAINER = "mount -t tmpfs -o size={size} tmpfs /dev/shm && exec {python} -m {module}"


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@needs_rings
def test_what_is_pushed_right_after_a_channel_was_opened_reaches_who_wanted_it_already() -> None:
    """As `helio pub` does: it opens a channel that others consume, pushes and leaves."""
    with ring_station("d") as there:
        consumer = there.channel("x", Track).consumer()
        for i in range(10):
            with ring_station("d") as passing:
                assert passing.mesh is not None
                assert passing.mesh.meet_all(LIMIT)
                passing.channel("x", Track).push(Track(i))
            assert consumer.pull(LIMIT) == Track(i)


@needs_rings
@pytest.mark.parametrize("size", ["64k", "3m", "64m"])
def test_in_a_container_with_little_shared_memory_every_event_comes_and_others_have_their_part(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many stations as would need more than Docker's 64 MB, in a mount namespace with less of it."""
    probe = ["unshare", "-rm", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this kernel lets nobody have a mount namespace of their own")
    monkeypatch.delenv(MEMORY_VARIABLE)
    command = IN_A_SMALL_CONTAINER.format(size=size, python=sys.executable, module=__name__)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command], cwd=ROOT, capture_output=True, check=False, timeout=2 * LIMIT
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["received"] == [list(range(100))] * STATIONS
    assert said["free"] >= said["total"] // LEFT_TO_OTHERS
    if size == "64k":
        assert set(said["carriers"]) == {"socket"}
    assert all(
        reason
        for carrier, reason in zip(said["carriers"], said["reasons"], strict=True)
        if carrier == "socket"
    )


def fill() -> dict[str, Any]:
    """Every station pushes, so each wants a ring of its own, and one for each other."""
    stations = [ring_station("d") for _ in range(STATIONS)]
    channels = [station.channel("x", Track) for station in stations]
    consumers = [channel.consumer(where="speed = 1") for channel in channels]
    assert all(channel.wait_matched(STATIONS, LIMIT) for channel in channels)
    for channel in channels:
        channel.push(Track(-1))  # makes the rings, and is for nobody
    channels[0].push_many([Track(i, 1.0) for i in range(100)])
    received = [
        [event.id for event in (consumer.pull(LIMIT) for _ in range(100)) if event] for consumer in consumers
    ]
    assert stations[0].mesh is not None
    links = stations[0].mesh.stats()
    room = os.statvfs("/dev/shm")
    said = {
        "received": received,
        "carriers": [link.carrier for link in links],
        "reasons": [link.carrier_reason for link in links],
        "free": room.f_bavail,
        "total": room.f_blocks,
    }
    for station in stations:
        station.close()
    return said


def test_what_a_station_takes_of_shared_memory_is_what_is_documented() -> None:
    page = (ROOT / "docs" / "guides" / "links.md").read_text()
    station = file_size(airing.SLOTS)
    assert f"{station / 2**20:.1f} MiB for each station" in page


if __name__ == "__main__":
    print(json.dumps(fill()))
