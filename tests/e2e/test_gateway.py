"""Gateways between domains: events cross as they were pushed, each receiver gets each of them once."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.model.event_id_set import PAGE_BYTES, SUPPLIER_BYTES
from heliograph.runtime.ports import system_ports
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from heliograph.model.event import Header

PERSISTENT = hg.QoS(durability="persistent")


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Domains:
    """Domains in memory, with a station each that gateways share, and what its subscriber got."""

    def __init__(self, opened: ExitStack, names: Sequence[str]) -> None:
        self.opened = opened
        self.networks = {name: MemoryNetwork(system_ports(None)) for name in names}
        self.stations: dict[str, hg.Station] = {}
        self.channels: dict[str, hg.Channel[Track]] = {}
        self.got: dict[str, list[int]] = {name: [] for name in names}
        for name in names:
            station = self.stations[name] = self.station(name)
            channel = self.channels[name] = station.channel("air.tracks", Track)
            channel.subscribe(lambda track, name=name: self.got[name].append(track.id))

    def station(self, domain: str, **more: Any) -> hg.Station:
        return self.opened.enter_context(
            hg.Station(domain=domain, transport=self.networks[domain].transport, **more)
        )

    def join(self, one: str, other: str, **more: Any) -> hg.Gateway:
        gateway = hg.Gateway(self.stations[one], self.stations[other], "air.tracks", **more)
        self.opened.callback(gateway.close)
        for crossing in gateway.stats():
            assert crossing.waits_for == ""
        return gateway

    def push(self, ids: range) -> None:
        """From each of them so many events of its own."""
        for number, channel in enumerate(self.channels.values()):
            for i in ids:
                channel.push(Track(1_000 * number + i, float(i)))

    def all_ids(self, ids: range) -> set[int]:
        return {1_000 * number + i for number in range(len(self.channels)) for i in ids}

    def expect(self, wanted: set[int]) -> None:
        """Each receiver gets these, each once, those of one supplier in order."""
        for name, got in self.got.items():
            assert wait_until(partial(set(wanted).issubset, got)), (name, sorted(wanted - set(got))[:10])
        for name, got in self.got.items():
            assert Counter(got).most_common(1)[0][1] == 1, (name, Counter(got).most_common(3))
            assert set(got) == wanted, name


def test_an_event_crosses_as_it_was_pushed(opened: ExitStack) -> None:
    domains = Domains(opened, ["west", "east"])
    seen: list[tuple[Track, Header]] = []
    domains.channels["east"].subscribe(lambda track, header: seen.append((track, header)))
    domains.join("west", "east")
    receipt = domains.channels["west"].push_nowait(
        Track(7, 2.0), priority=5, correlation_id="c", headers={"trace": "t"}, source_ts=123
    )
    before = receipt.header
    assert wait_until(lambda: seen)
    ((event, header),) = seen
    assert event == Track(7, 2.0)
    assert header.id == before.id
    kept = ("source_ts", "priority", "key", "correlation_id", "format_id", "type", "channel")
    assert [getattr(header, name) for name in kept] == [getattr(before, name) for name in kept]
    assert header.headers == {"trace": "t", "via-domains": "west"}
    assert header.hops > before.hops


def test_only_what_the_filter_lets_pass_crosses_and_it_runs_where_events_are_pushed(
    opened: ExitStack,
) -> None:
    domains = Domains(opened, ["west", "east"])
    supplier = domains.station("west", name="supplier")
    tracks = supplier.channel("air.tracks", Track)
    gateway = domains.join("west", "east", where="id >= :least", params={"least": 90})
    assert tracks.wait_matched(2, LIMIT)
    domains.got["west"].clear()
    for i in range(100):
        tracks.push(Track(i))
    assert wait_until(lambda: len(domains.got["east"]) == 10)
    assert domains.got["east"] == list(range(90, 100))
    (crossing,) = gateway.stats()
    assert (crossing.taken, crossing.forwarded) == (10, 10)


@pytest.mark.parametrize("both", [False, True])
def test_one_way_is_one_way_and_both_are_both(opened: ExitStack, both: bool) -> None:
    domains = Domains(opened, ["west", "east"])
    domains.join("west", "east", both=both)
    domains.channels["east"].push(Track(1))
    domains.channels["west"].push(Track(2))
    assert wait_until(lambda: sorted(domains.got["east"]) == [1, 2])
    assert wait_until(lambda: sorted(domains.got["west"]) == ([1, 2] if both else [2]))


FIVE = ["a", "b", "c", "d", "e"]
ARRANGEMENTS = {
    "chain": list(pairwise(FIVE)),
    "ring": list(zip(FIVE, [*FIVE[1:], FIVE[0]], strict=True)),
    "star": [("a", other) for other in FIVE[1:]],
    "mesh": list(combinations(FIVE, 2)),
}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_five_domains_in_any_arrangement_get_each_event_once(opened: ExitStack, arrangement: str) -> None:
    domains = Domains(opened, FIVE)
    gateways = [domains.join(one, other, both=True) for one, other in ARRANGEMENTS[arrangement]]
    domains.push(range(40))
    domains.expect(domains.all_ids(range(40)))
    assert wait_until(lambda: all(s.taken == s.forwarded + s.returned + s.repeated for s in _all(gateways)))
    for crossing in _all(gateways):
        assert crossing.too_far == crossing.untold == crossing.rejected == crossing.under_way == 0


def test_a_ring_one_way_goes_round_and_ends_where_it_began(opened: ExitStack) -> None:
    domains = Domains(opened, FIVE)
    gateways = [domains.join(one, other) for one, other in ARRANGEMENTS["ring"]]
    domains.push(range(20))
    domains.expect(domains.all_ids(range(20)))
    assert wait_until(lambda: sum(s.returned for s in _all(gateways)) == 100)


def test_paths_with_different_filters_bring_together_what_either_lets_pass(opened: ExitStack) -> None:
    domains = Domains(opened, ["a", "upper", "lower", "b"])
    domains.join("a", "upper", where="id >= 40")
    domains.join("a", "lower", where="id < 60")
    domains.join("upper", "b")
    domains.join("lower", "b")
    for i in range(100):
        domains.channels["a"].push(Track(i))
    assert wait_until(lambda: len(domains.got["b"]) >= 100)
    assert sorted(domains.got["b"]) == list(range(100))


def test_what_has_been_in_as_many_domains_as_allowed_goes_no_further(opened: ExitStack) -> None:
    domains = Domains(opened, FIVE)
    gateways = [domains.join(one, other, hops=3) for one, other in ARRANGEMENTS["chain"]]
    domains.channels["a"].push(Track(1))
    assert wait_until(lambda: gateways[3].stats()[0].too_far == 1)
    assert [domains.got[name] for name in FIVE] == [[1], [1], [1], [1], []]


def test_two_gateways_between_the_same_domains_bring_each_event_once(opened: ExitStack) -> None:
    domains = Domains(opened, ["west", "east"])
    second = (domains.station("west", name="second"), domains.station("east", name="second"))
    receiver = domains.station("east", name="receiver").channel("air.tracks", Track)
    got: list[int] = []
    receiver.subscribe(lambda track: got.append(track.id))
    first = domains.join("west", "east")
    other = hg.Gateway(*second, "air.tracks")
    opened.callback(other.close)
    assert domains.channels["west"].wait_matched(3, LIMIT)
    assert wait_until(lambda: other.stats() and not other.stats()[0].waits_for)
    for i in range(200):
        domains.channels["west"].push(Track(i))
    assert wait_until(lambda: sum(s.forwarded + s.repeated for s in _all([first, other])) == 400)
    assert wait_until(lambda: len(got) >= 200)
    assert sorted(got) == list(range(200))
    assert sorted(domains.got["east"]) == list(range(200))


def test_those_who_join_late_get_what_gateways_brought_once(opened: ExitStack) -> None:
    kept = hg.QoS(durability="transient-local", history=1_000)
    networks = {name: MemoryNetwork(system_ports(None)) for name in ("west", "east")}

    def station(domain: str) -> hg.Station:
        return opened.enter_context(hg.Station(domain=domain, transport=networks[domain].transport))

    pairs = [(station("west"), station("east")) for _ in range(2)]
    tracks = station("west").channel("air.tracks", Track, qos=kept)
    for one, other in pairs:
        other.channel("air.tracks", Track, qos=kept)
        one.channel("air.tracks", Track, qos=kept)
        opened.callback(hg.Gateway(one, other, "air.tracks").close)
    for i in range(50):
        tracks.push(Track(i))
    assert wait_until(lambda: sum(other.stats()["air.tracks"].kept for _, other in pairs) >= 50)
    got: list[int] = []
    late = station("east").channel("air.tracks", Track, qos=kept)
    late.subscribe(lambda track: got.append(track.id))
    for i in range(50, 60):
        tracks.push(Track(i))
    assert wait_until(lambda: len(got) >= 60)
    assert sorted(got) == list(range(60))


def test_what_is_left_of_a_lifespan_crosses_and_what_is_over_does_not(opened: ExitStack) -> None:
    networks = {name: MemoryNetwork(system_ports(None)) for name in ("west", "east")}
    mortal = hg.QoS(lifespan=3600.0)
    west, east = (
        opened.enter_context(hg.Station(domain=name, transport=networks[name].transport)) for name in networks
    )
    tracks, there = (station.channel("air.tracks", Track, qos=mortal) for station in (west, east))
    seen: list[Header] = []
    there.subscribe(lambda _, header: seen.append(header))
    opened.callback(hg.Gateway(west, east, "air.tracks").close)
    tracks.push(Track(1))
    assert wait_until(lambda: seen)
    assert seen[0].lifetime_ns is not None
    assert 0 < seen[0].lifetime_ns < 3_600_000_000_000


def test_channels_of_a_pattern_cross_when_they_are_opened(opened: ExitStack) -> None:
    domains = Domains(opened, ["west", "east"])
    gateway = hg.Gateway(domains.stations["west"], domains.stations["east"], "sea.**")
    opened.callback(gateway.close)
    supplier = domains.station("west", name="supplier").channel("sea.ships", Track)
    assert gateway.wait_open("sea.ships", LIMIT)
    got: list[int] = []
    domains.station("east", name="receiver").channel("sea.ships", Track).subscribe(
        lambda track: got.append(track.id)
    )
    assert supplier.wait_matched(1, LIMIT)
    ids = iter(range(10_000))
    assert wait_until(lambda: got or not supplier.push(Track(next(ids))))
    assert {crossing.channel for crossing in gateway.stats()} == {"sea.ships"}


def test_on_persistent_channels_an_event_is_acknowledged_when_the_other_journal_has_it(
    opened: ExitStack, tmp_path: Path
) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    east = opened.enter_context(hg.Station(tmp_path / "east", domain="east"))
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    gateway = hg.Gateway(west, east, "air.tracks", start="earliest")
    tracks.push_many([Track(i) for i in range(500)])
    assert wait_until(lambda: gateway.stats()[0].forwarded == 500)
    gateway.close()
    there = east.channel("air.tracks", Track)
    assert there.qos.durability == "persistent"
    with there.consumer(start="earliest", until="now") as consumer:
        assert [track.id for track in consumer] == list(range(500))
    # The next of its name goes on where it was.
    tracks.push(Track(500))
    with hg.Gateway(west, east, "air.tracks", start="earliest") as again:
        assert wait_until(lambda: again.stats()[0].forwarded == 1)
        assert again.stats()[0].taken == 1


def test_a_copy_that_comes_later_than_the_window_of_pushes_is_not_kept_again(
    opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ways from a to b; one is cut off until the window has passed, and the keeper is opened anew."""
    monkeypatch.setattr("heliograph.journal.store.WINDOW", 16)
    monkeypatch.setattr("heliograph.journal.writing.dedup_window.WINDOW", 16)
    a = opened.enter_context(hg.Station(tmp_path / "a", domain="a"))
    c = opened.enter_context(hg.Station(tmp_path / "c", domain="c"))
    tracks = a.channel("air.tracks", Track, qos=PERSISTENT)
    with hg.Gateway(a, c, "air.tracks", where="id % 2 = 0", start="earliest") as gateway:
        tracks.push_many([Track(i) for i in range(400)])
        assert wait_until(lambda: gateway.stats()[0].forwarded == 200)
    for ways in ([(a, None), (c, None)], [(c, None)]):
        with hg.Station(tmp_path / "b", domain="b") as b:
            for source, _ in ways:
                with hg.Gateway(source, b, "air.tracks", name=f"to b {len(ways)}", start="earliest") as one:
                    wanted = 400 if source is a else 200
                    assert wait_until(partial(_has_forwarded, one, wanted))
            with b.channel("air.tracks", Track).consumer(start="earliest", until="now") as consumer:
                assert [track.id for track in consumer] == list(range(400))


def test_a_gateway_of_the_same_name_stands_by_and_takes_over(opened: ExitStack, tmp_path: Path) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    east = opened.enter_context(hg.Station(tmp_path / "east", domain="east"))
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    first = hg.Gateway(west, east, "air.tracks", start="earliest")
    here = opened.enter_context(hg.Station(domain="west", name="second"))
    there = opened.enter_context(hg.Station(domain="east", name="second"))
    second = hg.Gateway(here, there, "air.tracks", start="earliest")
    opened.callback(second.close)
    tracks.push(Track(1))
    assert wait_until(lambda: first.stats()[0].forwarded == 1)
    assert wait_until(lambda: second.stats() and "consumes as" in second.stats()[0].waits_for)
    first.close()
    tracks.push(Track(2))
    assert wait_until(lambda: second.stats()[0].forwarded >= 1)
    with east.channel("air.tracks", Track).consumer(start="earliest", until="now") as consumer:
        assert [track.id for track in consumer] == [1, 2]


def test_a_closed_keeper_is_waited_for_and_nothing_is_lost(opened: ExitStack, tmp_path: Path) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    east = opened.enter_context(hg.Station(domain="east", name="gateway"))
    keeper = hg.Station(tmp_path / "east", domain="east", name="keeper")
    keeper.channel("air.tracks", Track, qos=PERSISTENT)
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    gateway = opened.enter_context(hg.Gateway(west, east, "air.tracks", start="earliest"))
    tracks.push_many([Track(i) for i in range(100)])
    assert wait_until(lambda: gateway.stats()[0].forwarded == 100)
    keeper.close()
    tracks.push_many([Track(i) for i in range(100, 200)])
    keeper = opened.enter_context(hg.Station(tmp_path / "east", domain="east", name="keeper"))
    there = keeper.channel("air.tracks", Track)
    assert wait_until(lambda: gateway.stats()[0].forwarded == 200)
    with there.consumer(start="earliest", until="now") as consumer:
        assert [track.id for track in consumer] == list(range(200))


def test_nothing_crosses_into_a_suspended_persistent_channel_until_it_goes_on(
    opened: ExitStack, tmp_path: Path
) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    east = opened.enter_context(hg.Station(tmp_path / "east", domain="east"))
    east.manager.create("air.tracks", Track, owner="anna", qos=PERSISTENT)
    there = east.channel("air.tracks", Track)
    got: list[int] = []
    there.subscribe(lambda track: got.append(track.id))
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    gateway = opened.enter_context(hg.Gateway(west, east, "air.tracks", start="earliest"))
    east.manager.suspend("air.tracks", by="anna")
    tracks.push_many([Track(i) for i in range(5)])
    assert wait_until(lambda: "suspended" in gateway.stats()[0].waits_for)
    assert got == []
    assert gateway.stats()[0].forwarded == 0
    east.manager.restart("air.tracks", by="anna")
    assert wait_until(lambda: gateway.stats()[0].forwarded == 5)
    assert wait_until(lambda: got == list(range(5)))
    assert gateway.stats()[0].waits_for == ""


def test_what_would_cross_into_a_suspended_volatile_channel_waits_and_is_not_lost(opened: ExitStack) -> None:
    domains = Domains(opened, ["west", "east"])
    east = domains.stations["east"]
    there = east.channel("sea.ships", Track)
    got: list[int] = []
    there.subscribe(lambda track: got.append(track.id))
    ships = domains.stations["west"].channel("sea.ships", Track)
    gateway = hg.Gateway(domains.stations["west"], east, "sea.ships")
    opened.callback(gateway.close)
    there.suspend(lambda: lambda: hg.Suspended("sea.ships", "anna"))
    for i in range(10):
        ships.push(Track(i))
    assert wait_until(lambda: "suspended" in gateway.stats()[0].waits_for)
    assert got == []
    there.suspend(lambda: None)
    assert wait_until(lambda: got == list(range(10)))
    (crossing,) = gateway.stats()
    assert (crossing.taken, crossing.forwarded) == (10, 10)


def test_nothing_crosses_into_a_channel_for_members_until_one_of_its_name_has_joined(
    opened: ExitStack, tmp_path: Path
) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    east = opened.enter_context(hg.Station(tmp_path / "east", domain="east"))
    east.manager.create("air.tracks", Track, owner="anna", members_only=True)
    got: list[int] = []
    east.manager.member("air.tracks", "anna").subscribe(lambda track: got.append(track.id))
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    gateway = opened.enter_context(hg.Gateway(west, east, "air.tracks"))
    for i in range(5):
        tracks.push(Track(i))
    assert wait_until(lambda: "of no member that may push" in gateway.stats()[0].waits_for)
    assert got == []
    east.manager.join("air.tracks", "gateway to east", access="supply")
    assert wait_until(lambda: got == list(range(5)))
    assert wait_until(lambda: gateway.stats()[0].forwarded == 5)


def test_an_event_of_a_supplier_for_whom_there_is_no_room_waits_and_is_not_acknowledged(
    opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    west = opened.enter_context(hg.Station(tmp_path / "west", domain="west"))
    tracks = west.channel("air.tracks", Track, qos=PERSISTENT)
    for i in range(3):
        tracks.supplier(f"supplier {i}").push(Track(i))
    with monkeypatch.context() as patch, hg.Station(tmp_path / "east", domain="east") as east:
        patch.setattr("heliograph.journal.writing.forwarded_ids.LIMIT", 2 * (SUPPLIER_BYTES + PAGE_BYTES))
        with hg.Gateway(west, east, "air.tracks", start="earliest") as gateway:
            assert wait_until(lambda: "no room" in gateway.stats()[0].waits_for)
            assert gateway.stats()[0].untold == 0
    with (
        hg.Station(tmp_path / "east", domain="east") as east,
        hg.Gateway(west, east, "air.tracks", start="earliest") as gateway,
    ):
        assert wait_until(lambda: gateway.stats()[0].forwarded >= 1 and gateway.stats()[0].under_way == 0)
        there = east.channel("air.tracks", Track)
        with there.consumer(start="earliest", until="now") as consumer:
            assert [track.id for track in consumer] == [0, 1, 2]


def test_mistakes_are_refused_where_they_are_made(opened: ExitStack) -> None:
    domains = Domains(opened, ["west", "east"])
    west, east = domains.stations["west"], domains.stations["east"]
    with hg.Station() as alone, pytest.raises(NotPossible, match="joins stations of two domains"):
        hg.Gateway(west, alone, "air.tracks")
    with pytest.raises(NotPossible, match="both stations are of domain 'west'"):
        hg.Gateway(west, domains.station("west"), "air.tracks")
    with pytest.raises(NotPossible, match="from 1 to 254"):
        hg.Gateway(west, east, "air.tracks", hops=0)
    with pytest.raises(NotPossible, match="a text"):
        hg.Gateway(west, east, "air.tracks", name="")
    with pytest.raises(hg.ExpressionError, match="height"):
        hg.Gateway(west, east, "air.tracks", where="height > 3")
    with pytest.raises(hg.InvalidEvent, match="which gateways between domains set"):
        domains.channels["west"].push(Track(1), headers={"via-domains": "east"})


def _has_forwarded(gateway: hg.Gateway, events: int) -> bool:
    return gateway.stats()[0].forwarded == events


def _all(gateways: list[hg.Gateway]) -> list[hg.CrossingStats]:
    return [crossing for gateway in gateways for crossing in gateway.stats()]
