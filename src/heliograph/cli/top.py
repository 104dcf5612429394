"""`helio top`: the channels of a domain in the terminal, with live rates; sorted and filtered by a key.

helio top --domain airspace                 s: sort by the next column, r: reverse, /: filter, q: end
helio top --once --sort lag                 one table, for scripts
helio metrics --domain airspace             the same for Prometheus' text collector
"""

from __future__ import annotations

import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from heliograph.cli.output import CommandFailed, JsonFlag, print_json, print_table, printable
from heliograph.cli.station import Domain, meet_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from heliograph.runtime.ports import Ports, Tasks
    from heliograph.station import Station

COLUMNS: Final = (
    "channel",
    "station",
    "events/s",
    "deliveries/s",
    "waiting",
    "wait",
    "dropped/s",
    "dropped",
    "lag",
    "receivers",
)
SORTS: Final = ("channel", "events/s", "deliveries/s", "waiting", "wait", "dropped", "lag")
KEYS: Final = "s sort  r reverse  / filter  q end"


def top(
    *,
    domain: Domain = "default",
    sort: Annotated[str, typer.Option(help=f"One of {', '.join(SORTS)}.")] = "events/s",
    wanted: Annotated[
        str, typer.Option("--filter", help="Only channels whose name has this in it.", show_default=False)
    ] = "",
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the channels of a domain with live rates, queues, drops and lag."""
    if sort not in SORTS:
        raise CommandFailed(f"--sort {sort!r}: one of {', '.join(SORTS)}")
    from heliograph.station import Station  # noqa: PLC0415 - commands import what they need when they run

    view = View(sort, wanted)
    with Station(domain=domain, name="helio top") as here:
        meet_all(here)
        looks = Looks(here)
        looks.look()
        if once or as_json or not sys.stdout.isatty():
            here.ports.tasks.sleep(interval)
            looks.look()
            rows = view.chosen(looks.rows())
            if as_json:
                print_json({"domain": domain, "silent": looks.silent, "channels": rows})
            else:
                print_table(COLUMNS, [_cells(row) for row in rows])
            return
        try:
            _watch(here.ports, looks, view, interval)
        except KeyboardInterrupt:
            return


def metrics(*, domain: Domain = "default", as_json: JsonFlag = False) -> None:
    """Print what all stations of a domain count, in Prometheus' text format; with --json their snapshots."""
    from heliograph.monitoring.prometheus import text_of_all  # noqa: PLC0415 - as above
    from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio metrics") as here:
        stations, _ = ask_all(meet_all(here))
    if as_json:
        print_json(stations)
    else:
        typer.echo(text_of_all(stations), nl=False)


class Looks:
    """What the stations of a domain have told, and the rates between the last two times."""

    def __init__(self, here: Station) -> None:
        self._here = here
        self._windows: dict[str, Any] = {}
        self._stations: list[Any] = []
        self.silent: list[str] = []

    def look(self) -> None:
        from heliograph.monitoring.rates import RateWindow  # noqa: PLC0415 - as above
        from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - as above

        self._stations, self.silent = ask_all(self._here.mesh)
        for station in self._stations:
            self._windows.setdefault(station.station, RateWindow()).add(station)

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for station in self._stations:
            rates = self._windows[station.station].rates()
            for channel in station.channels:
                rate = rates[channel.name]
                found.append(
                    {
                        "channel": channel.name,
                        "station": station.name or station.station,
                        "events/s": rate.pushed,
                        "deliveries/s": rate.delivered,
                        "waiting": channel.pending,
                        "wait": rate.wait_s,
                        "dropped/s": rate.dropped,
                        "dropped": channel.dropped,
                        "lag": channel.lag if channel.durable else None,
                        "receivers": len(channel.receivers) + channel.receivers_left_out,
                    }
                )
        return found


class View:
    """How the table is sorted and filtered. Pure."""

    def __init__(self, sort: str = "events/s", wanted: str = "") -> None:
        self.sort = sort
        self.wanted = wanted
        self.is_reversed = False
        self.typing = False

    def chosen(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [row for row in rows if self.wanted.lower() in row["channel"].lower()]
        found.sort(key=lambda row: (row["channel"], row["station"]))
        if self.sort != "channel":
            found.sort(key=lambda row: _number(row[self.sort]), reverse=not self.is_reversed)
        elif self.is_reversed:
            found.reverse()
        return found

    def press(self, key: str) -> bool:
        """Follow a key; False when it ends."""
        if self.typing:
            if key in "\r\n\x1b":
                self.typing = False
            elif key in "\x7f\b":
                self.wanted = self.wanted[:-1]
            elif key.isprintable():
                self.wanted += key
        elif key == "/":
            self.typing, self.wanted = True, ""
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "r":
            self.is_reversed = not self.is_reversed
        return key != "q" or self.typing

    @property
    def status(self) -> str:
        typed = f"filter: {self.wanted}{'_' if self.typing else ''}"
        return f"sorted by {self.sort}{' (reversed)' if self.is_reversed else ''}  {typed}  {KEYS}"


def _number(value: Any) -> float:
    if isinstance(value, dict):
        return float(sum(value.values()))
    return -1.0 if value is None else float(value)


def _cells(row: dict[str, Any]) -> list[object]:
    dropped = ", ".join(f"{n} {reason}" for reason, n in row["dropped"].items())
    wait = "" if row["wait"] is None else f"{row['wait'] * 1e3:.1f} ms"
    numbers = [f"{row['events/s']:.0f}", f"{row['deliveries/s']:.0f}", row["waiting"], wait]
    more = [f"{row['dropped/s']:.0f}" if row["dropped/s"] else "", dropped, row["lag"], row["receivers"]]
    return [row["channel"], row["station"], *numbers, *more]


def _watch(ports: Ports, looks: Looks, view: View, interval: float) -> None:
    from rich.console import Console  # noqa: PLC0415 - only terminals need it
    from rich.live import Live  # noqa: PLC0415 - as above

    from heliograph.runtime.ports import seconds_until  # noqa: PLC0415 - as above

    console = Console()
    with _keys(ports.tasks) as key, Live(console=console, screen=True, auto_refresh=False) as live:
        due = 0
        while True:
            if ports.clock.monotonic_ns() >= due:
                looks.look()
                due = ports.clock.monotonic_ns() + round(interval * 1e9)
            room = max(3, console.size.height - 5)
            live.update(_drawn(view.chosen(looks.rows())[:room], view, looks.silent), refresh=True)
            pressed = key(max(0.0, seconds_until(ports.clock, due)))
            if pressed and not view.press(pressed):
                return


def _drawn(rows: Sequence[dict[str, Any]], view: View, silent: list[str]) -> Any:
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    caption = view.status + (f"  no answer: {', '.join(map(printable, silent))}" if silent else "")
    table = Table(title="helio top", caption=Text(caption), expand=True)
    for name in COLUMNS:
        is_name = name in ("channel", "station", "dropped")
        table.add_column(name, justify="left" if is_name else "right", no_wrap=True)
    for row in rows:
        # As Text, because square brackets in a plain cell would be markup.
        table.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in _cells(row)))
    return table


@contextmanager
def _keys(tasks: Tasks) -> Iterator[Callable[[float], str]]:
    """A function that waits for a key; "" when none comes in time, or there is no keyboard."""
    if not sys.stdin.isatty():

        def no_key(timeout: float) -> str:
            tasks.sleep(timeout)
            return ""

        yield no_key
        return
    import termios  # noqa: PLC0415 - as above
    import tty  # noqa: PLC0415 - as above

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield lambda timeout: sys.stdin.read(1) if select.select([number], [], [], timeout)[0] else ""
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
