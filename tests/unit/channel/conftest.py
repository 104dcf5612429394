"""Events and stations that the tests of channels share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from heliograph.station import Station

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def station() -> Iterator[Station]:
    with Station() as opened:
        yield opened
