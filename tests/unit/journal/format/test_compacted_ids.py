"""The ids of rows that compaction has left out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from heliograph.journal.format.compacted_ids import CompactedIds, packed, unpacked

if TYPE_CHECKING:
    import pytest


def test_what_was_packed_is_unpacked() -> None:
    rows = [CompactedIds(7, "radar", 1, 3, "order-1"), CompactedIds(9, "radar", 1, 4)]
    assert unpacked(packed(rows)) == rows
    assert unpacked(None) == []


def test_what_is_damaged_is_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert unpacked(b"no ids") == []
    assert "cannot be read" in caplog.text
