"""What members of a group say to its coordinator, as bytes: earlier versions of it are understood."""

from __future__ import annotations

import msgspec

from heliograph.channel.ack_protocol import Spot
from heliograph.links.groups.client import (
    Leave,
    Settle,
    Take,
    from_wire,
    read_leave,
    read_settle,
    read_take,
    to_wire,
)

encode = msgspec.msgpack.Encoder().encode

SPOTS = [Spot("p", 1, b"a"), Spot("p", 2, b"b"), Spot("q", 1, b"")]


def test_spots_cross_the_wire_with_the_epochs_of_their_histories() -> None:
    (settled, withdrawn), epochs = to_wire(SPOTS[:2], SPOTS[2:])
    ask = read_take(encode(Take(1, 0, settled, withdrawn, epochs=epochs)))
    assert from_wire(ask.epochs, ask.settled, ask.withdrawn) == [SPOTS[:2], SPOTS[2:]]


def test_a_member_that_knows_of_no_epochs_is_understood() -> None:
    take = read_take(bytes.fromhex("96010091 92a17001 91 92a17002 0304".replace(" ", "")))
    assert (take.settled, take.withdrawn, take.asked, take.heard) == ([("p", 1)], [("p", 2)], 3, 4)
    assert from_wire(take.epochs, take.settled) == [[Spot("p", 1)]]
    settle = read_settle(bytes.fromhex("9301 92a17001 c0".replace(" ", "")))
    assert (settle.spot, settle.delay, settle.epoch) == (("p", 1), None, b"")
    leave = read_leave(bytes.fromhex("9401 9192a17001 90 90".replace(" ", "")))
    assert (leave.settled, leave.epochs) == ([("p", 1)], [])


def test_a_coordinator_that_knows_of_no_epochs_finds_all_else_where_it_was() -> None:
    """It leaves out what stands behind the fields that it knows."""
    (settled,), epochs = to_wire(SPOTS[:1])
    assert (
        encode(Take(1, 0, settled, [("p", 2)], 3, 4, epochs))
        .hex()
        .startswith("9701009192a170019192a170020304")
    )
    assert encode(Settle(1, settled[0], None, epochs[0])).hex().startswith("960192a17001c0")
    assert encode(Leave(1, settled, [], [], epochs)).hex().startswith("95019192a170019090")
