"""The reader of pages itself: a page whose blocks were not found would pass every other test."""

from __future__ import annotations

import pytest

from tests.docs.pages import Command, blocks_of, commands_of, files_of, matches, prints_of, script_of

PAGE = """\
# A page

```python
x = 1
```
Some words.

```python
print(x)
#> 1
```

```python file=events.py
y = 2
```

```console
$ make run
anything
$ helio formats show 'a b'
first
  ...
last
$ helio formats check
refused
(exit code 2)
$ python listen.py &
heard
```
"""


def test_blocks_become_one_program_at_their_own_lines() -> None:
    lines = script_of(blocks_of(PAGE)).splitlines()
    assert lines[3] == "x = 1"
    assert lines[8] == "print(x)"
    assert [line for line in lines if line] == ["x = 1", "print(x)", "#> 1"]


def test_what_a_program_says_it_prints_is_found() -> None:
    assert prints_of("print(1)  #> 1\nif x:\n    #> two words\n    #>\n# > no\n") == ["1", "two words", ""]


def test_files_are_found_by_name() -> None:
    assert files_of(blocks_of(PAGE)) == {"events.py": "y = 2\n"}


def test_commands_are_found_with_their_output_and_exit_code() -> None:
    assert commands_of(blocks_of(PAGE)) == [
        Command(["helio", "formats", "show", "a b"], "first\n  ...\nlast", 0),
        Command(["helio", "formats", "check"], "refused", 2),
        Command(["python", "listen.py"], "heard", 0, is_beside=True),
    ]


@pytest.mark.parametrize(
    ("output", "shown", "fits"),
    [
        ("a\nb  \n", "a\nb", True),
        ("a\nb\nc\n", "a\n...\nc", True),
        ("a.c", "abc", False),
        ("a\nb", "a", False),
        ("axxc", "a...c", True),
        ("axx", "a...c", False),
    ],
)
def test_output_is_compared_except_where_the_page_leaves_it_open(output: str, shown: str, fits: bool) -> None:
    assert matches(output, shown) is fits


def test_a_fence_that_is_never_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match="the fence before line 2 is never closed"):
        blocks_of("```python\nx = 1\n")
