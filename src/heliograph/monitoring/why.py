"""Why a receiver got an event or did not: the stage, the rule and the values that decided.

    print(hg.why(tracks, 41, "display"))                # the event at offset 41, of the history
    print(hg.why(tracks, Track(7, 200.0), "display"))   # an event that was never pushed

An event of a history is read from it; what its channel records of deliveries is exact; the filters of a
receiver, its start, its cursor and its queue are asked as they are now, in the station that has the receiver.
What nobody has written down is not guessed: the verdict is then "not recorded", with how to have it recorded.
"""

from __future__ import annotations

import difflib
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from heliograph.channel.explain import Why, steps_of
from heliograph.channel.receive.subscription import QueuedReceiver
from heliograph.channel.routing.conditions import ReceiverCondition, for_source
from heliograph.channel.selection import NOW
from heliograph.delivery.records import DELIVERIES, DeliveryRecord
from heliograph.errors import HeliographError, NotPossible, QueryFailed
from heliograph.filters import tree as t
from heliograph.filters import typed as k
from heliograph.filters.build import col
from heliograph.filters.reference import evaluate
from heliograph.journal.names import GROUP_PLACE
from heliograph.journal.store import JournalStore
from heliograph.journal.writing.producer_leases import PREFIX
from heliograph.model.event import Event, EventId, Header, info_of
from heliograph.monitoring import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.channel.derived_channel import DerivedChannel, Derives
    from heliograph.channel.receive.subscription import Receiver
    from heliograph.channel.selection import Selection
    from heliograph.errors import NotMatched

UNKNOWN: Final = "no such receiver"
MAX_RECORDS: Final = 10_000
"""Delivery records that a station keeps for questions, the latest."""
MAX_VALUE: Final = 120
"""Characters of a value in an answer."""
MAX_EVENT: Final = 1 << 20
"""Bytes of an event, as JSON, that another station is asked about."""
MAX_RECEIVERS: Final = 200
"""Receivers of one station whose answers a trace has."""
READ_LIMIT: Final = 5.0
"""Seconds that a history has to bring the event."""


class FoundEvent(NamedTuple):
    """An event in question; one that was never pushed has no header of its own."""

    event: Event
    header: Header
    is_pushed: bool


class WhyQuestion(msgspec.Struct, frozen=True):
    """What one station asks another."""

    channel: str
    receiver: str
    type: str
    event: bytes
    header: Header
    is_pushed: bool
    sources: tuple[int, ...] = ()
    """Stations that its events come from: those that push, or that keep the history; empty: not known."""


class DeliveryRing:
    """The latest delivery records of a station: bounded, filled while a channel records."""

    def __init__(self) -> None:
        self._records: deque[DeliveryRecord] = deque(maxlen=MAX_RECORDS)

    def add(self, record: DeliveryRecord) -> None:
        self._records.append(record)

    def outcomes(self, channel: str, header: Header) -> list[DeliveryRecord]:
        """What is written down of an event, of all its receivers."""
        wanted = (channel, header.supplier, header.epoch, header.sequence)
        return [
            one
            for one in tuple(self._records)
            if (one.channel, one.supplier, one.epoch, one.sequence) == wanted
        ]


def why(channel: Channel[Any] | DerivedChannel[Any], event: Any, receiver: str) -> Why:
    """See the module; the same as `channel.why(event, receiver)`."""
    return channel.why(event, receiver)


def find(channel: Channel[Any], asked: Any) -> FoundEvent:
    """The event that is meant by an offset, "partition:offset", an id, a header, an event or its JSON."""
    if isinstance(asked, Event):
        return FoundEvent(asked, channel.next_header(asked), is_pushed=False)
    if isinstance(asked, str) and asked.lstrip().startswith("{"):
        return find(channel, _from_json(channel, asked))
    if isinstance(asked, Header):
        asked = asked.id if asked.offset is None else f"{asked.partition}:{asked.offset}"
    if not channel.qos.journalled:
        raise NotPossible(
            channel.name,
            f"keeps no history in which {asked!s:.60} could be found; give the event itself, or its JSON",
        )
    start, until, where = _position(channel, asked)
    with channel.consumer(start=start, until=until, where=where) as consumer:
        for delivery in consumer.deliveries(READ_LIMIT):
            return FoundEvent(delivery.event, delivery.header, is_pushed=True)
    raise NotPossible(channel.name, f"there is no event {asked!s:.60} in its history")


def _position(channel: Channel[Any], asked: Any) -> tuple[Any, Any, Any]:
    """Where in the history to look, and for what."""
    text = str(asked)
    if text.isascii() and text.isdigit():
        partitions = channel.neighbours.partitions_within_reach()
        if len(partitions) > 1:
            names = ", ".join(f"{name}:{text}" for name in sorted(partitions))
            raise NotPossible(channel.name, f"has several partitions; write one of {names}")
        text = f"{next(iter(partitions), '')}:{text}"
    supplier, _, offset = text.rpartition(":")
    if not (offset.isascii() and offset.isdigit()):
        allowed = "an offset, partition:offset, supplier:epoch:sequence, or JSON"
        raise NotPossible(channel.name, f"{text!r:.60} is no event: {allowed}")
    supplier, colon, epoch = supplier.rpartition(":")
    if not colon:
        return {epoch: int(offset)}, {epoch: int(offset) + 1}, None
    wanted = EventId(supplier, int(epoch) if epoch.isdigit() else -1, int(offset))
    named = (col("header.supplier") == wanted.supplier) & (col("header.epoch") == wanted.epoch)
    return "earliest", "now", named & (col("header.sequence") == wanted.sequence)


def _from_json(channel: Channel[Any], text: str) -> Event:
    problem: HeliographError | None = None
    for cls in channel.types:
        try:
            return cls.from_json(text)  # type: ignore[no-any-return]  # any event type
        except HeliographError as error:
            problem = problem or error
    assert problem is not None, "a channel has event types"
    raise problem


class Asker:
    """Answers for the receivers of one station, and asks the others about theirs."""

    def __init__(
        self, station: snapshot.StationParts, find_channel: Callable[[str], Channel[Any] | None]
    ) -> None:
        self._station = station
        self._channel = find_channel
        self.records = DeliveryRing()
        self._opening = station.ports.tasks.lock("opening of delivery records")
        self._listened: Channel[Any] | None = None

    def listen(self) -> None:
        """Keep delivery records from now on, where a channel of this station makes any."""
        with self._opening:
            records = self._channel(DELIVERIES)
            if records is None or records is self._listened or records.closed:
                return
            self._listened = records  # another one than before when somebody began to keep it
        records.subscribe(self.records.add, types=(DeliveryRecord,), start="earliest")

    def why(self, channel: Channel[Any], asked: Any, receiver: str, *, only_asks: bool = False) -> Why:
        """See the module.

        Args:
            only_asks: an event that was never pushed would be pushed by another station, not by this one.
        """
        if not isinstance(receiver, str):
            raise TypeError(f"a receiver is named by text, as in station.snapshot(), not {receiver!r:.60}")
        self.listen()
        found = find(channel, asked)
        sources = self._sources(channel, found, only_asks=only_asks)
        answers = list(self._everywhere(channel, found, receiver, sources))
        if known := _by_receiver(one for one in answers if one.verdict != UNKNOWN):
            return known[0]
        names = sorted({name for one in answers for name in one.receivers})
        return msgspec.structs.replace(answers[0], station="", **_nobody(receiver, names))

    def all_of(self, channel: Channel[Any], asked: Any) -> tuple[FoundEvent, list[Why]]:
        """The answers for every receiver of a channel, in all stations; see `helio trace`."""
        self.listen()
        found = find(channel, asked)
        sources = self._sources(channel, found, only_asks=True)
        answers = [self.here(channel, found, name, sources) for name in self._names(channel)]
        for station in self._others(channel):
            told = self._ask(station, channel, found, "", sources)
            for name in () if told is None else told.receivers[:MAX_RECEIVERS]:
                answer = self._ask(station, channel, found, name, sources)
                if answer is not None:
                    answers.append(answer)
        return found, _by_receiver(answers)

    def _everywhere(
        self, channel: Channel[Any], found: FoundEvent, receiver: str, sources: tuple[int, ...]
    ) -> Iterator[Why]:
        """What this station says, and the others that have the channel."""
        yield self.here(channel, found, receiver, sources)
        for station in self._others(channel):
            told = self._ask(station, channel, found, receiver, sources)
            if told is not None:
                yield told

    def _sources(self, channel: Channel[Any], found: FoundEvent, *, only_asks: bool) -> tuple[int, ...]:
        """The stations that the event comes from, or such an event would; empty when nobody can say."""
        mesh = self._station.mesh
        if mesh is None:
            return ()
        if not (found.is_pushed or only_asks):
            if channel.store is None or channel.store.kept_here:
                return (self._station.id,)
            return tuple(
                other.station
                for other in mesh.stations()
                for state in other.channels
                if state.name == channel.name and state.keeper is not None
            )
        stations = [snapshot.take(self._station, channel.name), *snapshot.ask_all(mesh, channel.name)[0]]
        return sources_of(channel.name, found, stations, self._station.id)

    def _others(self, channel: Channel[Any]) -> list[int]:
        mesh = self._station.mesh
        return [
            other.station
            for other in (() if mesh is None else mesh.stations())
            if any(state.name == channel.name for state in other.channels)
        ]

    def _ask(
        self,
        station: int,
        channel: Channel[Any],
        found: FoundEvent,
        receiver: str,
        sources: tuple[int, ...],
    ) -> Why | None:
        """What another station says; None when it does not answer."""
        body = found.event.to_json()
        if len(body) > MAX_EVENT:
            raise NotPossible(
                channel.name, f"its event has {len(body)} bytes; stations ask each other up to {MAX_EVENT}"
            )
        name = info_of(type(found.event)).name
        question = WhyQuestion(channel.name, receiver, name, body, found.header, found.is_pushed, sources)
        assert self._station.mesh is not None
        with suppress(QueryFailed):
            told = self._station.mesh.ask(station, snapshot.WHY, question, snapshot.ASK_LIMIT)
            return msgspec.msgpack.decode(told, type=Why)
        return None

    def asked(self, _: int, body: msgspec.Raw, reply: Callable[[Any], None]) -> None:
        """Answer another station; see `heliograph.links.session.rpc`."""
        from heliograph.links.session.rpc import reply_apart  # noqa: PLC0415 - only stations of a domain are asked

        question = msgspec.msgpack.decode(body, type=WhyQuestion)

        reply_apart(self._station.ports.tasks, "says why", reply, partial(self._answer, question))

    def _answer(self, question: WhyQuestion) -> Why:
        channel = self._channel(question.channel)
        if channel is None:
            raise NotPossible(question.channel, "is not open in this station")
        self.listen()
        for cls in channel.types:
            if info_of(cls).name == question.type:
                try:
                    event = cls.from_json(question.event)
                except HeliographError as error:
                    return self._unreadable(channel, question, error)
                found = FoundEvent(event, question.header, question.is_pushed)
                return self.here(channel, found, question.receiver, question.sources)
        carried = f"this station has the channel with {', '.join(channel.type_names)}"
        return self._sayer(channel, question)("not wanted", "lookup", f"{carried}, not with {question.type}")

    def _unreadable(self, channel: Channel[Any], question: WhyQuestion, error: HeliographError) -> Why:
        """The class of this station does not fit the event: its receivers get none such."""
        say = self._sayer(channel, question)
        names = self._names(channel)
        if question.receiver not in names and f"group {question.receiver}" not in names:
            return msgspec.structs.replace(
                say(UNKNOWN, "lookup", "no receiver of that name"), receivers=tuple(names)
            )
        apart = self._apart(channel, question.type, question.sources, say)
        if apart is not None:
            return apart
        return say("not wanted", "lookup", f"its class of {question.type} does not fit the event: {error}")

    def _apart(
        self, channel: Channel[Any], type_name: str, sources: tuple[int, ...], say: Callable[..., Why]
    ) -> Why | None:
        """The answer when this station gets no such events from any that they come from; else None."""
        found: list[NotMatched] = []
        for source in sources:
            reasons = channel.neighbours.unmatched(f"{source:016x}")
            apart = [one for one in reasons if not one.to_it and one.type in ("", type_name)]
            if not apart:
                return None
            found += apart
        if not found:
            return None
        first = found[0]
        rule = f"no {first.events} come here from station {first.station}: {first.reason}"
        facts = {f"station {one.station}": one.reason for one in found[1:]}
        return say("stopped", "link", rule, facts, first.remedy)

    def here(self, channel: Channel[Any], found: FoundEvent, name: str, sources: tuple[int, ...] = ()) -> Why:
        """The answer for a receiver of this station."""
        event, header, is_pushed = found
        say = self._sayer(channel, WhyQuestion(channel.name, name, "", b"", header, is_pushed))
        receivers = {one.name: one for one in channel.neighbours.local_receivers()}
        receiver = receivers.get(name) or receivers.get(f"group {name}")
        say = partial(say, is_away=receiver is None)
        for record in self.records.outcomes(channel.name, header) if is_pushed else ():
            if record.receiver in (name, f"group {name}"):
                return _recorded(say, record)
        if receiver is None:
            derived = self._derived(channel, found, name, sources)
            told = derived or _of_cursor(channel, header, name, say)
            return told or say(UNKNOWN, "lookup", "", receivers=tuple(self._names(channel)))
        stopped = self._apart(channel, info_of(type(event)).name, sources, say)
        stopped = stopped or _stopped(receiver, event, header, say)
        if stopped is not None:
            return stopped
        if receiver.selection.tree is not None:
            say = partial(say, steps=("its filter lets the event through",))
        if not is_pushed:
            return say("would be delivered", "delivery", "every condition of the receiver holds")
        begun = receiver.selection.span.begins.get(header.partition or "")
        if begun is not None and header.offset is not None and header.offset < begun:
            return say(
                "before its start",
                "history",
                f"it was opened with start={receiver.selection.span.start!r}",
                {"header.offset": str(header.offset), "begins at": str(begun)},
                f"open it with start={header.offset} or start='earliest'",
            )
        return _of_cursor(channel, header, name, say) or _queued(receiver, header, say)

    def _derivations(self, channel: Channel[Any]) -> Iterator[tuple[Channel[Any], Derives]]:
        """The channels of this station that are derived from one."""
        for one in self._station.channels():
            if one.derives is not None and one.derives.derivation.channel == channel.name:
                yield one, one.derives

    def _names(self, channel: Channel[Any]) -> list[str]:
        """Receivers of this station, of what is derived too, and durable consumers that are away."""
        derived = {
            receiver.name
            for one, _ in self._derivations(channel)
            for receiver in one.neighbours.local_receivers()
        }
        return sorted({*_names(channel), *derived})

    def _derived(
        self, channel: Channel[Any], found: FoundEvent, name: str, sources: tuple[int, ...]
    ) -> Why | None:
        """The answer for one that receives what is derived from a channel; None: nobody of that name does."""
        for one, derives in self._derivations(channel):
            names = {receiver.name for receiver in one.neighbours.local_receivers()}
            if name in names or f"group {name}" in names:
                told = self._of_derivation(one, derives, found, name, sources)
                steps = (f"it receives the derivation {derives.derivation}", *told.steps)
                kept_as = f"{name.removeprefix('group ')}@{derives.derivation.digest}"
                return msgspec.structs.replace(told, channel=channel.name, steps=steps, kept_as=kept_as)
        return None

    def _of_derivation(
        self,
        channel: Channel[Any],
        derives: Derives,
        found: FoundEvent,
        name: str,
        sources: tuple[int, ...],
    ) -> Why:
        event, header, is_pushed = found
        say = self._sayer(channel, WhyQuestion(channel.name, name, "", b"", header, is_pushed))
        condition = derives.selection.conditions.get(type(event))
        if condition is None or for_source(condition, header.supplier) is None:
            facts = {"header.type": header.type, "header.supplier": header.supplier}
            rule = f"the derivation is of {derives.derivation.type}"
            if derives.derivation.sources is not None:
                rule += f" by {', '.join(derives.derivation.sources)}"
            return say("not wanted", "derivation", rule, facts, "derive without type= and sources=")
        if not condition.is_open and not condition.holds(event, header):
            rule, values = deciding(derives.selection, event, header, derives.derivation.where)
            return say("stopped", "derivation filter", rule, values, "derive with another where=")
        function = derives.transform.function(type(event))
        if function is None:
            rule = "events of this version lack what the derivation reads"
            return say("stopped", "derivation", rule, {"header.type": header.type})
        try:
            derived = function(event, header)
        except Exception as error:  # noqa: BLE001 - code of the user's class
            rule = f"the class of derived events raises {error!r:.200}"
            return say("stopped", "derivation", rule, {"header.type": header.type})
        made = FoundEvent(derived, derives.transform.header(header, derived), is_pushed)
        return self.here(channel, made, name, sources)

    def _sayer(self, channel: Channel[Any], about: WhyQuestion) -> Callable[..., Why]:
        """Makes answers about one event and receiver."""
        label = self._station.name or f"{self._station.id:016x}"
        event = str(about.header.id) if about.is_pushed else ""
        return partial(Why, channel.name, event, about.receiver, label)


def sources_of(
    name: str, found: FoundEvent, stations: Iterable[snapshot.StationSnapshot], asker: int
) -> tuple[int, ...]:
    """The stations that an event of a channel comes from, or would: they push, or keep the history.

    Of an event that was never pushed those that have pushed others; where nobody has, those that have no
    receiver, for what else would they have the channel.
    """
    known = [(int(one.station, 16), it) for one in stations if (it := one.channel(name)) is not None]
    keepers = [(station, one.journal.partition) for station, one in known if one.journal is not None]
    if found.is_pushed and found.header.partition is not None:
        return tuple(station for station, partition in keepers if partition == found.header.partition)
    own = {
        station: [supplier for supplier in one.suppliers if not supplier.is_remote] for station, one in known
    }
    if found.is_pushed:
        wanted = found.header.supplier
        pushers = [s for s, them in own.items() if any(one.name == wanted for one in them)]
        return tuple(pushers or (s for s, _ in known if wanted.startswith(f"{s:016x}-")))
    pushers = [s for s, them in own.items() if any(one.pushed for one in them)]
    if not pushers:
        pushers = [s for s, one in known if s != asker and all(r.kind == "gateway" for r in one.receivers)]
    journalled = {s for s, one in known if one.durability == "persistent"}
    held = {station for station, _ in keepers}
    direct = {s for s in pushers if s not in journalled or s in held}
    return tuple(sorted(direct | (held if journalled & {*pushers} - direct else set())))


def _by_receiver(answers: Iterable[Why]) -> list[Why]:
    """One answer for each receiver: of a durable one, the station that has it open decides whether it wants
    an event, and its keeper knows what it has acknowledged.
    """
    opened: dict[str, list[Why]] = {}
    away: dict[str, Why] = {}
    for one in answers:
        name = one.kept_as or one.receiver.removeprefix("group ")
        if one.is_away:
            away.setdefault(name, one)
        else:
            opened.setdefault(name, []).append(one)
    found = [_with_cursor(one, away.get(name)) for name, them in opened.items() for one in them]
    return [*found, *(one for name, one in away.items() if name not in opened)]


def _with_cursor(answer: Why, kept: Why | None) -> Why:
    """An answer from where the receiver is open, with what its keeper has written down of the event."""
    if kept is None or not (kept.stage == "delivery" or (kept.stage == "cursor" and answer.stage == "queue")):
        return answer
    return msgspec.structs.replace(
        kept, receiver=answer.receiver, station=answer.station, steps=answer.steps, is_away=False
    )


def _names(channel: Channel[Any]) -> list[str]:
    """Receivers of this station, and durable consumers that are away."""
    names = {one.name for one in channel.neighbours.local_receivers()}
    store = channel.store
    if isinstance(store, JournalStore):
        kept = [one.name for one in store.cursor_states() if not one.name.startswith(PREFIX)]
        names |= {name.replace(GROUP_PLACE, "group ", 1) if _is_group(name) else name for name in kept}
    return sorted(names)


def _is_group(name: str) -> bool:
    return name.startswith(GROUP_PLACE)


def _nobody(receiver: str, known: list[str]) -> dict[str, Any]:
    close = difflib.get_close_matches(receiver, known, 1)
    has = f"receivers are {', '.join(known)}" if known else "nobody receives from this channel"
    guess = f"did you mean {close[0]!r}?" if close else "station.snapshot() and `helio top` list receivers"
    return {
        "rule": f"no station has a receiver of this name; {has}",
        "remedy": guess,
        "receivers": tuple(known),
    }


def _recorded(say: Callable[..., Why], record: DeliveryRecord) -> Why:
    facts = {"waited": f"{record.waited_ns / 1e9:.6f} s", "sends": str(record.sends)}
    if record.reason:
        facts["reason"] = record.reason
    return say(record.outcome, "delivery", "so its delivery record says", facts, at_ns=record.at_ns)


def _stopped(receiver: Receiver, event: Event, header: Header, say: Callable[..., Why]) -> Why | None:
    """The answer when a filter or its types stop the event; None when nothing does."""
    last = next((step for step in steps_of(receiver, event, header) if not step.passed), None)
    if last is None:
        return None
    if last.kind == "lookup":
        wanted = ", ".join(sorted({info_of(cls).name for cls in receiver.selection.conditions}))
        facts = {"header.type": header.type, "header.supplier": header.supplier, "wants": wanted}
        return say("not wanted", "lookup", last.detail, facts, "open it without types= and sources=")
    rule, values = deciding(receiver.selection, event, header)
    return say("stopped", last.kind, rule, values, "change its filter: receiver.change(where=...)")


def deciding(
    selection: Selection, event: Event, header: Header, where: t.Expr | None = None
) -> tuple[str, dict[str, str]]:
    """The part of a filter that is not true, and what it reads; `where` as it was written, if elsewhere."""
    condition = for_source(selection.conditions[type(event)], header.supplier)
    checked = condition.checked if isinstance(condition, ReceiverCondition) else None
    if checked is None:
        return "its filter", {}
    tree = where or selection.tree
    node, text = checked.node, checked.text if where is None else str(where)
    if isinstance(node, k.TypedAnd):
        written = _parts(tree, len(node.items))
        for number, item in enumerate(node.items):
            if evaluate(item, event, header) is not True:
                node, text = item, written[number] if written else text
                break
    values = {}
    for column in k.columns(node):
        path = ".".join(str(step.key) for step in column.steps)
        value = evaluate(column, event, header)
        said = "NULL" if value is None else repr(value)[:MAX_VALUE]
        values[f"header.{path}" if column.header else path] = said
    outcome = evaluate(node, event, header)
    return f"{text} is {'NULL' if outcome is None else 'false'}", values


def _parts(tree: Any, number: int) -> list[str]:
    """The texts of the parts of a conjunction; empty when they cannot be told apart."""
    if tree is None or not isinstance(tree.tree, t.And) or len(tree.tree.items) != number:
        return []
    begins = [_begin(item) for item in tree.tree.items]
    if begins != sorted(set(begins)) or not begins[0]:
        return []
    text = str(tree)
    ends = [*(begin - 1 for begin in begins[1:]), len(text)]
    return [_without_and(text[begin - 1 : end]) for begin, end in zip(begins, ends, strict=True)]


def _begin(tree: Any) -> int:
    """The first column of a part; that of an operator stands behind its left side."""
    column: int = tree.at.column
    return min((column, *map(_begin, t.children(tree))))


def _without_and(text: str) -> str:
    text = text.strip().rstrip("(").strip()
    return text[:-3].strip() if text.lower().endswith("and") else text


def _of_cursor(channel: Channel[Any], header: Header, name: str, say: Callable[..., Why]) -> Why | None:
    """What a durable consumer, or a group, has acknowledged; None for a receiver without a cursor here."""
    store, offset = channel.store, header.offset
    if not isinstance(store, JournalStore) or header.partition != store.partition or offset is None:
        return None
    group = GROUP_PLACE + name.removeprefix("group ")
    state = next((one for one in store.cursor_states() if one.name in (name, group)), None)
    position = None if state is None else state.positions.get(store.partition)
    if state is None or position is None:
        return None
    facts = {"header.offset": str(offset), "acknowledged below": str(position.low), "owner": state.owner}
    if offset < position.low or offset in position.acks:
        return say("acknowledged", "cursor", "the durable consumer has acknowledged this offset", facts)
    if attempts := position.attempts.get(offset, 0):
        facts["attempts"] = str(attempts)
    behind = offset - position.low
    before = f"{behind} offsets before it are not acknowledged either"
    return say(
        "not acknowledged",
        "cursor",
        before if behind else "it is the next to acknowledge",
        facts,
        "look at its program: `helio doctor` says whether it is stuck or away",
    )


def _queued(receiver: Receiver, header: Header, say: Callable[..., Why]) -> Why:
    """What the counters of a receiver say of an event that it wants."""
    counts = receiver.counts()
    facts = {"delivered": str(counts.delivered), "pending": str(counts.pending)}
    facts |= {f"dropped {reason}": str(n) for reason, n in counts.dropped.items()}
    facts |= {name: str(n) for name, n in (("failed", counts.failed), ("expired", counts.expired)) if n}
    last = receiver.queue.last if isinstance(receiver, QueuedReceiver) else None
    is_behind = last is not None and last.supplier == header.supplier and last.sequence < header.sequence
    if sum(counts.dropped.values()) + counts.failed + counts.expired:
        return say(
            "not recorded",
            "queue",
            "its filter wants the event; what became of each single one is not written down",
            facts,
            "hg.QoS(delivery_records='all') on the channel records every outcome",
        )
    if receiver.selection.span.start in NOW and not counts.pending and not counts.delivered:
        rule = "it was opened with start='now' and has got nothing since: the event may be from before"
        return say("not recorded", "history", rule, facts, "open it with start='earliest'")
    if counts.pending or is_behind or not counts.delivered:
        remedy = "a callback that does not return shows in `helio doctor`"
        return say("waiting", "queue", "it waits, or is being delivered: nothing was dropped", facts, remedy)
    return say("delivered", "queue", "nothing waits, and no event was ever dropped, failed or missed", facts)
