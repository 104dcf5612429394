"""Where an event goes on to, by where it was pushed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.channel.routing.forwarding import ELSEWHERE, HERE, Forwarding, Origin

GATEWAYS = ("to b", "to c", "to worker 1", "to worker 2")
FIRST, SECOND = object(), object()


@pytest.fixture
def rule() -> Forwarding:
    rule = Forwarding()
    for number, worker in enumerate((FIRST, SECOND), 1):
        gateway: Any = SimpleNamespace(name=f"to worker {number}", relayed=number)
        rule.relay(gateway, worker)
    return rule


def test_what_is_pushed_here_goes_to_all_stations(rule: Forwarding) -> None:
    assert rule.goes_on_to(GATEWAYS, HERE) == list(GATEWAYS)


def test_what_is_pushed_elsewhere_goes_on_to_workers_only(rule: Forwarding) -> None:
    assert rule.goes_on_to(GATEWAYS, ELSEWHERE) == ["to worker 1", "to worker 2"]


def test_what_a_worker_pushes_goes_on_to_the_others_and_not_back(rule: Forwarding) -> None:
    assert rule.goes_on_to(GATEWAYS, Origin(is_here=False, worker=FIRST)) == ["to worker 2"]


def test_a_worker_that_asks_others_itself_gets_nothing_more_by_way_of_this_station(rule: Forwarding) -> None:
    rule.forget("to worker 1")
    assert rule.goes_on_to(GATEWAYS, ELSEWHERE) == ["to worker 2"]
    assert [relay.relayed for relay in rule.relays()] == [2]
    assert rule.relays(apart_from=SECOND) == ()
