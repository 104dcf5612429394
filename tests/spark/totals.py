"""Event classes that the tests of the sink name by their import path."""

from __future__ import annotations

import enum
from datetime import datetime  # noqa: TC003 - event classes read their annotations

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - event classes read their annotations

import heliograph as hg


class Total(hg.Event, name="air.total", key="id"):
    id: int
    note: str
    mean: float | None = None


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Part(hg.Event, name="part"):
    size: int
    label: str


class Filled(hg.Event, name="filled", key="id"):
    """All but its key has a default."""

    id: int
    note: str = "none"
    parts: list[Part] = []  # noqa: RUF012 - every event gets its own
    colour: Colour = Colour.GREEN
    limit: hg.u64 | None = 2**63
    line: NDArray[np.float64] = np.arange(3.0)


class Rich(hg.Event, name="rich", key="id"):
    id: hg.u64
    small: hg.i8
    short: hg.f32
    when: datetime
    colour: Colour
    data: bytes
    part: Part
    parts: list[Part]
    line: NDArray[np.float64]
    anything: hg.Any
    maybe: int | None
