"""The server of groups: the keeping station hands events out to members in other stations.

`GroupHost` gives each of them a seat at the desk of their group, beside those of its own station, and answers
what `heliograph.links.groups.client` asks for them. A member whose process ends, or whose link is lost, has
left: what it held goes to others, marked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from heliograph.channel.ack_protocol import REJECTED, Acking, Spot, spot_of
from heliograph.channel.selection import OffsetRange, Selection, conditions_for
from heliograph.errors import NotPossible, QueryFailed
from heliograph.links.groups.client import (
    Handout,
    Join,
    from_wire,
    read_join,
    read_leave,
    read_number,
    read_settle,
    read_take,
    to_wire,
)
from heliograph.links.history.pages import Page, fitting_page
from heliograph.links.interest.filter_wire import condition_for, from_data
from heliograph.model.event import info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from heliograph.channel.ack_protocol import HostMembership
    from heliograph.channel.channel import Channel
    from heliograph.channel.receive.consumer import GroupReceiver
    from heliograph.links.session.rpc import Reply, Rpc
    from heliograph.links.session.wire_events import EventWriter
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Tasks


class _Member:
    """A member of another station, as the keeper knows it."""

    shared: GroupReceiver
    seat: HostMembership

    def __init__(self, channel: Channel[Any], group: str, tasks: Tasks) -> None:
        self.channel = channel
        self.group = group
        self._lock = tasks.lock(f"member of {group}")
        self._waiting: Reply | None = None
        self._rang = False
        self._answered = 0
        self._handed: list[int] = []
        """What the last answer handed out, and which question that was."""

    def ring(self) -> None:
        """Tell it to ask, or remember that until it wants to be told."""
        with self._lock:
            reply, self._waiting = self._waiting, None
            self._rang = reply is None
        if reply is not None:
            reply(None)

    def wait(self, reply: Reply) -> None:
        """Have `reply` called at the next bell; at once when one has rung since it last looked."""
        with self._lock:
            if not self._rang:
                self._waiting = reply
                return
            self._rang = False
        reply(None)

    def look(self) -> None:
        """It takes what is there: bells before this are no news."""
        with self._lock:
            self._rang = False

    def has_heard(self, question: int) -> None:
        """The last answer that came was to this question: what a later one handed out, nobody has seen."""
        if question != self._answered:
            self.seat.give_back(self._handed)

    def is_answered(self, question: int, handed: list[int]) -> None:
        self._answered, self._handed = question, handed

    def number_of(self, spot: Spot) -> int | None:
        """QueryFailed when its partition has not been met here; None when no history has it any more."""
        return self.shared.desk.number_of(spot)

    def numbers_of(self, spots: Iterable[Spot]) -> list[int]:
        """Of those that can be."""
        numbers: list[int] = []
        for spot in spots:
            with suppress(QueryFailed):
                if (number := self.number_of(spot)) is not None:
                    numbers.append(number)
        return numbers

    def settle(self, spots: Iterable[Spot]) -> None:
        for number in self.numbers_of(spots):
            self.seat.settle(number)

    def withdraw(self, spots: Iterable[Spot]) -> None:
        for number in self.numbers_of(spots):
            self.seat.withdraw(number)

    def leave(self) -> None:
        self.seat.leave()
        self.channel.asking.one_left(self.group)


class GroupHost:
    """Answers the members that other stations have in groups of channels that this one keeps.

    Args:
        questions: where it answers.
        channel: a channel of this station by its name, or None.
        writer: turns events into runs.
        format_of: a format that a station has told of, by its id.
    """

    def __init__(
        self,
        questions: Rpc,
        channel: Callable[[str], Channel[Any] | None],
        writer: EventWriter,
        format_of: Callable[[int, bytes], Format | None],
        tasks: Tasks,
    ) -> None:
        self._channel = channel
        self._writer = writer
        self._format_of = format_of
        self._tasks = tasks
        self._members: dict[tuple[int, int], _Member] = {}
        for topic, responder in (
            ("join", self._join),
            ("take", self._take),
            ("wait", self._wait),
            ("settle", self._settle),
            ("leave", self._leave),
        ):
            questions.answer(f"group.{topic}", responder)
        questions.on_left(self._station_left)

    def _station_left(self, station: int) -> None:
        """Its members are gone; in tasks of their own, since what they held may have to be buried."""
        for key in [key for key in self._members if key[0] == station]:
            leave = self._members.pop(key).leave
            self._tasks.spawn_soon("a member that is gone", leave)

    def _join(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = read_join(body)
        channel = self._channel(ask.channel)
        if channel is None or channel.store is None or not channel.store.kept_here:
            raise QueryFailed("this station", f"does not keep the history of {ask.channel!r}")
        if unmet := sorted(set(ask.known) - channel.neighbours.partitions_within_reach()):
            # It would open the group without a partition that another keeper could have it with.
            raise QueryFailed("this station", f"has not met the keeper of partition {unmet[0]} yet")
        if channel.admission is not None:
            channel.admission.check_group(ask.group)
        member = _Member(channel, ask.group, self._tasks)
        name = f"{ask.member} of {station:016x}, {ask.number}"
        member.shared, member.seat = channel.asking.sit(
            self._selection(station, channel, ask),
            _acking(ask),
            name,
            member.ring,
            raises_gaps=ask.raises_gaps,
        )
        self._members[station, ask.number] = member
        reply(member.shared.terms)

    def _selection(self, station: int, channel: Channel[Any], ask: Join) -> Selection:
        """What the member wants, in this station's classes; NotPossible when they differ too much."""
        peer = f"station {station:016x}"
        classes: dict[type[Event], None] = {}
        for want in ask.wants:
            versions = [cls for cls in channel.types if info_of(cls).name == want.type]
            if not versions:
                raise NotPossible(
                    ask.channel, f"the keeper does not carry {want.type[:80]!r}: open it there with that type"
                )
            fits = [
                condition_for(want, cls, lambda fmt: self._format_of(station, fmt), peer).checked
                for cls in versions
            ]
            if want.tree is not None and not any(fits):
                raise NotPossible(
                    ask.channel,
                    f"the filter reads fields that {want.type[:80]!r} has otherwise at the keeper",
                )
            classes.update(dict.fromkeys(versions))
        if not classes:
            raise NotPossible(ask.channel, "a member of a group wants at least one event type")
        first = ask.wants[0]
        tree = None if first.tree is None else from_data(first.tree, peer)
        sources = None if first.sources is None else frozenset(first.sources)
        return Selection(
            conditions_for(classes, tree, sources),
            tree,
            sources,
            ask.all_types,
            ask.priority,
            ask.group,
            span=OffsetRange("now" if ask.from_now else ask.since or "earliest", ask.begins, ask.ends),
        )

    def _take(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = read_take(body)
        member = self._members.get((station, ask.number))
        if member is None or (member.shared.queue.closed and member.shared.failure is None):
            self._members.pop((station, ask.number), None)
            reply(None)
            return
        settled, withdrawn = from_wire(ask.epochs, ask.settled, ask.withdrawn)
        member.settle(settled)
        member.withdraw(withdrawn)
        if ask.most:
            member.look()
            member.has_heard(ask.heard)
            reply(self._handed(member, ask.most, ask.asked))
        else:
            reply(Handout(Page([])))

    def _handed(self, member: _Member, most: int, question: int) -> Handout:
        seat = member.seat
        handed = seat.take(most)  # a gap is raised there as it would be here
        page, fitting = fitting_page(self._writer, [(one.event, one.header, one.deadline) for one in handed])
        if fitting < len(handed):
            seat.give_back([one.number for one in handed[fitting:]])
            handed = handed[:fitting]
        member.is_answered(question, [one.number for one in handed])
        failure = member.shared.failure
        (spots,), epochs = to_wire([spot_of(one) for one in handed])
        return Handout(
            page,
            [(spot, one.attempt) for spot, one in zip(spots, handed, strict=True)],
            seat.wait_seconds(),
            ended=not handed and seat.ended(),
            failure=None if failure is None or handed else str(failure),
            epochs=epochs,
        )

    def _wait(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        member = self._members.get((station, read_number(body)))
        if member is None:
            reply(None)
        else:
            member.wait(reply)

    def _settle(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = read_settle(body)
        member = self._members.get((station, ask.number))
        if member is None:
            reply(None)
        elif (number := member.number_of(Spot(*ask.spot, ask.epoch))) is None:
            reply(False)
        elif ask.extend is not None:
            reply(member.seat.extend(number, min(max(0.0, ask.extend), 1e9)))
        elif ask.delay is None:
            member.seat.ack_later(number, reply)
        else:
            member.seat.nak(number, min(max(REJECTED, ask.delay), 1e9), ask.reason)
            reply(True)

    def _leave(self, station: int, body: msgspec.Raw, reply: Reply) -> None:
        ask = read_leave(body)
        member = self._members.pop((station, ask.number), None)
        if member is not None:
            settled, unseen, withdrawn = from_wire(ask.epochs, ask.settled, ask.unseen, ask.withdrawn)
            member.settle(settled)
            member.withdraw(withdrawn)
            member.seat.give_back(member.numbers_of(unseen))
            member.leave()
        reply(None)


def _acking(ask: Join) -> Acking:
    unknown = ask.acking.keys() - Acking.__annotations__.keys()
    if unknown:
        raise NotPossible(ask.channel, f"the keeper does not know {min(unknown)[:40]}=: is it older?")
    return cast("Acking", ask.acking)  # values are checked where terms are agreed
