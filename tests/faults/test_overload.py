"""Far more events than a receiver can take, for each policy: bounded, and counted to the event on both sides.

`HELIO_EXAMPLES=30 pytest` makes it a minute of each policy.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.overload_support import DOMAIN, Load, qos_of
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EVENTS = examples(2_000)
"""Pushed as fast as it goes, to a receiver that takes half a millisecond and more for each."""
LINK_BYTES = 64 << 20
"""What may wait for another station: the bound of its gateway."""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    own_meeting_folder(monkeypatch, tmp_path)
    programs: list[Program] = []

    def program(policy: str) -> Program:
        programs.append(Program(policy, module="tests.faults.overload_process"))
        programs[-1].says("ready")
        return programs[-1]

    yield program
    for running in programs:
        running.clean_up()


@pytest.mark.parametrize("policy", ["block", "drop_oldest", "drop_newest", "coalesce"])
def test_under_overload_waiting_events_are_bounded_and_every_loss_is_counted(
    policy: str, start: Callable[[str], Program]
) -> None:
    with hg.Station(domain=DOMAIN) as station:
        channel = station.channel("load", Load, qos=qos_of(policy))
        other = start(policy)
        assert channel.wait_matched(1, LIMIT)
        here: list[int] = []
        channel.subscribe(lambda load: here.append(load.number), name="quick")
        for number in range(EVENTS - 1):
            channel.push(Load(number, number % 1_000))
            if not number % 100:
                assert all(
                    counts.waiting_bytes <= LINK_BYTES for counts in channel.stats().consumers.values()
                )
        # When the load is over the next event comes, whatever was dropped before.
        assert wait_until(lambda: not pending(channel))
        channel.push(Load(EVENTS - 1, -1, is_last=True))
        _, got, dropped, in_order = other.says("last").split()
        assert wait_until(lambda: not pending(channel))
        stats = channel.stats()
        (gateway,) = (counts for name, counts in stats.consumers.items() if name != "quick")
        quick = stats.consumers["quick"]
        assert stats.balanced
        assert quick.delivered == len(here)
        assert quick.delivered + sum(quick.dropped.values()) == EVENTS
        assert gateway.delivered + sum(gateway.dropped.values()) == EVENTS
        assert gateway.delivered == int(got) + int(dropped), "as both sides count it"
        assert in_order == "True"
        if policy == "block":
            assert (int(got), len(here)) == (EVENTS, EVENTS)


def pending(channel: hg.Channel[Load]) -> int:
    return sum(counts.pending for counts in channel.stats().consumers.values())


def test_a_slow_receiver_of_a_kept_channel_gets_all_of_it_and_holds_up_nobody(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data") as station:
        channel = station.channel("load", Load, qos=qos_of("journal"))
        seen: list[int] = []
        pause = Event()

        def slow(load: Load) -> None:
            pause.wait(0.0005)
            seen.append(load.number)

        channel.subscribe(slow, name="slow")
        for first in range(0, EVENTS, 100):
            channel.push_many([Load(first + i, i) for i in range(100)])
            assert all(counts.waiting_bytes <= LINK_BYTES for counts in channel.stats().consumers.values())
        assert wait_until(lambda: len(seen) == EVENTS, 4 * LIMIT)
        assert seen == list(range(EVENTS))
