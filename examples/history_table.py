"""A history is a table for Arrow, pandas, Polars and DuckDB, with the same filter text and without Spark.

It prints:

    69 fast tracks
    fastest: {'id': 99, 'speed': 990.0}
"""

from __future__ import annotations

import tempfile

import heliograph as hg


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float


with tempfile.TemporaryDirectory() as folder:
    with hg.Station(folder) as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many({"id": range(100), "speed": [n * 10.0 for n in range(100)]})

    fast = hg.history(folder, "air.tracks", where="speed > 300", columns=["id", "speed"])
    print(fast.count(), "fast tracks")
    rows = fast.arrow().sort_by([("speed", "descending")])  # or fast.pandas(), fast.polars(), fast.duckdb()
    print("fastest:", rows.slice(0, 1).to_pylist()[0])
