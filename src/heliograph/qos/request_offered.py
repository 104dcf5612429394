"""Request and offer in DDS: which policies keep a writer and a reader apart, and partitions that overlap.

    incompatible(offered, requested)        () when the policies of the two go together
    share_partition(("a*",), ("abc",))      whether two lists of partitions have one in common

The policies of an endpoint are a mapping by name: those of the writer and its publisher, or of the reader and
its subscriber. The rules are beside the fields in `heliograph.qos.dds_policies`. Partitions that do not
overlap are no incompatibility (2.2.3.13): the two do not see each other, and nobody is told but who asks.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from heliograph.qos.dds_policies import DDS_POLICIES, match_rules
from heliograph.runtime.declared_options import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heliograph.qos.dds_policies import MatchRule

Policies: TypeAlias = "Mapping[str, Any]"

MATCHED: Final = {name: match_rules(kind) for name, (kind, _) in DDS_POLICIES.items() if match_rules(kind)}
"""The rules of the policies that have some, by policy and field."""


class Incompatible(msgspec.Struct, frozen=True):
    """One field of a policy in which an offer does not meet a request."""

    policy: str
    field: str
    offered: Any
    requested: Any
    rule: MatchRule

    @property
    def number(self) -> int:
        """The policy's QosPolicyId."""
        return DDS_POLICIES[self.policy][1].number

    @property
    def section(self) -> str:
        """Where the standard has the policy."""
        return DDS_POLICIES[self.policy][1].section

    def __str__(self) -> str:
        return (
            f"{self.policy}.{self.field}: offered {self.offered!r}, requested {self.requested!r}; "
            f"{SENTENCES[self.rule]}"
        )


SENTENCES: Final[dict[MatchRule, str]] = {
    "at least": "what is offered has to be at least what is requested",
    "at most": "what is offered has to be at most what is requested",
    "equal": "the two have to be equal",
    "if requested": "what is requested has to be offered",
}


def policies_of(*parts: msgspec.Struct) -> dict[str, Any]:
    """The policies of an endpoint: of a writer and its publisher, or of a reader and its subscriber."""
    return {name: getattr(part, name) for part in parts for name in part.__struct_fields__}


def incompatible(offered: Policies, requested: Policies) -> tuple[Incompatible, ...]:
    """Every field that keeps a writer and a reader apart, in the order of the standard."""
    return tuple(
        Incompatible(policy, field, ours, theirs, rule)
        for policy, rules in MATCHED.items()
        if policy in offered and policy in requested and offered[policy] != requested[policy]
        for field, rule in rules.items()
        if not meets(
            policy,
            field,
            rule,
            ours := getattr(offered[policy], field),
            theirs := getattr(requested[policy], field),
        )
    )


def meets(policy: str, field: str, rule: MatchRule, offered: Any, requested: Any) -> bool:
    """Whether one field of an offer meets that of a request."""
    if rule == "equal":
        return bool(offered == requested)
    if rule == "if requested":
        return bool(offered or not requested)
    if rule == "at most":
        return _or_infinite(offered) <= _or_infinite(requested)
    words = rows_of(DDS_POLICIES[policy][0])[field].allowed.words
    return bool(words.index(offered) >= words.index(requested))


def _or_infinite(time: float | None) -> float:
    return inf if time is None else time


def share_partition(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether two lists have a partition in common; an empty list is the partition without a name.

    A pattern meets names and not other patterns, which is what 2.2.3.13 says of two regular expressions.
    """
    return any(_meet(a, b) for a in ours or ("",) for b in theirs or ("",))


def _meet(a: str, b: str) -> bool:
    if _is_pattern(a):
        return not _is_pattern(b) and fnmatchcase(b, a)
    return fnmatchcase(a, b) if _is_pattern(b) else a == b


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")
