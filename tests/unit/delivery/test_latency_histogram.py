"""How long events waited, in buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import heliograph as hg
from heliograph.delivery.latency_histogram import BOUNDS_S, LatencyHistogram
from tests.e2e.link_support import LIMIT, wait_until


class Track(hg.Event, name="air.track"):
    id: int


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_bound_of_the_bucket_that_holds_it(waits: list[int], share: float) -> None:
    made = LatencyHistogram()
    for waited in waits:
        made.add(waited, None, is_delivered=True)
    counts = made.counts()
    exact = sorted(waits)[max(0, -(-round(share * len(waits) * 1000) // 1000) - 1)] / 1e9
    bound = next((bound for bound in BOUNDS_S if exact <= bound), max(waits) / 1e9)
    assert counts.events == len(waits)
    assert counts.percentile(share) == min(bound, max(waits) / 1e9)
    assert counts.sum_s * 1e9 == sum(waits) or abs(counts.sum_s * 1e9 - sum(waits)) < 1e-6 * sum(waits)


def test_what_was_late_or_never_delivered_misses_its_deadline() -> None:
    made = LatencyHistogram()
    made.add(5_000_000, 10_000_000, is_delivered=True)
    made.add(30_000_000, 10_000_000, is_delivered=True)
    made.add(1_000_000, 10_000_000, is_delivered=False)
    made.add(1_000_000, None, is_delivered=True)
    counts = made.counts()
    assert (counts.in_time, counts.late, counts.least_laxity_s) == (1, 2, -0.02)
    assert counts.events == 3


def test_a_channel_that_records_deliveries_has_one_in_its_snapshot_and_metrics() -> None:
    with hg.Station() as station:
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(delivery_records="all", lifespan=10.0))
        station.channel("quiet", Track)
        tracks.subscribe(lambda track: None)
        for n in range(20):
            tracks.push(Track(n))
        assert tracks.settle(LIMIT)

        def is_counted() -> bool:
            told = station.snapshot("air.tracks").channels[0].latencies
            return told is not None and told.events == told.in_time == 20

        assert wait_until(is_counted)
        (quiet,) = station.snapshot("quiet").channels
        assert quiet.latencies is None
        metrics = station.metrics()
        assert (
            'heliograph_channel_delivery_latency_seconds_bucket{channel="air.tracks",le="+Inf"} 20' in metrics
        )
        assert 'heliograph_channel_delivery_latency_seconds_count{channel="air.tracks"} 20' in metrics
        assert 'heliograph_channel_missed_deadlines_total{channel="air.tracks"} 0' in metrics
        assert "# TYPE heliograph_channel_delivery_latency_seconds histogram" in metrics
