"""Batches on their way into a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.journal.inbox.staging import STAGED, StageWriter, key_of, make_inbox
from heliograph.runtime.ports import system_ports

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_is_removed_as_soon_as_it_is_made_is_made_again(tmp_path: Path) -> None:
    ports = system_ports(tmp_path)
    disk = ports.disk
    assert disk is not None
    make_inbox(disk)
    key = key_of("totals", "writer", "nonce")
    made = disk.make_folder
    left = [3]

    def make_and_lose(name: str) -> None:
        made(name)
        if left[0]:
            left[0] -= 1
            disk.remove_folder(name)

    disk.make_folder = make_and_lose  # type: ignore[method-assign] # a keeper that sweeps at this instant
    with StageWriter(ports, key, 0, "p0") as stage:
        stage.finish()
    assert len(disk.list(f"{STAGED}/{key}")) == 1
