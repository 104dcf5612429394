"""Services are exported, found by description, withdrawn, and gone with their lease."""

from __future__ import annotations

from typing import Any

import pytest

import heliograph as hg
from tests.e2e.link_support import wait_until


def test_what_is_exported_is_found_by_description_until_it_is_withdrawn() -> None:
    with hg.Station() as station:
        trader = station.trader
        assert trader.query() == []
        north = trader.export("radar", "r1", channel="air.tracks", properties={"site": "north", "range": 40})
        trader.export("radar", "r2", properties={"site": "south"})
        trader.export("prices", "p1")
        assert [offer.name for offer in trader.query()] == ["p1", "r1", "r2"]
        assert [offer.name for offer in trader.query("kind = 'radar' AND name LIKE '%2'")] == ["r2"]
        assert [offer.name for offer in trader.query(properties={"site": "north", "range": 40})] == ["r1"]
        north.withdraw()
        assert [offer.name for offer in trader.query("kind = 'radar'")] == ["r2"]


def test_an_export_with_a_lease_is_gone_unless_it_is_renewed() -> None:
    with hg.Station() as station, station.trader.export("radar", "r1", lease=0.2) as export:
        assert len(station.trader.query()) == 1
        assert wait_until(lambda: not station.trader.query())
        assert export.until is not None


def test_a_binding_says_that_nothing_fits_and_keeps_what_does() -> None:
    with hg.Station() as station:
        binding = station.trader.bind("kind = 'radar'", properties={"site": "north"})
        with pytest.raises(hg.NoOffer, match="no station of the domain offers kind = 'radar' with"):
            binding.offer()
        station.trader.export("radar", "r1", properties={"site": "north"})
        assert binding.offer().name == "r1"
        assert binding.offer() is binding.offer()
        assert binding.rebound == 0


def test_what_cannot_be_offered_or_asked_is_refused() -> None:
    with hg.Station() as station:
        trader = station.trader
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"kind": "", "name": "r"}, "kind="),
            ({"kind": "radar", "name": 7}, "name="),
            ({"kind": "radar", "name": "r", "lease": 0}, "lease="),
            ({"kind": "radar", "name": "r", "properties": {"site": ["north"]}}, "properties="),
        )
        for options, why in wrong:
            with pytest.raises(hg.NotPossible, match=why):
                trader.export(**options)
        with pytest.raises(hg.ExpressionError):
            trader.bind("kin = 'radar'")
