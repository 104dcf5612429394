"""A station's folder: its lock, and the partitions in it.

<folder>/lock                                  held while a station has the folder
<folder>/partition                             the id of this station's partitions, for ever (see `identity`)
<folder>/channels/<channel>/<partition>/...    histories
<folder>/consumers/<channel>/...               how far durable consumers have come
<folder>/delayed/<channel>/<partition>/...     events that are to be delivered later
<folder>/inbox/...                             batches from outside (`heliograph.journal.inbox.staging`)

The station that has the folder takes in what lies in the inbox: into the store of a channel that is
open, or into a partition that it opens for that, and keeps open until the channel is opened.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from heliograph.errors import (
    AdoptionTimeout,
    BatchRefused,
    FileExists,
    FileLocked,
    FolderInUse,
    NoHistory,
)
from heliograph.journal.consumers.cursors import CursorStore
from heliograph.journal.folders import make_folder
from heliograph.journal.format.channel_config import (
    ChannelConfig,
    keep_charter,
    keep_members_only,
    keep_suspension,
    read_charter,
)
from heliograph.journal.format.identity import own_partition
from heliograph.journal.inbox import staging
from heliograph.journal.inbox.adoption import InboxFolder, OpenPartition
from heliograph.journal.inbox.staging import BATCH, READY
from heliograph.journal.limits import DAY, Limits
from heliograph.journal.names import ACTIVITY, CHANNELS, CONSUMERS, DELAYED, escaped
from heliograph.journal.published.publisher import SegmentPublisher
from heliograph.journal.store import JournalStore
from heliograph.journal.writing.group_commit import PartitionWriter
from heliograph.journal.writing.shared_threads import SharedThreads
from heliograph.model.formats import FormatRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.history.store import OnDurable
    from heliograph.channel.members_only import Admission
    from heliograph.journal.inbox.staging import StagedBatch
    from heliograph.journal.maintenance.retention import ConsumerPosition
    from heliograph.journal.published.publication import Store
    from heliograph.model.event import Event
    from heliograph.qos.policies import QoS
    from heliograph.runtime.ports import FileLock, Ports, Task

log = logging.getLogger(__name__)

AS_A_STATION: Final = "as a station"
FOR_A_MOMENT: Final = "for a moment, to take in a batch"
"""What the holder of a folder says about itself; a station that finds the second one waits."""
MOMENT_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 0.25
"""How long a holder that says nothing, or something else, is waited for."""
KEEP_ALL: Final = Limits(keep_bytes=None, keep_seconds=None, grace_seconds=3650 * DAY)
"""Of partitions that are open for a moment only."""

LOOK_SECONDS: Final = 0.05
"""How often the inbox is looked at; where there has never been one, a twentieth as often."""
LONGEST_PAUSE: Final = 5.0
"""How long it is left alone at most after it could not be looked through, several times in a row."""
SHORTEST_WAIT: Final = 0.002
"""Seconds until a thread that waits for an adoption looks for the first time."""
SWEEP_SECONDS: Final = 3600.0
"""How often leftovers are looked for."""


class Keeping:
    """Takes the folder of the ports' disk; FolderInUse when another station has it.

    Args:
        ports: with a disk.
        limits: of every partition.
        station_seq: numbers the events that the station takes in.
        note: `FOR_A_MOMENT` for a caller that will call `take_in` and let go again.
        owner: the holder of this station's consumer and supplier leases.
        standby: seconds for which a folder that another station has is waited for.
    """

    def __init__(
        self,
        ports: Ports,
        limits: Limits | None = None,
        station_seq: Callable[[], int] = lambda: 0,
        note: str = AS_A_STATION,
        owner: str = "this station",
        *,
        limits_said: Callable[[str], dict[str, Any]] = lambda _: {},
        store: Store | None = None,
        standby: float = 0.0,
    ) -> None:
        assert ports.disk is not None
        self._ports = ports
        self._limits_said = limits_said
        self._limits = limits
        self._station_seq = station_seq
        self._owner = owner
        self._disk = ports.disk
        self._inbox = InboxFolder(ports)
        self._lock = self._locked(note, standby)
        try:
            self.partition = own_partition(self._disk, ports.random)
            make_folder(self._disk, CHANNELS)
            make_folder(self._disk, CONSUMERS)
        except BaseException:
            self._lock.release()
            raise
        try:
            publisher = None if store is None else SegmentPublisher(ports, store)
        except BaseException:
            self._lock.release()
            raise
        self._shared = SharedThreads(ports, publisher)
        # Guards which partitions are open; held while one is opened.
        self._opening = ports.tasks.lock("partitions")
        self._charters = ports.tasks.lock("charters")
        """Held while one is read and replaced; nothing else is waited for meanwhile."""
        self._stores: dict[str, JournalStore] = {}
        self._owners: dict[str, str | None] = {}
        """Of channels that are being opened: who has suspended them."""
        self._unclaimed: dict[str, OpenPartition] = {}
        """Partitions that are open for batches from outside only."""
        self.admission_of: Callable[[str], Admission | None] | None = None
        """Who may push into a channel that is for members only, as the station's manager says."""
        self._stopping = False
        self._bell = ports.tasks.signal("inbox")
        self._watcher: Task | None = None
        if note == AS_A_STATION:
            try:
                self._watcher = ports.tasks.spawn("inbox", self._watch)
            except BaseException:
                self._lock.release()
                raise

    def open_store(
        self,
        channel: str,
        types: Callable[[], tuple[type[Event], ...]],
        on_durable: OnDurable,
        qos: QoS,
    ) -> JournalStore:
        is_kept = self.has(channel)
        if is_kept:
            self.check_types(channel, types())  # before anything is written
        with self._opening:
            self._owners[channel] = self._keep_charter(channel, qos, types, sync=is_kept).suspended
            unclaimed = self._unclaimed.pop(channel, None)
            if unclaimed is not None:
                unclaimed.writer.close()
            store = self._stores[channel] = JournalStore(
                self._ports,
                channel,
                self.partition,
                owner=self._owner,
                folder=CHANNELS,
                cursor_folder=CONSUMERS,
                types=types,
                on_durable=on_durable,
                limits=replace(
                    self._limits_of(channel),
                    compact=qos.compaction == "key",
                    tombstone_seconds=qos.tombstones,
                ),
                missing=qos.missing,
                settle=partial(self._keep_charter, channel, qos, types, anew=True),
                shared=self._shared,
            )
        return store

    def check_types(self, channel: str, types: tuple[type[Event], ...]) -> None:
        """IncompatibleFormats for a class that does not go together with what is kept of a channel."""
        if self.has(channel):
            from heliograph.journal.reading.schema_check import check_classes  # noqa: PLC0415 - new histories need none

            place = f"{CHANNELS}/{escaped(channel)}/{self.partition}"
            check_classes(self._disk, place, channel, types)

    def open_later(self, channel: str, types: tuple[type[Event], ...], create: bool) -> JournalStore | None:
        """Where a channel's events wait that are to be delivered later; None if none ever did.

        Whatever else is dropped, and however old it is, what waits is kept until it is forgotten.
        """
        if not create and not self._disk.exists(f"{DELAYED}/{escaped(channel)}/{self.partition}"):
            return None
        make_folder(self._disk, DELAYED)
        limits = replace(
            self._limits or Limits(), keep_bytes=None, keep_seconds=None, compact=True, tombstone_seconds=DAY
        )
        return JournalStore(
            self._ports,
            channel,
            self.partition,
            owner=self._owner,
            folder=DELAYED,
            cursor_folder=f"{DELAYED}-{CONSUMERS}",
            types=lambda: types,
            on_durable=lambda *_: None,
            limits=limits,
            shared=self._shared,
        )

    def charter(self, channel: str) -> ChannelConfig:
        """How a channel was when it was last opened."""
        return read_charter(self._disk, channel)

    def suspended(self, channel: str) -> str | None:
        """The owner that has suspended a channel that is just being opened, as its manager has noted."""
        return self._owners.pop(channel) if channel in self._owners else self.charter(channel).suspended

    def declare(self, channel: str, qos: QoS, types: tuple[type[Event], ...]) -> None:
        """An open channel carries further types."""
        with self._opening:
            self._keep_charter(channel, qos, lambda: types)

    def note_suspension(self, channel: str, owner: str | None, *, anew: bool) -> None:
        """See `charter.keep_suspension`."""
        with self._charters:
            keep_suspension(self._disk, channel, owner, anew=anew)

    def note_members_only(self, channel: str, *, members_only: bool) -> None:
        """See `charter.keep_members_only`."""
        with self._charters:
            keep_members_only(self._disk, channel, members_only=members_only)

    def has(self, channel: str) -> bool:
        """Whether this folder keeps a history of that channel."""
        return self._disk.exists(f"{CHANNELS}/{escaped(channel)}/{self.partition}")

    def take_in(self) -> None:
        """Take in what is in the inbox. Of one writer, nothing overtakes what has to wait."""
        waiting = set()
        for name in self._inbox.ready():
            key = name.rpartition("-")[0]
            if key not in waiting and not self._inbox.take_in(name, self._target):
                waiting.add(key)

    def close(self) -> None:
        """Let go of the folder; the stores are closed by their openers."""
        self._stopping = True
        self._bell.notify()
        if self._watcher is not None:
            self._watcher.join()
        for target in self._unclaimed.values():
            if self._watcher is None:
                # A history that only batches write has no station that looks after it: each batch does.
                _seal_ripe(target.writer)
            target.writer.close()
        self._shared.close()
        self._lock.release()

    def _keep_charter(
        self,
        channel: str,
        qos: QoS,
        types: Callable[[], tuple[type[Event], ...]],
        *,
        sync: bool = True,
        anew: bool = False,
    ) -> ChannelConfig:
        with self._charters:
            return keep_charter(self._disk, channel, qos, types(), sync=sync, anew=anew)

    def _target(self, batch: StagedBatch) -> OpenPartition:
        """The open partition of a batch's channel; BatchRefused while that is suspended."""
        channel = batch.channel
        owner = read_charter(self._disk, channel).suspended
        if owner is not None:
            raise BatchRefused(
                batch.writer,
                batch.number,
                f"{channel!r} is suspended: write it again when its owner {owner!r} has restarted it",
            )
        self._check_writer(batch)
        with self._opening:
            store = self._stores.get(channel)
            if store is not None and not store.closed:
                return store.target(self._station_seq)
            if channel not in self._unclaimed:
                if not batch.creates and not self.has(channel):
                    raise NoHistory(str(getattr(self._disk, "folder", "data")), channel)
                self._unclaimed[channel] = self._unclaimed_partition(channel)
            return self._unclaimed[channel]

    def _check_writer(self, batch: StagedBatch) -> None:
        """BatchRefused for a writer that is no member, where only members push."""
        if not read_charter(self._disk, batch.channel).members_only:
            return
        if self.admission_of is None:
            raise BatchRefused(
                batch.writer,
                batch.number,
                f"{batch.channel!r} is for members only, and nobody here knows them: run `helio station` on "
                "the folder, and write the batch again",
            )
        admission = self.admission_of(batch.channel)
        reason = None if admission is None else admission.why_not_supplier(batch.writer)
        if reason is not None:
            raise BatchRefused(batch.writer, batch.number, str(reason))

    def _unclaimed_partition(self, channel: str) -> OpenPartition:
        formats = FormatRegistry()
        with suppress(FileExists):
            self._disk.make_folder(f"{CHANNELS}/{escaped(channel)}")
        place = f"{CHANNELS}/{escaped(channel)}/{self.partition}"
        writer = PartitionWriter(
            self._ports,
            place,
            formats,
            limits=self._limits_of(channel),
            places=lambda: self._places(channel),
            note=f"channel {channel}, for batches",
            shared=self._shared,
        )
        carried = tuple(fmt.name for fmt in read_charter(self._disk, channel).known_formats())
        return OpenPartition(writer, formats, self._station_seq, carried)

    def _limits_of(self, channel: str) -> Limits:
        """The participants of a channel follow from the whole log of activity: retention leaves it alone."""
        limits = replace(self._limits or Limits(), **self._limits_said(channel))
        if channel != ACTIVITY:
            return limits
        return replace(limits, keep_bytes=None, keep_seconds=None, drop_read=False)

    def _places(self, channel: str) -> tuple[ConsumerPosition, ...]:
        """How far the durable consumers of a channel are that is not open: they hold what they lack."""
        folder = f"{CONSUMERS}/{escaped(channel)}"
        if not self._disk.exists(folder):
            return ()
        with CursorStore(self._ports, folder) as cursors:
            return cursors.places(self.partition)

    def _watch(self) -> None:
        pause = LOOK_SECONDS
        swept = None
        failed = 0
        while not self._stopping:
            try:
                if self._inbox.exists():
                    self.take_in()
                    now = self._ports.clock.monotonic_ns()
                    if swept is None or now - swept > SWEEP_SECONDS * 1e9:
                        self._inbox.sweep()
                        swept = now
                    pause = LOOK_SECONDS
                else:
                    pause = 20 * LOOK_SECONDS
                if failed:
                    log.warning("the inbox was looked through again, after %d attempts that failed", failed)
                failed = 0
            except Exception:
                # Whatever it was, the station goes on, and what is in the inbox stays there.
                failed += 1
                pause = min(LOOK_SECONDS * 2 ** min(failed, 10), LONGEST_PAUSE)
                log.exception(
                    "the inbox could not be looked through; that is tried again in %.1f seconds", pause
                )
            self._bell.wait(pause)

    def _locked(self, note: str, standby: float) -> FileLock:
        """The lock of the folder, waiting for a holder that has it for a moment only, or as a standby does.

        The new holder may not have said so yet; what is read there may be of the one before.
        """
        waited = 0.0
        while True:
            try:
                return self._disk.lock("lock", note=note)
            except FileLocked as locked:
                limit = MOMENT_SECONDS if FOR_A_MOMENT in locked.holder else SETTLE_SECONDS
                if waited >= max(limit, standby) or note == FOR_A_MOMENT:
                    folder = str(getattr(self._disk, "folder", "data"))
                    raise FolderInUse(folder, locked.holder) from locked
            self._ports.tasks.sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS


def _seal_ripe(writer: PartitionWriter) -> None:
    try:
        writer.seal_ripe()
    except Exception:
        log.exception("what the batches left was not sealed; the next one tries again")


def wait_until_taken_in(ports: Ports, batch: StagedBatch, timeout: float) -> None:
    """Wait until the station that has the folder has taken a batch in; where none has it, do that here.

    Raises BatchRefused with the reason, and AdoptionTimeout when a station has the folder and does nothing.
    """
    disk = ports.disk
    assert disk is not None
    deadline = ports.clock.monotonic_ns() + round(timeout * 1e9)
    pause = SHORTEST_WAIT
    while disk.exists(f"{READY}/{batch.name}{BATCH}"):
        holder = _take_in_here(ports)
        if not disk.exists(f"{READY}/{batch.name}{BATCH}"):
            break
        if ports.clock.monotonic_ns() >= deadline:
            raise AdoptionTimeout(batch.writer, batch.number, timeout, holder)
        ports.tasks.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
    refused = staging.refusal(disk, batch.name)
    if refused is not None:
        raise BatchRefused(batch.writer, batch.number, refused.reason)


def _take_in_here(ports: Ports) -> str:
    """Take in what is in the inbox; the holder of the folder, if there is one already.

    Nothing is dropped here: how much is kept is for the station to say.
    """
    try:
        keeping = Keeping(ports, KEEP_ALL, note=FOR_A_MOMENT)
    except FolderInUse as error:
        return error.holder or "somebody"
    try:
        keeping.take_in()
    finally:
        keeping.close()
    return "this process"
