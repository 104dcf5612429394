"""Arrays travel as they lie in memory: a camera frame of a megabyte, checked against its declared shape.

It prints:

    frame 1: (480, 640, 3), mean 127.0
    refused: camera.frame: an array of shape (2, 2) is no array[u8; any, any, 3] (at $.pixels)
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the event class reads its annotations

import heliograph as hg


class Frame(hg.Event, name="camera.frame", body="native"):
    number: int
    pixels: Annotated[NDArray[np.uint8], hg.Shape(None, None, 3)]


with hg.Station() as station:
    frames = station.channel("camera.frames", Frame)
    with frames.consumer() as consumer:
        frames.push(Frame(1, np.full((480, 640, 3), 127, np.uint8)))
        frame = consumer.pull(timeout=5.0)
        print(f"frame {frame.number}: {frame.pixels.shape}, mean {frame.pixels.mean()}")
    try:
        frames.push(Frame(2, np.zeros((2, 2), np.uint8)))
    except hg.InvalidEvent as error:
        print("refused:", error)
