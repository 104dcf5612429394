"""The face that users see: what the design wrote before the code runs as it was written."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LIMIT = 20.0

IN_MEMORY = """
import heliograph as hg

class Track(hg.Event, name="air.track", key="id"):
    id: int                                             # 64-bit on the wire
    lat: float
    lon: float
    speed: float
    region: str = "unknown"

with hg.Station() as station:                           # embedded; leaving drains and closes
    tracks = station.channel("air.tracks", Track)       # opened, or created; mode="create" / "open" insists

    @tracks.subscribe(where="speed > :limit AND region = 'north'", params={"limit": 300}, priority=5)
    def on_fast(track: Track) -> None:                  # or (track, header); or async def
        print(track.id)

    sub = tracks.subscribe(on_fast, where=hg.col("speed") > 900)   # the same tree as the text
    sub.close()                                         # tracks.unsubscribe(on_fast) for the decorated one
    tracks.subscribe(on_fast, inline=True)              # called in the pushing thread: fastest, not isolated

    tracks.push(Track(id=7, lat=48.1, lon=11.6, speed=410, region="north"))   # True: the ack level is met
    tracks.push_many([Track(id=i, lat=0.0, lon=0.0, speed=0.0) for i in range(1000)])   # atomic per frame
    receipt = tracks.push_nowait(Track(id=8, lat=0.0, lon=0.0, speed=0.0)); receipt.result(timeout=1.0)
    # await tracks.apush(...) inside asyncio

    tracks.stats()                                      # frozen snapshot; its ledger balances
"""

WITH_A_FOLDER = """
with hg.Station("data") as station:                     # with a folder, channels can persist
    tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    assert tracks.push(Track(id=7, lat=48.1, lon=11.6, speed=410))            # True: synced to disk
    with tracks.consumer(name="billing", where="speed > 300", start="earliest", until="now") as consumer:
        for track in consumer: ...                      # next time it resumes where it was
    with tracks.consumer(start="earliest") as consumer:
        track = consumer.pull(timeout=1.0)              # an event, or None when none came in time
        tracks.push(Track(id=8, lat=48.1, lon=11.6, speed=410))
        batch = consumer.read(max=100, timeout=1.0)     # a list
        tracks.push(Track(id=9, lat=48.1, lon=11.6, speed=410))
        for d in consumer.deliveries(): d.event, d.header, d.ack(), d.nak(delay=1.0)
"""

AWAITED = """
async def main():
    with hg.Station("data") as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        await tracks.apush(Track(id=10, lat=48.1, lon=11.6, speed=410))
        with tracks.consumer(start="earliest", until="now") as consumer:
            async for track in consumer: ...            # the first use binds the mode
"""

JOINED = """
with hg.Station(domain="airspace") as station:          # joins this user's stations on this host
    tracks = station.channel("air.tracks", Track)
    tracks.subscribe(print)
    assert tracks.wait_matched(consumers=1, timeout=2.0)   # until somebody is there
"""


def run(text: str, names: dict[str, Any]) -> None:
    exec(compile(text, "<the face>", "exec", dont_inherit=True), names)


def test_the_face_works_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    names: dict[str, Any] = {"__name__": "face"}
    run(IN_MEMORY, names)
    assert names["tracks"].stats().balanced
    printed = capsys.readouterr().out.split()
    assert len(printed) == 1003, "one by the filter, and all of them inline"

    reading = threading.Thread(target=run, args=(WITH_A_FOLDER, names), daemon=True)
    reading.start()
    ends = time.monotonic() + LIMIT
    while "d" not in names and time.monotonic() < ends:
        time.sleep(0.01)
    names["consumer"].close()  # deliveries go on for ever otherwise
    reading.join(LIMIT)
    assert not reading.is_alive()
    assert (names["track"].id, [track.id for track in names["batch"]]) == (7, [8])
    assert isinstance(names["d"], hg.Delivery)
    assert names["d"].event.id == 9

    run(AWAITED, names)
    asyncio.run(names["main"]())
    run(JOINED, names)
