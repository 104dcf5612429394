"""`register`: the sealed files of a channel as a Delta or Iceberg table, without a copy and without Spark.

    jobs.register("data", "air.tracks", "tables/tracks", format="iceberg")

The journal's sealed files are Parquet. A run gives those that are new a second name in the table's folder (a
hard link) and makes one commit, which adds them and removes what merging, compaction or retention has taken
out of the history. So the table holds at any instant the sealed history of one moment, each event once.

1. Read the manifests, and link the files that the table does not have.
2. Commit: files that are new, files that have gone, columns that are new.
3. Remove links that the table has not had for the grace.

A run that is killed in 1 leaves links that no commit names, which the next run uses or removes; in 3, links
that the next run removes. The table itself is the record of what was done.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Unpack

from heliograph.errors import HistoryDamaged, InvalidOption, TableMismatch
from heliograph.runtime.fault_points import reach
from heliograph.runtime.option_names import names_options
from heliograph.spark.jobs.arguments import at_least, one_of
from heliograph.spark.jobs.following import Passes, RunOptions

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

    from heliograph.spark.jobs.tables.linked import LinkedTable
    from heliograph.spark.jobs.tables.links import LinkedFile, Links, SealedHistory

FORMATS: Final = ("delta", "iceberg")
GRACE: Final = 600.0
"""As long as the journal keeps a file that has left the history, unless its limits say otherwise."""
FILES_AT_ONCE: Final = 100
"""Files that are linked between two looks at how far the job is."""


@dataclass
class Registered:
    """What a run did so far."""

    channel: str
    table: str
    format: str
    files: int = 0
    """In the table now."""
    events: int = 0
    """Rows of them: events, and tombstones."""
    bytes: int = 0
    added: int = 0
    """Files taken in."""
    removed: int = 0
    """Files let go, because the history does not have them any more."""
    commits: int = 0
    left: int = 0
    """Files that are to be linked before the next commit."""
    unsealed: int = 0
    """Offsets that are durable and in no sealed file yet."""
    waiting: int = 0
    """Links that the table does not have any more and that stay for their grace."""
    held_bytes: int = 0
    """What these take on the disk, where the journal has removed its own name already."""
    new_columns: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RegisterJob:
    """A registration that has been asked for. InvalidOption, NoHistory, ... when it cannot be done."""

    folder: str | os.PathLike[str]
    channel: str
    to: str | os.PathLike[str]
    format: str = "delta"
    grace: float = GRACE
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        from heliograph.journal.format.folder import StationFolder  # noqa: PLC0415 - as below

        one_of("format", self.format, FORMATS)
        at_least("grace", self.grace, 0)
        if "://" in os.fspath(self.to) or Path(self.to).is_file():
            raise InvalidOption("to", os.fspath(self.to), "a folder of this machine")
        StationFolder(self.folder).partitions(self.channel)
        if _device(Path(self.to)) != _device(Path(self.folder)):
            allowed = "a folder on the file system of the station's folder: files are linked, not copied"
            raise InvalidOption("to", os.fspath(self.to), allowed)

    def run(self, **options: Unpack[RunOptions[Registered]]) -> Registered:
        """Bring the table to the history as it is now; with `follow` again and again until `stop` is set."""
        from heliograph.spark.jobs.tables.linked import linked_table  # noqa: PLC0415 - Arrow loads with it
        from heliograph.spark.jobs.tables.links import Links  # noqa: PLC0415 - as above
        from heliograph.spark.jobs.tables.workplace import Workplace  # noqa: PLC0415 - as above

        done = Registered(self.channel, os.fspath(self.to), self.format)
        passes = Passes(done, **options)
        with (
            Workplace.locked(Path(self.to)) as place,
            linked_table(self.format, place, self.channel) as table,
        ):
            links = Links(place)
            for _ in passes:
                self._pass(table, links, passes, done)
                passes.tell(0)
        return done

    def _pass(self, table: LinkedTable, links: Links, passes: Passes[Registered], done: Registered) -> None:
        there = table.paths()
        history = self._linked(there, links, passes)  # 1
        added = sorted(history.files.keys() - there)
        removed = sorted(there - history.files.keys())
        if added or removed:
            try:
                self._commit(table, [links.read(path) for path in added], removed, done)  # 2
            except TableMismatch:
                links.remove(added)
                raise
            reach("table-registered")
        done.files = len(history.files)
        done.events = sum(file.segment.events for file in history.files.values())
        done.bytes = sum(file.segment.size for file in history.files.values())
        done.unsealed = history.unsealed
        self._sweep(table, links, history.files.keys(), done)  # 3

    def _linked(self, there: set[str], links: Links, passes: Passes[Registered]) -> SealedHistory:
        """Link what is new; returns the history all of whose files the table's folder has then.

        A file that has gone meanwhile has been replaced, and another manifest says by which.
        """
        from heliograph.spark.jobs.tables.links import TRIES, sealed_history  # noqa: PLC0415 - as above

        for _ in range(TRIES):
            history = sealed_history(self.folder, self.channel, fail_on_data_loss=self.fail_on_data_loss)
            self._insist_on_partitions(there, history)
            new = [history.files[path] for path in sorted(history.files.keys() - there)]
            gone = []
            for at in range(0, len(new), FILES_AT_ONCE):
                passes.tell(len(new) - at)
                gone += links.make(new[at : at + FILES_AT_ONCE])
            if not gone:
                return history
        file = gone[0]
        place, _, name = file.source.rpartition("/sealed/")
        raise HistoryDamaged(place, file.segment.first, file.segment.next, f"{name} is not there")

    def _commit(
        self, table: LinkedTable, added: list[LinkedFile], removed: list[str], done: Registered
    ) -> None:
        from heliograph.spark.jobs.tables.linked import joined_schema  # noqa: PLC0415 - as above

        columns = table.columns()
        schema = joined_schema(table, os.fspath(self.to), columns, added)
        table.replace(added, removed, schema)
        done.commits += 1
        done.added += len(added)
        done.removed += len(removed)
        if columns is not None:
            done.new_columns += [name for name in schema.names if name not in columns.names]

    def _sweep(self, table: LinkedTable, links: Links, kept: Collection[str], done: Registered) -> None:
        leaving = links.leaving(kept)
        before = time.time_ns() - round(self.grace * 1e9)
        over = [path for path, since in leaving.items() if since <= before]
        if over:
            table.forget(self.grace)
            reach("table-swept")
            links.remove(over)
            leaving = links.leaving(kept)
        done.waiting = len(leaving)
        done.held_bytes = links.size(leaving)

    def _insist_on_partitions(self, there: set[str], history: SealedHistory) -> None:
        """A table goes along with one history: another folder's would replace all that it has."""
        strange = sorted({path.split("/")[1] for path in there}.difference(history.partitions))
        if strange:
            reason = f"it holds files of partition {strange[0]}, which is not in {os.fspath(self.folder)!r}"
            raise TableMismatch(os.fspath(self.to), reason)


def _device(path: Path) -> int:
    """The file system of a folder, or of the one in which it would be made."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path.stat().st_dev


@names_options
def register(
    folder: str | os.PathLike[str],
    channel: str,
    to: str | os.PathLike[str],
    *,
    format: Literal["delta", "iceberg"] = "delta",  # noqa: A002 - as Spark calls it
    grace: float = GRACE,
    fail_on_data_loss: bool = True,
    follow: bool = False,
    every: float = 5.0,
    progress: Callable[[Registered], object] | None = None,
    stop: threading.Event | None = None,
) -> Registered:
    """Make the sealed files of a channel a table, or bring that table to the history as it is now.

    Args:
        folder: of the station that keeps the channel; it may be running.
        channel: its name.
        to: the folder of the table, on the same file system; made if it is not there.
        format: "delta" or "iceberg".
        grace: files that the history no longer has stay for so many seconds, for who reads an older version.
        fail_on_data_loss: False leaves out files that are known to be damaged.
        follow: go on with what is sealed later, every so many seconds, until `stop` is set.
        every: those seconds.
        progress: called with what was done so far.
        stop: ends `follow` after the pass in hand.
    """
    job = RegisterJob(
        folder=folder, channel=channel, to=to, format=format, grace=grace,
        fail_on_data_loss=fail_on_data_loss,
    )  # fmt: skip
    return job.run(follow=follow, every=every, progress=progress, stop=stop)
