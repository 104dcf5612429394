"""Commands that run a job: the options that all of them take, progress, Ctrl-C, and the result.

    @app.command()
    @runs_job
    def archive(folder: Folder, channel: ChannelName, ...) -> Command:
        job = ArchiveJob(folder=folder, channel=channel, ...)
        return Command(f"archive {channel}", job.run, shows=..., says=...)

The function declares only what is its own; `--follow`, `--every`, `--master`, `--remote` and `--json` come
with the decorator, and options that several commands have are declared here once. The job has been made, and
so checked, before Spark starts; one that needs no Spark has `runs_job_here`.
"""

from __future__ import annotations

import inspect
import signal
import threading
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line, print_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

Folder: TypeAlias = Annotated[str, typer.Argument(help="The folder of a station, which may be running.")]
ChannelName: TypeAlias = Annotated[str, typer.Argument(help="The name of a channel.", show_default=False)]
Table: TypeAlias = Annotated[str, typer.Argument(help="The folder of the table.", show_default=False)]
TableFormat: TypeAlias = Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")]
Where: TypeAlias = Annotated[
    str | None, typer.Option(help="Only events for which this is true.", show_default=False)
]
TimeOf: TypeAlias = Annotated[
    str, typer.Option(help="Of what: append, source, or a field that is a datetime.")
]
Window: TypeAlias = Annotated[float, typer.Option(help="Seconds for which events are counted together.")]
AllowLoss: TypeAlias = Annotated[
    bool, typer.Option("--allow-loss", help="Leave out what retention has removed or what is damaged.")
]
When: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A filter: an event for which it is true is a trigger.", show_default=False),
]
Before: TypeAlias = Annotated[float, typer.Option(help="Seconds that are kept before a trigger.")]
After: TypeAlias = Annotated[float, typer.Option(help="Seconds that are kept after it.")]
Checkpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="A folder for where the job is. [default: pipeline/JOB/CHANNEL in the station's folder]",
        show_default=False,
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs: local[N], spark://..., k8s://..., yarn. [default: local\\[*]]",
        show_default=False,
    ),
]
Remote: TypeAlias = Annotated[
    str | None, typer.Option(help="A Spark Connect server: sc://HOST:PORT.", show_default=False)
]
Follow: TypeAlias = Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")]
Every: TypeAlias = Annotated[
    float, typer.Option(help="Seconds between two looks for more, with --follow.", min=0)
]


class Command(NamedTuple):
    """A job that has been asked for, and how to speak of it.

    Attributes:
        title: names it in a progress bar and in Spark's list of applications.
        run: of a job that was checked already; takes a session, if it needs one, and how it is run.
        shows: what its progress is called with, as: how much is done, how much is left, and a note.
        says: the lines that are printed of what it did.
    """

    title: str
    run: Callable[..., Any]
    shows: Callable[..., tuple[int, int, str]]
    says: Callable[[Any], Iterable[str]]


def runs_job(command: Callable[..., Command]) -> Callable[..., None]:
    """A command that runs the job which the function returns, one pass or with --follow."""
    return _with_options(command, _following, _on_spark)


def runs_job_once(command: Callable[..., Command]) -> Callable[..., None]:
    """The same for a job that makes one thing and ends."""
    return _with_options(command, _on_spark)


def runs_job_here(command: Callable[..., Command]) -> Callable[..., None]:
    """A command like `runs_job` whose job runs in this process, without Spark."""
    return _with_options(command, _following)


def _with_options(command: Callable[..., Command], *options: Callable[..., None]) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True)
    shared = [
        one
        for some in (*options, _printing)
        for one in inspect.signature(some, eval_str=True).parameters.values()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {one.name: given.pop(one.name) for one in shared}
        _run(command(**given), **chosen)

    parameters = [*own.parameters.values(), *shared]
    run.__signature__ = own.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _following(*, follow: Follow = False, every: Every = 5.0) -> None:
    """The options of a job that can go on with what comes, as Typer reads them."""


def _on_spark(*, master: Master = None, remote: Remote = None) -> None:
    """The options of a job that needs a session."""


def _printing(*, as_json: JsonFlag = False) -> None:
    """The options of every job."""


def _run(
    command: Command, *, as_json: bool, follow: bool = False, every: float = 5.0, **session: str | None
) -> None:
    from heliograph.errors import ExpectationFailed  # noqa: PLC0415 - commands import what they need when they run

    with ExitStack() as stack:
        show, wanted = stack.enter_context(progress_bar(command.title)), []
        if session:
            wanted = [stack.enter_context(_session(command.title, **session))]
        options: dict[str, Any] = {"progress": lambda *so_far: show(*command.shows(*so_far))}
        if follow:
            options |= {"follow": True, "every": every, "stop": stack.enter_context(stopping())}
        try:
            done = command.run(*wanted, **options)
        except ExpectationFailed as error:
            print_problem(str(error))
            raise typer.Exit(1) from None
    if as_json:
        print_json(done)
        return
    for line in command.says(done):
        print_line(line)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar for whoever looks at a terminal; at the end it is gone."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{title}: starting", total=None)

        def show(done: int, left: int, note: str) -> None:
            bar.update(task, description=f"{title}: {note}", completed=done, total=done + left)

        yield show


@contextmanager
def _session(title: str, master: str | None, remote: str | None) -> Iterator[SparkSession]:
    """Start Spark, and end it."""
    from heliograph.spark.jobs.connecting import check_session, connected  # noqa: PLC0415 - as above

    check_session(master, remote)
    spark = connected(f"helio {title}", master, remote)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, for a job that would go on for ever; a second one interrupts."""
    stop = threading.Event()

    def end(number: int, frame: Any) -> None:
        if stop.is_set():
            signal.default_int_handler(number, frame)
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
