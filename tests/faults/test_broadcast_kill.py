"""kill -9 of stations that broadcast, or hear broadcasts, at random points: whoever lives gets all the rest.

A supplying station and two hearing ones are processes of their own, a third hearing one is here. In each
round some of them are stopped or killed, by a fault that is drawn beforehand, and replaced. CI kills a
handful, `make kills` 200 times and more.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pytest

import heliograph as hg
from heliograph.links.broadcast.carrier_choice import NORMAL
from heliograph.links.broadcast.reader_admission import NOT_USED
from heliograph.ring import RingFolder
from heliograph.ring.layout import FREE, MAX_READERS, ROW_PROCESS, ROW_STATE, ROW_WORDS, ROWS
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until
from tests.faults.broadcast_process import (
    CHANNEL,
    HEARERS,
    LAP,
    NUMBER,
    QOS,
    Answer,
    Heard,
    Parcel,
    parcel,
    source_of,
    sources_there,
)
from tests.ring_support import PORTS, needs_rings
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.links.broadcast.publisher import Broadcast

pytestmark = needs_rings

SEED: Final = 2_264
"""Of which the first five faults have everything: who starts, who is stopped, and two at a time."""
BATCH: Final = 50
SUPPLIER, FIRST, SECOND = "supplier", "first hearer", "second hearer"
VICTIMS: Final = ((SUPPLIER,), (FIRST,), (SECOND,), (SUPPLIER, FIRST), (FIRST, SECOND))


class Fault(NamedTuple):
    """What goes wrong in one round."""

    victims: tuple[str, ...]
    parcels: int
    """How many of the supplier are heard here before that; 0: the victims are killed while they start."""
    starting: float
    """Seconds after which those are killed."""
    stopped: str
    """Who stands still for a while before that, and until then, if anybody."""
    still: float
    """Seconds of that."""
    is_id_reused: bool
    """Whether the process ids of the dead belong to a living process at once."""


def draw(chance: random.Random) -> Fault:
    return Fault(
        chance.choice(VICTIMS),
        chance.choice([0, 1, *[chance.randrange(2, 3_000)] * 4]),
        chance.uniform(0, 0.6),
        chance.choice([SUPPLIER, FIRST, SECOND, "", "", ""]),
        chance.uniform(0, 0.2),
        chance.random() < 0.5,
    )


class Post:
    """All stations of a domain, and what has been heard here."""

    def __init__(self, domain: str, folder: Path) -> None:
        self._domain = domain
        self._folder = folder
        self._names = count()
        self._questions = count()
        self.started: dict[str, int] = {}
        """Who of two was there first: the lower number."""
        self.rings = RingFolder(domain)
        self.running: dict[str, Program] = {}
        self.heard = Heard()
        self.station = hg.Station(domain=domain, transport="ring")
        self.channel = self.station.channel(CHANNEL, Parcel, qos=QOS)
        self.channel.subscribe(self.heard.take, inline=True)
        self.pushed = 0
        """From here."""

    def start(self, role: str) -> None:
        self.started[role] = next(self._names)
        if role == SUPPLIER:
            arguments = ["supply", self._domain, str(self._mark)]
            self._mark.write_bytes(NUMBER.pack(0))
        else:
            arguments = ["hear", self._domain, "inline" if role == FIRST else "queued"]
        self.running[role] = Program(*arguments, module="tests.faults.broadcast_process")

    @property
    def _mark(self) -> Path:
        return self._folder / "mark"

    def mark(self) -> int:
        """How many parcels the supplier that is there, or was, knows to be in its ring."""
        number: int = NUMBER.unpack(self._mark.read_bytes())[0]
        return number

    def source(self, role: str) -> str:
        return self.running[role].says("source").split()[1]

    def kill(self, role: str) -> Program:
        victim = self.running.pop(role)
        victim.kill()
        return victim

    def push_a_lap(self) -> None:
        """More than the ring holds, so that whoever is waited for has read, or is dead."""
        for number in range(self.pushed, self.pushed + LAP, BATCH):
            self.channel.push_many([parcel(source_of(self.station), number + i) for i in range(BATCH)])
            self.pushed += BATCH

    def ask(self, role: str) -> Answer:
        """What a hearer has heard by now."""
        question = f"answer-{next(self._questions)} "
        stdin = self.running[role].process.stdin
        assert stdin is not None
        stdin.write(question + "\n")
        stdin.flush()
        return msgspec.json.decode(self.running[role].says(question).partition(" ")[2], type=Answer)

    def has_heard(self, role: str, source: str, parcels: int) -> bool:
        span = self.ask(role).spans.get(source)
        return span is not None and span.following == parcels

    def has_forgotten(self, role: str, dead: set[str]) -> bool:
        return dead.isdisjoint(self.ask(role).stations)

    def hearers(self) -> list[str]:
        return [role for role in self.running if role != SUPPLIER]

    def living(self) -> set[str]:
        return {source_of(self.station), *filter(None, map(name_of, self.running.values()))}

    @property
    def broadcast(self) -> Broadcast:
        assert self.station.mesh is not None
        return self.station.mesh._airing._broadcasts[NORMAL]

    def places(self) -> dict[int, int]:
        """The rows of readers that are not free, by where in the ring the reader's process id stands."""
        words = self.broadcast.ring._words
        rows = [ROWS + row * ROW_WORDS for row in range(MAX_READERS)]
        return {row + ROW_PROCESS: words[row + ROW_PROCESS] for row in rows if words[row + ROW_STATE] != FREE}

    def carriers(self) -> set[str]:
        """To all that want something."""
        assert self.station.mesh is not None
        carriers = self.station.mesh.carriers(CHANNEL)
        return {one.carrier for one in carriers if one.reason != NOT_USED}

    def ring_owners(self) -> set[str]:
        return {path.name.partition("-")[0] for path in self.rings.path.iterdir()}

    def close(self) -> None:
        for program in self.running.values():
            program.clean_up()
        self.station.close()
        assert wait_until(lambda: not self.rings.rings())
        self.rings.leave()
        assert not self.rings.path.exists()


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Post]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Post(f"test-{PORTS.random.id64():016x}", tmp_path)
    yield made
    made.close()


def reuse_ids(post: Post, dead: set[int]) -> None:
    """As if processes that live had the ids of the dead: in the rows that those left in the ring."""
    for place, process in post.places().items():
        if process in dead:
            post.broadcast.ring._words[place] = os.getppid()


def begin(post: Post, fault: Fault) -> None:
    """Have everybody there, and the fault's number of parcels heard."""
    for role in (FIRST, SECOND, SUPPLIER):
        if role not in post.running:
            post.start(role)
    if not fault.parcels:
        time.sleep(fault.starting)
        return
    assert post.channel.wait_matched(HEARERS, 3 * LIMIT)
    assert wait_until(lambda: post.carriers() == {"ring"})
    source = post.source(SUPPLIER)
    enough = post.heard.following(source) + fault.parcels
    assert wait_until(lambda: post.heard.following(source) >= enough, 3 * LIMIT)


def strike(post: Post, fault: Fault) -> dict[str, Program]:
    """Stop and kill; those who were killed. Who is only stopped goes on afterwards, with much to read."""
    if fault.stopped:
        post.running[fault.stopped].process.send_signal(signal.SIGSTOP)
        time.sleep(fault.still)
    dead = {role: post.kill(role) for role in fault.victims}
    if fault.stopped in post.running:
        post.running[fault.stopped].process.send_signal(signal.SIGCONT)
    if fault.is_id_reused:
        reuse_ids(post, hearer_ids(dead))
    return dead


def hearer_ids(dead: dict[str, Program]) -> set[int]:
    """The process ids of dead hearers; who only supplies would miss nothing, and is not waited for."""
    return {program.process.pid for role, program in dead.items() if role != SUPPLIER}


def name_of(program: Program) -> str | None:
    """Its station, if it came to have one."""
    return next((line.split()[1] for line in list(program.said) if line.startswith("source")), None)


def check_the_dead_are_forgotten(post: Post, dead: set[str]) -> None:
    assert wait_until(lambda: not dead & sources_there(post.station))
    for role in post.hearers():
        assert wait_until(partial(post.has_forgotten, role, dead)), role
    assert wait_until(lambda: post.ring_owners() <= post.living()), "nothing of the dead is in the folder"


def check_all_heard_the_same(post: Post, source: str, mark: int) -> int:
    """All who live have heard the same of a station that is dead, and all that was in its ring; how much."""
    heard = post.heard.following(source)
    assert heard >= mark
    for role in post.hearers():
        is_old = post.started[role] < post.started[SUPPLIER]  # then it was there for the first parcel
        span = post.ask(role).spans.get(source)
        if heard and (is_old or span is not None):
            assert wait_until(partial(post.has_heard, role, source, heard)), role
            assert not is_old or post.ask(role).spans[source].first == 0
    return heard


def check_nobody_is_held_up(post: Post, dead: set[int]) -> None:
    """Everybody gets more than a ring holds; then the dead, by process id, have no place in it."""
    assert post.channel.wait_matched(1 + len(post.hearers()), 3 * LIMIT)
    post.push_a_lap()
    source = name_of(post.running[SUPPLIER]) if SUPPLIER in post.running else None
    begun = 0 if source is None else post.heard.following(source)
    if source is not None and begun:
        assert wait_until(lambda: post.heard.following(source) >= begun + LAP, 3 * LIMIT)
    for role in post.hearers():
        assert wait_until(partial(post.has_heard, role, source_of(post.station), post.pushed), 3 * LIMIT), (
            role
        )
    if post.hearers():  # else it was for nobody, and not written
        assert not {*dead, os.getppid()} & set(post.places().values()), "whoever has their ids by now"


def check_nothing_is_wrong(post: Post) -> None:
    assert post.heard.wrong == []
    assert post.channel.stats().balanced
    for role in post.hearers():
        answer = post.ask(role)
        assert answer.wrong == []
        assert answer.balanced


def test_whoever_is_killed_the_others_hear_all_the_rest_once_and_in_order(post: Post) -> None:
    chance = random.Random(SEED)
    kills: Counter[str] = Counter()
    parcels = 0
    for number in range(examples(5)):
        fault = draw(chance)
        print(f"round {number}:", fault)  # pytest shows it when the round fails
        begin(post, fault)
        dead = strike(post, fault)
        kills.update(list(dead))
        names = {name for program in dead.values() if (name := name_of(program)) is not None}
        check_the_dead_are_forgotten(post, names)
        if SUPPLIER in dead and (source := name_of(dead[SUPPLIER])) is not None:
            parcels += check_all_heard_the_same(post, source, post.mark())
        check_nobody_is_held_up(post, hearer_ids(dead))
        check_nothing_is_wrong(post)
        for program in dead.values():
            program.clean_up()
    print(f"killed {dict(kills)}; {parcels} parcels of dead suppliers and {post.pushed} from here")
