"""Operators' commands from another process than the one that keeps the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from heliograph.errors import CursorHeld
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Program]:
    program = Program(
        "station", "--domain", "e2e", "--folder", str(tmp_path / "data"), module="heliograph.cli"
    )
    program.says("station")
    yield program
    program.clean_up()


def helio(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--domain", "e2e", "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return msgspec.json.decode(result.stdout)


def test_consumers_histories_and_dead_letters_are_operated_on_from_elsewhere(keeper: Program) -> None:
    with hg.Station(domain="e2e", on_error=lambda *_: None) as station:
        tracks = station.channel("tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(i) for i in range(10)])
        with tracks.consumer(name="billing", start="earliest", until="now") as consumer:
            assert len(list(consumer)) == 10
        told = helio("info", "tracks")
        (part,) = told["history"]
        assert (part["earliest"], part["watermark"]) == (0, 10)
        assert [(c["name"], c["behind"]) for c in part["consumers"]] == [("billing", 0)]
        assert told["types"] == ["air.track"]
        assert any(row["keeps"] for row in told["stations"])

        plain = tracks.subscribe(lambda _: None, where="id > 100", start="now")
        (receiver,) = helio("info", "tracks")["receivers"]
        assert (receiver["name"], receiver["where"]) == (plain.name, "id > 100")
        assert plain.name in CliRunner().invoke(app, ["info", "tracks", "--domain", "e2e"]).stdout
        plain.close()

        assert list(helio("consumer", "seek", "tracks", "billing", "4").values()) == [4]
        with tracks.consumer(name="billing", until="now") as consumer:
            assert [track.id for track in consumer] == [4, 5, 6, 7, 8, 9]
        with tracks.consumer(name="billing") as consumer:
            consumer.pull(0.1)
            with pytest.raises(CursorHeld):
                helio("consumer", "reset", "tracks", "billing")
        assert helio("consumer", "reset", "tracks", "billing")
        assert helio("consumer", "ls", "tracks")[0]["behind"] == 10

        broken = [True]

        def bill(track: Track) -> None:
            if broken[0]:
                raise LookupError("no account")
            done.append(track.id)

        done: list[int] = []
        tracks.subscribe(bill, group="bills", start="earliest", max_deliveries=1, dead_letter="tracks.dead")
        dead = station.channel("tracks.dead", Track, qos=hg.QoS(durability="persistent"))
        with dead.consumer(start="earliest") as letters:
            letter = next(iter(letters.deliveries(LIMIT)))
            assert letter.header.headers is not None
            assert letter.header.headers["dead.reason"] == "LookupError: no account"
        assert wait_until(lambda: helio("info", "tracks.dead")["history"][0]["watermark"] == 10)
        broken[0] = False
        assert helio("redrive", "tracks.dead") == {"tracks": 10}
        assert wait_until(lambda: sorted(done) == list(range(10)))

        with pytest.raises(hg.NotPossible, match="unread=True"):
            helio("purge", "tracks")
        assert helio("consumer", "delete", "tracks", "billing") == {"deleted": "billing"}
        assert list(helio("purge", "tracks", "--unread").values()) == [20]
        assert "offsets 20 to 20" in CliRunner().invoke(app, ["info", "tracks", "--domain", "e2e"]).stdout
