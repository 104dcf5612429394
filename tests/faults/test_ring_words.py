"""What the ring's order of events rests on: a word is stored and loaded whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.ring.layout import COMMITTED
from heliograph.ring.segment import RingSegment
from tests.e2e.link_support import wait_until
from tests.faults.ring_process import PATTERNS, victim
from tests.ring_support import folder_for_a_test, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.ring import RingFolder

pytestmark = needs_rings
folder = pytest.fixture(folder_for_a_test)


def test_a_word_that_another_process_flips_is_never_seen_as_a_mixture(folder: RingFolder) -> None:
    with victim("flip", folder) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (path,) = folder.path.iterdir()
        segment = RingSegment.open(path)
        words = segment.words
        seen = {words[COMMITTED] for _ in range(examples(2_000_000))}
        assert wait_until(lambda: len(seen) > 1 or words[COMMITTED] not in seen), "nobody flips it"
        segment.close()
    assert seen <= set(PATTERNS)
