"""Versions of a class in any order, through keepers that are started again: each event once, none skipped."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heliograph as hg
from tests.e2e.event_versions import CHANGES, as_read, plain
from tests.e2e.link_support import LIMIT
from tests.support import examples

if TYPE_CHECKING:
    from tests.e2e.event_versions import Change, Version

KEPT = hg.QoS(durability="persistent")
VERSIONS: tuple[Version, ...] = ("old", "new")
GOING_TOGETHER = [name for name, change in CHANGES.items() if change.goes_together]

batches = st.lists(st.tuples(st.sampled_from(VERSIONS), st.integers(1, 7)), min_size=1, max_size=6)
lives = st.lists(st.tuples(st.sampled_from((None, *VERSIONS)), batches), min_size=1, max_size=3)


class Readers:
    """Durable consumers of each version and of none, one of whom is in a group, and what they have got."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.pushed: list[Version] = []
        self.got: dict[tuple[Version | None, str], list[dict[str, Any]]] = {
            (version, how): [] for version in (None, *VERSIONS) for how in ("name", "group")
        }

    def take(self, station: hg.Station, version: Version | None, how: str) -> None:
        """Take all that can be, in a station of that version; then it must stop where the oracle says."""
        pushed = self.pushed
        readable = next(
            (place for place, writer in enumerate(pushed) if not self.change.reads(version, writer)),
            len(pushed),
        )
        classes = () if version is None else (self.change.cls(version),)
        got = self.got[version, how]
        opened: hg.Channel[Any] = station.channel("x", *classes)
        reader: dict[str, Any] = {how: f"{version}"}
        with opened.consumer(start="earliest", **reader) as consumer:
            while len(got) < readable:
                event = consumer.pull(LIMIT)
                assert event is not None, (version, how, len(got), readable)
                got.append(plain(event))
            if readable < len(pushed):
                for _ in range(2):
                    try:
                        event = consumer.pull(LIMIT)
                    except hg.IncompatibleFormats:
                        continue
                    raise AssertionError(f"{version} {how} got {event}, and cannot read {pushed[readable]}")
            else:
                assert consumer.pull(0) is None


@given(st.sampled_from(GOING_TOGETHER), lives, st.sampled_from(["socket", "ring"]))
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_receiver_gets_what_it_can_read_once_and_in_order_and_stops_where_it_cannot(
    name: str, lives: list[tuple[Version | None, list[tuple[Version, int]]]], transport: Any
) -> None:
    change, readers = CHANGES[name], Readers(CHANGES[name])
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        run.mkdir(mode=0o700)
        before, os.environ["XDG_RUNTIME_DIR"] = os.environ.get("XDG_RUNTIME_DIR"), str(run)
        try:
            for kept_in, batches in lives:
                _live(Path(folder, "data"), readers, kept_in, batches, transport)
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before
    for (version, how), got in readers.got.items():
        numbers = range(len(got))
        expected = [as_read(change.make(readers.pushed[n], n), change, version) for n in numbers]
        assert got == expected, (version, how)


def _live(
    folder: Path,
    readers: Readers,
    kept_in: Version | None,
    batches: list[tuple[Version, int]],
    transport: Any,
) -> None:
    """One life of a keeper, with a class of its own or without."""
    change, pushed = readers.change, readers.pushed
    more: dict[str, Any] = {"domain": "v", "transport": transport, "on_error": lambda *_: None}
    with (
        hg.Station(folder, **more) as keeper,
        hg.Station(**more) as old,
        hg.Station(**more) as new,
        hg.Station(**more) as tool,
    ):
        if kept_in is None:
            keeper.keep_for_others()
        else:
            keeper.channel("x", change.cls(kept_in), qos=KEPT)
        stations: dict[Version | None, hg.Station] = {"old": old, "new": new, None: tool}
        for version in VERSIONS:
            stations[version].channel("x", change.cls(version), qos=KEPT)
        live: hg.Consumer[Any] = new.channel("x").consumer(start="now")
        for version, number in batches:
            channel: hg.Channel[Any] = stations[version].channel("x")
            events = [change.make(version, len(pushed) + n) for n in range(number)]
            if number % 2:
                for event in events:
                    assert channel.push(event)
            else:
                assert channel.push_many(events)
            pushed += [version] * number
            for _ in range(number):
                assert live.pull(LIMIT) is not None  # whoever has the newer class reads both
            for reader, how in readers.got:
                if (number + len(pushed)) % 3 or (version, number) == batches[-1]:
                    readers.take(stations[reader], reader, how)
