"""What an event says of the instance that its key names, in a header of its own: `dcps`.

    absent                          the event is a sample
    dispose                         the instance is no more
    unregister                      its writer writes it no more
    over                            both: disposed of by a writer that writes it no more
    set/<number>/<place>/<size>     a sample, the part at that place of a coherent set of its writer
    .../<writer>=<size>/...         with all writers of the publisher that the set has parts of, and how many
    dispose+set/...                 the same of what is no sample

An event that says something else is a sample: headers are free text, and whoever wrote that is no writer of
the DCPS face.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

CHANGE: Final = "dcps"
"""The name of the header."""
Change: TypeAlias = Literal["write", "dispose", "unregister", "over"]
_WORDS: Final[dict[str, Change]] = {"dispose": "dispose", "unregister": "unregister", "over": "over"}
MOST_PARTS: Final = 1_000_000


class CoherentPart(NamedTuple):
    """Which part of which coherent set of its writer a sample is."""

    number: int
    """Of the set; it rises with each set of a publisher."""
    place: int
    size: int
    """Parts that its writer has in the set."""
    group: tuple[tuple[str, int], ...] = ()
    """All writers of the set and how many parts each has, where it is one for all of a publisher."""

    def __str__(self) -> str:
        writers = "".join(f"/{writer}={size}" for writer, size in self.group)
        return f"set/{self.number}/{self.place}/{self.size}{writers}"


def change_of(headers: Mapping[str, str] | None) -> tuple[Change, CoherentPart | None]:
    """What an event with these headers is."""
    said = None if headers is None else headers.get(CHANGE)
    if said is None:
        return "write", None
    word, _, rest = said.partition("+")
    change = _WORDS.get(word)
    return ("write", _part(said)) if change is None else (change, _part(rest))


def said_of(change: Change, part: CoherentPart | None) -> str:
    """What the header of such an event says."""
    if part is None:
        return change
    return str(part) if change == "write" else f"{change}+{part}"


def _part(said: str) -> CoherentPart | None:
    mark, *numbers = said.split("/")
    if mark != "set" or len(numbers) < 3:
        return None
    try:
        number, place, size = map(int, numbers[:3])
        group = tuple(
            (writer, int(parts)) for writer, _, parts in (one.rpartition("=") for one in numbers[3:])
        )
    except ValueError:
        return None
    fits = number >= 0 and 0 <= place < size <= MOST_PARTS
    if not fits or not all(writer and 0 < parts <= MOST_PARTS for writer, parts in group):
        return None
    return CoherentPart(number, place, size, group)
