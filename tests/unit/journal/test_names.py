"""Names on disk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import InvalidFileName
from heliograph.journal.names import escaped, head_name, unescaped
from heliograph.runtime.local_disk import checked_name
from tests.support import examples


@given(st.text(min_size=1, max_size=20))
@settings(max_examples=examples(200))
def test_every_name_comes_back_and_is_one_safe_part_of_a_path(name: str) -> None:
    try:
        folder = escaped(name)
    except InvalidFileName:
        assert len(name.encode(errors="surrogatepass")) * 3 > 200 or not name.isprintable()
        return
    assert unescaped(folder) == name
    assert checked_name(folder) == (folder,)
    assert not folder.startswith(".")


@pytest.mark.parametrize("text", ["a%2", "a%zz", "%41", "a/b", ".x", "%2f", ""])
def test_what_escaped_never_writes_is_refused(text: str) -> None:
    with pytest.raises(InvalidFileName):
        unescaped(text)


def test_ordinary_names_stay_readable() -> None:
    assert escaped("air.tracks_2-b") == "air.tracks_2-b"
    assert escaped("a/b") == "a%2Fb"


def test_a_name_that_no_file_system_takes_is_refused() -> None:
    with pytest.raises(InvalidFileName, match="200 are allowed"):
        escaped("x" * 201)


def test_head_names_sort_by_offset() -> None:
    assert head_name(9, 200, 1) < head_name(10, 1, 1)
