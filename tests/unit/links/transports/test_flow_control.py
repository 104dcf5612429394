"""What is on its way is bounded, and nobody waits for ever, whatever is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.links.transports.flow_control import TELL_EVERY, WINDOW, ReceiveWindow, SendWindow

SIZES = st.lists(st.integers(1, 2 * WINDOW), max_size=50)


def test_a_frame_larger_than_the_window_goes_alone() -> None:
    window = SendWindow()
    assert window.has_room(10 * WINDOW)
    window.add(10 * WINDOW)
    assert not window.has_room(1)
    assert window.taken(10 * WINDOW)
    assert window.has_room(1)


def test_what_cannot_have_been_taken_is_refused() -> None:
    window = SendWindow()
    window.add(10)
    assert not window.taken(11)
    assert not window.taken(-1)
    assert window.taken(10)


def test_the_sender_is_told_after_a_part_of_the_window_and_when_it_asks() -> None:
    window = ReceiveWindow()
    window.take(TELL_EVERY - 1)
    assert window.news() is None
    window.take(TELL_EVERY)
    assert window.news() == TELL_EVERY
    assert window.news() is None
    window.asked()
    assert window.news() == TELL_EVERY


@given(SIZES, st.randoms(use_true_random=False))
def test_frames_that_are_lost_make_the_window_no_smaller(sizes: list[int], random: object) -> None:
    sender, receiver = SendWindow(), ReceiveWindow()
    is_lost = getattr(random, "random")  # noqa: B009 - Hypothesis's type is not public
    for size in sizes:
        if not sender.has_room(size):
            # As a sender does that waits: it asks, and nothing it sent before can still come.
            receiver.take(sender.sent)
            receiver.asked()
            told = receiver.news()
            assert told is not None
            assert sender.taken(told)
        assert sender.has_room(size)
        before = sender.add(size)
        if is_lost() < 0.5:
            receiver.take(before + size)
        assert sender.sent - receiver.position <= max(WINDOW, size) + 2 * WINDOW
