"""The history in memory of a channel with instances: the last samples of each, and what became of it.

    store = InstanceStore(InstanceLimits(depth=2, cleanup_delay=10**9), clock, tasks)

An event whose headers say so (`heliograph.model.instance_change`) is no sample: that an instance was disposed
of, or that a writer has left it, is kept beside its samples until a writer writes it again, and takes no
place of theirs. A late joiner so gets the last `depth` samples and the state that the instance is in. What is
known of an instance that was disposed of and has no writers is forgotten after the delay: when something is
kept or asked for next.

A store that is full forgets its oldest sample; with `max_instances` an instance that is over, or else it does
not keep the new one. Both are counted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from heliograph.codec.sizes import size_of
from heliograph.model.instance_change import change_of

if TYPE_CHECKING:
    from heliograph.channel.queueing.queue import Item
    from heliograph.model.instance_change import Change
    from heliograph.runtime.ports import Clock, Tasks

Kept: TypeAlias = "tuple[Item, int]"


class InstanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps; times in nanoseconds, None for without end."""

    depth: int | None = 1
    """Samples of an instance; of each supplier, where they go with it."""
    cleanup_delay: int | None = 0
    """Until what is known of an instance that is over is forgotten."""
    max_samples: int | None = None
    max_instances: int | None = None
    max_samples_per_instance: int | None = None


class _KeptInstance:
    __slots__ = ("due", "is_disposed", "marks", "samples", "suppliers", "where")

    def __init__(self, where: tuple[Any, ...]) -> None:
        self.where = where
        self.samples: deque[Kept] = deque()
        self.marks: dict[str, tuple[Kept, Change]] = {}
        """What each supplier has last said of its state, where that was no sample."""
        self.suppliers: set[str] = set()
        """Those that wrote it and have not left it."""
        self.is_disposed = False
        self.due: int | None = None


class InstanceStore:
    """See the module."""

    def __init__(
        self, limits: InstanceLimits, byte_limit: int, clock: Clock, tasks: Tasks, *, per_supplier: bool
    ) -> None:
        self.limits = limits
        self.samples = 0
        self.bytes = 0
        """Of samples and of what was said of states."""
        self.forgotten = 0
        self._byte_limit = byte_limit
        self._clock = clock
        self._lock = tasks.lock("instances")
        self._per_supplier = per_supplier
        self._instances: dict[tuple[Any, ...], _KeptInstance] = {}
        self._ages: deque[tuple[_KeptInstance, Kept]] = deque()
        """Samples, the oldest first; those that are kept no more may still be among them."""
        self._over: deque[tuple[int, _KeptInstance]] = deque()
        """Instances to be forgotten, and when; the delay is one for all."""

    @property
    def kept(self) -> int:
        """Events that are kept."""
        return self.samples + sum(len(one.marks) for one in self._instances.values())

    def keep(self, item: Item) -> None:
        """Keep an event. A push that was interrupted asks again, and it is kept once."""
        header = item[1]
        change, _ = change_of(header.headers)
        owner = header.supplier if self._per_supplier else ""
        where = (owner, header.type, header.key)
        with self._lock:
            self._clean()
            instance = self._instances.get(where)
            if change == "write":
                self._keep_sample(where, instance, item)
            elif instance is not None or change == "dispose":
                self._keep_mark(instance or self._add(where), item, change)

    def _keep_sample(self, where: tuple[Any, ...], instance: _KeptInstance | None, item: Item) -> None:
        header = item[1]
        if instance is None:
            if not self._has_room():
                self.forgotten += 1
                return
            instance = self._add(where)
        samples = instance.samples
        if samples and samples[-1][0][1] is header:
            return
        instance.is_disposed, instance.due = False, None
        instance.suppliers.add(header.supplier)
        for supplier, (mark, change) in list(instance.marks.items()):
            if change != "unregister" or supplier == header.supplier:
                self.bytes -= mark[1]
                del instance.marks[supplier]
        limits = self.limits
        if limits.depth is not None and len(samples) >= limits.depth:
            self._drop(instance)
        most = limits.max_samples_per_instance
        if most is not None and len(samples) >= most:
            self._drop(instance)
            self.forgotten += 1
        kept = (item, size_of(item[0]))
        samples.append(kept)
        self._ages.append((instance, kept))
        self.samples += 1
        self.bytes += kept[1]
        self._forget_oldest()
        if len(self._ages) > 2 * self.samples + 1_000:
            self._ages = deque(
                (one, kept) for one, kept in self._ages if any(kept is sample for sample in one.samples)
            )

    def _keep_mark(self, instance: _KeptInstance, item: Item, change: Change) -> None:
        supplier = item[1].supplier
        before = instance.marks.get(supplier)
        if before is not None:
            if before[0][0][1] is item[1]:
                return
            self.bytes -= before[0][1]
            if before[1] == "dispose" and change == "unregister":
                item, change = before[0][0], "over"  # it stays disposed
        size = size_of(item[0])
        instance.marks[supplier] = ((item, size), change)
        self.bytes += size
        if change == "dispose":
            instance.suppliers.add(supplier)
        else:
            instance.suppliers.discard(supplier)
        instance.is_disposed |= change != "unregister"
        self._note_over(instance)

    def _note_over(self, instance: _KeptInstance) -> None:
        delay = self.limits.cleanup_delay
        if not instance.is_disposed or instance.suppliers or delay is None:
            return
        if delay == 0:
            self._forget(instance)
        else:
            instance.due = self._clock.monotonic_ns() + delay
            self._over.append((instance.due, instance))

    def _clean(self) -> None:
        """Forget what is over for long enough."""
        while self._over and self._over[0][0] <= self._clock.monotonic_ns():
            due, instance = self._over.popleft()
            if instance.due == due:
                self._forget(instance)

    def _has_room(self) -> bool:
        """For another instance."""
        most = self.limits.max_instances
        if most is None or len(self._instances) < most:
            return True
        over = next((one for one in self._instances.values() if one.is_disposed and not one.suppliers), None)
        if over is not None:
            self._forget(over)
        return over is not None

    def _add(self, where: tuple[Any, ...]) -> _KeptInstance:
        instance = self._instances[where] = _KeptInstance(where)
        return instance

    def _forget(self, instance: _KeptInstance) -> None:
        if self._instances.pop(instance.where, None) is None:
            return
        self.samples -= len(instance.samples)
        self.bytes -= sum(size for _, size in instance.samples)
        self.bytes -= sum(mark[1] for mark, _ in instance.marks.values())
        instance.samples.clear()

    def _drop(self, instance: _KeptInstance) -> None:
        _, size = instance.samples.popleft()
        self.samples -= 1
        self.bytes -= size

    def _forget_oldest(self) -> None:
        most = self.limits.max_samples
        while self.samples > 1 and (
            self.bytes >= self._byte_limit or (most is not None and self.samples > most)
        ):
            instance, kept = self._ages.popleft()
            if instance.samples and instance.samples[0] is kept:
                self._drop(instance)
                self.forgotten += 1

    def supplier_left(self, name: str) -> None:
        """What went with it is gone; what it wrote may be over."""
        with self._lock:
            for instance in list(self._instances.values()):
                if self._per_supplier:
                    if instance.where[0] == name:
                        self._forget(instance)
                elif name in instance.suppliers:
                    instance.suppliers.remove(name)
                    self._note_over(instance)

    def samples_of(self, supplier: str, key: tuple[Any, ...] | None = None) -> int:
        """How many are kept of a supplier, or of one of its instances."""
        with self._lock:
            return sum(
                len(one.samples)
                for one in self._instances.values()
                if one.where[0] == supplier and key in (None, one.where[2])
            )

    def items(self) -> list[Item]:
        """All that is kept."""
        with self._lock:
            self._clean()
            return [
                item
                for one in self._instances.values()
                for item, _ in (*one.samples, *(mark for mark, _ in one.marks.values()))
            ]
