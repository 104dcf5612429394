"""Events that `quality` makes: what was measured, and what was set aside.

quality = station.channel("quality.air.tracks", QualityRecord)
quality.subscribe(alarm, where="measure = 'lost' AND value > 0")
"""

from __future__ import annotations

from heliograph.model.event import Event


class QualityRecord(Event, name="helio.quality"):
    """One number about a channel, in a window of time."""

    channel: str
    window_start: int
    """Nanoseconds since 1970, by the clock of the keeper; 0: the whole history."""
    window_ns: int
    """How long the window is; 0: the whole history."""
    scope: str
    """Of what: channel, supplier, receiver, expectation or ledger."""
    name: str
    """Of which one; empty: of the channel."""
    measure: str
    """lost, repeated, late, violations, latency_p99, ...; docs/guides/pipeline.md lists them."""
    value: float
    """Latencies and jitter are in seconds."""
    n: int
    """How many events, or delivery records, stand behind the value."""
    rate: float
    """Of all events, how many are in those records: 1.0 is all."""
    sketch: str | None = None
    """Of `latency_sketch`: for `jobs.Sketch`, which adds up those of several records."""


class Quarantined(Event, name="helio.quarantined"):
    """An event that is not as expected."""

    channel: str
    partition: str
    offset: int
    """Where it is in the history, which keeps it."""
    supplier: str
    epoch: int
    sequence: int
    type: str
    expectation: str
    event: str
    """Its fields, as JSON."""
