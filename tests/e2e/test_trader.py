"""Offers of other processes: found, gone with their process, and bound anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from heliograph.errors import QueryFailed
from tests.e2e.link_process import say
from tests.e2e.link_programs import Program
from tests.e2e.link_support import own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.delivery.trader import Binding


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def test_a_service_that_is_killed_is_not_offered_and_who_was_bound_to_it_finds_another() -> None:
    programs = [Program(name, module="tests.e2e.test_trader") for name in ("r1", "r2")]
    try:
        for program in programs:
            program.says("exported")
        with hg.Station(domain="e2e") as station:
            names = [offer.name for offer in station.trader.query("kind = 'radar'")]
            assert names == ["r1", "r2"]
            told = CliRunner().invoke(app, ["offers", "kind = 'radar'", "--domain", "e2e", "--json"]).stdout
            assert [row["name"] for row in msgspec.json.decode(told)] == ["r1", "r2"]
            binding = station.trader.bind("kind = 'radar'")
            assert binding.offer().name == "r1"
            programs[0].kill()
            assert wait_until(lambda: _name(binding) == "r2")
            assert binding.rebound == 1
            assert wait_until(lambda: [offer.name for offer in station.trader.query()] == ["r2"])
    finally:
        for program in programs:
            program.clean_up()


def _name(binding: Binding) -> str:
    try:
        return binding.offer().name
    except (hg.NoOffer, QueryFailed):  # its process has ended, and that is not known yet
        return ""


if __name__ == "__main__":
    with hg.Station(domain="e2e") as exporting:
        exporting.trader.export("radar", sys.argv[1])
        say("exported")
        sys.stdin.read()
