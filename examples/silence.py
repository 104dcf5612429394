"""Things that several events say together: a fast track in a storm, and a sensor that has fallen silent.

It prints:

    track 7 flies into wind 28.0 in the north
    no beat for 5 seconds
"""

from __future__ import annotations

import heliograph as hg
from heliograph import testing


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str


class Weather(hg.Event, name="air.weather"):
    region: str
    wind: float


class Beat(hg.Event, name="site.beat"):
    sensor: str


with testing.rig() as helio:  # a station whose clock jumps: the example takes no time
    station = helio.station
    tracks, weather = station.channel("air.tracks", Track), station.channel("air.weather", Weather)
    beats = station.channel("site.beats", Beat)

    storm = hg.all_of(t=tracks.where("speed > 300"), w=weather.where("wind > 20"), within=1.0, by="region")
    station.subscribe(storm, lambda m: print(f"track {m.t.id} flies into wind {m.w.wind} in the {m.key}"))
    station.subscribe(hg.none_of(beat=beats, within=5.0), lambda m: print(f"no {m.missing[0]} for 5 seconds"))

    tracks.push(Track(7, 410.0, "north"))
    weather.push(Weather("north", 28.0))
    beats.push(Beat("roof"))
    helio.settle()
    helio.clock.advance(6)
    helio.settle()
