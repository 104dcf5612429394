"""Matching: whether what a channel offers meets what another station asks for, policy by policy.

mismatches(offered, requested)     () when the two go together
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.qos.policies import AT_LEAST, QoS, policies
from heliograph.runtime.declared_options import rows_of


class Mismatch(msgspec.Struct, frozen=True):
    """One policy where an offer does not meet a request."""

    policy: str
    offered: Any
    requested: Any

    def __str__(self) -> str:
        return f"{self.policy}: offered {self.offered!r}, requested {self.requested!r}"


def mismatches(offered: QoS, requested: QoS) -> tuple[Mismatch, ...]:
    """Every policy that keeps the two apart, in the order of the table; empty when they go together."""
    return tuple(
        Mismatch(name, getattr(offered, name), getattr(requested, name))
        for name, policy in policies().items()
        if policy.rule == AT_LEAST and not _at_least(name, offered, requested)
    )


def smallest_change(offered: QoS, requested: QoS) -> str:
    """What either side would have to say for the two to go together, in words; empty when they do."""
    apart = mismatches(offered, requested)
    if not apart:
        return ""
    more = ", ".join(f"{one.policy}={one.requested!r}" for one in apart)
    less = ", ".join(f"{one.policy}={one.offered!r}" for one in apart)
    return f"open it with hg.QoS({more}) where it is pushed, or with hg.QoS({less}) where it is received"


def _at_least(name: str, offered: QoS, requested: QoS) -> bool:
    """Whether an offer is as strong as a request; the words of such a policy are in order, weakest first."""
    words = rows_of(QoS)[name].allowed.words
    return bool(words.index(getattr(offered, name)) >= words.index(getattr(requested, name)))


def conflicts(kept: QoS, asked: QoS) -> tuple[Mismatch, ...]:
    """Policies in which stations that share a history must not differ; empty when they do not."""
    shared = [name for name, policy in policies().items() if policy.shared]
    rows = [(name, getattr(kept, name), getattr(asked, name)) for name in shared]
    waits = [qos.ack_level == "delivered" for qos in (kept, asked)]
    if waits[0] != waits[1]:
        rows.append(("ack", kept.ack_level, asked.ack_level))
    return tuple(Mismatch(*row) for row in rows if row[1] != row[2])


def differences(offered: QoS, requested: QoS) -> tuple[Mismatch, ...]:
    """Every policy in which the two are not equal."""
    rows = [(name, getattr(offered, name), getattr(requested, name)) for name in QoS.__struct_fields__]
    return tuple(Mismatch(*row) for row in rows if row[1] != row[2])
