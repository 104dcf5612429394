"""Generated decoders against the interpreted one, and both against bytes that neither of them wrote."""

from __future__ import annotations

import traceback
from copy import copy
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph import codec
from heliograph.codec.interpret import build_event, interpreted_decoder
from heliograph.codec.validate import validate
from heliograph.model import field_types as ft
from heliograph.model.formats import Format
from tests.random_formats import (
    EPOCH,
    Case,
    agrees,
    class_of,
    make_format,
    random_case,
    random_reader,
    same,
    shrunk,
)
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = examples(10_000)


def check_each(count: int, check: Callable[[Case], None], **options: Any) -> None:
    """Check cases from consecutive seeds; the first that fails is made small before it is shown."""

    def fails(case: Case) -> bool:
        try:
            check(case)
        except Exception:  # noqa: BLE001 - whatever goes wrong is what is looked for
            return True
        return False

    for seed in range(count):
        case = random_case(Random(seed), **options)
        try:
            check(case)
        except Exception as error:
            small = shrunk(case, fails)
            raise AssertionError(
                f"seed {seed} fails, also as {small.fmt.fields} with {small.values}:\n"
                f"{traceback.format_exc()}"
            ) from error


def reads_as_written(case: Case) -> None:
    body = case.body()
    wire = Format.from_description(case.fmt.description)
    generated = codec.make_decoder(wire, None)(body)
    assert same(generated, case.values), generated
    interpreted = interpreted_decoder(wire, None)(body)
    assert same(interpreted, case.values), interpreted


def test_bytes_of_foreign_senders_are_read_as_written_by_both_decoders() -> None:
    check_each(FORMATS, reads_as_written, hostile=True)
    print(f"{FORMATS} random formats: generated = interpreted = written")


def reads_as_other_class(case: Case) -> None:
    # The class is random too, but the same each time for one case, so that the case can be made smaller.
    cls = random_reader(Random(case.fmt.id), case.fmt)
    body = case.body()
    generated = codec.make_decoder(case.fmt, cls)(body)
    interpreted = interpreted_decoder(case.fmt, cls)(body)
    assert type(generated) is type(interpreted) is cls
    assert same(generated, interpreted), (generated, interpreted)
    assert agrees(generated, case.values), generated


def test_readers_with_other_fields_get_what_the_wire_has() -> None:
    count = FORMATS // 2
    check_each(count, reads_as_other_class)
    print(f"{count} random formats read as other classes: generated = interpreted")


def outcome(decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except hg.DecodeError:
        return hg.DecodeError


def agrees_on_damage(case: Case) -> None:
    """Both decoders make the same of a body with one byte changed, as any class and without one."""
    rng = Random(case.fmt.id)
    # A format of empty arrays alone has a body without bytes.
    body = case.body() or b"\0"
    readers = (class_of(case.fmt), random_reader(rng, case.fmt), None)
    pairs = [
        (codec.make_decoder(case.fmt, reader), interpreted_decoder(case.fmt, reader)) for reader in readers
    ]
    for _ in range(20):
        damaged = bytearray(body)
        damaged[rng.randrange(len(body))] = rng.randrange(256)
        for generated, interpreted in pairs:
            one, other = outcome(generated, bytes(damaged)), outcome(interpreted, bytes(damaged))
            assert same(one, other), (bytes(damaged), one, other)


def test_decoders_agree_on_bodies_with_one_byte_changed() -> None:
    count = FORMATS // 10
    check_each(count, agrees_on_damage)
    print(f"{count} random formats, 60 damaged bodies each: generated = interpreted")


def travels_between_equal_classes(case: Case) -> None:
    cls = class_of(case.fmt)
    wire = hg.format_of(cls)
    event = build_event(case.values, cls)
    before = copy(event)
    validate(event)
    assert same(before, event)
    encoder = codec.Encoder(cls)
    body = encoder.encode(event)
    assert b"".join(encoder.encode_parts(event)) == body
    assert same(codec.make_decoder(wire, cls)(body), event)
    assert same(interpreted_decoder(wire, cls)(body), event)
    assert same(codec.make_decoder(wire, None)(body), case.values)
    assert body == Case(wire, case.values).body(junk=0)


def test_random_events_travel_unchanged() -> None:
    check_each(FORMATS // 10, travels_between_equal_classes)


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200))
def test_any_random_format_is_read_as_written(rng: Random) -> None:
    reads_as_written(random_case(rng))


@given(st.integers(-62135596800000000, 253402300799999999))
@settings(max_examples=examples(300))
def test_native_times_are_exact_to_the_microsecond(microseconds: int) -> None:
    wire = make_format([("when", ft.Scalar("datetime"))], "native", "<")
    (when,) = codec.mapping_decoder(wire)(microseconds.to_bytes(8, "little", signed=True)).values()
    assert when == EPOCH + timedelta(microseconds=microseconds)
