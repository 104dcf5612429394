"""What the text of DDS 1.4 says of its policies, as typed into dds_1_4.csv; nothing comes from the code.

Its column `sources` says which public pages say the same of a row, and what of it:

    OpenDDS         docs/devguide/quality_of_service.rst of github.com/OpenDDS/OpenDDS
    Fast DDS        docs/fastdds/dds_layer/core/policy/standardQosPolicies.rst of eProsima/Fast-DDS-docs
    Cyclone DDS     cyclonedds.io/docs, Quality of Service
    rustdds         docs.rs/rustdds, module `policy`

What no page says there (QosPolicyIds, some sections and rules) is from knowledge of the text.
"""

from __future__ import annotations

import csv
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

ENTITIES = {
    "DPF": "factory",
    "DP": "participant",
    "T": "topic",
    "P": "publisher",
    "S": "subscriber",
    "DW": "writer",
    "DR": "reader",
}
CONSTANTS = {"INFINITE": None, "UNLIMITED": None, "empty": "", "TRUE": True, "FALSE": False}


class Row(NamedTuple):
    section: str
    policy: str
    id: int
    applies: set[str]
    rxo: bool
    changeable: bool
    defaults: dict[str, Any]
    rules: dict[str, str]
    sources: str


def read() -> list[Row]:
    with (Path(__file__).parent / "dds_1_4.csv").open(newline="") as file:
        return [
            Row(
                row["section"],
                row["policy"].lower(),
                int(row["id"]),
                {ENTITIES[one] for one in row["applies"].split()},
                row["rxo"] == "yes",
                row["changeable"] == "yes",
                dict(_default(one) for one in row["defaults"].split()),
                dict(one.strip().split(": ") for one in row["rule"].split(";") if one),
                row["sources"],
            )
            for row in csv.DictReader(file)
        ]


def _default(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if value in CONSTANTS:
        return name, CONSTANTS[value]
    try:
        return name, float(value)
    except ValueError:
        return name, word(value)


def word(constant: str) -> str:
    """TRANSIENT_LOCAL is transient-local here."""
    return constant.lower().replace("_", "-")


def fits(rule: str, offered: Any, requested: Any) -> bool:
    """Whether an offered value goes with a requested one, as a rule of the text says."""
    if rule == "requested implies offered":
        return offered or not requested
    if rule == "offered = requested":
        return bool(offered == requested)
    if rule == "offered <= requested":
        return (inf if offered is None else offered) <= (inf if requested is None else requested)
    head, _, kinds = rule.partition(" in ")
    assert head == "offered >= requested", rule
    order = [word(kind) for kind in kinds.split(" < ")]
    return order.index(offered) >= order.index(requested)
