"""Which segments are worth rewriting."""

from __future__ import annotations

from heliograph.journal.format.manifest import Head, Manifest, Segment
from heliograph.journal.limits import Limits
from heliograph.journal.maintenance.compaction_policy import is_complete, largest, to_compact, to_merge

LIMITS = Limits(keep_bytes=None, merge_events=8_000, merge_bytes=1_000_000)


def manifest(*events: int, rows: tuple[int | None, ...] = (), heads: tuple[Head, ...] = ()) -> Manifest:
    segments, first = [], 0
    for n, count in enumerate(events):
        its_rows = rows[n] if rows else None
        segments.append(Segment(f"s{n}", first, first + count, 10 * count, 0, 0, (), 0, rows=its_rows))
        first += count
    return Manifest(partition=b"p" * 16, segments=tuple(segments), heads=heads)


def merged(found: Manifest, limits: Limits = LIMITS, but: tuple[str, ...] = ()) -> list[str]:
    return [segment.name for segment in to_merge(found, limits, but)]


def test_eight_neighbours_of_one_size_are_merged() -> None:
    assert merged(manifest(*[1000] * 7)) == []
    assert merged(manifest(*[1000] * 8)) == [f"s{n}" for n in range(8)]


def test_full_ones_are_left_alone_and_part_neighbours() -> None:
    assert merged(manifest(*[8000] * 20)) == []
    assert merged(manifest(*[1000] * 5, 8000, *[1000] * 5)) == []


def test_the_smallest_come_first() -> None:
    found = manifest(*[1000] * 8, *[10] * 8)
    assert merged(found) == [f"s{n}" for n in range(8, 16)]


def test_segments_that_were_tried_in_vain_are_not_tried_again() -> None:
    assert merged(manifest(*[1000] * 8), but=("s3",)) == []


def test_segments_of_different_formats_are_not_merged() -> None:
    found = manifest(*[1000] * 8)
    other = Segment("s8", 8000, 9000, 1, 0, 0, (b"f" * 12,))
    assert merged(Manifest(partition=found.partition, segments=(*found.segments[:7], other))) == []


def test_a_gap_between_two_parts_them() -> None:
    found = manifest(*[1000] * 9)
    without = Manifest(partition=found.partition, segments=(*found.segments[:4], *found.segments[5:]))
    assert merged(without) == []


def test_no_segment_grows_beyond_an_eighth_of_the_quota() -> None:
    assert largest(Limits(keep_bytes=800, merge_bytes=1000)) == 100
    assert largest(Limits(keep_bytes=None, merge_bytes=1000)) == 1000
    assert merged(manifest(*[1000] * 8), Limits(keep_bytes=8 * 79_999, merge_events=8_000)) == []


def test_no_segment_spans_more_than_an_eighth_of_the_time_that_events_are_kept() -> None:
    """Else the newest of its events would keep the oldest for ever."""
    second = 1_000_000_000
    segments = tuple(
        Segment(f"s{n}", 1000 * n, 1000 * (n + 1), 10, n * second, (n + 1) * second, ()) for n in range(8)
    )
    found = Manifest(partition=b"p" * 16, segments=segments)
    assert merged(found, Limits(keep_seconds=63, merge_events=8_000)) == []
    assert len(merged(found, Limits(keep_seconds=64, merge_events=8_000))) == 8


def test_merging_any_number_of_segments_ends_and_rewrites_each_event_a_few_times() -> None:
    found = manifest(*[3] * 2000)
    work = 0
    while chosen := to_merge(found, LIMITS, ()):
        work += sum(segment.events for segment in chosen)
        at = found.segments.index(chosen[0])
        one = Segment(f"m{work}", chosen[0].first, chosen[-1].next, sum(s.size for s in chosen), 0, 0)
        segments = (*found.segments[:at], one, *found.segments[at + len(chosen) :])
        found = Manifest(partition=found.partition, segments=segments)
    assert work <= 4 * 6000
    assert len(found.segments) < 30


def test_all_are_compacted_when_half_as_much_is_fresh_as_was_compacted() -> None:
    assert to_compact(manifest(100), ()) != ()
    assert to_compact(manifest(500, 49, rows=(100, None)), ()) == ()
    assert len(to_compact(manifest(500, 50, rows=(100, None)), ())) == 2
    assert to_compact(manifest(500, 50, rows=(100, 50)), ()) == ()
    assert to_compact(manifest(100), ("s0",)) == ()


def test_a_compaction_is_complete_when_nothing_older_lies_outside() -> None:
    found = manifest(10, 10)
    assert is_complete(found, found.segments)
    assert not is_complete(found, found.segments[1:])
    newer = manifest(10, 10, heads=(Head("h", 20, 1),))
    assert is_complete(newer, newer.segments)
    damaged = manifest(10, 10, heads=(Head("h", 5, 1, 10),))
    assert not is_complete(damaged, damaged.segments)
