"""The reader cache: what a reader has of each instance, until it is taken; samples can be read several times.

    cache = ReaderCache(CacheLimits(depth=1))
    cache.accept(Arrival("write", event, key, writer, source_ts), now)        # None, or why it is not kept
    for data, info in cache.select(SampleSelection(...), take=True, now=now): ...

A pure state machine: no clock, no lock, no thread. Whoever feeds it (`heliograph.channel.receive.cache_feed`)
holds a lock around each call and says what time it is, in nanoseconds since 1970.

An instance is what has one key. It is alive while a writer has written it and not left; disposed when a
writer said so; without writers when all that wrote it have left. A sample that comes for an instance which
was not alive begins a generation. Of each instance the cache keeps the last `depth` samples, or all within
the limits.

    ownership           with `exclusive`, only the strongest writer of an instance is heard; of two that are
                        equally strong, the one whose name comes first
    order               with `by_source`, samples of an instance are in the order of their source times (of
                        two at one time, by writer), and one older than what was handed out is dropped
    separation          an instance is updated no more often; of what came in between the last one follows
    deadline            an instance that is not updated in time is reported once for every period
    lifespan            a sample is gone when its time is over
    coherent sets       samples of one set enter together, when the last has come, or not at all
    purge               an instance without samples that is not alive is forgotten after a delay
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from heliograph.model.instance_change import Change, CoherentPart

SampleState: TypeAlias = Literal["not-read", "read"]
ViewState: TypeAlias = Literal["new", "not-new"]
InstanceState: TypeAlias = Literal["alive", "disposed", "no-writers"]
Refusal: TypeAlias = Literal["samples", "instances", "samples-per-instance"]
"""Which limit a sample was rejected for."""
Ignored: TypeAlias = Literal[
    "not-owner", "older", "expired", "separated", "staged", "unknown", "unchanged", "too-large"
]
"""Why there is nothing new in the cache though no limit was reached; a set is too large when it exceeds the
limits of an empty cache."""

REFUSALS: Final = ("samples", "instances", "samples-per-instance")
NIL: Final = 0
"""The handle of no instance."""


class CacheLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a cache keeps samples; times in nanoseconds, None for without end."""

    depth: int | None = 1
    """Samples of an instance; None: all."""
    max_samples: int | None = None
    max_instances: int | None = None
    max_samples_per_instance: int | None = None
    exclusive: bool = False
    by_source: bool = False
    separation: int = 0
    deadline: int | None = None
    purge_nowriter: int | None = None
    purge_disposed: int | None = None
    ordered: bool = False
    """Whether samples are handed out in the order of their arrival, not instance by instance."""


class Arrival(NamedTuple):
    """What came from a writer."""

    change: Change
    data: Any
    key: tuple[Any, ...]
    writer: str
    source_ts: int
    expires: int | None = None
    """When its lifespan ends."""
    part: CoherentPart | None = None
    is_left: bool = False
    """Whether its writer has gone: samples may outlive it."""
    place: int = 0
    """In the order of all that its writer's station took in."""


class SampleInfo(msgspec.Struct, frozen=True):
    """What is known of a sample besides its data."""

    sample_state: SampleState
    """Whether it had been read before."""
    view_state: ViewState
    """Whether it is the first that is seen of its instance, or of its generation."""
    instance_state: InstanceState
    disposed_generation_count: int
    """How often the instance had become alive again after it was disposed of, when the sample came."""
    no_writers_generation_count: int
    """How often it had become alive again after it had been without writers."""
    sample_rank: int
    """Samples of the same instance that follow in what was returned."""
    generation_rank: int
    """Generations between it and the last one of its instance in what was returned."""
    absolute_generation_rank: int
    """Generations between it and the last one of its instance that came."""
    source_timestamp: int
    """Nanoseconds since 1970."""
    reception_timestamp: int
    instance_handle: int
    publication_handle: str
    """The writer."""
    valid_data: bool
    """False when it only tells of a change of the instance's state; its data has the key."""


class _Sample:
    __slots__ = (
        "arrived",
        "data",
        "disposed",
        "expires",
        "is_read",
        "is_valid",
        "no_writers",
        "number",
        "place",
        "source_ts",
        "writer",
    )

    def __init__(
        self, arrival: Arrival, number: int, now: int, instance: Instance, *, is_valid: bool
    ) -> None:
        self.data = arrival.data
        self.writer = arrival.writer
        self.source_ts = arrival.source_ts
        self.expires = arrival.expires
        self.number = number
        self.place = arrival.place
        self.arrived = now
        self.is_read = False
        self.is_valid = is_valid
        self.disposed, self.no_writers = instance.disposed, instance.no_writers

    @property
    def source(self) -> tuple[int, str]:
        """By which samples are in order with `by_source`."""
        return self.source_ts, self.writer

    @property
    def generation(self) -> int:
        return self.disposed + self.no_writers


class Instance:
    """What a cache knows of one key."""

    __slots__ = (
        "deadline",
        "disposed",
        "handed_out",
        "handle",
        "held",
        "is_new",
        "key",
        "last",
        "no_writers",
        "purge_at",
        "samples",
        "state",
        "updated",
        "valid",
        "writers",
    )

    def __init__(self, handle: int, key: tuple[Any, ...]) -> None:
        self.handle = handle
        self.key = key
        self.state: InstanceState = "alive"
        self.is_new = True
        """Whether nothing was read of this generation."""
        self.disposed = self.no_writers = 0
        self.writers: set[str] = set()
        """Those that wrote it and have not left it."""
        self.last: Any = None
        """The data that came last, which has the key."""
        self.samples: list[_Sample] = []
        self.valid = 0
        """How many of them have data."""
        self.handed_out: tuple[int, str] = (0, "")
        """The latest source that was taken, in `by_source`."""
        self.updated: int | None = None
        self.held: Arrival | None = None
        """What waits for the separation to be over."""
        self.deadline: int | None = None
        self.purge_at: int | None = None


class SampleSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which samples a read or take asks for."""

    sample_states: frozenset[SampleState] = frozenset(("not-read", "read"))
    view_states: frozenset[ViewState] = frozenset(("new", "not-new"))
    instance_states: frozenset[InstanceState] = frozenset(("alive", "disposed", "no-writers"))
    most: int | None = None
    instance: int | None = None
    """Only of this instance."""
    after: int | None = None
    """Only of the first instance behind this one that has any."""
    holds: Callable[[Any], bool] | None = None
    """Only samples whose data meets this."""


ANY: Final = SampleSelection()


class ReaderCache:
    """See the module.

    Attributes:
        samples: how many valid samples there are.
    """

    def __init__(self, limits: CacheLimits, numbers: Iterator[int] | None = None) -> None:
        """`numbers` counts what comes, also for caches of which the order is compared."""
        self.limits = limits
        self.samples = 0
        self._by_key: dict[tuple[Any, ...], Instance] = {}
        self._by_handle: dict[int, Instance] = {}
        self._handles = count(NIL + 1)
        self._numbers = count(1) if numbers is None else numbers
        self._strength: dict[str, int] = {}
        self._may_expire = False
        """Whether a sample ever came that has a lifespan."""
        self._sets: dict[str, dict[int, dict[int, Arrival]]] = {}
        """Of each writer, the parts that have come of sets that are not complete, by their places."""

    # What comes in

    def accept(self, arrival: Arrival, now: int) -> Refusal | Ignored | None:
        """Take something in; why not, when it is not there now."""
        if arrival.part is not None:
            return self._stage(arrival, arrival.part, now)
        if arrival.is_left:
            return self._accept_left(arrival, now)
        if arrival.change == "over":
            why = self._accept(arrival._replace(change="dispose"), now)
            if why in REFUSALS:
                return why
            left = self._accept(arrival._replace(change="unregister"), now)
            return None if left is None else why
        return self._accept(arrival, now)

    def _accept_left(self, arrival: Arrival, now: int) -> Refusal | Ignored | None:
        """Something of a writer that has gone: it is written by nobody, and begins no generation."""
        instance = self._by_key.get(arrival.key)
        if instance is not None and instance.state == "no-writers" and arrival.change == "write":
            instance.state = "alive"
            instance.samples = [sample for sample in instance.samples if sample.is_valid]
        why = self.accept(arrival._replace(is_left=False), now)
        instance = self._by_key.get(arrival.key)
        if instance is not None:
            self._leave(instance, arrival, now)
        return why

    def is_light(self) -> bool:
        """Whether `put` may take in samples: none is rejected, held back or put in another place."""
        limits = self.limits
        bounds = (limits.max_samples, limits.max_instances, limits.max_samples_per_instance)
        is_placed = limits.by_source or limits.separation
        return bounds == (None,) * 3 and limits.depth is not None and not is_placed

    def put(  # noqa: PLR0917 - called for every sample; as `Arrival` has them
        self,
        data: Any,
        key: tuple[Any, ...],
        writer: str,
        source_ts: int,
        expires: int | None,
        place: int,
        now: int,
    ) -> bool:
        """`accept` of a sample where `is_light`, without an `Arrival`; False when it is not there now."""
        if expires is not None:
            if expires <= now:
                return False
            self._may_expire = True
        instance = self._by_key.get(key)
        if instance is None:
            instance = self._add_instance(key)
        instance.last = data
        writers = instance.writers
        writers.add(writer)
        limits = self.limits
        if limits.exclusive and len(writers) > 1 and self.owner(instance) != writer:
            return False
        if instance.state != "alive":
            self._revive(instance)
        samples = instance.samples
        if limits.depth == 1 and len(samples) == 1 and instance.valid:
            sample = samples[0]  # nobody else has it: what was handed out is data and SampleInfo
            sample.data, sample.writer, sample.source_ts, sample.expires = data, writer, source_ts, expires
            sample.number, sample.place, sample.arrived = next(self._numbers), place, now
            sample.is_read = False
            sample.disposed, sample.no_writers = instance.disposed, instance.no_writers
        else:
            if instance.valid >= limits.depth:  # type: ignore[operator]  # it has one
                self._drop_oldest(instance)
            arrival = Arrival("write", data, key, writer, source_ts, expires, place=place)
            samples.append(_Sample(arrival, next(self._numbers), now, instance, is_valid=True))
            self.samples += 1
            instance.valid += 1
        instance.updated = now
        if limits.deadline is not None:
            instance.deadline = now + limits.deadline
        return True

    def _stage(self, arrival: Arrival, part: CoherentPart, now: int) -> Refusal | Ignored | None:
        """Keep a part of a set aside until all are there."""
        sets = self._sets.setdefault(arrival.writer, {})
        for number in [number for number in sets if number < part.number]:
            del sets[number]  # a writer ends one set before it begins the next: that one lost a part
        parts = sets.setdefault(part.number, {})
        parts[part.place] = arrival._replace(part=None)
        if len(parts) < part.size:
            return "staged"
        if (why := self.no_room_for(parts.values())) is not None:
            if why == "too-large":
                del sets[part.number]
            else:
                del parts[part.place]
            return why
        del sets[part.number]
        self.accept_set((one for _, one in sorted(parts.items())), now)
        return None

    def accept_set(self, parts: Iterable[Arrival], now: int) -> None:
        """Take in the parts of a set for which there is room, one after the other."""
        for one in parts:
            self.accept(one._replace(part=None), now)

    def no_room_for(self, parts: Iterable[Arrival]) -> Refusal | Literal["too-large"] | None:
        """Why a set cannot enter as a whole now, or ever."""
        limits, written = self.limits, Counter(one.key for one in parts if one.change == "write")
        if limits.depth is not None:
            written = Counter({key: min(number, limits.depth) for key, number in written.items()})
        here = {key: self._by_key[key] for key in written.keys() & self._by_key.keys()}
        most = limits.max_instances
        if most is not None and len(written) > most:
            return "too-large"
        most = limits.max_samples
        if most is not None and written.total() > most:
            return "too-large"
        most = limits.max_samples_per_instance
        if most is not None and max(written.values(), default=0) > most:
            return "too-large"
        if limits.max_instances is not None:
            over = sum(1 for one in self._by_key.values() if one.state != "alive" and not one.samples)
            over -= sum(1 for one in here.values() if one.state != "alive" and not one.samples)
            if len(self._by_key) - over + len(written) - len(here) > limits.max_instances:
                return "instances"
        grown = {key: self._grown(here.get(key), number) for key, number in written.items()}
        if limits.max_samples is not None and self.samples + sum(grown.values()) > limits.max_samples:
            return "samples"
        if most is not None and any(one.valid + grown[key] > most for key, one in here.items()):
            return "samples-per-instance"
        return None

    def _grown(self, instance: Instance | None, number: int) -> int:
        """By how many samples an instance grows with so many more: with a depth, older ones make room."""
        if instance is None or self.limits.depth is None:
            return number
        return min(number, max(0, self.limits.depth - instance.valid))

    def _accept(self, arrival: Arrival, now: int) -> Refusal | Ignored | None:
        if arrival.expires is not None:
            if arrival.expires <= now:
                return "expired"
            self._may_expire = True
        instance = self._by_key.get(arrival.key)
        is_new = instance is None
        if instance is None:
            if arrival.change == "unregister":
                return "unknown"
            if (full := self._room_for_instance()) is not None:
                return full
            instance = self._add_instance(arrival.key)
        if arrival.change == "unregister":
            return self._unregister(instance, arrival, now)
        instance.last = arrival.data
        was_writer = arrival.writer in instance.writers
        instance.writers.add(arrival.writer)
        if self.limits.exclusive and len(instance.writers) > 1 and self.owner(instance) != arrival.writer:
            return "not-owner"
        if arrival.change == "dispose":
            return self._dispose(instance, arrival, now)
        why: Refusal | Ignored | None = self._write(instance, arrival, now)
        if why in REFUSALS:
            if is_new:
                self._forget(instance)
            elif not was_writer:
                instance.writers.discard(arrival.writer)
        return why

    def _write(self, instance: Instance, arrival: Arrival, now: int) -> Refusal | Ignored | None:
        if self.limits.by_source and (arrival.source_ts, arrival.writer) < instance.handed_out:
            return "older"
        separation = self.limits.separation
        if separation and instance.updated is not None and now < instance.updated + separation:
            if instance.held is None or not self.limits.by_source or _is_later(arrival, instance.held):
                instance.held = arrival
            return "separated"
        return self._store(instance, arrival, now)

    def _store(self, instance: Instance, arrival: Arrival, now: int) -> Refusal | Ignored | None:
        limits = self.limits
        kept = instance.valid
        if limits.depth is not None and kept >= limits.depth:
            if limits.by_source and (arrival.source_ts, arrival.writer) < instance.samples[0].source:
                return "older"
            self._drop_oldest(instance)
        elif limits.max_samples_per_instance is not None and kept >= limits.max_samples_per_instance:
            return "samples-per-instance"
        elif limits.max_samples is not None and self.samples >= limits.max_samples:
            return "samples"
        if instance.state != "alive":
            self._revive(instance)
        sample = _Sample(arrival, next(self._numbers), now, instance, is_valid=True)
        self.samples += 1
        instance.valid += 1
        if limits.by_source:
            insort(instance.samples, sample, key=lambda one: one.source)
        else:
            instance.samples.append(sample)
        instance.updated = now
        if limits.deadline is not None:
            instance.deadline = now + limits.deadline
        return None

    def _revive(self, instance: Instance) -> None:
        """A sample makes an instance alive."""
        instance.purge_at = None
        if instance.state == "disposed":
            instance.disposed += 1
        else:
            instance.no_writers += 1
        instance.state = "alive"
        instance.is_new = True

    def _dispose(self, instance: Instance, arrival: Arrival, now: int) -> Ignored | None:
        came = self._let_held_in(instance, now)
        if instance.state == "disposed":
            return None if came else "unchanged"
        self._change_state(instance, "disposed", arrival, now)
        return None

    def _unregister(self, instance: Instance, arrival: Arrival, now: int) -> Ignored | None:
        if arrival.writer not in instance.writers:
            return "unknown"
        came = self._let_held_in(instance, now)
        return None if self._leave(instance, arrival, now) or came else "unchanged"

    def _leave(self, instance: Instance, arrival: Arrival, now: int) -> bool:
        """A writer writes an instance no more; whether its state has changed."""
        instance.writers.discard(arrival.writer)
        if instance.writers or instance.state != "alive":
            return False
        self._change_state(instance, "no-writers", arrival, now)
        return True

    def _change_state(self, instance: Instance, state: InstanceState, arrival: Arrival, now: int) -> None:
        """Tell of it by a sample without data."""
        instance.state = state
        instance.deadline = None
        delay = self.limits.purge_disposed if state == "disposed" else self.limits.purge_nowriter
        instance.purge_at = None if delay is None else now + delay
        instance.samples = [sample for sample in instance.samples if sample.is_valid]
        instance.samples.append(_Sample(arrival, next(self._numbers), now, instance, is_valid=False))

    def _let_held_in(self, instance: Instance, now: int) -> bool:
        held, instance.held = instance.held, None
        return held is not None and self._store(instance, held, now) is None

    def _room_for_instance(self) -> Refusal | None:
        most = self.limits.max_instances
        if most is None or len(self._by_key) < most:
            return None
        # What is over and was read makes room before a new one is rejected.
        over = next((one for one in self._by_key.values() if one.state != "alive" and not one.samples), None)
        if over is None:
            return "instances"
        self._forget(over)
        return None

    def _add_instance(self, key: tuple[Any, ...]) -> Instance:
        instance = self._by_key[key] = Instance(next(self._handles), key)
        self._by_handle[instance.handle] = instance
        return instance

    def _forget(self, instance: Instance) -> None:
        self.samples -= instance.valid
        del self._by_key[instance.key], self._by_handle[instance.handle]

    def _remove(self, instance: Instance, sample: _Sample) -> None:
        instance.samples.remove(sample)
        instance.valid -= sample.is_valid
        self.samples -= sample.is_valid

    def _drop_oldest(self, instance: Instance) -> None:
        samples = instance.samples
        del samples[next(place for place, sample in enumerate(samples) if sample.is_valid)]
        instance.valid -= 1
        self.samples -= 1

    # Writers

    def owner(self, instance: Instance) -> str | None:
        """The writer that is heard, with exclusive ownership."""
        strength = self._strength
        return min(instance.writers, key=lambda writer: (-strength.get(writer, 0), writer), default=None)

    def set_strength(self, writer: str, strength: int) -> None:
        self._strength[writer] = strength

    def writer_lost(self, writer: str, now: int) -> bool:
        """A writer has gone, or is not alive; whether that changed the state of an instance."""
        self._sets.pop(writer, None)
        self._strength.pop(writer, None)
        changed = False
        for instance in self._by_key.values():
            if writer in instance.writers:
                self._let_held_in(instance, now)
                arrival = Arrival("unregister", instance.last, instance.key, writer, now)
                changed |= self._leave(instance, arrival, now)
        return changed

    # Time

    def next_due(self) -> int | None:
        """When `tick` has something to do."""
        return min(self._dues(), default=None)

    def _dues(self) -> Iterator[int]:
        separation = self.limits.separation
        for instance in self._by_key.values():
            if instance.deadline is not None:
                yield instance.deadline
            if instance.held is not None and instance.updated is not None:
                yield instance.updated + separation
            if instance.purge_at is not None:
                yield instance.purge_at
            yield from (sample.expires for sample in instance.samples if sample.expires is not None)

    def tick(self, now: int) -> tuple[list[int], bool]:
        """Do what is due; the instances that missed a deadline, and whether a sample has come."""
        missed: list[int] = []
        came = False
        for instance in list(self._by_key.values()):
            self._expire(instance, now)
            if instance.held is not None and now >= (instance.updated or 0) + self.limits.separation:
                came |= self._let_held_in(instance, now)
            if instance.deadline is not None and instance.deadline <= now and self.limits.deadline:
                missed.append(instance.handle)
                periods = (now - instance.deadline) // self.limits.deadline + 1
                instance.deadline += periods * self.limits.deadline
                if self.limits.exclusive and (owner := self.owner(instance)) is not None:
                    instance.writers.discard(owner)  # until it writes again: 2.2.3.9.2
            if instance.purge_at is not None and instance.purge_at <= now:
                self._forget(instance)
        return missed, came

    def _expire(self, instance: Instance, now: int) -> None:
        if not self._may_expire:
            return
        for sample in [one for one in instance.samples if one.expires is not None and one.expires <= now]:
            self._remove(instance, sample)
        if instance.held is not None and instance.held.expires is not None and instance.held.expires <= now:
            instance.held = None

    # What goes out

    def select(self, wanted: SampleSelection, *, take: bool, now: int) -> list[tuple[Any, SampleInfo]]:
        """The samples that are asked for, each with what is known of it; those taken are here no more."""
        chosen = self._chosen(wanted, now)
        infos = self._infos(chosen)
        for instance, sample in chosen:
            sample.is_read = True
            instance.is_new = False
        if take:
            self._take_out(chosen)
        return [(sample.data, info) for (_, sample), info in zip(chosen, infos, strict=True)]

    def _take_out(self, chosen: list[tuple[Instance, _Sample]]) -> None:
        taken = {id(sample) for _, sample in chosen}
        for instance in {instance.handle: instance for instance, _ in chosen}.values():
            gone = [sample for sample in instance.samples if id(sample) in taken]
            if self.limits.by_source:
                instance.handed_out = max(instance.handed_out, *(sample.source for sample in gone))
            if len(gone) == len(instance.samples):
                self.samples -= instance.valid
                instance.samples, instance.valid = [], 0
                continue
            instance.samples = [sample for sample in instance.samples if id(sample) not in taken]
            valid = sum(sample.is_valid for sample in gone)
            instance.valid -= valid
            self.samples -= valid

    def has(self, wanted: SampleSelection, now: int) -> bool:
        """Whether there is such a sample."""
        return bool(self._chosen(msgspec.structs.replace(wanted, most=1), now))

    def places(self, wanted: SampleSelection, now: int) -> list[tuple[str, int, int]]:
        """Of each such sample: the station of its writer, its place in what that took in, and its number."""
        return [
            (sample.writer.rpartition(".")[0], sample.place, sample.number)
            for _, sample in self._chosen(wanted, now)
        ]

    def _chosen(self, wanted: SampleSelection, now: int) -> list[tuple[Instance, _Sample]]:
        chosen: list[tuple[Instance, _Sample]] = []
        wants_all = wanted.holds is None and wanted.sample_states == ANY.sample_states
        for instance in self._instances(wanted):
            if not instance.samples:
                continue
            self._expire(instance, now)
            view: ViewState = "new" if instance.is_new else "not-new"
            if view not in wanted.view_states or instance.state not in wanted.instance_states:
                continue
            if wants_all:
                chosen += [(instance, sample) for sample in instance.samples]
            else:
                chosen += [
                    (instance, sample)
                    for sample in instance.samples
                    if ("read" if sample.is_read else "not-read") in wanted.sample_states
                    and (wanted.holds is None or (sample.is_valid and wanted.holds(sample.data)))
                ]
            if chosen and wanted.after is not None:
                break
            if wanted.most is not None and len(chosen) >= wanted.most and not self.limits.ordered:
                break
        if self.limits.ordered:
            chosen.sort(key=lambda one: one[1].source if self.limits.by_source else (one[1].number, ""))
        return chosen if wanted.most is None else chosen[: wanted.most]

    def _instances(self, wanted: SampleSelection) -> Iterable[Instance]:
        if wanted.instance is not None:
            found = self._by_handle.get(wanted.instance)
            return () if found is None else (found,)
        if wanted.after is not None:
            return (one for handle, one in list(self._by_handle.items()) if handle > (wanted.after or NIL))
        return list(self._by_handle.values())

    def _infos(self, chosen: list[tuple[Instance, _Sample]]) -> list[SampleInfo]:
        following: dict[int, int] = {}
        last: dict[int, int] = {}
        infos: list[SampleInfo] = []
        for instance, sample in reversed(chosen):
            rank = following.get(instance.handle, 0)
            following[instance.handle] = rank + 1
            newest = last.setdefault(instance.handle, sample.generation)
            infos.append(
                SampleInfo(
                    "read" if sample.is_read else "not-read",
                    "new" if instance.is_new else "not-new",
                    instance.state,
                    sample.disposed,
                    sample.no_writers,
                    rank,
                    newest - sample.generation,
                    instance.disposed + instance.no_writers - sample.generation,
                    sample.source_ts,
                    sample.arrived,
                    instance.handle,
                    sample.writer,
                    sample.is_valid,
                )
            )
        infos.reverse()
        return infos

    def lookup(self, key: tuple[Any, ...]) -> int:
        """The handle of an instance; `NIL` when nothing is known of it."""
        instance = self._by_key.get(key)
        return NIL if instance is None else instance.handle

    def key_of(self, handle: int) -> tuple[Any, ...] | None:
        instance = self._by_handle.get(handle)
        return None if instance is None else instance.key

    def instance_of(self, handle: int) -> Instance | None:
        return self._by_handle.get(handle)

    def __len__(self) -> int:
        """How many instances are known."""
        return len(self._by_key)


def _is_later(one: Arrival, other: Arrival) -> bool:
    return (one.source_ts, one.writer) >= (other.source_ts, other.writer)
