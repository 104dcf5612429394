"""The policies of DDS between processes: a writer in one, readers in another, by socket, ring and network.

By network, the two share no folder and meet over Zenoh on loopback.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.runtime import private_folder
from tests.e2e.dcps_process import Participant, Track
from tests.e2e.link_programs import Program
from tests.e2e.link_support import (
    CONNECT,
    LISTEN,
    TRANSPORT,
    free_endpoint,
    own_meeting_folder,
    wait_until,
)
from tests.ring_support import PORTS, needs_rings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heliograph.facades import dcps

RELIABLE = {"reliability": {"kind": "reliable"}, "history": {"kind": "keep-all"}}


class Remote:
    """A participant in another process."""

    def __init__(self, domain: str, folder: str, environment: dict[str, str]) -> None:
        self.program = Program(domain, folder, module="tests.e2e.dcps_process", **environment)
        self._numbers = count()
        self.program.says("ready")

    def do(self, what: str, *args: Any, **named: Any) -> Any:
        assert self.program.process.stdin is not None
        self.program.process.stdin.write(json.dumps({"do": what, "args": args, **named}) + "\n")
        self.program.process.stdin.flush()
        return json.loads(self.program.says(f"{next(self._numbers)} ").partition(" ")[2])


class Pair:
    """A participant here, and one elsewhere."""

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        self.name = f"dcps-{PORTS.random.id64():016x}"
        self.here = Participant(self.name)
        self.folder = folder
        self.environment = environment
        """Of the other process."""
        self.remote = Remote(self.name, folder, environment)

    def begin(self) -> None:
        """A new topic on both sides; a process that was killed is started again."""
        self.topic = f"air.tracks-{PORTS.random.id64():016x}"
        if self.remote.program.process.poll() is not None:
            self.remote.program.clean_up()
            self.remote = Remote(self.name, self.folder, self.environment)
        self.here.reset(self.topic)
        self.remote.do("reset", self.topic)

    def reader(
        self, qos: dict[str, Any] | None = None, group: dict[str, Any] | None = None
    ) -> dcps.DataReader[Any]:
        name = f"reader {len(self.here.ends)}"
        self.here.reader(name, RELIABLE if qos is None else qos, group)
        reader: dcps.DataReader[Any] = self.here.ends[name]
        return reader

    def matched(self, reader: dcps.DataReader[Any], number: int = 1) -> bool:
        return wait_until(lambda: reader.status.peek("subscription_matched").current_count == number)

    def close(self) -> None:
        self.remote.program.clean_up()
        self.here.close()


@pytest.fixture(scope="module", params=["socket", pytest.param("ring", marks=needs_rings), "network"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        own_meeting_folder(patch, folder := tmp_path_factory.mktemp("dcps"))
        environment: dict[str, str] = {}
        if request.param == "network":
            # Another host is another meeting folder, and another one for shared memory.
            patch.setenv(LISTEN, endpoint := free_endpoint())
            runtime, memory = folder / "far" / "run", folder / "far" / "shm"
            for one in (runtime, memory):
                one.mkdir(mode=0o700, parents=True)
            environment = {
                "XDG_RUNTIME_DIR": str(runtime),
                private_folder.MEMORY_VARIABLE: str(memory),
                LISTEN: "",
                CONNECT: endpoint,
            }
        else:
            patch.setenv(TRANSPORT, request.param)
        pair = Pair(str(folder / "kept"), environment)
        yield pair
        pair.close()


@pytest.fixture
def pair(shared: Pair) -> Pair:
    """With a topic of its own for each test."""
    shared.begin()
    return shared


def taken(reader: dcps.DataReader[Any], number: int) -> list[tuple[int, float]]:
    """So many valid samples, as soon as they have come."""
    got: list[tuple[int, float]] = []

    def all_came() -> bool:
        got.extend((one.data.id, one.data.speed) for one in reader.take() if one.info.valid_data)
        return len(got) >= number

    assert wait_until(all_came), got
    return got


def test_samples_instances_and_their_states_cross(pair: Pair) -> None:
    """Reliable, keep-all: all samples in order; dispose, unregister; matched on both sides."""
    reader = pair.reader()
    handle = pair.remote.do("writer", "w", {"writer_data_lifecycle": {"autodispose": False}})
    assert pair.remote.do("wait_matched", "w", 1)
    assert pair.matched(reader)
    assert reader.get_matched_publications() == (handle,)
    pair.remote.do("write", "w", *[[n % 3, float(n)] for n in range(300)])
    got = taken(reader, 300)
    assert sorted(got) == sorted((n % 3, float(n)) for n in range(300))
    for number in range(3):
        ours = [speed for one, speed in got if one == number]
        assert ours == sorted(ours), "in order for each instance"
    pair.remote.do("dispose", "w", 0)
    pair.remote.do("unregister", "w", 1)
    seen: dict[int, str] = {}

    def both_came() -> bool:
        seen.update(
            (one.data.id, one.info.instance_state) for one in reader.take() if not one.info.valid_data
        )
        return len(seen) == 2

    assert wait_until(both_came)
    assert seen == {0: "disposed", 1: "no-writers"}
    assert reader.get_sample_lost_status().total_count == 0


def test_a_mismatch_is_told_to_both_and_explained(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    reader = pair.reader({"deadline": {"period": 1.0}})
    pair.remote.do("writer", "w", {"deadline": {"period": 2.0}})
    assert wait_until(lambda: reader.status.peek("requested_incompatible_qos").total_count == 1)
    assert wait_until(
        lambda: pair.remote.do("status", "w", "offered_incompatible_qos")["policies"] == {"4": 1}
    )
    assert wait_until(lambda: "deadline (DDS 2.2.3.7): offered 2.0, requested 1.0" in caplog.text)
    pair.remote.do("set_qos", "w", {"deadline": {"period": 0.5}})
    assert pair.matched(reader)
    assert pair.remote.do("wait_matched", "w", 1)


def test_a_late_joiner_gets_what_a_living_writer_keeps(pair: Pair) -> None:
    """Transient-local, with the writer's depth."""
    kept = {"durability": {"kind": "transient-local"}}
    pair.remote.do("writer", "w", {**kept, "history": {"depth": 2}})
    pair.remote.do("write", "w", *[[1, float(n)] for n in range(5)])
    late = pair.reader({**RELIABLE, **kept})
    assert taken(late, 2) == [(1, 3.0), (1, 4.0)]


def test_a_late_joiner_gets_what_a_journal_keeps(pair: Pair) -> None:
    """Persistent, of a writer that was deleted."""
    kept = {"durability": {"kind": "persistent"}, "durability_service": {"history": "keep-all"}}
    pair.remote.do("writer", "w", {**kept, "writer_data_lifecycle": {"autodispose": False}})
    pair.remote.do("write", "w", *[[1, float(n)] for n in range(5)])
    late = pair.reader({**RELIABLE, "durability": {"kind": "persistent"}})
    assert taken(late, 5) == [(1, float(n)) for n in range(5)]


def test_the_owner_changes_when_its_process_is_killed(pair: Pair) -> None:
    exclusive = {"ownership": {"kind": "exclusive"}}
    reader = pair.reader({**RELIABLE, **exclusive})
    pair.here.writer("weak", exclusive)
    pair.remote.do("writer", "strong", {**exclusive, "ownership_strength": {"value": 5}})
    assert pair.matched(reader, 2)
    assert pair.remote.do("wait_matched", "strong", 1)
    pair.remote.do("write", "strong", [1, 1.0])
    assert taken(reader, 1) == [(1, 1.0)]
    pair.here.write("weak", [1, 2.0])
    pair.remote.do("write", "strong", [1, 3.0])
    assert taken(reader, 1) == [(1, 3.0)], "the weaker one is not heard"
    pair.remote.program.kill()
    assert pair.matched(reader, 1)
    pair.here.write("weak", [1, 4.0])
    assert taken(reader, 1) == [(1, 4.0)]


def test_the_owner_changes_when_strengths_change(pair: Pair) -> None:
    exclusive = {"ownership": {"kind": "exclusive"}}
    reader = pair.reader({**RELIABLE, **exclusive})
    pair.here.writer("w", {**exclusive, "ownership_strength": {"value": 3}})
    pair.remote.do("writer", "w", {**exclusive, "ownership_strength": {"value": 5}})
    assert pair.matched(reader, 2)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    assert taken(reader, 1) == [(1, 1.0)]
    pair.remote.do("set_qos", "w", {**exclusive, "ownership_strength": {"value": 1}})

    def is_heard() -> bool:
        pair.here.write("w", [1, 2.0])
        return bool(reader.take())

    assert wait_until(is_heard)


@pytest.mark.parametrize("kind", ["automatic", "manual-by-participant", "manual-by-topic"])
def test_a_stopped_process_is_not_alive_and_comes_back(pair: Pair, kind: str) -> None:
    liveliness = {"liveliness": {"kind": kind, "lease": 0.5}}
    reader = pair.reader({**RELIABLE, **liveliness})
    pair.remote.do("writer", "w", liveliness)
    assert pair.matched(reader)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    taken(reader, 1)
    pair.remote.program.stop()
    assert wait_until(lambda: reader.status.peek("liveliness_changed").not_alive_count == 1)
    assert wait_until(lambda: [one.info.instance_state for one in reader.read()] == ["no-writers"])
    pair.remote.program.go_on()
    if kind != "automatic":
        pair.remote.do("write", "w", [1, 2.0])
    assert wait_until(lambda: reader.status.peek("liveliness_changed").alive_count_change >= 1)


def test_partitions_of_two_processes_are_joined_and_parted_live(pair: Pair) -> None:
    reader = pair.reader(group={"partition": {"names": ["s*"]}})
    pair.remote.do("writer", "w", {}, {"partition": {"names": ["north"]}})
    assert wait_until(lambda: len(pair.here.participant.domain.writers_of(pair.topic)) == 1)
    assert reader.status.peek("subscription_matched").total_count == 0
    assert reader.status.peek("requested_incompatible_qos").total_count == 0
    pair.remote.do("set_group", "w", {"partition": {"names": ["south"]}})
    assert pair.matched(reader)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    assert taken(reader, 1) == [(1, 1.0)]
    pair.remote.do("set_group", "w", {"partition": {"names": ["north"]}})
    assert pair.matched(reader, 0)


def test_readers_of_two_processes_agree_on_the_last_value(pair: Pair) -> None:
    order = {"destination_order": {"kind": "by-source-timestamp"}}
    reader = pair.reader({**order, "reliability": {"kind": "reliable"}})
    pair.remote.do("writer", "w", order)
    pair.here.writer("w", order)
    assert pair.matched(reader, 2)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.here.write("w", [1, 1.0], ts=2_000)
    pair.remote.do("write", "w", [1, 2.0], ts=1_000)
    pair.remote.do("write", "w", [2, 0.0], ts=1_000)
    assert wait_until(lambda: len(reader.read()) == 2)
    assert {one.data.id: one.data.speed for one in reader.take()} == {1: 1.0, 2: 0.0}


def test_half_a_coherent_set_of_a_killed_writer_is_never_seen(pair: Pair) -> None:
    coherent = {"presentation": {"scope": "topic", "coherent": True}}
    reader = pair.reader(group=coherent)
    pair.remote.do("writer", "w", {"writer_data_lifecycle": {"autodispose": False}}, coherent)
    assert pair.remote.do("wait_matched", "w", 1)
    assert pair.matched(reader)
    pair.remote.do("begin", "w")
    pair.remote.do("write", "w", [1, 1.0], [2, 2.0])
    pair.remote.do("end", "w")
    assert taken(reader, 2) == [(1, 1.0), (2, 2.0)]
    pair.remote.do("part", "w", 3, "set/9/0/2")
    assert pair.remote.do("flush", "w")
    pair.remote.program.kill()
    assert pair.matched(reader, 0)
    assert 3 not in {one.data.id for one in reader.take()}


def test_a_set_of_two_topics_is_seen_in_both_or_in_none(pair: Pair) -> None:
    """Presentation by group: nobody sees the beginning of a set, nor half a set of a killed writer."""
    group = {"presentation": {"scope": "group", "coherent": True, "ordered": True}}
    reader = pair.reader(group=group)
    name = next(name for name, end in pair.here.ends.items() if end is reader)
    pair.here.topic_reader("r2", name, f"{pair.topic}.more")
    second, subscriber = pair.here.ends["r2"], pair.here.groups[name]
    pair.remote.do("writer", "w", {"writer_data_lifecycle": {"autodispose": False}}, group)
    pair.remote.do("topic_writer", "w2", "w", f"{pair.topic}.more")
    for writer in ("w", "w2"):
        assert pair.remote.do("wait_matched", writer, 1)
    assert pair.matched(reader)
    assert pair.matched(second)
    pair.remote.do("begin", "w")
    for n in range(4):
        pair.remote.do("write", "w2" if n % 2 else "w", [n, float(n)])
    pair.remote.do("end", "w")

    def seen() -> list[float]:
        subscriber.begin_access()
        found = [one.data.speed for end in subscriber.get_datareaders() for one in end.take(1)]
        subscriber.end_access()
        return found

    got: list[float] = []

    def has_come() -> bool:
        got.extend(seen())
        return bool(got)

    assert wait_until(has_come)
    assert got == [0.0, 1.0, 2.0, 3.0], "all of it at once, in the order of writing over both topics"
    ids = [pair.remote.do("handle", one).rpartition(".")[2] for one in ("w", "w2")]
    pair.remote.do("part", "w", 8, f"set/900/0/1/{ids[0]}=1/{ids[1]}=1")
    assert pair.remote.do("flush", "w")
    pair.remote.program.kill()
    assert pair.matched(reader, 0)
    subscriber.begin_access()
    assert not [one for end in (reader, second) for one in end.take() if one.info.valid_data]
    subscriber.end_access()


def test_a_deadline_is_missed_on_both_sides(pair: Pair) -> None:
    deadline = {"deadline": {"period": 0.1}}
    reader = pair.reader({**RELIABLE, **deadline})
    pair.remote.do("writer", "w", deadline)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    assert wait_until(lambda: reader.status.peek("requested_deadline_missed").total_count >= 1)
    assert wait_until(lambda: pair.remote.do("status", "w", "offered_deadline_missed")["total_count"] >= 1)


def test_samples_wait_together_for_a_reader_elsewhere(pair: Pair) -> None:
    budget = {"latency_budget": {"duration": 0.1}}
    reader = pair.reader({**RELIABLE, **budget})
    pair.remote.do("writer", "w", budget)
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", *[[1, float(n)] for n in range(300)])
    assert taken(reader, 300) == [(1, float(n)) for n in range(300)]


def test_a_sample_of_another_process_expires(pair: Pair) -> None:
    reader = pair.reader()
    pair.remote.do("writer", "w", {"lifespan": {"duration": 0.2}})
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    pair.remote.do("set_qos", "w", {"lifespan": {"duration": 1000.0}})
    assert wait_until(lambda: not reader.read())


def test_of_a_fast_writer_elsewhere_the_last_value_comes(pair: Pair) -> None:
    reader = pair.reader({**RELIABLE, "time_based_filter": {"separation": 0.2}})
    pair.remote.do("writer", "w")
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", *[[1, float(n)] for n in range(50)])
    got: list[tuple[int, float]] = []

    def last_came() -> bool:
        got.extend((one.data.id, one.data.speed) for one in reader.take())
        return bool(got) and got[-1] == (1, 49.0)

    assert wait_until(last_came)
    assert len(got) < 50


def test_user_topic_and_group_data_are_read_elsewhere(pair: Pair) -> None:
    publications = pair.here.participant.get_builtin_subscriber().lookup_datareader("DCPSPublication")
    assert publications is not None
    handle = pair.remote.do(
        "writer", "w", {"user_data": {"value": "dXNlcg=="}}, {"group_data": {"value": "Z3JvdXA="}}
    )
    found: dict[str, Any] = {}

    def is_known() -> bool:
        found.update((one.data.key, one.data.policies) for one in publications.read())
        return handle in found

    assert wait_until(is_known)
    assert (found[handle]["user_data"].value, found[handle]["group_data"].value) == (b"user", b"group")
    pair.remote.do("delete", "w")
    assert wait_until(lambda: publications.read()[-1].info.instance_state == "disposed")


def test_a_full_reader_elsewhere_rejects_and_loses_nothing(pair: Pair) -> None:
    """Resource limits of a reliable reader: what is rejected waits, and comes when there is room."""
    reader = pair.reader({**RELIABLE, "resource_limits": {"max_samples": 5}})
    pair.remote.do("writer", "w")
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", *[[1, float(n)] for n in range(20)])
    assert wait_until(lambda: reader.status.peek("sample_rejected").total_count >= 1)
    assert taken(reader, 20) == [(1, float(n)) for n in range(20)]


def test_a_process_that_is_killed_leaves_instances_without_writers(pair: Pair) -> None:
    reader = pair.reader({**RELIABLE, "reader_data_lifecycle": {"autopurge_nowriter": 0.2}})
    pair.remote.do("writer", "w")
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    taken(reader, 1)
    pair.remote.program.kill()
    assert pair.matched(reader, 0)
    assert wait_until(lambda: reader.cache.lookup((1,)) == 0), "purged after the delay"


def test_what_a_durability_service_elsewhere_keeps_and_forgets(pair: Pair) -> None:
    """Transient: two samples of an instance; what is over goes after its delay, for late joiners."""
    kept = {"durability": {"kind": "transient"}}
    service = {"durability_service": {"depth": 2, "cleanup_delay": 0.3}}
    pair.remote.do("writer", "w", {**kept, **service})
    pair.remote.do("write", "w", *[[n % 2, float(n)] for n in range(8)])
    reader = pair.reader({**RELIABLE, **kept})
    assert sorted(taken(reader, 4)) == [(0, 4.0), (0, 6.0), (1, 5.0), (1, 7.0)]
    pair.remote.do("unregister", "w", 0)

    def is_forgotten() -> bool:
        late = pair.reader({**RELIABLE, **kept})
        found = {number for number, _ in taken(late, 2)}
        pair.here.delete(f"reader {len(pair.here.ends) - 1}")
        return found == {1}

    assert wait_until(is_forgotten)


def test_a_writer_waits_for_readers_elsewhere_within_its_limits(
    pair: Pair, request: pytest.FixtureRequest
) -> None:
    """Resource limits of a writer: so many samples at most are not in a reader's cache."""
    if request.node.callspec.params["shared"] == "network":
        pytest.skip("a stream between hosts confirms what came to a station, not what is in a cache there")
    reader = pair.reader({**RELIABLE, "resource_limits": {"max_samples_per_instance": 1}})
    limited = {
        "resource_limits": {"max_samples": 5},
        "reliability": {"kind": "reliable", "max_blocking": 0.2},
    }
    pair.remote.do("writer", "w", limited)
    assert pair.remote.do("wait_matched", "w", 1)
    written = pair.remote.do("write_until_timeout", "w", 1, 10_000)
    assert written < 10_000
    assert taken(reader, written) == [(1, float(n)) for n in range(written)], (
        "what was written comes, no more"
    )


def test_transport_priority_crosses(pair: Pair) -> None:
    plain = pair.here.station.channel(pair.topic, Track).consumer()
    pair.reader()
    pair.remote.do("writer", "w", {"transport_priority": {"value": 1}})
    assert pair.remote.do("wait_matched", "w", 1)
    pair.remote.do("write", "w", [1, 1.0])
    delivery = next(iter(plain.deliveries(timeout=60.0)))
    assert (delivery.event.id, delivery.header.priority) == (1, 4)
