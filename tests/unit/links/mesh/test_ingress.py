"""What came in over a link when the channel's session is over."""

from __future__ import annotations

import heliograph as hg
from heliograph.links.mesh.ingress import Ingress
from heliograph.model.event import Header
from tests.e2e.link_support import wait_until


class Note(hg.Event, name="arrivals.note"):
    n: int


def header(sequence: int) -> Header:
    return Header("c", "arrivals.note", "s", 1, sequence, 0, b"", 3, (), 1)


def test_what_was_put_aside_when_the_session_ends_is_counted_as_left_out() -> None:
    left_out: list[int] = []
    with hg.Station() as station:
        notes = station.channel("c", Note, qos=hg.QoS(queue=2))
        notes.consumer()
        arrivals = Ingress(
            notes,
            "peer",
            station.ports.tasks,
            lambda _, __: None,
            lambda _: None,
            on_left_out=left_out.append,
        )
        arrivals.add([(Note(n), header(n), 0) for n in range(5)])
        assert list(arrivals.aside)
        arrivals.close(is_last=False)
        # Whoever waits for room for them counts what it has in hand, once it sees that the session is over.
        assert wait_until(lambda: sum(left_out) == 3)
        assert (arrivals.received, arrivals.refused) == (2, 3)
