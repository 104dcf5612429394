"""Gives pytest the fixture `helio`; see `heliograph.testing`. Loaded by pytest itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.testing import Rig


@pytest.fixture
def helio() -> Iterator[Rig]:
    """A station in memory with a clock that jumps."""
    from heliograph.testing import rig  # noqa: PLC0415 - nothing is loaded for tests that do not ask

    with rig() as made:
        yield made
