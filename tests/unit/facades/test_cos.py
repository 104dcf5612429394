"""The CORBA face: what the OMG text says of connecting, pushing, pulling, disconnecting and destroying."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import AlreadyConnected, BadParam, Closed, Disconnected, ObjectNotExist
from heliograph.facades import cos

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 10.0


class Peer:
    """All four kinds of peer in one; remembers what it was told."""

    def __init__(self) -> None:
        self.got: queue.Queue[Any] = queue.Queue()
        self.offered: queue.Queue[Any] = queue.Queue()
        self.told: list[str] = []

    def push(self, data: Any) -> None:
        self.got.put(data)

    def pull(self) -> Any:
        data = self.offered.get(timeout=LIMIT)
        if isinstance(data, Exception):
            raise data
        return data

    def try_pull(self) -> tuple[Any, bool]:
        raise NotImplementedError

    def disconnect_push_consumer(self) -> None:
        self.told.append("push consumer")

    def disconnect_push_supplier(self) -> None:
        self.told.append("push supplier")

    def disconnect_pull_supplier(self) -> None:
        self.told.append("pull supplier")

    def disconnect_pull_consumer(self) -> None:
        self.told.append("pull consumer")


class Track(hg.Event, name="cos.track"):
    id: int


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station() as station:
        yield station


@pytest.fixture
def events(station: hg.Station) -> cos.EventChannel:
    return cos.EventChannel(station, "alarms")


def entry(events: cos.EventChannel, peer: Peer | None = None) -> cos.ProxyPushConsumer:
    proxy = events.for_suppliers().obtain_push_consumer()
    proxy.connect_push_supplier(peer)
    return proxy


def test_every_consumer_gets_every_event_whichever_way_they_are_joined(events: cos.EventChannel) -> None:
    """Push to push and pull, pull to push and pull."""
    pushed, pulling, source = Peer(), Peer(), Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(pushed)
    out = events.for_consumers().obtain_pull_supplier()
    out.connect_pull_consumer(pulling)
    events.for_suppliers().obtain_pull_consumer().connect_pull_supplier(source)
    entry(events).push({"level": 3})
    source.offered.put([1, 2.5, None])
    source.offered.put(Disconnected("source"))
    assert sorted(map(str, (pushed.got.get(timeout=LIMIT), pushed.got.get(timeout=LIMIT)))) == [
        "[1, 2.5, None]",
        "{'level': 3}",
    ]
    assert sorted(map(str, (out.pull(), out.pull()))) == ["[1, 2.5, None]", "{'level': 3}"]
    assert out.try_pull() == (None, False)


def test_a_face_of_a_typed_channel_carries_its_events(station: hg.Station) -> None:
    tracks = station.channel("tracks", Track)
    events = cos.EventChannel(tracks)
    peer = Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(peer)
    entry(events).push(Track(7))
    tracks.push(Track(8))
    assert [peer.got.get(timeout=LIMIT).id for _ in range(2)] == [7, 8]


def test_a_supplier_may_push_though_nobody_is_there(events: cos.EventChannel) -> None:
    entry(events).push("into the void")
    peer = Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(peer)
    entry(events).push("to the peer")
    assert peer.got.get(timeout=LIMIT) == "to the peer"  # and what nobody heard does not come later


CONNECT = {
    "obtain_push_supplier": "connect_push_consumer",
    "obtain_pull_supplier": "connect_pull_consumer",
    "obtain_push_consumer": "connect_push_supplier",
    "obtain_pull_consumer": "connect_pull_supplier",
}


def obtained(
    events: cos.EventChannel, how: str
) -> tuple[Any, Callable[[Any], None], Callable[[], None], str]:
    """A proxy, how to connect and disconnect it, and what its peer is told then."""
    admin: Any = events.for_consumers() if how.endswith("supplier") else events.for_suppliers()
    proxy = getattr(admin, how)()
    own = how.removeprefix("obtain_")
    peer = CONNECT[how].removeprefix("connect_")
    return proxy, getattr(proxy, CONNECT[how]), getattr(proxy, f"disconnect_{own}"), peer.replace("_", " ")


@pytest.mark.parametrize("how", CONNECT)
def test_a_proxy_takes_one_peer(events: cos.EventChannel, how: str) -> None:
    _, connect, _, _ = obtained(events, how)
    peer = Peer()
    connect(peer)
    with pytest.raises(AlreadyConnected):
        connect(Peer())
    peer.offered.put(Disconnected("peer"))


@pytest.mark.parametrize("how", CONNECT)
def test_where_it_is_enabled_another_peer_may_take_the_place_of_the_first(
    station: hg.Station, how: str
) -> None:
    events = cos.EventChannel(station, "alarms", reconnect=True)
    _, connect, disconnect, told = obtained(events, how)
    first, second = Peer(), Peer()
    connect(first)
    connect(second)
    first.offered.put(Disconnected("first"))
    disconnect()
    assert (first.told, second.told) == ([], [told])
    with pytest.raises(ObjectNotExist):
        connect(first)
    second.offered.put(Disconnected("second"))


def test_a_consumer_that_took_the_place_of_another_gets_what_comes_from_then_on(station: hg.Station) -> None:
    events = cos.EventChannel(station, "alarms", reconnect=True)
    proxy = events.for_consumers().obtain_push_supplier()
    first, second = Peer(), Peer()
    push = entry(events)
    proxy.connect_push_consumer(first)
    push.push(1)
    assert first.got.get(timeout=LIMIT) == 1
    proxy.connect_push_consumer(second)
    push.push(2)
    assert second.got.get(timeout=LIMIT) == 2
    assert first.got.empty()


def test_a_supplier_that_took_the_place_of_another_is_pulled_from(station: hg.Station) -> None:
    events = cos.EventChannel(station, "alarms", reconnect=True)
    proxy = events.for_suppliers().obtain_pull_consumer()
    got, first, second = Peer(), Peer(), Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(got)
    proxy.connect_pull_supplier(first)
    proxy.connect_pull_supplier(second)
    second.offered.put("from the second")
    assert got.got.get(timeout=LIMIT) == "from the second"
    first.offered.put(Disconnected("first"))  # which ends nothing but itself
    second.offered.put("still there")
    assert got.got.get(timeout=LIMIT) == "still there"
    second.offered.put(Disconnected("second"))


@pytest.mark.parametrize("how", ["obtain_push_supplier", "obtain_pull_consumer"])
def test_a_peer_that_events_come_from_or_go_to_cannot_be_nil(events: cos.EventChannel, how: str) -> None:
    _, connect, _, _ = obtained(events, how)
    with pytest.raises(BadParam):
        connect(None)
    peer = Peer()
    connect(peer)  # the refusal left nothing behind
    peer.offered.put(Disconnected("peer"))


@pytest.mark.parametrize("how", ["obtain_pull_supplier", "obtain_push_consumer"])
def test_a_peer_that_calls_us_may_be_nil_and_is_connected_all_the_same(
    events: cos.EventChannel, how: str
) -> None:
    _, connect, disconnect, _ = obtained(events, how)
    connect(None)
    with pytest.raises(AlreadyConnected):
        connect(None)
    disconnect()


@pytest.mark.parametrize("how", CONNECT)
def test_disconnecting_tells_the_peer_once_and_a_second_time_raises(
    events: cos.EventChannel, how: str
) -> None:
    _, connect, disconnect, told = obtained(events, how)
    peer = Peer()
    connect(peer)
    disconnect()
    assert peer.told == [told]
    with pytest.raises(ObjectNotExist):
        disconnect()
    with pytest.raises(ObjectNotExist):
        connect(Peer())
    assert peer.told == [told]
    peer.offered.put(Disconnected("peer"))


def test_pushing_and_pulling_need_a_connection(events: cos.EventChannel) -> None:
    push = events.for_suppliers().obtain_push_consumer()
    pull = events.for_consumers().obtain_pull_supplier()
    with pytest.raises(Disconnected):
        push.push("x")
    with pytest.raises(Disconnected):
        pull.try_pull()
    push.connect_push_supplier(None)
    pull.connect_pull_consumer(None)
    push.disconnect_push_consumer()
    pull.disconnect_pull_supplier()
    with pytest.raises(Disconnected):
        push.push("x")
    with pytest.raises(Disconnected):
        pull.pull()


def test_who_waits_in_pull_is_released_by_a_disconnect(events: cos.EventChannel, station: hg.Station) -> None:
    proxy = events.for_consumers().obtain_pull_supplier()
    proxy.connect_pull_consumer(None)
    outcome: queue.Queue[str] = queue.Queue()

    def wait() -> None:
        try:
            proxy.pull()
        except Disconnected:
            outcome.put("disconnected")

    station.channel("alarms").ports.tasks.spawn("waiting", wait)
    proxy.disconnect_pull_supplier()
    assert outcome.get(timeout=LIMIT) == "disconnected"


def test_a_consumer_that_raises_disconnected_is_dropped_and_the_others_go_on(
    events: cos.EventChannel,
) -> None:
    class Leaving(Peer):
        def push(self, data: Any) -> None:
            super().push(data)
            raise Disconnected("leaving")

    leaving, staying = Leaving(), Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(leaving)
    events.for_consumers().obtain_push_supplier().connect_push_consumer(staying)
    push = entry(events)
    for n in range(3):
        push.push(n)
        assert staying.got.get(timeout=LIMIT) == n
    events.channel.settle(LIMIT)
    assert list(leaving.got.queue) == [0]
    assert leaving.told == []


def test_a_peer_may_disconnect_itself_from_inside_its_callback(events: cos.EventChannel) -> None:
    proxy = events.for_consumers().obtain_push_supplier()

    class Once(Peer):
        def push(self, data: Any) -> None:
            proxy.disconnect_push_supplier()
            super().push(data)

    once = Once()
    proxy.connect_push_consumer(once)
    push = entry(events)
    push.push("first")
    assert once.got.get(timeout=LIMIT) == "first"
    push.push("second")
    events.channel.settle(LIMIT)
    assert once.got.empty()
    assert once.told == ["push consumer"]


def test_destroying_tells_every_peer_and_nothing_exists_afterwards(events: cos.EventChannel) -> None:
    peers = {how: Peer() for how in CONNECT}
    proxies = {}
    for how, peer in peers.items():
        proxies[how], connect, _, _ = obtained(events, how)
        connect(peer)
    admin = events.for_consumers()
    unused = admin.obtain_push_supplier()
    events.destroy()
    assert [peer.told for peer in peers.values()] == [
        ["push consumer"], ["pull consumer"], ["push supplier"], ["pull supplier"],
    ]  # fmt: skip
    for call in (events.destroy, events.for_consumers, events.for_suppliers, admin.obtain_push_supplier):
        with pytest.raises(ObjectNotExist):
            call()
    with pytest.raises(ObjectNotExist):
        proxies["obtain_push_consumer"].push("x")
    with pytest.raises(ObjectNotExist):
        unused.connect_push_consumer(Peer())
    with pytest.raises(Closed):
        events.channel.push(cos.AnyEvent(1))
    peers["obtain_pull_consumer"].offered.put(Disconnected("peer"))


def test_a_peer_that_fails_while_it_is_disconnected_hurts_nobody(
    events: cos.EventChannel, caplog: pytest.LogCaptureFixture
) -> None:
    class Rude(Peer):
        def disconnect_push_consumer(self) -> None:
            raise RuntimeError("never")

    other = Peer()
    events.for_consumers().obtain_push_supplier().connect_push_consumer(Rude())
    events.for_consumers().obtain_push_supplier().connect_push_consumer(other)
    events.destroy()
    assert other.told == ["push consumer"]
    assert "RuntimeError: never" in caplog.text


def test_a_channel_is_needed_or_a_name(station: hg.Station) -> None:
    with pytest.raises(BadParam, match="a station and a name"):
        cos.EventChannel(station)
