"""What was put into a stream and may be asked for again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.links.streams.sent_ring import SentRing


class Source:
    done = 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9)),
        st.tuples(st.just("confirm"), st.integers(0, 60)),
        st.tuples(st.just("evict"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 30))
def test_what_is_kept_is_a_dense_tail_and_what_somebody_needs_is_among_it(
    steps: list[tuple[str, int]], most: int
) -> None:
    ring, source = SentRing(most, 1 << 20), Source()
    added = let_go = 0
    for step, n in steps:
        if step == "add":
            ring.add(n, b"x" * n, source)
            added += n
        elif step == "confirm":
            ring.confirm(n)
            let_go = max(let_go, min(n, added))
        else:
            ring.evict(n)
            let_go = max(let_go, min(n, added))
        kept = ring.find(1, added)
        assert [batch.first for batch in kept[1:]] == [batch.last + 1 for batch in kept[:-1]], "dense"
        assert (kept[-1].last if kept else ring.last) == ring.last == added == source.done
        assert ring.first_kept <= let_go + 1, "nothing is let go of that was neither confirmed nor evicted"
        assert ring.bytes == sum(len(batch.payload) for batch in kept)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 80), st.integers(0, 80))
def test_what_holds_a_range_is_found_and_nothing_else(sizes: list[int], first: int, more: int) -> None:
    ring = SentRing(1_000, 1 << 20)
    batches = [ring.add(size, b"x") for size in sizes]
    last = first + more
    assert ring.find(first, last) == [one for one in batches if one.last >= first and one.first <= last]


def test_beyond_its_bounds_it_has_no_room_and_evicts_the_oldest() -> None:
    ring = SentRing(10, 100)
    for _ in range(5):
        ring.add(2, b"x" * 10)
    assert not ring.has_room
    ring.evict(needed=3)
    assert ring.first_kept == 3, "what is needed stays"


def test_bytes_bound_it_as_well() -> None:
    ring = SentRing(1_000, 100)
    rooms = []
    for size in (99, 1):
        ring.add(1, b"x" * size)
        rooms.append(ring.has_room)
    assert rooms == [True, False]
    ring.evict(needed=2)
    assert ring.first_kept == 2
