"""A receiver gets only what it asked for: a filter in SQL, with parameters that are values and never text.

It prints:

    fast: 7 at 410.0
    one of these: 8
"""

from __future__ import annotations

import heliograph as hg


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str = "unknown"


with hg.Station() as station:
    tracks = station.channel("air.tracks", Track)

    @tracks.subscribe(where="speed > :limit AND region = 'north'", params={"limit": 300})
    def fast(track: Track) -> None:
        print(f"fast: {track.id} at {track.speed}")

    with tracks.consumer(where=hg.col("id").in_([8, 9])) as chosen:  # the same language, built in Python
        tracks.push_many([Track(id=7, speed=410, region="north"), Track(id=8, speed=120, region="north")])
        tracks.settle(timeout=5.0)
        print("one of these:", chosen.pull(timeout=5.0).id)
