"""A station publishes what it seals; another process reads it from a server that speaks S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import InvalidConfiguration, NotPossible
from heliograph.journal.format.folder import StationFolder
from heliograph.runtime.fault_points import STORE_POINTS, VARIABLE
from tests.e2e.link_support import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PERSISTENT = hg.QoS(durability="persistent")
SMALL = hg.Limits(head_events=100)


class Track(hg.Event, name="Track"):
    id: int


READER = """
import sys
import heliograph as hg
print(hg.history(sys.argv[1], "air.tracks").arrow()["id"].to_pylist())
"""

VICTIM = """
import sys
import heliograph as hg
class Track(hg.Event, name="Track"):
    id: int
first = int(sys.argv[3])
with hg.Station(sys.argv[1], store=sys.argv[2], journal=hg.Limits(head_events=100)) as station:
    channel = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    channel.supplier().push_many([Track(first + n) for n in range(200)])
    import time
    time.sleep(60)
"""


def published_to(store: str) -> int:
    try:
        return sum(StationFolder(store).watermarks("air.tracks").values())
    except hg.JournalError:
        return 0


def test_another_process_reads_from_the_store_what_a_station_has_sealed(tmp_path: Path, s3: str) -> None:
    store = f"{s3}/{tmp_path.name}"
    with hg.Station(tmp_path / "data", store=store, journal=SMALL) as station:
        supplier = station.channel("air.tracks", Track, qos=PERSISTENT).supplier()
        supplier.push_many([Track(n) for n in range(1000)])
        assert wait_until(lambda: published_to(store) >= 900)
    there = published_to(store)
    seen = subprocess.run(
        [sys.executable, "-c", READER, store], capture_output=True, check=True, cwd=tmp_path
    )
    assert json.loads(seen.stdout) == list(range(there))


@pytest.mark.parametrize("point", STORE_POINTS)
def test_a_station_that_is_killed_while_it_publishes_goes_on_where_it_was(point: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    arguments = [sys.executable, "-c", VICTIM, str(tmp_path / "data"), store]
    killed = subprocess.run([*arguments, "0"], env=os.environ | {VARIABLE: point}, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert published_to(store) in (0, 200)
    with subprocess.Popen([*arguments, "200"]) as again:
        try:
            assert wait_until(lambda: published_to(store) == 400)
        finally:
            again.kill()
    assert hg.history(store, "air.tracks").arrow()["id"].to_pylist() == list(range(400))


def test_a_file_says_where_a_station_publishes(tmp_path: Path) -> None:
    config = tmp_path / "station.toml"
    config.write_text(f'[store]\nurl = "{tmp_path / "store"}"\nkeep_seconds = 3600.0\n')
    with hg.Station(tmp_path / "data", config=config, journal=SMALL) as station:
        supplier = station.channel("air.tracks", Track, qos=PERSISTENT).supplier()
        supplier.push_many([Track(n) for n in range(200)])
        assert wait_until(lambda: published_to(str(tmp_path / "store")) == 200)
    config.write_text("[store]\nkeep_seconds = 3600.0\n")
    with pytest.raises(InvalidConfiguration, match="it has no url"):
        hg.Station(tmp_path / "data", config=config)


def test_a_station_without_a_folder_has_nothing_to_publish() -> None:
    with pytest.raises(NotPossible, match="give folder="):
        hg.Station(store="store")
    with pytest.raises(TypeError, match="its URL"):
        hg.Station(store=7)  # type: ignore[arg-type]


def test_a_folder_without_a_station_is_published_by_hand(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        supplier = station.channel("air.tracks", Track, qos=PERSISTENT).supplier()
        supplier.push_many([Track(n) for n in range(50)])

    def helio(*arguments: str) -> str:
        command = [sys.executable, "-m", "heliograph.cli", "journal", *arguments]
        return subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, text=True).stdout

    [before] = json.loads(helio("publish", "data", "store", "--json"))
    assert (before["uploaded"], before["unsealed"]) == (0, 50)
    helio("seal", "data")
    [after] = json.loads(helio("publish", "data", "store", "--json"))
    assert (after["uploaded"], after["unsealed"]) == (1, 0)
    assert "0 files uploaded" in helio("publish", "data", "store")
    [listed] = json.loads(helio("ls", "store", "--json"))
    assert listed["channel"] == "air.tracks"
    assert len(helio("cat", "store", "air.tracks").splitlines()) == 50
