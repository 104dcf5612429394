"""A small ring with many readers against a list that remembers everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from heliograph.errors import RingFull
from tests.ring_support import PORTS, needs_rings, new_folder
from tests.support import examples

if TYPE_CHECKING:
    from heliograph.ring import Pinned, RingReader

SLOTS = 32
sizes = st.one_of(st.integers(0, 40), st.integers(0, 900))


class Model:
    """What a reader must be given next, and what it holds."""

    def __init__(self, reader: RingReader, begins_at: int) -> None:
        self.reader = reader
        self.begins_at = begins_at
        self.next = begins_at
        self.pins: list[tuple[Pinned, list[bytes]]] = []


class RingAgainstAList(RuleBasedStateMachine):
    """Time never passes: every call has no time to wait, and leases do not end."""

    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.folder = new_folder()
        self.writer = self.folder.create(1, 0, PORTS, slots=SLOTS, lease=None, wait="block")
        (self.name,) = self.folder.rings()
        self.events: list[bytes] = []
        self.open: list[Model] = []

    def event(self, size: int) -> bytes:
        stamp = len(self.events).to_bytes(4, "little")
        return (stamp * (size // 4 + 1))[:size]

    def nobody_is_behind(self) -> bool:
        return all(
            model.next == len(self.events) and not model.pins
            for model in self.open
            if model.reader.is_reliable
        )

    @rule(target=readers, reliable=st.booleans())
    def join(self, reliable: bool) -> Model:
        reader = self.folder.open(self.name, PORTS, reliable=reliable, wait="block")
        model = Model(reader, len(self.events))
        assert reader.next_sequence == len(self.events)
        self.open.append(model)
        return model

    @rule(size=sizes)
    def append(self, size: int) -> None:
        event = self.event(size)
        try:
            sequence = self.writer.append(event, timeout=0)
        except RingFull:
            assert not self.nobody_is_behind()
        else:
            assert sequence == len(self.events)
            self.events.append(event)

    @rule(size=sizes)
    def lend(self, size: int) -> None:
        event = self.event(size)
        try:
            with self.writer.lend(size, timeout=0) as room:
                room[:] = event
        except RingFull:
            assert not self.nobody_is_behind()
        else:
            self.events.append(event)

    @rule(size=sizes)
    def put(self, size: int) -> None:
        event = self.event(size)
        if self.writer.put(event):
            self.events.append(event)

    @rule(sizes=st.lists(sizes, max_size=12))
    def append_many(self, sizes: list[int]) -> None:
        batch = [self.event(size) for size in sizes]
        try:
            self.writer.append_many(batch, timeout=0)
        except RingFull as full:
            self.events += batch[: full.appended]
        else:
            self.events += batch

    @rule(model=readers, limit=st.integers(1, 10))
    def read(self, model: Model, limit: int) -> None:
        if model not in self.open:
            return
        got = model.reader.read_many(limit, 0)
        self.check(model, got, model.reader.next_sequence - len(got))

    @rule(model=readers)
    def pin(self, model: Model) -> None:
        if model not in self.open or not model.reader.is_reliable:
            return
        pinned = model.reader.pin(0)
        if pinned is None:
            assert model.next == len(self.events)
            return
        got = [bytes(part) for part in pinned.parts]
        model.pins.append((pinned, got))
        self.check(model, got, pinned.sequence)

    def check(self, model: Model, got: list[bytes], first: int) -> None:
        stats = model.reader.stats()
        if model.reader.is_reliable:
            assert stats.lost == 0
            assert first == model.next
        assert got == self.events[first : first + len(got)]
        model.next = first + len(got)
        assert stats.received + stats.lost == model.reader.next_sequence - model.begins_at

    @rule(model=readers, at=st.integers(0, 5))
    def release(self, model: Model, at: int) -> None:
        if model in self.open and model.pins:
            pinned, _ = model.pins.pop(at % len(model.pins))
            pinned.release()

    @rule(model=consumes(readers))
    def leave(self, model: Model) -> None:
        for pinned, _ in model.pins:
            pinned.release()
        model.reader.close()
        self.open.remove(model)

    @invariant()
    def what_is_pinned_has_not_changed(self) -> None:
        for model in self.open:
            for pinned, expected in model.pins:
                assert [bytes(part) for part in pinned.parts] == expected

    def teardown(self) -> None:
        for model in list(self.open):
            self.drain(model)
            self.leave(model)
        self.writer.close()
        self.folder.path.rmdir()

    def drain(self, model: Model) -> None:
        while got := model.reader.read_many(100, 0):
            self.check(model, got, model.reader.next_sequence - len(got))
        assert model.reader.next_sequence == len(self.events)
        stats = model.reader.stats()
        assert stats.received + stats.lost == len(self.events) - model.begins_at


@needs_rings
def test_a_ring_gives_what_a_list_remembers() -> None:
    run_state_machine_as_test(
        RingAgainstAList, settings=settings(max_examples=examples(150), stateful_step_count=40)
    )
