"""Limits that no journal could keep are refused where they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "wrong",
    [
        {"head_events": "5"},
        {"head_events": 0},
        {"head_bytes": 1.5},
        {"head_seconds": -1.0},
        {"head_seconds": None},
        {"keep_bytes": "1g"},
        {"keep_bytes": -1},
        {"keep_seconds": -5},
        {"keep_seconds": float("nan")},
        {"hold_unread": 1},
        {"merge_events": True},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(hg.InvalidQoS, match=f"Limits.{name}="):
        hg.Limits(**wrong)


def test_what_may_be_without_a_limit_takes_none() -> None:
    assert hg.Limits(keep_bytes=None, keep_seconds=None, grace_seconds=0) != hg.Limits()


def test_a_station_takes_limits_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"journal= is hg.Limits\(...\)"):
        hg.Station(tmp_path, journal={"keep_bytes": 1})  # type: ignore[arg-type]  # the test
    with hg.Station(tmp_path):
        pass  # the refusal has left nothing behind
