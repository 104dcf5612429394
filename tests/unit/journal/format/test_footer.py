"""What sealed files say of themselves is text, as Parquet wants it; files of before are read as they are."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from heliograph.errors import FormatError
from heliograph.journal.format import manifest
from heliograph.journal.format.compacted_ids import CompactedIds, packed, unpacked
from heliograph.journal.format.footer import FORMATS_KEY, VERSION_KEY, footer_of, formats_in, renewed
from heliograph.journal.maintenance.compaction_policy import RewriteJob
from heliograph.journal.maintenance.compactor import rewrite
from heliograph.journal.writing import segment_writer as segmentwriter
from heliograph.runtime.ports import LocalDisk
from tests.unit.journal.helpers import ALARM, FOLDER, TRACK, commit, partition, seal_everything, tracks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from heliograph.journal.format.manifest import Segment
    from heliograph.model.formats import Format


def footer_of_before(formats: Sequence[Format], layout: str) -> dict[bytes, bytes]:
    """As version 1 had it."""
    descriptions = msgspec.msgpack.encode([fmt.description for fmt in formats])
    return {**footer_of(formats, layout), VERSION_KEY: b"1", FORMATS_KEY: descriptions}


def test_formats_come_back_from_text_and_from_the_bytes_of_before() -> None:
    footer, before = footer_of([TRACK, ALARM], "unified"), footer_of_before([TRACK, ALARM], "unified")
    assert all(value.isascii() for value in footer.values())
    assert formats_in(footer) == formats_in(before) == [TRACK, ALARM]
    assert renewed(before) == renewed(footer) == footer


@pytest.mark.parametrize("value", [b"", b"%", b"AAAA", "ä".encode()])
def test_formats_that_cannot_be_read_are_refused(value: bytes) -> None:
    with pytest.raises(FormatError):
        formats_in({VERSION_KEY: b"2", FORMATS_KEY: value})
    with pytest.raises(FormatError):
        formats_in({VERSION_KEY: b"2"})


def test_ids_of_rows_that_were_left_out_come_back_from_text_and_from_the_bytes_of_before() -> None:
    rows = [CompactedIds(3, "s", 1, 4, "é"), CompactedIds(5, "s", 1, 6)]
    assert packed(rows).isascii()
    assert unpacked(packed(rows)) == rows
    assert unpacked(zlib.compress(msgspec.msgpack.encode(rows), 1)) == rows


def test_files_of_before_and_of_today_become_one_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(tmp_path)
    writer = partition(disk)
    with monkeypatch.context() as before:
        before.setattr(segmentwriter, "footer_of", footer_of_before)
        commit(writer, tracks(0, 3))
        seal_everything(writer, disk)
    commit(writer, tracks(3, 3))
    seal_everything(writer, disk)
    old, new = manifest.load(disk, FOLDER).segments
    assert (_version(tmp_path, old), _version(tmp_path, new)) == (b"1", b"2")
    (merged,) = rewrite(disk, RewriteJob(FOLDER, 99, (old, new), 1000, 1 << 30))
    assert (merged.first, merged.next, _version(tmp_path, merged)) == (0, 6, b"2")
    assert pq.read_table(tmp_path / FOLDER / merged.name).column("id").to_pylist() == [0, 1, 2, 3, 4, 5]


def _version(folder: Path, segment: Segment) -> bytes:
    version: bytes = pq.read_schema(folder / FOLDER / segment.name).metadata[VERSION_KEY]
    return version
