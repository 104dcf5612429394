"""`helio station`, `ls`, `pub` and `sub` as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app, run
from heliograph.links.broadcast.reader_admission import NOT_THERE
from tests.e2e.event_versions import AddedNew, AddedOld, DroppedNew, DroppedOld
from tests.e2e.link_support import LIMIT, Track, free_endpoint, own_meeting_folder, wait_until
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _meeting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)


@pytest.fixture
def station() -> Iterator[hg.Station]:
    with hg.Station(domain="cli", name="tower") as opened:
        yield opened


def helio(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from heliograph.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HELIO_DOMAIN": "cli"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ls_lists_stations_channels_types_and_consumers(station: hg.Station) -> None:
    tracks = station.channel("air.tracks", Track)
    with tracks.consumer(), tracks.consumer():
        result = CliRunner().invoke(app, ["ls", "--domain", "cli", "--json"])
    assert result.exit_code == 0
    (row,) = msgspec.json.decode(result.stdout)
    assert row["name"] == "tower"
    assert row["pid"] == os.getpid()
    assert (row["channel"], row["types"], row["consumers"]) == ("air.tracks", ["air.track"], 2)
    table = CliRunner().invoke(app, ["ls", "--domain", "cli"]).stdout
    assert "air.tracks" in table
    assert "tower" in table


def test_ls_without_a_domain_lists_those_that_there_are_and_says_how_to_join(
    station: hg.Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIO_DOMAIN", raising=False)
    with hg.Station(domain="weather"), hg.Station(domain="weather"):
        found = msgspec.json.decode(CliRunner().invoke(app, ["ls", "--json"]).stdout)
        assert found == [{"domain": "cli", "stations": 1}, {"domain": "weather", "stations": 2}]
        assert "hg.Station(domain='NAME') joins" in CliRunner().invoke(app, ["ls"]).stdout
    station.close()
    assert "no station of this user is there" in CliRunner().invoke(app, ["ls"]).stdout


def test_ls_fits_into_a_terminal_of_eighty_columns(station: hg.Station) -> None:
    station.channel("air.approach.tracks", Track, qos=hg.QoS(durability="transient-local"))
    station.channel("air.weather", Track)
    ours, theirs = os.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", "from heliograph.cli import main; main()", "ls", "--domain", "cli"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "TERM": "dumb"},
        stdout=theirs,
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # which is how a terminal says that nobody writes any more
        while part := os.read(ours, 4096):
            printed += part
    os.close(ours)
    assert program.wait(30) == 0
    lines = printed.decode().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"station {station.id:016x} (tower), process {os.getpid()}"
    assert any("air.approach.tracks" in line and "transient-local" in line for line in lines)


def test_ls_names_a_station_whose_process_is_stopped() -> None:
    with helio("station", "--name", "tower") as stopped:
        assert stopped.stdout is not None
        stopped.stdout.readline()
        stopped.send_signal(signal.SIGSTOP)
        try:
            rows = msgspec.json.decode(CliRunner().invoke(app, ["ls", "--domain", "cli", "--json"]).stdout)
            told = CliRunner().invoke(app, ["ls", "--domain", "cli"]).stdout
        finally:
            stopped.send_signal(signal.SIGCONT)
            stopped.send_signal(signal.SIGTERM)
    assert [(row["pid"], row["answers"]) for row in rows] == [(stopped.pid, False)]
    assert f"process {stopped.pid}\ndoes not answer" in told


@needs_rings
def test_ls_shows_what_carries_each_link_and_why_it_is_not_shared_memory(station: hg.Station) -> None:
    with (
        hg.Station(domain="cli", name="ring") as by_ring,
        hg.Station(domain="cli", name="socket", transport="socket") as by_socket,
    ):
        tracks = station.channel("air.tracks", Track)
        for other in (by_ring, by_socket):
            other.channel("air.tracks", Track).subscribe(lambda _: None)
        assert tracks.wait_matched(2, LIMIT)
        listed = ["ls", "--domain", "cli", "--links"]
        rows = msgspec.json.decode(CliRunner().invoke(app, [*listed, "--json"]).stdout)
        told = CliRunner().invoke(app, listed).stdout
    (ours,) = (row["links"] for row in rows if row["station"] == f"{station.id:016x}")
    links = {link["name"]: (link["peer"], link["carrier"], link["reason"]) for link in ours}
    assert links == {
        "ring": (f"{by_ring.id:016x}", "ring", ""),
        "socket": (f"{by_socket.id:016x}", "socket", NOT_THERE),
    }
    assert f"ring to {by_ring.id:016x} (ring)\n" in told
    assert f"socket to {by_socket.id:016x} (socket)\n  {NOT_THERE}\n" in told
    assert max(map(len, told.splitlines())) <= 80


def test_ls_shows_links_of_a_domain_only() -> None:
    refused = CliRunner().invoke(app, ["ls", "--links"], env={"HELIO_DOMAIN": ""})
    assert refused.exit_code == 2
    assert "--domain NAME" in refused.output


def test_ls_says_when_nobody_is_there() -> None:
    assert "no station of domain empty" in CliRunner().invoke(app, ["ls", "--domain", "empty"]).stdout


def test_pub_pushes_events_of_a_format_it_never_saw(station: hg.Station) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    program = helio("pub", "air.tracks", '{"id": 7, "speed": 410.5, "region": "north"}', "--json")
    output, problem = program.communicate(timeout=LIMIT)
    assert program.returncode == 0, problem
    assert msgspec.json.decode(output) == {
        "channel": "air.tracks",
        "type": "air.track",
        "pushed": 1,
        "consumers": 1,
    }
    assert consumer.pull(LIMIT) == Track(7, 410.5, "north")


def test_pub_says_how_many_consumers_there_are_and_which_field_is_missing(station: hg.Station) -> None:
    with station.channel("air.tracks", Track).consumer():
        program = helio("pub", "air.tracks", '{"id": 7, "speed": 1.0, "region": "north"}')
        assert program.communicate(timeout=LIMIT)[0] == "pushed 1 to air.tracks, which has 1 consumer\n"
    program = helio("pub", "air.tracks", '{"id": 7, "region": "north"}')
    assert "air.track: field 'speed' is missing and has no default" in program.communicate(timeout=LIMIT)[1]


def test_pub_pushes_an_event_in_the_version_whose_fields_it_has(station: hg.Station) -> None:
    with hg.Station(domain="cli") as other:
        old, new = station.channel("v", AddedOld).consumer(), other.channel("v", AddedNew).consumer()
        program = helio("pub", "v", '{"id": 1}', '{"id": 2, "battery": 0.5}')
        output, problem = program.communicate(timeout=LIMIT)
        assert "pushed 2 to v" in output, problem
        assert [old.pull(LIMIT), old.pull(LIMIT)] == [AddedOld(1), AddedOld(2)]
        assert [new.pull(LIMIT), new.pull(LIMIT)] == [AddedNew(1, 1.0), AddedNew(2, 0.5)]


def test_what_sub_prints_as_cloudevents_pub_takes(station: hg.Station) -> None:
    tracks = station.channel("air.tracks", Track)
    listener = helio("sub", "air.tracks", "--cloudevents", "--count", "1", "--timeout", "60")
    assert tracks.wait_matched(1, LIMIT)
    tracks.push(Track(7), priority=5, source_ts=1_500_000_000_000_000_001)
    line, _ = listener.communicate(timeout=LIMIT)
    document = msgspec.json.decode(line)
    assert (document["specversion"], document["type"], document["priority"]) == ("1.0", "air.track", 5)
    with tracks.consumer() as consumer:
        result = CliRunner().invoke(app, ["pub", "air.tracks", line, "--cloudevents", "--domain", "cli"])
        assert result.exit_code == 0
        again = next(consumer.deliveries(timeout=LIMIT))
    assert again.event == Track(7)
    assert (again.header.priority, again.header.source_ts) == (5, 1_500_000_000_000_000_001)
    assert run(["pub", "air.tracks", "[1]", "--cloudevents", "--domain", "cli"]) == 2


def test_pub_reads_lines_from_standard_input(station: hg.Station) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    program = helio("pub", "air.tracks", "-")
    lines = "".join(f'{{"id": {i}, "speed": 1.0, "region": "x"}}\n' for i in range(3))
    output, problem = program.communicate(lines, timeout=LIMIT)
    assert "pushed 3" in output, problem
    assert [consumer.pull(LIMIT) for _ in range(3)] == [Track(i, 1.0, "x") for i in range(3)]


def test_pub_says_what_is_wrong_with_an_event(
    station: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    station.channel("air.tracks", Track)
    assert run(["pub", "air.tracks", '{"id": "seven"}', "--domain", "cli"]) == 2
    assert "$.id" in capsys.readouterr().err


def test_pub_pushes_all_events_or_none_and_says_which_is_bad(
    station: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    good = '{"id": 1, "speed": 1.0, "region": "x"}'
    assert run(["pub", "air.tracks", good, '{"id": "seven"}', good, "--domain", "cli"]) == 2
    assert "event 2 is no air.track, nothing was pushed: " in capsys.readouterr().err
    assert run(["pub", "air.tracks", good, "no json", "--domain", "cli"]) == 2
    assert "event 2 is no air.track, nothing was pushed: " in capsys.readouterr().err
    assert consumer.pull(0.01) is None
    program = helio("pub", "air.tracks", "-")
    _, problem = program.communicate(f"{good}\nno json\n", timeout=LIMIT)
    assert "event 2 is no air.track, the 1 before it are pushed: " in problem
    assert consumer.pull(LIMIT) == Track(1, 1.0, "x")


def test_sub_of_a_channel_that_nobody_has_says_that_it_waits(station: hg.Station) -> None:
    program = helio("sub", "air.later", "--count", "1")
    assert program.stderr is not None
    assert "no station of domain cli has a channel air.later; waiting for one" in program.stderr.readline()
    later = station.channel("air.later", Track)
    assert later.wait_matched(1, LIMIT)
    later.push(Track(1))
    output, _ = program.communicate(timeout=LIMIT)
    assert msgspec.json.decode(output)["id"] == 1


def test_pub_to_a_channel_that_nobody_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pub", "nowhere", "{}", "--domain", "cli"]) == 2
    assert "no station of domain cli has a channel nowhere" in capsys.readouterr().err


def test_sub_prints_events_of_formats_it_never_saw(station: hg.Station) -> None:
    class Weather(hg.Event, name="air.weather"):
        speed: float
        place: str

    tracks = station.channel("air.all", Track, Weather)
    program = helio("sub", "air.all", "--where", "speed > 300", "--count", "2")
    assert tracks.wait_matched(1, LIMIT)
    tracks.push(Track(1, 100.0))
    tracks.push(Track(2, 400.0, "north"))
    tracks.push(Weather(500.0, "alps"))
    output, problem = program.communicate(timeout=LIMIT)
    assert program.returncode == 0, problem
    assert [msgspec.json.decode(line) for line in output.splitlines()] == [
        {"id": 2, "speed": 400.0, "region": "north"},
        {"speed": 500.0, "place": "alps"},
    ]


@pytest.mark.parametrize("offered", [hg.QoS(reliability="best-effort"), hg.QoS(ack="delivered")])
def test_sub_asks_for_no_more_than_is_offered(station: hg.Station, offered: hg.QoS) -> None:
    tracks = station.channel("air.tracks", Track, qos=offered)
    program = helio("sub", "air.tracks", "--count", "1")
    assert tracks.wait_matched(1, LIMIT)
    tracks.push(Track(7))
    output, problem = program.communicate(timeout=LIMIT)
    assert msgspec.json.decode(output)["id"] == 7, problem


def test_sub_prints_every_event_with_all_its_fields_whichever_versions_are_mixed(tmp_path: Path) -> None:
    keeper = helio("station", "--folder", str(tmp_path / "data"))
    kept = hg.QoS(durability="persistent")
    try:
        with hg.Station(domain="cli") as one, hg.Station(domain="cli") as other:
            old = one.channel("v", AddedOld, qos=kept)
            for number in range(20):
                old.push(AddedOld(number))
            new = other.channel("v", AddedNew, qos=kept)
            new.push(AddedNew(20, 0.5))
            program = helio("sub", "v", "--start", "earliest", "--count", "60")
            assert old.wait_matched(1, LIMIT)
            for number in range(21, 60):
                if number % 3:
                    old.push(AddedOld(number))
                else:
                    new.push(AddedNew(number, 0.5))
            output, problem = program.communicate(timeout=LIMIT)
        rows = [msgspec.json.decode(line) for line in output.splitlines()]
        expected = [
            {"id": n, "battery": 0.5} if n == 20 or (n > 20 and not n % 3) else {"id": n} for n in range(60)
        ]
        assert rows == expected, problem
    finally:
        keeper.send_signal(signal.SIGTERM)
        keeper.communicate(timeout=LIMIT)


def test_a_station_that_was_started_again_serves_the_older_class_live_though_it_keeps_a_newer_event(
    tmp_path: Path,
) -> None:
    kept = hg.QoS(durability="persistent")
    for life in range(2):
        keeper = helio("station", "--folder", str(tmp_path / "data"))
        try:
            with hg.Station(domain="cli") as one, hg.Station(domain="cli") as other:
                if not life:
                    one.channel("v", DroppedNew, qos=kept).push(DroppedNew(0))
                    continue
                pushed, received = (station.channel("v", DroppedOld, qos=kept) for station in (one, other))
                with (
                    received.consumer(start="now") as live,
                    received.consumer(name="billing", start="now") as durable,
                    received.consumer(group="crew", start="now") as member,
                ):
                    pushed.push(DroppedOld(1, "north"))
                    for consumer in (live, durable, member):
                        assert consumer.pull(LIMIT) == DroppedOld(1, "north")
        finally:
            keeper.send_signal(signal.SIGTERM)
            keeper.communicate(timeout=LIMIT)


def test_sub_with_json_prints_one_document(station: hg.Station) -> None:
    tracks = station.channel("air.tracks", Track)
    program = helio("sub", "air.tracks", "--count", "2", "--json")
    assert tracks.wait_matched(1, LIMIT)
    tracks.push(Track(1))
    tracks.push(Track(2))
    output, problem = program.communicate(timeout=LIMIT)
    assert [event["id"] for event in msgspec.json.decode(output)] == [1, 2], problem
    assert run(["sub", "air.tracks", "--json", "--domain", "cli"]) == 2


def test_sub_begins_at_an_offset(tmp_path: Path) -> None:
    with hg.Station(tmp_path / "data", domain="cli") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        tracks.push_many([Track(i) for i in range(5)])
        command = ["sub", "air.tracks", "--domain", "cli", "--count", "2", "--json", "--start"]
        result = CliRunner().invoke(app, [*command, "3"])
        assert [event["id"] for event in msgspec.json.decode(result.stdout)] == [3, 4]
        assert run([*command, "third"]) == 2


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_station_on_its_own_keeps_histories_for_others_and_is_closed_in_order_by_a_signal(
    tmp_path: Path, ended_by: signal.Signals
) -> None:
    qos = hg.QoS(durability="persistent")
    with hg.Station(tmp_path / "data") as first:
        first.channel("air.tracks", Track, qos=qos).push_many([Track(i) for i in range(10)])
    program = helio("station", "--folder", str(tmp_path / "data"))
    try:
        assert program.stdout is not None
        assert "keeping air.tracks" in program.stdout.readline()
        with hg.Station(domain="cli") as other:
            tracks = other.channel("air.tracks", Track, qos=qos)
            tracks.push(Track(10))
            consumer = tracks.consumer(start="earliest")
            assert [consumer.pull(LIMIT) for _ in range(11)] == [Track(i) for i in range(11)]
    finally:
        program.send_signal(ended_by)
        program.communicate(timeout=LIMIT)
    assert program.returncode == 0
    assert wait_until(lambda: not list((tmp_path / "run" / "heliograph" / "cli").iterdir()))


def test_pub_takes_the_defaults_of_a_class_and_a_priority(
    station: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    short = ["pub", "air.tracks", '{"id": 7}', "--domain", "cli"]
    assert run(short) == 2
    problem = capsys.readouterr().err
    assert "fields are missing that have no default: speed (f64), region (str) (at $)" in problem
    assert "--class MODULE:CLASS does, and fills them in" in problem
    assert run([*short, "--class", "tests.e2e.link_support:Track", "--priority", "5"]) == 0
    (delivery,) = islice(consumer.deliveries(LIMIT), 1)
    assert (delivery.event, delivery.header.priority) == (Track(7), 5)
    assert run([*short, "--class", "heliograph.patterns.recording:Input"]) == 2
    assert "air.tracks carries air.track, in other formats than" in capsys.readouterr().err
    assert run([*short, "--class", "Track"]) == 2
    assert "write module:Class" in capsys.readouterr().err


def test_pub_hands_a_delayed_event_to_who_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delayed = ['{"id": 7, "speed": 1.0, "region": "x"}', "--domain", "cli", "--deliver-after", "0.5"]
    with hg.Station(tmp_path / "data", domain="cli") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        with tracks.consumer() as consumer:
            assert run(["pub", "air.tracks", *delayed]) == 0
            assert consumer.pull(LIMIT) == Track(7, 1.0, "x")
        keeper.channel("air.memory", Track)
        assert run(["pub", "air.memory", *delayed]) == 2
        assert "--deliver-after: air.memory keeps nothing" in capsys.readouterr().err


def test_sub_prints_headers_and_ends_when_none_came_in_time(station: hg.Station) -> None:
    tracks = station.channel("air.tracks", Track)
    program = helio("sub", "air.tracks", "--headers", "--timeout", "4", "--count", "2")
    assert tracks.wait_matched(1, LIMIT)
    tracks.push(Track(1), priority=4, headers={"trace": "x"})
    output, problem = program.communicate(timeout=LIMIT)
    (line,) = output.splitlines()
    document = msgspec.json.decode(line)
    assert document["event"]["id"] == 1
    header = document["header"]
    assert (header["type"], header["priority"], header["user"]) == ("air.track", 4, {"trace": "x"})
    assert program.returncode == 1
    assert "1 of 2 events came before none had for 4 s" in problem


def test_sub_of_a_pattern_prints_events_of_channels_that_are_there_and_of_those_that_come(
    station: hg.Station,
) -> None:
    there = station.channel("air.tracks", Track)
    program = helio("sub", "air.*", "--count", "2", "--headers")
    assert there.wait_matched(consumers=1, timeout=30.0)
    assert there.push(Track(1, 2.0, "north"))
    later = station.channel("air.later", Track)
    assert later.wait_matched(consumers=1, timeout=30.0)
    assert later.push(Track(2, 2.0, "north"))
    output, problems = program.communicate(timeout=30)
    assert (program.returncode, problems) == (0, "")
    found = [msgspec.json.decode(line) for line in output.splitlines()]
    assert [(one["header"]["channel"], one["event"]["id"]) for one in found] == [
        ("air.tracks", 1),
        ("air.later", 2),
    ]


def test_sub_of_a_pattern_that_nothing_fits_says_that_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sub", "air.*", "--domain", "cli", "--timeout", "0.05"]) == 0
    assert "has a channel that fits air.*; waiting for one" in capsys.readouterr().err


def test_sub_gives_up_waiting_for_a_channel_when_its_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sub", "nowhere", "--domain", "cli", "--timeout", "0.1", "--json"]) == 0
    told = capsys.readouterr()
    assert msgspec.json.decode(told.out) == []
    assert "waiting for one" in told.err


def test_explain_says_who_would_get_an_event_and_prints_the_code_of_a_push(
    station: hg.Station, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = station.channel("air.tracks", Track)
    with tracks.consumer(where="speed > 300"):
        event = msgspec.json.encode({**msgspec.structs.asdict(Track(1)), "speed": 400.0}).decode()
        result = CliRunner().invoke(app, ["explain", "air.tracks", event, "--domain", "cli"])
        assert result.exit_code == 0, result.output
        assert "dispatch" in result.stdout
        assert "link to " in result.stdout
        code = CliRunner().invoke(app, ["explain", "air.tracks", "--code", "--domain", "cli"])
        assert code.exit_code == 0, code.output
        assert "# air.track, push: <heliograph way " in code.stdout
        assert "event.speed" in code.stdout
        listed = CliRunner().invoke(app, ["explain", "air.tracks", "--code", "--json", "--domain", "cli"])
        kinds = {one["kind"] for one in msgspec.json.decode(listed.stdout)}
        assert {"push", "check"} <= kinds
        assert any(kind.startswith("filter of link to ") for kind in kinds)
    assert run(["explain", "air.tracks", "--domain", "cli"]) == 2
    assert "give an event as JSON, or --code" in capsys.readouterr().err


def test_a_recorder_keeps_what_is_around_a_trigger_of_another_station(
    station: hg.Station, tmp_path: Path
) -> None:
    tracks = station.channel("air.tracks", Track)
    box = tmp_path / "box"
    with helio(
        "recorder", str(box), "air.tracks", "--when", "speed > 900", "--before", "3600", "--json"
    ) as program:
        assert tracks.wait_matched(1, LIMIT)
        tracks.push_many([Track(n, 999.0 if n == 30 else 1.0) for n in range(40)])
        kept = lambda: hg.history(box, "recorded.air.tracks").count()  # noqa: E731 - asked again and again
        assert wait_until(lambda: (box / "channels").exists() and _there(kept) == 40)
        program.send_signal(signal.SIGINT)
        said, trouble = program.communicate(timeout=LIMIT)
    assert program.returncode == 0, trouble
    assert {"cuts": 1, "kept": 40, "seen": 40}.items() <= msgspec.json.decode(said).items()
    assert (
        run(["recorder", str(tmp_path / "other"), "air.nothing", "--domain", "nobody", "--when", "x > 1"])
        == 2
    )


def _there(count: Callable[[], int]) -> int:
    """0 while there is no such history."""
    with suppress(hg.HeliographError):
        return count()
    return 0


def test_a_station_logs_as_json_where_that_is_asked_for(station: hg.Station) -> None:
    there = free_endpoint()  # where nobody listens
    with helio("station", "--no-page", "--connect", there, "--log-format", "json") as program:
        assert program.stderr is not None
        line = msgspec.json.decode(program.stderr.readline())
        program.send_signal(signal.SIGTERM)
        assert program.wait(LIMIT) == 0
    assert (line["level"], line["args"][0]) == ("WARNING", there)
    assert line["template"].startswith("nobody answers at %s")
