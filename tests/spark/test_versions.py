"""Histories into which stations with two versions of a class have pushed: Spark reads every event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import heliograph as hg
import heliograph.spark
from tests.e2e.event_versions import CHANGES, ROLES, expected_of_kept, plain
from tests.e2e.link_support import own_meeting_folder
from tests.ring_support import needs_rings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from heliograph.links import Carrier

KEPT = hg.QoS(durability="persistent")


@pytest.mark.parametrize("carrier", ["socket", pytest.param("ring", marks=needs_rings)])
@pytest.mark.parametrize("who", ["supplier", "keeper"])
def test_every_event_that_was_kept_is_read_with_the_fields_of_all_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, carrier: Carrier
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    role, expected = ROLES[who], {}
    with (
        hg.Station(tmp_path / "data", domain="v", transport=carrier) as keeper,
        hg.Station(domain="v", transport=carrier) as old,
        hg.Station(domain="v", transport=carrier) as new,
    ):
        stations = {"old": old, "new": new}
        for name, change in CHANGES.items():
            channel = f"v.{name.replace(' ', '-')}"
            keeper.channel(channel, change.cls(role.keeper), qos=KEPT)
            refused = expected_of_kept(change, role).refused
            kept: list[dict[str, Any]] = []
            for number, version in enumerate(role.pushed):
                pushed: hg.Channel[Any] = stations[version].channel(channel, change.cls(version))
                event = change.make(version, number)
                if number in refused:
                    with pytest.raises(hg.IncompatibleFormats):
                        pushed.push(event)
                else:
                    assert pushed.push(event)
                    kept.append(plain(event))
            names = dict.fromkeys(field for fields in kept for field in fields)
            expected[channel] = [{field: fields.get(field) for field in names} for fields in kept]
        for channel, rows in expected.items():
            if not rows:
                continue  # all of them were refused
            source = spark.read.format("heliograph").options(path=str(tmp_path / "data"), channel=channel)
            for frame in (heliograph.spark.read(spark, tmp_path / "data", channel), source.load()):
                found = [row.asDict(recursive=True) for row in frame.orderBy("header.offset").collect()]
                assert [{n: v for n, v in row.items() if n in rows[0]} for row in found] == rows, channel
