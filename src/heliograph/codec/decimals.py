"""Decimals of a declared number of digits: exact on every way, never rounded.

In an event that has passed its check a decimal has exactly the digits behind the point that its field
declares, so equal values are written as equal bytes: as text in packed bodies, such as `10.2500`, and as the
integer without its point in native ones.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Final, Literal

from heliograph.model.layout import LONG_DECIMAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.model import field_types as ft
    from heliograph.model.formats import ByteOrder

CONTEXT: Final = Context(
    prec=100, Emin=-999, Emax=999, clamp=0, flags=[], traps=[Inexact, InvalidOperation, Overflow]
)
"""In which nothing is rounded, whatever the thread that calls has set."""
MAX_TEXT: Final = 48
"""Characters of a decimal in a packed body: 38 digits, a sign, a point and an exponent need fewer."""


def quantum(kind: ft.Decimal) -> Decimal:
    """One in the last place."""
    return Decimal(1).scaleb(-kind.scale, CONTEXT)


def limit(kind: ft.Decimal) -> Decimal:
    """The smallest number that has too many digits before the point."""
    return Decimal(1).scaleb(kind.whole_digits, CONTEXT)


def fitted(value: Decimal, kind: ft.Decimal) -> Decimal | None:
    """The value with the digits of the type behind the point; None when that would change it."""
    if not value.is_finite() or not abs_below(value, kind):
        return None
    try:
        made = value.quantize(quantum(kind), context=CONTEXT)
    except (Inexact, InvalidOperation):
        return None
    return made or made.copy_abs()


def abs_below(value: Decimal, kind: ft.Decimal) -> bool:
    """Whether a number has no more digits before the point than the type."""
    top = limit(kind)
    return -top < value < top


def misfit(value: Decimal, kind: ft.Decimal) -> str:
    """Why `fitted` gave None, to stand behind the value."""
    if not value.is_finite():
        return f"is no number that {kind} holds"
    if not abs_below(value, kind):
        return f"has more than the {kind.whole_digits} digits before the point that {kind} holds"
    return (
        f"has more than the {kind.scale} digits behind the point that {kind} holds, "
        f"and none is rounded away; write .quantize(Decimal('{quantum(kind)}')) to choose a rounding"
    )


def unscaled(value: Decimal, scale: int) -> int:
    """The integer that a decimal is without its point."""
    return int(value.scaleb(scale, CONTEXT))


def from_unscaled(number: int, scale: int) -> Decimal:
    """The decimal with so many of the integer's digits behind the point."""
    return Decimal(number).scaleb(-scale, CONTEXT)


def text_reader(wire: ft.Decimal, reader: ft.Decimal) -> Callable[[str], Decimal]:
    """A function from the text in a packed body to the value; ValueError for other text."""
    step, top, wanted = quantum(wire), limit(wire), quantum(reader)
    same = wire.scale == reader.scale

    def read(text: str) -> Decimal:
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{text[:40]!r} is no {wire}") from None
        if not value.same_quantum(step) or not -top < value < top or str(value) != text:
            raise ValueError(f"{text[:40]!r} is no {wire}")
        return value if same else value.quantize(wanted, context=CONTEXT)

    return read


def integer_reader(reader: ft.Decimal) -> Callable[[int], Decimal]:
    """A function from an integer of the wire to the decimal that its reader wants."""
    wanted = quantum(reader)
    return lambda number: Decimal(number).quantize(wanted, context=CONTEXT)


def native_reader(wire: ft.Decimal, reader: ft.Decimal) -> Callable[[int], Decimal]:
    """A function from the integer in a native body to the value; ValueError when it has too many digits."""
    top, scale, up = 10**wire.precision, reader.scale, 10 ** (reader.scale - wire.scale)

    def read(number: int) -> Decimal:
        if not -top < number < top:
            raise ValueError(f"{number} has more digits than {wire}")
        return Decimal(number * up).scaleb(-scale, CONTEXT)

    return read


def long_writer(order: ByteOrder) -> Callable[[int], bytes]:
    """A function from an integer to its sixteen bytes."""
    name: Literal["little", "big"] = "little" if order == "<" else "big"
    return lambda number: number.to_bytes(LONG_DECIMAL, name, signed=True)


def long_reader(order: ByteOrder) -> Callable[[bytes], int]:
    """A function from sixteen bytes to the integer."""
    name: Literal["little", "big"] = "little" if order == "<" else "big"
    return lambda data: int.from_bytes(data, name, signed=True)
