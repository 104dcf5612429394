"""Events to bytes and back: encoders and decoders made once per class or per pair of wire format and class.

    body = encoder(Track).encode(track)                # for an event that `validate` has passed
    track = decoder(format_of(Track), Track)(body)
    mapping = mapping_decoder(wire)(body)              # for a program that has no class

The receiver converts: bodies travel as their sender laid them out, and the reader builds, once per
wire format, a function that converts byte order, widths and offsets, skips what it does not know and fills in
defaults. Whatever the bytes, a decoder returns a whole event or raises DecodeError with a field's path.

    conversion_plan   which wire field goes where, decided once
    packed            msgpack bodies            native    C-like bodies
    interpret         the same without generated code: baseline, oracle, and finder of paths
    failures          from what went wrong to an error with a path
    containers        how many lists, maps and records one body may hold
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from heliograph.codec import native, packed
from heliograph.codec.conversion_plan import make_plan
from heliograph.codec.failures import explainer
from heliograph.model.event import Event, info_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.model.compatibility import MissingPolicy
    from heliograph.model.formats import Format

Buffer: TypeAlias = bytes | bytearray | memoryview
E = TypeVar("E", bound=Event)


class Encoder:
    """Writes events of one class. They must have passed `validate`: an encoder checks nothing."""

    __slots__ = ("encode", "encode_parts", "format")

    def __init__(self, cls: type[Event]) -> None:
        self.format: Format = info_of(cls).format
        make = packed.make_encoder if self.format.body == "packed" else native.make_encoder
        self.encode, self.encode_parts = make(self.format)


@cache
def encoder(cls: type[Event]) -> Encoder:
    """The encoder of an event class: `.encode(event)` gives bytes, `.encode_parts(event)` a list of buffers.

    Among the parts arrays are views of their own memory, copied only if not contiguous or of foreign bytes.
    """
    return Encoder(cls)


MAX_DECODERS: Final = 4096
"""How many decoders are kept; beyond that the oldest goes, because formats may come from outside."""

_decoders: dict[tuple[bytes, type[Event] | None, str], Callable[[Any], Any]] = {}


def decoder(wire: Format, cls: type[E], missing: MissingPolicy = "default") -> Callable[[Buffer], E]:
    """A function that reads bodies of a wire format as events of a class.

    Raises IncompatibleFormats, with a sentence per field, when the one cannot be read as the other. Arrays
    that it returns are read-only views of the buffer it is given.
    """
    return cast("Callable[[Buffer], E]", _decoder(wire, cls, missing))


def mapping_decoder(wire: Format) -> Callable[[Buffer], dict[str, Any]]:
    """A function that reads bodies of a wire format as plain data: records as dicts, enums by value."""
    return cast("Callable[[Buffer], dict[str, Any]]", _decoder(wire, None, "default"))


def _decoder(wire: Format, cls: type[Event] | None, missing: MissingPolicy) -> Callable[[Any], Any]:
    key = (wire.id, cls, missing)
    found = _decoders.get(key)
    if found is None:
        found = make_decoder(wire, cls, missing)
        while len(_decoders) >= MAX_DECODERS:
            _decoders.pop(next(iter(_decoders)), None)
        _decoders[key] = found
    return found


def make_decoder(
    wire: Format, cls: type[Event] | None, missing: MissingPolicy = "default"
) -> Callable[[Any], Any]:
    """A decoder that is not cached; `decoder` and `mapping_decoder` keep theirs."""
    plan = make_plan(wire, cls, missing)
    make = packed.make_decoder if wire.body == "packed" else native.make_decoder
    return make(plan, explainer(wire, cls))
