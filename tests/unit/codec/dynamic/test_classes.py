"""Classes made of descriptions have the format that was described, whatever is in it."""

from __future__ import annotations

import enum
from datetime import datetime  # noqa: TC003 - event classes are resolved at run time
from typing import Annotated

import numpy as np  # noqa: TC002 - as above
import pytest
from numpy.typing import NDArray  # noqa: TC002 - event classes are resolved at run time

import heliograph as hg
from heliograph.codec.dynamic.classes import class_for
from heliograph.errors import FormatError
from heliograph.model.field_types import Enum, Scalar
from heliograph.model.formats import Field, Format


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Inner(hg.Event, name="inner"):
    a: hg.i8
    b: str | None


class Everything(hg.Event, name="everything", key=("id", "level")):
    id: int
    level: Level
    small: hg.u16
    real: hg.f32
    text: str
    raw: bytes
    flag: bool
    when: datetime
    maybe: hg.u64 | None
    inner: Inner
    many: list[Inner | None]
    rgb: Annotated[list[hg.u8], hg.Length(3)]
    samples: NDArray[np.float64]
    mask: Annotated[NDArray[np.bool_], hg.Shape(None, 3)]
    anything: hg.Any


class Native(hg.Event, name="native", body="native"):
    id: int
    pose: Annotated[NDArray[np.float32], hg.Shape(4, 4)]


@pytest.mark.parametrize("cls", [Everything, Native, Inner])
def test_a_class_has_the_format_it_was_made_of(cls: type[hg.Event]) -> None:
    described = Format.from_description(hg.format_of(cls).description)
    assert hg.format_of(class_for(described)) == hg.format_of(cls)


def test_events_of_the_original_are_read_as_the_made_class_and_back() -> None:
    event = Inner(3, None)
    made = class_for(hg.format_of(Inner))
    assert made.from_json(event.to_json()).to_json() == event.to_json()


@pytest.mark.parametrize(
    "fmt",
    [
        Format("bad", (Field("to_json", Scalar("i64")),)),
        Format("bad", (Field("x", Enum("E", "i64", (("mro", 1),))),)),
    ],
    ids=["a field named like a method", "an enum member that none can have"],
)
def test_what_no_class_can_have_is_refused(fmt: Format) -> None:
    with pytest.raises(FormatError):
        class_for(fmt)
