"""Files of a journal that were tampered with: what is read is what was written, or the error has a name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import HeliographError
from heliograph.journal.consumers.cursor_repair import inspect_cursors, repair_cursors
from heliograph.journal.consumers.cursors import HEADER, MAGIC, VERSION, CursorStore
from heliograph.journal.format.frames import checksum
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.tools.repair import repair
from heliograph.runtime.ports import Ports, system_ports
from heliograph.sim import SimDisk
from tests.support import examples
from tests.unit.journal.helpers import FOLDER, commit, partition, tracks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heliograph.journal.format.records import Record

EVENTS = 12
CURSORS = "consumers"


def ports_of(disk: SimDisk) -> Ports:
    return replace(system_ports(), disk=disk)


def files_below(disk: SimDisk, folder: str) -> list[str]:
    found = []
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        found += files_below(disk, path[:-1]) if name.endswith("/") else [path]
    return found


@cache
def written() -> tuple[dict[str, bytes], dict[int, Record]]:
    """The files of a partition with a sealed segment, a closed head and an open one, and its rows."""
    disk = SimDisk()
    writer = partition(disk)
    for n in range(EVENTS // 2):
        commit(writer, tracks(2 * n, 2))
    with PartitionReader(disk, FOLDER) as reader:
        rows = {row.offset: row.record for row in reader.read(0, EVENTS)}
    assert len(rows) == EVENTS
    files = {name: disk.read(name) for name in files_below(disk, FOLDER) if not name.endswith("/lock")}
    return files, rows


def disk_with(files: Mapping[str, bytes]) -> SimDisk:
    disk = SimDisk()
    made: set[str] = set()
    for name, content in files.items():
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in made:
                disk.make_folder(folder)
                made.add(folder)
        disk.create(name).append(content)
    return disk


Change = tuple[str, float, bytes]


def changed(content: bytes, change: Change) -> bytes:
    """Bytes put in place of others, between them, or taken out, somewhere in the file."""
    kind, where, new = change
    at = round(where * len(content))
    match kind:
        case "replace":
            return content[:at] + new + content[at + len(new) :]
        case "insert":
            return content[:at] + new + content[at:]
        case "remove":
            return content[:at] + content[at + len(new) :]
        case _:
            return content[:at]


changes = st.tuples(
    st.sampled_from(["replace", "insert", "remove", "cut"]),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=40),
)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), several=st.lists(changes, min_size=1, max_size=4))
def test_a_partition_with_any_bytes_changed_gives_what_was_written_or_a_named_error(
    data: st.DataObject, several: list[Change]
) -> None:
    files, rows = written()
    tampered = dict(files)
    for change in several:
        name = data.draw(st.sampled_from(sorted(files)))
        tampered[name] = changed(tampered[name], change)
    disk = disk_with(tampered)
    check_rows(disk, rows)
    with suppress(HeliographError):
        verify(disk, FOLDER)
    with suppress(HeliographError):
        repair(ports_of(disk), FOLDER)
        check_rows(disk, rows)


def check_rows(disk: SimDisk, rows: Mapping[int, Record]) -> None:
    """Every row that can be read is the one that was written there."""
    with suppress(HeliographError), PartitionReader(disk, FOLDER) as reader:
        for offset in range(EVENTS):
            with suppress(HeliographError):
                for row in reader.read(offset, 1):
                    assert row.record == rows[row.offset]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


wild = st.integers(0, 3) | st.integers(-(2**63), 2**64 - 1)
positions = st.tuples(wild, st.lists(wild, max_size=3), wild, st.dictionaries(wild, wild, max_size=2))
states = st.tuples(
    st.sampled_from(["billing", "group:workers", "supplier:radar"]),
    wild,
    st.text(max_size=3),
    st.dictionaries(st.sampled_from(["p1", "p2", "#offset"]), positions, max_size=2),
    wild,
    wild,
)


def frame_of(value: Any) -> bytes:
    """A state with the right length and checksum, whatever it says."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(4, "little") + checksum(body).to_bytes(4, "little") + body


@cache
def kept_places() -> bytes:
    disk = SimDisk()
    with CursorStore(ports_of(disk), CURSORS) as store:
        for n, name in enumerate(("billing", "group:workers", "supplier:radar")):
            store.open(name, "me").commit({"p1": n}, {"p1": [n + 2]}, {"p1": n + 9}, {"p1": {n + 3: 2}})
    return disk.read(f"{CURSORS}/cursors")


tampered_places = st.builds(changed, st.just(kept_places()), changes) | st.builds(
    lambda values: HEADER.pack(MAGIC, VERSION, 0, 0) + b"".join(map(frame_of, values)),
    st.lists(plain | states, max_size=3),
)


@settings(max_examples=examples(150), deadline=None)
@given(content=tampered_places)
def test_places_that_were_tampered_with_are_refused_or_read(content: bytes) -> None:
    disk = disk_with({f"{CURSORS}/cursors": content})
    with suppress(HeliographError), CursorStore(ports_of(disk), CURSORS) as store:
        store.open("billing", "me").commit({"p1": 1})
    disk = disk_with({f"{CURSORS}/cursors": content})
    with suppress(HeliographError):
        inspect_cursors(disk, CURSORS)
        repair_cursors(ports_of(disk), CURSORS, {"p1": 5})
        with CursorStore(ports_of(disk), CURSORS) as store:
            store.open("billing", "me").commit({"p1": 1})
