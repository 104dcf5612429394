"""Large events of a broadcast: what is said of one and its body come back, aligned, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.links.broadcast.large_events import APART, decode_large, encode_large
from heliograph.links.broadcast.loss_count import LONE_HEAD
from tests.support import examples

HEAD = LONE_HEAD.size


@settings(max_examples=examples(200))
@given(stream=st.integers(0, 2**32 - 1), said=st.binary(max_size=40), body=st.lists(st.binary(max_size=20)))
def test_what_is_laid_out_is_taken_apart_again_and_its_body_is_aligned(
    stream: int, said: bytes, body: list[bytes]
) -> None:
    record = b"".join(encode_large(stream, said, body))
    assert LONE_HEAD.unpack_from(record) == (APART, stream)
    found = decode_large(memoryview(record)[HEAD:])
    assert tuple(map(bytes, found)) == (said, b"".join(body))
    assert (len(record) - len(found[1])) % 8 == 0


@settings(max_examples=examples(200))
@given(rest=st.binary(max_size=40))
def test_whatever_the_bytes_are_they_are_taken_apart_or_refused(rest: bytes) -> None:
    try:
        said, body = decode_large(memoryview(rest))
    except ValueError:
        return
    assert len(said) + len(body) <= len(rest)


@pytest.mark.parametrize("size", range(12 - HEAD))
def test_a_record_that_ends_in_its_head_is_refused(size: int) -> None:
    record = memoryview(b"".join(encode_large(7, b"", [])))[HEAD:]
    with pytest.raises(ValueError, match="says"):
        decode_large(record[:size])
