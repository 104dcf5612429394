"""A paced supplier: pushes wait so that there are at most so many a second.

A rate below what receivers take without loss needs no resynchronisation: measure it, and stay below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from heliograph.errors import NotPossible
from heliograph.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliograph.channel.publish.host import SupplierHost
    from heliograph.channel.publish.supplier import Supplier

T = TypeVar("T", bound=Event)


class TokenBucket:
    """How long to wait so that there are at most so many a second. Pure.

    Args:
        rate: a second.
        burst: how many may come at once after a time without any.
        now: nanoseconds.
    """

    def __init__(self, rate: float, burst: int, now: int) -> None:
        self._period = 1e9 / rate
        self._burst = burst
        self._free_at = float(now) - self._period * burst
        """When the next one would be due without any burst."""

    def take(self, now: int, number: int = 1) -> int:
        """Take so many; nanoseconds to wait before the last of them."""
        self._free_at = max(self._free_at, now - self._period * self._burst) + self._period * number
        return max(0, round(self._free_at - now))


class PacedSupplier(Generic[T]):
    """Made by `Channel.paced`."""

    def __init__(self, channel: SupplierHost, rate: float, burst: int, name: str | None) -> None:
        if type(rate) not in (int, float) or not 0 < rate <= 1e9:
            raise NotPossible(channel.name, f"paced({rate!r:.60}): events a second, above 0")
        if type(burst) is not int or not 1 <= burst <= 1_000_000:
            raise NotPossible(channel.name, f"paced(burst={burst!r:.60}): events, from 1 to 1,000,000")
        ports = channel.ports
        self.supplier: Supplier[T] = channel.supplier(name)
        self._ports = ports
        self._burst = burst
        self._lock = ports.tasks.lock(f"pace of {self.supplier.name}")
        self._bucket = TokenBucket(rate, burst, ports.clock.monotonic_ns())

    def push(self, event: T, **said: Any) -> bool:
        """As `Supplier.push`, once it is its turn."""
        self.supplier.validate(event)
        self._wait(1)
        return self.supplier.push(event, **said)

    def push_many(self, events: Iterable[T], timeout: float | None = None) -> bool:
        """As `Supplier.push_many`, at most `burst` at a time."""
        batch = self.supplier.as_events(events)
        self.supplier.validate_all(batch)
        done = True
        for start in range(0, len(batch), self._burst):
            some = batch[start : start + self._burst]
            self._wait(len(some))
            done = self.supplier.push_many(some, timeout) and done
        return done

    def close(self) -> None:
        self.supplier.close()

    def __enter__(self) -> PacedSupplier[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, number: int) -> None:
        with self._lock:
            wait_ns = self._bucket.take(self._ports.clock.monotonic_ns(), number)
        if wait_ns:
            self._ports.tasks.sleep(wait_ns / 1e9)
