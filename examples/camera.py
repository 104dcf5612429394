"""A display lowers a camera's rate, asks for a part of the picture, and gets two columns of thirteen.

The camera is another process. It declares two parameters of its channel, the display sets them, and the
generator of frames goes by them. What the display does not show never leaves the camera: it derives a channel
of two columns. When the display is gone, the camera is back at its own rate.

It prints:

    the camera makes frames of 640 x 480 at 50 a second
    the display asked for 160 x 120 at 10 a second, at most 50 are allowed
    60 a second: channel 'camera': parameter 'rate' is at most 50, not 60.0 (asked by display)
    frames of 160 x 120, derived at the camera
    without the display: 50 a second
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import heliograph as hg

LIMIT = 20.0


class Frame(hg.Event, name="camera.frame"):
    number: int
    width: int
    height: int
    rate: float
    exposure: float = 0.01
    gain: float = 1.0
    temperature: float = 40.0
    focus: float = 0.5
    zoom: float = 1.0
    mode: str = "day"
    site: str = "gate"
    remark: str = "thirteen fields, and the display shows two"
    pixels: bytes = b"\0" * 4096


class Shown(hg.Event, name="shown"):
    number: int
    size: str | None


def camera() -> None:
    """Make frames until standard input ends, as the parameters say."""
    with hg.Station(domain="example-camera", name="camera") as station:
        frames = station.channel("camera", Frame)
        settings = frames.parameters.declare(
            rate=hg.Parameter(50.0, minimum=1.0, maximum=50.0, policy="max", lease=0.2),
            region=hg.Parameter("640x480", choices=("640x480", "160x120"), lease=0.2),
        )
        print("ready", flush=True)
        for number in range(sys.maxsize):
            rate, region = float(settings["rate"]), str(settings["region"])
            width, height = map(int, region.split("x"))
            frames.push(Frame(number, width, height, rate))
            time.sleep(1 / rate)


def first(consumer: hg.Consumer[Any], wanted: Any) -> Any:
    """The first event that is as wanted."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        event = consumer.pull(1.0)
        if event is not None and wanted(event):
            return event
    raise TimeoutError("the camera does not follow")


def display() -> None:
    with hg.Station(domain="example-camera", name="display") as station:
        frames = station.channel("camera", Frame)
        every = frames.derive("number, width, height, rate").consumer(overflow="drop_oldest")
        frame = first(every, lambda frame: frame.rate == 50)
        print(f"the camera makes frames of {frame.width} x {frame.height} at {frame.rate:g} a second")

        frames.parameters.set(rate=10.0, region="160x120", by="display", timeout=LIMIT)
        state = frames.parameters.get()["rate"]
        frame = first(every, lambda frame: frame.rate == 10 and frame.width == 160)
        print(
            f"the {state.set_by} asked for {frame.width} x {frame.height} at {frame.rate:g} a second, "
            f"at most {state.declared.maximum:g} are allowed"
        )
        try:
            frames.parameters.set(rate=60.0, by="display", timeout=LIMIT)
        except hg.ParameterRefused as error:
            print(f"60 a second: {error}")

        shown = frames.derive("number, CASE width WHEN 160 THEN '160 x 120' END AS size", into=Shown)
        print(f"frames of {first(shown.consumer(), lambda frame: frame.size).size}, derived at the camera")


def main() -> None:
    source = subprocess.Popen([sys.executable, __file__, "camera"], stdout=subprocess.PIPE)  # noqa: S603 - runs itself
    assert source.stdout is not None
    try:
        assert source.stdout.readline()
        display()
        with hg.Station(domain="example-camera", name="guard") as station:
            rates = station.channel("camera", Frame).derive("rate").consumer()
            print(f"without the display: {first(rates, lambda frame: frame.rate == 50).rate:g} a second")
    finally:
        source.kill()
        source.wait()
        source.stdout.close()


if __name__ == "__main__":
    camera() if sys.argv[1:] == ["camera"] else main()
