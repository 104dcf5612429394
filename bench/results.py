"""Results as files: one JSON per benchmark, with the environment it was measured in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.environment import Environment  # noqa: TC001 - msgspec reads the annotations of Result
from bench.harness import Outcome  # noqa: TC001 - as above

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Result:
    """One benchmark in one environment."""

    environment: Environment
    seed: int
    quick: bool
    outcome: Outcome


def write(result: Result, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.outcome.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return path


def read_all(folder: Path) -> list[Result]:
    """Every stored result, by name."""
    return [msgspec.json.decode(path.read_bytes(), type=Result) for path in sorted(folder.glob("*.json"))]
