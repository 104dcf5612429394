"""Who comes and goes while events are dispatched: safe whatever dispatches, and however members are kept."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.channel import registry as members

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.channel.channel import Channel

LIMIT = 30.0
SUPPLIERS, EACH = 3, 30

STRATEGIES: dict[str, dict[str, Any]] = {
    "inside push": {"threads": hg.Threads("inline")},
    "one worker": {"threads": hg.Threads("pool", workers=1)},
    "four workers": {"threads": hg.Threads("pool", workers=4)},
    "bands": {"threads": hg.Threads("bands")},
    "ranked": {"dispatch": "ranked"},
    "aged": {"dispatch": "aged"},
    "deadline": {"dispatch": "deadline", "latency": 1.0},
    "acknowledged": {"ack": "delivered"},
    "kept on disk": {"durability": "persistent"},
}


class Note(hg.Event, name="note"):
    n: int


class Stays:
    """Is there from the first event to the last."""

    def __init__(self, channel: Channel[Note], **options: Any) -> None:
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        channel.subscribe(self.called, name="stays", **options)

    def called(self, note: Note, header: hg.Header) -> None:
        self.seen[header.supplier].append(note.n)


class Goes:
    """Leaves inside its first call, and has another one come in its place."""

    def __init__(self, channel: Channel[Note], calls: list[int], **options: Any) -> None:
        self._channel, self._calls, self._options = channel, calls, options
        self._number = len(calls)
        calls.append(0)
        # Called at once by whoever pushes, so that it may be before it knows its own subscription.
        self._known = threading.Event()
        self._replaced = threading.Lock()
        self._subscription = channel.subscribe(self._called, **options)
        self._known.set()

    def _called(self, _: Note) -> None:
        assert self._known.wait(LIMIT)
        self._calls[self._number] += 1
        self._subscription.close()
        if self._replaced.acquire(blocking=False):  # by the first call, and never again
            Goes(self._channel, self._calls, **self._options)


def come_and_go(channel: Channel[Note]) -> None:
    """Consumers that are asked, from another thread."""
    for _ in range(20):
        with ExitStack() as opened:
            for n in range(3):
                opened.enter_context(channel.consumer(where=f"n >= {n}", queue=100_000))


@pytest.mark.parametrize("receivers", ["merged", "indexed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_while_events_are_dispatched(
    strategy: str, receivers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In callbacks and elsewhere. Who stays gets all, in order; who leaves in a call has no second one."""
    monkeypatch.setattr(members, "MERGED", 100 if receivers == "merged" else 1)
    qos = hg.QoS(**STRATEGIES[strategy], queue=100_000)
    raised: list[BaseException] = []
    calls: list[int] = []
    with hg.Station(folder=tmp_path, on_error=lambda _name, _header, error: raised.append(error)) as station:
        channel = station.channel("c", Note, qos=qos)
        stays = Stays(channel, where="n >= 0")
        for n in range(3):
            Goes(channel, calls, where=f"n >= {-n}", start="now")
        others = threading.Thread(target=come_and_go, args=(channel,))
        others.start()
        suppliers = [channel.supplier() for _ in range(SUPPLIERS)]
        pushing = [
            threading.Thread(target=lambda s=s: [s.push(Note(n)) for n in range(EACH)]) for s in suppliers
        ]
        for thread in pushing:
            thread.start()
        for thread in pushing:
            thread.join(LIMIT)
        others.join(LIMIT)
        assert channel.settle(LIMIT)
        # A call that has left is no receiver any more, and may not have had the next one come yet.
        assert channel.wait_matched(4, LIMIT)
        assert channel.stats().balanced
    assert raised == []
    assert stays.seen == {supplier.name: list(range(EACH)) for supplier in suppliers}
    # Inside push each supplier calls for itself, so that all of them may have begun before it leaves.
    assert max(calls) <= (SUPPLIERS if strategy == "inside push" else 1)
    assert sum(calls) >= 3
