"""Gives pytest the fixture `helio`; see `heliograph.testing`. Loaded by pytest itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.testing import Rig


@pytest.fixture
def helio() -> Iterator[Rig]:
    """A station in memory with a clock that jumps.

    A test fails if a callback raised, though nobody looked: `helio.errors` holds what was raised, and a test
    that expects it clears that.
    """
    from heliograph.testing import rig  # noqa: PLC0415 - nothing is loaded for tests that do not ask

    with rig() as made:
        yield made
    if made.errors:
        receiver, error = made.errors[0]
        more = f"; and {len(made.errors) - 1} more" if len(made.errors) > 1 else ""
        pytest.fail(
            f"{receiver} raised {error!r}{more}; if that is expected: helio.errors.clear()", pytrace=False
        )
