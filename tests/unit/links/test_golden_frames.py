"""Frames of the link protocol, byte by byte: whoever changes them steps its version.

A new version adds a row of its own; rows of versions that are still spoken stay as they are.
"""

from __future__ import annotations

import msgspec

import heliograph as hg
from heliograph.links.session import messages as m
from heliograph.links.session.wire_events import EventWriter
from heliograph.links.streams.layout import PIECE_BYTES, derivation_of, events_put, heartbeat_put, pieces_of
from heliograph.model.event import Header


class Note(hg.Event, name="golden.note", key="n"):
    n: int


class StoppedClock:
    def monotonic_ns(self) -> int:
        return 1_000

    def time_ns(self) -> int:
        return 2_000


def frames() -> dict[str, str]:
    """One of each kind, in hexadecimal digits."""
    lanes = (1, 2, 3, 4, 5, 6)
    writer = EventWriter(StoppedClock())
    header = Header("c", "golden.note", "s", 1, 7, 123, hg.format_of(Note).id, 3, (5,), 9)
    _, plain = writer.run(Note, [(Note(5), header, 0)])
    _, mortal = writer.run(Note, [(Note(5), header, 1_500)])
    _, columns = writer.run(Note, [(Note(5), header, 0)] * 4)
    made = {
        "hello": m.hello_frame(
            m.Hello(
                *(1, "n", "d", 2, 3, 4, lanes, True, True),
                secret=b"s",
                oldest=m.OLDEST,
                streams=True,
                derives=True,
            )
        ),
        "state": m.state_frame(m.State(lanes, lanes, ((1, 2, 3),), True, 1_000)),
        "bye": m.bye_frame("x"),
        "record": m.record_frame(3, 8, 7, plain),
        "record with a lifespan": m.record_frame(3, 8, 7, mortal),
        "columns": m.run_bytes(m.UNIFORM, 7, 4, columns),
        "messages": m.encode([m.ChannelGone("c"), m.Flow("c", True), m.Ask(1, "t", msgspec.Raw(b"\xc0"))]),
    }
    digest = derivation_of([m.Want("golden.note", b"f")])
    made["streams"] = m.encode(
        [
            m.StreamBegin(1, "c", digest, lanes, 2),
            m.StreamEnd(2, lanes),
            m.StreamAck(1, lanes),
            m.StreamLost(1, 3, 4, 5),
        ]
    )
    made["put"] = events_put(1, 9, 1, m.run_bytes(m.RECORDS, 7, 1, plain))
    made["piece"] = pieces_of(1, 9, 1, b"x" * (PIECE_BYTES + 1))[1]
    made["heartbeat"] = heartbeat_put(1, 9)
    return {name: frame.hex() for name, frame in made.items()}


GOLDEN: dict[int, dict[str, str]] = {
    4: {
        "hello": "0148454c494f04009b01a16ea16402030496010203040506c3c3c4017304",
        "state": "039596010203040506960102030405069193010203c3cd03e8",
        "bye": "0478",
        "record": (
            "020300000100000008000000000000000007000000010000003500000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0c000c0c0c200"
        ),
        "record with a lifespan": (
            "020300000100000008000000000000000007000000010000003900000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0cd01f400c0c0c2cd03e8"
        ),
        "columns": "0107000000040000001d0000009ba173010300c0940707070794090909097bc0c0949105910591059105",
        "messages": "9392a4676f6e65a16393a4666c6f77a163c394a361736b01a174c0",
    },
    5: {
        "hello": "0148454c494f05009c01a16ea16402030496010203040506c3c3c4017304c3",
        "state": "039596010203040506960102030405069193010203c3cd03e8",
        "bye": "0478",
        "record": (
            "020300000100000008000000000000000007000000010000003500000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0c000c0c0c200"
        ),
        "record with a lifespan": (
            "020300000100000008000000000000000007000000010000003900000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0cd01f400c0c0c2cd03e8"
        ),
        "columns": "0107000000040000001d0000009ba173010300c0940707070794090909097bc0c0949105910591059105",
        "messages": "9392a4676f6e65a16393a4666c6f77a163c394a361736b01a174c0",
        "streams": (
            "9396ac73747265616d2d626567696e01a163d92031633862393436343965353265303466643064313734333664"
            "3862396337636496010203040506"
            "0293aa73747265616d2d656e64029601020304050693aa73747265616d2d61636b0196010203040506"
        ),
        "put": (
            "01000000010000000100000009000000000000000007000000010000003500000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0c000c0c0c200"
        ),
        "piece": "02000000010000000100000009000000000000000100080000000000000008000000000078",
        "heartbeat": "0300000001000000000000000900000000000000",
    },
    6: {
        "hello": "0148454c494f06009d01a16ea16402030496010203040506c3c3c4017304c3c3",
        "state": "039596010203040506960102030405069193010203c3cd03e8",
        "bye": "0478",
        "record": (
            "020300000100000008000000000000000007000000010000003500000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0c000c0c0c200"
        ),
        "record with a lifespan": (
            "020300000100000008000000000000000007000000010000003900000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0cd01f400c0c0c2cd03e8"
        ),
        "columns": "0107000000040000001d0000009ba173010300c0940707070794090909097bc0c0949105910591059105",
        "messages": "9392a4676f6e65a16393a4666c6f77a163c394a361736b01a174c0",
        "streams": (
            "9496ac73747265616d2d626567696e01a163d92031633862393436343965353265303466643064313734333664"
            "38623963376364960102030405060293aa73747265616d2d656e64029601020304050693aa73747265616d2d61"
            "636b019601020304050695ab73747265616d2d6c6f737401030405"
        ),
        "put": (
            "01000000010000000100000009000000000000000007000000010000003500000091939105dc0012a163ab676f6c64656e"
            "2e6e6f7465a17301077bc40c0ccd48906184ea0d074a848203910509c0c0c0c000c0c0c200"
        ),
        "piece": "02000000010000000100000009000000000000000100080000000000000008000000000078",
        "heartbeat": "0300000001000000000000000900000000000000",
    },
}


def test_frames_of_this_version_look_as_they_did() -> None:
    assert frames() == GOLDEN[m.VERSION]


def test_a_hello_of_the_version_before_is_read_and_takes_no_streams() -> None:
    hello = m.read_hello(memoryview(bytes.fromhex(GOLDEN[4]["hello"])), "peer")
    assert (hello.station, hello.oldest, hello.streams) == (1, 4, False)


def test_a_hello_of_version_five_takes_streams_and_derives_nothing() -> None:
    hello = m.read_hello(memoryview(bytes.fromhex(GOLDEN[5]["hello"])), "peer")
    assert (hello.station, hello.oldest, hello.streams, hello.derives) == (1, 4, True, False)
