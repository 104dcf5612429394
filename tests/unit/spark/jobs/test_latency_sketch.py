"""Sketches of latencies: added up in any order, they know each percentile to 1 %."""

from __future__ import annotations

from math import ceil, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import InvalidOption
from heliograph.spark.jobs.latency_sketch import RATIO, Sketch


def sketch(waits: list[int]) -> Sketch:
    found = Sketch()
    found.counts.update(ceil(log(max(wait, 1)) / log(RATIO)) for wait in waits)
    return found


waits = st.lists(st.integers(1, 10**13), max_size=50)


@given(first=waits, second=waits, share=st.floats(0, 1))
def test_a_percentile_of_two_sketches_is_that_of_all_values_to_one_percent(
    first: list[int], second: list[int], share: float
) -> None:
    whole = Sketch.merged([sketch(first).text(), None, sketch(second).text()])
    assert whole.counts == Sketch.merged([sketch(second).text(), sketch(first).text()]).counts
    values = sorted(first + second)
    assert whole.n == len(values)
    if not values:
        assert whole.percentile(share) is None
        return
    exact = values[int(share * (len(values) - 1))] / 1e9
    assert whole.percentile(share) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "nothing"])
def test_what_is_no_sketch_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="counts by range"):
        Sketch.of(text)
    with pytest.raises(InvalidOption, match="a number from 0 to 1"):
        Sketch().percentile(99)
