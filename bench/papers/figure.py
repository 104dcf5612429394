"""Lines with error bars as a small SVG, drawn by hand: a library would be larger than the figures."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 340, 56, 132, 16, 44
COLOURS = ("#1b6ca8", "#c44536", "#3a7d44", "#8a5fbf", "#b8860b", "#5c6770", "#d16ba5", "#2a9d8f")


@dataclass(frozen=True)
class Series:
    """A line: points of (x, y, lowest y, highest y)."""

    label: str
    points: tuple[tuple[float, float, float, float], ...]


def chart(series: Sequence[Series], x_label: str, y_label: str, *, log_x: bool = False) -> str:
    """The figure as text."""
    points = [point for line in series for point in line.points]
    place_x = _scale([x for x, *_ in points], LEFT, WIDTH - RIGHT, log=log_x)
    place_y = _scale([y for _, *ys in points for y in ys], HEIGHT - BOTTOM, TOP)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_axes(points, place_x, place_y, (x_label, y_label)),
    ]
    for number, line in enumerate(series):
        parts += _line(line, COLOURS[number % len(COLOURS)], number, place_x, place_y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _scale(
    values: Sequence[float], low: float, high: float, *, log: bool = False
) -> Callable[[float], float]:
    turned = [log10(value) if log else value for value in values]
    first, last = min(turned), max(turned)
    span = (last - first) or 1.0
    return lambda value: low + ((log10(value) if log else value) - first) / span * (high - low)


def _axes(
    points: Sequence[tuple[float, ...]],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
    labels: tuple[str, str],
) -> list[str]:
    below = HEIGHT - BOTTOM + 14
    parts = [
        f'<text x="{place_x(x):.1f}" y="{below}" text-anchor="middle">{x:g}</text>'
        for x in sorted({point[0] for point in points})
    ]
    ys = [y for point in points for y in point[1:]]
    for step in range(6):
        y = min(ys) + (max(ys) - min(ys)) * step / 5
        at = place_y(y)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    if min(ys) < 0 < max(ys):
        at = place_y(0)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#888"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(labels[0])}</text>')
    turned = f'transform="translate(12 {HEIGHT / 2}) rotate(-90)"'
    parts.append(f'<text {turned} text-anchor="middle">{escape(labels[1])}</text>')
    return parts


def _line(
    line: Series,
    colour: str,
    number: int,
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
) -> list[str]:
    # Bars of several lines at one place stand beside each other.
    aside = (number % 4 - 1.5) * 2
    corners = " ".join(f"{place_x(x) + aside:.1f},{place_y(y):.1f}" for x, y, _, _ in line.points)
    parts = [f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    for x, y, low, high in line.points:
        at = place_x(x) + aside
        parts.append(f'<circle cx="{at:.1f}" cy="{place_y(y):.1f}" r="2.5" fill="{colour}"/>')
        if high > low:
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{place_y(low):.1f}" y2="{place_y(high):.1f}" '
                f'stroke="{colour}"/>'
            )
    legend = TOP + 14 + number * 16
    parts.append(f'<rect x="{WIDTH - RIGHT + 10}" y="{legend - 8}" width="10" height="10" fill="{colour}"/>')
    parts.append(f'<text x="{WIDTH - RIGHT + 26}" y="{legend + 1}">{escape(line.label)}</text>')
    return parts
