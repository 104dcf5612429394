"""Mistakes of a first program: what is refused says what to write instead."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.derived.derivations import Derivations
from heliograph.errors import Closed, FormatError, InvalidConfiguration
from tests.e2e.link_support import LIMIT, Track, free_endpoint, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


def test_a_folder_that_is_a_file_or_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "events.py").touch()
    with pytest.raises(hg.NotPossible, match=r"events\.py: is a file: "):
        hg.Station(tmp_path / "events.py")
    with pytest.raises(hg.NotPossible, match="/proc/x: no folder can be made there"):
        hg.Station("/proc/x")


def test_a_configuration_file_that_is_not_there_has_no_line() -> None:
    with pytest.raises(InvalidConfiguration, match=r"^nofile\.toml: there is no such file$"):
        hg.Station(config="nofile.toml")


def test_an_option_of_an_event_class_that_is_misspelled_is_guessed() -> None:
    options: Any = {"keys": "a"}
    with pytest.raises(FormatError, match="there is no option keys=; did you mean key="):

        class Misspelled(hg.Event, **options):
            a: int


def test_a_channel_that_is_taken_for_a_consumer_names_the_consumer() -> None:
    with hg.Station() as station:
        channel: Any = station.channel("air.tracks", Track)
        with pytest.raises(TypeError, match=r"for event in channel\.consumer\(\)"):
            iter(channel)
        with pytest.raises(TypeError, match=r"with channel\.consumer\(\)"), channel:
            pass
        with pytest.raises(TypeError, match="a filter goes into where="):
            channel.subscribe(print, "speed > 3")
        with pytest.raises(hg.ExpressionError, match="is empty; leave out where="):
            channel.subscribe(print, where=" ")
        with pytest.raises(hg.ExpressionError, match="leave out SELECT"):
            channel.derive("SELECT id, speed")


def test_a_port_that_is_taken_is_named_with_what_finds_out_more() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp/127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(hg.NotPossible) as found:
            hg.Station(domain="air", listen=endpoint)
    said = f"{endpoint}: another program listens there: helio doctor --listen {endpoint}"
    assert str(found.value) == said


def test_one_endpoint_needs_no_list() -> None:
    endpoint = free_endpoint()
    with hg.Station(domain="air", listen=endpoint) as one, hg.Station(domain="air", connect=endpoint) as two:
        assert one.mesh is not None
        assert two.mesh is not None
        assert two.mesh.meet({one.id}, LIMIT)


def test_a_gateway_says_once_which_channel_its_filter_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    with hg.Station(domain="west") as west, hg.Station(domain="east") as east:
        west.channel("air.tracks", Track)
        with hg.Gateway(west, east, "air.**", where="tmp > 10") as gateway:
            assert wait_until(lambda: "tmp" in gateway.stats()[0].waits_for)
        said = [line for line in caplog.messages if "does not cross" in line]
        assert len(said) == 1
        assert said[0].startswith("air.tracks does not cross from west to east: ")
        assert "tmp" in said[0]
        with pytest.raises(hg.NotPossible, match="where=, params= and both= are of channels"):
            hg.Gateway(west, east, where="speed > 3")


def test_a_derivation_of_a_channel_that_closes_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []

    def closes(_: Derivations, derivation: Any) -> None:
        tried.append(str(derivation))
        raise Closed("channel air.tracks")

    monkeypatch.setattr(Derivations, "_open_for_others", closes)
    with hg.Station(domain="air") as source, hg.Station(domain="air") as other:
        source.channel("air.tracks", Track)
        other.channel("air.tracks", Track).derive("id, speed * 2 AS twice")
        assert wait_until(lambda: tried)
    assert tried[0] == "id, twice of air.tracks"
    assert caplog.messages == []
