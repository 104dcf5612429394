"""The expression that makes an event, or a mapping, of values that are ready; for both body kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.codec.conversion_plan import ReceiverField, RecordPlan
    from heliograph.runtime.codegen import CodeBuilder


def construction(source: CodeBuilder, plan: RecordPlan, values: Sequence[str | None]) -> str:
    """Source text that builds what the plan wants from one expression per slot; None takes the default."""
    filled = [
        _default(source, slot) if value is None else value
        for slot, value in zip(plan.slots, values, strict=True)
    ]
    names = [source.bind(slot.name, "name") for slot in plan.slots]
    if plan.cls is None:
        return f"{{{', '.join(f'{name}: {value}' for name, value in zip(names, filled, strict=True))}}}"
    positional = [v for slot, v in zip(plan.slots, filled, strict=True) if not slot.keyword_only]
    keywords = [
        f"{name}: {value}"
        for slot, name, value in zip(plan.slots, names, filled, strict=True)
        if slot.keyword_only
    ]
    if keywords:
        positional.append(f"**{{{', '.join(keywords)}}}")
    return f"{source.bind(plan.cls)}({', '.join(positional)})"


def _default(source: CodeBuilder, slot: ReceiverField) -> str:
    if slot.default_factory is not None:
        return f"{source.bind(slot.default_factory)}()"
    return source.bind(slot.default)
