"""The built-in topics (2.2.5): who takes part in a domain, read as other topics are.

reader = participant.get_builtin_subscriber().lookup_datareader("DCPSPublication")
for sample in reader.take(): sample.data.topic_name, sample.data.policies["user_data"].value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.channel.queueing.reader_cache import ANY, Arrival, CacheLimits, ReaderCache, SampleInfo
from heliograph.facades.dcps.discovery import decode_policies

if TYPE_CHECKING:
    from heliograph.facades.dcps.discovery import Announcement, Domain

NAMES: Final = {
    "participant": "DCPSParticipant",
    "topic": "DCPSTopic",
    "publication": "DCPSPublication",
    "subscription": "DCPSSubscription",
}


class BuiltinTopicData(msgspec.Struct, frozen=True):
    """A participant, topic, writer or reader of the domain."""

    key: str
    """Its instance handle."""
    participant_key: str
    topic_name: str
    type_name: str
    policies: dict[str, Any]
    """By name: `user_data`, `topic_data`, `group_data` and all others that it has."""


class BuiltinSample(msgspec.Struct, frozen=True):
    data: BuiltinTopicData
    info: SampleInfo


class BuiltinReader:
    """Reads one of the built-in topics."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._domain = domain
        self._cache = ReaderCache(CacheLimits(depth=1))

    def hear(self, announcement: Announcement) -> None:
        policies = decode_policies(announcement.policies) if announcement.policies else {}
        data = BuiltinTopicData(
            announcement.id, announcement.participant, announcement.topic, announcement.type_name, policies
        )
        change: Any = "write" if announcement.alive else "dispose"
        with self._domain.lock:
            now = self._domain.now()
            self._cache.accept(Arrival(change, data, (announcement.id,), announcement.station, now), now)
            self._domain.notify()

    def read(self) -> list[BuiltinSample]:
        return self._get(take=False)

    def take(self) -> list[BuiltinSample]:
        return self._get(take=True)

    def _get(self, *, take: bool) -> list[BuiltinSample]:
        with self._domain.lock:
            found = self._cache.select(ANY, take=take, now=self._domain.now())
        return [BuiltinSample(data, info) for data, info in found]


class BuiltinSubscriber:
    """The four readers."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._readers = {kind: BuiltinReader(domain, name) for kind, name in NAMES.items()}
        domain.on_announcement(self._hear)

    def lookup_datareader(self, name: str) -> BuiltinReader | None:
        return next((reader for reader in self._readers.values() if reader.name == name), None)

    def _hear(self, announcement: Announcement) -> None:
        reader = self._readers.get(announcement.kind)
        if reader is not None:
            reader.hear(announcement)

    def close(self) -> None:
        self._domain.forget_hearer(self._hear)
