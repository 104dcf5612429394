"""Matches that tasks of Spark find, each from some of the keys: those that the callback was given."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.codec.dynamic.json import anything_to_json
from heliograph.codec.dynamic.plain import ValuePath
from heliograph.patterns.recording import INPUTS, Input
from heliograph.patterns.replay import to_text
from heliograph.spark.patterns.match_task import ROW, Finder, landmarks
from heliograph.spark.patterns.recording import lives_of
from heliograph.testing import Rig
from tests.property.test_replayable import KEYS, PATTERNS, STEPS, Shop, Step
from tests.support import examples


def record(shop: Shop) -> list[dict[str, Any]]:
    """The rows as Spark has them."""
    inputs = shop.rig.station.channel(INPUTS + "watch", Input)
    with inputs.consumer(start="earliest", until="now") as consumer:
        return [
            {
                "record": delivery.header.partition,
                "position": delivery.header.offset,
                **{name: getattr(delivery.event, name) for name in ROW[2:-1]},
                "key": _json(delivery.event.key),
            }
            for delivery in consumer.deliveries()
        ]


def _json(key: Any) -> str | None:
    return None if key is None else anything_to_json(key, ValuePath("key"))


def batches(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows[at : at + size]) for at in range(0, len(rows), size)]


class Row:
    """A row with attributes, as Spark gives it to the driver."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


@example("both", [("order", 0.0), ("order", 1.0), ("payment", 0.0)], 3, 7)  # which crowds out
@example("watched", [("order", 0.0), ("advance", 3.0), ("restart", 0.0), ("order", 1.0)], 1, 7)
@given(st.sampled_from(sorted(PATTERNS)), STEPS, st.integers(1, 4), st.integers(1, 7))
@settings(max_examples=examples(40), deadline=None)
def test_tasks_that_each_have_some_keys_find_what_the_callback_was_given(
    kind: str, steps: list[Step], tasks: int, size: int
) -> None:
    seen: list[Any] = []
    shop = Shop(Rig(), kind, seen).run(steps)
    rows = record(shop)
    marks = [Row(values) for piece in landmarks(iter(batches(rows, size))) for values in piece.to_pylist()]
    keyed = kind != "ticked"
    finder = Finder(to_text(shop.pattern), "i64" if keyed else "", lives_of(marks))
    wanted = [row for row in rows if row["kind"] in ("event", "evict" if keyed else "connect")]
    found: list[dict[str, Any]] = []
    for task in range(tasks) if keyed else [0]:
        mine = [row for row in wanted if not keyed or hash(row["key"]) % tasks == task]
        shipped: Finder = pickle.loads(pickle.dumps(finder))
        for piece in shipped(iter(batches(mine, size))):
            assert piece.schema == finder.schema
            found += piece.to_pylist()
    found.sort(key=lambda row: (row["connect"], row["at_ns"], row["number"]))
    for key in range(KEYS) if keyed else [None]:
        live = [(match.at, match.missing) for match in seen if match.key == key]
        assert [(row["at_ns"], tuple(row["missing"])) for row in found if row["key"] == key] == live
    assert len(found) == len(seen)
    shop.rig.station.close()
