"""What `helio doctor` says of DDS writers and readers: which of them get nothing, and what would help.

    examine_endpoints(announcements)        findings; pure

A reader that no writer matches, or a writer that no reader does, is looked at beside the others of its topic,
or of topics with a name like it. Each finding has the explanation of `hg.explain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.errors import HeliographError
from heliograph.facades.dcps.discovery import DISCOVERY, Announcement, endpoint_of
from heliograph.monitoring.doctor import Finding
from heliograph.qos.explanation import explain_endpoints, is_alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heliograph.qos.explanation import Endpoint, Explanation
    from heliograph.station import Station

MOST_FINDINGS: Final = 50
FETCH_SECONDS: Final = 5.0


def announced(here: Station) -> list[Announcement]:
    """The entities of the domain, as its stations tell them to one that joins."""
    mesh = here.mesh
    if mesh is None:
        return []
    stations = mesh.stations()
    if not any(state.name == DISCOVERY for other in stations for state in other.channels):
        return []
    from heliograph.qos.policies import QoS  # noqa: PLC0415 - where there is DDS

    channel = here.channel(DISCOVERY, Announcement, qos=QoS(durability="transient-local", history=1))
    with channel.consumer() as consumer:
        mesh.wait_fetched(FETCH_SECONDS)
        found = {one.id: one for one in consumer.read(100_000, 0.2)}
    return [one for one in found.values() if one.alive]


def examine_endpoints(announcements: Iterable[Announcement]) -> list[Finding]:
    """What keeps writers and readers apart."""
    writers, readers = [], []
    for one in announcements:
        try:
            end = endpoint_of(one)
        except (HeliographError, msgspec.ValidationError, msgspec.DecodeError, ValueError):
            continue
        if one.kind == "publication":
            writers.append(end)
        elif one.kind == "subscription":
            readers.append(end)
    return [*_apart(writers, readers), *_alone(writers, readers)][:MOST_FINDINGS]


def _apart(writers: list[Endpoint], readers: list[Endpoint]) -> Iterator[Finding]:
    for reader in readers:
        for writer in writers:
            if writer.topic != reader.topic:
                continue
            found = explain_endpoints(writer, reader)
            if not found:
                text = f"writer {writer.name} and reader {reader.name}: {_why(found)}"
                yield Finding("problem", "not matched", f"topic {writer.topic}", text, _remedy(found))


def _alone(writers: list[Endpoint], readers: list[Endpoint]) -> Iterator[Finding]:
    """Topics with ends on one side only, beside others with a name like theirs."""
    written, read = ({end.topic for end in ends} for ends in (writers, readers))
    for topic in sorted(read - written):
        for other in sorted(written - read):
            if is_alike(topic, other):
                text = (
                    f"readers of {topic!r} and writers of {other!r}: probably a mistake in one of the names"
                )
                yield Finding(
                    "problem", "names differ", f"topic {topic}", text, f"create_topic({other!r}, ...)"
                )


def _why(found: Explanation) -> str:
    policies = [
        f"{one.policy}: offered {_said(one.offered)}, requested {_said(one.requested)}"
        for one in found.mismatches
    ]
    return "; ".join([*found.apart, *policies])


def _said(policy: msgspec.Struct) -> str:
    return ", ".join(f"{name} {getattr(policy, name)}" for name in policy.__struct_fields__)


def _remedy(found: Explanation) -> str:
    if not found.on_reader:
        return "print(hg.explain(writer, reader))"
    return f"{' and '.join(map(str, found.on_writer))}; or {' and '.join(map(str, found.on_reader))}"
