"""Counts nodes and levels while a tree is being made, so that none outgrows what later steps can walk."""

from __future__ import annotations

from heliograph.errors import ExpressionError
from heliograph.filters import tree as t


class DepthLimit:
    """Knows the depth of every node made so far; `made` refuses the one that goes too far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depths: dict[int, int] = {}
        self._kept: list[t.Tree] = []

    def made(self, tree: t.Tree) -> t.Tree:
        """`tree`, whose children have been through here before."""
        depth = 1 + max((self._depths[id(child)] for child in t.children(tree)), default=0)
        if depth > t.MAX_DEPTH:
            self._refuse(f"nested deeper than {t.MAX_DEPTH} levels", tree)
        # Kept alive, so that no later node can have the same id.
        self._kept.append(tree)
        self._depths[id(tree)] = depth
        if len(self._kept) > t.MAX_NODES:
            self._refuse(f"more than {t.MAX_NODES} values and operators", tree)
        return tree

    def _refuse(self, reason: str, tree: t.Tree) -> None:
        raise ExpressionError(reason, text=self._text, column=max(1, tree.at.column))


def measure(tree: t.Tree, text: str) -> None:
    """Refuse a tree made elsewhere that is too deep or too large. Walks without recursion."""
    count = 0
    level: tuple[t.Tree, ...] = (tree,)
    for _ in range(t.MAX_DEPTH):
        count += len(level)
        if count > t.MAX_NODES:
            reason = f"more than {t.MAX_NODES} values and operators"
            raise ExpressionError(reason, text=text, column=1)
        level = tuple(child for node in level for child in t.children(node))
        if not level:
            return
    raise ExpressionError(f"nested deeper than {t.MAX_DEPTH} levels", text=text, column=1)
