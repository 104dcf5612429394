"""A callback of a band worker that never returns: its process is ended, and the next one does its work."""

from __future__ import annotations

import pytest

from heliograph.errors import WorkerDied
from tests.e2e import band_setups
from tests.e2e.band_setups import Job
from tests.e2e.link_support import wait_until
from tests.e2e.test_band_supervision import Done, done, errors, numbers, settled
from tests.e2e.test_band_workers import Plant, plant
from tests.ring_support import needs_rings

pytestmark = needs_rings
__all__ = ["done", "plant"]  # fixtures


@pytest.mark.parametrize("plant", [{"callback_limit": 2.0}], indirect=True)
def test_a_callback_that_outlasts_the_limit_of_the_station_ends_its_process_and_no_event_is_missing(
    plant: Plant, done: Done
) -> None:
    worker = plant.station.band_worker(band_setups.careful, priority=5, hang_after=None)
    first = worker.stats().process
    plant.jobs.push_many([Job(1), Job(14), Job(2)])
    assert wait_until(lambda: set(numbers(done())) == {1, 2, 14})
    assert settled(worker)
    assert [work.process == first for work in done() if work.n != 1] == [False, False]
    assert errors(plant, WorkerDied)
    assert worker.stats().lost == 0
    assert plant.jobs.stats().balanced
