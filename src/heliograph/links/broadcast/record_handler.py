"""Hands one record of a broadcast ring to the channel of this station.

An event is decoded to memory of its own. A large one lies in the ring until then (`RingReader.holds`). Where
all that it is for are inline callbacks that ask for views (`subscribe(inline=True, views=True)`), its arrays
are shown to them where they lie. The ring is let go of when they have returned. What a callback has kept of
them cannot be taken away from it, but that it has is seen, and said.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from heliograph.errors import DecodeError
from heliograph.links.broadcast.large_events import decode_large
from heliograph.links.session.wire_events import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.mesh.ingress import Ingress
    from heliograph.links.session.wire_events import Lone, WireEventReader
    from heliograph.ring import RingReader

log = logging.getLogger(__name__)

Take: TypeAlias = "Callable[[bytes | memoryview, int, bool], None]"
"""Of a lone event, until when inline callbacks may take, and whether it is later than that."""
Read: TypeAlias = "Callable[[bytes | memoryview], Lone]"

KEPT: Final = (
    "an array of channel %s is kept beyond the call of a callback that asked for views, by that or with an "
    "error that it raised; it will change: keep a copy() of it, and of the error only its text"
)

UNREADABLE: Final = (ValueError, RecursionError, DecodeError)
"""What reading an event raises that cannot be one here."""


def taker(stream: WireEventReader, arrivals: Ingress, read: Read) -> Take:
    """What takes lone events of a stream into this station's channel as it is now."""
    aside, call, header_of = arrivals.aside, arrivals.intake.call, stream.header_of

    def take(data: bytes | memoryview, until: int, is_late: bool) -> None:
        try:
            lone = read(data)
        except UNREADABLE as error:
            stream.left_out(error)
            arrivals.unreadable += 1
            arrivals.channel.neighbours.unreadable(stream.wire.id, None, named(error))
            return
        if aside or is_late or not call(lone[0], header_of, lone):
            arrivals.add(((lone[0], header_of(lone), 0),), until)

    return take


def copying_taker(stream: WireEventReader, arrivals: Ingress, *, apart: bool) -> Take | None:
    """What takes lone events of a stream, or large ones, from memory that is used again; None: it cannot."""
    read = _reader(stream, arrivals, apart=apart)
    return None if read is None else taker(stream, arrivals, read)


def held_taker(stream: WireEventReader, arrivals: Ingress, ring: RingReader, *, apart: bool) -> Take | None:
    """The same for what lies in the ring: let go of, and known to be whole, before anybody is given it."""
    read = _reader(stream, arrivals, apart=apart)
    if read is None:
        return None

    def read_and_let_go(data: bytes | memoryview) -> Lone:
        try:
            return read(data)
        finally:  # whatever it looked like: if it was written over, that says why
            ring.let_go()

    copying = taker(stream, arrivals, read_and_let_go)
    # A supervised station says of each event what became of it, by the other ways.
    can_show = apart and arrivals.channel.settling is None
    return _showing_taker(stream, arrivals, ring, copying) if can_show else copying


def _showing_taker(stream: WireEventReader, arrivals: Ingress, ring: RingReader, copying: Take) -> Take:
    """What shows large events where they lie, as far as all consent; others are left to what copies them."""
    aside, intake, header_of = arrivals.aside, arrivals.intake, stream.header_of
    read = stream.apart_reader(arrivals.channel.types, arrivals.channel.qos.missing)
    assert read is not None
    has_said = False

    def take(data: bytes | memoryview, until: int, is_late: bool) -> None:
        if aside or is_late or not (intake.shows(stream.cls) and show(cast("memoryview", data))):
            copying(data, until, is_late)

    def show(data: memoryview) -> bool:
        nonlocal has_said
        try:
            said, body = decode_large(data)
            lone: Any = read(said, body)
        except UNREADABLE:
            return False  # what copies it says so
        is_shown = intake.show(lone[0], header_of, lone)
        lone = None
        if is_shown:
            # Nothing of this room may be left that views it, so that what is left is another's.
            for view in (said, body, data):
                view.release()
            if ring.let_go() and not has_said:
                has_said = True
                log.error(KEPT, arrivals.channel.name)
        return is_shown

    return take


def _reader(stream: WireEventReader, arrivals: Ingress, *, apart: bool) -> Read | None:
    """What reads an event and keeps nothing of the bytes."""
    types, missing = arrivals.channel.types, arrivals.channel.qos.missing
    if not apart:
        return stream.lone_reader(types, missing)
    read = stream.apart_reader(types, missing)
    if read is None:
        return None

    def read_copied(data: bytes | memoryview) -> Lone:
        said, body = decode_large(memoryview(data))
        return read(said, bytes(body))

    return read_copied
