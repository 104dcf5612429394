"""Errors that cross a link: the same class with the same facts, or none."""

from __future__ import annotations

import msgspec
import pytest

from heliograph.errors import (
    CursorHeld,
    HeliographError,
    JournalBusy,
    NoSuchFile,
    NotPossible,
    SupplierFenced,
)
from heliograph.links.session import messages as m
from heliograph.links.session.remote_errors import MAX_FACT, Refusal, error_of, refusal_of


@pytest.mark.parametrize(
    "error",
    [
        CursorHeld("billing", "station 1"),
        SupplierFenced("radar-1", 3, 4),
        JournalBusy("air.tracks/p", 70_000_000),
        NotPossible("air.tracks", "is kept otherwise"),
    ],
)
def test_an_error_arrives_as_it_was_raised(error: HeliographError) -> None:
    sent = m.encode(refusal_of(error))
    arrived = error_of(m.decoded(msgspec.msgpack.Decoder(Refusal).decode, sent, "peer"))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived is not None
    assert arrived.__dict__ == error.__dict__


def test_what_no_keeper_refuses_by_name_crosses_as_words() -> None:
    assert refusal_of(NoSuchFile("read", "f", "is not there")) is None
    assert refusal_of(ZeroDivisionError("bug")) is None
    assert refusal_of(NotPossible("x", ["a list"])) is None  # type: ignore[arg-type]  # a fact that cannot cross


@pytest.mark.parametrize(
    "refusal",
    [
        None,
        Refusal("SystemExit", ("bye",)),
        Refusal("CursorHeld", ("too", "many", "facts")),
        Refusal("HistoryGone", ("p", "not", "numbers")),
    ],
)
def test_an_error_that_cannot_be_is_not_made(refusal: Refusal | None) -> None:
    assert error_of(refusal) is None


def test_a_long_text_is_cut_before_it_crosses() -> None:
    refusal = refusal_of(NotPossible("x", "y" * 5_000))
    assert refusal is not None
    assert refusal.facts == ("x", "y" * MAX_FACT)
