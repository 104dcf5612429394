"""Whatever the history, the consumers and the limits are, retention keeps its rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.format.manifest import Manifest, Retired, Segment
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.retention import RESERVE, ConsumerPosition, Decision, decide
from tests.support import examples

NOW = 10**9 * 10**6


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Segments of one history: dense offsets, times that never decrease."""
    first = earliest = draw(st.integers(0, 50))
    ts = draw(st.integers(0, NOW))
    segments = []
    for n in range(draw(st.integers(0, 8))):
        end = first + draw(st.integers(1, 20))
        last = min(NOW, ts + draw(st.integers(0, NOW // 4)))
        segments.append(Segment(f"sealed/{n}", first, end, draw(st.integers(1, 100)), ts, last))
        first, ts = end, last
    retired = draw(st.lists(st.tuples(st.integers(1, 100), st.integers(0, NOW)), max_size=5))
    return Manifest(
        partition=b"p" * 16,
        earliest=earliest,
        segments=tuple(segments),
        retired=tuple(Retired(f"sealed/old-{n}", *file) for n, file in enumerate(retired)),
    )


places = st.lists(
    st.builds(ConsumerPosition, st.sampled_from("abc"), st.integers(0, 200), st.integers(0, NOW)), max_size=4
)
limits = st.builds(
    Limits,
    keep_bytes=st.none() | st.integers(0, 500),
    keep_seconds=st.none() | st.floats(0, 10**6),
    hold_unread=st.booleans(),
    hold_seconds=st.floats(0, 10**6),
    drop_read=st.booleans(),
    grace_seconds=st.floats(0, 10**6),
)


def decided(
    manifest: Manifest, places: list[ConsumerPosition], limits: Limits
) -> tuple[Decision, tuple[Segment, ...]]:
    size = sum(segment.size for segment in manifest.segments)
    decision = decide(manifest, places, limits, now=NOW, size=size)
    return decision, manifest.segments[len(decision.drop) :]


@given(manifests(), places, limits)
@settings(max_examples=examples(300))
def test_what_is_left_is_one_range_within_the_quota(
    manifest: Manifest, places: list[ConsumerPosition], limits: Limits
) -> None:
    decision, left = decided(manifest, places, limits)
    assert decision.drop == manifest.segments[: len(decision.drop)], "the oldest go, and only they"
    if limits.keep_bytes is not None:
        in_grace = sum(file.size for file in decision.retired)
        assert in_grace <= limits.keep_bytes // RESERVE
        assert in_grace + sum(segment.size for segment in left) <= limits.keep_bytes


@given(manifests(), places, limits)
@settings(max_examples=examples(300))
def test_every_drop_has_a_reason_and_every_reason_is_followed(
    manifest: Manifest, places: list[ConsumerPosition], limits: Limits
) -> None:
    _, left = decided(manifest, places, limits)
    size = sum(segment.size for segment in manifest.segments)
    quota = limits.keep_bytes
    if quota is not None and limits.grace_seconds:
        quota -= quota // RESERVE
    heard = [place.low for place in places if place.seen_ts >= NOW - round(limits.hold_seconds * 1e9)]
    for segment in manifest.segments:
        read_by_all = all(low >= segment.next for low in heard)
        reasons = [
            quota is not None and size > quota,
            limits.drop_read and bool(heard) and read_by_all,
            limits.keep_seconds is not None
            and segment.last_ts < NOW - round(limits.keep_seconds * 1e9)
            and (read_by_all or not limits.hold_unread),
        ]
        if not any(reasons):
            assert segment in left
            break
        assert segment not in left
        size -= segment.size


@given(manifests(), places, limits)
@settings(max_examples=examples(300))
def test_exactly_those_who_lack_something_of_it_are_named_with_what_they_miss(
    manifest: Manifest, places: list[ConsumerPosition], limits: Limits
) -> None:
    decision, _ = decided(manifest, places, limits)
    gone = {offset for segment in decision.drop for offset in range(segment.first, segment.next or 0)}
    missing = [
        (place.consumer, sorted(offset for offset in gone if offset >= place.low))
        for place in places
        if any(offset >= place.low for offset in gone)
    ]
    assert [(o.consumer, list(range(o.first, o.next))) for o in decision.overtaken] == missing


@given(manifests(), places, limits)
@settings(max_examples=examples(300))
def test_every_file_is_kept_retired_or_removed_and_the_decision_is_stable(
    manifest: Manifest, places: list[ConsumerPosition], limits: Limits
) -> None:
    decision, left = decided(manifest, places, limits)
    before = [*(s.name for s in manifest.segments), *(f.name for f in manifest.retired)]
    after = [*(s.name for s in left), *(f.name for f in decision.retired), *decision.remove]
    assert sorted(after) == sorted(before)
    earliest = left[0].first if left else manifest.earliest
    then = Manifest(partition=manifest.partition, earliest=earliest, segments=left, retired=decision.retired)
    again, _ = decided(then, places, limits)
    assert again.drop == ()
    assert again.remove == ()
