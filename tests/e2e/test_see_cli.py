"""`helio top`, `metrics`, `why`, `trace` and `doctor` against stations of another process's domain."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
from heliograph.cli import doctor, run
from heliograph.facades import dcps
from heliograph.journal.consumers.outside_readers import note
from heliograph.journal.store import JournalStore
from heliograph.links.keys import make_authority, make_identity
from heliograph.monitoring import doctor as findings
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float
    note: str


@pytest.fixture
def tower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[hg.Station]:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv("HELIO_DOMAIN", "see")
    # What this machine has is not what is tested here.
    for limit in ("DESCRIPTORS", "SHARED_MEMORY", "FREE"):
        monkeypatch.setattr(doctor, limit, 0)
    monkeypatch.setattr(findings, "FREE_BYTES", 0)
    with hg.Station(tmp_path / "data", domain="see", name="tower", on_error=lambda *_: None) as station:
        yield station


@pytest.fixture
def tracks(tower: hg.Station) -> hg.Channel[Track]:
    qos = hg.QoS(durability="persistent", delivery_records="all")
    channel = tower.channel("air.tracks", Track, qos=qos)
    channel.subscribe(lambda _: None, where="speed > 300", name="display")
    channel.push_many([Track(1, 200.0, "\x1b[31m<b>"), Track(2, 400.0, "")])
    assert channel.settle(LIMIT)
    return channel


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_top_shows_rates_of_other_processes_stations(
    tracks: hg.Channel[Track], capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(capsys, "top", "--interval", "0.2", "--filter", "tracks")
    (row,) = told["channels"]
    assert (row["channel"], row["station"], row["lag"]) == ("air.tracks", "tower", 0)
    assert run(["top", "--once", "--interval", "0.2", "--sort", "lag"]) == 0
    assert "air.tracks" in capsys.readouterr().out


def test_metrics_have_the_samples_of_every_station(
    tracks: hg.Channel[Track], tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metrics"]) == 0
    sample = f'heliograph_channel_pushed_events_total{{station="{tower.id:016x}",channel="air.tracks"}} 2\n'
    assert sample in capsys.readouterr().out
    (snapshot,) = said(capsys, "metrics")
    assert snapshot["name"] == "tower"


def test_why_names_the_part_of_the_filter_and_hostile_text_stays_text(
    tracks: hg.Channel[Track], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = said(capsys, "why", "air.tracks", "0", "display", code=1)
    assert (answer["verdict"], answer["station"], answer["values"]) == (
        "stopped",
        "tower",
        {"speed": "200.0"},
    )
    assert run(["why", "air.tracks", '{"id": 1, "speed": 500.0, "note": "\\u001b[2J"}', "display"]) == 0
    assert "would be delivered" in capsys.readouterr().out
    tracks.subscribe(lambda _: None, where="note = 'x'", name="notes")
    assert run(["why", "air.tracks", "0", "notes"]) == 1
    shown = capsys.readouterr().out
    assert "note = 'x' is false" in shown
    assert "\x1b" not in shown
    assert run(["why", "air.tracks", "0", "nobody"]) == 1
    assert "receivers are" in capsys.readouterr().out
    assert run(["why", "air.tracks", "first", "display"]) == 2
    assert run(["why", "air.trucks", "0", "display"]) == 2


def test_trace_has_source_history_and_receivers_with_times(
    tracks: hg.Channel[Track], tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    tower.asker.listen()
    assert wait_until(lambda: tower.asker.why(tracks, 1, "display").at_ns)
    told = said(capsys, "trace", "air.tracks", "1")
    steps = {row["step"]: row for row in told["steps"] if "trace" not in row["where"]}
    assert list(steps) == ["source", "history", "receiver"]
    assert steps["source"]["at_ns"] <= steps["history"]["at_ns"] <= steps["receiver"]["at_ns"]
    assert steps["receiver"]["where"] == "display in tower"
    assert run(["trace", "air.tracks", "0"]) == 0
    assert "speed > 300 is false" in capsys.readouterr().out


def test_trace_has_links_to_receivers_elsewhere_and_queries_of_spark(
    tracks: hg.Channel[Track], tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(tracks.store, JournalStore)
    assert tower.ports.disk is not None
    note(tower.ports.disk, "air.tracks", "totals", {tracks.store.partition: 1}, 5)
    with hg.Station(domain="see", name="screen") as screen:
        screen.channel("air.tracks", Track).subscribe(lambda _: None)
        assert tracks.wait_matched(consumers=2, timeout=LIMIT)
        told = said(capsys, "trace", "air.tracks", "0")
        rows = [(row["step"], row["where"], row["what"]) for row in told["steps"]]
        links = [what for step, where, what in rows if (step, where) == ("link", "tower to screen")]
        assert len(links) == 1
        assert links[0] in ("by ring", "by socket")
        assert ("Spark", "totals", "processed: it is at offset 1") in rows
    told = said(capsys, "trace", "air.tracks", "1")
    assert "not yet processed: it is at offset 1" in str(told)


def test_the_doctor_finds_failing_callbacks_and_dead_letters(
    tower: hg.Station, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    qos = hg.QoS(durability="persistent")
    orders = tower.channel("orders", Track, qos=qos)
    refuse = orders.consumer(name="billing", max_deliveries=1, dead_letter="orders.dead")
    orders.push(Track(1, 0.0, ""))
    for delivery in refuse.deliveries(LIMIT):
        delivery.nak()
        break
    dead = tower.channel("orders.dead", Track)
    assert wait_until(lambda: dead.store is not None and dead.store.watermark == 1)
    tracks = tower.channel("air.tracks", Track)
    tracks.subscribe(lambda track: track.id // 0, name="display")
    tracks.push(Track(1, 0.0, ""))
    assert wait_until(lambda: tracks.stats().total.failed)
    told = said(capsys, "doctor", "--folder", str(tmp_path / "data"), code=1)
    found = {(one["what"], one["where"]): one["command"] for one in told["findings"]}
    assert found["unread dead letters", "orders.dead in tower"] == "helio redrive orders.dead"
    assert ("failing callback", "air.tracks in tower") in found
    assert told["bad"] >= 2


def test_a_doctor_without_findings_is_silent_and_exits_with_zero(
    tracks: hg.Channel[Track], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["doctor", "--folder", str(tmp_path / "data")]) == 0
    assert "nothing to mend" in capsys.readouterr().out
    told = said(capsys, "doctor", "--folder", str(tmp_path / "gone"), code=1)
    assert [one["what"] for one in told["findings"] if one["severity"] == "problem"] == ["no such folder"]
    assert run(["doctor", "--domain", "nothing-there"]) == 0
    assert "no station of domain" in capsys.readouterr().out


def test_a_small_machine_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DESCRIPTORS", 1 << 62)
    monkeypatch.setattr(doctor, "SHARED_MEMORY", 1 << 62)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    monkeypatch.setattr(doctor, "EXTRAS", {"page": ("no_such_package", "the page")})
    found = {one.what: one for one in doctor._machine()}
    assert "ulimit -n" in found["few descriptors"].command
    assert "shared memory" in found["little shared memory"].what
    assert "/nowhere" in found["no place to meet"].text
    assert found["extra missing"].command == "pip install 'heliograph[page]'"


def found_of(told: Any, where: str) -> list[tuple[str, str]]:
    return [(one["what"], one["severity"]) for one in told["findings"] if one["where"] == where]


def test_the_doctor_looks_at_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_authority(tmp_path, "keyed")
    soon, later, other = (str(tmp_path / name) for name in ("soon", "later", "other"))
    make_identity(tmp_path, "soon", days=10)
    make_identity(tmp_path, "later", days=100)
    make_identity(tmp_path, "other", days=100)
    arguments = ("doctor", "--domain", "keyed", "--identity")
    told = said(capsys, *arguments, soon, code=1)
    assert found_of(told, soon) == [("certificate ends soon", "warning")]
    assert f"helio keys renew {tmp_path} soon" in next(
        one["command"] for one in told["findings"] if one["where"] == soon
    )
    assert found_of(said(capsys, *arguments, later), later) == []
    shutil.copy(f"{later}/key.pem", f"{other}/key.pem")
    told = said(capsys, *arguments, other, code=1)
    assert found_of(told, other) == [("identity cannot be used", "problem")]
    assert "is not the key of the certificate" in str(told)
    Path(other, "key.pem").write_text("no key")
    assert "is no key" in str(said(capsys, *arguments, other, code=1))
    gone = str(tmp_path / "gone")
    assert found_of(said(capsys, *arguments, gone, code=1), gone) == [("identity cannot be used", "problem")]


def test_the_doctor_looks_at_ports_and_hosts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        there = f"tcp/127.0.0.1:{taken.getsockname()[1]}"
        nobody = f"tcp/127.0.0.1:{silent.getsockname()[1]}"
        told = said(capsys, "doctor", "--listen", there, "--connect", there, "--connect", nobody, code=1)
        assert found_of(told, there) == [("port not free", "problem")]
        assert f"by process {os.getpid()}" in str(told)
        assert found_of(told, nobody) == [("host not reached", "problem")]
        config = tmp_path / "station.toml"
        config.write_text(f'[station]\nlisten = ["{there}"]\nconnect = ["quic/127.0.0.1:9"]\n')
        told = said(capsys, "doctor", "--config", str(config), code=1)
        assert found_of(told, there) == [("port not free", "problem")]
        assert found_of(told, "quic/127.0.0.1:9") == [("not looked at", "note")]


def test_a_port_of_the_domains_own_station_is_no_finding(
    tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:  # of this process, which is the tower's
        there = f"tcp/127.0.0.1:{own.getsockname()[1]}"
        assert found_of(said(capsys, "doctor", "--listen", there), there) == []


@pytest.mark.parametrize(
    "wrong", [("--listen", "tcp/nowhere"), ("--connect", "http/a:1"), ("--config", "gone")]
)
def test_the_doctor_refuses_what_is_no_endpoint_or_file(
    capsys: pytest.CaptureFixture[str], wrong: tuple[str, str]
) -> None:
    assert run(["doctor", *wrong]) == 2
    assert capsys.readouterr().err


class OtherTrack(hg.Event, name="air.track", key="id"):
    """As another program has it: a field is of another type."""

    id: str
    speed: float
    note: str


def test_why_names_the_field_where_the_class_of_a_receiver_does_not_fit(
    tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    tower.channel("air.plots", Track).subscribe(lambda _: None, name="first")
    with hg.Station(domain="see", name="display 2", on_error=lambda *_: None) as other:
        other.channel("air.plots", OtherTrack).subscribe(lambda _: None, name="second")
        answers = {name: said_of(capsys, name) for name in ("first", "second", "nobody")}
    verdicts = {name: answer["verdict"] for name, answer in answers.items()}
    assert verdicts["nobody"] == "no such receiver"
    misfit = next(name for name in ("first", "second") if verdicts[name] == "not wanted")
    assert "does not fit the event" in json.dumps(answers[misfit])
    assert "$.id" in json.dumps(answers[misfit])


def said_of(capsys: pytest.CaptureFixture[str], receiver: str) -> Any:
    run(["why", "air.plots", '{"id": 5, "speed": 1.0, "note": ""}', receiver, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def dds_topics(tower: hg.Station) -> Iterator[dcps.DomainParticipant]:
    """One pair for each cause that keeps a writer and a reader apart."""
    factory = dcps.DomainParticipantFactory.get_instance()
    here = factory.create_participant(0, station=tower)
    topics = {
        name: here.create_topic(f"air.{name}", Track) for name in ("qos", "partition", "filter", "names")
    }
    publisher, subscriber = here.create_publisher(), here.create_subscriber()
    for topic in topics.values():
        publisher.create_datawriter(topic)
    subscriber.create_datareader(topics["qos"], dcps.DataReaderQos(durability=dcps.Durability("persistent")))
    north = here.create_subscriber(dcps.SubscriberQos(partition=dcps.Partition(("north",))))
    north.create_datareader(topics["partition"])
    never = here.create_contentfilteredtopic("never", topics["filter"], "speed > 300 AND speed < 100")
    subscriber.create_datareader(never)
    subscriber.create_datareader(here.create_topic("air.name", Track))
    yield here
    here.delete_contained_entities()
    factory.delete_participant(here)


def test_the_doctor_explains_every_pair_of_dds_that_does_not_match(
    dds_topics: dcps.DomainParticipant, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {one["where"]: one for one in said(capsys, "doctor", code=1)["findings"]}
    expected = {
        "topic air.qos": "durability: offered kind volatile, requested kind persistent",
        "topic air.partition": "no partition in common",
        "topic air.filter": "speed > 300.0 and speed < 100.0 are never both true",
        "topic air.name": "probably a mistake in one of the names",
    }
    for where, text in expected.items():
        assert text in found[where]["text"]
        assert found[where]["severity"] == "problem"
    assert "the writer's durability.kind='persistent'" in found["topic air.qos"]["command"]
    assert "the reader's durability.kind='volatile'" in found["topic air.qos"]["command"]
    del dds_topics


def test_the_doctor_finds_the_other_side_in_another_domain(
    tracks: hg.Channel[Track], tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    tower.channel("air.plots", Track).push(Track(1, 1.0, ""))
    with hg.Station(domain="harbour", name="display") as elsewhere:
        elsewhere.channel("air.plots", Track).subscribe(lambda _: None, name="plots")
        found = said(capsys, "doctor", code=1)["findings"]
        texts = [one["text"] for one in found if one["what"] == "other domain"]
        assert texts == ["is written in domain see and read in domain harbour: the two never meet"]
        assert run(["why", "air.plots", "0", "plots", "--domain", "harbor"]) == 2
        assert "did you mean harbour?" in capsys.readouterr().err
    del tracks


def test_why_says_which_stations_do_not_match_before_it_looks_at_filters(
    tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    plots = tower.channel("air.plots", Track, qos=hg.QoS(reliability="best-effort"))
    with hg.Station(domain="see", name="screen", on_error=lambda *_: None) as other:
        screens = other.channel("air.plots", Track, qos=hg.QoS(reliability="reliable"))
        screens.subscribe(lambda _: None, name="screen")
        assert wait_until(lambda: screens.stats().unmatched)
        for pushes in (0, 1):
            plots.push_many([Track(1, 1.0, "")] * pushes)
            answer = said_of(capsys, "screen")
            assert (answer["verdict"], answer["stage"], answer["station"]) == ("stopped", "link", "screen")
            assert "offered 'best-effort', requested 'reliable'" in answer["rule"]
            assert "(tower)" in answer["rule"]
        screens.push(Track(1, 1.0, ""))
        assert said_of(capsys, "screen")["verdict"] == "would be delivered"


def test_info_lists_derivations_with_their_receivers_and_why_finds_those(
    tracks: hg.Channel[Track], capsys: pytest.CaptureFixture[str]
) -> None:
    with hg.Station(domain="see", name="screen") as screen:
        fast = screen.channel("air.tracks", Track).derive("id, speed", where="speed > 300")
        fast.subscribe(lambda _: None, name="dwatch")
        (derived,) = said(capsys, "info", "air.tracks")["derivations"]
        assert (derived["select"], derived["where"]) == ("id, speed", "speed > 300")
        assert [one["name"] for one in derived["receivers"]] == ["dwatch"]
        assert run(["info", "air.tracks"]) == 0
        assert "derived: id, speed where speed > 300; received by dwatch in" in capsys.readouterr().out
        answer = said(capsys, "why", "air.tracks", "0", "dwatch", code=1)
        assert (answer["verdict"], answer["stage"]) == ("stopped", "derivation filter")
    del tracks


class Plant(hg.Event, name="gh.plant"):
    temp: float
    humidity: float = 0.5


def test_why_takes_a_class_whose_defaults_fill_in_fields(
    tower: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    tower.channel("gh.plants", Plant).subscribe(lambda _: None, where="humidity > 0.4", name="dry")
    asked = ["why", "gh.plants", '{"temp": 20.0}', "dry"]
    assert run(asked) == 2
    told = capsys.readouterr().err
    assert "a format does not say which fields have defaults: --class MODULE:CLASS does" in told
    assert run([*asked, "--class", f"{__name__}:Plant"]) == 0
    assert "would be delivered" in capsys.readouterr().out
    assert run(["trace", *asked[1:3], "--class", f"{__name__}:Plant"]) == 0
    assert "dry in tower" in capsys.readouterr().out
    assert run([*asked, "--class", f"{__name__}:Track"]) == 2
    assert "in other formats than" in capsys.readouterr().err


def test_hints_name_the_domain_unless_commands_ask_it_anyway(
    tower: hg.Station, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tower.channel("air.plots", Track, qos=hg.QoS(reliability="best-effort"))
    with hg.Station(domain="see", name="screen", on_error=lambda *_: None) as other:
        screens = other.channel("air.plots", Track, qos=hg.QoS(reliability="reliable"))
        screens.subscribe(lambda _: None, name="screen")
        assert wait_until(lambda: screens.stats().unmatched)
        commands = {one["what"]: one["command"] for one in said(capsys, "doctor", code=1)["findings"]}
        assert commands["not matched"] == "helio info air.plots"
        monkeypatch.delenv("HELIO_DOMAIN")
        told = said(capsys, "doctor", "--domain", "see", code=1)
        commands = {one["what"]: one["command"] for one in told["findings"]}
        assert commands["not matched"] == "helio info air.plots --domain see"
        nobody = said(capsys, "why", "air.plots", PLOT, "nobody", "--domain", "see", code=1)
        assert "`helio top --domain see`" in nobody["remedy"]
        assert run(["why", "air.plot", PLOT, "nobody", "--domain", "see"]) == 2
        assert "did you mean air.plots?; see: helio ls --domain see" in capsys.readouterr().err


PLOT = '{"id": 5, "speed": 1.0, "note": ""}'


@pytest.mark.parametrize("command", [("why", "air.tracks", PLOT, "display"), ("pub", "air.tracks", PLOT)])
def test_a_channel_of_another_domain_is_found_there(
    tracks: hg.Channel[Track], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with hg.Station(domain="harbour", name="crane") as crane:
        crane.channel("sea.ships", Track)
        assert run([*command, "--domain", "harbour"]) == 2
        told = capsys.readouterr().err
    assert "no station of domain harbour has a channel air.tracks; domain see has it: --domain see" in told
    del tracks
