"""How many files an event crosses: what newcomers have to read to follow it."""

from __future__ import annotations

from bench import event_paths

CHECKED_LOCKS = "runtime/lock_order.py"
"""Takes part in tests only."""


def test_a_queued_event_crosses_five_files_in_its_process() -> None:
    assert len(event_paths.in_process(3).files - {CHECKED_LOCKS}) <= 5


def test_from_the_socket_to_the_queue_there_are_six_functions_of_four_files() -> None:
    entry = event_paths.by_link("socket", 3).entry
    assert entry
    assert len(entry) <= 6, entry
    assert len({file for file, _ in entry}) <= 4, entry
