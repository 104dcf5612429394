"""QoS profiles: named policies of all kinds of entities, in a TOML file, that build on each other.

    [base.writer]
    reliability = { kind = "reliable", max_blocking = 1.0 }

    [sensor]
    extends = ["base"]

    [sensor.reader]
    history = { kind = "keep-last", depth = 10 }

    profiles = dcps.load_profiles("qos.toml")
    subscriber.create_datareader(topic, profiles["sensor"].reader)

What a profile does not say is as in those that it extends, the last of which wins, and else the default.
None, for infinite and unlimited, is written "infinite".
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, Never

import msgspec

from heliograph.configuration import text_of
from heliograph.errors import HeliographError, InvalidConfiguration
from heliograph.qos.dds_policies import (
    DDS_POLICIES,
    ENTITY_QOS,
    DataReaderQos,
    DataWriterQos,
    DomainParticipantQos,
    PublisherQos,
    SubscriberQos,
    TopicQos,
    inconsistency,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

INFINITE: Final = "infinite"
BY_KIND: Final[dict[str, Any]] = {str(kind): qos for kind, qos in ENTITY_QOS.items() if kind != "factory"}
KINDS: Final = tuple(BY_KIND)


class QosProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of each kind of entity."""

    participant: DomainParticipantQos = DomainParticipantQos()
    topic: TopicQos = TopicQos()
    publisher: PublisherQos = PublisherQos()
    subscriber: SubscriberQos = SubscriberQos()
    writer: DataWriterQos = DataWriterQos()
    reader: DataReaderQos = DataReaderQos()


def load_profiles(path: str | os.PathLike[str]) -> dict[str, QosProfile]:
    """The profiles of a file by name; InvalidConfiguration names the line of the first mistake."""
    return _Profiles(str(path), text_of(path)).all()


class _Profiles:
    """The profiles of one file."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        try:
            self._tables: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"line (\d+)", str(error))
            raise InvalidConfiguration(name, int(found[1]) if found else 1, str(error)) from error

    def all(self) -> dict[str, QosProfile]:
        return {name: self._profile(name) for name in self._tables}

    def _profile(self, name: str) -> QosProfile:
        policies = self._policies(name, ())
        found: dict[str, Any] = {}
        for kind, said in policies.items():
            given = {policy: self._policy(name, kind, policy, values) for policy, values in said.items()}
            qos = BY_KIND[kind](**given)
            broken = inconsistency(qos)
            if broken is not None:
                self._refuse(
                    f"{name}.{kind}", broken.policy, f"contradicts others: allowed is {broken.allowed}"
                )
            found[kind] = qos
        return QosProfile(**found)

    def _policies(self, name: str, inside: tuple[str, ...]) -> dict[str, dict[str, dict[str, Any]]]:
        """What a profile and those that it extends say, by kind, policy and field."""
        if name in inside:
            self._refuse(name, "extends", f"goes in a circle: {' -> '.join((*inside, name))}")
        table = self._table(name, "", self._tables.get(name))
        combined: dict[str, dict[str, dict[str, Any]]] = {}
        parents = table.get("extends", [])
        if not isinstance(parents, list) or not all(one in self._tables for one in parents):
            self._refuse(name, "extends", f"a list of profiles of this file: {', '.join(self._tables)}")
        parts = [self._policies(parent, (*inside, name)) for parent in parents]
        own = {kind: said for kind, said in table.items() if kind != "extends"}
        for part in (*parts, own):
            for kind, said in part.items():
                if kind not in KINDS:
                    self._refuse(name, kind, f"is none of extends, {', '.join(KINDS)}")
                for policy, values in self._table(f"{name}.{kind}", "", said).items():
                    known = self._table(f"{name}.{kind}", policy, values)
                    combined.setdefault(kind, {}).setdefault(policy, {}).update(known)
        return combined

    def _policy(self, name: str, kind: str, policy: str, values: Mapping[str, Any]) -> Any:
        fields = BY_KIND[kind].__struct_fields__
        if policy not in fields:
            self._refuse(f"{name}.{kind}", policy, f"is none of {', '.join(fields)}")
        policy_class = DDS_POLICIES[policy][0]
        is_data = policy in ("user_data", "topic_data", "group_data")
        given = {field: _value(value, is_data=is_data) for field, value in values.items()}
        try:
            return policy_class(**given)
        except HeliographError as error:
            self._refuse(f"{name}.{kind}", policy, str(error))

    def _table(self, section: str, key: str, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        return self._refuse(section, key, 'is a table, such as { kind = "reliable" }')

    def _refuse(self, section: str, key: str, problem: str) -> Never:
        raise InvalidConfiguration(self._name, self._line(section, key), f"{section} {key} {problem}".strip())

    def _line(self, section: str, key: str) -> int:
        """Where a key of a section stands, or the section; 1 when it was written in another way."""
        lines = self._text.splitlines()
        begin = next((n for n, line in enumerate(lines) if line.strip() == f"[{section}]"), None)
        if begin is None:
            return 1
        for number in range(begin + 1, len(lines)):
            if lines[number].lstrip().startswith("["):
                break
            if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
                return number + 1
        return begin + 1


def _value(value: Any, *, is_data: bool) -> Any:
    """As policies have it: no list, "infinite" is None, and text is bytes where a policy wants them."""
    if is_data and isinstance(value, str):
        return value.encode()
    if value == INFINITE:
        return None
    return tuple(value) if isinstance(value, list) else value
