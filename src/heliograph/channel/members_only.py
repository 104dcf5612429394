"""Who may push and consume in a channel that is for members only, as its manager has said last. Pure.

The manager gives it to the channel in its own station, which tells it to all stations that have the channel
open: each of them refuses at its own doors, also while the manager is away.
"""

from __future__ import annotations

import msgspec

from heliograph.errors import NotPossible


class Admission(msgspec.Struct, frozen=True):
    """See the module."""

    channel: str
    suppliers: frozenset[str]
    """The users that may push, which are the names of their suppliers."""
    groups: frozenset[str]
    """The groups under which members consume, one each."""

    def why_not_supplier(self, name: str) -> NotPossible | None:
        """Why a supplier of that name may not push; None when it may."""
        if name in self.suppliers:
            return None
        return NotPossible(
            self.channel,
            f"supplier {name!r} is of no member that may push: join with access='supply' or 'both', and push "
            "by member.supplier()",
        )

    def check_supplier(self, name: str) -> None:
        """NotPossible when a supplier of that name may not push."""
        reason = self.why_not_supplier(name)
        if reason is not None:
            raise reason

    def check_group(self, group: str | None) -> None:
        """NotPossible when receivers of that group, or of none, may not consume."""
        if group not in self.groups:
            asks = "a receiver without a group" if group is None else f"group {group!r}"
            raise NotPossible(
                self.channel,
                f"{asks} is of no member that may consume: join with access='consume' or 'both', and consume "
                "by member.consumer() or member.subscribe()",
            )
