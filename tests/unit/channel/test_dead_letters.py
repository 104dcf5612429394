"""Where dead letters may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import NotPossible

if TYPE_CHECKING:
    from heliograph.testing import Rig


class Track(hg.Event, name="dead.track"):
    id: int


def test_what_is_kept_cannot_be_buried_where_nothing_is_kept(helio: Rig) -> None:
    helio.station.channel("grave", Track)
    kept = helio.station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    with pytest.raises(NotPossible, match="would be lost there"):
        kept.consumer(name="c", ack="manual", max_deliveries=1, dead_letter="grave")
    with kept.consumer(name="c", ack="manual", max_deliveries=1, dead_letter="kept.grave"):
        assert helio.station.channel("kept.grave").qos.journalled


def test_a_buried_event_leaves_the_id_of_its_push_behind(helio: Rig) -> None:
    kept = helio.station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    with kept.consumer(name="c", ack="manual", max_deliveries=1, dead_letter="grave") as consumer:
        kept.push(Track(1), id="order-1")
        next(iter(consumer.deliveries(timeout=5))).nak()
        with helio.station.channel("grave").consumer(start="earliest") as grave:
            (buried,) = (next(iter(grave.deliveries(timeout=5))),)
    assert buried.event == Track(1)
    assert buried.header.headers is not None
    assert "push-id" not in buried.header.headers
    assert buried.header.headers["dead.channel"] == "kept"
