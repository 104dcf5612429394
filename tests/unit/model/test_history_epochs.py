"""Which writers wrote a history, and where two of them part."""

from __future__ import annotations

import pytest

from heliograph.model.history_epochs import MOST, Epoch, epoch_at, is_of, is_written_in, parted_at, with_next
from heliograph.sim import SimRandom

A, B, C = Epoch(0, b"a"), Epoch(200, b"b"), Epoch(100, b"c")


@pytest.mark.parametrize(
    ("known", "now", "position", "parted"),
    [
        pytest.param((A,), (A,), 50, None, id="goes on"),
        pytest.param((A,), (A, Epoch(50, b"d")), 50, None, id="another writer behind what was read"),
        pytest.param((A, B), (A, B, Epoch(300, b"d")), 300, None, id="read of two epochs"),
        pytest.param((A,), (A, C), 150, 100, id="copied in a epoch that went on"),
        pytest.param((A, B), (A, C), 300, 100, id="copied in the epoch before"),
        pytest.param((A, B), (A, C, Epoch(150, b"d")), 300, 100, id="and started twice since"),
        pytest.param((A, B), (A, C), 100, None, id="nothing was read behind the copy"),
        pytest.param((A, B), (A, Epoch(200, b"d")), 250, 200, id="copied between two epochs"),
        pytest.param((), (A, C), 300, None, id="nothing is known here"),
        pytest.param((A, B), (), 300, None, id="nothing is known there"),
        pytest.param((A, B), (Epoch(300, b"d"),), 300, None, id="the list was lost behind all that was read"),
        pytest.param((A, B), (Epoch(80, b"d"), Epoch(250, b"e")), 300, 80, id="none in common"),
    ],
)
def test_where_histories_part(
    known: tuple[Epoch, ...], now: tuple[Epoch, ...], position: int, parted: int | None
) -> None:
    assert parted_at(known, now, position) == parted


def test_a_cursor_of_a_life_that_a_history_has_not_had_is_none_of_it() -> None:
    assert is_of(b"a", (A, C), 100)
    assert not is_of(b"a", (A, C), 101), "that epoch ended before"
    assert not is_of(b"b", (A, C), 1)
    assert is_of(b"c", (A, C), 10**9)
    assert is_of(b"", (A, C), 10**9), "a program that does not say"


def test_an_offset_names_the_event_of_the_epoch_that_wrote_it() -> None:
    assert [epoch_at((A, B), offset) for offset in (0, B.first - 1, B.first, 10**9)] == [
        b"a",
        b"a",
        b"b",
        b"b",
    ]
    assert epoch_at((B,), B.first - 1) == b"", "older than what is known"
    assert is_written_in(b"a", (A, C), C.first - 1)
    assert not is_written_in(b"b", (A, C), C.first)
    assert is_written_in(b"", (A, C), C.first), "a program that does not say"
    assert is_written_in(b"a", (C,), C.first - 1), "older than what is known"


def test_only_the_last_lives_are_kept() -> None:
    epochs: tuple[Epoch, ...] = ()
    for first in range(3 * MOST):
        epochs = with_next(epochs, first, SimRandom(str(first)))
    assert [epoch.first for epoch in epochs] == list(range(2 * MOST, 3 * MOST))
    assert len({epoch.id for epoch in epochs}) == MOST
