"""Turns closed heads into one sealed Parquet file, in a process of its own.

Sealing is Python at full speed, and in a thread it would take most of the writer's. So the writer starts

    python -m heliograph.journal.maintenance.seal FOLDER < job > segment

once per segment, niced; the job and the answer are msgpack. The steps of a seal, numbered in the code:

    1 read the heads              4 sync the folder
    2 write and sync a new file   5 (the writer) publish a manifest that lists it
    3 rename it into `sealed/`    6 (the writer) remove the heads

Whatever is interrupted leaves a file that no manifest lists, which the next writer removes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import closing, suppress
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import BadJournalFile, DiskError
from heliograph.journal.format.frames import checksum
from heliograph.journal.format.manifest import Segment
from heliograph.journal.format.records import count_events
from heliograph.journal.maintenance.compaction_policy import SealJob
from heliograph.journal.names import SEALED, TEMPORARY
from heliograph.journal.reading.head_reader import HeadReader
from heliograph.model.formats import FormatRegistry
from heliograph.runtime.child_process import python_command
from heliograph.runtime.ports import LocalDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.journal.format.records import Piece
    from heliograph.journal.maintenance.compaction_policy import RewriteJob
    from heliograph.runtime.ports import Disk

NICENESS: Final = 10
SECONDS: Final = 600.0
"""A seal takes seconds; one that takes so long is hanging."""

_running: Final[dict[tuple[str, str], subprocess.Popen[bytes]]] = {}
"""By the folder of a station and that of a partition in it."""


def seal(disk: Disk, job: SealJob) -> Segment:
    """Seal the heads of a job; returns what the manifest will say of the new file."""
    from heliograph.journal.writing.segment_writer import pieces_of, segment_file  # noqa: PLC0415 - Arrow is for sealing

    formats = FormatRegistry()
    data, ids = segment_file(_pieces(disk, job, formats), formats)  # 1
    install_file(disk, job.folder, job.segment, data)  # 2, 3, 4
    return Segment(
        name=job.segment,
        first=job.heads[0].first,
        next=job.heads[-1].next or 0,
        size=len(data),
        first_ts=job.heads[0].first_ts,
        last_ts=job.heads[-1].last_ts,
        formats=ids,
        crc=checksum(data),
        pieces=pieces_of(data),
    )


def install_file(disk: Disk, folder: str, name: str, data: bytes) -> None:
    """A sealed file, whole and durable under its name when this returns; steps 2 to 4."""
    temporary = f"{folder}/{name.rpartition('/')[2]}{TEMPORARY}"
    try:
        with disk.create(temporary) as file:
            file.append(data)
            file.sync()  # 2
    except DiskError:
        with suppress(DiskError):
            disk.remove(temporary)
        raise
    disk.rename(temporary, f"{folder}/{name}")  # 3
    disk.sync_folder(f"{folder}/{SEALED}")  # 4


def seal_in_process(disk: Disk, job: SealJob) -> Segment:
    """As `seal`, in another process if the disk is one that another process can open."""
    if not isinstance(disk, LocalDisk):
        return seal(disk, job)
    answer = _in_process(
        "heliograph.journal.maintenance.seal", disk, job.folder, msgspec.msgpack.encode(job), job.segment
    )
    return msgspec.msgpack.decode(answer, type=Segment)


def rewrite_in_process(disk: Disk, job: RewriteJob) -> tuple[Segment, ...]:
    """As `heliograph.journal.maintenance.compactor.rewrite`, in another process likewise."""
    if not isinstance(disk, LocalDisk):
        from heliograph.journal.maintenance.compactor import rewrite  # noqa: PLC0415 - Arrow is for sealing only

        return rewrite(disk, job)
    answer = _in_process(
        "heliograph.journal.maintenance.compactor", disk, job.folder, msgspec.msgpack.encode(job), job.folder
    )
    return msgspec.msgpack.decode(answer, type=tuple[Segment, ...])


def end_process(disk: Disk, folder: str) -> None:
    """End the process that seals or rewrites files of a partition, if one does: it changes nothing then."""
    process = _running.get((getattr(disk, "folder", ""), folder))
    if process is not None:
        process.kill()


def _in_process(module: str, disk: LocalDisk, folder: str, job: bytes, what: str) -> bytes:
    with subprocess.Popen(  # noqa: S603 - our own module, run by our own interpreter
        python_command(module, disk.folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal is for the program, not for its sealing
    ) as process:
        _running[disk.folder, folder] = process
        try:
            answer, errors = process.communicate(job, SECONDS)
        finally:
            process.kill()
            del _running[disk.folder, folder]
    if process.returncode:
        reason = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise BadJournalFile(what, f"sealing ended with {process.returncode}: {' '.join(reason)}")
    return answer


def _pieces(disk: Disk, job: SealJob, formats: FormatRegistry) -> Iterator[Piece]:
    for head in job.heads:
        assert head.next is not None, "only closed heads are sealed"
        with closing(HeadReader(disk, job.folder, head, job.partition, formats)) as reader:
            end = head.first
            for piece in reader.pieces(head.first, head.next):
                end = piece[0] + count_events(piece[2])
                yield piece
            if end != head.next:
                raise BadJournalFile(head.name, f"its rows end at {end}, and should at {head.next}")


class WithoutPandas(MetaPathFinder):
    """Keeps Arrow from loading pandas, where it is installed, with the first array that it makes.

    It would only ask whether the values are a series of pandas, and that takes longer than to seal 50,000
    events.
    """

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def begin_work() -> None:
    """What a process that seals or rewrites does first."""
    os.nice(NICENESS)
    gc.disable()  # millions of short-lived objects without a cycle among them
    sys.meta_path.insert(0, WithoutPandas())


def main() -> None:
    """What the process does."""
    begin_work()
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=SealJob)
    segment = seal(LocalDisk(sys.argv[1], create=False), job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(segment))


if __name__ == "__main__":
    main()
