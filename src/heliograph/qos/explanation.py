"""Why a writer and a reader go together or do not, policy by policy, and the least that would change it.

    print(hg.explain(writer, reader))

    writer and reader do not match
      durability (2.2.3.4)   offered volatile, requested transient-local
                             what is offered has to be at least what is requested
    it would match
      with the writer's durability.kind='transient-local' (set when it is created)
      or with the reader's durability.kind='volatile' (set when it is created)

Each policy that keeps the two apart has to change on one side or the other, so the smallest change is one for
each; on the side that changes, the value is the nearest one that is enough. Two sides may also never meet
though their policies agree: other domains, topics (with a probable mistake in a name), types (with the
field), partitions, or a filter that nothing meets. `hg.explain` takes writers and readers of
`heliograph.facades.dcps`, the QoS of both, or the `hg.QoS` of two channels.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from heliograph.errors import NotPossible
from heliograph.qos import matching
from heliograph.qos.dds_policies import DDS_POLICIES
from heliograph.qos.policies import QoS, policies
from heliograph.qos.request_offered import MATCHED, SENTENCES, incompatible, policies_of, share_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Side: TypeAlias = Literal["writer", "reader"]

_NUMBER: Final = re.compile(r"[0-9]+")
PROBABLY_MEANT: Final = 0.8
"""How alike two names are, of 1, when one is probably a mistake in writing the other."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A writer or reader, as far as matching looks at it."""

    policies: Mapping[str, Any]
    """By name: of the writer and its publisher, or of the reader and its subscriber."""
    domain: int = 0
    topic: str = ""
    type_name: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """The type's fields and their types, in order; empty where nobody knows."""
    name: str = ""
    """How sentences call it."""
    never: str = ""
    """Of a reader with a filter: why that is never true, where it is known."""


@runtime_checkable
class HasEndpoint(Protocol):
    @property
    def endpoint(self) -> Endpoint: ...


class PolicyMatch(msgspec.Struct, frozen=True):
    """What one policy says to the match."""

    policy: str
    offered: Any
    requested: Any
    rule: str
    """In words."""
    section: str
    """Of the standard; "" for policies of a channel."""
    fits: bool


class Change(msgspec.Struct, frozen=True):
    """One value that one side would have to have."""

    side: Side
    policy: str
    field: str
    value: Any
    changeable: bool
    """Whether it can be set while the entity is enabled."""

    def __str__(self) -> str:
        what = f"{self.policy}.{self.field}" if self.field else self.policy
        when = "set_qos" if self.changeable else "set when it is created"
        return f"the {self.side}'s {what}={self.value!r} ({when})"


class Explanation(msgspec.Struct, frozen=True):
    """See the module. True when the two match."""

    policies: tuple[PolicyMatch, ...]
    """Every policy that has a rule, in the order of the standard."""
    apart: tuple[str, ...]
    """Why they never meet, whatever their policies say."""
    on_writer: tuple[Change, ...]
    """What the writer would have to change for all policies to fit, if the reader changes nothing."""
    on_reader: tuple[Change, ...]
    """What the reader would have to change for all policies to fit, if the writer changes nothing."""

    @property
    def matches(self) -> bool:
        return not self.apart and not self.mismatches

    @property
    def mismatches(self) -> tuple[PolicyMatch, ...]:
        return tuple(one for one in self.policies if not one.fits)

    def __bool__(self) -> bool:
        return self.matches

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.matches:
            yield f"writer and reader match: {len(self.policies)} policies fit"
            return
        yield "writer and reader do not match"
        for reason in self.apart:
            yield f"  {reason}"
        for one in self.mismatches:
            section = f" (DDS {one.section})" if one.section else ""
            yield f"  {one.policy}{section}: offered {_said(one.offered)}, requested {_said(one.requested)}"
            yield f"      {one.rule}"
        if self.on_writer:
            yield "the policies would fit"
            yield "  with " + "\n   and ".join(map(str, self.on_writer))
            yield "  or with " + "\n   and ".join(map(str, self.on_reader))


def explain(writer: Any, reader: Any) -> Explanation:
    """Whether a writer and a reader go together, and what would help; see `heliograph.qos.explanation`.

    Args:
        writer: a DataWriter, its DataWriterQos, or the hg.QoS that a channel offers.
        reader: a DataReader, its DataReaderQos, or the hg.QoS that is requested.
    """
    if isinstance(writer, QoS) and isinstance(reader, QoS):
        return _explain_channels(writer, reader)
    return explain_endpoints(_endpoint("writer", writer), _endpoint("reader", reader))


def _endpoint(side: Side, given: Any) -> Endpoint:
    if isinstance(given, Endpoint):
        return given
    if isinstance(given, HasEndpoint):
        return given.endpoint
    if isinstance(given, msgspec.Struct) and set(given.__struct_fields__) <= set(DDS_POLICIES):
        return Endpoint(policies=policies_of(given))
    kind = "DataWriter" if side == "writer" else "DataReader"
    raise NotPossible(
        "explain", f"{side}: a {kind}, a {kind}Qos, or a hg.QoS on both sides, not {type(given).__name__}"
    )


def explain_endpoints(writer: Endpoint, reader: Endpoint) -> Explanation:
    """The same, of what is known of both."""
    offered, requested = writer.policies, reader.policies
    found = incompatible(offered, requested)
    failing = {one.policy for one in found}
    rows = tuple(
        PolicyMatch(
            policy,
            offered[policy],
            requested[policy],
            "; ".join(f"{field}: {SENTENCES[rule]}" for field, rule in rules.items()),
            DDS_POLICIES[policy][1].section,
            policy not in failing,
        )
        for policy, rules in MATCHED.items()
        if policy in offered and policy in requested
    )
    changes = [
        (
            Change("writer", one.policy, one.field, one.requested, DDS_POLICIES[one.policy][1].changeable),
            Change("reader", one.policy, one.field, one.offered, DDS_POLICIES[one.policy][1].changeable),
        )
        for one in found
    ]
    return Explanation(
        rows,
        tuple(_why_apart(writer, reader)),
        tuple(ours for ours, _ in changes),
        tuple(theirs for _, theirs in changes),
    )


def _why_apart(writer: Endpoint, reader: Endpoint) -> Iterator[str]:
    if writer.domain != reader.domain:
        yield f"the writer is in domain {writer.domain}, the reader in domain {reader.domain}"
    if writer.topic != reader.topic:
        yield _other_topics(writer.topic, reader.topic)
    elif writer.type_name != reader.type_name:
        types = f"the writer's type is {writer.type_name}, the reader's {reader.type_name}"
        yield f"topic {writer.topic}: {types}"
    elif writer.fields and reader.fields:
        yield from _other_fields(writer, reader)
    if reader.never:
        yield f"the reader's filter lets nothing pass: {reader.never}"
    ours, theirs = (end.policies.get("partition") for end in (writer, reader))
    if ours is not None and theirs is not None and not share_partition(ours.names, theirs.names):
        yield (
            f"no partition in common: the publisher has {_partitions(ours.names)}, "
            f"the subscriber {_partitions(theirs.names)}"
        )


def _other_topics(writer: str, reader: str) -> str:
    reason = f"the writer's topic is {writer!r}, the reader's {reader!r}"
    return f"{reason}: probably a mistake in one of the names" if is_alike(writer, reader) else reason


def is_alike(one: str, other: str) -> bool:
    """Whether one of two names is probably a mistake in writing the other; numbered names are none."""
    if _NUMBER.sub("", one) == _NUMBER.sub("", other):
        return False
    return SequenceMatcher(None, one, other).ratio() >= PROBABLY_MEANT


def _other_fields(writer: Endpoint, reader: Endpoint) -> Iterator[str]:
    sent = dict(writer.fields)
    for name, kind in reader.fields:
        if name in sent and sent[name] != kind:
            yield f"type {reader.type_name}: field {name} is {sent[name]} at the writer, {kind} at the reader"


def _partitions(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "the one without a name"


def _said(policy: Any) -> str:
    if not isinstance(policy, msgspec.Struct):
        return repr(policy)
    values = [
        getattr(policy, field) for field in policy.__struct_fields__ if field in MATCHED[_name_of(policy)]
    ]
    return " ".join("infinite" if value is None else str(value) for value in values)


def _name_of(policy: msgspec.Struct) -> str:
    return next(name for name, (kind, _) in DDS_POLICIES.items() if type(policy) is kind)


def _explain_channels(offered: QoS, requested: QoS) -> Explanation:
    failing = {one.policy for one in matching.mismatches(offered, requested)}
    names = [name for name, policy in policies().items() if policy.rule is not None]
    rows = tuple(
        PolicyMatch(
            name,
            getattr(offered, name),
            getattr(requested, name),
            SENTENCES["at least"],
            "",
            name not in failing,
        )
        for name in names
    )
    apart = [one for one in rows if not one.fits]
    return Explanation(
        rows,
        (),
        tuple(Change("writer", one.policy, "", one.requested, changeable=False) for one in apart),
        tuple(Change("reader", one.policy, "", one.offered, changeable=False) for one in apart),
    )
