"""The 22 policies of DDS 1.4 (OMG formal/2015-04-10, 2.2.3), declared once.

    DataWriterQos(reliability=Reliability("reliable"), deadline=Deadline(0.5))

A policy is a class whose fields are rows (`heliograph.runtime.declared_options`): name, type, default,
allowed values and a line of documentation, and beside it `Matches`, the rule by which the field of an offer
meets that of a request. `DDS_POLICIES` says of each policy where the standard has it, to which entities it
applies and whether it can change once the entity is enabled. `CONSISTENCY` are the policies of one entity
that have to go together. The order is that of the standard.

None is the standard's INFINITE for times and LENGTH_UNLIMITED for counts. Words are those of `hg.QoS`, in
order, weakest first.

Whether an offer meets a request is in `heliograph.qos.request_offered`, why not and what would help in
`heliograph.qos.explanation`. The entities that have these policies are in `heliograph.facades.dcps`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from heliograph.errors import InvalidQoS
from heliograph.runtime.declared_options import Object, Option, beside, refusals, rows_of, seconds, whole
from heliograph.runtime.option_names import NamesOptions

DurabilityKind: TypeAlias = Literal["volatile", "transient-local", "transient", "persistent"]
ReliabilityKind: TypeAlias = Literal["best-effort", "reliable"]
Scope: TypeAlias = Literal["instance", "topic", "group"]
OwnershipKind: TypeAlias = Literal["shared", "exclusive"]
LivelinessKind: TypeAlias = Literal["automatic", "manual-by-participant", "manual-by-topic"]
DestinationOrderKind: TypeAlias = Literal["by-reception-timestamp", "by-source-timestamp"]
HistoryKind: TypeAlias = Literal["keep-last", "keep-all"]
EntityKind: TypeAlias = Literal[
    "factory", "participant", "topic", "publisher", "subscriber", "writer", "reader"
]
MatchRule: TypeAlias = Literal["at least", "at most", "equal", "if requested"]

MOST: Final = (1 << 31) - 1
MOST_DATA: Final = 65_536
"""Bytes of user, topic or group data: it travels with every announcement of its entity."""
MOST_PARTITIONS: Final = 64
LONGEST_PARTITION: Final = 255
LONGEST: Final = 1e9
"""Seconds."""


class Matches(msgspec.Struct, frozen=True):
    """How the field of an offer meets that of a request: the offered one is `rule` the requested one.

    Words are compared by their order, weakest first, times with None for infinite. `if requested`: what a
    reader asks for has to be offered, what it does not ask for may be.
    """

    rule: MatchRule


class DdsPolicy(msgspec.Struct, frozen=True):
    """What the standard says of a policy as a whole."""

    section: str
    """Of the standard."""
    number: int
    """Its QosPolicyId."""
    applies: tuple[EntityKind, ...]
    changeable: bool
    """Whether it can change when the entity is enabled."""


_NAMES: Final = (
    f"a tuple of at most {MOST_PARTITIONS} names of at most {LONGEST_PARTITION} printable characters"
)


def _no_bytes(value: Any) -> str | None:
    fits = type(value) is bytes and len(value) <= MOST_DATA
    return None if fits else f"bytes, at most {MOST_DATA:,}"


def _no_partitions(value: Any) -> str | None:
    fits = type(value) is tuple and len(value) <= MOST_PARTITIONS
    fits = fits and all(
        type(name) is str and len(name) <= LONGEST_PARTITION and (name.isprintable() or not name)
        for name in value
    )
    return None if fits else _NAMES


_DATA: Final = Object(f"bytes, at most {MOST_DATA:,}", _no_bytes)
_COUNT: Final = whole(1, MOST)
_TIME: Final = seconds(0, LONGEST)
_POSITIVE: Final = seconds(0, LONGEST, above=True)


class _Checked(msgspec.Struct, frozen=True, metaclass=NamesOptions):
    """A policy: refused where it is made when a value is not allowed."""

    def __post_init__(self) -> None:
        for name, allowed in refusals(self, rows_of(type(self))):
            raise InvalidQoS(f"{type(self).__name__}.{name}", getattr(self, name), allowed)


class UserData(_Checked, frozen=True):
    value: Annotated[bytes, Option("what others read of this entity in the built-in topics", _DATA)] = b""


class TopicData(_Checked, frozen=True):
    value: Annotated[bytes, Option("what others read of this topic in the built-in topics", _DATA)] = b""


class GroupData(_Checked, frozen=True):
    value: Annotated[
        bytes, Option("what others read of this publisher or subscriber in the built-in topics", _DATA)
    ] = b""


class Durability(_Checked, frozen=True):
    kind: Annotated[
        DurabilityKind, Option("which samples a late joiner gets, and what they outlive"), Matches("at least")
    ] = "volatile"


class DurabilityService(_Checked, frozen=True):
    cleanup_delay: Annotated[
        float | None,
        Option("until the store forgets an instance without writers; None: it never does", _TIME),
    ] = 0.0
    history: Annotated[HistoryKind, Option("what the store keeps of an instance")] = "keep-last"
    depth: Annotated[int, Option("samples of an instance, with `keep-last`", _COUNT)] = 1
    max_samples: Annotated[int | None, Option("in the store", _COUNT)] = None
    max_instances: Annotated[int | None, Option("in the store", _COUNT)] = None
    max_samples_per_instance: Annotated[int | None, Option("in the store", _COUNT)] = None


class Presentation(_Checked, frozen=True):
    scope: Annotated[
        Scope,
        Option("how far order and coherence reach: one instance, one writer, all of a publisher"),
        Matches("at least"),
    ] = "instance"
    coherent: Annotated[
        bool, Option("whether sets of changes become visible as a whole"), Matches("if requested")
    ] = False
    ordered: Annotated[
        bool,
        Option("whether samples are seen in the order of their writing within the scope"),
        Matches("if requested"),
    ] = False


class Deadline(_Checked, frozen=True):
    period: Annotated[
        float | None,
        Option("within which each instance gets a new sample; None: whenever", _POSITIVE),
        Matches("at most"),
    ] = None


class LatencyBudget(_Checked, frozen=True):
    duration: Annotated[
        float | None,
        Option("that a sample may wait to be sent with others; 0: none waits", _TIME),
        Matches("at most"),
    ] = 0.0


class Ownership(_Checked, frozen=True):
    kind: Annotated[
        OwnershipKind,
        Option("whether readers see all writers of an instance, or the strongest one that is alive"),
        Matches("equal"),
    ] = "shared"


class OwnershipStrength(_Checked, frozen=True):
    value: Annotated[
        int,
        Option("of a writer, against others of an instance with exclusive ownership", whole(-MOST - 1, MOST)),
    ] = 0


class Liveliness(_Checked, frozen=True):
    kind: Annotated[
        LivelinessKind,
        Option("what says that a writer is alive: its process, its participant, or itself"),
        Matches("at least"),
    ] = "automatic"
    lease: Annotated[
        float | None,
        Option("after which a writer that was not heard of is not alive; None: never", _POSITIVE),
        Matches("at most"),
    ] = None


class TimeBasedFilter(_Checked, frozen=True):
    separation: Annotated[float, Option("between two samples of an instance at least", _TIME)] = 0.0


class Partition(_Checked, frozen=True):
    names: Annotated[
        tuple[str, ...],
        Option(
            "names and patterns (*, ?) of which two sides have to share one; () is the one without a name",
            Object(_NAMES, _no_partitions),
        ),
    ] = ()


class Reliability(_Checked, frozen=True):
    kind: Annotated[
        ReliabilityKind,
        Option("whether every sample reaches every reader, or may be dropped"),
        Matches("at least"),
    ] = "best-effort"
    max_blocking: Annotated[float, Option("that `write` waits for room before it raises Timeout", _TIME)] = (
        0.1
    )


class TransportPriority(_Checked, frozen=True):
    value: Annotated[
        int,
        Option(
            "of a writer's samples on their way; 0 is priority 3, below it are 1 and 2, above it 4 and 5",
            whole(-MOST - 1, MOST),
        ),
    ] = 0


class Lifespan(_Checked, frozen=True):
    duration: Annotated[
        float | None, Option("after which a sample is not delivered; None: it never expires", _POSITIVE)
    ] = None


class DestinationOrder(_Checked, frozen=True):
    kind: Annotated[
        DestinationOrderKind,
        Option("which of two samples of an instance is the later one"),
        Matches("at least"),
    ] = "by-reception-timestamp"


class History(_Checked, frozen=True):
    kind: Annotated[HistoryKind, Option("whether older samples of an instance make room for newer ones")] = (
        "keep-last"
    )
    depth: Annotated[int, Option("samples of an instance, with `keep-last`", _COUNT)] = 1


class ResourceLimits(_Checked, frozen=True):
    max_samples: Annotated[int | None, Option("of all instances", _COUNT)] = None
    max_instances: Annotated[int | None, Option("with samples or writers", _COUNT)] = None
    max_samples_per_instance: Annotated[int | None, Option("of one instance", _COUNT)] = None


class EntityFactory(_Checked, frozen=True):
    autoenable: Annotated[bool, Option("whether entities are enabled when they are created")] = True


class WriterDataLifecycle(_Checked, frozen=True):
    autodispose: Annotated[bool, Option("whether what a writer unregisters is disposed of as well")] = True


class ReaderDataLifecycle(_Checked, frozen=True):
    autopurge_nowriter: Annotated[
        float | None, Option("until a reader forgets an instance without writers; None: never", _TIME)
    ] = None
    autopurge_disposed: Annotated[
        float | None, Option("until a reader forgets an instance that was disposed of; None: never", _TIME)
    ] = None


_TRW: Final[tuple[EntityKind, ...]] = ("topic", "reader", "writer")
_GROUPS: Final[tuple[EntityKind, ...]] = ("publisher", "subscriber")

DDS_POLICIES: Final[dict[str, tuple[type[_Checked], DdsPolicy]]] = {
    "user_data": (UserData, DdsPolicy("2.2.3.1", 1, ("participant", "reader", "writer"), changeable=True)),
    "topic_data": (TopicData, DdsPolicy("2.2.3.2", 18, ("topic",), changeable=True)),
    "group_data": (GroupData, DdsPolicy("2.2.3.3", 19, _GROUPS, changeable=True)),
    "durability": (Durability, DdsPolicy("2.2.3.4", 2, _TRW, changeable=False)),
    "durability_service": (
        DurabilityService,
        DdsPolicy("2.2.3.5", 22, ("topic", "writer"), changeable=False),
    ),
    "presentation": (Presentation, DdsPolicy("2.2.3.6", 3, _GROUPS, changeable=False)),
    "deadline": (Deadline, DdsPolicy("2.2.3.7", 4, _TRW, changeable=True)),
    "latency_budget": (LatencyBudget, DdsPolicy("2.2.3.8", 5, _TRW, changeable=True)),
    "ownership": (Ownership, DdsPolicy("2.2.3.9", 6, _TRW, changeable=False)),
    "ownership_strength": (OwnershipStrength, DdsPolicy("2.2.3.10", 7, ("writer",), changeable=True)),
    "liveliness": (Liveliness, DdsPolicy("2.2.3.11", 8, _TRW, changeable=False)),
    "time_based_filter": (TimeBasedFilter, DdsPolicy("2.2.3.12", 9, ("reader",), changeable=True)),
    "partition": (Partition, DdsPolicy("2.2.3.13", 10, _GROUPS, changeable=True)),
    "reliability": (Reliability, DdsPolicy("2.2.3.14", 11, _TRW, changeable=False)),
    "transport_priority": (
        TransportPriority,
        DdsPolicy("2.2.3.15", 20, ("topic", "writer"), changeable=True),
    ),
    "lifespan": (Lifespan, DdsPolicy("2.2.3.16", 21, ("topic", "writer"), changeable=True)),
    "destination_order": (DestinationOrder, DdsPolicy("2.2.3.17", 12, _TRW, changeable=False)),
    "history": (History, DdsPolicy("2.2.3.18", 13, _TRW, changeable=False)),
    "resource_limits": (ResourceLimits, DdsPolicy("2.2.3.19", 14, _TRW, changeable=False)),
    "entity_factory": (
        EntityFactory,
        DdsPolicy("2.2.3.20", 15, ("factory", "participant", *_GROUPS), changeable=True),
    ),
    "writer_data_lifecycle": (WriterDataLifecycle, DdsPolicy("2.2.3.21", 16, ("writer",), changeable=True)),
    "reader_data_lifecycle": (ReaderDataLifecycle, DdsPolicy("2.2.3.22", 17, ("reader",), changeable=True)),
}
"""Each policy by the name of the field that holds it, in the order of the standard."""

POLICY_NAMES: Final = {row.number: name for name, (_, row) in DDS_POLICIES.items()}
"""By QosPolicyId."""


def match_rules(policy: type[msgspec.Struct]) -> dict[str, MatchRule]:
    """The rule of each field that has one: a policy with rules is the standard's RxO = Yes."""
    return {name: found.rule for name, found in beside(policy, Matches).items()}


class Consistency(msgspec.Struct, frozen=True):
    """Policies of one entity that have to go together."""

    policy: str
    """The one that is refused."""
    needs: tuple[str, ...]
    """The policies that it is about; the rule holds for entities that have all of them."""
    section: str
    broken: Any
    """Whether the policies, given as the object that holds them, break the rule."""
    allowed: str


def _exceeds(count: int | None, limit: int | None) -> bool:
    """Whether a count is above a limit, None being without end."""
    return limit is not None and (count is None or count > limit)


CONSISTENCY: Final = (
    Consistency(
        "history",
        ("history", "resource_limits"),
        "2.2.3.18",
        lambda qos: (
            qos.history.kind == "keep-last"
            and _exceeds(qos.history.depth, qos.resource_limits.max_samples_per_instance)
        ),
        "a depth of at most resource_limits.max_samples_per_instance",
    ),
    Consistency(
        "resource_limits",
        ("resource_limits",),
        "2.2.3.19",
        lambda qos: (
            qos.resource_limits.max_samples_per_instance is not None
            and _exceeds(qos.resource_limits.max_samples_per_instance, qos.resource_limits.max_samples)
        ),
        "max_samples of at least max_samples_per_instance",
    ),
    Consistency(
        "deadline",
        ("deadline", "time_based_filter"),
        "2.2.3.7",
        lambda qos: (
            qos.deadline.period is not None and qos.deadline.period < qos.time_based_filter.separation
        ),
        "a period of at least time_based_filter.separation",
    ),
    Consistency(
        "durability_service",
        ("durability_service",),
        "2.2.3.5",
        lambda qos: (
            qos.durability_service.max_samples_per_instance is not None
            and (
                _exceeds(qos.durability_service.max_samples_per_instance, qos.durability_service.max_samples)
                or (
                    qos.durability_service.history == "keep-last"
                    and qos.durability_service.depth > qos.durability_service.max_samples_per_instance
                )
            )
        ),
        "depth <= max_samples_per_instance <= max_samples",
    ),
)


def inconsistency(qos: Any) -> Consistency | None:
    """The first rule that the policies of an entity break; None when they go together."""
    fields = set(qos.__struct_fields__)
    return next((rule for rule in CONSISTENCY if fields.issuperset(rule.needs) and rule.broken(qos)), None)


class _EntityQos(msgspec.Struct, frozen=True, kw_only=True, metaclass=NamesOptions):
    """The policies of one kind of entity. Whether they go together is asked by who sets them."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            kind = DDS_POLICIES[name][0]
            if not isinstance(getattr(self, name), kind):
                raise InvalidQoS(name, getattr(self, name), f"{kind.__name__}(...)")


class DomainParticipantFactoryQos(_EntityQos, frozen=True, kw_only=True):
    entity_factory: EntityFactory = EntityFactory()


class DomainParticipantQos(_EntityQos, frozen=True, kw_only=True):
    user_data: UserData = UserData()
    entity_factory: EntityFactory = EntityFactory()


class TopicQos(_EntityQos, frozen=True, kw_only=True):
    topic_data: TopicData = TopicData()
    durability: Durability = Durability()
    durability_service: DurabilityService = DurabilityService()
    deadline: Deadline = Deadline()
    latency_budget: LatencyBudget = LatencyBudget()
    ownership: Ownership = Ownership()
    liveliness: Liveliness = Liveliness()
    reliability: Reliability = Reliability()
    transport_priority: TransportPriority = TransportPriority()
    lifespan: Lifespan = Lifespan()
    destination_order: DestinationOrder = DestinationOrder()
    history: History = History()
    resource_limits: ResourceLimits = ResourceLimits()


class PublisherQos(_EntityQos, frozen=True, kw_only=True):
    group_data: GroupData = GroupData()
    presentation: Presentation = Presentation()
    partition: Partition = Partition()
    entity_factory: EntityFactory = EntityFactory()


class SubscriberQos(_EntityQos, frozen=True, kw_only=True):
    group_data: GroupData = GroupData()
    presentation: Presentation = Presentation()
    partition: Partition = Partition()
    entity_factory: EntityFactory = EntityFactory()


class DataWriterQos(_EntityQos, frozen=True, kw_only=True):
    user_data: UserData = UserData()
    durability: Durability = Durability()
    durability_service: DurabilityService = DurabilityService()
    deadline: Deadline = Deadline()
    latency_budget: LatencyBudget = LatencyBudget()
    ownership: Ownership = Ownership()
    ownership_strength: OwnershipStrength = OwnershipStrength()
    liveliness: Liveliness = Liveliness()
    reliability: Reliability = Reliability("reliable")
    transport_priority: TransportPriority = TransportPriority()
    lifespan: Lifespan = Lifespan()
    destination_order: DestinationOrder = DestinationOrder()
    history: History = History()
    resource_limits: ResourceLimits = ResourceLimits()
    writer_data_lifecycle: WriterDataLifecycle = WriterDataLifecycle()


class DataReaderQos(_EntityQos, frozen=True, kw_only=True):
    user_data: UserData = UserData()
    durability: Durability = Durability()
    deadline: Deadline = Deadline()
    latency_budget: LatencyBudget = LatencyBudget()
    ownership: Ownership = Ownership()
    liveliness: Liveliness = Liveliness()
    time_based_filter: TimeBasedFilter = TimeBasedFilter()
    reliability: Reliability = Reliability()
    destination_order: DestinationOrder = DestinationOrder()
    history: History = History()
    resource_limits: ResourceLimits = ResourceLimits()
    reader_data_lifecycle: ReaderDataLifecycle = ReaderDataLifecycle()


ENTITY_QOS: Final[dict[EntityKind, type[_EntityQos]]] = {
    "factory": DomainParticipantFactoryQos,
    "participant": DomainParticipantQos,
    "topic": TopicQos,
    "publisher": PublisherQos,
    "subscriber": SubscriberQos,
    "writer": DataWriterQos,
    "reader": DataReaderQos,
}
