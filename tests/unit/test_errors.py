"""The tree of errors: drawn as it is, with sentences made of facts that survive a process pool."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from heliograph import errors

RAISED = [
    errors.FormatError("no good", path="$.a"),
    errors.IncompatibleFormats("old", "new", ("speed: f64 cannot be read as i64",)),
    errors.UnknownFormat(b"\x01" * 12),
    errors.DecodeError("truncated", path="$.a[2]"),
    errors.InvalidEvent("air.track", "'x' is no i64", path="$.id"),
    errors.ExpressionError("unknown field", text="sped > 1", column=1),
    errors.DiskError("append", "head", "no space"),
    errors.HistoryGone("p", 3, 9),
    errors.QueueFull("slow", 10, 1.0),
    errors.WrongEventType("c", "x", ("y",)),
    errors.InvalidQoS("queue", 0, "more"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_fields_and_sentence_through_a_process_pool(error: errors.HeliographError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_tree_at_the_top_names_every_error_below_its_parent() -> None:
    drawn = errors.__doc__ or ""
    for name in errors.__all__:
        if name != "ROOT":
            assert name in drawn, f"{name} is not in the drawing"


def test_every_error_can_be_caught_by_the_root() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "ROOT"]
    assert all(issubclass(kind, errors.HeliographError) for kind in kinds)


def test_facts_are_given_by_place_or_name_and_none_may_be_missing() -> None:
    error = errors.NotPossible("air.tracks", reason="no folder")
    assert (error.name, error.reason, error.args) == ("air.tracks", "no folder", ("air.tracks", "no folder"))
    assert errors.FormatError("no good").path == errors.ROOT
    given: Any = errors.NotPossible
    for wrong in [("air.tracks",), ("air.tracks", "a", "b")]:
        with pytest.raises(TypeError, match="argument"):
            given(*wrong)


def test_an_error_of_ones_own_needs_no_facts() -> None:
    class PushContext(errors.HeliographError):
        pass

    own: Any = PushContext
    assert str(own("went wrong")) == "went wrong"
