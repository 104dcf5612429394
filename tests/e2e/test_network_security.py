"""Stations of different hosts that show certificates: whose are wrong, expired or missing are not let in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.errors import NotPossible
from heliograph.links import keys
from tests.e2e.link_support import LIMIT, Track, free_endpoint, own_meeting_folder, wait_until
from tests.e2e.network_support import Hosts
from tests.unit.links.test_keys import Then

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    own_meeting_folder(monkeypatch, tmp_path)
    made = Hosts(tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Keys of the domain, for three sites."""
    place = tmp_path / "keys"
    keys.make_authority(place, "e2e")
    for name in ("site-a", "site-b", "site-c"):
        keys.make_identity(place, name)
    return place


def bare_session(endpoint: str, **tls: Any) -> Any:
    """A client of Zenoh that is no station."""
    import zenoh

    config = zenoh.Config()
    settings = {
        "mode": "client",
        "connect/endpoints": [endpoint],
        "connect/timeout_ms": 1_000,
        "scouting/multicast/enabled": False,
        "transport/link/tls": tls,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def shown(identity: Path) -> dict[str, Any]:
    """What a client shows that has an identity, and does as it likes with it."""
    return {
        "root_ca_certificate": str(identity / "authority.pem"),
        "enable_mtls": True,
        "connect_certificate": str(identity / "certificate.pem"),
        "connect_private_key": str(identity / "key.pem"),
    }


@pytest.mark.parametrize("protocol", ["tls", "quic"])
def test_stations_with_identities_of_one_authority_exchange_events(
    hosts: Hosts, folder: Path, protocol: str
) -> None:
    endpoint = free_endpoint(protocol)
    with hg.Station(domain="e2e", listen=[endpoint], identity=folder / "site-a") as station:
        tracks = station.channel("air.tracks", Track)
        consumer = hosts.run(
            "b", "consume", "air.tracks", "2000", connect=endpoint, identity=folder / "site-b"
        )
        assert tracks.wait_matched(1, LIMIT)
        for i in range(2_000):
            tracks.push(Track(i))
        assert consumer.says("done") == "done True 0 1999"
        assert wait_until(lambda: tracks.stats().total.delivered == 2_000)
        assert consumer.end() == 0


def test_who_shows_a_certificate_of_another_authority_is_not_met_and_harms_nobody(
    hosts: Hosts, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = tmp_path / "others"
    keys.make_authority(others, "e2e")
    keys.make_identity(others, "site-x")
    endpoint = free_endpoint("tls")
    with hg.Station(domain="e2e", listen=[endpoint], identity=folder / "site-a") as station:
        tracks = station.channel("air.tracks", Track)
        stranger = hosts.run("x", "consume", "air.tracks", "1", connect=endpoint, identity=others / "site-x")
        stranger.says("ready")
        consumer = hosts.run("b", "consume", "air.tracks", "1", connect=endpoint, identity=folder / "site-b")
        assert tracks.wait_matched(1, LIMIT)
        tracks.push(Track(1))
        assert consumer.says("done") == "done True 1 1"
        assert station.mesh is not None
        assert len(station.mesh.stations()) == 1
        assert "done" not in " ".join(stranger.said)
        assert consumer.end() == 0


def test_who_shows_no_certificate_an_expired_one_or_speaks_plainly_is_refused(
    hosts: Hosts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(keys, "datetime", Then)
        keys.make_identity(folder, "old")
    endpoint = free_endpoint("tls")
    import zenoh

    with hg.Station(domain="e2e", listen=[endpoint], identity=folder / "site-a"):
        bare_session(endpoint, **shown(folder / "site-b")).close()  # so they do have a way in
        for refused in (
            {"root_ca_certificate": str(folder / "site-b" / "authority.pem")},
            shown(folder / "old"),
        ):
            with pytest.raises(zenoh.ZError):
                bare_session(endpoint, **refused)
        with pytest.raises(zenoh.ZError):
            bare_session(endpoint.replace("tls/", "tcp/"))
        with pytest.raises(NotPossible, match="helio keys renew old"):
            hg.Station(domain="e2e", connect=[endpoint], identity=folder / "old")


def test_a_station_that_is_not_of_the_host_that_was_connected_to_is_not_talked_to(
    hosts: Hosts, folder: Path
) -> None:
    endpoint = free_endpoint("tls")
    elsewhere = endpoint.replace("127.0.0.1", "127.0.0.2")
    with hg.Station(domain="e2e", listen=[elsewhere], identity=folder / "site-a") as station:
        consumer = hosts.run("b", "consume", "air.tracks", "1", connect=elsewhere, identity=folder / "site-b")
        consumer.says("ready")
        assert station.mesh is not None
        assert not station.mesh.stations()
        keys.make_identity(folder, "site-a", ["127.0.0.2"], anew=True)
    with hg.Station(domain="e2e", listen=[elsewhere], identity=folder / "site-a") as station:
        tracks = station.channel("air.tracks", Track)
        assert tracks.wait_matched(1, LIMIT), "its certificate has that address now"
        tracks.push(Track(1))
        assert consumer.says("done") == "done True 1 1"
        assert consumer.end() == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listen": ["tls/10.0.0.1:7447"]}, "helio keys add"),
        ({"listen": ["tcp/127.0.0.1:7447"], "identity": "site-a"}, "there are none"),
        ({"identity": "site-a"}, "there are none"),
        ({"connect": ["tls/10.0.0.1:7447"], "identity": "nobody"}, "No such file"),
        ({"connect": ["tls/10.0.0.1:7447"], "identity": "authority"}, "key.pem and authority.pem"),
        ({"connect": ["tls/10.0.0.1:7447"], "identity": "site-a", "domain": "sea"}, "not of 'sea'"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_with_the_remedy(
    folder: Path, options: dict[str, Any], reason: str
) -> None:
    given = {"domain": "e2e", **options}
    if "identity" in given:
        given["identity"] = folder / given["identity"]
    with pytest.raises(NotPossible, match=reason):
        hg.Station(**given)
