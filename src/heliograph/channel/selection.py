"""The options of a receiver (filter, priority, queue limits, start, ...), checked where they are given."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

import msgspec

from heliograph.channel.routing.conditions import AnyCondition, ReceiverCondition
from heliograph.errors import DecodeError, ExpressionError, FormatError, NotPossible, WrongEventType
from heliograph.model.event import Event, info_of
from heliograph.model.formats import MAX_NAME
from heliograph.qos.dispatch_order import uses
from heliograph.qos.endpoint import QueueOverflow
from heliograph.qos.endpoint import ReceiverOptions as ReceiverOptions  # noqa: PLC0414 - callers know it from here
from heliograph.qos.endpoint import Wanted as Wanted  # noqa: PLC0414 - callers know it from here
from heliograph.runtime.declared_options import Text, rows_of
from heliograph.runtime.option_names import insist_on_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from heliograph.configuration import Filters
    from heliograph.model.event import Header
    from heliograph.qos.dispatch_order import Order, OrderName
    from heliograph.qos.policies import QoS

Begin: TypeAlias = "Callable[[Any, int], int]"
"""Where a receiver begins in a partition of the history that was met when its watermark was the second
argument."""
Point: TypeAlias = "str | int | datetime | Mapping[str, int] | None"
"""A place in a channel's history: "earliest", "now" or "latest", an offset, an aware datetime, or an offset
for each partition."""


NOW: Final = ("now", "latest")
"""Names of the place behind all that is kept."""
_NAME: Final = Text(MAX_NAME, is_name=True)
QUEUE_OPTIONS: Final = (
    "group",
    "queue",
    "queue_bytes",
    "overflow",
    "separation",
    "dispatch",
    "sub_priority",
    "latency",
)
"""Those that only a receiver with a queue may have."""


class OffsetRange(msgspec.Struct, frozen=True):
    """The part of a history that a receiver wants."""

    start: Point = "now"
    """As it was asked for."""
    begins: dict[str, int] = {}
    """The first offset that it wants, per partition."""
    ends: dict[str, int] | None = None
    """The offset at which it ends, per partition, and it wants no other partition; None: it does not end."""
    later: Begin | None = None
    """Finds where it begins in partitions that are met later; None: it wants none of those."""


class Selection(msgspec.Struct, frozen=True):
    """What a receiver asked for, checked."""

    conditions: dict[type[Event], ReceiverCondition | AnyCondition]
    """Per event type that it wants, the condition; absent types are not wanted."""
    tree: Any = None
    """The condition as it was written, for event types that the channel will carry later."""
    sources: frozenset[str] | None = None
    all_types: bool = True
    """Whether it named no types, so that it wants those to come as well."""
    priority: int | None = None
    group: str | None = None
    queue: int | None = None
    queue_bytes: int | None = None
    overflow: QueueOverflow | None = None
    span: OffsetRange = OffsetRange()
    """Of a history, the part that it wants; without saying, what comes from now on."""
    dispatch: OrderName | Order | None = None
    sub_priority: int | None = None
    latency: float | None = None
    separation: float | None = None

    def wants_later(self, cls: type[Event]) -> bool:
        """Whether it wants a type that the channel carries from now on, or a version of one that it named."""
        return self.all_types or info_of(cls).name in {info_of(own).name for own in self.conditions}


def select(
    channel: str, carried: tuple[type[Event], ...], qos: QoS, **asked: Unpack[ReceiverOptions]
) -> Selection:
    """Check what a receiver asks for.

    Args:
        channel: its name, for errors.
        carried: the event classes that the channel carries.
        qos: of the channel.
        **asked: see `heliograph.qos.endpoint.ReceiverOptions`.
    """
    check_rows(channel, asked)
    where, params, types = asked.get("where"), asked.get("params"), asked.get("types")
    wanted = carried if types is None else classes_of(types)
    for cls in wanted:
        if cls not in carried:
            raise WrongEventType(channel, info_of(cls).name, tuple(info_of(c).name for c in carried))
    own: dict[str, Any] = {name: value for name, value in asked.items() if name not in Wanted.__annotations__}
    selection = Selection({}, all_types=types is None, **own)
    _check_overflow(channel, wanted, qos, selection)
    check_order(
        channel, qos, selection.dispatch, sub_priority=selection.sub_priority, latency=selection.latency
    )
    if selection.separation is not None:
        _check_separation(channel, qos, selection)
    if where is None and params:
        raise NotPossible(channel, "params= without where=: there is no filter to give values to")
    tree = None if where is None else parsed(where, params)
    only = _named(channel, asked.get("sources"))
    return msgspec.structs.replace(
        selection, conditions=conditions_for(wanted, tree, only), tree=tree, sources=only
    )


def check_rows(channel: str, asked: Mapping[str, Any]) -> None:
    """NotPossible for the first option whose value is not allowed, whatever the channel is."""
    rows = rows_of(ReceiverOptions)
    for name, value in asked.items():
        if value is not None and (allowed := rows[name].why_not(value)) is not None:
            raise NotPossible(channel, f"{name}={value!r:.60}: allowed is {allowed}")


def _named(channel: str, sources: Iterable[str] | None) -> frozenset[str] | None:
    """The names of suppliers, of which one may stand alone."""
    if sources is None:
        return None
    only = frozenset((sources,) if isinstance(sources, str) else sources)
    for source in only:
        check_name(channel, "sources", source)
    return only


def conditions_for(
    wanted: Iterable[type[Event]], tree: Any, sources: frozenset[str] | None
) -> dict[type[Event], ReceiverCondition | AnyCondition]:
    """The condition for each type that it fits; the first problem when it fits none."""
    if tree is None:
        return {cls: ReceiverCondition(None, sources) for cls in wanted}
    from heliograph.filters.check import check  # noqa: PLC0415 - loaded when a filter is used

    found: dict[type[Event], ReceiverCondition | AnyCondition] = {}
    problem: ExpressionError | None = None
    for cls in wanted:
        try:
            found[cls] = ReceiverCondition(check(tree, info_of(cls).format), sources)
        except ExpressionError as error:
            problem = problem or error
    if problem is not None and not found:
        raise problem
    return found


class InOwnClass:
    """The condition for another version of a class: asked of the event as that class would have it.

    So a field that the event lacks has its default. One that cannot be read so is asked as it is.
    """

    def __init__(
        self,
        own: type[Event],
        condition: ReceiverCondition | AnyCondition,
        as_it_is: ReceiverCondition | AnyCondition | None,
    ) -> None:
        self._own = own
        self._condition = condition
        self._as_it_is = as_it_is

    def holds(self, event: Event, header: Header) -> bool:
        from heliograph.codec.dynamic.classes import in_class_of  # noqa: PLC0415 - most events are of the class

        try:
            return self._condition.holds(in_class_of(event, (self._own,)), header)
        except (FormatError, DecodeError):
            return self._as_it_is is not None and self._as_it_is.holds(event, header)


def for_version(
    selection: Selection, cls: type[Event]
) -> ReceiverCondition | AnyCondition | InOwnClass | None:
    """The condition for another version of a class that was selected; None when none of its name was.

    A version that lacks what the filter reads does not meet it, unless the class has a default for that.
    """
    from heliograph.codec.dynamic.classes import is_made  # noqa: PLC0415 - as above

    name = info_of(cls).name
    own = next((own for own in tuple(selection.conditions) if info_of(own).name == name), None)
    if own is None:
        return None
    found: ReceiverCondition | AnyCondition | None = None
    with suppress(ExpressionError):
        found = conditions_for([cls], selection.tree, selection.sources)[cls]
    if selection.tree is None or is_made(own):
        return found
    return InOwnClass(own, selection.conditions[own], found)


def check_names(channel: str, types: Iterable[type[Event]]) -> None:
    """NotPossible when two classes of one channel have one name: an event of that name would be either.

    Classes that were made of formats are versions of one: each event is of its own.
    """
    seen: dict[str, type[Event]] = {}
    for cls in types:
        name = info_of(cls).name
        if seen.setdefault(name, cls) is not cls and not _are_versions(cls, seen[name]):
            raise NotPossible(
                channel,
                f"{cls.__qualname__} and {seen[name].__qualname__} are both called {name!r}: "
                "give one of them another name=, or use one class for both",
            )


def made_of(cls: type[Event], types: Iterable[type[Event]]) -> tuple[type[Event], ...]:
    """The classes of its name that were made of formats, that of its own first; none if that is not there."""
    from heliograph.codec.dynamic.classes import is_made  # noqa: PLC0415 - as below

    info = info_of(cls)
    if is_made(cls):
        return ()
    found = [one for one in types if info_of(one).name == info.name and is_made(one)]
    found.sort(key=lambda one: info_of(one).format.id != info.format.id)
    return tuple(found) if found and info_of(found[0]).format.id == info.format.id else ()


def _are_versions(one: type[Event], other: type[Event]) -> bool:
    from heliograph.codec.dynamic.classes import is_made  # noqa: PLC0415 - most channels have one class of a name

    return is_made(one) and is_made(other)


def classes_of(types: Any) -> tuple[type[Event], ...]:
    """The classes wanted; one alone need not stand in a list."""
    is_one = isinstance(types, type | str) or not hasattr(types, "__iter__")
    return (types,) if is_one else tuple(types)


def check_keyed(channel: str, types: Iterable[type[Event]], qos: QoS) -> None:
    """NotPossible where events go by their key, in a history or a queue, and a type of them has none."""
    rows = (("compaction", "key"), ("overflow", "coalesce"))
    by_key = [row for row in rows if getattr(qos, row[0]) == row[1]]
    for cls in types if by_key else ():
        if not info_of(cls).key:
            (policy, value), name = by_key[0], info_of(cls).name
            remedy = f"class {cls.__name__}(hg.Event, key=...)"
            raise NotPossible(channel, f"{policy}={value!r} and {name!r} has no key: {remedy}")


def check_coalescing(channel: str, receiver: str, types: Iterable[type[Event]]) -> None:
    """NotPossible for event types without a key, where a receiver keeps the latest event of each."""
    for cls in types:
        if not info_of(cls).key:
            raise NotPossible(
                channel,
                f"{receiver} has overflow='coalesce' and would get {info_of(cls).name!r}, which has no key: "
                f"class {cls.__name__}(hg.Event, key=...), or open it with types=",
            )


def check_filters(types: Iterable[type[Event]], filters: Filters) -> None:
    """InvalidConfiguration for a filter of the station's file that fits no event of the channel."""
    for side in ("suppliers", "consumers"):
        text = getattr(filters, side)
        if isinstance(text, str):
            try:
                conditions_for(types, parsed(text, None), None)
            except ExpressionError as error:
                raise filters.refused(side, error) from error


def check_name(channel: str, option: str, name: Any) -> None:
    """NotPossible for a name that cannot be kept, sent and read again; None is no name."""
    if name is not None and (allowed := _NAME.why_not(name)) is not None:
        raise NotPossible(channel, f"{option}={name!r:.60}: allowed is {allowed}")


def check_options(call: str, given: Iterable[str], *more: str, refused: str = "") -> None:
    """UnknownOption for an option that does not exist, with those that do.

    One that is refused is not offered, and passes: the call itself says why not.
    """
    known = dict.fromkeys((*ReceiverOptions.__annotations__, *more))
    offered = tuple(name for name in known if name != refused)
    insist_on_known(call, (name for name in given if name != refused), offered)


def _check_overflow(channel: str, wanted: tuple[type[Event], ...], qos: QoS, asked: Selection) -> None:
    overflow = asked.overflow
    if (overflow or qos.overflow) == "drop_soonest" and (asked.dispatch or qos.dispatch) != "deadline":
        raise NotPossible(channel, "overflow='drop_soonest' goes by deadlines: add dispatch='deadline'")
    if overflow is None:
        return
    if qos.journalled:
        raise NotPossible(
            channel, f"overflow={overflow!r}: on a persistent channel a full queue reads the journal"
        )
    if overflow == "coalesce" and not all(info_of(cls).key for cls in wanted):
        raise NotPossible(channel, "overflow='coalesce' needs event types with a key=")


def _check_separation(channel: str, qos: QoS, asked: Selection) -> None:
    if qos.journalled or qos.ack == "delivered":
        raise NotPossible(
            channel,
            "separation= leaves events out for good: have it on a channel that neither keeps them nor waits "
            "until they are acknowledged",
        )
    if asked.group is not None:
        raise NotPossible(
            channel, "separation= with group=: the members of a group share one stream; leave one out"
        )
    if (asked.overflow or qos.overflow_policy) == "coalesce":
        raise NotPossible(
            channel, "separation= with overflow='coalesce': both keep the latest; leave one out"
        )


def check_order(
    channel: str,
    qos: QoS,
    dispatch: OrderName | Order | None,
    *,
    sub_priority: int | None,
    latency: float | None,
) -> None:
    """NotPossible for a sub-priority or a latency that the dispatch order does not go by."""
    order = qos.dispatch if dispatch is None else dispatch
    if sub_priority is not None and not uses(order, "sub_priority"):
        raise NotPossible(channel, f"sub_priority= says nothing to {order!r}; add dispatch='ranked'")
    if latency is not None and not uses(order, "latency"):
        raise NotPossible(channel, f"latency= says nothing to {order!r}; add dispatch='deadline'")


def behind(filter_of_all: str, options: ReceiverOptions) -> ReceiverOptions:
    """What a receiver asks for, behind a filter that holds for all."""
    where, params = options.get("where"), options.get("params")
    trees = [parsed(filter_of_all, None)]
    if where is not None:
        trees.append(parsed(where, params))
    return {**options, "where": conjoined(trees), "params": None}


def conjoined(trees: Sequence[Any]) -> Any:
    """One filter that holds where all of these do."""
    from heliograph.filters.build import Built  # noqa: PLC0415 - loaded when a filter is used
    from heliograph.filters.tree import conjunction  # noqa: PLC0415 - likewise

    return Built(conjunction(tuple(tree.tree for tree in trees)) if trees[1:] else trees[0].tree)


def parsed(where: Any, params: Any) -> Any:
    """A filter from its text, or from what `hg.col` built."""
    from heliograph.filters import build, parser  # noqa: PLC0415 - loaded when a filter is used
    from heliograph.filters.params import bind  # noqa: PLC0415 - likewise

    if isinstance(where, str):
        return parser.parse(where, params)
    return bind(build.tree_of(where), params) if params else build.tree_of(where)
