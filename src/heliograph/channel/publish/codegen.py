"""Generates the push function of an event type: check of values, header, queues, inline callbacks.

What a route's receivers need decides which lines there are; none asks about configuration. `compile_push`
makes a function that, given what belongs to one supplier, gives that supplier's push. For a channel with two
queues and an inline callback it reads

    def way(supplier, epoch, next_sequence, next_station_seq, now, ...):      # the fields of `PushContext`
        def push(event, said=plain, max_blocking=None):
            if not (event.id.__class__ is int and ...): mend(event)
            passed, item = False, None
            if mine(): refuse()
            try:
                acquire()
                if not barred:
                    if not (queue_1.waiting >= queue_1.blocks_at or queue_1.mine() or queue_2.waiting >= ...):
                        header = Header(channel, type, supplier, epoch, next_sequence(), now(), ...)
                        if said is not plain: header = said.on(header)
                        item = (event, header, 0)
                        size = 16 + len(event.note)         # without texts and the like: put_small only
                        if size <= queue_1.most_each: put_small_into_queue_1(item)
                        else: put_into_queue_1(item)
                        if size <= ...
                        tally.matched += 2
                        passed = True
                release()
            except BaseException:
                if mine():
                    try:
                        if item is not None and not passed: finish(item, (queue_1, queue_2), None)
                    finally:
                        release()
                raise
            if not passed: return slowly(event, said, max_blocking, None)
            try:
                callback(event)
            except (Exception, SystemExit) as error:
                report(header, error)
                it_raised()
            else:
                it_was_called()
            return header
        return push

Where filters or groups decide which queues get an event, or where there are many, loops over the queues that
`route.find` finds take the place of the lines for each queue. A queue that is alone is asked by itself.
Filters are evaluated before `acquire`: one that takes long holds up nobody else. What a filter asks of an
event's place is a condition of its queue, and stands behind the making of the header. An event gets its
number when there is room for it in all queues that it may enter, so that numbers have no gaps.

One push at a time is between `acquire` and `release`, of all suppliers of a channel: queues only get emptier
meanwhile, so whoever found room in all of them still has it when it puts. `barred` holds something when these
are no longer the routes, or when an earlier push waits for room: then, as when a queue is full, the supplier
goes the slow way. Without queues there is no lock: counting is atomic.

An exception may come at any instant at which CPython looks for signals: after a call, and when a function
begins. What was begun is then finished: an event is in all queues, and counted, or in none. A push that a
signal handler or a finalizer makes while its thread is in here, or in the middle of a change of one of the
queues, is refused: it would come between an event and its number.

`with lock:` would be shorter, and takes 110 ns where `acquire`, `release` and `mine` take 75 (CPython 3.11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Never, Protocol, TypeAlias, cast

from heliograph.channel.publish.options import PLAIN
from heliograph.channel.routing.conditions import entering
from heliograph.codec.coerce import coerce_event
from heliograph.codec.sizes import size_text
from heliograph.codec.validate import fits
from heliograph.model.event import EventInfo, Header, info_of
from heliograph.runtime.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heliograph.channel.publish.fast_path import RowQueue
    from heliograph.channel.publish.options import Stamp
    from heliograph.channel.queueing.queue import EventQueue, Item
    from heliograph.channel.routing.compiler import Route


class Push(Protocol):
    """Pushes (event, what the push says, seconds to wait for room or None for the channel's own)."""

    def __call__(self, event: Any, said: Stamp = PLAIN, max_blocking: float | None = None, /) -> Header: ...


SlowPush: TypeAlias = "Callable[[Any, Stamp, float | None], Header]"
"""The same, where nothing is left out."""
Finish: TypeAlias = "Callable[[Item, Sequence[EventQueue], Callable[[Item], object] | None], None]"
"""Puts an event where an interrupted push has not come to, and counts it."""
WayIn: TypeAlias = "Callable[..., Push]"
"""Takes the fields of an `PushContext`."""

STAYS: Final = (Exception, SystemExit)
"""What an inline callback raises is reported and stays with it. The rest is for the thread that pushes."""

WRITTEN_OUT: Final = 16
"""Queues up to which each has a line of its own: a twelfth faster than a loop."""


class PushContext(NamedTuple):
    """What belongs to one supplier, in the order in which a way in takes it."""

    supplier: str
    epoch: int
    next_sequence: Callable[[], int]
    next_station_seq: Callable[[], int]
    now: Callable[[], int]
    monotonic: Callable[[], int]
    tally: Tally
    acquire: Callable[[], bool]
    release: Callable[[], None]
    mine: Callable[[], bool]
    """Whether this thread has the lock: what pushes has interrupted it in the middle of a push."""
    barred: list[Any]
    """Holds something when events must go the slow way."""
    slowly: SlowPush
    refuse: Callable[[], Never]
    """Raises that a push out of a push cannot be."""
    finish: Finish


class Tally(Protocol):
    """Counts the matches of one supplier."""

    matched: int


class Stamping:
    """Writes the making of a header: what all headers of a route share is bound, not looked up."""

    def __init__(self, channel: str, info: EventInfo, priority: int, lifetime_ns: int | None) -> None:
        self._shared = (Header, channel, info.name, info.format.id, priority)
        self._key = info.key
        self._lifetime_ns = lifetime_ns

    def call(self, source: CodeBuilder, sequence: str, source_ts: str, station_seq: str) -> str:
        header, channel, kind, fmt, priority = map(source.bind, self._shared)
        key = "".join(f"event.{source.attribute(name)}, " for name in self._key)
        rest = "" if self._lifetime_ns is None else f", None, None, None, {source.bind(self._lifetime_ns)}"
        return (
            f"{header}({channel}, {kind}, supplier, epoch, {sequence}, {source_ts}, {fmt}, {priority}, "
            f"({key}), {station_seq}{rest})"
        )

    def known(self, supplier: str, epoch: int) -> Header:
        """What filters can be told of all events that say nothing, before these have their places."""
        header, channel, kind, fmt, priority = self._shared
        return header(channel, kind, supplier, epoch, 0, 0, fmt, priority, lifetime_ns=self._lifetime_ns)

    def function(self) -> Callable[[Any, str, int, int, int, int], Header]:
        source = CodeBuilder()
        source.line("def stamp(event, supplier, epoch, sequence, source_ts, station_seq):", 0)
        source.line(f"return {self.call(source, 'sequence', 'source_ts', 'station_seq')}")
        function: Callable[[Any, str, int, int, int, int], Header] = source.functions()["stamp"]
        return function


def compile_push(route: Route) -> WayIn:
    """See the module."""
    source = CodeBuilder()
    header = route.stamping.call(source, "next_sequence()", "now()", "next_station_seq()")
    source.line(f"def way({', '.join(PushContext._fields)}):", 0)
    if route.find_needs_header:
        source.line(f"known = {source.bind(route.stamping.known)}(supplier, epoch)")
    source.line(f"def push(event, said={source.bind(PLAIN)}, max_blocking=None):")
    _check(source, route)
    if not route.has_queue:
        _stamped(source, header, 2)
    else:
        _queue(source, route, header)
    if route.inline is not None:
        _call_inline(source, route)
    source.line("return header", 2)
    if route.goes_in_rows:
        _add_rows(source, route)
    source.line("return push")
    # Not among its own globals, so that it is gone with the last who has it, and not in a circle.
    way: WayIn = source.functions().pop("way")
    return way


def _check(source: CodeBuilder, route: Route) -> None:
    source.line(f"if not ({fits(source, info_of(route.cls))}): {source.bind(coerce_event)}(event)", 2)


def _add_rows(source: CodeBuilder, route: Route) -> None:
    """In front of the push that makes a header, one that makes none; see
    `heliograph.channel.publish.fast_path`.

    A header is wanted by whoever says something, or gives a time to wait and looks at the receipt.
    """
    assert route.sole is not None
    queue = cast("RowQueue", route.sole[0])
    name, line, rows_of = source.bind(queue), source.bind(queue.line), source.bind(queue.rows_of)
    source.line("with_header = push")
    source.line(f"waiting = {rows_of}(supplier, epoch, {source.bind(route.cls)}, {source.bind(route.stamp)})")
    source.line("rows, add, write, left, arm = waiting.rows, waiting.rows.extend, *waiting.calls()")
    plain = source.bind(PLAIN)
    source.line(f"def push(event, said={plain}, max_blocking=None):")
    source.line(f"if said is not {plain} or max_blocking is not None:", 2)
    source.line("return with_header(event, said, max_blocking)", 3)
    _check(source, route)
    test = route.test_in(source, 2)
    if test:
        source.line(f"wanted = {test}", 2)
    source.line("if mine(): refuse()", 2)
    source.line("try:", 2)
    source.line("acquire()", 3)
    source.line(f"if not (barred or {name}.waiting):", 3)
    source.line("sequence, source_ts, place = next_sequence(), now(), next_station_seq()", 4)
    if test:
        source.line("if wanted:", 4)
    depth = 5 if test else 4
    source.line(f"due, row = source_ts > {line}.due_ns, (event, sequence, source_ts, place)", depth)
    source.line("if not due or rows:", depth)
    # Counted in one step with the row: CPython looks for signals after calls only.
    source.line("tally.matched += 1", depth + 1)
    source.line("add(row)", depth + 1)
    source.line("if due:", depth + 1)
    source.line("if not write(waiting): left()", depth + 2)
    source.line("elif not waiting.armed: arm()", depth + 1)
    source.line("else:", depth)
    source.line("ones = waiting.ones", depth + 1)
    source.line("try:", depth + 1)
    source.line("is_written = waiting.write_one(event, sequence, source_ts, place)", depth + 2)
    source.line("finally:", depth + 1)
    source.line("tally.matched += waiting.ones - ones", depth + 2)
    source.line("if not is_written:", depth + 1)
    source.line("tally.matched += 1", depth + 2)
    source.line("add(row)", depth + 2)
    source.line("if not write(waiting): left()", depth + 2)
    source.line("release()", 4)  # one call, in C: a signal comes before it or when the lock is free
    source.line("return None", 4)
    source.line("release()", 3)
    source.line("except BaseException:", 2)
    source.line("if mine():", 3)
    source.line("if rows: arm()", 4)
    source.line("release()", 4)
    source.line("raise", 3)
    source.line("return with_header(event, said, max_blocking)", 2)


def _stamped(source: CodeBuilder, header: str, depth: int) -> None:
    """Give the event its place."""
    source.line(f"header = {header}", depth)
    source.line(f"if said is not {source.bind(PLAIN)}: header = said.on(header)", depth)


def _queue(source: CodeBuilder, route: Route, header: str) -> None:
    deadline = "0"
    if route.lifetime_ns is not None:
        deadline = f"monotonic() + {source.bind(route.lifetime_ns)}"
    item = f"item = (event, header, {deadline})"
    keep = None if route.keep is None else source.bind(route.keep)
    if keep is not None:
        item = f"{item}; {keep}(item)"
    source.line("passed, item = False, None", 2)
    by_name = route.always is not None and len(route.always) <= WRITTEN_OUT
    is_current = "not barred"
    if not by_name:
        is_current = _find(source, route)
    source.line("if mine(): refuse()", 2)
    source.line("try:", 2)
    source.line("acquire()", 3)
    source.line(f"if {is_current}:", 3)
    if by_name:
        queues = _put_by_name(source, route, header, item)
    elif route.sole is not None:
        queues = _put_if_wanted(source, route, header, item)
    else:
        queues = _put_by_loop(source, route, header, item)
    source.line("passed = True", 5)
    source.line("release()", 3)
    source.line("except BaseException:", 2)
    source.line("if mine():", 3)
    source.line("try:", 4)
    source.line(f"if item is not None and not passed: finish(item, {queues}, {keep})", 5)
    source.line("finally:", 4)
    source.line("release()", 5)
    source.line("raise", 3)
    source.line("if not passed: return slowly(event, said, max_blocking)", 2)


def _put_by_name(source: CodeBuilder, route: Route, header: str, item: str) -> str:
    """Returns the text that says which queues these are, as the others do."""
    assert route.always is not None
    queues = tuple(route.always)
    names = [source.bind(queue) for queue in queues]
    full = " or ".join(
        f"{name}.waiting >= {name}.blocks_at or {source.bind(queue.mine)}()"
        for name, queue in zip(names, queues, strict=True)
    )
    source.line(f"if not ({full or 'False'}):", 4)
    _stamped(source, header, 5)
    source.line(item, 5)
    _put(source, route, [_puts(source, queue) for queue in queues], 5)
    source.line(f"tally.matched += {len(queues)}", 5)
    return source.bind(queues)


def _puts(source: CodeBuilder, queue: EventQueue) -> tuple[str, str, str]:
    return source.bind(queue), source.bind(queue.put_small), source.bind(queue.put)


def _put(source: CodeBuilder, route: Route, queues: Sequence[tuple[str, str, str]], depth: int) -> None:
    """Put the event, which is measured once for all, into queues: their names, `put_small` and `put`."""
    size = size_text(source, route.cls)
    if size is None:
        for _, put_small, _ in queues:
            source.line(f"{put_small}(item)", depth)
        return
    source.line(f"size = {size}", depth)
    for queue, put_small, put in queues:
        source.line(f"if size <= {queue}.most_each: {put_small}(item)", depth)
        source.line(f"else: {put}(item)", depth)


def _find(source: CodeBuilder, route: Route) -> str:
    """Have filters evaluated; the text that says, under the lock, whether what they said still holds."""
    known = "None"
    if route.find_needs_header:
        known = f"known if said is {source.bind(PLAIN)} else said.on(known)"
    if route.sole is not None:
        if route.wants is not None:
            source.line(f"wanted = {source.bind(route.wants)}(event, {known})", 2)
        return "not barred"
    if route.crowd is None:
        source.line(f"queues = {source.bind(route.find)}(event, {known})", 2)
        return "not barred"
    index = source.bind(route.crowd)
    source.line(f"changes = {index}.changes", 2)
    source.line(f"queues = {source.bind(route.find)}(event, {known})", 2)
    return f"not barred and {index}.changes == changes"


def _put_if_wanted(source: CodeBuilder, route: Route, header: str, item: str) -> str:
    assert route.sole is not None
    queue = route.sole[0]
    name, has_room = source.bind(queue), "if"
    if route.wants is not None:
        source.line("if not wanted:", 4)
        _stamped(source, header, 5)
        source.line("passed = True", 5)
        has_room = "elif"
    source.line(f"{has_room} {name}.waiting < {name}.blocks_at and not {source.bind(queue.mine)}():", 4)
    _stamped(source, header, 5)
    depth = 5
    if queue in route.at_entry:
        source.line(f"if {source.bind(route.at_entry[queue])}(event, header):", 5)
        depth = 6
    source.line(item, depth)
    _put(source, route, [_puts(source, queue)], depth)
    source.line("tally.matched += 1", depth)
    return source.bind((queue,))


def _put_by_loop(source: CodeBuilder, route: Route, header: str, item: str) -> str:
    source.line("for queue in queues:", 4)
    source.line("if queue.waiting >= queue.blocks_at or queue.mine(): break", 5)
    source.line("else:", 4)
    _stamped(source, header, 5)
    if route.at_entry:
        source.line(
            f"queues = {source.bind(entering)}({source.bind(route.at_entry)}, queues, event, header)", 5
        )
    source.line(item, 5)
    source.line("for queue in queues:", 5)
    _put(source, route, [("queue", "queue.put_small", "queue.put")], 6)
    source.line(f"tally.matched += {source.bind(len)}(queues)", 5)
    return "queues"


def _call_inline(source: CodeBuilder, route: Route) -> None:
    """One callback without a filter stands in the push itself; others are called through their function."""
    if route.sole_inline is None:
        source.line(f"{source.bind(route.inline)}(event, header)", 2)
        return
    tally = route.sole_inline
    (only,) = tally.subscriptions
    # As long as it is held, what is counted is added up: see `heliograph.channel.inline_counters`.
    source.bind(tally)
    source.line("try:", 2)
    source.line(f"{source.bind(only.call)}({'event, header' if only.with_header else 'event'})", 3)
    source.line(f"except {source.bind(STAYS)} as error:", 2)
    source.line(f"{source.bind(only.raised)}(header, error)", 3)
    source.line(f"{source.bind(tally.tick(tally.outcome(0, raised=True)))}()", 3)
    source.line("else:", 2)
    source.line(f"{source.bind(tally.tick(tally.outcome(0)))}()", 3)
