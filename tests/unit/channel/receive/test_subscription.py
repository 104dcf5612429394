"""What a consumer asks of its callback."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from heliograph.channel.receive.subscription import takes_header

if TYPE_CHECKING:
    import pytest


def test_a_parse_that_the_interpreter_miscounted_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    miscounts = [SystemError("AST constructor recursion depth mismatch")]
    parse = inspect.signature

    def signature(callback: object) -> inspect.Signature:
        if miscounts:
            raise miscounts.pop()
        return parse(callback)  # type: ignore[arg-type] # only callbacks come here

    monkeypatch.setattr(inspect, "signature", signature)
    assert not takes_header([].append)
    assert takes_header(lambda event, header: (event, header))
