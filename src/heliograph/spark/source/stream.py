"""How far a stream has come and how far its next batch goes; everything about a stream but Spark's classes.

Spark keeps offsets as JSON in its checkpoint. Ours are

    {"air.tracks": {"5f0c…": {"epoch": 3, "offset": 1200, "from": 1000, "epochs": [[0, "9be1…"], …]}}}

for "all below offset 1200, of which the batch that ends here begins at 1000". Spark does not keep where a
query began: it asks again after a restart, when "latest" is somewhere else. With `from` in it a batch that
was planned but not finished is read again exactly as it was planned, the first one included.

The epoch counts the writers that a partition has had, and the epochs name the last of them, with the offset
at which each began. When another one went on, or the history ends before an offset that was read, an older
copy was put back: offsets from there on name other events now (`heliograph.model.history_epochs`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from heliograph.errors import HistoryDamaged
from heliograph.journal.format.folder import partition_folder
from heliograph.model.history_epochs import Epoch, parted_at
from heliograph.spark.source.lag import behind
from heliograph.spark.source.partitions import Key
from heliograph.spark.source.plan import rows_per_task, slices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from heliograph.journal.reading.reader import PartitionReader
    from heliograph.model.history_epochs import Epochs
    from heliograph.spark.source.options import SourceOptions
    from heliograph.spark.source.partitions import ChannelPartitions
    from heliograph.spark.source.tasks import Slice

log = logging.getLogger(__name__)

Offsets: TypeAlias = dict[str, dict[str, dict[str, Any]]]


class StreamPosition(NamedTuple):
    """Where a stream is in one partition."""

    epoch: int
    offset: int
    start: int
    """Where the batch begins that ends here."""
    epochs: Epochs = ()
    """Which writers wrote what was read."""


def from_json(offsets: Mapping[str, Any]) -> dict[Key, StreamPosition]:
    return {
        Key(channel, partition): StreamPosition(
            at["epoch"],
            at["offset"],
            at.get("from", at["offset"]),
            tuple(Epoch(first, bytes.fromhex(name)) for first, name in at.get("epochs", at.get("lives", ()))),
        )
        for channel, partitions in offsets.items()
        for partition, at in partitions.items()
    }


def to_json(positions: Mapping[Key, StreamPosition]) -> Offsets:
    found: Offsets = {}
    for key, at in sorted(positions.items()):
        entry: dict[str, Any] = {"epoch": at.epoch, "offset": at.offset, "from": at.start}
        if at.epochs:
            entry["epochs"] = [[epoch.first, epoch.id.hex()] for epoch in at.epochs]
        found.setdefault(key.channel, {})[key.partition] = entry
    return found


class SourceStream:
    """One stream on the driver. Its methods are those that Spark calls on a stream reader.

    Args:
        clock: monotonic seconds, for `maxTriggerDelay`.
    """

    def __init__(
        self, options: SourceOptions, watch: ChannelPartitions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._watch = watch
        self._clock = clock
        self._target: dict[Key, int] | None = None
        """How far `availableNow` goes; None when there is no such end."""
        self._waiting_since: float | None = None
        self._planned: Offsets = {}
        """Where the batch ends that was planned last."""

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        positions = {}
        for key, reader in self._watch.readers(now=True).items():
            offset = self._options.starting.offset(reader, *key)
            if self._options.fail_on_data_loss:
                offset = min(offset, reader.watermark)
            else:
                offset = min(max(offset, reader.earliest), reader.watermark)
            positions[key] = _position(reader, offset, offset)
        return to_json(positions)

    def stop_at_now(self) -> None:
        """Take what is there now as the end: nothing that comes later is read."""
        self._target = {key: reader.watermark for key, reader in self._watch.readers(now=True).items()}

    def latest(self, start: Offsets, *, limited: bool) -> Offsets:
        """The end of the next batch; `start` itself when there is nothing to do yet.

        With `limited` False the options that limit a batch do not count, because the trigger says so.
        """
        self._planned = self._latest(start, limited=limited)
        return self._planned

    def _latest(self, start: Offsets, *, limited: bool) -> Offsets:
        before = from_json(start)
        ready = {key: at for key, at in self._ready(before).items() if at.offset > at.start}
        if limited:
            total = sum(at.offset - at.start for at in ready.values())
            if self._waits(total):
                return start
            ready = self._within_bytes(self._within_events(ready, total))
        moved = {key: at for key, at in ready.items() if at.offset > at.start}
        back = self._gone_back(before)
        if not moved and not back:
            return start
        self._waiting_since = None
        still = {key: at._replace(start=at.offset) for key, at in before.items()}
        return to_json({**still, **moved, **back})

    def report(self) -> dict[str, Any]:
        """What is there now, for whoever looks at the progress of the query, and what the batch leaves of it.

        Spark asks this right after it has asked how far the next batch goes.
        """
        readers = self._watch.readers()
        positions = {
            key: _position(reader, reader.watermark, reader.earliest) for key, reader in readers.items()
        }
        assigned = {} if self._options.assigned is None else {"assigned": True}
        lags: dict[str, dict[str, Any]] = {}
        planned = from_json(self._planned)
        for key, reader in readers.items():
            left = behind(reader, planned[key].offset if key in planned else reader.earliest)
            lags.setdefault(key.channel, {})[key.partition] = left._asdict()
        return {"path": self._watch.folder.path, "channels": to_json(positions), "lag": lags, **assigned}

    def slices(self, start: Offsets, end: Offsets) -> list[Slice]:
        """The tasks of a batch."""
        before, readers = from_json(start), self._watch.readers()
        ranges = {
            key: (min(at.start, before[key].offset) if key in before else at.start, at.offset)
            for key, at in from_json(end).items()
        }
        rows = rows_per_task(sum(max(0, stop - first) for first, stop in ranges.values()), self._options)
        parts: list[Slice] = []
        for key, (first, stop) in ranges.items():
            reader = readers.get(key)
            segments = () if reader is None else reader.manifest.segments
            parts += slices_of(*key, first, stop, segments, rows=rows)
        return parts

    def _ready(self, before: Mapping[Key, StreamPosition]) -> dict[Key, StreamPosition]:
        """For each partition the range from where the stream is to where it could go."""
        found = {}
        for key, reader in self._watch.readers().items():
            end = reader.watermark if self._target is None else self._target.get(key, 0)
            if key in before:
                start = before[key].offset
            elif self._target is not None and key not in self._target:
                continue
            else:
                start = reader.earliest  # it is new: everything in it has come since
            found[key] = _position(reader, end, start)
        return found

    def _waits(self, total: int) -> bool:
        """Whether too few events are there, and they can still wait for others."""
        least = self._options.min_events
        if least is None or self._target is not None or not total or total >= least:
            return False
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self._options.max_delay

    def _within_events(self, ready: Mapping[Key, StreamPosition], total: int) -> dict[Key, StreamPosition]:
        most = self._options.max_events
        if most is None or total <= most:
            return dict(ready)
        parts = shares({key: at.offset - at.start for key, at in ready.items()}, most)
        return {key: at._replace(offset=at.start + parts[key]) for key, at in ready.items()}

    def _within_bytes(self, ready: dict[Key, StreamPosition]) -> dict[Key, StreamPosition]:
        """As many events of each partition as its share of the bytes allows, and one of all at least."""
        most = self._options.max_bytes
        if most is None:
            return ready
        readers = self._watch.readers()
        pieces = {key: readers[key].sizes(at.start, at.offset) for key, at in ready.items()}
        total = sum(size for of_one in pieces.values() for _, _, size in of_one)
        if total <= most:
            return ready
        cut = {key: at._replace(offset=_after(pieces[key], at, most / total)) for key, at in ready.items()}
        if all(at.offset == at.start for at in cut.values()):
            key = next(iter(cut))
            cut[key] = cut[key]._replace(offset=cut[key].start + 1)
        return cut

    def _gone_back(self, before: Mapping[Key, StreamPosition]) -> dict[Key, StreamPosition]:
        """Partitions whose history ends before what was read of it; where to go on in them."""
        back = {}
        readers = self._watch.readers()
        for key, at in before.items():
            reader = readers.get(key)
            problem = self._replaced(key, at, reader)
            if problem is None:
                continue
            if self._options.fail_on_data_loss:
                raise problem
            if reader is None:
                continue
            parted = parted_at(at.epochs, reader.manifest.epochs, at.offset)
            first = reader.watermark if parted is None else min(parted, reader.watermark)
            if first < at.offset:
                log.warning("%s; the stream goes on from %d", problem, first)
                back[key] = _position(reader, first, first)
        return back

    def _replaced(
        self, key: Key, at: StreamPosition, reader: PartitionReader | None
    ) -> HistoryDamaged | None:
        place = partition_folder(*key)
        if reader is None:
            return HistoryDamaged(place, at.offset, at.offset + 1, "the partition is not there any more")
        parted = parted_at(at.epochs, reader.manifest.epochs, at.offset)
        if parted is not None:
            reason = (
                "the history went back in time, as an older copy that was put back does; they are others now"
            )
            return HistoryDamaged(place, parted, at.offset, reason)
        if reader.watermark < at.offset:
            reason = "the history ends before them: an older copy of the folder seems to have been put back"
            return HistoryDamaged(place, reader.watermark, at.offset, reason)
        if reader.manifest.epoch < at.epoch:
            reason = (
                f"the partition is in epoch {reader.manifest.epoch} and was in {at.epoch}: it is another one"
            )
            return HistoryDamaged(place, 0, at.offset, reason)
        return None


def _position(reader: PartitionReader, offset: int, start: int) -> StreamPosition:
    manifest = reader.manifest
    return StreamPosition(manifest.epoch, offset, start, manifest.epochs)


def shares(available: Mapping[Key, int], most: int) -> dict[Key, int]:
    """So many in all, of each in proportion to what it has; what rounding leaves goes by largest rests."""
    total = sum(available.values())
    found = {key: count * most // total for key, count in available.items()}
    rests = sorted(available, key=lambda key: -(available[key] * most % total))
    for key in rests[: most - sum(found.values())]:
        found[key] += 1
    return found


def _after(pieces: list[tuple[int, int, int]], at: StreamPosition, share: float) -> int:
    """The offset up to which a range takes a share of its bytes."""
    left = share * sum(size for _, _, size in pieces)
    for first, end, size in pieces:
        if size > left:
            return max(at.start, first + int((end - first) * left / size))
        left -= size
    return at.offset
