"""Configuration files: what they choose, what is loaded for it, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import tempfile
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

    from heliograph.qos.dispatch_order import Waiting

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


class OneEach:
    """A thread strategy."""

    def __init__(self, most: int = 1) -> None:
        self.most = most

    def workers(self, priority: int) -> int:
        return min(priority, self.most)

    def begin(self, priority: int) -> None: ...

    def end(self, priority: int) -> None: ...


def test_a_thread_strategy_of_ones_own_is_named_in_the_file(tmp_path: Path) -> None:
    own = f'{{ class = "{__name__}:OneEach", most = 3 }}'
    file = written(tmp_path, f'[channel.c]\nthreads = {{ kind = "bands", strategy = {own} }}')
    with hg.Station(config=file) as station:
        channel = station.channel("c", Note)
        strategy = channel.qos.threads.strategy
        assert isinstance(strategy, OneEach)
        assert strategy.most == 3
        heard = threading.Event()
        channel.subscribe(lambda _: heard.set(), priority=3)
        channel.push(Note("n"))
        assert heard.wait(LIMIT)
    file = written(tmp_path, '[channel.c]\nthreads = { kind = "bands", strategy = "fast" }')
    with pytest.raises(InvalidConfiguration, match="a class of your own, module:Class"):
        load(file)


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
        ("[station]\ntransport = 'pigeon'", 2, "one of ring, spinning-ring, socket"),
        ("[station]\npriority = 9", 2, "1 \\(low\\) to 5 \\(high\\)"),
        ("[timers]\nlimit = 0", 2, "a whole number from 1 to 1,000,000"),
        ("[correlation]\nkeys = true", 2, "a whole number from 1"),
        ("[correlation]\nhook = 'a:b'", 2, "hook is not known here; allowed are enabled, keys, depth, queue"),
        ("[filtering]\n\nenabled = 'no'", 3, "true or false"),
        ("configuration = 'erd'\n[correlation]\nenabled = true", 3, "'erd' has no correlation"),
        ("[correlation]\nenabled = false\nkeys = 5", 3, "bounds patterns, and there are none here"),
        ("[channels]\nfilters = {}", 2, "filters is not known here"),
        ("[channel.a]\nfilters.consumers = 'a >'", 2, "is no filter"),
        ("[channel.a.filters]\nconsumers = 7", 2, "a filter, as text"),
        ("[channel.a.filters]\nsuppliers = 'pathlib:Path'", 2, "has a method lets_through"),
        ("[channel.a.filters]\nsuppliers = { class = 'fractions:Fraction', x = 1 }", 2, "no object of it"),
        ("configuration = 'erm'\n[channel.a.filters]\nconsumers = 'TRUE'", 2, "'erm' has no filtering"),
        ("configuration = 'half'", 1, "'half': one of full, erd, efd, erm"),
        ("x = 1", 1, "x is not known here; allowed are configuration, station, store, timers"),
        ("\n[station]\ncallback_limit = -1", 3, "seconds above 0"),
        ("[station]\npeer_limit = 0.5", 2, "seconds from 1 to .*: stations beat twice a second"),
        ("[channels]\npriority = 1\ndispatch = 'fifo'", 3, "one of strict, ranked, aged, deadline"),
        ("[channels]\ndispatch = 'aged'\n\n[channel.a]\nlatency = 1.0", 5, "None unless dispatch='deadline'"),
        ('[channel."a.b"]\nqueue = 3\nqueues = 4', 3, "queues is not known here; allowed are reliability"),
        ("[channel.a]\nthreads = 'fibres'", 2, "kind|threads = 'fibres': one of pool, bands, inline"),
        ("[channel.a]\n\nthreads = { kind = 'pool', cores = 2 }", 3, "cores is not known here"),
        ("[channel.a]\ndispatch = 'no.such:Order'", 2, "no object of it could be made"),
        ("[channel.a]\ndispatch = 'pathlib:Path'", 2, "an object that has a method first"),
        ("[channel]\na = 1", 2, "is a table"),
        ("[cchannels]\nqueue = 1", 1, "did you mean channels\\?$"),
        ("[channels]\nqueuex = 1", 2, "did you mean queue\\?$"),
        ("[channel.a.b]\nqueue = 1", 1, 'stands in quotes: \\[channel."a.b"\\]$'),
        ("[channel.a.threadx]\nkind = 'pool'", 1, "did you mean threads\\?$"),
        ("[channels]\nqueue = 'x'", 2, "channels.queue 'x'; allowed is a whole number from 1"),
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


NAMES = [
    "configuration",
    "station",
    "timers",
    "filtering",
    "correlation",
    "channels",
    "channel",
    "limit",
    "keys",
]
NAMES += [
    "enabled",
    "dispatch",
    "threads",
    "queue",
    "latency",
    "filters",
    "suppliers",
    "consumers",
    "class",
    "a",
]
VALUES = [
    "'erm'",
    "'efd'",
    "true",
    "false",
    "0",
    "7",
    "-1.5",
    "nan",
    "'aged'",
    "'deadline'",
    "'pool'",
    "'text = 1'",
]
VALUES += [
    f"'{__name__}:Backwards'",
    f"{{ class = '{__name__}:Plausible' }}",
    "{ kind = 'bands' }",
    "[]",
    "1979-05-27",
]
LINES = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.builds("{}.{} = {}".format, *[st.sampled_from(NAMES)] * 2, st.sampled_from(VALUES)),
    st.builds("[{}]".format, st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(".".join)),
    st.text(alphabet="[]\"'=.{}ac\n 1#", max_size=12),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_whatever_a_file_says_it_is_followed_or_refused_whole(text: str) -> None:
    """One that is refused leaves no thread behind; one that is not opens a channel, or says why it cannot."""
    before = threading.active_count()
    with tempfile.TemporaryDirectory() as folder:
        line = refused_line(file := written(Path(folder), text))
        if line is not None:
            assert 1 <= line <= max(1, len(text.splitlines()))
            assert threading.active_count() <= before
            return
        with hg.Station(config=file) as station:
            try:
                channel = station.channel("a", Note)
            except hg.HeliographError:
                assert station.channels() == ()
            else:
                assert channel.push(Note("n"))


def refused_line(file: Path) -> int | None:
    """Where the mistake of a file is; None for one without."""
    try:
        hg.Station(config=file).close()
    except InvalidConfiguration as error:
        return error.line
    return None


class Plausible:
    """A filter of one's own, with an option that the file gives it."""

    def __init__(self, longest: int = 3) -> None:
        self.longest = longest

    def lets_through(self, event: Note) -> bool:
        return len(event.text) <= self.longest


def test_filters_of_a_file_stand_before_those_of_the_program(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""
        [channel.c.filters]
        suppliers = {{ class = "{__name__}:Plausible", longest = 2 }}
        consumers = "text <> 'b'"
        [channel.d.filters]
        suppliers = "text LIKE 'a%'"
        """,
    )
    with hg.Station(config=file) as station:
        channel, other = station.channel("c", Note), station.channel("d", Note)
        plain, own = channel.consumer(), channel.consumer(where="text <> :no", params={"no": "a"})
        supplier = channel.supplier("s", where="text <> 'd'")
        for text in ("a", "b", "c", "d", "too long"):
            channel.push(Note(text))
            supplier.push(Note(text))
        assert [note.text for note in plain.read(timeout=0)] == ["a", "a", "c", "c", "d"]
        assert [note.text for note in own.read(timeout=0)] == ["c", "c", "d"]
        assert supplier.filtered == 2
        with pytest.raises(hg.NotPossible, match="params= without where="):
            channel.consumer(params={"no": 1})
        plain.change(where="text = 'b'")
        channel.push(Note("b"))
        assert plain.read(timeout=0) == []
        got = other.consumer()
        other.push_many([Note("ab"), Note("ba")])
        assert [note.text for note in got.read(timeout=0)] == ["ab"]


@pytest.mark.parametrize("side", ["suppliers", "consumers"])
def test_a_filter_of_a_file_that_no_event_of_the_channel_fits_is_refused_when_it_is_opened(
    tmp_path: Path, side: str
) -> None:
    file = written(tmp_path, f'[channel."a.b"]\nqueue = 3\nfilters.{side} = "txt = \'a\'"')
    with hg.Station(config=file) as station:
        with pytest.raises(InvalidConfiguration) as caught:
            station.channel("a.b", Note)
        assert str(caught.value) == (
            f'{file}, line 3: channel."a.b".filters.{side} fits none of the channel\'s events: '
            "Note has no field 'txt'; did you mean text? (column 1)\n  txt = 'a'\n  ^"
        )
        assert station.channels() == ()


def test_a_mistake_in_a_filter_of_the_program_is_shown_in_its_own_text(tmp_path: Path) -> None:
    file = written(tmp_path, "[channel.c]\nfilters.consumers = \"text = 'a'\"")
    with (
        hg.Station(config=file) as station,
        pytest.raises(hg.ExpressionError, match=r"did you mean text\? \(column 1\)\n  txt = 'b'\n  \^"),
    ):
        station.channel("c", Note).consumer(where="txt = 'b'")


def test_a_file_sets_the_limits_of_timers_and_patterns(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "[station]\npriority = 4\n[timers]\nlimit = 2\n[correlation]\nkeys = 1\ndepth = 2\nqueue = 3",
    )
    with testing.rig(config=file) as helio:
        channel = helio.station.channel("c", Note)
        assert channel.consumer().selection.priority == 4
        together = helio.station.subscribe(
            hg.all_of(a=channel, b=channel.where("text = ''"), by="text"), print
        )
        channel.push_many([Note("x"), Note("y"), Note("z")])
        helio.settle()
        assert (together.stats().keys, together.stats().evicted) == (1, 2)
        assert together.queue.limit == 3
        for _ in range(2):
            channel.push(Note("later"), deliver_after=5.0)
        with pytest.raises(hg.HeliographError, match="2"):
            channel.push(Note("later"), deliver_after=5.0)


def test_filters_and_patterns_can_be_left_out_one_by_one(tmp_path: Path) -> None:
    with testing.rig(config=written(tmp_path, "[filtering]\nenabled = false")) as helio:
        channel = helio.station.channel("c", Note)
        matches: list[object] = []
        helio.station.subscribe(hg.any_of(a=channel), matches.append)
        with pytest.raises(hg.NotPossible, match="has no filtering"):
            channel.where("text = 'a'")
        channel.push(Note("a"))
        helio.settle()
        assert len(matches) == 1
    with testing.rig(config=written(tmp_path, "[correlation]\nenabled = false")) as helio:
        channel = helio.station.channel("c", Note)
        channel.consumer(where="text = 'a'").close()
        with pytest.raises(hg.NotPossible, match="has no correlation"):
            helio.station.subscribe(hg.any_of(a=channel), print)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="there is no such file"):
        load(tmp_path / "none.toml")


def test_without_filtering_filters_and_patterns_are_refused(tmp_path: Path) -> None:
    with hg.Station(config=written(tmp_path, "configuration = 'erd'")) as station:
        channel = station.channel("c", Note)
        with pytest.raises(hg.NotPossible, match="has no filtering"):
            channel.subscribe(print, where="text = 'a'")
        with pytest.raises(hg.NotPossible, match="has no correlation"):
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
    with tempfile.TemporaryDirectory() as scratch:
        LOADED.write_text(table(Path(scratch)))
