"""The file of a gateway: what it says, and where it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.cli import run
from heliograph.errors import InvalidConfiguration
from heliograph.federation.gateway_file import load
from tests.e2e.link_support import Track, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[gateway]
name = "west-east"
hops = 3
[here]
domain = "west"
[there]
domain = "east"
folder = "FOLDER"
[[channels]]
name = "air.*"
where = "id > :least"
params = { least = 1 }
both = true
"""


def test_a_file_opens_its_stations_and_what_it_says_crosses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    file = tmp_path / "gateway.toml"
    file.write_text(WHOLE.replace("FOLDER", str(tmp_path / "data")))
    got: list[int] = []
    with hg.Station(domain="west") as west, hg.Station(domain="east") as east:
        tracks = west.channel("air.tracks", Track)
        east.channel("air.tracks", Track).subscribe(lambda track: got.append(track.id))
        with hg.Gateway.from_file(file) as gateway:
            assert gateway.wait_open("air.tracks")
            assert wait_until(lambda: tracks.neighbours.remote_consumers() >= 1)
            ids = iter(range(100_000))
            assert wait_until(lambda: got or not tracks.push(Track(next(ids))))
            assert min(got) > 1
        with pytest.raises(hg.Closed):
            gateway.here.channel("air.more", Track)


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ('domain = "west"', "domain = 3", 6, "Expected `str`, got `int`"),
        ("hops = 3", "hobs = 3", 2, "unknown field `hobs`"),
        ('name = "air.*"', "", 10, "missing required field `name`"),
        ("both = true", "both = ", 14, "Invalid value"),
    ],
)
def test_a_mistake_is_refused_with_its_line(
    tmp_path: Path, before: str, after: str, line: int, says: str
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(WHOLE.replace(before, after))
    with pytest.raises(InvalidConfiguration, match=says) as caught:
        load(file)
    if says != "Invalid value":
        assert caught.value.line == line


@pytest.mark.parametrize(
    "said",
    [
        ["--here", "west"],
        ["--there", "east"],
        ["--channel", "air.*"],
        ["--where", "id > 1"],
        ["--both"],
        ["--hops", "8"],
        ["--name", "one"],
        ["--here-folder", "data"],
        ["--there-folder", "data"],
        ["--here-connect", "tcp/127.0.0.1:7447"],
        ["--there-connect", "tcp/127.0.0.1:7447"],
    ],
)
def test_the_command_refuses_each_option_that_a_file_would_overrule(
    said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("not read")
    assert run(["gateway", str(file), *said]) == 2
    assert f"leave out {said[0]}" in " ".join(capsys.readouterr().err.split())


def test_the_command_needs_a_file_or_two_domains_and_a_channel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "--here", "west"]) == 2
    assert "--here, --there and --channel" in capsys.readouterr().err
    assert run(["gateway", "nowhere.toml", "--here", "west"]) == 2
    assert run(["gateway", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
