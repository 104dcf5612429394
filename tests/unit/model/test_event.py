"""Event classes: what they accept, what they give for free, and how mistakes are told."""

from __future__ import annotations

import enum
from datetime import datetime  # noqa: TC003 - event classes read their annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import heliograph as hg
from heliograph import codec
from heliograph.model import field_types as ft
from heliograph.model.event import OWN_OPTIONS, EventId, EventMeta, info_of

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.model.formats import BodyKind


class Point(hg.Event):
    lat: float
    lon: float = 0.0


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    region: str = "unknown"


class Scan(hg.Event, name="air.scan"):
    id: int
    samples: NDArray[np.float64]
    maybe: NDArray[np.int32] | None = None
    many: list[NDArray[np.int32]] = msgspec.field(default_factory=list)


def test_an_event_is_built_compared_and_printed_by_value() -> None:
    track = Track(7, speed=410.0)
    assert track == Track(7, 410.0, "unknown")
    assert track != Track(8, 410.0)
    assert repr(track) == "Track(id=7, speed=410.0, region='unknown')"
    assert (track.id, track.speed, track.region) == (7, 410.0, "unknown")


def test_the_class_says_name_key_body_and_types() -> None:
    info = info_of(Track)
    assert (info.name, info.key, info.body) == ("air.track", ("id",), "packed")
    assert info.types == {"id": ft.Scalar("i64"), "speed": ft.Scalar("f64"), "region": ft.Scalar("str")}
    assert hg.format_of(Track) == hg.format_of(Track(1, 2.0))


def test_without_a_name_the_class_names_the_event() -> None:
    assert hg.format_of(Point).name == "Point"
    assert hg.format_of(Point).key == ()


def test_a_frozen_event_cannot_be_changed_and_can_be_hashed() -> None:
    class Fixed(hg.Event, frozen=True):
        id: int

    event = Fixed(1)
    with pytest.raises(AttributeError):
        event.id = 2  # type: ignore[misc]
    assert len({event, Fixed(1), Fixed(2)}) == 2


def test_events_with_arrays_are_compared_by_value() -> None:
    def scan(**changes: Any) -> Scan:
        values: dict[str, Any] = {"id": 1, "samples": np.arange(3.0), "many": [np.arange(2, dtype=np.int32)]}
        return Scan(**{**values, **changes})

    assert scan() == scan()
    assert scan() != scan(samples=np.arange(4.0))
    assert scan() != scan(samples=np.arange(3.0).reshape(1, 3))
    assert scan() != scan(samples=np.arange(3))
    assert scan() != scan(samples=np.array([0.0, 1.0, 5.0]))
    assert scan() != scan(many=[])
    assert scan() != scan(many=[np.zeros(2, np.int32)])
    assert scan() != scan(maybe=np.zeros(1, np.int32))
    assert scan(maybe=np.zeros(1, np.int32)) == scan(maybe=np.zeros(1, np.int32))
    assert scan() != Point(1.0)  # type: ignore[comparison-overlap]


def test_events_that_hold_events_with_arrays_are_compared_by_value() -> None:
    class Outer(hg.Event):
        scan: Scan
        scans: list[Scan]

    assert Outer(Scan(1, np.zeros(2)), [Scan(1, np.zeros(2))]) == Outer(
        Scan(1, np.zeros(2)), [Scan(1, np.zeros(2))]
    )
    assert Outer(Scan(1, np.zeros(2)), []) != Outer(Scan(1, np.ones(2)), [])


def test_events_with_arrays_cannot_be_hashed_even_when_frozen() -> None:
    class Fixed(hg.Event, frozen=True):
        samples: NDArray[np.float64]

    with pytest.raises(TypeError, match="unhashable"):
        hash(Fixed(np.zeros(1)))


def test_a_class_may_compare_in_its_own_way() -> None:
    class ById(hg.Event):
        id: int
        samples: NDArray[np.float64]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ById) and other.id == self.id

        __hash__ = None  # type: ignore[assignment]

    assert ById(1, np.zeros(1)) == ById(1, np.ones(2))


def test_a_subclass_adds_fields_behind_its_parents() -> None:
    class Jet(Track, name="air.jet"):
        engines: int = 2

    info = info_of(Jet)
    assert list(info.types) == ["id", "speed", "region", "engines"]
    assert info.key == ("id",)
    assert info.name == "air.jet"
    assert Jet(1, 2.0) == Jet(1, 2.0, "unknown", 2)
    assert Jet(1, 2.0) != Track(1, 2.0)


def test_a_subclass_may_change_the_type_of_a_field() -> None:
    class Small(Track):
        id: hg.i16

    assert info_of(Small).types["id"] == ft.Scalar("i16")
    assert info_of(Track).types["id"] == ft.Scalar("i64")


def test_a_subclass_keeps_the_body_kind() -> None:
    class Base(hg.Event, body="native"):
        a: int

    class More(Base):
        b: int

    assert hg.format_of(More).body == "native"


def test_a_required_field_after_a_default_says_what_to_write() -> None:
    with pytest.raises(hg.FormatError, match=r"'engines' cannot follow.*class Jet\(..., kw_only=True\)"):

        class Jet(Track):
            engines: int  # type: ignore[misc]

    class Good(Track, kw_only=True):
        engines: int

    assert Good(1, 2.0, engines=4).engines == 4


def test_an_empty_list_as_default_is_new_for_each_event() -> None:
    class Tagged(hg.Event):
        tags: list[str] = []  # noqa: RUF012 - msgspec makes a new one each time

    first, second = Tagged(), Tagged()
    first.tags.append("x")
    assert second.tags == []


def test_a_full_list_as_default_is_refused() -> None:
    with pytest.raises(TypeError, match="default_factory"):

        class Tagged(hg.Event):
            tags: list[str] = ["x"]  # noqa: RUF012 - refused, which is the point


def test_an_array_as_default_is_new_for_each_event() -> None:
    zeros = np.zeros(2)

    class Samples(hg.Event):
        first: NDArray[np.float64] = zeros
        second: NDArray[np.float64] = msgspec.field(default=zeros)

    one, other = Samples(), Samples()
    one.first[0] = one.second[0] = zeros[1] = 5.0
    assert other == Samples() == Samples(np.zeros(2), np.zeros(2))
    decoded = codec.decoder(hg.Format("Samples", ()), Samples)(b"\x90")
    decoded.first[0] = 7.0
    assert Samples() == Samples(np.zeros(2), np.zeros(2))


def test_annotations_may_name_what_only_the_function_knows() -> None:
    class Inner(hg.Event):
        a: int

    class Color(enum.Enum):
        RED = 1

    class Outer(hg.Event):
        inner: Inner
        color: Color | None
        other: list[Inner]

    assert info_of(Outer).types["inner"] == ft.NestedEvent(hg.format_of(Inner))


def test_class_variables_are_no_fields() -> None:
    class WithConstant(hg.Event):
        LIMIT: ClassVar[int] = 5
        a: int

    assert list(info_of(WithConstant).types) == ["a"]


def test_an_unknown_name_in_an_annotation_says_which() -> None:
    with pytest.raises(hg.FormatError, match="'Path', which is not known here at run time"):

        class Bad(hg.Event):
            where: Path


def test_a_class_cannot_hold_itself() -> None:
    with pytest.raises(hg.FormatError, match="cannot hold itself"):

        class Tree(hg.Event):
            child: Tree


@pytest.mark.parametrize("name", ["to_dict", "from_dict", "to_json", "from_json"])
def test_fields_cannot_have_the_names_of_methods(name: str) -> None:
    with pytest.raises(hg.FormatError, match=f"method {name}"):
        EventMeta("Bad", (hg.Event,), {"__annotations__": {name: int}})


@pytest.mark.parametrize("option", sorted(OWN_OPTIONS))
def test_options_that_would_change_the_wire_are_refused(option: str) -> None:
    options: dict[str, Any] = {option: True}
    with pytest.raises(hg.FormatError, match=f"{option}= is Heliograph's own"):
        EventMeta("Bad", (hg.Event,), {"__annotations__": {"a": int}}, **options)


def test_no_name_of_a_class_frees_it_from_the_rules() -> None:
    with pytest.raises(hg.FormatError, match="array_like= is Heliograph's own"):

        class Event(hg.Event, array_like=False):
            x: int


def nested_records(levels: int) -> Any:
    cls: Any = int
    for level in range(levels):
        cls = EventMeta(f"Level{level}", (hg.Event,), {"__annotations__": {"x": cls}})
    return cls


def nested_lists(levels: int) -> Any:
    annotation: Any = int
    for _ in range(levels):
        annotation = list[annotation]
    return annotation


def enum_of(*members: tuple[str, Any]) -> Any:
    return enum.Enum("Choice", list(members))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nested_records(18), "nested deeper than 32"),
        (lambda: nested_lists(40), "nested deeper than 32"),
        (lambda: enum_of(*((f"M{n}", n) for n in range(10_001))), "10001 members; 1 to 10000"),
        (lambda: enum_of(("A", "\ud800")), "half of a surrogate"),
        (lambda: enum_of(("A" * 256, 1)), "the name of an enum's member must have"),
        (lambda: enum_of(("a\0b", 1)), "the name of an enum's member must have"),
        (lambda: enum.Enum("C" * 256, {"A": 1}), "an enum's name must have"),
        (lambda: Annotated[list[int], hg.Length(2**31)], r"below 2\*\*31"),
        (lambda: Annotated[list[int], hg.Length(True)], r"below 2\*\*31"),
        (lambda: Annotated[NDArray[np.float64], hg.Shape(10_000, 10_000)], "at most 67108864"),
    ],
    ids=["records", "lists", "members", "surrogate", "label", "nul", "enum", "length", "bool", "native"],
)
def test_what_no_reader_would_take_is_refused_where_the_class_is_written(make: Any, reason: str) -> None:
    def write_class() -> None:
        annotation = make()
        body: BodyKind = "native" if "Shape" in str(annotation) else "packed"
        EventMeta("Wrong", (hg.Event,), {"__annotations__": {"x": annotation}}, body=body)

    with pytest.raises(hg.FormatError, match=reason):
        write_class()


def test_a_description_over_the_limit_is_refused_where_the_class_is_written() -> None:
    choice = enum_of(*(("\U00010400" * 30 + f"{n:04}", n) for n in range(9_000)))
    with pytest.raises(hg.FormatError, match="a description of"):
        EventMeta("Wrong", (hg.Event,), {"__annotations__": {"x": choice}})


def test_what_is_just_inside_the_limits_has_a_format_that_can_be_read() -> None:
    choice = enum_of(*((f"M{n}", n) for n in range(10_000)))
    for annotation in (nested_records(15), nested_lists(30), choice):
        cls = EventMeta("Right", (hg.Event,), {"__annotations__": {"x": annotation}})
        assert hg.Format.from_description(hg.format_of(cls).description) == hg.format_of(cls)


def test_the_values_of_an_enum_are_gathered_once() -> None:
    kind = ft.Enum("Choice", "i64", (("A", 1), ("B", 1), ("C", 2)))
    assert kind.values == {1, 2}
    assert kind.values is kind.values


def test_a_field_stands_in_a_key_once() -> None:
    with pytest.raises(hg.FormatError, match="twice in its key"):

        class Wrong(hg.Event, key=("x", "x")):
            x: int


def test_a_key_must_name_fields() -> None:
    with pytest.raises(hg.FormatError, match="key 'missing' is not one of its fields"):

        class Bad(hg.Event, key="missing"):
            a: int


@pytest.mark.parametrize("annotation", [float, hg.f32, list[int], int | None, Point, Any], ids=str)
def test_a_key_field_must_have_equal_values_on_every_machine(annotation: Any) -> None:
    with pytest.raises(hg.FormatError, match="a key field is") as caught:
        EventMeta("Bad", (hg.Event,), {"__annotations__": {"a": annotation}}, key="a")
    assert caught.value.path == "$.a"


def test_a_key_may_have_several_fields() -> None:
    class Two(hg.Event, key=("a", "b")):
        a: int
        b: str
        when: datetime

    assert hg.format_of(Two).key == ("a", "b")


def test_a_key_has_a_limit() -> None:
    names = tuple(f"f{n}" for n in range(33))
    with pytest.raises(hg.FormatError, match="at most 32"):
        EventMeta("Bad", (hg.Event,), {"__annotations__": dict.fromkeys(names, int)}, key=names)


def test_a_strict_class_keeps_its_own_and_its_parents_post_init() -> None:
    calls: list[str] = []

    class Parent(hg.Event):
        a: int

        def __post_init__(self) -> None:
            calls.append("parent")

    class Strict(Parent, strict=True):
        pass

    with pytest.raises(hg.InvalidEvent):
        Strict("x")  # type: ignore[arg-type]
    assert calls == []
    Strict(1)
    assert calls == ["parent"]


def test_a_subclass_of_a_strict_class_stays_strict() -> None:
    calls: list[Any] = []

    class Parent(hg.Event, strict=True):
        speed: float

    class Child(Parent):
        def __post_init__(self) -> None:
            calls.append(self.speed)

    class Grandchild(Child):
        pass

    for cls in (Child, Grandchild):
        with pytest.raises(hg.InvalidEvent):
            cls("fast")  # type: ignore[arg-type]
        cls(1.5)
    assert calls == [1.5, 1.5]


def test_native_bodies_are_laid_out_when_the_class_is_written() -> None:
    with pytest.raises(hg.FormatError, match=r"list\[i64\] has no native form.*\$.a"):

        class Bad(hg.Event, body="native"):
            a: list[int]


def test_something_that_is_no_event_class_has_no_format() -> None:
    for thing in (int, Track.__mro__[1], 5, msgspec.Struct):
        with pytest.raises(hg.FormatError, match="no event class"):
            info_of(thing)


def test_an_event_id_has_a_text_form() -> None:
    event_id = EventId("site:a:radar", 3, 4711)
    assert str(event_id) == "site:a:radar:3:4711"
    assert EventId.parse(str(event_id)) == event_id
    for text in ("", "a:b", "a:1:x"):
        with pytest.raises(ValueError, match=r"."):
            EventId.parse(text)


def test_a_shape_is_part_of_the_annotation() -> None:
    class Pose(hg.Event):
        matrix: Annotated[NDArray[np.float64], hg.Shape(4, 4)]

    assert info_of(Pose).types["matrix"] == ft.Array("f64", (4, 4))


def test_a_body_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(hg.FormatError, match="'packed' and 'native'"):

        class Odd(hg.Event, body="nativ"):  # type: ignore[call-arg,arg-type,unused-ignore]  # the mistake under test
            a: int
