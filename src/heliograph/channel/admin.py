"""Supplier and consumer admins: filters that many suppliers or receivers share (TAO's four filter points).

    radars = channel.for_suppliers(where="quality > 3")
    radar = radars.supplier("radar-1", types=[Track], where="speed > 0")

    displays = channel.for_consumers(where="region = 'north'")
    displays.subscribe(show, where="speed > 300")

An event passes four points, as in the CORBA Notification Service: the supplier's own filter, that of the
admin it was opened with, that of the admin of a consumer, and the consumer's own. Each takes what any filter
takes: types, text or `hg.col`, parameters, bit masks, negation; those of consumers also sources and the
header, which an event does not have before it is let in.

What the first two stop is not pushed: it gets no sequence, nobody evaluates anything for it, and
`supplier.filtered` counts it. The other two are one condition in the routes, so two points cost as much as
one. `change` gives an admin another filter, for all that were opened with it, from their next event on.

`types` of a supplier is a publication: it says what this supplier pushes, and anything else is refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, TypedDict, TypeVar, Unpack, overload

from heliograph.channel.publish.host import OF_SUPPLIER, OF_SUPPLIER_ADMIN
from heliograph.channel.publish.supplier import Receipt, Supplier
from heliograph.channel.receive.subscription_factory import DECORATES, decorator
from heliograph.channel.selection import Wanted, classes_of, conditions_for, conjoined, parsed
from heliograph.errors import ExpressionError, NotPossible, WrongEventType
from heliograph.model.event import Event, info_of
from heliograph.runtime.option_names import insist_on_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from heliograph.channel.channel import Channel
    from heliograph.channel.publish.host import LetsThrough
    from heliograph.channel.receive.consumer import Consumer
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.channel.selection import Selection

T = TypeVar("T", bound=Event)
R = TypeVar("R", bound="Receiver")
Callback = TypeVar("Callback", bound="Callable[..., object]")


class Published(TypedDict, total=False):
    """What a supplier lets through.

    Attributes:
        where: a filter over the fields of events, as text or built with `hg.col`.
        params: values for its parameters.
        types: the event classes that it publishes; all by default.
    """

    where: Any
    params: Mapping[str, Any] | Sequence[Any] | None
    types: Iterable[type[Event]] | None


class _Filter:
    """What a point lets through. Never changed but replaced whole: a push asks the old one or the new one."""

    def __init__(self, declared: tuple[type[Event], ...] | None, tree: Any) -> None:
        self.declared = declared
        self._tree = tree
        self._tests: dict[type, Callable[..., Any] | None] = {}

    @property
    def is_open(self) -> bool:
        return self._tree is None

    def holds(self, event: Event) -> bool:
        if self._tree is None:
            return True
        cls = event.__class__
        if cls not in self._tests:
            self._tests[cls] = self._test(cls)
        test = self._tests[cls]
        return test is not None and test(event, None)

    def _test(self, cls: type[Event]) -> Callable[..., Any] | None:
        """None for a type that lacks what the filter is about: nothing of it is let through."""
        try:
            return conditions_for((cls,), self._tree, None)[cls].holds
        except ExpressionError:
            return None


class FilterPoint:
    """One filter on the way in."""

    def __init__(self, channel: Channel[Any], published: Published) -> None:
        self._channel = channel
        self.set(published)

    def set(self, published: Published) -> None:
        where, params, types = (published.get(name) for name in ("where", "params", "types"))
        insist_on_known("supplier", published, tuple(Published.__annotations__))
        declared = None if types is None else classes_of(types)
        for cls in declared or ():
            if cls not in self._channel.types:
                raise WrongEventType(self._channel.name, info_of(cls).name, self._channel.type_names)
        tree = None if where is None else parsed(where, params)
        if tree is not None:
            self._check(tree, declared or self._channel.types)
        self._filter = _Filter(declared, tree)

    @property
    def is_open(self) -> bool:
        """Whether it has no filter: whatever is published passes."""
        return self._filter.is_open

    def lets_through(self, event: Event) -> bool:
        """WrongEventType for what is not published."""
        current = self._filter
        if current.declared is not None and event.__class__ not in current.declared:
            raise WrongEventType(
                self._channel.name,
                info_of(event.__class__).name,
                tuple(info_of(cls).name for cls in current.declared),
            )
        return current.holds(event)

    def _check(self, tree: Any, types: tuple[type[Event], ...]) -> None:
        from heliograph.filters.tree import Name, children  # noqa: PLC0415 - loaded when a filter is used

        conditions_for(types, tree, None)
        waiting = [tree.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Name) and node.header:
                raise NotPossible(
                    self._channel.name,
                    f"header.{node.name} in the filter of a supplier: events have no header before they are "
                    "let in; filter by it where they are received",
                )
            waiting += children(node)


def _no_header() -> Never:
    """Of what a filter has stopped."""
    raise NotPossible("this push", "was stopped by a filter of its supplier, so it has no header")


def points_of(
    channel: Channel[Any], published: Published, of_all: str | LetsThrough | None
) -> dict[str, LetsThrough]:
    """What stands at the points of a supplier: its own filter, and what the configuration lets in."""
    points: dict[str, LetsThrough] = {}
    if published:
        points[OF_SUPPLIER] = FilterPoint(channel, published)
    if isinstance(of_all, str):
        points[OF_SUPPLIER_ADMIN] = FilterPoint(channel, {"where": of_all})
    elif of_all is not None:
        points[OF_SUPPLIER_ADMIN] = of_all
    return points


def guard(supplier: Supplier[T], points: Mapping[str, LetsThrough]) -> Supplier[T]:
    """Let a supplier push only what all points let through; they have the names that explanations use."""
    supplier.points += tuple(points.items())
    push, push_nowait, push_many, apush = (
        supplier.push,
        supplier.push_nowait,
        supplier.push_many,
        supplier.apush,
    )

    def passes(event: T, said: Mapping[str, Any] | None = None, *, waits: bool = False) -> bool:
        supplier.validate(event)
        if said:
            supplier.check_said(said, waits=waits)
        return lets_through(event)

    def lets_through(event: T) -> bool:
        if all(point.lets_through(event) for point in points.values()):
            return True
        supplier.filtered += 1
        return False

    def guarded_push(event: T, **said: Any) -> bool:
        return push(event, **said) if passes(event, said, waits=True) else True

    def guarded_push_nowait(event: T, **said: Any) -> Receipt:
        if passes(event, said):
            return push_nowait(event, **said)
        return Receipt(_no_header)

    def guarded_push_many(events: Any, **said: Any) -> bool:
        batch = supplier.as_events(events)
        supplier.validate_all(batch)
        return push_many([event for event in batch if lets_through(event)], **said)

    async def guarded_apush(event: T, **said: Any) -> bool:
        return await apush(event, **said) if passes(event, said) else True

    # Of this supplier alone: others have no further step on their way.
    supplier.push = guarded_push  # type: ignore[method-assign]
    supplier.push_nowait = guarded_push_nowait  # type: ignore[method-assign]
    supplier.push_many = guarded_push_many  # type: ignore[method-assign, assignment]
    supplier.apush = guarded_apush  # type: ignore[method-assign]
    return supplier


def _on_close(opened: Supplier[Any] | Receiver, forget: Callable[[], object]) -> None:
    """Have what is closed forgotten, however long its admin is used after that."""
    close = opened.close

    def forgotten_and_closed() -> None:
        forget()
        close()

    opened.close = forgotten_and_closed  # type: ignore[method-assign]  # of this one alone


class FilteredSuppliers(Generic[T]):
    """Suppliers that share a filter. Made by `channel.for_suppliers`."""

    def __init__(self, channel: Channel[T], published: Published) -> None:
        self._channel = channel
        self._point = FilterPoint(channel, published)
        self._suppliers: set[Supplier[T]] = set()

    def supplier(self, name: str | None = None, **published: Unpack[Published]) -> Supplier[T]:
        """As `channel.supplier`, behind this filter as well."""
        own = FilterPoint(self._channel, published)
        supplier = guard(self._channel.supplier(name), {OF_SUPPLIER: own, OF_SUPPLIER_ADMIN: self._point})
        self._suppliers.add(supplier)
        _on_close(supplier, partial(self._suppliers.discard, supplier))
        return supplier

    def change(self, **published: Unpack[Published]) -> None:
        """Another filter for all of its suppliers, from their next push on."""
        self._point.set(published)

    def close(self) -> None:
        """Close all of its suppliers."""
        for supplier in tuple(self._suppliers):
            supplier.close()


class FilteredConsumers(Generic[T]):
    """Receivers that share a filter. Made by `channel.for_consumers`."""

    def __init__(self, channel: Channel[T], wanted: Wanted) -> None:
        self._channel = channel
        self._wanted: Wanted = wanted
        channel.select(**wanted)
        self._receivers: dict[Receiver, Wanted] = {}

    @overload
    def subscribe(self, callback: Callable[..., object], **options: Any) -> Receiver: ...
    @overload
    def subscribe(self, **options: Any) -> Callable[[Callback], Callback]: ...
    def subscribe(self, callback: Any = DECORATES, **options: Any) -> Any:
        """As `channel.subscribe`, behind this filter as well."""
        if callback is DECORATES:
            return decorator(self.subscribe, **options)
        return self._opened(partial(self._channel.subscribe, callback), options)

    def consumer(self, **options: Any) -> Consumer[T]:
        """As `channel.consumer`, behind this filter as well."""
        return self._opened(self._channel.consumer, options)

    def change(self, **wanted: Unpack[Wanted]) -> None:
        """Another filter for all of its receivers, from the next push on; each keeps its own as well.

        When one of them cannot have it, what that raises is raised, and all keep the filter of before.
        """
        self._channel.select(**wanted)
        self._selections(wanted)
        # Whoever is noted from here on looks whether this has changed since it was opened.
        self._wanted = wanted
        selections = self._selections(wanted)
        for receiver, own in list(self._receivers.items()):
            receiver.points = (self._channel.select(**wanted), self._channel.select(**own))
        # The station closes some by itself: those whose function does not return.
        for closed in selections.keys() - self._channel.change_receivers(selections):
            self._receivers.pop(closed, None)

    def close(self) -> None:
        """Close all of its receivers."""
        for receiver in tuple(self._receivers):
            receiver.close()

    def _selections(self, wanted: Wanted) -> dict[Receiver, Selection]:
        return {
            receiver: receiver.could_want(**both(self._channel, wanted, own))
            for receiver, own in list(self._receivers.items())
        }

    def _opened(self, opening: Callable[..., R], options: dict[str, Any]) -> R:
        wanted = self._wanted
        receiver = opening(**self._with_both(options))
        self._note(receiver, options)
        if self._wanted is not wanted:
            self.change(**self._wanted)  # it came while this was opened
        return receiver

    def _note(self, receiver: Receiver, options: dict[str, Any]) -> None:
        own: Any = {name: options[name] for name in Wanted.__annotations__ if name in options}
        known = receiver.known_as
        self._receivers[known] = own
        known.points = (self._channel.select(**self._wanted), self._channel.select(**own))
        _on_close(receiver, partial(self._receivers.pop, known, None))

    def _with_both(self, options: dict[str, Any]) -> dict[str, Any]:
        own: Any = {name: options[name] for name in Wanted.__annotations__ if name in options}
        rest = {name: value for name, value in options.items() if name not in own}
        return {**rest, **both(self._channel, self._wanted, own)}


def both(channel: Channel[Any], first: Wanted, second: Wanted) -> Wanted:
    """What both want."""
    for wanted in (first, second):
        channel.select(**wanted)
    trees = [parsed(w["where"], w.get("params")) for w in (first, second) if w.get("where") is not None]
    joined: Wanted = {}
    if trees:
        joined["where"] = conjoined(trees)
    types = [set(classes_of(w["types"])) for w in (first, second) if w.get("types") is not None]
    if types:
        joined["types"] = tuple(cls for cls in channel.types if all(cls in some for some in types))
    sources = [_names(w["sources"]) for w in (first, second) if w.get("sources") is not None]
    if sources:
        joined["sources"] = frozenset.intersection(*sources)
    return joined


def _names(sources: Iterable[str] | None) -> frozenset[str]:
    return frozenset((sources,) if isinstance(sources, str) else sources or ())
