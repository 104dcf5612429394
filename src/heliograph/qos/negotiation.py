"""The best that both sides can have: policies of one side, weakened or strengthened until all others match.

    granted = for_reader(asked, offers)         what a reader may request so that every writer matches
    granted = for_writer(offered, requests)     what a writer would have to offer so that every reader does

A reader is granted no more than it asked for, and a writer offers no less than it did. Each value is the
nearest one that is enough. Where the others do not agree among each other (`equal`), nothing is changed and
the rest do not match. What was granted is always told: `Grant`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from heliograph.qos.dds_policies import DDS_POLICIES
from heliograph.qos.request_offered import MATCHED, meets
from heliograph.runtime.declared_options import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.qos.dds_policies import MatchRule

Policies: TypeAlias = "Mapping[str, Any]"


class Grant(msgspec.Struct, frozen=True):
    """One field that is not as it was asked for."""

    policy: str
    field: str
    asked: Any
    granted: Any

    def __str__(self) -> str:
        return f"{self.policy}.{self.field}: asked for {self.asked!r}, granted {self.granted!r}"


def for_reader(asked: Policies, offers: Sequence[Policies]) -> tuple[dict[str, Any], tuple[Grant, ...]]:
    """The policies of a reader that all these writers match, as near as can be to what it asks for."""
    return _negotiated(asked, offers, is_reader=True)


def for_writer(offered: Policies, requests: Sequence[Policies]) -> tuple[dict[str, Any], tuple[Grant, ...]]:
    """The policies of a writer that all these readers match, as near as can be to what it offers."""
    return _negotiated(offered, requests, is_reader=False)


def _negotiated(
    own: Policies, others: Sequence[Policies], *, is_reader: bool
) -> tuple[dict[str, Any], tuple[Grant, ...]]:
    granted, grants = dict(own), []
    for policy, rules in MATCHED.items():
        if policy not in own:
            continue
        for field, rule in rules.items():
            asked = getattr(own[policy], field)
            values = [getattr(other[policy], field) for other in others if policy in other]
            value = _nearest(policy, field, rule, asked, values, is_reader=is_reader)
            if value != asked:
                grants.append(Grant(policy, field, asked, value))
                granted[policy] = msgspec.structs.replace(granted[policy], **{field: value})
    return granted, tuple(grants)


def _nearest(
    policy: str, field: str, rule: MatchRule, asked: Any, values: Sequence[Any], *, is_reader: bool
) -> Any:
    """The value nearest to what is asked for that goes with all others; as asked where there is none."""
    if not values:
        return asked
    if rule == "equal":
        return values[0] if len(set(values)) == 1 else asked
    if rule == "if requested":
        return (asked and all(values)) if is_reader else (asked or any(values))

    def fits(mine: Any, theirs: Any) -> bool:
        pair = (theirs, mine) if is_reader else (mine, theirs)
        return meets(policy, field, rule, *pair)

    candidates = [asked, *values]
    if rule == "at least":
        words = rows_of(DDS_POLICIES[policy][0])[field].allowed.words
        candidates = sorted(candidates, key=words.index, reverse=is_reader)
        start = candidates.index(asked)
    else:
        candidates = sorted(candidates, key=lambda time: (time is None, time or 0), reverse=not is_reader)
        start = candidates.index(asked)
    return next((one for one in candidates[start:] if all(fits(one, other) for other in values)), asked)
