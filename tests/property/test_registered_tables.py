"""A registered table has the rows of the sealed history after every run, whatever was done to the journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.format.folder import StationFolder
from tests.support import examples
from tests.unit.spark.histories import Keeper
from tests.unit.spark.jobs.test_register import column, compact, links, register, track

STEPS = st.sampled_from(["push", "seal", "compact", "drop", "remove", "register", "sweep"])


@settings(max_examples=examples(15), deadline=None)
@given(steps=st.lists(STEPS, max_size=25), kind=st.sampled_from(["delta", "iceberg"]))
def test_a_table_is_the_sealed_history_after_every_run(steps: list[str], kind: str) -> None:
    with TemporaryDirectory() as folder, Keeper(Path(folder) / "data") as keeper:
        here = Path(folder)
        keeper.writer._keeper._rewriter = None
        partition = keeper.writer._partition
        whole = partition.limits
        pushed = 0
        for step in [*steps, "seal", "register"]:
            match step:
                case "push":
                    keeper.push(*(track(n % 4) for n in range(pushed, pushed + 3)))
                    pushed += 3
                case "seal":
                    keeper.writer.seal()
                case "compact":
                    compact(keeper)
                case "drop":
                    partition.limits = replace(whole, keep_bytes=0)
                    keeper.writer.retain()
                    partition.limits = whole
                case "remove":
                    partition.limits = replace(whole, grace_seconds=0.0)
                    keeper.writer.retain()
                    partition.limits = whole
                case "register" | "sweep":
                    done = register(here, kind, grace=0.0 if step == "sweep" else 600.0)
                    expected = sealed_offsets(here / "data")
                    assert done.events == len(expected)
                    if done.files or done.commits:
                        assert column(here, kind) == expected
                    assert len(links(here, kind)) == done.files + done.waiting


def sealed_offsets(folder: Path) -> list[int]:
    """As the journal's own reader finds them."""
    with StationFolder(folder).reader("air.tracks", "p1") as reader:
        segments = reader.manifest.segments
        end = max((one.next for one in segments), default=0)
        position, found = reader.earliest, []
        while position < end and (rows := reader.read(position, 1000, below=end)):
            found += [row.offset for row in rows]
            position = rows[-1].offset + 1
    return found
