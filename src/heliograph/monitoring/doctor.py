"""What is wrong in a domain, found in snapshots: each finding with the command that mends it. Pure.

for finding in examine(snapshots, silent, now_ns):
    finding.severity, finding.what, finding.where, finding.text, finding.command
"""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from heliograph.journal.consumers.lag import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from heliograph.monitoring.snapshot import ChannelSnapshot, StationSnapshot

Severity: TypeAlias = Literal["problem", "warning", "note"]

LAG: Final = 1_000
"""Events behind which a durable consumer is worth a word."""
AWAY_NS: Final = 3_600_000_000_000
"""For how long its owner was not heard of, to call it away: an hour."""
STUCK: Final = 5.0
"""Seconds that a callback runs before it is called stuck."""
FREE_BYTES: Final = 1 << 30
"""Free space on a disk below which histories are in danger."""
CLOCKS_NS: Final = 1_000_000_000
"""By how much the clocks of two hosts may differ."""
ALIKE: Final = 0.82
"""How alike two names are that may be one with a typing error."""
MEANT: Final = frozenset({"closed", "coalesced", "separated"})
"""Reasons of drops that somebody asked for."""
ORDER: Final[dict[Severity, int]] = {"problem": 0, "warning": 1, "note": 2}


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, or may be."""

    severity: Severity
    what: str
    where: str
    text: str
    command: str = ""
    """What mends it, or shows more."""


def examine(stations: Sequence[StationSnapshot], silent: Sequence[str], now_ns: int) -> list[Finding]:
    """All findings, the worst first."""
    found = [
        *(_silent(name) for name in silent),
        *_versions(stations),
        *_names(stations),
        *(finding for station in stations for finding in _station(station, now_ns)),
    ]
    return sorted(found, key=lambda one: (ORDER[one.severity], one.what, one.where))


def examine_domains(
    domain: str, stations: Sequence[StationSnapshot], elsewhere: Mapping[str, Sequence[StationSnapshot]]
) -> list[Finding]:
    """Channels of which one side is in another domain: the two never meet."""
    written, read = _sides(stations)
    found = []
    for other, theirs in elsewhere.items():
        their_written, their_read = _sides(theirs)
        for name in sorted((written - read) & (their_read - their_written)):
            text = f"is written in domain {domain} and read in domain {other}: the two never meet"
            found.append(Finding("problem", "other domain", name, text, f"hg.Station(domain={domain!r})"))
        for name in sorted((read - written) & (their_written - their_read)):
            text = f"is read in domain {domain} and written in domain {other}: the two never meet"
            found.append(Finding("problem", "other domain", name, text, f"hg.Station(domain={domain!r})"))
    return found


def _sides(stations: Sequence[StationSnapshot]) -> tuple[set[str], set[str]]:
    """Channels into which something was pushed, and those that have receivers; not a station's own."""
    channels = [
        one for station in stations for one in station.channels if not one.name.startswith(("$", "dcps."))
    ]
    return {one.name for one in channels if one.pushed}, {one.name for one in channels if one.receivers}


def _silent(name: str) -> Finding:
    text = "is there and does not answer: its process may be stopped, or too busy"
    return Finding("problem", "silent station", name, text, "helio ls --links; kill -CONT PID if stopped")


def _versions(stations: Sequence[StationSnapshot]) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = defaultdict(list)
    for station in stations:
        by_version[station.version].append(_label(station))
    if len(by_version) > 1:
        said = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(by_version.items()))
        yield Finding("warning", "versions differ", "domain", said, "pip install --upgrade heliograph")


def _station(station: StationSnapshot, now_ns: int) -> Iterator[Finding]:
    label = _label(station)
    if station.busy_s > STUCK:
        text = f"a callback has been running for {station.busy_s:.1f} s; what waits behind it is late"
        yield Finding("problem", "stuck callback", label, text, f"py-spy dump --pid {station.pid}")
    for what, n in station.stalls.items():
        text = f"{what} had to wait {n} times: the host had no thread or descriptor left"
        yield Finding("warning", "host exhausted", label, text, "ulimit -n 65536; ulimit -u")
    if station.free_bytes is not None and station.free_bytes < FREE_BYTES:
        text = f"{station.free_bytes / 2**20:.0f} MiB are free on the disk of {station.folder}"
        yield Finding("problem", "disk almost full", label, text, "helio purge CHANNEL --before INSTANT")
    if abs(station.time_ns - now_ns) > CLOCKS_NS:
        text = f"its clock differs by {(station.time_ns - now_ns) / 1e9:+.1f} s from this one's"
        yield Finding("warning", "clocks differ", label, text, "chronyc tracking; timedatectl")
    for link in station.links:
        other = link.name or link.peer
        if link.suspected or not link.connected:
            text = f"the link to {other} is down" if not link.connected else f"{other} says nothing"
            yield Finding("problem", "broken link", label, text, "helio ls --links")
        if lost := link.lost + link.missed + link.overtaken:
            text = f"{lost} events between it and {other} were lost: one of them stood still"
            yield Finding("warning", "events lost on a link", label, text, "hg.QoS(durability='persistent')")
    for channel in station.channels:
        yield from _channel(channel, label, station, now_ns)


def _channel(
    channel: ChannelSnapshot, label: str, station: StationSnapshot, now_ns: int
) -> Iterator[Finding]:
    where = f"{channel.name} in {label}"
    for other, reasons in channel.unmatched.items():
        for reason in reasons:
            text = f"no events to or from station {other}: {reason}"
            yield Finding("problem", "not matched", where, text, f"helio info {channel.name}")
    for group, others in channel.groups_apart.items():
        text = (
            f"the group {group} is in {', '.join(others)} too; without a history each station's members "
            "are a group by themselves, and each group gets every event"
        )
        yield Finding("warning", "group apart", where, text, "open it with hg.QoS(durability='persistent')")
    for receiver in channel.receivers:
        if receiver.suspended:
            text = f"{receiver.name} takes nothing: what comes for it is dropped until it does"
            yield Finding("problem", "suspended receiver", where, text, f"py-spy dump --pid {station.pid}")
        if receiver.failed:
            text = f"{receiver.name} raised for {receiver.failed} events"
            yield Finding("warning", "failing callback", where, text, "look at the log, or on_error=")
        lost = {reason: n for reason, n in receiver.dropped.items() if reason not in MEANT}
        if lost:
            said = ", ".join(f"{n} {reason}" for reason, n in lost.items())
            text = f"{receiver.name} is slower than what comes: {said} dropped"
            yield Finding("warning", "dropped events", where, text, "a larger queue=, or a history")
    if channel.journal is not None and channel.journal.damaged:
        text = f"{channel.journal.damaged} events cannot be read"
        command = f"helio journal verify {station.folder or 'FOLDER'}; helio journal repair --dry-run"
        yield Finding("problem", "damaged history", where, text, command)
    if channel.journal is not None and channel.journal.keeper_failures:
        text = f"{channel.journal.keeper_failures} seals or removals failed and will be tried again"
        yield Finding("warning", "maintenance failing", where, text, "look at the log of that station")
    yield from _durable(channel, where, now_ns)
    yield from _dead_letters(channel, where)


def _durable(channel: ChannelSnapshot, where: str, now_ns: int) -> Iterator[Finding]:
    for one in channel.durable:
        if one.lag < LAG:
            continue
        name = f"group:{one.name}" if one.is_group else one.name
        hours = (now_ns - one.seen_ts) / 3.6e12
        if one.owner == OUTSIDE:
            text = f"{one.name}, which reads the files itself as Spark does, is {one.lag} events behind"
            command = "look at its query; more cores, or a larger maxEventsPerTrigger"
        elif now_ns - one.seen_ts > AWAY_NS:
            text = f"{one.name} is {one.lag} events behind and was last heard of {hours:.1f} hours ago"
            command = f"start its program, or: helio consumer delete {channel.name} {name}"
        else:
            text = f"{one.name} is {one.lag} events behind"
            command = f"helio consumer ls {channel.name}; a faster program, or more members of a group"
        yield Finding("warning", "lagging consumer", where, text, command)


def _dead_letters(channel: ChannelSnapshot, where: str) -> Iterator[Finding]:
    if not channel.holds_dead_letters or channel.journal is None:
        return
    unread = min((one.lag for one in channel.durable), default=channel.journal.end - channel.journal.earliest)
    if unread:
        text = f"{unread} events that could not be delivered wait here, and no durable consumer has seen them"
        yield Finding("problem", "unread dead letters", where, text, f"helio redrive {channel.name}")


def _names(stations: Sequence[StationSnapshot]) -> Iterator[Finding]:
    """Names that are almost the same, where one has only suppliers and the other only receivers."""
    pushed: dict[str, int] = defaultdict(int)
    received: dict[str, int] = defaultdict(int)
    kept: set[str] = set()
    for channel in (one for station in stations for one in station.channels):
        pushed[channel.name] += channel.pushed
        received[channel.name] += sum(one.kind != "gateway" for one in channel.receivers)
        if channel.journal is not None:
            kept.add(channel.name)
    unheard = [name for name, n in pushed.items() if n and not received[name]]
    unfed = [name for name, n in received.items() if n and not pushed[name]]
    for name in unheard:
        close = [other for other in unfed if _alike(name, other)]
        for other in close:
            text = f"{name!r} has events and no receivers, {other!r} has receivers and no events"
            yield Finding("problem", "names almost the same", "domain", text, f"helio info {other}")
        if not close and name not in kept and not name.startswith("_"):
            text = f"{pushed[name]} events were pushed and nobody receives or keeps them"
            yield Finding("note", "nobody receives", name, text, "helio ls --domain NAME")


def _alike(first: str, second: str) -> bool:
    return SequenceMatcher(None, first.lower(), second.lower()).ratio() >= ALIKE


def _label(station: StationSnapshot) -> str:
    return station.name or station.station
