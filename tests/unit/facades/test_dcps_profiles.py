"""QoS profiles of DDS in TOML: they build on each other, and mistakes are named by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from heliograph.errors import InvalidConfiguration
from heliograph.facades import dcps

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
[base.writer]
reliability = { kind = "reliable", max_blocking = 1.0 }
liveliness = { lease = 5.0 }

[base.publisher]
partition = { names = ["north", "s*"] }

[fast.writer]
latency_budget = { duration = 0.5 }
liveliness = { kind = "manual-by-topic" }

[sensor]
extends = ["base", "fast"]

[sensor.writer]
liveliness = { lease = "infinite" }
user_data = { value = "radar" }

[sensor.reader]
history = { kind = "keep-last", depth = 10 }
"""


def loaded(folder: Path, text: str) -> dict[str, dcps.QosProfile]:
    file = folder / "qos.toml"
    file.write_text(text)
    return dcps.load_profiles(file)


def test_profiles_build_on_each_other_field_by_field(tmp_path: Path) -> None:
    profiles = loaded(tmp_path, FILE)
    sensor = profiles["sensor"]
    assert sensor.writer.reliability == dcps.Reliability("reliable", 1.0)
    assert sensor.writer.liveliness == dcps.Liveliness("manual-by-topic", None)
    assert sensor.writer.latency_budget.duration == 0.5
    assert sensor.writer.user_data.value == b"radar"
    assert sensor.publisher.partition.names == ("north", "s*")
    assert sensor.reader.history == dcps.History("keep-last", 10)
    assert sensor.subscriber == dcps.SubscriberQos()
    assert profiles["base"].writer.liveliness == dcps.Liveliness("automatic", 5.0)


def test_the_policies_of_a_profile_are_explained_and_used(tmp_path: Path) -> None:
    profile = loaded(tmp_path, FILE)["fast"]
    found = hg.explain(profile.writer, profile.reader)
    assert [one.policy for one in found.mismatches] == ["latency_budget"]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[a.writer]\n\nhistory = { depth = 0 }", 3, "a whole number from 1"),
        ("[a.writer]\nhistroy = { depth = 1 }", 2, "is none of user_data, durability"),
        ("[a.writer]\nhistory = 3", 2, "is a table"),
        ("[a.writer]\nhistory = { deep = 3 }", 2, "deep"),
        ("[a.write]\n", 1, "is none of extends, participant"),
        ("[a]\nextends = ['b']", 2, "a list of profiles of this file: a"),
        ("[a]\nextends = ['b']\n[b]\nextends = ['a']", 2, "a -> b -> a"),
        (
            "[a.reader]\nhistory = { depth = 3 }\nresource_limits = { max_samples_per_instance = 2 }",
            2,
            "contradicts",
        ),
        ("[a.writer\n", 1, ""),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        loaded(tmp_path, text)
    assert caught.value.line == line
    assert problem in caught.value.problem


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="there is no such file"):
        dcps.load_profiles(tmp_path / "none.toml")
