"""The manifest: whole or refused."""

from __future__ import annotations

import pytest

from heliograph.errors import BadJournalFile, NoSuchFile
from heliograph.journal.format import manifest as manifests
from heliograph.journal.format.manifest import Damage, Head, Manifest, Segment, load, publish
from heliograph.sim import SimDisk

MANIFEST = Manifest(
    partition=b"p" * 16,
    generation=7,
    epoch=3,
    next=90,
    earliest=10,
    segments=(Segment("sealed/b", 10, 40, 999, 1, 2, (b"f" * 12,), 77),),
    heads=(Head("heads/a", 40, 2, 60, 123, 3, 4), Head("heads/c", 60, 3)),
    damage=(Damage(50, 55, "heads/a", "why"),),
)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_folder("p")
    publish(disk, "p", MANIFEST)
    return disk


def test_a_manifest_comes_back_and_orders_its_files(disk: SimDisk) -> None:
    assert load(disk, "p") == MANIFEST
    assert [source.name for source in MANIFEST.sources] == ["sealed/b", "heads/a", "heads/c"]


def test_every_changed_byte_is_noticed(disk: SimDisk) -> None:
    for at in range(len(disk.read("p/manifest"))):
        if at in {10, 11}:
            continue  # two bytes that mean nothing yet
        disk.flip("p/manifest", at, at % 8)
        with pytest.raises(BadJournalFile):
            load(disk, "p")
        disk.flip("p/manifest", at, at % 8)


def test_a_manifest_of_a_later_version_is_refused_by_its_number(disk: SimDisk) -> None:
    disk.flip("p/manifest", 8, 1)
    with pytest.raises(BadJournalFile, match="version 3; this program reads version 1"):
        load(disk, "p")


def test_a_manifest_beyond_all_reason_is_not_read(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "KIND", manifests.KIND._replace(limit=10))
    with pytest.raises(BadJournalFile, match="at most 10 are allowed"):
        load(disk, "p")


def test_where_there_is_none_that_is_said(disk: SimDisk) -> None:
    with pytest.raises(NoSuchFile):
        load(disk, "q")
