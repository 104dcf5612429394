"""What was set is said again to sources that come later: the newest of it, and after nothing newer."""

from __future__ import annotations

from queue import Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from heliograph.links.services.parameters import LEFT, SET, LinkedParameters
from heliograph.runtime.ports import ThreadTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.links.mesh.mesh import Mesh

LIMIT = 20.0


class _OneSource:
    """A mesh with one station that declares parameters of two channels; the test answers its questions."""

    def __init__(self) -> None:
        self.asked: Queue[tuple[str, Any, Callable[[Any], None]]] = Queue()
        self.look: Callable[[], None] = lambda: None

    def answer(self, *_: Any) -> None:
        """Nobody asks."""

    on_left = answer

    def watch(self, hear: Callable[[], None]) -> None:
        self.look = hear

    @staticmethod
    def stations() -> list[Any]:
        channels = [SimpleNamespace(name=name, parameters=True) for name in ("a", "b")]
        return [SimpleNamespace(station=7, channels=channels)]

    def ask_later(self, _: int, topic: str, body: Any, outcome: Callable[[Any], None]) -> Callable[[], None]:
        self.asked.put((topic, body, outcome))
        return lambda: None

    def next(self) -> tuple[str, Any, Callable[[Any], None]]:
        return self.asked.get(timeout=LIMIT)


def linked(mesh: _OneSource) -> LinkedParameters:
    return LinkedParameters(cast("Mesh", mesh), lambda _: None, lambda: (), ThreadTasks())


def test_what_is_said_again_is_what_holds_then_and_never_follows_something_newer() -> None:
    mesh = _OneSource()
    parameters = linked(mesh)
    for channel in ("a", "b"):
        parameters.keep(channel, "me", {"rate": 1.0}, ())
    mesh.look()
    _, body, outcome = mesh.next()
    assert (body.channel, body.values) == ("a", {"rate": 1.0})
    with parameters.asking("b", "me"):  # while the first is on its way
        outcome(msgspec.Raw(b""))
        assert mesh.asked.empty()
        parameters.keep("b", "me", {"rate": 2.0}, ())
    mesh.look()
    topic, body, outcome = mesh.next()
    assert (topic, body.channel, body.values) == (SET, "b", {"rate": 2.0})
    outcome(msgspec.Raw(b""))
    assert mesh.asked.empty()


def test_what_is_forgotten_is_taken_back_and_not_said_again() -> None:
    mesh = _OneSource()
    parameters = linked(mesh)
    parameters.keep("a", "me", {"rate": 1.0}, ())
    parameters.keep("b", "me", {"rate": 1.0}, ())
    mesh.look()
    _, _, outcome = mesh.next()
    parameters.forget("b")
    assert mesh.next()[:2] == (LEFT, "b")
    outcome(msgspec.Raw(b""))
    mesh.look()
    assert mesh.asked.empty()
