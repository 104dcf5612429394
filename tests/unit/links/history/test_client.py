"""What becomes of a push that another station was asked to keep."""

from __future__ import annotations

import pytest

from heliograph.errors import AppendTimeout, QueryFailed
from heliograph.links.history.client import RemoteReceipt
from heliograph.links.session.rpc import GONE
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks

PORTS = Ports(SystemClock(), ThreadTasks(), SystemRandom(), None)


def test_a_push_whose_keeper_has_gone_says_that_and_not_how_long_it_was_waited_for() -> None:
    receipt = RemoteReceipt("b3f1", "radar:1:7", PORTS)
    receipt.came(QueryFailed("station 0000000000000007", GONE))
    with pytest.raises(AppendTimeout) as caught:
        receipt.result()
    said = str(caught.value)
    assert said.startswith(
        "the keeper, station 0000000000000007, has gone before it said whether event radar:1:7 "
    )
    assert "unknown" in said
    assert "within" not in said
    assert caught.value.event == "radar:1:7"
