"""The text that Prometheus scrapes: its grammar, names and units, and the bound on label sets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import heliograph as hg
from heliograph.monitoring import prometheus
from tests.docs.pages import ROOT
from tests.e2e.link_support import LIMIT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+)')
UNITS = (
    "_events",
    "_seconds",
    "_bytes",
    "_deliveries",
    "_records",
    "_total",
    "_info",
    "_offset",
    "_connected",
)
COUNTED = ("_channels", "_suppliers", "_receivers", "_stations")


class Ping(hg.Event):
    n: int


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[line.rpartition(" ")[0]] = float(match[3])
    return found


def test_every_line_is_of_the_text_format_and_every_name_has_its_unit(tmp_path: Path) -> None:
    with hg.Station(tmp_path) as station:
        channel = station.channel("a", Ping, qos=hg.QoS(durability="persistent"))
        channel.consumer(name="billing", start="earliest")
        channel.push_many([Ping(n) for n in range(7)])
        text = station.metrics()
    found = samples(text)
    assert found['heliograph_channel_pushed_events_total{channel="a"}'] == 7
    assert found['heliograph_journal_end_offset{channel="a"}'] == 7
    assert found['heliograph_consumer_lag_events{channel="a",consumer="billing"}'] == 7
    typed = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
    for family in prometheus.FAMILIES:
        assert family.name.endswith((*UNITS, *COUNTED)), family.name
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert typed.get(family.name, family.kind) == family.kind
    assert {line.partition("{")[0].partition(" ")[0] for line in found} == typed.keys()


def test_names_from_outside_cannot_break_a_line() -> None:
    with hg.Station(name='a"} 1\nevil 2') as station:
        station.channel("a", Ping).subscribe(lambda _: None, name='x\\"} 1 evil')
        found = samples(station.metrics())
    assert not [line for line in found if line.startswith("evil")]


def test_the_number_of_series_is_bounded_and_nothing_is_left_out_of_the_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "MAX_CHANNELS", 2)
    monkeypatch.setattr(prometheus, "MAX_RECEIVERS", 3)
    with hg.Station() as station:
        for name in "abcde":
            channel = station.channel(name, Ping)
            for _ in range(6):
                channel.subscribe(lambda _: None)
            channel.push(Ping(1))
            assert channel.settle(LIMIT)
        found = samples(station.metrics())
    pushed = {line: n for line, n in found.items() if line.startswith("heliograph_channel_pushed")}
    assert len(pushed) == 3
    assert sum(pushed.values()) == 5
    delivered = {line: n for line, n in found.items() if line.startswith("heliograph_receiver_delivered")}
    assert len(delivered) == 2 * 4 + 1
    assert sum(delivered.values()) == 30


def test_the_dashboard_for_grafana_asks_for_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    board = json.loads((ROOT / "docs" / "guides" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"]]
    known = {family.name for family in prometheus.FAMILIES}
    named = set(re.findall(r"heliograph_\w+", " ".join(asked)))
    assert len(named) > 8
    assert named <= known
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    with hg.Station(tmp_path) as station:
        channel = station.channel("a", Ping, qos=hg.QoS(durability="persistent"))
        channel.consumer(name="billing")
        channel.push(Ping(1))
        labels = set(re.findall(r"[{,](\w+)=", station.metrics()))
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", " ".join(asked)))))
    assert grouped <= {*labels, "peer_name", "reason"}
