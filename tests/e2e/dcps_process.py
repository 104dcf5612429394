"""A DCPS participant in a process of its own, which does what it is told line by line and answers each line.

{"do": "writer", "name": "w", "qos": {"durability": {"kind": "transient-local"}}}
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec

import heliograph as hg
from heliograph.errors import WriteTimeout
from heliograph.facades import dcps
from heliograph.model.instance_change import CHANGE, change_of
from heliograph.qos.dds_policies import DDS_POLICIES
from tests.e2e.link_support import CONNECT, LIMIT, LISTEN, transport, wait_until


class Track(hg.Event, name="dcps.track", key="id"):
    id: int
    speed: float = 0.0


def qos_of(kind: type[Any], said: dict[str, dict[str, Any]] | None) -> Any:
    policies = {name: msgspec.convert(values, DDS_POLICIES[name][0]) for name, values in (said or {}).items()}
    return kind(**policies)


class Participant:
    """What can be asked of it; also used in the process of the tests."""

    def __init__(self, domain: str, folder: str | None = None) -> None:
        network: dict[str, Any] = {
            option: [endpoint]
            for option, variable in (("listen", LISTEN), ("connect", CONNECT))
            if (endpoint := os.environ.get(variable))
        }
        self.station = hg.Station(folder, domain=domain, transport=transport(), **network)
        self.factory = dcps.DomainParticipantFactory.get_instance()
        self.participant = self.factory.create_participant(0, station=self.station)
        self.reset("air.tracks")

    def reset(self, topic: str) -> None:
        """Begin anew, with another topic."""
        self.participant.delete_contained_entities()
        self.topic = self.participant.create_topic(topic, Track)
        self.ends: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}

    def writer(
        self,
        name: str,
        qos: dict[str, dict[str, Any]] | None = None,
        group: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        publisher = self.participant.create_publisher(qos_of(dcps.PublisherQos, group))
        self.groups[name] = publisher
        self.ends[name] = publisher.create_datawriter(self.topic, qos_of(dcps.DataWriterQos, qos))
        return self.ends[name].instance_handle

    def reader(
        self,
        name: str,
        qos: dict[str, dict[str, Any]] | None = None,
        group: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        subscriber = self.participant.create_subscriber(qos_of(dcps.SubscriberQos, group))
        self.groups[name] = subscriber
        self.ends[name] = subscriber.create_datareader(self.topic, qos_of(dcps.DataReaderQos, qos))
        return self.ends[name].instance_handle

    def handle(self, name: str) -> Any:
        return self.ends[name].instance_handle

    def wait_matched(self, name: str, number: int) -> bool:
        end = self.ends[name]
        kind = "publication_matched" if isinstance(end, dcps.DataWriter) else "subscription_matched"
        return wait_until(lambda: end.status.peek(kind).current_count == number)

    def write(self, name: str, *tracks: list[float], ts: int | None = None) -> int:
        for number, speed in tracks:
            self.ends[name].write(Track(int(number), speed), source_timestamp=ts)
        return len(tracks)

    def write_until_timeout(self, name: str, key: int, most: int) -> int:
        """How many it wrote before there was no room in time."""
        for n in range(most):
            try:
                self.ends[name].write(Track(key, float(n)))
            except WriteTimeout:
                return n
        return most

    def dispose(self, name: str, number: int) -> None:
        self.ends[name].dispose(Track(number))

    def unregister(self, name: str, number: int) -> None:
        self.ends[name].unregister_instance(Track(number))

    def status(self, name: str, kind: Any) -> Any:
        return msgspec.to_builtins(self.ends[name].status.read(kind), str_keys=True)

    def set_qos(self, name: str, qos: dict[str, dict[str, Any]]) -> None:
        self.ends[name].set_qos(qos_of(type(self.ends[name].get_qos()), qos))

    def set_group(self, name: str, group: dict[str, dict[str, Any]]) -> None:
        self.groups[name].set_qos(qos_of(type(self.groups[name].get_qos()), group))

    def delete(self, name: str) -> None:
        self.groups[name].delete_contained_entities()

    def begin(self, name: str) -> None:
        self.groups[name].begin_coherent_changes()

    def end(self, name: str) -> None:
        self.groups[name].end_coherent_changes()

    def part(self, name: str, number: int, part: str) -> None:
        _, parsed = change_of({CHANGE: part})
        self.ends[name].write_part(Track(number), "write", parsed, 1)

    def flush(self, name: str) -> bool:
        found: bool = self.ends[name].wait_for_acknowledgments(LIMIT)
        return found

    def topic_writer(self, name: str, like: str, topic: str) -> None:
        """Another writer of the publisher of one that is there, on another topic."""
        found = self.participant.lookup_topicdescription(topic) or self.participant.create_topic(topic, Track)
        qos = self.ends[like].get_qos()
        self.ends[name] = self.groups[like].create_datawriter(found, qos)

    def topic_reader(self, name: str, like: str, topic: str) -> None:
        """Another reader of the subscriber of one that is there, on another topic."""
        found = self.participant.lookup_topicdescription(topic) or self.participant.create_topic(topic, Track)
        qos = self.ends[like].get_qos()
        self.ends[name] = self.groups[like].create_datareader(found, qos)

    def close(self) -> None:
        self.participant.delete_contained_entities()
        self.factory.delete_participant(self.participant)
        self.station.close()


def main(domain: str, folder: str = "") -> None:
    participant = Participant(domain, folder or None)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        said = json.loads(line)
        answer = getattr(participant, said.pop("do"))(*said.pop("args", ()), **said)
        print(f"{number} {json.dumps(answer)}", flush=True)
    participant.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
