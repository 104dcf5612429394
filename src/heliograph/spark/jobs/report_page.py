"""The page of a report: its numbers as tables and plots, for dark and light screens, without a network."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heliograph.spark.jobs.report import ChannelReport

GREY: Final = "#888888"
BLUE: Final = "#3b82c4"
_SCRIPT: Final = '<script type="application/json" class="plot" data-target="{target}">{item}</script>'
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.5rem }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; font-size: 1.2rem }
table { border-collapse: collapse; margin: .7rem 0 }
th, td { padding: .15rem .9rem .15rem 0; text-align: right }
th:first-child, td:first-child { text-align: left }
th { font-weight: 600; border-bottom: 1px solid var(--line) }
td { font-variant-numeric: tabular-nums }
.plots { display: flex; flex-wrap: wrap; gap: 1rem }
.none { color: #888 }
@media (prefers-color-scheme: dark) { body { background: #14171a; color: #dfe3e6 } }
"""
_EMBED: Final = """
for (const one of document.querySelectorAll("script.plot")) {
  Bokeh.embed.embed_item(JSON.parse(one.textContent), one.dataset.target);
}
"""


def page(title: str, channels: Sequence[ChannelReport], window: float) -> str:
    """The whole page."""
    from bokeh.resources import Resources  # noqa: PLC0415 - a second of loading that only reports need

    library = "\n".join(
        f"<script>{code}</script>" for code in Resources(mode="inline", components=["bokeh"]).js_raw
    )
    numbers = _json([asdict(one) for one in channels])
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}: channels</title><style>{_STYLE}</style>{library}</head><body>",
        f"<h1>Channels of {escape(title)}</h1>",
        _overview(channels),
        *(_section(number, one, window) for number, one in enumerate(channels)),
        f'<script type="application/json" id="numbers">{numbers}</script>',
        f"<script>{_EMBED}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _overview(channels: Sequence[ChannelReport]) -> str:
    if not channels:
        return '<p class="none">No channel has a history here.</p>'
    names = ("channel", "events", "suppliers", "lost", "from", "to")
    rows = [
        (one.channel, one.events, one.suppliers, one.lost, _time(one.first_ns), _time(one.last_ns))
        for one in channels
    ]
    return _table(names, rows)


def _section(number: int, one: ChannelReport, window: float) -> str:
    parts = [f"<h2>{escape(one.channel)}</h2>"]
    if not one.events:
        parts.append('<p class="none">No events yet.</p>')
    plots = []
    if one.rates:
        times = [start / 1e6 for start, _ in one.rates]
        heights = [events / window for _, events in one.rates]
        plots.append(
            _plot(f"rate-{number}", "events per second", times, heights, width=window * 900, clock=True)
        )
    if one.latencies:
        bounds, counts = [bound for bound, _ in one.latencies], [n for _, n in one.latencies]
        plots.append(_steps(f"latency-{number}", "deliveries by latency in seconds", bounds, counts))
    if plots:
        parts.append(f'<div class="plots">{"".join(plots)}</div>')
    if one.receivers:
        names = ("receiver", "records", "delivered", "missed_deadlines", "rate", "p50", "p95", "p99", "max")
        parts.append(
            "<h3>Deliveries</h3>"
            + _table(names, [[row.get(name) for name in names] for row in one.receivers])
        )
    if one.ledger:
        parts.append("<h3>Ledger</h3>" + _table(tuple(one.ledger), [list(one.ledger.values())]))
    if one.lag:
        parts.append(
            "<h3>Durable consumers</h3>"
            + _table(("consumer", "behind"), [list(row.values()) for row in one.lag])
        )
    if one.quality:
        parts.append("<h3>Quality</h3>" + _table(("measure", "events"), list(one.quality.items())))
    return "\n".join(parts)


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value == round(value) and abs(value) >= 1 else f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _time(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return ""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _figure(title: str, **options: Any) -> Any:
    from bokeh.plotting import figure  # noqa: PLC0415 - as above

    made = figure(title=title, height=220, width=460, toolbar_location=None, tools="", **options)
    # Nothing behind the plot and grey that is read on both: it fits a dark page and a light one.
    made.background_fill_color = made.border_fill_color = made.outline_line_color = None
    made.title.text_color = GREY
    for axis in (*made.xaxis, *made.yaxis):
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = GREY
        axis.major_label_text_color = GREY
    for grid in (*made.xgrid, *made.ygrid):
        grid.grid_line_color, grid.grid_line_alpha = GREY, 0.25
    return made


def _plot(target: str, title: str, xs: list[float], ys: list[float], *, width: float, clock: bool) -> str:
    made = _figure(title, x_axis_type="datetime" if clock else "linear")
    made.y_range.start = 0
    made.vbar(x=xs, top=ys, width=width, color=BLUE)
    return _embedded(target, made)


def _steps(target: str, title: str, bounds: list[float], counts: list[int]) -> str:
    made = _figure(title, x_axis_type="log")
    step = 10 ** (1 / 5)
    made.quad(
        left=[bound / step for bound in bounds],
        right=bounds,
        top=counts,
        bottom=0,
        color=BLUE,
        line_color=GREY,
    )
    return _embedded(target, made)


def _embedded(target: str, made: Any) -> str:
    from bokeh.embed import json_item  # noqa: PLC0415 - as above

    item = _renumbered(_json(json_item(made, target)))
    return f'<div id="{target}"></div>' + _SCRIPT.format(target=target, item=item)


def _renumbered(text: str) -> str:
    """Bokeh numbers what a process makes; a page has numbers of its own, the same whenever it is made."""
    names: dict[str, str] = {}
    return re.sub(r'"(p\d+|[0-9a-f-]{36})"', lambda m: f'"{names.setdefault(m[1], f"m{len(names)}")}"', text)


def _json(value: Any) -> str:
    """As it may stand in a script: text from outside ends no element."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
