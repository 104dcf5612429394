"""What becomes of a push that another station was asked to keep, and of pages that are read there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from heliograph.errors import AppendTimeout, IncompatibleFormats, QueryFailed
from heliograph.links.history.client import RemotePartition, RemoteReceipt, ToKeepers
from heliograph.links.history.pages import to_page
from heliograph.links.session.rpc import GONE
from heliograph.links.session.wire_events import EventWriter, WireEventReader
from heliograph.model.event import Header, info_of
from heliograph.runtime.ports import Ports, SystemClock, SystemRandom, ThreadTasks
from tests.e2e.event_versions import ExtendedNew, ExtendedOld, NewMode

PORTS = Ports(SystemClock(), ThreadTasks(), SystemRandom(), None)


def test_a_push_whose_keeper_has_gone_says_that_and_not_how_long_it_was_waited_for() -> None:
    receipt = RemoteReceipt("b3f1", "radar:1:7", PORTS)
    receipt.came(QueryFailed("station 0000000000000007", GONE))
    with pytest.raises(AppendTimeout) as caught:
        receipt.result()
    said = str(caught.value)
    assert said.startswith(
        "the keeper, station 0000000000000007, has gone before it said whether event radar:1:7 "
    )
    assert "unknown" in said
    assert "within" not in said
    assert caught.value.event == "radar:1:7"


def page_of(offset: int) -> msgspec.Raw:
    """What a keeper answers with one event."""
    info = info_of(ExtendedNew)
    header = Header("x", info.name, "s", 1, offset, 0, info.format.id, 3, (), 1, 1, "p", offset)
    page = to_page(EventWriter(SystemClock()), [(ExtendedNew(offset, NewMode.B), header, 0)], offset + 1)
    return msgspec.Raw(msgspec.msgpack.encode(page))


def test_a_page_that_cannot_be_read_is_refused_though_another_one_is_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = {0: page_of(0), 1: page_of(1)}
    questions: Any = SimpleNamespace(ask=lambda _link, _topic, ask, _limit: pages[ask.start])
    link: Any = SimpleNamespace(name="keeper")
    way = ToKeepers(lambda *_: link, questions, EventWriter(SystemClock()), PORTS)
    partition = RemotePartition("x", "p", lambda: (ExtendedOld,), way, "default")
    is_first, is_second = Event(), Event()
    read = WireEventReader.read

    def read_slowly(stream: WireEventReader, *args: Any, **options: Any) -> Any:
        items = read(stream, *args, **options)
        if is_first.is_set():
            is_second.set()
        else:
            is_first.set()
            is_second.wait(0.2)  # the other one comes between, unless it must not
        return items

    monkeypatch.setattr(WireEventReader, "read", read_slowly)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(partition.read, 0, 1)
        assert is_first.wait(20)
        with pytest.raises(IncompatibleFormats):
            partition.read(1, 1)
        with pytest.raises(IncompatibleFormats):
            first.result(20)  # else it would go on behind what it cannot read
