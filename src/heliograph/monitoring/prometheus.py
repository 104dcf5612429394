"""Snapshots in the text format of Prometheus: names by its conventions, label sets bounded.

    heliograph_channel_pushed_events_total{channel="air.tracks"} 1200

A channel's receivers have one series each up to `MAX_RECEIVERS`; what the others counted is summed under the
receiver "(others)". Channels beyond `MAX_CHANNELS` have no series of their own, and are summed up as channel
"(others)". So no name that comes from outside can grow a scrape without limit.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from heliograph.delivery.latency_histogram import BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heliograph.delivery.latency_histogram import LatencyCounts
    from heliograph.monitoring.snapshot import ChannelSnapshot, ReceiverSnapshot, StationSnapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_CHANNELS: Final = 500
"""Channels that have series of their own; those with the most events are kept."""
MAX_RECEIVERS: Final = 20
"""Receivers of a channel that have series of their own; those with the most events are kept."""
MAX_LABEL: Final = 200
"""Characters of the value of a label."""
OTHERS: Final = "(others)"


class Family(NamedTuple):
    """One metric: its name, its kind, and what it is."""

    name: str
    kind: str
    help: str


FAMILIES: Final = tuple(
    Family(f"heliograph_{name}", kind, said)
    for name, kind, said in (
        ("station_info", "gauge", "The station: version, name and domain as labels."),
        ("station_uptime_seconds", "gauge", "Since the station was opened."),
        ("station_channels", "gauge", "Channels that are open."),
        (
            "station_longest_callback_seconds",
            "gauge",
            "For how long the callback has been running that runs longest.",
        ),
        ("station_stalls_total", "counter", "What waited because the host had no thread or descriptor left."),
        ("station_disk_free_bytes", "gauge", "Free space on the disk of the station's folder."),
        ("channel_pushed_events_total", "counter", "Events taken in."),
        ("channel_matched_deliveries_total", "counter", "Pairs of an event and a receiver that wants it."),
        ("channel_suppliers", "gauge", "Suppliers, with those that stand for other stations."),
        ("channel_receivers", "gauge", "Receivers, with the gateways to other stations."),
        ("channel_delayed_events", "gauge", "Events that wait for their instant."),
        ("channel_unmatched_stations", "gauge", "Stations to or from which events do not go."),
        ("channel_derived_events_total", "counter", "Events of a derived channel that were derived here."),
        ("channel_left_out_events_total", "counter", "Events that the filter of a derived channel left out."),
        ("channel_saved_bytes_total", "counter", "What deriving has spared each receiver, estimated."),
        (
            "channel_delivery_latency_seconds",
            "histogram",
            "From appended or pushed to delivered.",
        ),
        ("channel_missed_deadlines_total", "counter", "Deliveries with a deadline, late or never made."),
        ("receiver_delivered_events_total", "counter", "Events that were delivered."),
        ("receiver_failed_events_total", "counter", "Events for which a callback raised."),
        ("receiver_expired_events_total", "counter", "Events whose lifespan ended while they waited."),
        ("receiver_dropped_events_total", "counter", "Events that were dropped, by reason."),
        ("receiver_pending_events", "gauge", "Events that wait, or are being delivered."),
        ("receiver_pending_bytes", "gauge", "What they take, estimated."),
        ("journal_end_offset", "gauge", "The offset behind the last durable event."),
        ("journal_earliest_offset", "gauge", "The first offset that is still kept."),
        ("journal_size_bytes", "gauge", "Size of the history on disk."),
        ("journal_failed_events_total", "counter", "Events whose append failed."),
        ("journal_damaged_events", "gauge", "Events that were durable once and cannot be read."),
        ("consumer_lag_events", "gauge", "Events that a durable consumer or group has not acknowledged."),
        ("link_connected", "gauge", "1 while there is a connection to the other station."),
        ("link_sent_events_total", "counter", "Events sent to the other station."),
        ("link_sent_bytes_total", "counter", "Bytes sent to the other station."),
        ("link_received_bytes_total", "counter", "Bytes received from the other station."),
        (
            "link_lost_records_total",
            "counter",
            "Records given up because the other station had forgotten this one.",
        ),
    )
)

PARTS_OF: Final = {
    f"{family.name}_{part}": family.name
    for family in FAMILIES
    if family.kind == "histogram"
    for part in ("bucket", "sum", "count")
}
"""The samples that a histogram is made of, and its name."""
Sample = tuple[str, dict[str, str], float]


def text_of(snapshot: StationSnapshot) -> str:
    """The exposition of one station."""
    return _text([({}, snapshot)])


def text_of_all(snapshots: Iterable[StationSnapshot]) -> str:
    """The exposition of several stations, each sample with the id of its station as a label."""
    return _text([({"station": one.station}, one) for one in snapshots])


def _text(several: list[tuple[dict[str, str], StationSnapshot]]) -> str:
    samples: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    for of_station, snapshot in several:
        for name, labels, value in _samples(snapshot):
            full = f"heliograph_{name}"
            samples[PARTS_OF.get(full, full)].append(_line(full, {**of_station, **labels}, value))
    lines: list[str] = []
    for family in FAMILIES:
        if samples[family.name]:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += samples[family.name]
    return "".join(f"{line}\n" for line in lines)


def _samples(snapshot: StationSnapshot) -> Iterator[Sample]:
    about = {
        "station": snapshot.station,
        "name": snapshot.name,
        "domain": snapshot.domain or "",
        "version": snapshot.version,
    }
    yield "station_info", about, 1
    yield "station_uptime_seconds", {}, snapshot.uptime_s
    yield "station_channels", {}, len(snapshot.channels) + snapshot.channels_left_out
    yield "station_longest_callback_seconds", {}, snapshot.busy_s
    for what, n in snapshot.stalls.items():
        yield "station_stalls_total", {"what": what}, n
    if snapshot.free_bytes is not None:
        yield "station_disk_free_bytes", {}, snapshot.free_bytes
    channels = sorted(snapshot.channels, key=lambda one: -one.pushed)
    for one in channels[:MAX_CHANNELS]:
        yield from _of_channel(one)
    if rest := channels[MAX_CHANNELS:]:
        labels = {"channel": OTHERS}
        yield "channel_pushed_events_total", labels, sum(one.pushed for one in rest)
        yield "channel_matched_deliveries_total", labels, sum(one.matched for one in rest)
        yield from _of_receivers(labels, OTHERS, [receiver for one in rest for receiver in one.receivers])
    for link in snapshot.links[:MAX_CHANNELS]:
        labels = {"peer": link.peer, "peer_name": link.name}
        yield "link_connected", labels, link.connected
        yield "link_sent_events_total", labels, link.events_sent
        yield "link_sent_bytes_total", labels, link.bytes_sent
        yield "link_received_bytes_total", labels, link.bytes_received
        yield "link_lost_records_total", labels, link.lost


def _of_channel(one: ChannelSnapshot) -> Iterator[Sample]:
    labels = {"channel": one.name}
    yield "channel_pushed_events_total", labels, one.pushed
    yield "channel_matched_deliveries_total", labels, one.matched
    yield "channel_suppliers", labels, len(one.suppliers)
    yield "channel_receivers", labels, len(one.receivers) + one.receivers_left_out
    yield "channel_delayed_events", labels, one.delayed
    yield "channel_unmatched_stations", labels, len(one.unmatched)
    if one.derived is not None:
        yield "channel_derived_events_total", labels, one.derived.derived
        yield "channel_left_out_events_total", labels, one.derived.saved_events
        yield "channel_saved_bytes_total", labels, one.derived.saved_bytes
    if one.latencies is not None:
        yield from _of_latencies(labels, one.latencies)
    receivers = sorted(one.receivers, key=lambda receiver: -receiver.delivered)
    for receiver in receivers[:MAX_RECEIVERS]:
        yield from _of_receivers(labels, receiver.name, [receiver])
    if rest := receivers[MAX_RECEIVERS:]:
        yield from _of_receivers(labels, OTHERS, rest)
    if one.journal is not None:
        yield "journal_end_offset", labels, one.journal.end
        yield "journal_earliest_offset", labels, one.journal.earliest
        yield "journal_size_bytes", labels, one.journal.bytes
        yield "journal_failed_events_total", labels, one.journal.failed
        yield "journal_damaged_events", labels, one.journal.damaged
    for consumer in sorted(one.durable, key=lambda consumer: -consumer.lag)[:MAX_RECEIVERS]:
        yield "consumer_lag_events", {**labels, "consumer": consumer.name}, consumer.lag


def _of_latencies(labels: dict[str, str], counts: LatencyCounts) -> Iterator[Sample]:
    name = "channel_delivery_latency_seconds"
    within = list(accumulate(counts.buckets))
    for bound, n in zip((*BOUNDS_S, math.inf), within, strict=True):
        yield f"{name}_bucket", {**labels, "le": "+Inf" if bound == math.inf else f"{bound:g}"}, n
    yield f"{name}_sum", labels, counts.sum_s
    yield f"{name}_count", labels, within[-1]
    yield "channel_missed_deadlines_total", labels, counts.late


def _of_receivers(
    labels: dict[str, str], name: str, receivers: Iterable[ReceiverSnapshot]
) -> Iterator[Sample]:
    """One receiver, or several that are summed up."""
    several = list(receivers)
    labels = {**labels, "receiver": name}
    yield "receiver_delivered_events_total", labels, sum(one.delivered for one in several)
    yield "receiver_failed_events_total", labels, sum(one.failed for one in several)
    yield "receiver_expired_events_total", labels, sum(one.expired for one in several)
    yield "receiver_pending_events", labels, sum(one.pending for one in several)
    yield "receiver_pending_bytes", labels, sum(one.waiting_bytes for one in several)
    for reason in sorted({reason for one in several for reason in one.dropped}):
        dropped = sum(one.dropped.get(reason, 0) for one in several)
        yield "receiver_dropped_events_total", {**labels, "reason": reason}, dropped


def _line(name: str, labels: dict[str, str], value: float) -> str:
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = int(value) if float(value).is_integer() else value
    return f"{name}{{{said}}} {number}" if said else f"{name} {number}"


def _escaped(text: str) -> str:
    """As the format wants it; names come from outside."""
    return (
        text[:MAX_LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
