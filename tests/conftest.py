"""Shared by all suites: how Hypothesis runs, one worker for all of Spark, and a budget per suite."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import signal
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # xdist has no types

from heliograph.runtime import lock_order, private_folder
from tests.object_server import BUCKET, s3_server
from tests.support import EXAMPLES_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter

P = TypeVar("P", bound="Callable[..., ast.AST]")

TESTS = Path(__file__).parent
IS_FUZZING = EXAMPLES_FACTOR != 1
OVER_BUDGET = 10
"""The exit code of a run over a budget, none of pytest's own: running a test again does not mend that."""

# Speed is measured in bench/, never asserted here. CI sees the same examples in every run, so that what
# turns red is the change; `make fuzz` goes looking for new ones.
settings.register_profile(
    "heliograph", deadline=None, derandomize=not IS_FUZZING, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("heliograph")

# Shells start what runs in the background with interrupts ignored, and programs of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def counted_again(parse: P) -> P:
    """The same parse, tried again where CPython 3.11 miscounts its depth (python/cpython#106905).

    All threads share one count there. Tracebacks of other threads are parsed when they are logged, and
    Hypothesis has Python called at garbage collections, so that threads change in the middle of a parse.
    """

    @functools.wraps(parse)
    def patient(*args: Any, **options: Any) -> ast.AST:
        for _ in range(10):
            try:
                return parse(*args, **options)
            except SystemError as error:
                if "recursion depth mismatch" not in str(error):
                    raise
        return parse(*args, **options)

    return cast("P", patient)


ast.parse = counted_again(ast.parse)


LOCKS = lock_order.LockOrder()
"""One for the whole run: an order that one test shows and another contradicts is an inversion, too."""


@pytest.fixture(scope="session", autouse=True)
def memory_folder() -> Iterator[None]:
    """Shared memory of this run alone: a station removes what dead ones of its user left, of any domain."""
    prefix = "heliograph-tests-"
    for left in private_folder.MEMORY.glob(f"{prefix}*"):
        if not Path(f"/proc/{left.name.removeprefix(prefix)}").exists():  # its run was killed
            shutil.rmtree(left, ignore_errors=True)
    folder = private_folder.MEMORY / f"{prefix}{os.getpid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(private_folder.MEMORY_VARIABLE, str(folder))
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    """Variables of a server on loopback that speaks S3, for programs that tests start."""
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket in that server, which this process finds by its environment."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}"


@pytest.fixture(autouse=True)
def locks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No two kinds of lock are taken in both orders, in any test of a run. It costs some 3 % of its time.

    Tests marked `plain_locks` interrupt threads inside of locks, which a checked lock would not survive.
    """
    if "plain_locks" in request.keywords:
        yield
        return
    before = len(LOCKS.inversions)
    with lock_order.checking(LOCKS):
        yield
    assert not LOCKS.inversions[before:], "\n\n".join(LOCKS.inversions[before:])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lock-order", help="append to this file which locks were taken while which were held")
    parser.addoption("--failed-to", help="write the names of the tests that failed into this file")


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--lock-order")
    if file is not None:
        with Path(file).open("a") as seen:
            seen.writelines(f"{held}\t{taken}\n" for held, taken in LOCKS.pairs)


def suite_of(path: Path) -> str:
    """The folder below tests/ that a test stands in."""
    return path.relative_to(TESTS).parts[0]


class OneWorkerForSpark(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests that use the Spark session run in one worker, which shares it, and first: they take longest."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/spark/") else nodeid


@pytest.hookimpl(optionalhook=True)  # single files may run without xdist, too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneWorkerForSpark:
    return OneWorkerForSpark(config, log)


class Failed:
    """Writes the names of the tests that failed into a file, for `tests/all_suites.py`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self._file.write_text("".join(f"{name}\n" for name in self._names))


class Budgets:
    """Adds up the time of each suite and fails a run that goes over tests/budgets.toml."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.minutes: dict[str, float] = tomllib.loads((TESTS / "budgets.toml").read_text())["minutes"]
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.started = time.monotonic()
        self.exceeded: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = suite_of(self.root / report.nodeid.split("::")[0])
        self.seconds[suite] += report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.seconds["all"] = time.monotonic() - self.started
        self.exceeded = [
            suite for suite, seconds in self.seconds.items() if seconds > 60 * self.minutes.get(suite, 0)
        ]
        if self.exceeded and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = OVER_BUDGET

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        spent = (
            f"{suite} {seconds / 60:.1f} of {self.minutes.get(suite, 0)}"
            for suite, seconds in sorted(self.seconds.items())
        )
        terminalreporter.write_line(f"minutes: {', '.join(spent)}")
        if self.exceeded:
            names = ", ".join(sorted(self.exceeded))
            terminalreporter.write_line(f"FAILED: over the budget of tests/budgets.toml: {names}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # workers of pytest-xdist report to the controller, which alone adds up
    if not IS_FUZZING:
        config.pluginmanager.register(Budgets(config.rootpath), "heliograph-budgets")
    if file := config.getoption("--failed-to"):
        config.pluginmanager.register(Failed(Path(file)), "heliograph-failed")
