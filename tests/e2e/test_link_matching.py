"""Stations that have one channel in ways that do not go together: nothing is sent, and both are told why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Pair = tuple[hg.Station, hg.Station]


class Tagged(hg.Event, name="air.track", key="id"):
    id: str


class Higher(hg.Event, name="air.track", key="id"):
    id: int
    height: int


class PendingCommit(list[hg.NotMatched]):
    """What `on_error` was told."""

    def __call__(self, _who: str, _header: object, error: BaseException) -> None:
        assert isinstance(error, hg.NotMatched)
        self.append(error)


@pytest.fixture
def told() -> dict[str, PendingCommit]:
    return {"a": PendingCommit(), "b": PendingCommit()}


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, PendingCommit]) -> Iterator[Pair]:
    own_meeting_folder(monkeypatch, tmp_path)
    with (
        hg.Station(domain="air", name="a", on_error=told["a"]) as a,
        hg.Station(domain="air", name="b", on_error=told["b"]) as b,
    ):
        yield a, b


@pytest.mark.parametrize("other", [Tagged, Higher])
def test_classes_that_do_not_go_together_are_not_matched(
    pair: Pair, told: dict[str, PendingCommit], other: type[hg.Event]
) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", other)
    theirs.consumer()
    assert wait_until(lambda: bool(told["a"] and told["b"]))
    ((sent,), (received,)) = told["a"], told["b"]
    assert (sent.to_it, received.to_it) == (True, False)
    assert sent.type == received.type == "air.track"
    assert sent.reason == received.reason
    assert not ours.wait_matched(1, 0)
    assert ours.push(Track(1))
    assert ours.stats().matched == 0, "nobody is said to have got it"


def test_what_does_not_go_together_is_in_the_stats_of_both_until_nobody_asks_for_it(pair: Pair) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Tagged)
    consumer = theirs.consumer()
    assert wait_until(lambda: list(ours.stats().unmatched) == [f"{b.id:016x}"])
    assert wait_until(lambda: list(theirs.stats().unmatched) == [f"{a.id:016x}"])
    assert "cannot be read as str" in ours.stats().unmatched[f"{b.id:016x}"][0]
    consumer.close()
    assert wait_until(lambda: not ours.stats().unmatched)
    assert not theirs.stats().unmatched


def test_it_is_told_once_however_many_receivers_come_and_go(
    pair: Pair, told: dict[str, PendingCommit]
) -> None:
    a, b = pair
    ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Tagged)
    for _ in range(3):
        consumer = theirs.consumer()
        assert wait_until(lambda: bool(ours.stats().unmatched and theirs.stats().unmatched))
        consumer.close()
        assert wait_until(lambda: not ours.stats().unmatched)
    assert wait_until(lambda: bool(told["a"] and told["b"]))
    assert (len(told["a"]), len(told["b"])) == (1, 1)


@pytest.mark.parametrize("transport", ["socket", pytest.param("ring", marks=needs_rings)])
def test_an_event_that_does_not_fit_though_its_format_does_is_counted_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transport: Any
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    told: list[BaseException] = []
    with (
        hg.Station(domain="fit", transport=transport) as a,
        hg.Station(domain="fit", transport=transport, on_error=lambda _, __, error: told.append(error)) as b,
    ):
        ours, theirs = a.channel("air.tracks", Track), b.channel("air.tracks", Even)
        consumer = theirs.consumer()
        assert ours.wait_matched(1, LIMIT)
        for number in range(1, 5):
            ours.push(Track(number))
        assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Even(2), Even(4)]
        assert wait_until(lambda: told)
        assert [type(error) for error in told] == [hg.DecodeError]
        assert b.mesh is not None
        assert [link.left_out for link in b.mesh.stats()] == [2]


class Even(hg.Event, name="air.track", key="id"):
    id: int

    def __post_init__(self) -> None:
        if self.id % 2:
            raise ValueError("odd")


def test_receivers_that_ask_for_more_than_is_offered_are_told_as_the_supplier_is(
    pair: Pair, told: dict[str, PendingCommit]
) -> None:
    a, b = pair
    ours = a.channel("air.tracks", Track, qos=hg.QoS(reliability="best-effort"))
    theirs = b.channel("air.tracks", Track)
    assert ours.consumer() is not theirs.consumer()
    assert wait_until(lambda: bool(told["a"] and told["b"]))
    ((sent,), (received,)) = told["a"], told["b"]
    assert (sent.to_it, received.to_it) == (True, False), "what is pushed at b goes to a"
    assert "reliability: offered 'best-effort', requested 'reliable'" in str(received)
    assert (sent.station, received.station) == (f"{b.id:016x} (b)", f"{a.id:016x} (a)"), "by its name, too"
    theirs.push(Track(1))
    assert theirs.wait_matched(2, LIMIT)
