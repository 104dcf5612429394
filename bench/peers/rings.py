"""From process to process on one host: 64 bytes through the ring, bare and between stations, beside rivals.

Two processes, each pinned to a core. The other one is this module run as a program. Bare ways carry bytes: it
sends back what begins with `E`, counts the rest, and answers what begins with `L` with the count. Between
stations go typed events that a filter lets through: with all settings as they are by default, and
with inline consumers at both ends over each carrier. The clock is the one on the wall; compare what polls
with what polls, and what blocks with what blocks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Protocol

import heliograph as hg
from bench.environment import variables
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from bench.peers.hosts import LIMIT, SIZE, WAYS, End, RingEnd, open_end, ways_here, ways_missing
from bench.peers.links import TRIPS, Caller, Ping, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ECHO = b"E" * SIZE
COUNTED = b"C" * SIZE
LAST = b"L" * SIZE
STOP = b"S" * SIZE
BATCH = 100
REST_S = 2.0
CROWD = 20
"""Consumers in the other process, each with a filter of its own."""
CROWD_EVENTS = 300

DEFAULT = "stations, default"
CARRIERS = {
    DEFAULT: "default-callbacks",
    "stations, polling": "spinning-ring",
    "stations, blocking": "ring",
    "stations, socket": "socket",
}
MAY_LOSE = ("eCAL", "NATS")
"""Ways that cannot be told to wait where a reader is slow: they have no stream that could be compared."""
SLEEP_S = 0.1
"""How long a callback of another channel sleeps beside which round trips are timed."""
BESIDE_S = 3.0
"""Seconds for which round trips are timed one by one with such callbacks, and without."""
BLOCKING = (
    "Unix socket",
    "iceoryx2, blocking",
    "ZeroMQ",
    "ZeroMQ XPUB",
    "nng",
    "Zenoh",
    "Cyclone DDS",
    "NATS",
    "eCAL",
)


def answer(end: End) -> None:
    """The other process's work."""
    counted = 0
    while (data := end.receive(LIMIT * 100)) is not None and data != STOP:
        kind = data[:1]
        if kind == b"C":
            counted += 1
        elif kind == b"E":
            end.send(data)
        else:
            end.send(counted.to_bytes(SIZE, "little"))
            counted = 0


def serve_stations(domain: str, carrier: Any) -> None:
    """The other process's work between stations, until its input ends."""
    with station_by(domain, carrier) as station:
        serve(station, inline=is_inline(carrier))
        station.channel("slow", Ping).subscribe(lambda _: time.sleep(SLEEP_S))
        reached, crowd = station.channel("reached", Ping), station.channel("crowd", Ping)
        for i in range(CROWD - 1):
            crowd.subscribe(lambda _: None, inline=True, where=f"n > {i}")
        # Called last: n says when it was pushed, on the clock that all processes of a host share.
        crowd.subscribe(
            lambda event: reached.push(Ping(time.monotonic_ns() - event.n, b"")),
            inline=True,
            where=f"n > {CROWD}",
        )
        sys.stdin.read()


def station_by(domain: str, carrier: Any) -> hg.Station:
    return (
        hg.Station(domain=domain)
        if carrier == CARRIERS[DEFAULT]
        else hg.Station(domain=domain, transport=carrier)
    )


def is_inline(carrier: str) -> bool | None:
    """How consumers are called: as they are when nothing is said, or inline."""
    return None if carrier == CARRIERS[DEFAULT] else True


class Talk(Protocol):
    """This process's side of one way, and the process at the other."""

    process: subprocess.Popen[str]
    trips: int
    """Round trips of one call."""

    def round_trip(self) -> None: ...

    def stream(self, events: int) -> int:
        """Send so many one by one; returns how many came."""
        ...

    def batches(self, events: int) -> int:
        """The same in batches."""
        ...


class Pair:
    """A way that carries bytes."""

    trips = 1

    def __init__(self, way: str, core: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="helio-", suffix=f"{os.getpid() + len(way):04x}"[-4:]))
        self.process = other_process("bytes", way, str(self.folder), str(core))
        self.end = open_end(way, self.folder, 0)
        self.round_trip()

    def round_trip(self) -> None:
        self.end.send(ECHO)
        if self.end.receive(LIMIT) is None:
            raise TimeoutError("no answer")

    def stream(self, events: int) -> int:
        send = self.end.send
        for _ in range(events):
            send(COUNTED)
        return self._arrived()

    def batches(self, events: int) -> int:
        assert isinstance(self.end, RingEnd)
        batch = [COUNTED] * BATCH
        for _ in range(events // BATCH):
            self.end.writer.append_many(batch)
        return self._arrived()

    def _arrived(self) -> int:
        self.end.send(LAST)
        return int.from_bytes(self.end.receive(LIMIT) or b"", "little")

    def close(self) -> None:
        self.end.send(STOP)
        self.process.communicate(timeout=LIMIT)
        self.end.close()
        shutil.rmtree(self.folder)


class Stations:
    """Two stations, linked by one carrier."""

    trips = TRIPS

    def __init__(self, carrier: Any, core: int, many: int) -> None:
        domain = f"bench-{os.getpid()}-{carrier}"
        self.process = other_process("stations", domain, carrier, str(core))
        self.station = station_by(domain, carrier)
        self._caller = Caller(self.station, many, inline=is_inline(carrier))
        self.round_trip = self._caller.round_trips
        self.round_trip()

    def stream(self, events: int) -> int:
        self._caller.one_by_one()
        return events - self._caller.lost

    def batches(self, events: int) -> int:
        self._caller.together()
        return events - self._caller.lost

    def to_the_last_of_a_crowd(self, events: int) -> float:
        """The median of the microseconds from `push` to the last of many callbacks there."""
        crowd, took, ended = self.station.channel("crowd", Ping), [], threading.Event()

        def reached(event: Ping) -> None:
            took.append(event.n)
            if len(took) < events:
                crowd.push(Ping(time.monotonic_ns(), b""))
            else:
                ended.set()

        subscription = self.station.channel("reached", Ping).subscribe(reached, inline=True)
        crowd.wait_matched(CROWD, LIMIT)
        crowd.push(Ping(time.monotonic_ns(), b""))
        if not ended.wait(LIMIT):
            raise TimeoutError("no answer")
        subscription.close()
        return median(took) / 1e3

    def beside_a_sleeper(self, seconds: float) -> tuple[list[float], list[float]]:
        """Round trips of so many seconds, in ms: alone, and while callbacks of another channel sleep."""
        slow, ended = self.station.channel("slow", Ping), threading.Event()
        slow.wait_matched(1, LIMIT)
        alone = self._caller.timed_round_trips(seconds)

        def keep_busy() -> None:
            while not ended.wait(1.5 * SLEEP_S):  # so that each finds the thread that reads at its work
                slow.push(Ping(1, b""))

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            return alone, self._caller.timed_round_trips(seconds)
        finally:
            ended.set()
            busy.join()

    def close(self) -> None:
        self.station.close()
        self.process.communicate(timeout=LIMIT)


def other_process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.rings", *arguments],
        stdin=subprocess.PIPE,
        text=True,
        env=variables(),
    )


def processor_time(process: int) -> float:
    """Seconds that all threads of a process have run."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def share_of_a_core_at_rest(talk: Talk, seconds: float) -> float:
    """What the other process takes while nothing comes."""
    before = processor_time(talk.process.pid)
    time.sleep(seconds)
    return (processor_time(talk.process.pid) - before) / seconds


def processor_times(talks: Mapping[str, Talk], call: Callable[[Talk], object], events: int) -> str:
    """A sentence about what each way costs both processes together; `call` stands for so many events."""
    parts = []
    for way, talk in talks.items():
        before = processor_time(os.getpid()) + processor_time(talk.process.pid)
        call(talk)
        spent = processor_time(os.getpid()) + processor_time(talk.process.pid) - before
        parts.append(f"{way} {spent / events * 1e6:.1f}")
    return f"Processor time of both processes together, in µs: {'; '.join(parts)}."


def p99_of(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


def skipped() -> str:
    """A sentence about ways whose library is not installed."""
    missing = ways_missing()
    return f" Not installed, so skipped: {'; '.join(missing)}." if missing else ""


def talks(started: ExitStack, many: int) -> dict[str, Talk]:
    """All ways, opened; this process on one core, the others on another."""
    allowed = os.sched_getaffinity(0)
    started.callback(os.sched_setaffinity, 0, allowed)
    cores = sorted(allowed)
    made: dict[str, Talk] = {}
    for way in ways_here():
        pair = Pair(way, cores[-1])
        started.callback(pair.close)
        made[way] = pair
    # Threads are pinned with their process: those of the libraries above go where they like, ours do not.
    os.sched_setaffinity(0, {cores[0]})
    for way, carrier in CARRIERS.items():
        stations = Stations(carrier, cores[-1], many)
        started.callback(stations.close)
        made[way] = stations
    return made


@benchmark("rings-trips", "A round trip of 64 bytes to another process on another core")
def trips(size: Size) -> Benchmark:
    started = ExitStack()
    ways = talks(started, 10)
    seconds = REST_S / 10 if size.quick else REST_S
    # Stations have heartbeats, which are too few in a quick run to say anything.
    resting_ways = ("ring, polling",) if size.quick else ("ring, polling", *CARRIERS)
    resting = {way: share_of_a_core_at_rest(ways[way], seconds) for way in resting_ways}
    some = size.scaled(3000) // TRIPS * TRIPS or TRIPS

    def some_trips(talk: Talk) -> None:
        for _ in range(some // talk.trips):
            talk.round_trip()

    stations = ways["stations, polling"]
    assert isinstance(stations, Stations)
    last = stations.to_the_last_of_a_crowd(size.scaled(CROWD_EVENTS))
    default = ways[DEFAULT]
    assert isinstance(default, Stations)
    alone, beside = default.beside_a_sleeper(BESIDE_S / 10 if size.quick else BESIDE_S)
    risen = p99_of(beside) - p99_of(alone)
    targets = [
        Target("default callbacks against ZeroMQ", DEFAULT, "at most", 0.5, "ZeroMQ"),
        Target("default callbacks against inline consumers", DEFAULT, "at most", 1.3, "stations, blocking"),
        _target("polling: the ring against iceoryx2", "ring, polling", "iceoryx2"),
        *(_target(f"blocking: the ring against {way}", "ring, blocking", way) for way in BLOCKING),
        Target(
            "typed and filtered, polling, against the bare ring",
            "stations, polling",
            "at most",
            2.5,
            "ring, polling",
        ),
        _target("typed and filtered, polling, against iceoryx2", "stations, polling", "iceoryx2"),
        *(
            _target(f"typed and filtered, blocking, against {way}", "stations, blocking", way)
            for way in BLOCKING
        ),
    ]
    return Benchmark(
        cases=tuple(
            Case(way, talk.round_trip, ((),), _note(way), wall=True, events=talk.trips)
            for way, talk in ways.items()
        ),
        baseline="Unix socket",
        targets=tuple(target for target in targets if target.base in ways),
        facts=(
            *(
                Fact(
                    f"at rest, {way}, the other process takes less than 1 % of a core: {share:.1%}",
                    share < 0.01 or size.quick,
                )
                for way, share in resting.items()
            ),
            Fact(
                f"to the last of {CROWD} consumers in the other process at most 15 µs: {last:.1f} µs",
                last <= 15 or size.quick,
            ),
            Fact(
                f"a callback of another channel that sleeps {SLEEP_S:.1f} s raises the p99 of a round trip "
                f"with default callbacks by at most 2 ms: by {risen:.2f} ms; the longest was "
                f"{max(alone):.1f} ms alone and {max(beside):.1f} ms beside it",
                risen <= 2 or size.quick,
            ),
        ),
        close=started.close,
        note="Stations that block sleep at rest, but look up to 100 µs for the answer to what they wrote: "
        "here they are awake, where rivals that block sleep each time. "
        + processor_times(ways, some_trips, some)
        + skipped(),
    )


@benchmark("rings-streams", "64 bytes to another process on another core, as fast as it goes; per event")
def streams(size: Size) -> Benchmark:
    started = ExitStack()
    many = size.scaled(10_000) // BATCH * BATCH or BATCH
    ways = {way: talk for way, talk in talks(started, many).items() if way not in MAY_LOSE}
    lost = {way: many - talk.stream(many) for way, talk in ways.items()}

    def case(name: str, function: Callable[[int], object], note: str) -> Case:
        return Case(name, function, ((many,),), note, wall=True, events=many)

    cases = [case(way, talk.stream, _note(way)) for way, talk in ways.items()]
    cases.append(case("ring, batches", ways["ring, polling"].batches, f"{BATCH} events at a time"))
    cases += [case(f"{way}, batches", ways[way].batches, "typed, push_many") for way in CARRIERS]
    rivals = [way for way in ways if not way.startswith(("ring", "stations"))]
    best = "ZeroMQ XPUB"
    targets = [
        *(_target(f"one by one: the ring against {way}", "ring, polling", way) for way in rivals),
        *(
            [_target(f"typed and filtered, one by one, against {best}", "stations, polling", best)]
            if best in ways
            else []
        ),
        *(
            [Target(f"default callbacks, one by one, against {best}", DEFAULT, "at most", 1.11, best)]
            if best in ways
            else []
        ),
        Target("default callbacks, in batches", f"{DEFAULT}, batches", "at most", 0.5),
        Target("typed and filtered, in batches", "stations, polling, batches", "at most", 0.5),
    ]
    return Benchmark(
        cases=tuple(cases),
        baseline="Unix socket",
        targets=tuple(targets),
        facts=tuple(Fact(f"{way} loses nothing: {n} of {many} lost", n == 0) for way, n in lost.items()),
        close=started.close,
        note="1 million events a second are 1,000 ns each, 2 million 500 ns. "
        + processor_times(ways, lambda talk: talk.stream(many), many)
        + skipped(),
        rounds=15,
    )


def _note(way: str) -> str:
    return WAYS[way][0] if way in WAYS else f"typed, filtered, {CARRIERS[way]}"


def _target(sentence: str, case: str, base: str) -> Target:
    return Target(sentence, case, "at most", 1.0, base)


def main(kind: str, *arguments: str) -> None:
    """The other process."""
    *which, core = arguments
    if kind == "stations":
        os.sched_setaffinity(0, {int(core)})
        serve_stations(*which)
        return
    way, folder = which
    end = open_end(way, Path(folder), 1)
    os.sched_setaffinity(0, {int(core)})  # after threads were started, which may go where they like
    try:
        answer(end)
    finally:
        end.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
