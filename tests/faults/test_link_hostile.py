"""Bytes on a station's socket that no station sends: the connection ends, the station goes on."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import heliograph as hg
from heliograph.links.contract import LANES, MAX_FRAME, MAX_HELLO
from heliograph.links.mesh import mesh
from heliograph.links.session import messages as m
from heliograph.links.transports.callers import MAX_HALF_OPEN
from heliograph.links.transports.discovery import DiscoveryFolder
from heliograph.links.transports.unix import short_path
from tests.e2e.band_setups import Job
from tests.e2e.link_programs import Program, heard
from tests.e2e.link_support import LIMIT, Track, own_meeting_folder, wait_until
from tests.support import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ZEROS = (0,) * LANES


@pytest.fixture
def station(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[hg.Station]:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="e2e") as opened:
        yield opened


class Caller:
    """A bare socket to a station."""

    def __init__(self, station: hg.Station) -> None:
        self._lock = -1
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(DiscoveryFolder("e2e").socket_path(station.id)) as path:
            self.socket.connect(path)  # waits while too many are in line
        self.socket.settimeout(LIMIT)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        if self._lock >= 0:
            DiscoveryFolder("e2e").leave(self._station, self._lock)

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)

    def greet(self, station: int = 1, *, pid: int = 1) -> None:
        """Be met as a station that is in the meeting folder."""
        self._station, self._lock = station, DiscoveryFolder("e2e").enter(station, b"secret")
        self.send(hello(station, pid=pid, secret=b"secret"))
        assert self.socket.recv(65_536)

    def is_hung_up(self) -> bool:
        """Whether the station has closed the connection; what it says before is passed over."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        return True


def hello(
    station: int, *, domain: str = "e2e", pid: int = 1, secret: bytes = b"", oldest: int = m.OLDEST
) -> bytes:
    return m.hello_frame(m.Hello(station, "caller", domain, pid, 5, 0, ZEROS, secret=secret, oldest=oldest))


def assert_unharmed(station: hg.Station) -> None:
    """Another station can still meet it and receive from it."""
    ours = station.channel("air.tracks", Track)
    with hg.Station(domain="e2e") as other:
        consumer = other.channel("air.tracks", Track).consumer()
        assert ours.wait_matched(1, LIMIT)
        ours.push(Track(1))
        assert consumer.pull(LIMIT) == Track(1)


def data(payload: bytes, count: int = 1, first: int = 1, lane: int = 0) -> bytes:
    return struct.pack("<BBHIQ", m.DATA, lane, 0, count, first) + payload


def messages(*posted: Any) -> bytes:
    return run(m.MESSAGES, msgspec.msgpack.encode(list(posted)), length=len(posted))


def run(stream: int, records: bytes, *, length: int = 1, form: int = m.RECORDS) -> bytes:
    return m.run_bytes(form, stream, length, records)


FIRST_BYTES = {
    "nothing that is a frame": b"GET / HTTP/1.1\r\n\r\n",
    "a frame that is too large": struct.pack("<I", MAX_FRAME + 1),
    "a frame of no bytes": struct.pack("<I", 0),
    "a greeting cut short": struct.pack("<I", 3) + b"\x01HE",
    "a greeting with a foreign word": struct.pack("<I", 10) + b"\x01HOLLO\x01\x00\x90\x90",
    "a greeting of bad msgpack": struct.pack("<I", 9) + b"\x01HELIO\x02\x00\xc1",
    "a frame that is no greeting": struct.pack("<I", 2) + b"\x03\x90",
}

AFTER_HELLO = {
    "an unknown kind": b"\xff123",
    "a state that is none": b"\x03\x90",
    "a state of too many lanes": m.state_frame(m.State((*ZEROS, 0), ZEROS)),
    "an acknowledgement of what was never sent": m.state_frame(m.State(ZEROS, (10**9,) * LANES)),
    "a request for a lane that is none": m.state_frame(m.State(ZEROS, ZEROS, ((77, 1, 2),))),
    "data cut short": b"\x02\x00",
    "data of a lane that is none": data(b"", lane=77),
    "data of no records": data(b"", count=0),
    "data with a wrong count": data(messages(["gone", "x"]), count=9),
    "a run longer than its frame": data(struct.pack("<BIII", 0, 0, 1, 1 << 30)),
    "a run that is no array": data(run(0, b"\xc0")),
    "a run cut short": data(b"\0\0\0"),
    "a run of another length": data(run(0, b"\x90", length=2), count=2),
    "a run of a form that is none": data(run(0, b"\x90", form=9)),
    "runs of more records than announced": data(messages(["gone", "x"]) * 2),
    "a run that says it has four billion records": data(run(7, b"\x90", length=2**32 - 1), count=2**32 - 1),
    "a piece of nothing": data(run(7, bytes(8), form=m.PIECE), lane=3),
    "a piece of too much": data(run(7, b"\xff" * 9, form=m.PIECE), lane=3),
    "an unknown message": data(messages(["nonsense", 1])),
    "a stream that was not announced": data(run(7, b"\x91\xc0")),
    "a format under a false id": data(messages(["format", b"x" * 12, hg.format_of(Track).description])),
    "a format that is none": data(messages(["format", b"x" * 12, b"\x93\x01"])),
    "deep nesting": data(messages(["ask", 1, "x"]) + b"\x91" * 100_000),
}


@pytest.mark.parametrize("first", FIRST_BYTES.values(), ids=FIRST_BYTES.keys())
def test_a_caller_that_does_not_greet_is_hung_up_on(station: hg.Station, first: bytes) -> None:
    with Caller(station) as caller:
        caller.socket.sendall(first)
        assert caller.is_hung_up()
    assert_unharmed(station)


def test_a_large_frame_that_is_announced_before_the_hello_is_refused_at_once(
    station: hg.Station, caplog: pytest.LogCaptureFixture
) -> None:
    with Caller(station) as caller:
        caller.socket.sendall(struct.pack("<I", MAX_HELLO + 1))
        assert caller.is_hung_up(), "nothing is set aside for the rest, and nobody waits for it"
    assert f"1 to {MAX_HELLO} are allowed" in caplog.text
    assert_unharmed(station)


def test_a_caller_that_does_not_say_hello_in_time_is_hung_up_on(
    station: hg.Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "HELLO_LIMIT", 0.2)
    with Caller(station) as silent, Caller(station) as slow:
        with suppress(OSError):  # as many as it takes to be hung up on
            while True:
                slow.socket.sendall(b"\x01")
                wait_until(lambda: False, 0.05)
        assert slow.is_hung_up(), "a byte now and then is no hello"
        assert silent.is_hung_up()
    assert_unharmed(station)


def test_half_open_connections_cost_few_threads_and_keep_nobody_out(station: hg.Station) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(station)) for _ in range(200)]
        assert callers[0].is_hung_up(), "the one that has waited longest makes room"
        assert_unharmed(station)
        assert wait_until(lambda: threading.active_count() <= before + MAX_HALF_OPEN)


def test_connections_are_limited(station: hg.Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.links.transports.callers.MAX_CALLERS", 5)
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(station)) for _ in range(8)]
        assert all(caller.is_hung_up() for caller in callers[5:])
    assert_unharmed(station)


@pytest.mark.parametrize("frame", AFTER_HELLO.values(), ids=AFTER_HELLO.keys())
def test_a_frame_that_cannot_be_ends_the_connection_and_nothing_else(
    station: hg.Station, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Caller(station) as caller:
        caller.greet()
        caller.send(frame)
        assert caller.is_hung_up()
    assert "connection closed" in caplog.text
    assert_unharmed(station)


def test_a_condition_that_cannot_be_ends_the_connection(station: hg.Station) -> None:
    station.channel("air.tracks", Track)
    wants = [["air.track", hg.format_of(Track).id, ["Call", "eval", ["", ["Value", "1", "text"]]], None]]
    state = ["channel", "air.tracks", [], "reliable", "volatile", 1, wants, None]
    with Caller(station) as caller:
        caller.greet()
        caller.send(data(messages(state)))
        assert caller.is_hung_up()
    assert_unharmed(station)


@pytest.mark.parametrize(
    ("oldest", "newest", "sentence"),
    [(0, 99, "version 99"), (98, 99, "versions 98 to 99"), (1, 3, "version 3")],
)
def test_a_station_with_which_no_version_is_shared_is_refused_with_a_sentence(
    station: hg.Station, oldest: int, newest: int, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Caller(station) as caller:
        caller.send(of_version(newest, hello(1, oldest=oldest)))
        assert sentence.encode() in caller.socket.recv(65_536)
        assert caller.is_hung_up()
    assert f"speaks {sentence} of the link protocol, this station {m.OLDEST} to {m.VERSION}" in caplog.text
    assert_unharmed(station)


def test_a_station_that_also_speaks_newer_versions_is_linked(station: hg.Station) -> None:
    with Caller(station) as caller:
        descriptor = DiscoveryFolder("e2e").enter(1, b"secret")
        caller.send(of_version(99, hello(1, secret=b"secret", oldest=m.VERSION)))
        assert caller.socket.recv(65_536)[4] == m.HELLO
        DiscoveryFolder("e2e").leave(1, descriptor)


def of_version(newest: int, greeting: bytes) -> bytes:
    return greeting[:6] + newest.to_bytes(2, "little") + greeting[8:]


@pytest.mark.parametrize("knows_secret", [False, True])
def test_a_stranger_with_the_id_of_a_station_neither_ends_nor_takes_its_session(
    station: hg.Station, knows_secret: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are sent hellos with the other's id all the time while events flow, from another process too."""
    tracks = station.channel("air.tracks", Track)
    hearer = Program("hear", "air.tracks")
    with ExitStack() as stack:
        stack.callback(hearer.clean_up)
        assert tracks.wait_matched(1, LIMIT)
        assert station.mesh is not None
        (other,) = station.mesh.stations()
        record = DiscoveryFolder("e2e").record(other.station)
        assert record is not None
        for i in range(2_000):
            if i % 100 == 0:
                with Caller(station) as stranger:
                    stranger.send(hello(other.station, secret=record.secret if knows_secret else b""))
                    assert stranger.is_hung_up()
            tracks.push(Track(i))
        assert wait_until(lambda: heard(hearer)[:2] == ({"air.tracks": 2_000}, True))
        (link,) = station.mesh.stats()
        assert (link.connections, link.lost) == (1, 0)
    reason = "is process" if knows_secret else "does not know the secret"
    assert reason in caplog.text


def test_another_domain_is_refused_with_a_sentence(
    station: hg.Station, caplog: pytest.LogCaptureFixture
) -> None:
    with Caller(station) as caller:
        caller.send(hello(1, domain="sea"))
        assert caller.is_hung_up()
    assert "is of domain 'sea', not 'e2e'" in caplog.text


def test_a_stranger_that_claims_the_pid_of_a_band_worker_is_none(station: hg.Station) -> None:
    assert station.mesh is not None
    station.channel("jobs", Job)
    worker = station.band_worker("tests.e2e.band_setups:answer", priority=5, timeout=LIMIT)
    with Caller(station) as stranger:
        stranger.greet(1, pid=worker.stats().process)
        workers = {number: peer.worker for number, peer in station.mesh._peers.items()}
        assert workers.pop(1) is None
        assert [handed.worker for handed in workers.values() if handed] == [worker.name]


STREAM = ["stream", 7, "air.tracks", hg.format_of(Track).id, hg.format_of(Track).description]


def uniform(**forged: Any) -> bytes:
    """A run of three tracks in columns, with something made up."""
    columns = {
        "supplier": "radar",
        "epoch": 1,
        "priority": 3,
        "hops": 0,
        "partition": None,
        "sequences": 1,
        "station_seqs": 1,
        "source_ts": 1,
        "append_ts": None,
        "offsets": None,
        "bodies": [[1, 0.0, "x"], [2, 0.0, "x"], [3, 0.0, "x"]],
    }
    return msgspec.msgpack.encode(list((columns | forged).values()))


RUNS = {
    "columns of another length": uniform(sequences=[1]),
    "columns that are overlong": uniform(source_ts=[1] * 1000),
    "fewer events than announced": uniform(bodies=[]),
    "a supplier without end": uniform(supplier="x" * 10_000),
    "a number beyond 64 bits": uniform(sequences=2**64 - 1),
    "a column too few": uniform()[:1],
    "no run at all": b"\xc1",
}


@pytest.mark.parametrize("records", RUNS.values(), ids=RUNS.keys())
def test_a_run_in_columns_that_cannot_be_ends_the_connection(station: hg.Station, records: bytes) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    with Caller(station) as caller:
        caller.greet()
        forged = run(7, records, length=3, form=m.UNIFORM)
        caller.send(data(messages(STREAM) + forged, count=4, lane=3))
        assert caller.is_hung_up()
    assert consumer.pull(0) is None
    consumer.close()
    assert_unharmed(station)


@pytest.mark.parametrize("offsets", [None, 1_000_000, [7, 5, 2**40]], ids=str)
@pytest.mark.parametrize("bodies", [None, [[1, 0.0, "x"], ["no number"], [3, 0.0, "x"]]], ids=["good", "bad"])
def test_events_that_claim_to_be_of_the_history_that_is_kept_here_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    offsets: Any,
    bodies: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(tmp_path / "data", domain="e2e") as keeper:
        tracks = keeper.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        assert tracks.store is not None
        consumer = tracks.consumer(name="billing")
        forged = {"partition": tracks.store.partition, "offsets": offsets, "append_ts": 1}
        records = uniform(**forged, **({} if bodies is None else {"bodies": bodies}))
        with Caller(keeper) as caller:
            caller.greet()
            assert keeper.mesh is not None
            sent = run(7, records, length=3, form=m.UNIFORM)
            caller.send(data(messages(STREAM) + sent, count=4, lane=3))
            caller.send(data(sent, count=3, first=5, lane=3))
            assert wait_until(lambda: keeper.mesh.stats()[0].bytes_received > 2 * len(sent))  # type: ignore[union-attr]  # it has a domain
            tracks.push_many([Track(1), Track(2)])
            assert [consumer.pull(LIMIT), consumer.pull(LIMIT)] == [Track(1), Track(2)]
            assert len(keeper.mesh.stations()) == 1, "the connection stands"
        assert consumer.pull(0) is None
    assert "Traceback" not in caplog.text


def test_a_run_that_comes_again_or_overlaps_is_taken_once(station: hg.Station) -> None:
    consumer = station.channel("air.tracks", Track).consumer()
    with Caller(station) as caller:
        caller.greet()
        three = run(7, uniform(), length=3, form=m.UNIFORM)
        caller.send(data(messages(STREAM) + three, count=4, lane=3))
        caller.send(data(messages(STREAM) + three, count=4, lane=3))
        caller.send(data(three, count=3, first=3, lane=3))  # its first two have been there
        caller.send(data(three, count=3, first=6, lane=3))
        got = [consumer.pull(LIMIT) for _ in range(7)]
        assert [track.id for track in got if track] == [1, 2, 3, 3, 1, 2, 3]
        assert consumer.pull(0) is None


def test_random_frames_harm_nobody(station: hg.Station) -> None:
    chance = random.Random(42)
    station.channel("air.tracks", Track)
    sound = [data(messages(["gone", "x"])), m.state_frame(m.State(ZEROS, ZEROS)), m.bye_frame("x")]
    for round_ in range(examples(60)):
        with Caller(station) as caller:
            if round_ % 4:
                caller.greet(1 + round_)
            for _ in range(5):
                frame = bytearray(chance.choice(sound) if chance.random() < 0.7 else chance.randbytes(40))
                for _ in range(chance.randrange(4)):
                    frame[chance.randrange(len(frame))] = chance.randrange(256)
                try:
                    caller.send(bytes(frame))
                except (BrokenPipeError, ConnectionResetError):
                    break
    assert_unharmed(station)
