"""Instances as readers see them, against a small model: writers write, dispose and leave, readers join late.

The model is the state chart of DDS 1.4, 2.2.2.5.1.3 (instance states, view states, generations) and knows of
a writer that is transient-local that it keeps the last samples of each instance it is registered for.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import heliograph as hg
from heliograph.facades import dcps
from tests.support import examples

QUIET: Any = lambda *_: None  # noqa: E731 - pairs that do not match are looked at in the statuses


class Plot(hg.Event, name="dcps.plot", key="id"):
    id: int
    n: int = 0


KEYS = st.integers(0, 2)
DEPTHS = st.sampled_from([1, 2, None])


class ModelWriter:
    def __init__(self, writer: Any, number: int, *, keeps: bool, depth: int | None, disposes: bool) -> None:
        self.writer = writer
        self.number = number
        self.keeps = keeps
        self.depth = depth
        self.disposes = disposes
        self.known: set[int] = set()
        self.kept: dict[int, list[tuple[int, str, int]]] = {}
        """What a late joiner gets of each key: a place in the order of all, a change and a value."""

    def keep(self, place: int, change: str, key: int, value: int) -> None:
        if not self.keeps:
            return
        samples = [one for one in self.kept.get(key, []) if one[1] == "write"]
        if change == "write":
            samples.append((place, change, value))
            self.kept[key] = samples if self.depth is None else samples[-self.depth :]
        elif change == "dispose" or (change == "unregister" and not self.is_disposed(key)):
            self.kept[key] = [*samples, (place, change, value)]
        else:
            self.kept.pop(key, None)

    def is_disposed(self, key: int) -> bool:
        return any(change == "dispose" for _, change, _ in self.kept.get(key, []))


class ModelSample:
    def __init__(self, value: int, instance: ModelInstance, *, valid: bool) -> None:
        self.value = value
        self.valid = valid
        self.is_read = False
        self.generation = (instance.disposed, instance.no_writers)


class ModelInstance:
    def __init__(self) -> None:
        self.state = "alive"
        self.writers: set[int] = set()
        self.samples: list[ModelSample] = []
        self.is_new = True
        self.disposed = self.no_writers = 0


class ModelReader:
    def __init__(self, reader: Any, *, keeps: bool, depth: int | None) -> None:
        self.reader = reader
        self.keeps = keeps
        self.depth = depth
        self.instances: dict[int, ModelInstance] = {}
        self.has_news = False

    def accept(self, change: str, key: int, writer: int, value: int) -> None:
        if change == "over":
            self.accept("dispose", key, writer, value)
            self.accept("unregister", key, writer, value)
            return
        instance = self.instances.get(key)
        if instance is None:
            if change == "unregister":
                return
            instance = self.instances[key] = ModelInstance()
        if change == "unregister":
            self.leave(instance, writer, value)
            return
        instance.writers.add(writer)
        if change == "dispose":
            if instance.state != "disposed":
                self.tell(instance, "disposed", value)
            return
        if instance.state != "alive":
            instance.disposed += instance.state == "disposed"
            instance.no_writers += instance.state == "no-writers"
            instance.state, instance.is_new = "alive", True
        instance.samples.append(ModelSample(value, instance, valid=True))
        valid = [one for one in instance.samples if one.valid]
        if self.depth is not None and len(valid) > self.depth:
            instance.samples.remove(valid[0])
        self.has_news = True

    def leave(self, instance: ModelInstance, writer: int, value: int) -> None:
        if writer in instance.writers:
            instance.writers.remove(writer)
            if not instance.writers and instance.state == "alive":
                self.tell(instance, "no-writers", value)

    def tell(self, instance: ModelInstance, state: str, value: int) -> None:
        instance.state = state
        instance.samples = [one for one in instance.samples if one.valid]
        instance.samples.append(ModelSample(value, instance, valid=False))
        self.has_news = True


class Instances(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.station = hg.Station(on_error=QUIET)
        self.factory = dcps.DomainParticipantFactory.get_instance()
        self.participant = self.factory.create_participant(0, station=self.station)
        self.topic = self.participant.create_topic("air.plots", Plot)
        self.publisher = self.participant.create_publisher()
        self.subscriber = self.participant.create_subscriber()
        self.writers: list[ModelWriter] = []
        self.readers: list[ModelReader] = []
        self.places = 0

    def teardown(self) -> None:
        self.participant.delete_contained_entities()
        self.factory.delete_participant(self.participant)
        self.station.close()

    # Who comes and goes

    @precondition(lambda self: len(self.writers) < 2)
    @rule(keeps=st.booleans(), depth=DEPTHS, disposes=st.booleans())
    def create_writer(self, keeps: bool, depth: int | None, disposes: bool) -> None:
        qos = dcps.DataWriterQos(
            durability=dcps.Durability("transient-local" if keeps else "volatile"),
            history=dcps.History("keep-all") if depth is None else dcps.History(depth=depth),
            writer_data_lifecycle=dcps.WriterDataLifecycle(disposes),
        )
        self.places += 1
        writer = self.publisher.create_datawriter(self.topic, qos)
        self.writers.append(ModelWriter(writer, self.places, keeps=keeps, depth=depth, disposes=disposes))

    @precondition(lambda self: len(self.readers) < 2)
    @rule(keeps=st.booleans(), depth=DEPTHS)
    def create_reader(self, keeps: bool, depth: int | None) -> None:
        qos = dcps.DataReaderQos(
            durability=dcps.Durability("transient-local" if keeps else "volatile"),
            history=dcps.History("keep-all") if depth is None else dcps.History(depth=depth),
            reliability=dcps.Reliability("reliable"),
        )
        reader = ModelReader(self.subscriber.create_datareader(self.topic, qos), keeps=keeps, depth=depth)
        self.readers.append(reader)
        if keeps:
            self.join_late(reader)

    def join_late(self, reader: ModelReader) -> None:
        """Writers of one depth share a channel, whose order is that of the writing."""
        channels: dict[int | None, list[tuple[int, int, ModelWriter, str, int]]] = {}
        for writer in self.writers:
            if writer.keeps:
                kept = channels.setdefault(writer.depth, [])
                kept += [(one[0], key, writer, *one[1:]) for key, all_ in writer.kept.items() for one in all_]
        for kept in channels.values():
            for _, key, writer, change, value in sorted(kept, key=lambda one: one[0]):
                reader.accept(change, key, writer.number, value)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def delete_reader(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.subscriber.delete_datareader(reader.reader)
        self.readers.remove(reader)

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def delete_writer(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(self.writers))
        if writer.disposes:
            for key in writer.known:
                self.change(writer, "dispose", key, 0)
        self.publisher.delete_datawriter(writer.writer)
        self.writers.remove(writer)
        for reader in self.heard_by(writer):
            for instance in reader.instances.values():
                reader.leave(instance, writer.number, 0)

    def heard_by(self, writer: ModelWriter) -> list[ModelReader]:
        return [reader for reader in self.readers if writer.keeps or not reader.keeps]

    # What writers do

    def change(self, writer: ModelWriter, change: str, key: int, value: int) -> None:
        self.places += 1
        writer.keep(self.places, change, key, value)
        for reader in self.heard_by(writer):
            reader.accept(change, key, writer.number, value)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), key=KEYS)
    def write(self, data: st.DataObject, key: int) -> None:
        writer = data.draw(st.sampled_from(self.writers))
        writer.writer.write(Plot(key, self.places + 1))
        writer.known.add(key)
        self.change(writer, "write", key, self.places + 1)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), key=KEYS)
    def dispose(self, data: st.DataObject, key: int) -> None:
        writer = data.draw(st.sampled_from(self.writers))
        writer.writer.dispose(Plot(key))
        writer.known.add(key)
        self.change(writer, "dispose", key, 0)

    @precondition(lambda self: any(writer.known for writer in self.writers))
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from([one for one in self.writers if one.known]))
        key = data.draw(st.sampled_from(sorted(writer.known)))
        writer.writer.unregister_instance(Plot(key))
        writer.known.remove(key)
        self.change(writer, "over" if writer.disposes else "unregister", key, 0)

    # What readers see

    @precondition(lambda self: self.readers)
    @rule(
        data=st.data(),
        take=st.booleans(),
        samples=st.sets(st.sampled_from(["read", "not-read"]), min_size=1),
        views=st.sets(st.sampled_from(["new", "not-new"]), min_size=1),
        states=st.sets(st.sampled_from(["alive", "disposed", "no-writers"]), min_size=1),
        key=st.none() | KEYS,
    )
    def get(
        self, *, data: st.DataObject, take: bool, samples: Any, views: Any, states: Any, key: int | None
    ) -> None:
        model = data.draw(st.sampled_from(self.readers))
        reader = model.reader
        wanted = {"sample_states": samples, "view_states": views, "instance_states": states}
        if key is None:
            found = (reader.take if take else reader.read)(**wanted)
        else:
            handle = reader.lookup_instance(Plot(key))
            assert bool(handle) == (key in model.instances)
            if not handle:
                return
            found = (reader.take_instance if take else reader.read_instance)(handle, **wanted)
        expected: dict[int, list[tuple[Any, ...]]] = {}
        chosen: list[tuple[ModelInstance, ModelSample]] = []
        for one, instance in model.instances.items():
            view = "new" if instance.is_new else "not-new"
            if key not in (None, one) or view not in views or instance.state not in states:
                continue
            here = [s for s in instance.samples if ("read" if s.is_read else "not-read") in samples]
            chosen += [(instance, sample) for sample in here]
            if here:
                expected[one] = [self.seen(instance, here, place) for place in range(len(here))]
        got: dict[int, list[tuple[Any, ...]]] = {}
        for sample in found:
            info = sample.info
            got.setdefault(sample.data.id, []).append(
                (
                    sample.data.n if info.valid_data else None,
                    info.sample_state,
                    info.view_state,
                    info.instance_state,
                    (info.disposed_generation_count, info.no_writers_generation_count),
                    (info.sample_rank, info.generation_rank, info.absolute_generation_rank),
                )
            )
        assert got == expected
        for instance, model_sample in chosen:
            model_sample.is_read = True
            instance.is_new = False
            if take:
                instance.samples.remove(model_sample)
        model.has_news = False

    @staticmethod
    def seen(instance: ModelInstance, here: list[ModelSample], place: int) -> tuple[Any, ...]:
        sample = here[place]
        newest = instance.disposed + instance.no_writers
        return (
            sample.value if sample.valid else None,
            "read" if sample.is_read else "not-read",
            "new" if instance.is_new else "not-new",
            instance.state,
            sample.generation,
            (
                len(here) - 1 - place,
                sum(here[-1].generation) - sum(sample.generation),
                newest - sum(sample.generation),
            ),
        )

    @invariant()
    def statuses_are_those_of_the_model(self) -> None:
        for model in self.readers:
            status = model.reader.status
            assert ("data_available" in status.changed) == model.has_news
            assert status.peek("sample_lost").total_count == 0
            assert status.peek("sample_rejected").total_count == 0
            heard = [one for one in self.writers if one.keeps or not model.keeps]
            assert status.peek("subscription_matched").current_count == len(heard)
            assert status.peek("liveliness_changed").alive_count == len(heard)
        for writer in self.writers:
            found = len(self.heard_by(writer))
            assert writer.writer.status.peek("publication_matched").current_count == found


TestInstances = Instances.TestCase
TestInstances.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
