from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest

import heliograph as hg
from heliograph.cli import history as histories
from heliograph.cli import run
from heliograph.cli.journal import _print_histories
from heliograph.errors import HistoryDamaged
from tests.unit.spark.histories import FIRST_TIME, SECOND, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float | None = None


class Alarm(hg.Event, name="air.alarm"):
    id: str
    level: int


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Keeper]:
    """Offsets 0 to 4 sealed, 5 to 7 in a head; one event a second, the last one an alarm."""
    with Keeper(tmp_path) as keeper:
        for n in range(7):
            if n == 5:
                keeper.seal()
            keeper.clock.now = FIRST_TIME + n * SECOND
            keeper.push(Track(n, None if n == 3 else n * 100.0))
        keeper.clock.now += SECOND
        keeper.push(Alarm("x", 2), headers={"trace": "ab"}, correlation_id="c")
        yield keeper


def output(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert run([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    return [json.loads(line) for line in output(capsys, *arguments).splitlines()]


def ids(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    return [event["id"] for event in lines(capsys, *arguments)]


def test_files_are_those_that_are_the_history_now_and_no_others(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stray = kept.place / "sealed" / "00000000000000000000-00000000000000000005-00000099.parquet"
    stray.write_bytes(b"what a merge has left")
    found = json.loads(output(capsys, "journal", "files", tmp_path, "air.tracks", "--json"))
    assert [(file["kind"], file["first"], file["next"]) for file in found] == [
        ("sealed", 0, 5),
        ("head", 5, 8),
    ]
    sealed = output(capsys, "journal", "files", tmp_path, "air.tracks", "--paths").splitlines()
    assert sealed == [found[0]["path"]]
    assert pq.read_table(sealed, columns=["id"]).column("id").to_pylist() == list(range(5))
    assert "sealed" in output(capsys, "journal", "files", tmp_path, "air.tracks")
    assert "air.tracks" in failure(capsys, "journal", "files", tmp_path, "air.trucks")


def test_ls_says_how_much_of_each_channel_there_is(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keeper(tmp_path, "weather é", "p2"):
        found = json.loads(output(capsys, "journal", "ls", tmp_path, "--json"))
    sizes = sum(file.stat().st_size for name in ("heads", "sealed") for file in (kept.place / name).iterdir())
    assert found == [
        {
            "channel": "air.tracks",
            "partition": "p1",
            "earliest": 0,
            "watermark": 8,
            "events": 8,
            "bytes": sizes,
            "files": 2,
            "sealed": 1,
            "retired": 0,
        },
        {
            "channel": "weather é",
            "partition": "p2",
            "earliest": 0,
            "watermark": 0,
            "events": 0,
            "bytes": 0,
            "files": 0,
            "sealed": 0,
            "retired": 0,
        },
    ]
    title, header, row = output(capsys, "journal", "ls", tmp_path).splitlines()[:3]
    assert title == "partition p1"
    assert header.split() == ["channel", "events", "offsets", "size", "files", "sealed", "retired"]
    assert row.split()[:3] == ["air.tracks", "8", "0..7"]


def test_the_tables_of_a_long_history_fit_into_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: Any = {"partition": "f" * 16, "earliest": 1_000_000_000, "watermark": 1_100_000_000}
    rows |= {"channel": "weather.north", "events": 99_000_000, "bytes": 9 << 30}
    rows |= {"files": 99, "sealed": 98, "retired": 12}
    _print_histories([rows])
    with hg.Station(tmp_path, name="control tower") as station:
        channel = station.channel("weather.north", Track, qos=hg.QoS(durability="persistent"))
        channel.push(Track(1))
        with channel.consumer(group="accounting-workers", start="earliest") as worker:
            worker.pull(timeout=10.0)
    assert run(["journal", "consumers", str(tmp_path)]) == 0
    assert run(["journal", "ls", str(tmp_path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_ls_of_a_station_that_has_kept_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hg.Station(tmp_path):
        assert output(capsys, "journal", "ls", tmp_path) == "no history yet\n"
        assert output(capsys, "journal", "ls", tmp_path, "--json") == "[]\n"


def test_cat_prints_events_as_lines_without_their_class(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(capsys, "journal", "cat", tmp_path, "air.tracks")
    assert found[:2] == [{"id": 0, "speed": 0.0}, {"id": 1, "speed": 100.0}]
    assert found[3] == {"id": 3, "speed": None}
    assert found[-1] == {"id": "x", "level": 2}
    assert len(found) == 8
    assert json.loads(output(capsys, "journal", "cat", tmp_path, "air.tracks", "--json")) == found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--where", "speed > 250"], [4, 5, 6]),
        (["--where", "NOT speed > 250"], [0, 1, 2]),
        (["--where", "speed IS NULL"], [3]),
        (["--where", "level = 2 OR id = 'y'"], ["x"]),
        (["--where", "header.offset > 4"], [5, 6, "x"]),
        (["--start", "6"], [6, "x"]),
        (["--start", "earliest", "--until", "2"], [0, 1]),
        (["--start", "now"], []),
        (["--start", "2023-11-14T22:13:22Z", "--until", "2023-11-14T23:13:24+01:00"], [2, 3]),
        (["--limit", "1", "--start", "4"], [4]),
        (["--limit", "0"], []),
    ],
)
def test_cat_takes_filters_bounds_and_a_limit(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[Any]
) -> None:
    assert ids(capsys, "journal", "cat", tmp_path, "air.tracks", *options) == expected


def test_cat_prints_headers_when_asked(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = lines(capsys, "journal", "cat", tmp_path, "air.tracks", "--start", "7", "--headers")
    assert found["event"] == {"id": "x", "level": 2}
    assert found["header"] == {
        "channel": "air.tracks",
        "type": "air.alarm",
        "supplier": "radar",
        "epoch": 1,
        "sequence": 8,
        "source_ts": "2023-11-14T22:13:26.999999999Z",
        "append_ts": "2023-11-14T22:13:27.000000000Z",
        "station_seq": 8,
        "partition": "p1",
        "offset": 7,
        "priority": 3,
        "lifetime_ns": None,
        "hops": 0,
        "correlation_id": "c",
        "user": {"trace": "ab"},
        "format_id": hg.format_of(Alarm).id.hex(),
    }


def test_cat_merges_partitions_in_the_order_of_appending(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keeper(tmp_path, partition="p0") as other:
        for n in (1, 4):
            other.clock.now = FIRST_TIME + n * SECOND + 1
            other.push(Track(100 + n))
        found = ids(capsys, "journal", "cat", tmp_path, "air.tracks", "--until", "7")
    assert found == [0, 1, 101, 2, 3, 4, 104, 5, 6]


def test_cat_shows_where_a_body_is_that_is_no_event(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.append(msgspec.structs.replace(kept.record(Track(1)), body=b"\xc1"))
    (found,) = lines(capsys, "journal", "cat", tmp_path, "air.tracks", "--start", "8")
    assert found["header"]["offset"] == 8
    assert found["problem"]


def test_what_cannot_be_read_or_understood_fails_in_one_line(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no folder in which a station has kept" in failure(capsys, "journal", "ls", tmp_path / "no")
    assert "it holds that of air.tracks" in failure(capsys, "journal", "cat", tmp_path, "air.trucks")
    assert "it holds that of air.tracks" in failure(capsys, "journal", "verify", tmp_path, "air.trucks")
    cat = ("journal", "cat", tmp_path, "air.tracks")
    assert "sped" in failure(capsys, *cat, "--where", "sped > 3")
    assert "is no position in a history" in failure(capsys, *cat, "--start", "yesterday")
    assert "write 2026-01-01T00:00:00Z" in failure(capsys, *cat, "--start", "2026-01-01T00:00:00")


def test_verify_finds_nothing_wrong_with_what_is_sound(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output(capsys, "journal", "verify", tmp_path) == (
        "air.tracks/p1  sound  8 events in 2 files, offsets 0 to 7\n"
    )
    found = json.loads(output(capsys, "journal", "verify", tmp_path, "air.tracks", "--json"))
    assert found["sound"] is True
    assert found["partitions"][0]["damaged"] == []


def test_verify_says_of_a_history_without_events_where_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hg.Station(tmp_path) as station:
        station.channel("air.empty", Track, qos=hg.QoS(durability="persistent"))
        assert "sound  0 events in 0 files, the next offset is 0\n" in output(
            capsys, "journal", "verify", tmp_path
        )


def test_verify_names_the_exact_offsets_that_are_damaged(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_a_bit(next((kept.place / "heads").iterdir()), b"HgFr")
    (sealed,) = (kept.place / "sealed").iterdir()
    flip_a_bit(sealed, b"PAR1")
    (kept.place / "heads" / "rest.log").write_bytes(b"")
    text = output(capsys, "journal", "verify", tmp_path, code=1)
    assert text.startswith("air.tracks/p1  DAMAGED  2 events in 2 files, offsets 0 to 7\n")
    assert "  offsets 0 to 4: " in text
    assert "  offsets 5 to 5: " in text
    assert "  not listed: heads/rest.log\n" in text
    found = json.loads(output(capsys, "journal", "verify", tmp_path, "--json", code=1))
    assert found["sound"] is False
    ranges = [(one["first"], one["last"]) for one in found["partitions"][0]["damaged"]]
    assert ranges == [(0, 4), (5, 5)]


def flip_a_bit(file: Path, behind: bytes) -> None:
    """Somewhere in the first thing that begins like this."""
    data = bytearray(file.read_bytes())
    data[data.index(behind) + 90] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("is_lost", [True, False])
def test_verify_reports_a_manifest_that_is_lost_or_damaged(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_lost: bool
) -> None:
    manifest = kept.place / "manifest"
    if is_lost:
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:-1])
    assert "air.tracks/p1  CANNOT be read: " in output(capsys, "journal", "verify", tmp_path, code=1)
    found = json.loads(output(capsys, "journal", "verify", tmp_path, "--json", code=1))
    assert "manifest" in found["partitions"][0]["problem"]


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_repair_says_what_it_will_do_does_it_once_and_keeps_what_it_replaces(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.writer.close()
    head = next((kept.place / "heads").iterdir())
    before = head.read_bytes()
    flip(head, 64 + 100)
    planned = output(capsys, "journal", "repair", tmp_path, "--dry-run", code=1)
    assert "air.tracks/p1  to be repaired" in planned
    assert "LOST: offsets 5 to 5" in planned
    assert head.read_bytes() != before
    done = output(capsys, "journal", "repair", tmp_path)
    assert done == planned.replace("to be repaired", "repaired")
    (aside,) = kept.place.glob("damaged-*/*.log")
    assert len(aside.read_bytes()) == len(before)
    verified = output(capsys, "journal", "verify", tmp_path)
    assert "sound" in verified
    assert "lost before, and accepted: offsets 5 to 5" in verified
    assert output(capsys, "journal", "repair", tmp_path) == "air.tracks/p1  nothing to repair\n"
    document = json.loads(output(capsys, "journal", "repair", tmp_path, "--json"))
    assert document["partitions"][0]["steps"] == []


def test_damage_of_what_waits_to_be_delivered_later_is_located_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(station: hg.Station) -> hg.Channel[Track]:
        return station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))

    with hg.Station(tmp_path) as station:
        tracks = opened(station)
        tracks.push(Track(0))
        for n in range(3):
            tracks.push(Track(n), deliver_after=3600.0)
    (partition,) = (tmp_path / "delayed" / "air.tracks").iterdir()
    name = f"air.tracks/{partition.name}  delayed"
    assert f"{name}  sound  3 events in 1 file, offsets 0 to 2\n" in output(
        capsys, "journal", "verify", tmp_path
    )
    (head,) = (partition / "heads").iterdir()
    content = head.read_bytes()
    flip(head, content.index(b"HgFr", content.index(b"HgFr") + 1) + 60)
    text = output(capsys, "journal", "verify", tmp_path, code=1)
    assert f"{name}  DAMAGED  2 events in 1 file, offsets 0 to 2\n  offsets 1 to 1: " in text
    found = json.loads(output(capsys, "journal", "verify", tmp_path, "--json", code=1))
    assert [(one["delayed"], one["sound"]) for one in found["partitions"]] == [(False, True), (True, False)]
    told: list[BaseException] = []
    with hg.Station(tmp_path, on_error=lambda _, __, error: told.append(error)) as station:
        assert opened(station).stats().delayed == 2, "the others wait on"
    assert [(e.first, e.next_available) for e in told if isinstance(e, HistoryDamaged)] == [(1, 2)]
    planned = output(capsys, "journal", "repair", tmp_path, "--dry-run", code=1)
    assert f"{name}  to be repaired" in planned
    assert output(capsys, "journal", "repair", tmp_path) == planned.replace("to be repaired", "repaired")
    assert f"{name}  sound  2 events" in output(capsys, "journal", "verify", tmp_path)
    with hg.Station(tmp_path) as station:
        assert opened(station).stats().delayed == 2


def test_a_damaged_place_of_a_consumer_is_reported_refused_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(station: hg.Station) -> hg.Channel[Track]:
        return station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))

    with hg.Station(tmp_path) as station:
        tracks = opened(station)
        tracks.push_many([Track(n) for n in range(6)])
        for name in ("billing", "audit"):
            with tracks.consumer(name=name, ack="manual", start="earliest") as consumer:
                for delivery in consumer.deliveries(timeout=0):
                    delivery.ack()
    cursors = tmp_path / "consumers" / "air.tracks" / "cursors"
    content = bytearray(cursors.read_bytes())
    content[len(content) // 2 - 40] ^= 1
    cursors.write_bytes(content)
    found = json.loads(output(capsys, "journal", "verify", tmp_path, "--json", code=1))
    assert [one["sound"] for one in found["partitions"]] == [True]
    assert found["cursors"][0]["sound"] is False
    assert "air.tracks consumers  DAMAGED: bytes" in output(capsys, "journal", "verify", tmp_path, code=1)
    with hg.Station(tmp_path) as station, pytest.raises(hg.HeliographError, match="helio journal repair"):
        opened(station)
    planned = output(capsys, "journal", "repair", tmp_path, "--dry-run", code=1)
    assert "consumer 'billing' goes on at offset" in planned
    assert "consumer 'audit' goes on at offset 6 of" in planned
    done = output(capsys, "journal", "repair", tmp_path)
    assert done == planned.replace("to be repaired", "repaired")
    output(capsys, "journal", "verify", tmp_path)
    assert len(list(cursors.parent.glob("damaged-*/cursors"))) == 1
    with hg.Station(tmp_path) as station:
        with opened(station).consumer(name="audit", until="now") as consumer:
            assert list(consumer) == []
        with opened(station).consumer(name="billing", until="now") as consumer:
            assert all(delivery.redelivered for delivery in consumer.deliveries())


def test_consumers_says_how_far_behind_each_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hg.Station(tmp_path, name="tower") as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        assert output(capsys, "journal", "consumers", tmp_path) == "no durable consumers yet\n"
        tracks.push_many([Track(n) for n in range(6)])
        with tracks.consumer(name="billing", ack="manual", start="earliest") as consumer:
            next(iter(consumer.deliveries(timeout=0))).ack()
        with tracks.consumer(group="workers", start="earliest", until=2) as worker:
            assert len(list(worker)) == 2
        lines = output(capsys, "journal", "consumers", tmp_path, "air.tracks").splitlines()
    title, titles, billing, workers = lines
    assert title.startswith("air.tracks, partition ")
    assert titles.split() == ["consumer", "acked", "lag", "oldest", "tries", "seen", "owner"]
    assert billing.split()[:3] == ["billing", "1", "5"]
    assert workers.split()[:4] == ["group", "workers", "2", "4"]
    assert billing.endswith("tower")
    found = json.loads(output(capsys, "journal", "consumers", tmp_path, "--json"))
    assert [(one["consumer"], one["kind"], one["acknowledged"], one["end"], one["lag"]) for one in found] == [
        ("billing", "consumer", 1, 6, 5),
        ("workers", "group", 2, 6, 4),
    ]
    cursors = tmp_path / "consumers" / "air.tracks" / "cursors"
    content = bytearray(cursors.read_bytes())
    content[20] ^= 1
    cursors.write_bytes(content)
    assert run(["journal", "consumers", str(tmp_path)]) == 1
    assert "the consumers of air.tracks cannot be listed: " in capsys.readouterr().err


def test_ls_lists_what_it_can_and_names_what_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qos = hg.QoS(durability="persistent")
    with hg.Station(tmp_path / "data") as station:
        for name in ("air.tracks", "bad", "weather"):
            station.channel(name, Track, qos=qos).push(Track(1))
    (manifest,) = (tmp_path / "data" / "channels" / "bad").glob("*/manifest")
    manifest.write_bytes(b"nonsense")
    assert run(["journal", "ls", str(tmp_path / "data")]) == 1
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()[2:]] == ["air.tracks", "weather"]
    assert f"helio: bad/{manifest.parent.name} cannot be listed: " in captured.err
    assert run(["journal", "ls", str(tmp_path / "data"), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["channel"] for row in rows] == ["air.tracks", "weather", "bad"]
    assert "manifest" in rows[2]["problem"]


def test_repair_is_refused_while_a_station_has_the_folder_whatever_it_has_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hg.Station(tmp_path / "data") as station:
        station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent")).push(Track(1))
    with hg.Station(tmp_path / "data"):
        assert "as a station" in failure(capsys, "journal", "repair", tmp_path / "data")
        assert run(["journal", "repair", "--dry-run", str(tmp_path / "data")]) == 0
        capsys.readouterr()
    assert run(["journal", "repair", str(tmp_path / "data")]) == 0


def test_repair_is_refused_while_a_writer_has_the_partition(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is written by pid" in failure(capsys, "journal", "repair", tmp_path)
    assert kept.writer.stats().damaged == 0


def test_export_writes_what_can_be_read_and_names_what_cannot(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tracks.jsonl"
    assert output(capsys, "journal", "export", tmp_path, "air.tracks", file).startswith("8 events written to")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["header"]["offset"] for row in rows] == list(range(8))
    assert rows[7]["event"] == {"id": "x", "level": 2}

    flip(next((kept.place / "heads").iterdir()), 64 + 100)
    some = tmp_path / "some.jsonl"
    said = output(
        capsys, "journal", "export", tmp_path, "air.tracks", some, "--where", "speed >= 400", code=1
    )
    assert "p1: offsets 5 to 5 cannot be read" in said
    assert [json.loads(line)["event"]["id"] for line in some.read_text().splitlines()] == [4, 6]


def test_export_writes_parquet_for_whoever_has_no_heliograph(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "PART", 3)
    folder = tmp_path / "tracks.parquet"
    said = output(
        capsys, "journal", "export", tmp_path, "air.tracks", folder, "--where", "speed >= 0", "--until", "6"
    )
    assert said.startswith("5 events written")
    assert len(list(folder.iterdir())) == 2
    table = pq.read_table(folder)
    assert table.column("_offset").to_pylist() == [0, 1, 2, 4, 5]
    assert table.column("speed").to_pylist() == [0.0, 100.0, 200.0, 400.0, 500.0]
    assert kept.place.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("tracks.csv", "ends in none of .jsonl, .parquet, .mcap"), ("there.jsonl", "there already")],
)
def test_export_refuses_what_it_would_not_write(
    kept: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    assert reason in failure(capsys, "journal", "export", tmp_path, "air.tracks", tmp_path / name)
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert kept.place.exists()


def test_the_group_alone_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert "journal [OPTIONS] COMMAND" in output(capsys, "journal")


def test_seal_makes_files_of_all_heads_and_is_refused_while_a_station_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(3):
        with hg.Station(tmp_path) as station:
            tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
            tracks.push(Track(n, 1.0))
            assert str(tmp_path) in failure(capsys, "journal", "seal", tmp_path)
    (found,) = json.loads(output(capsys, "journal", "ls", tmp_path, "--json"))
    assert found["events"] == 3
    assert "1 file sealed" in output(capsys, "journal", "seal", tmp_path)
    assert "0 files sealed" in output(capsys, "journal", "seal", tmp_path, "air.tracks")
    assert ids(capsys, "journal", "cat", tmp_path, "air.tracks") == [0, 1, 2]
    (one,) = json.loads(output(capsys, "journal", "seal", tmp_path, "--json"))
    assert (one["segments"], one["heads"]) == (0, 0)
