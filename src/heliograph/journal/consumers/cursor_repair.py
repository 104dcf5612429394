"""Repairs a damaged cursor file: what can be read of it, and where its consumers go on.

    report = inspect_cursors(disk, "consumers/air.tracks")       None when no consumer ever had a cursor
    report.damaged, report.steps(watermarks)                     which bytes, and what a repair would do
    repair_cursors(ports, "consumers/air.tracks", watermarks)    does it

States are appended whole, so every one that can be read says where its consumer was then. A consumer whose
last state lies behind the damage goes on exactly where it was. One whose last state lies before it may have
come further: it goes on from there, and what follows comes again, marked. Its epoch leaves out so many that
no earlier holder of the cursor has a later one. Of a consumer without any state left nothing is known.

The file is kept aside, in `damaged-<its size and checksum>` beside it, before a new one replaces it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.errors import BadJournalFile, FileExists, FileLocked, NoSuchFile, PartitionInUse
from heliograph.journal.consumers.cursors import (
    FILE,
    HEADER,
    MAGIC,
    MAX_EPOCH,
    VERSION,
    CursorPosition,
    CursorState,
    frame,
    state_at,
)
from heliograph.journal.format.frames import checksum
from heliograph.journal.names import GROUP_PLACE, LOCK, TEMPORARY
from heliograph.journal.writing.producer_leases import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from heliograph.runtime.ports import Disk, Ports

EPOCHS: Final = 1 << 16
"""Openings that are left out where some may be lost."""


class KeptCursor(NamedTuple):
    """What is left of the cursor of one name."""

    state: CursorState
    is_exact: bool
    """Whether nothing of it can be lost."""


@dataclass(frozen=True, slots=True)
class CursorReport:
    """What is in a cursor file."""

    file: str
    damaged: tuple[tuple[int, int], ...]
    """Bytes that were durable and cannot be read: from, up to and not including."""
    places: tuple[KeptCursor, ...]
    """By name."""

    @property
    def sound(self) -> bool:
        return not self.damaged

    @property
    def problem(self) -> str:
        ranges = ", ".join(f"{first} to {end - 1}" for first, end in self.damaged)
        return f"bytes {ranges} of {self.file} are damaged"

    def steps(self, watermarks: Mapping[str, int]) -> list[str]:
        """One sentence for each thing that a repair does; none when nothing is wrong."""
        if self.sound:
            return []
        return [
            f"set {self.file} aside and write what can be read of it anew: {self.problem}",
            *(_consequence(*kept, watermarks) for kept in self.places),
            "whoever is not named here has lost its place: it begins where start= says, or at epoch 1",
        ]


def inspect_cursors(disk: Disk, folder: str) -> CursorReport | None:
    """Read a cursor file; None when there is none. BadJournalFile when another version has written it."""
    name = f"{folder}/{FILE}"
    try:
        data = disk.read(name)
    except NoSuchFile:
        return None
    has_header = len(data) >= HEADER.size and data[:8] == MAGIC
    _, version, _, durable = HEADER.unpack_from(data) if has_header else (b"", VERSION, 0, 0)
    if version != VERSION:
        raise BadJournalFile(name, f"it has version {version}; this program reads version {VERSION}")
    found = list(_states(data))
    durable = max((durable, *(state.durable for _, _, state in found)))
    damaged = [] if has_header else [(0, HEADER.size)]
    damaged += [(first, end) for first, end in _gaps(data, found) if first < durable]
    last = max((end for _, end in damaged), default=0)
    latest = {state.name: (at, state) for at, _, state in found}
    places = (KeptCursor(state, is_exact=at >= last) for _, (at, state) in sorted(latest.items()))
    return CursorReport(name, tuple(damaged), tuple(places))


def repair_cursors(ports: Ports, folder: str, watermarks: Mapping[str, int]) -> CursorReport | None:
    """Put a cursor file in order; returns what was wrong with it. PartitionInUse while a station has it.

    `watermarks` are those of the channel's partitions: what lies below may have been handed out.
    """
    disk = ports.disk
    assert disk is not None, "cursors need ports with a disk"
    try:
        report = inspect_cursors(disk, folder)
        if report is None or report.sound:
            return report
        with disk.lock(f"{folder}/{LOCK}", note="to repair it"):
            # A station that had it until now may have committed since, or written the file anew.
            report = inspect_cursors(disk, folder)
            if report is None or report.sound:
                return report
            _set_aside(disk, folder)
            _write_anew(disk, folder, [_mended(*kept, watermarks) for kept in report.places])
    except FileLocked as error:
        raise PartitionInUse(folder, error.holder) from error
    return report


def _states(data: bytes) -> Iterator[tuple[int, int, CursorState]]:
    """Every state that can be read: from where, to where, and what it says."""
    at = HEADER.size
    while at < len(data):
        found = state_at(data, at)
        if found is None:
            at += 1
        else:
            yield at, found[1], found[0]
            at = found[1]


def _gaps(data: bytes, found: list[tuple[int, int, CursorState]]) -> Iterator[tuple[int, int]]:
    """What lies between them."""
    end = HEADER.size
    for at, after, _ in found:
        if end < at:
            yield end, at
        end = after
    if end < len(data):
        yield end, len(data)


def _mended(state: CursorState, is_exact: bool, watermarks: Mapping[str, int]) -> CursorState:
    if is_exact:
        return state
    positions = {
        partition: CursorPosition(p.low, p.acks, max(p.reach, watermarks.get(partition, 0)), p.attempts)
        for partition, p in state.positions.items()
    }
    return CursorState(
        state.name, min(state.epoch + EPOCHS, MAX_EPOCH - 1), state.owner, positions, state.seen_ts
    )


def _consequence(state: CursorState, is_exact: bool, watermarks: Mapping[str, int]) -> str:
    if state.name.startswith(PREFIX):
        who = f"supplier {state.name.removeprefix(PREFIX)!r}"
        return (
            f"{who} goes on behind its last event, at epoch {_mended(state, is_exact, watermarks).epoch + 1}"
        )
    group = state.name.removeprefix(GROUP_PLACE)
    who = f"consumer {state.name!r}" if group == state.name else f"group {group!r}"
    if not state.positions:
        return f"{who} has lost its place: it begins where start= says"
    places = ", ".join(f"offset {p.low} of {partition}" for partition, p in sorted(state.positions.items()))
    if is_exact:
        return f"{who} goes on at {places}, where it was"
    return f"{who} goes on at {places}; it may have been further: what follows comes again, marked"


def _set_aside(disk: Disk, folder: str) -> None:
    data = disk.read(f"{folder}/{FILE}")
    aside = f"{folder}/damaged-{len(data)}-{checksum(data):08x}"
    with suppress(FileExists):
        disk.make_folder(aside)
    with suppress(NoSuchFile):
        disk.remove(f"{aside}/{FILE}")  # of a repair that was interrupted
    with disk.create(f"{aside}/{FILE}") as file:
        file.append(data)
        file.sync()
    disk.sync_folder(aside)
    disk.sync_folder(folder)


def _write_anew(disk: Disk, folder: str, states: list[CursorState]) -> None:
    temporary = f"{folder}/{FILE}{TEMPORARY}"
    with suppress(NoSuchFile):
        disk.remove(temporary)
    data = b"".join(frame(state, 0) for state in states)
    with disk.create(temporary) as file:
        file.append(HEADER.pack(MAGIC, VERSION, 0, HEADER.size + len(data)), data)
        file.sync()
    disk.rename(temporary, f"{folder}/{FILE}")
    disk.sync_folder(folder)
