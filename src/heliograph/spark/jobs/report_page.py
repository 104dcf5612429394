"""The page of a report: its numbers as tables and plots, for dark and light screens, without a network."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from heliograph.spark.jobs.report import ChannelReport

GREY: Final = "#888888"
BLUE: Final = "#3b82c4"
COLOURS: Final = (BLUE, "#d1762a", "#3d9a50", "#b04a9a", "#c4514a", "#5a9ea3", "#8a6d3b", "#7a75c9")
"""Of lines; each is read on dark and on light."""
LEGEND_LINE: Final = 20
"""Pixels for each name below a plot."""
_SCRIPT: Final = '<script type="application/json" class="plot" data-target="{target}">{item}</script>'
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.5rem }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; font-size: 1.2rem }
table { border-collapse: collapse; margin: .7rem 0 }
th, td { padding: .15rem .9rem .15rem 0; text-align: right }
th:first-child, td:first-child { text-align: left; white-space: nowrap }
th { font-weight: 600; border-bottom: 1px solid var(--line) }
td { font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
a { color: #3b82c4 }
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
    return _table(names, rows, links=[f"#channel-{number}" for number in range(len(channels))])


def _section(number: int, one: ChannelReport, window: float) -> str:
    parts = [f'<h2 id="channel-{number}">{escape(one.channel)}</h2>']
    if not one.events:
        parts.append('<p class="none">No events yet.</p>')
    plots = list(_plots(number, one, window))
    if plots:
        parts.append(f'<div class="plots">{"".join(plots)}</div>')
    if one.deliveries:
        of_all = [one.channel, *_waits(one.deliveries)]
        rows = [[row["receiver"], *_waits(row)] for row in one.by_receiver]
        parts.append("<h3>Deliveries</h3>" + _table(("receiver", *WAITS), [of_all, *rows]))
    if one.by_supplier:
        # Without delivery records there is nothing to say of latencies.
        waits = WAITS if one.deliveries else ()
        rows = [
            [row["supplier"], row.get("events", 0), row.get("lost", 0), *_waits(row)[: len(waits)]]
            for row in one.by_supplier
        ]
        parts.append("<h3>Suppliers</h3>" + _table(("supplier", "events", "lost", *waits), rows))
    if one.queues:
        rows = [[row["receiver"], row["most"], row["last"]] for row in one.queues]
        parts.append("<h3>Queues</h3>" + _table(("receiver", "deepest", "last"), rows))
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


WAITS: Final = ("records", "delivered", "missed_deadlines", "rate", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def _waits(row: dict[str, Any]) -> list[Any]:
    """The cells of `WAITS`; empty where nothing is on record."""
    times = [row.get(name) for name in ("p50", "p95", "p99", "max")]
    return [row.get(name) for name in WAITS[:4]] + [None if one is None else one * 1e3 for one in times]


def _plots(number: int, one: ChannelReport, window: float) -> Iterator[str]:
    """What there is to draw of a channel, over time and by latency."""
    if one.windows:
        rates = [(row["start"], row.get("events", 0) / window) for row in one.windows]
        yield _bars(f"rate-{number}", "events per second", rates, window)
    for name, title in (("lost", "events lost"), ("missed_deadlines", "deadlines missed")):
        if any(row.get(name) for row in one.windows):
            counts = [(row["start"], row.get(name) or 0) for row in one.windows]
            yield _bars(f"{name}-{number}", f"{title}, in each window", counts, window)
    waits = {
        name: [(row["start"], row[name] * 1e3) for row in one.windows if row.get(name) is not None]
        for name in ("p50", "p99")
    }
    if any(waits.values()):
        yield _lines(f"waits-{number}", "latency in ms, by window", waits)
    if one.latencies:
        bounds, numbers = [bound for bound, _ in one.latencies], [n for _, n in one.latencies]
        yield _steps(f"latency-{number}", "deliveries by latency in seconds", bounds, numbers)
    if one.depths:
        deepest = sorted(one.queues, key=lambda row: (-row["most"], row["receiver"]))[: len(COLOURS)]
        series = {
            row["receiver"]: [
                (depth["start"], depth["most"])
                for depth in one.depths
                if depth["receiver"] == row["receiver"]
            ]
            for row in deepest
        }
        yield _lines(f"depth-{number}", "events waiting, the most in each window", series)


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]], links: Sequence[str] = ()) -> str:
    """A table; the first cell of a row is a link where there are any."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = []
    for number, row in enumerate(rows):
        cells = [escape(_cell(value)) for value in row]
        if links:
            cells[0] = f'<a href="{links[number]}">{cells[0]}</a>'
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'


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


def _bars(target: str, title: str, points: Sequence[tuple[int, float]], window: float) -> str:
    """A bar for each window; points are its start in nanoseconds, and a number."""
    made = _figure(title, x_axis_type="datetime")
    made.y_range.start = 0
    middle = [start / 1e6 + window * 500 for start, _ in points]
    made.vbar(x=middle, top=[value for _, value in points], width=window * 900, color=BLUE)
    return _embedded(target, made)


def _lines(target: str, title: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """A line for each name, and below which is which."""
    from bokeh.models import Legend  # noqa: PLC0415 - as above

    made = _figure(title, x_axis_type="datetime")
    made.y_range.start = 0
    items: list[Any] = []
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        xs, ys = [start / 1e6 for start, _ in points], [value for _, value in points]
        line = made.line(xs, ys, color=colour, line_width=2)
        items.append((name, [line, made.scatter(xs, ys, color=colour, size=4)]))
    legend = Legend(items=items, background_fill_color=None, border_line_color=None, label_text_color=GREY)
    legend.label_text_font_size, legend.padding, legend.spacing, legend.margin = "11px", 0, 0, 0
    made.add_layout(legend, "below")
    made.height += LEGEND_LINE * len(items)
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
    # Only where an id stands: a receiver may be called p50.
    return re.sub(
        r'"(id|root_id)":"([^"]+)"', lambda m: f'"{m[1]}":"{names.setdefault(m[2], f"m{len(names)}")}"', text
    )


def _json(value: Any) -> str:
    """As it may stand in a script: text from outside ends no element."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
