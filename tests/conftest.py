"""Shared by all suites: Hypothesis without deadlines, one worker for Spark, and a budget per suite."""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

TESTS = Path(__file__).parent

# Speed is measured in bench/, never asserted here; examples are kept reproducible between runs.
settings.register_profile(
    "heliograph", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("heliograph")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that use Spark run in one worker, so that they share one session."""
    for item in items:
        if "spark" in item.path.relative_to(TESTS).parts:
            item.add_marker(pytest.mark.xdist_group("spark"))


class Budgets:
    """Adds up the time of each suite and holds it against tests/budgets.toml."""

    def __init__(self) -> None:
        self.minutes: dict[str, float] = tomllib.loads((TESTS / "budgets.toml").read_text())["minutes"]
        self.spent: Counter[str] = Counter()
        self.started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = Path(report.nodeid.split("::")[0]).parts[1]
        self.spent[suite] += round(report.duration * 1e9)

    def over(self) -> list[str]:
        spent = {suite: ns / 60e9 for suite, ns in self.spent.items()}
        spent["all"] = (time.monotonic() - self.started) / 60
        return [suite for suite, minutes in spent.items() if minutes > self.minutes.get(suite, 0)]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        parts = [
            f"{suite} {ns / 60e9:.1f}/{self.minutes.get(suite, 0)}"
            for suite, ns in sorted(self.spent.items())
        ]
        terminalreporter.write_line("minutes spent / budget: " + ", ".join(parts))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        over = self.over()
        if over and session.exitstatus == 0:
            session.exitstatus = 1
            print(f"\nover budget (tests/budgets.toml): {', '.join(over)}")


def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist report to the controller, which alone adds up.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budgets(), "heliograph-budgets")
