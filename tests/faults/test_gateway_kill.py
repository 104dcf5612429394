"""`helio gateway` killed with kill -9 at random instants: what the one journal has, the other has, once."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heliograph.channel.channel import Channel

EVENTS = 2_000

FILE = """
[gateway]
name = "crossing"
start = "earliest"
[here]
domain = "west"
[there]
domain = "east"
{folder}
[[channels]]
name = "air.**"
"""


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.clean_up()


def kept(channel: Channel[Track]) -> list[tuple[int, str]]:
    """Number and id of all that a history has."""
    found = []
    with channel.consumer(start="earliest", until="now") as consumer:
        for delivery in consumer.deliveries(LIMIT):
            found.append((delivery.event.id, str(delivery.header.id)))
            if len(found) % 100 == 0:
                delivery.ack()
    return found


@pytest.mark.parametrize("keeper", ["of the gateway", "beside the gateway"])
def test_a_gateway_killed_at_any_instant_loses_nothing_and_repeats_nothing(
    keeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: list[Program]
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    own = f'folder = "{tmp_path / "east"}"' if keeper == "of the gateway" else ""
    (tmp_path / "gateway.toml").write_text(FILE.format(folder=own))
    beside = None
    if not own:
        beside = hg.Station(tmp_path / "east", domain="east", name="keeper")
        beside.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
    log = tmp_path / "acked"
    log.touch()

    def start(*arguments: str, module: str) -> Program:
        programs.append(Program(*arguments, module=module))
        return programs[-1]

    supplier = start(str(tmp_path / "west"), str(log), str(EVENTS), module="tests.faults.gateway_process")
    supplier.says("keeping")
    chance = random.Random(7)
    for _ in range(examples(5)):
        gateway = start("gateway", str(tmp_path / "gateway.toml"), module="heliograph.cli")
        gateway.says("gateway between")
        time.sleep(0.6 * chance.random())
        gateway.kill()
    supplier.says("pushed")
    acked = [int(line) for line in log.read_text().split()]
    assert acked == list(range(EVENTS))
    last = start("gateway", str(tmp_path / "gateway.toml"), module="heliograph.cli")
    last.says("gateway between")
    with hg.Station(domain="west") as west, hg.Station(domain="east") as east:
        ours = west.channel("air.tracks", Track)
        theirs = east.channel("air.tracks", Track)
        assert wait_until(lambda: sum(end for _, end in theirs.neighbours.extents().values()) >= EVENTS)
        before, after = kept(ours), kept(theirs)
    assert [number for number, _ in before] == acked
    assert after == before
    if beside is not None:
        beside.close()


def test_a_supervised_second_gateway_takes_over_when_the_first_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: list[Program]
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    (tmp_path / "gateway.toml").write_text(FILE.format(folder=""))
    with (
        hg.Station(tmp_path / "west", domain="west") as west,
        hg.Station(tmp_path / "east", domain="east") as east,
    ):
        persistent = hg.QoS(durability="persistent")
        ours, theirs = (one.channel("air.tracks", Track, qos=persistent) for one in (west, east))
        for _ in range(2):
            programs.append(Program("gateway", str(tmp_path / "gateway.toml"), module="heliograph.cli"))
            programs[-1].says("gateway between")
        for i in range(200):
            ours.push(Track(i))
            if i == 100:
                programs[0].kill()
        assert wait_until(lambda: sum(end for _, end in theirs.neighbours.extents().values()) >= 200)
        assert kept(theirs) == kept(ours)
