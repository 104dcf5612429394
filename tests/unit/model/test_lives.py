"""Which writers wrote a history, and where two of them part."""

from __future__ import annotations

import pytest

from heliograph.model.lives import MOST, Life, is_of, parted_at, with_next
from heliograph.sim import SimRandom

A, B, C = Life(0, b"a"), Life(200, b"b"), Life(100, b"c")


@pytest.mark.parametrize(
    ("known", "now", "position", "parted"),
    [
        pytest.param((A,), (A,), 50, None, id="goes on"),
        pytest.param((A,), (A, Life(50, b"d")), 50, None, id="another writer behind what was read"),
        pytest.param((A, B), (A, B, Life(300, b"d")), 300, None, id="read of two lives"),
        pytest.param((A,), (A, C), 150, 100, id="copied in a life that went on"),
        pytest.param((A, B), (A, C), 300, 100, id="copied in the life before"),
        pytest.param((A, B), (A, C, Life(150, b"d")), 300, 100, id="and started twice since"),
        pytest.param((A, B), (A, C), 100, None, id="nothing was read behind the copy"),
        pytest.param((A, B), (A, Life(200, b"d")), 250, 200, id="copied between two lives"),
        pytest.param((), (A, C), 300, None, id="nothing is known here"),
        pytest.param((A, B), (), 300, None, id="nothing is known there"),
        pytest.param((A, B), (Life(300, b"d"),), 300, None, id="the list was lost behind all that was read"),
        pytest.param((A, B), (Life(80, b"d"), Life(250, b"e")), 300, 80, id="none in common"),
    ],
)
def test_where_histories_part(
    known: tuple[Life, ...], now: tuple[Life, ...], position: int, parted: int | None
) -> None:
    assert parted_at(known, now, position) == parted


def test_a_cursor_of_a_life_that_a_history_has_not_had_is_none_of_it() -> None:
    assert is_of(b"a", (A, C), 100)
    assert not is_of(b"a", (A, C), 101), "that life ended before"
    assert not is_of(b"b", (A, C), 1)
    assert is_of(b"c", (A, C), 10**9)
    assert is_of(b"", (A, C), 10**9), "a program that does not say"


def test_only_the_last_lives_are_kept() -> None:
    lives: tuple[Life, ...] = ()
    for first in range(3 * MOST):
        lives = with_next(lives, first, SimRandom(str(first)))
    assert [life.first for life in lives] == list(range(2 * MOST, 3 * MOST))
    assert len({life.id for life in lives}) == MOST
