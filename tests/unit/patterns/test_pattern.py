"""What a pattern may be; everything else is refused where it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from heliograph.errors import InvalidPattern
from heliograph.patterns.pattern import AllOf, Leaf, after, all_of, any_of, check, every, leaves_of, none_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Stream:
    def as_stream(self) -> Stream:
        return self


A, B = Stream(), Stream()


def nested(depth: int) -> AllOf:
    return all_of(a=nested(depth - 1) if depth > 1 else A)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (all_of, "has no parts"),
        (lambda: all_of(a=7), "a=7; a part is a channel"),
        (lambda: all_of(A, B), r"without a name; name each: all_of\("),  # type: ignore[arg-type]  # the test
        (lambda: any_of(A), r"without a name; name each: any_of\("),  # type: ignore[arg-type]  # the test
        (lambda: none_of({"a": A}, {"b": B}), "without a name"),
        (lambda: all_of({"not a name": A}), "calls a part 'not a name'"),
        (lambda: any_of(missing=A), "calls a part 'missing'"),
        (lambda: all_of(a=A, within=0), "within is 0; it is seconds above 0"),
        (lambda: all_of(a=A, watchdog=-1.0), "watchdog is -1.0"),
        (lambda: all_of(a=A, reuse="all"), "reuse='all'; it is 'consume' or 'latest'"),  # type: ignore[arg-type]  # the test
        (lambda: all_of(a=A, keys=0), "keys=0; it is a whole number"),
        (lambda: all_of(a=A, depth=1.5), "depth=1.5; it is a whole number"),  # type: ignore[arg-type]  # the test
        (lambda: all_of(a=A, b=B, by={"a": "id"}), "names each stream"),
        (lambda: all_of(a=any_of(x=A), b=B, by={"b": "id"}), "one field for all where patterns are nested"),
        (lambda: all_of(a=A, by=7), "by=7"),  # type: ignore[arg-type]  # the test
        (lambda: all_of(a=A, no=none_of(b=B)), "which needs within="),
        (lambda: all_of(no=none_of(b=B), within=1.0), "what opens the window"),
        (lambda: all_of(a=A, no=none_of(b=B), within=1.0, reuse="latest"), "cannot use the latest again"),
        (lambda: all_of(a=A, no=none_of(b=B, within=2.0), within=1.0), "leave out no's within="),
        (lambda: check(none_of(a=A)), "needs within= where it stands alone"),
        (lambda: check(any_of(a=none_of(b=B))), "only all_of lends it a window"),
        (lambda: check(any_of(a=all_of(b=B, by="id"))), "go to the outermost"),
        (lambda: check(none_of(a=none_of(b=B, within=1.0), within=1.0)), "none_of inside none_of"),
        (lambda: check(nested(9)), "nested deeper than 8"),
        (lambda: check(any_of({f"a{n}": A for n in range(65)})), "has 65 parts"),
        (lambda: check(A), "is all_of, any_of, none_of, every or after"),
        (lambda: every(float("nan")), "every is nan"),
        (lambda: after("1"), "after is '1'"),  # type: ignore[arg-type]  # the test
    ],
)
def test_a_pattern_that_cannot_be_looked_for_is_refused(written: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidPattern, match=sentence):
        written()


def test_leaves_are_counted_from_the_left() -> None:
    pattern = all_of(x=any_of(a=A, b=B), tick=every(1.0), c=A)
    check(pattern)
    leaves = list(leaves_of(pattern))
    assert [leaf.stream if isinstance(leaf, Leaf) else leaf for leaf in leaves] == [
        A,
        B,
        every_of(pattern),
        A,
    ]


def every_of(pattern: AllOf) -> Any:
    return pattern.parts["tick"]
