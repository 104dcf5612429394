"""Derivations on the wire: a projection and a filter as plain data, rebuilt and bounded on arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.errors import BadFrame, ExpressionError
from heliograph.links.interest.filter_wire import from_data
from heliograph.model.formats import MAX_FIELDS, MAX_NAME

if TYPE_CHECKING:
    from heliograph.filters.derivation import Derivation


def read_derivation(data: Any, peer: str) -> Derivation:
    """What `Derivation.as_data` described; BadFrame for anything else, and for what is too large."""
    from heliograph.filters import tree as t  # noqa: PLC0415 - only links that carry derivations need them
    from heliograph.filters.derivation import Derivation  # noqa: PLC0415 - as above
    from heliograph.filters.limits import measure  # noqa: PLC0415 - as above

    match data:
        case [str(channel), str(kind), list(columns), where, None | list() as sources]:
            pass
        case _:
            raise BadFrame(peer, "a derivation that is none")
    if not 0 < len(columns) <= MAX_FIELDS:
        raise BadFrame(peer, f"a derivation of {len(columns)} columns")
    names = [*(sources or ()), channel, kind]
    if not all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in names):
        raise BadFrame(peer, "a derivation with a name that is none")
    outputs = []
    for column in columns:
        match column:
            case [str(name), tree] if 0 < len(name) <= MAX_NAME:
                outputs.append(t.Output(from_data(tree, peer).tree, name))
            case _:
                raise BadFrame(peer, "a derivation with a column that is none")
    text = t.SourceText(", ".join(str(output.name) for output in outputs))  # its own is not told
    condition = None if where is None else from_data(where, peer)
    try:  # all of it together is bounded as one expression is: it is evaluated for each event
        measure(t.Call("coalesce", tuple(output.tree for output in outputs)), text.text)
    except ExpressionError as error:
        raise BadFrame(peer, f"a derivation that is too large: {error.reason}") from None
    return Derivation(
        channel,
        kind,
        t.Projection(tuple(outputs), text),
        condition,
        None if sources is None else tuple(sources),
    )
