"""Ctrl-C, or a push out of a signal handler, at every instant of a push and of a pull."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.interrupts import Instants, Interrupt, interrupt
from tests.support import EXAMPLES_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT = 15.0

pytestmark = pytest.mark.plain_locks


class Track(hg.Event, name="interrupts.track", key="id"):
    id: int
    note: str = ""


@dataclass
class Scene:
    """A channel, what is done with it again and again, and what has come out of it."""

    channel: hg.Channel[Track]
    act: Callable[[], object]
    pull: Callable[[], object] = lambda: None
    """Empties what has no callback."""
    got: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    """Of what the channel's own supplier pushed, as it was delivered; where they are looked at."""

    def is_well(self) -> str:
        """What is wrong with it; empty when every lock is free, all is delivered and the ledger balances."""
        return in_time(self._look, "stuck")

    def _look(self) -> str:
        try:
            self.pull()
            self.channel.push(Track(-1))
            self.pull()
            for receiver in self.channel.receivers():
                queue = getattr(receiver, "queue", None)
                if queue is not None and not queue.wait_empty(LIMIT / 2):
                    return f"{receiver.name} keeps {queue.counts()}"
            stats = self.channel.stats()
        except BaseException as error:  # noqa: BLE001 - it is what is wrong
            return repr(error)
        if self.sequences != sorted(self.sequences):
            return f"delivered in the order {self.sequences[-10:]}"
        return "" if stats.balanced else f"matched {stats.matched}, total {stats.total}"


def in_time(call: Callable[[], str], stuck: str) -> str:
    """What a call says, in a thread of its own, or else this."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(call()), daemon=True)
    thread.start()
    thread.join(LIMIT)
    return said[0] if said else stuck


def one_callback(station: hg.Station) -> Scene:
    channel = station.channel("one", Track)
    scene = Scene(channel, lambda: channel.push(Track(1)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def several_callbacks(station: hg.Station) -> Scene:
    channel = station.channel("several", Track)
    scene = Scene(channel, lambda: channel.push(Track(1)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    channel.subscribe(lambda _: None, where="id > 0")
    channel.subscribe(lambda _: None, inline=True)
    consumers = [
        channel.consumer(overflow="drop_oldest", queue=2),
        channel.consumer(overflow="drop_newest", queue=2),
        channel.consumer(overflow="coalesce", queue=2),
        channel.consumer(dispatch="aged", overflow="drop_oldest", queue=2),
    ]
    scene.pull = lambda: [consumer.read(10, timeout=0) for consumer in consumers]
    return scene


def of_priorities(station: hg.Station) -> Scene:
    channel = station.channel("priorities", Track)
    scene = Scene(channel, lambda: (channel.push(Track(1), priority=2), channel.push(Track(1), priority=5)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def kept_for_late_joiners(station: hg.Station) -> Scene:
    channel = station.channel("late", Track, qos=hg.QoS(durability="transient-local", history=2))
    scene = Scene(channel, lambda: channel.push(Track(1)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def together(station: hg.Station) -> Scene:
    channel = station.channel("together", Track)
    scene = Scene(channel, lambda: channel.push_many([Track(1), Track(2), Track(3)]))
    channel.subscribe(lambda track: scene.got.append(track.id))
    channel.subscribe(lambda _: None, where="id > 1")
    return scene


def in_one_batch(station: hg.Station) -> Scene:
    channel = station.channel("batch", Track)
    scene = Scene(channel, lambda: channel.push_many([Track(1), Track(2), Track(3)]))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def full(station: hg.Station) -> Scene:
    channel = station.channel("full", Track, qos=hg.QoS(queue=1, max_blocking=0.001))
    consumer = channel.consumer()

    def act() -> None:
        for _ in range(2):
            with suppress(hg.errors.QueueFull):
                channel.push(Track(1))
        consumer.read(10, timeout=0)

    return Scene(channel, act, lambda: consumer.read(10, timeout=0))


def pulled(station: hg.Station) -> Scene:
    channel = station.channel("pulled", Track)
    consumer = channel.consumer()

    def act() -> None:
        channel.push_many([Track(1), Track(2), Track(3)])
        consumer.read(10, timeout=0)

    return Scene(channel, act, lambda: consumer.read(100, timeout=0))


def with_acks(station: hg.Station) -> Scene:
    channel = station.channel("acks", Track)
    consumers = [channel.consumer(ack="manual")]

    def act() -> None:
        channel.push(Track(1))
        for delivery in consumers[0].deliveries(timeout=0):
            delivery.ack()

    def anew() -> None:
        """What was handed out when the interrupt came waits for an acknowledgement that nobody can give."""
        consumers[0].close()
        consumers[0] = channel.consumer(ack="manual")

    return Scene(channel, act, anew)


def waited_for(station: hg.Station) -> Scene:
    channel = station.channel("waited", Track, qos=hg.QoS(ack="delivered"))
    scene = Scene(channel, lambda: channel.push(Track(1)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def on_disk(station: hg.Station) -> Scene:
    channel = station.channel("kept", Track, qos=hg.QoS(durability="persistent"))
    scene = Scene(channel, lambda: channel.push(Track(1)))
    channel.subscribe(lambda track: scene.got.append(track.id))
    return scene


def on_disk_and_waited_for(station: hg.Station) -> Scene:
    channel = station.channel("kept-waited", Track, qos=hg.QoS(durability="persistent", ack="delivered"))
    scene = Scene(channel, lambda: channel.push(Track(1)))

    def note(_: Track, header: hg.Header) -> None:
        scene.sequences.append(header.sequence)

    channel.subscribe(note)
    return scene


def separated(station: hg.Station) -> Scene:
    channel = station.channel("separated", Track)
    channel.supplier().every(3600.0, lambda: None)  # so that the task of the timers is there
    scene = Scene(channel, lambda: (channel.push(Track(1)), channel.push(Track(1))))
    channel.subscribe(lambda track: scene.got.append(track.id), separation=0.001)
    return scene


def separated_and_pulled(station: hg.Station) -> Scene:
    channel = station.channel("separated-pulled", Track)
    channel.supplier().every(3600.0, lambda: None)  # so that the task of the timers is there
    consumer = channel.consumer(separation=0.001)

    def act() -> None:
        channel.push_many([Track(1), Track(1), Track(2)])
        consumer.read(10, timeout=0)

    def pull() -> None:
        """What is held back passes in a millisecond; a key of which it does not is held for ever."""
        channel.push_many([Track(1), Track(2)])
        found: set[int] = set()
        while not found >= {1, 2}:
            track = consumer.pull(LIMIT / 4)
            assert track is not None, f"only {found}, {consumer.counts()}"
            found.add(track.id)
        while consumer.counts().pending and consumer.pull(LIMIT / 4):
            pass
        assert consumer.pull(0) is None

    return Scene(channel, act, pull)


SCENES = (
    one_callback,
    several_callbacks,
    of_priorities,
    kept_for_late_joiners,
    together,
    in_one_batch,
    full,
    pulled,
    with_acks,
    waited_for,
    on_disk,
    on_disk_and_waited_for,
    separated,
    separated_and_pulled,
)


STRIDES: dict[Callable[[hg.Station], Scene], int] = (
    {} if EXAMPLES_FACTOR > 1 else {with_acks: 9, separated_and_pulled: 4}
)
"""Where there are many instants CI looks at some of them."""


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_interrupt_at_any_instant_leaves_locks_free_and_the_ledger_balanced(
    scene: Callable[[hg.Station], Scene], tmp_path: Path
) -> None:
    assert list(broken(scene, tmp_path, lambda _: interrupt)) == []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_push_out_of_a_signal_handler_is_served_or_refused_at_any_instant(
    scene: Callable[[hg.Station], Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "heliograph.runtime.ports.INSIDE", 0.2
    )  # each instant at which a push is refused takes so long

    def handler(played: Scene) -> Callable[[], object]:
        def push() -> None:
            with suppress(hg.errors.HeliographError):
                played.channel.push(Track(7))

        return push

    assert list(broken(scene, tmp_path, handler)) == []


def broken(
    scene: Callable[[hg.Station], Scene], folder: Path, acts: Callable[[Scene], Callable[[], object]]
) -> Iterator[str]:
    """Where something that happens in the middle of what a scene does leaves it broken."""
    station, at, found = hg.Station(folder / "0"), 0, 0
    while found < 12:
        if not at:
            played = scene(station)
            played.act()  # what is made once is made
        instants = Instants(at, acts(played))
        wrong = in_time(partial(act, instants, played), "the call itself is stuck") or played.is_well()
        if wrong:
            found += 1
            yield f"{at} {instants.where}: {wrong}"
            station = hg.Station(folder / str(at + 1))
            played = scene(station)
            played.act()
        if instants.where is None:
            break
        at += STRIDES.get(scene, 1)
    if not found:
        station.close()


def act(instants: Instants, played: Scene) -> str:
    with suppress(Interrupt):
        instants.run(played.act)
    return ""
