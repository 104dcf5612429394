"""Events of a channel that a filter lets through, as a stream for patterns and derived channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from heliograph.channel.channel import Channel
    from heliograph.qos.endpoint import ReceiverOptions


class FilteredChannel(msgspec.Struct, frozen=True, eq=False):
    """Events of a channel that a filter lets through; made by `channel.where(...)`."""

    channel: Channel[Any]
    options: ReceiverOptions

    def as_stream(self) -> FilteredChannel:
        return self

    def __str__(self) -> str:
        said = (
            f"{name}={_in_order(value)!r}"
            for name, value in sorted(self.options.items())
            if value is not None
        )
        return f"{self.channel.name}({', '.join(said)})"


def _in_order(value: Any) -> Any:
    """Without the order of a set, which differs from process to process."""
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value
