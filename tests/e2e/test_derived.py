"""Derived channels between processes: derived at the source, once for all who ask for the same."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import heliograph as hg
from heliograph.cli import app
from heliograph.errors import NotPossible
from tests.e2e.derived_process import NOTE, SELECT, WHERE, Row
from tests.e2e.link_programs import Program
from tests.e2e.link_support import LIMIT, TRANSPORT, open_station, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True, params=["socket", "ring"])
def _meeting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    monkeypatch.setenv(TRANSPORT, request.param)


@contextmanager
def running(*programs: tuple[str, ...]) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        found = []
        for arguments in programs:
            program = Program(*arguments, module="tests.e2e.derived_process")
            stack.callback(program.clean_up)
            found.append(program)
        yield found


def tell(program: Program, line: str, answer: str) -> str:
    program.said.clear()
    assert program.process.stdin is not None
    program.process.stdin.write(f"{line}\n")
    program.process.stdin.flush()
    return program.says(answer)


def stats(program: Program) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tell(program, "stats", "stats").partition(" ")[2])
    return found


def test_the_source_derives_once_for_all_processes_that_ask_for_the_same() -> None:
    with running(("supply",), ("receive",), ("receive",)) as (source, one, two), open_station() as station:
        source.says("open")
        digest = one.says("receives")
        assert two.says("receives") == digest
        derived = station.channel("rows", Row).derive(SELECT, where=WHERE)
        assert digest == f"receives {derived.digest}"
        got: list[tuple[int, float, int]] = []
        derived.subscribe(lambda event, header: got.append((event.id, event.double, header.sequence)))
        tell(source, "match 3", "matched")
        before = stats(source)["bytes"]
        tell(source, "1000", "pushed")
        wanted = [(n, 2.0 * (n % 1000)) for n in range(0, 1000, 10)]
        assert wait_until(lambda: len(got) >= len(wanted))
        assert [(row, double) for row, double, _ in got] == wanted
        assert [sequence for *_, sequence in got] == [row + 1 for row, _ in wanted]
        for program in (one, two):
            assert wait_until(lambda p=program: sum(s.startswith("got") for s in p.said) >= len(wanted))  # type: ignore[misc]  # lambdas have no types
            said = [line.split()[1:] for line in program.said if line.startswith("got")]
            assert [(int(row), float(double)) for row, double in said] == wanted
        after = stats(source)
        assert after["derived"] == [len(wanted)]
        assert after["bytes"] - before < 3 * 1000 * len(NOTE) / 20


def test_a_receiver_that_is_killed_leaves_nothing_behind_and_the_next_is_served() -> None:
    with running(("supply",), ("receive",)) as (source, receiver):
        source.says("open")
        tell(source, "match 1", "matched")
        receiver.kill()
        assert wait_until(lambda: stats(source)["derived"] == [])
        tell(source, "100", "pushed")
        with open_station() as station:
            consumer = station.channel("rows", Row).derive(SELECT, where=WHERE).consumer()
            tell(source, "match 1", "matched")
            tell(source, "100", "pushed")
            got: list[Any] = [consumer.pull(LIMIT) for _ in range(10)]
            assert [event.id for event in got] == list(range(100, 200, 10))
        assert wait_until(lambda: stats(source)["derived"] == [])


def test_history_that_another_process_keeps_is_derived_there_and_goes_on_live(tmp_path: Path) -> None:
    qos = hg.QoS(durability="persistent")
    with running(("supply", str(tmp_path / "data"))) as (source,):
        source.says("open")
        tell(source, "1000", "pushed")
        for expected in (range(0, 1500, 10), range(1500, 2000, 10)):
            with open_station() as station:
                derived = station.channel("rows", Row, qos=qos).derive(SELECT, where=WHERE)
                before = stats(source)["bytes"]
                with derived.consumer(name="billing", start="earliest") as consumer:
                    tell(source, "500", "pushed")
                    got = []
                    for delivery in consumer.deliveries(timeout=LIMIT):
                        got.append((delivery.event.id, delivery.header.offset))
                        delivery.ack()
                        if len(got) == len(expected):
                            break
                    assert got == [(n, n) for n in expected]
                assert stats(source)["bytes"] - before < 1500 * len(NOTE) / 10


def test_an_original_that_is_opened_later_is_derived_from_then_on() -> None:
    with open_station() as station:
        consumer = station.channel("rows", Row).derive(SELECT, where=WHERE).consumer()
        with running(("supply",)) as (source,):
            source.says("open")
            tell(source, "match 1", "matched")
            tell(source, "10", "pushed")
            event = consumer.pull(LIMIT)
            assert event is not None
            assert event.id == 0


def test_helio_sub_selects_columns_at_the_source() -> None:
    with running(("supply",)) as (source,):
        source.says("open")
        arguments = [
            "sub",
            "rows",
            "--domain",
            "e2e",
            "--select",
            SELECT,
            "--where",
            WHERE,
            "--count",
            "3",
            "--json",
        ]
        found: list[Any] = []

        def run() -> None:
            found.append(CliRunner().invoke(app, arguments))

        thread = Thread(target=run)
        thread.start()
        tell(source, "match 1", "matched")
        tell(source, "100", "pushed")
        thread.join(LIMIT)
        assert found[0].exit_code == 0, found[0].output
        assert json.loads(found[0].stdout) == [{"id": n, "double": 2.0 * n} for n in (0, 10, 20)]
        assert wait_until(lambda: stats(source)["derived"] == [])
    refused = CliRunner().invoke(
        app, ["sub", "ro.*", "--domain", "e2e", "--select", SELECT, "--timeout", "0"]
    )
    assert refused.exit_code != 0
    assert "name it instead of a pattern" in str(refused.exception)


def test_a_receiver_derives_by_itself_what_an_older_station_pushes() -> None:
    with running(("supply",), ("older",)) as (source, older), open_station() as station:
        source.says("open")
        older.says("open")
        channel = station.channel("rows", Row)
        derived = channel.derive(SELECT, where=WHERE)
        got: list[tuple[str, int, float]] = []
        derived.subscribe(lambda event, header: got.append((header.supplier, event.id, event.double)))
        whole: list[int] = []
        for program in (source, older):
            tell(program, "match 1", "matched")
        tell(source, "100", "pushed")
        tell(older, "100", "pushed")
        wanted = [(n, 2.0 * n) for n in range(0, 100, 10)]
        assert wait_until(lambda: len(got) >= 2 * len(wanted))
        channel.subscribe(lambda event: whole.append(event.id))  # whole events beside: nothing comes twice
        for program in (source, older):
            tell(program, "match 2", "matched")
            tell(program, "100", "pushed")
        wanted += [(100 + n, 2.0 * n) for n in range(0, 100, 10)]
        assert wait_until(lambda: len(got) >= 2 * len(wanted) and len(whole) >= 200)
        by_supplier: dict[str, list[tuple[int, float]]] = {}
        for supplier, row, double in got:
            by_supplier.setdefault(supplier, []).append((row, double))
        assert list(by_supplier.values()) == [wanted, wanted]
        assert stats(older)["derived"] == []
        derived.close()
        assert wait_until(lambda: stats(source)["derived"] == [])


def test_a_history_that_an_older_station_keeps_is_refused_by_name(tmp_path: Path) -> None:
    with running(("older", str(tmp_path / "data"))) as (older,), open_station() as station:
        older.says("open")
        rows = station.channel("rows", Row, qos=hg.QoS(durability="persistent"))
        with pytest.raises(NotPossible, match="is of a version that derives nothing"):
            rows.derive(SELECT)
        assert rows.consumer(start="earliest").pull(0.1) is None
