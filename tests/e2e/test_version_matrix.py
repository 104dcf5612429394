"""Versions of a class between processes: every change, whoever has the newer one, however events come.

Every cell gives all events, or a named error on the side that cannot read and nowhere else.
"""

from __future__ import annotations

import json
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.event_versions import (
    ALL,
    CHANGES,
    ROLES,
    STOPS,
    UNMATCHED,
    WAYS,
    as_read,
    expected_of_kept,
    expected_of_volatile,
    table,
)
from tests.e2e.link_programs import Program
from tests.e2e.link_support import TRANSPORT, own_meeting_folder
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.event_versions import Role, Version

NO_SPACE = str.maketrans({" ": "-", ",": None})
OPTIONS: dict[str, dict[str, Any]] = {
    "live": {"start": "now"},
    "history": {"until": "now"},
    "durable": {"name": "billing"},
    "group": {"group": "crew"},
}


class Actor:
    """A process with one station, which does what it is told."""

    def __init__(self, name: str, folder: str = "") -> None:
        self.program = Program(name, folder, module="tests.e2e.version_process")
        self._numbers = count(1)

    def ask(self, *words: object) -> Any:
        number = next(self._numbers)
        assert self.program.process.stdin is not None
        self.program.process.stdin.write(f"{number} {json.dumps(words)}\n")
        self.program.process.stdin.flush()
        return json.loads(self.program.says(f"{number} ").partition(" ")[2])

    def check_quiet(self) -> None:
        """Nothing was told here, and no link was lost."""
        assert self.ask("told") == [[], 1]


class Cast:
    """One process for each part: a station that keeps, two that push, one that receives."""

    def __init__(self, folder: Path) -> None:
        self.keeper = Actor("keeper", str(folder))
        self.suppliers = {"old": Actor("old"), "new": Actor("new")}
        self.receiver = Actor("receiver")

    def __iter__(self) -> Iterator[Actor]:
        return iter((self.keeper, *self.suppliers.values(), self.receiver))


@pytest.fixture(params=["socket", pytest.param("ring", marks=needs_rings)])
def cast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cast]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)
    started = Cast(tmp_path / "data")
    try:
        for actor in started:
            actor.program.says("ready")
        yield started
    finally:
        for actor in started:
            actor.program.clean_up()


@pytest.mark.timeout(300)
def test_every_cell_gives_all_events_or_a_named_error_where_they_cannot_be_read(
    cast: Cast, request: pytest.FixtureRequest
) -> None:
    lines = []
    for (name, who), cell in _cells({"kept": _kept, "volatile": _volatile}, cast):
        lines.append(f"{name:14} {who:32} {'  '.join(f'{way}: {word}' for way, word in cell.items())}")
    print(f"versions over {request.node.callspec.params['cast']}")
    print("\n".join(lines))
    assert len(lines) == 2 * len(CHANGES) * len(ROLES) - len(CHANGES)


def test_the_matrix_is_the_one_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "links.md").read_text()
    assert table() in page, f"docs/guides/links.md lacks this table:\n{table()}"


def _cells(
    kinds: dict[str, Callable[[Cast, str, str, str], dict[str, str] | None]], cast: Cast
) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    for kind, name, who in product(kinds, CHANGES, ROLES):
        cell = kinds[kind](cast, f"{kind}.{name}.{who}".translate(NO_SPACE), name, who)
        if cell is not None:
            yield (name, who), cell


def _push_all(cast: Cast, channel: str, name: str, role: Role) -> tuple[int, ...]:
    """Which of the events were refused, by name."""
    refused = []
    for number, version in enumerate(role.pushed):
        error = cast.suppliers[version].ask("push", channel, name, version, number)
        assert error in ("", "IncompatibleFormats")
        if error:
            refused.append(number)
    return tuple(refused)


def _kept(cast: Cast, channel: str, name: str, who: str) -> dict[str, str]:
    """One channel that is kept, received in every way."""
    role = ROLES[who]
    expected = expected_of_kept(CHANGES[name], role)
    cast.keeper.ask("keep", channel, name, role.keeper)
    for version in dict.fromkeys(role.pushed):
        cast.suppliers[version].ask("open", channel, name, version)
    cast.receiver.ask("open", channel, name, role.receiver)
    cast.receiver.ask("listen", channel, "live", OPTIONS["live"])
    assert _push_all(cast, channel, name, role) == expected.refused
    cell = {}
    for way in WAYS:
        if way != "live":
            cast.receiver.ask("listen", channel, way, OPTIONS[way])
        found, error = cast.receiver.ask("take", way, len(expected.events) + expected.stops)
        assert found == expected.events, (channel, way, error)
        assert error == ("IncompatibleFormats" if expected.stops else "")
        cell[way] = expected.word
        if expected.stops and way in ("durable", "group"):
            _goes_on_where_it_stopped(cast, channel, name, role, way)
    for actor in (cast.keeper, *cast.suppliers.values()):
        actor.check_quiet()
    told, connections = cast.receiver.ask("told")
    # A member of a group is told where it asks: its station keeps nothing for it.
    assert told == ["IncompatibleFormats"] * (len(WAYS) - 1 if expected.stops else 0)
    assert connections == 1
    return cell


def _goes_on_where_it_stopped(cast: Cast, channel: str, name: str, role: Role, way: str) -> None:
    """What could not be read was not acknowledged: the next one begins there, in a class that can."""
    change = CHANGES[name]
    upgraded: Version = "new" if change.reads("new", "old") else "old"
    begin = len(expected_of_kept(change, role).events)
    rest = [
        as_read(change.make(version, number), change, upgraded)
        for number, version in enumerate(role.pushed)
        if number >= begin
    ]
    station = cast.suppliers[upgraded]
    station.ask("listen", channel, way, OPTIONS[way])
    assert station.ask("take", way, len(rest)) == [rest, ""], (channel, way)


def _volatile(cast: Cast, channel: str, name: str, who: str) -> dict[str, str] | None:
    """One channel that nobody keeps, received live."""
    role = ROLES[who]
    if who == "keeper":
        return None
    expected = expected_of_volatile(CHANGES[name], role)
    for version in dict.fromkeys(role.pushed):
        cast.suppliers[version].ask("open", channel, name, version)
    cast.receiver.ask("open", channel, name, role.receiver)
    cast.receiver.ask("listen", channel, "live", {})
    for version in dict.fromkeys(role.pushed):
        assert cast.suppliers[version].ask("matched", channel) == CHANGES[name].reads(role.receiver, version)
    assert _push_all(cast, channel, name, role) == ()
    found, error = cast.receiver.ask("take", "live", len(expected.events))
    assert (sorted(found, key=lambda event: event["id"]), error) == (expected.events, "")
    # Who pushes is told too that nobody there gets it, as is who receives; and nobody else.
    told = {actor: actor.ask("told")[0] for actor in cast}
    apart = [
        version for version in dict.fromkeys(role.pushed) if not CHANGES[name].reads(role.receiver, version)
    ]
    assert told.pop(cast.receiver) == ["NotMatched"] * len(apart)
    assert told.pop(cast.keeper) == []
    assert told == {a: ["NotMatched"] * (v in apart) for v, a in cast.suppliers.items()}
    assert expected.word == (UNMATCHED if apart else ALL)
    assert expected.word != STOPS
    return {"live, not kept": expected.word}
