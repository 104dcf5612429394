"""Whatever is pushed, forgotten, sealed and compacted in whatever order, the last of each key stays."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.format.keys import key_bytes
from heliograph.journal.format.records import TOMBSTONE, Record
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.compactor import rewrite
from heliograph.journal.reading.reader import PartitionReader
from heliograph.journal.tools.inspection import verify
from heliograph.journal.writing.partition import WritablePartition
from heliograph.sim import SimDisk
from tests.support import examples
from tests.unit.journal.helpers import (
    FOLDER,
    FORMATS,
    TRACK,
    HandClock,
    commit,
    ports,
    seal_everything,
)

SECOND = 10**9
TOMBSTONES = 5

step = st.one_of(
    st.tuples(st.just("push"), st.lists(st.integers(0, 4), min_size=1, max_size=6)),
    st.tuples(st.just("forget"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["seal", "tidy", "reopen", "later"]), st.none()),
)


class Model:
    """All rows that were ever appended, and a partition that compacts them."""

    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(), HandClock()
        self.rows: list[tuple[int, Record]] = []
        """(when, what), by offset."""
        self.writer = self._opened()

    def do(self, what: str, value: Any) -> None:
        match what:
            case "push":
                self._append([self._record(key, n) for n, key in enumerate(value)])
            case "forget":
                gone = self._record(value, 0)
                self._append(
                    [msgspec.structs.replace(gone, body=b"", kind=TOMBSTONE, key=key_bytes([value]))]
                )
            case "seal":
                seal_everything(self.writer, self.disk)
            case "tidy":
                while (job := self.writer.rewrite_job()) is not None:
                    self.writer.replace_segments(job, rewrite(self.disk, job))
            case "reopen":
                self.writer.close()
                self.writer = self._opened()
            case "later":
                self.clock.now += 3 * SECOND

    def check(self) -> None:
        report = verify(self.disk, FOLDER)
        assert report.sound
        assert report.watermark == len(self.rows)
        with PartitionReader(self.disk, FOLDER) as reader:
            found = {row.offset: (row.append_ts, row.record) for row in reader.read(0)}
        assert found == {offset: self.rows[offset] for offset in found}, "rows stay as and where they were"
        last: dict[int, int] = {}
        for offset, (_, record) in enumerate(self.rows):
            last[self._key(record)] = offset
        for key, offset in last.items():
            when, record = self.rows[offset]
            if record.kind != TOMBSTONE or when > self.clock.now - TOMBSTONES * SECOND:
                assert offset in found
            elif offset not in found:
                earlier = [o for o, (_, r) in enumerate(self.rows) if self._key(r) == key and o in found]
                assert earlier == [], "nothing comes back when a tombstone goes"

    def check_least(self) -> None:
        """After all is sealed and compacted nothing but the last of each key is left."""
        self.do("seal", None)
        self.do("tidy", None)
        with PartitionReader(self.disk, FOLDER) as reader:
            fresh = [segment for segment in reader.manifest.segments if segment.rows is None]
            if fresh:
                return  # too little to be worth it
            keys = [self._key(row.record) for row in reader.read(0)]
        assert len(keys) == len(set(keys))

    def _opened(self) -> WritablePartition:
        limits = Limits(
            keep_bytes=None, compact=True, tombstone_seconds=TOMBSTONES, grace_seconds=2, merge_events=10
        )
        return WritablePartition(ports(self.disk, self.clock), FOLDER, FORMATS, limits)

    def _record(self, key: int, n: int) -> Record:
        number = len(self.rows) + n
        return Record("radar", 1, number, 0, TRACK.id, msgspec.msgpack.encode([key, str(number)]))

    def _append(self, records: list[Record]) -> None:
        commit(self.writer, records)
        self.rows += [(self.clock.now, record) for record in records]

    @staticmethod
    def _key(record: Record) -> int:
        return int(msgspec.msgpack.decode(record.body or record.key or b"")[0])


@given(st.lists(step, max_size=25))
@settings(max_examples=examples(40), deadline=None)
def test_the_last_event_of_each_key_stays_at_its_offset(steps: list[tuple[str, Any]]) -> None:
    model = Model()
    for what, value in steps:
        model.do(what, value)
    model.check()
    model.check_least()
    model.check()
