"""Federations under a seed: 300 plans of faults keep every promise, and what is planted is found by 50."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.errors import HeliographError, PromiseBroken
from heliograph.federation.crossing import Crossing
from heliograph.links.session.retransmission import Batch, Inbox, Outbox
from heliograph.sim import SimFile
from heliograph.sim.__main__ import main
from heliograph.sim.federation import Federation, FederationPlan, plan_of, play
from tests.support import EXAMPLES_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS = 300
AT_ONCE = 25
FIND_WITHIN = 50


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Faults are planned here: what stations log of them is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS * EXAMPLES_FACTOR, AT_ONCE))
def test_every_promise_holds_whatever_the_seed(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        play(seed)


def test_the_same_seed_gives_the_same_run_call_by_call() -> None:
    digests = set()
    for _ in range(2):
        federation = Federation(plan_of(6))
        federation.run()
        digests.add(federation.simulation.trace.digest)
    assert len(digests) == 1


def test_seeds_bring_every_fault_and_arrangement_of_three_to_seven_stations() -> None:
    plans = [plan_of(seed) for seed in range(SEEDS)]
    assert {fault.kind for plan in plans for fault in plan.faults} == {
        *("cut", "part", "mute", "kill", "power", "pause", "jump")
    }
    assert {plan.stations for plan in plans} == {3, 4, 6}
    assert {plan.kept for plan in plans} == {True, False}
    rough = [plan for plan in plans if plan.loss and plan.duplication and plan.reordering and plan.delay]
    assert len(rough) > SEEDS // 10
    assert sum(not plan.kept and not plan.may_lose for plan in plans) > SEEDS // 10
    assert any(plan.lifespan for plan in plans)


def no_resend(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "missing", lambda *_: [])


def no_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimFile, "sync", lambda *_: None)


def no_gap(patch: pytest.MonkeyPatch) -> None:
    """What is missing is passed over."""

    def take(inbox: Inbox[Any], batch: Batch[Any]) -> list[tuple[Batch[Any], int]]:
        return [] if batch.last <= inbox.received else [(batch, max(0, inbox.received + 1 - batch.first))]

    patch.setattr(Inbox, "take", take)


def no_ack(patch: pytest.MonkeyPatch) -> None:
    """A gateway's acknowledgements are lost."""
    patch.setattr(Crossing, "_done", lambda crossing, _, what: crossing._counts.update([what]))


@pytest.mark.parametrize("plant", [no_resend, no_sync, no_gap, no_ack])
def test_what_is_planted_is_found_within_fifty_seeds(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(FIND_WITHIN):
        try:
            play(seed)
        except HeliographError:
            return
    pytest.fail("no seed has found it")


def test_one_command_repeats_a_failing_seed_and_prints_its_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["2"]) == 0
    told = capsys.readouterr().out
    assert "seed 2:" in told
    assert "all promises held" in told

    def broken(_: Federation) -> None:
        raise PromiseBroken("receiver 0 has source 0 7 twice", seed=2)

    monkeypatch.setattr(Federation, "_check", broken)
    assert main(["--quiet", "2-3"]) == 1
    assert "receiver 0 has source 0 7 twice (seed 2)" in capsys.readouterr().out
    assert main(["two"]) == 2
    assert main([]) == 2


def test_a_plan_is_told_in_words() -> None:
    told = "\n".join(plan_of(2).lines())
    assert isinstance(plan_of(2), FederationPlan)
    assert "gateways a to b" in told
