"""Times are numbers of seconds: what is none is refused where it is said, with that word."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.qos.policies import Ack
    from heliograph.testing import Rig

NOT_SECONDS: Any = timedelta(seconds=1)


class Note(hg.Event, name="note"):
    n: int


@pytest.fixture
def notes() -> Iterator[Channel[Note]]:
    with hg.Station() as station:
        yield station.channel("c", Note)


OF_A_CHANNEL: dict[str, Callable[[Channel[Note]], object]] = {
    "deliver_after": lambda c: c.push(Note(1), deliver_after=NOT_SECONDS),
    "latency of a push": lambda c: c.push(Note(1), latency=NOT_SECONDS),
    "latency of a consumer": lambda c: c.consumer(dispatch="deadline", latency=NOT_SECONDS),
    "separation": lambda c: c.consumer(separation=NOT_SECONDS),
    "pull": lambda c: c.consumer().pull(timeout=NOT_SECONDS),
    "read": lambda c: c.consumer().read(timeout=NOT_SECONDS),
    "settle": lambda c: c.settle(NOT_SECONDS),
    "wait_matched": lambda c: c.wait_matched(1, NOT_SECONDS),
    "every, of a supplier": lambda c: c.supplier().every(NOT_SECONDS, lambda: None),
    "close": lambda c: c.close(NOT_SECONDS),
    "close, which has to end": lambda c: c.close(None),  # type: ignore[arg-type] # the mistake
    "deliveries": lambda c: c.consumer().deliveries(NOT_SECONDS),
    "result": lambda c: c.push_nowait(Note(1)).result(NOT_SECONDS),
    "within": lambda c: hg.all_of(a=c, b=c, within=NOT_SECONDS),
    "watchdog": lambda c: hg.all_of(a=c, b=c, watchdog=NOT_SECONDS),
}
OTHERS: dict[str, Callable[[], object]] = {
    "lifespan": lambda: hg.QoS(lifespan=NOT_SECONDS),
    "max_blocking": lambda: hg.QoS(max_blocking=NOT_SECONDS),
    "latency": lambda: hg.QoS(dispatch="deadline", latency=NOT_SECONDS),
    "ack_timeout": lambda: hg.QoS(ack="delivered", ack_timeout=NOT_SECONDS),
    "every": lambda: hg.every(NOT_SECONDS),
    "after": lambda: hg.after(NOT_SECONDS),
    "callback_limit": lambda: hg.Station(callback_limit=NOT_SECONDS),
    "peer_limit": lambda: hg.Station(domain="d", peer_limit=NOT_SECONDS),
}


@pytest.mark.parametrize("call", OF_A_CHANNEL.values(), ids=OF_A_CHANNEL)
def test_a_call_of_a_channel_names_seconds(
    notes: Channel[Note], call: Callable[[Channel[Note]], object]
) -> None:
    with pytest.raises(hg.HeliographError, match="second"):
        call(notes)
    assert not notes.closed


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_so_do_policies_patterns_and_stations(call: Callable[[], object]) -> None:
    with pytest.raises(hg.HeliographError, match="second"):
        call()


@pytest.mark.parametrize("ack", ["memory", "journal", "synced", "delivered"])
def test_a_receipt_names_seconds_at_every_level(helio: Rig, ack: Ack) -> None:
    notes = helio.station.channel("notes", Note, qos=hg.QoS(durability="persistent", ack=ack))
    receipt = notes.push_nowait(Note(1))
    not_seconds: Any = "2"
    with pytest.raises(hg.NotPossible, match=r"result: timeout='2': seconds from 0 on"):
        receipt.result(not_seconds)
    assert receipt.result(10)


def test_a_pattern_names_seconds(helio: Rig) -> None:
    pattern = helio.station.subscribe(hg.any_of(a=helio.station.channel("notes", Note)), lambda _: None)
    with pytest.raises(hg.NotPossible, match=r"settle: .*seconds"):
        pattern.settle(NOT_SECONDS)


def test_a_station_that_is_told_no_seconds_stays_open() -> None:
    with hg.Station() as station:
        with pytest.raises(hg.NotPossible, match="seconds"):
            station.close(NOT_SECONDS)
        with pytest.raises(hg.NotPossible, match="seconds"):
            station.close(None)  # type: ignore[arg-type] # the mistake
        assert station.channel("c", Note).push(Note(1))
