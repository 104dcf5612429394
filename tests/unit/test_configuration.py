"""Configuration files: what they choose, what is loaded for it, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heliograph as hg
from heliograph import testing
from heliograph.configuration import CONFIGURATIONS, line_of, load
from heliograph.errors import InvalidConfiguration
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.order import Waiting

LIMIT = 10.0
LOADED = Path(__file__).with_name("modules_of_configurations.txt")
"""Rooms that some configurations load and others do not, each with those that do."""


class Note(hg.Event):
    text: str


class Backwards:
    by = ("priority",)

    def first(self, heads: Sequence[Waiting], now_ns: int) -> int:
        del now_ns
        return len(heads) - 1


def written(folder: Path, text: str) -> Path:
    file = folder / "helio.toml"
    file.write_text(text)
    return file


def test_the_file_takes_the_place_of_what_the_program_says(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""
        [station]
        callback_limit = 7
        [channels]
        queue = 50
        [channel."air.tracks"]
        dispatch = "{__name__}:Backwards"
        threads = {{ kind = "pool", workers = 4 }}
        """,
    )
    with hg.Station(config=file) as station:
        tracks = station.channel("air.tracks", Note, qos=hg.QoS(queue=9, lifespan=5.0))
        assert (tracks.qos.queue, tracks.qos.lifespan) == (50, 5.0)
        assert type(tracks.qos.dispatch).__name__ == "Backwards"
        assert tracks.qos.threads == hg.Threads("pool", workers=4)
        assert station.channel("other", Note).qos == hg.QoS(queue=50)
        assert station.channel("air.tracks", qos=hg.QoS(queue=9, lifespan=5.0)) is tracks


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("configuration = 'half'", 1, "'half': one of full, erd, efd, erm"),
        ("x = 1", 1, "x is not known here; allowed are configuration, station, channels, channel"),
        ("\n[station]\ncallback_limit = -1", 3, "seconds above 0"),
        ("[channels]\npriority = 1\ndispatch = 'fifo'", 3, "one of strict, ranked, aged, deadline"),
        ("[channels]\ndispatch = 'aged'\n\n[channel.a]\nlatency = 1.0", 5, "None unless dispatch='deadline'"),
        ('[channel."a.b"]\nqueue = 3\nqueues = 4', 3, "queues is not known here; allowed are reliability"),
        ("[channel.a]\nthreads = 'fibres'", 2, "kind|threads = 'fibres': one of pool, bands, inline"),
        ("[channel.a]\n\nthreads = { kind = 'pool', cores = 2 }", 3, "cores is not known here"),
        ("[channel.a]\ndispatch = 'no.such:Order'", 2, "no object of it could be made"),
        ("[channel.a]\ndispatch = 'pathlib:Path'", 2, "an object that has a method first"),
        ("[channel]\na = 1", 2, "is a table"),
        ("a = [\n", 1, "Invalid|Unclosed|line"),
        ("configuration = 'erm'\n[channel.a]\nthreads = 'pool'\ndispatch = 'aged'", 3, "has no dispatching"),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, sentence: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=sentence) as caught:
        hg.Station(config=written(tmp_path, text))
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{tmp_path / 'helio.toml'}, line {line}: ")


@settings(max_examples=examples(100))
@given(st.text(alphabet="[]\"'=.{}ac\n 1#", max_size=60))
def test_any_text_is_a_configuration_or_refused(text: str) -> None:
    """With the line of a mistake inside the text, whatever it is."""
    assert 1 <= line_of(text, ("channel", "a", "queue")) <= max(1, len(text.splitlines()))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_without_filtering_filters_and_patterns_are_refused(tmp_path: Path) -> None:
    with hg.Station(config=written(tmp_path, "configuration = 'erd'")) as station:
        channel = station.channel("c", Note)
        with pytest.raises(hg.NotPossible, match="has no filtering"):
            channel.subscribe(print, where="text = 'a'")
        with pytest.raises(hg.NotPossible, match="has no filtering"):
            station.subscribe(hg.all_of(a=channel, b=channel), print)
        heard = threading.Event()
        channel.subscribe(lambda _: heard.set())
        channel.push(Note("n"))
        assert heard.wait(LIMIT)


def test_without_dispatching_callbacks_run_inside_push(tmp_path: Path) -> None:
    with hg.Station(config=written(tmp_path, "configuration = 'efd'")) as station:
        channel = station.channel("c", Note)
        threads: list[int] = []
        channel.subscribe(lambda _: threads.append(threading.get_ident()), where="text = 'a'")
        channel.push(Note("a"))
        channel.push(Note("b"))
        assert threads == [threading.get_ident()]
        with pytest.raises(hg.NotPossible, match="has no dispatching"):
            channel.subscribe(print, inline=False)


@pytest.mark.parametrize("configuration", ["efd", "erm"])
def test_without_dispatching_there_are_timers_and_histories(tmp_path: Path, configuration: str) -> None:
    file = written(tmp_path, f"configuration = '{configuration}'")
    with testing.rig(config=file) as helio:
        channel = helio.station.channel("c", Note)
        heard: list[str] = []
        channel.subscribe(lambda note: heard.append(note.text))
        channel.push(Note("later"), deliver_after=3.0)
        ticking = channel.supplier("clock").every(2.0, lambda: Note("tick"))
        for _ in range(3):
            helio.clock.advance(1.0)
            helio.settle()
        ticking.cancel()
        assert heard.count("later") == 1
        assert heard.count("tick") == ticking.stats().pushed >= 1  # where its grid begins is the clock's

        kept = helio.station.channel("kept", Note, qos=hg.QoS(durability="persistent"))
        kept.push(Note("kept"))
        with pytest.raises(hg.NotPossible, match="has no dispatching"):
            kept.subscribe(print)
        with kept.consumer(start="earliest", until="now") as consumer:
            assert [note.text for note in consumer] == ["kept"]


PROGRAM = """
import sys
import heliograph as hg

class Note(hg.Event):
    text: str

configuration = sys.argv[1]
with hg.Station(config=sys.argv[2]) as station:
    channel = station.channel("c", Note)
    where = "text = 'a'" if configuration in ("full", "efd") else None
    channel.subscribe(lambda note: None, where=where)
    if configuration in ("full", "efd"):
        station.subscribe(hg.all_of(a=channel, b=channel), lambda match: None)
    channel.push(Note("a"))
print(*sorted(name for name in sys.modules if name.startswith("heliograph")))
"""


def modules_of(configuration: str, folder: Path) -> set[str]:
    file = written(folder, f"configuration = '{configuration}'")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, configuration, str(file)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


def test_each_configuration_loads_its_own_rooms_and_no_others(tmp_path: Path) -> None:
    """The list is made anew by `python -m tests.unit.test_configuration`."""
    assert table(tmp_path) == LOADED.read_text()


def table(folder: Path) -> str:
    loaded = {name: modules_of(name, folder) for name in CONFIGURATIONS}
    everything: set[str] = set().union(*loaded.values())
    differing = sorted(room for room in everything if any(room not in rooms for rooms in loaded.values()))
    rows = [f"{room}: {' '.join(name for name in loaded if room in loaded[name])}" for room in differing]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        LOADED.write_text(table(Path(scratch)))
