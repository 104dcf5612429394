"""How Sphinx builds the site of the documents; `site/build.py` runs it."""

from __future__ import annotations

from typing import Any

from heliograph import __version__

project = "Heliograph"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"  # light and dark, usable on a phone; it fetches nothing from elsewhere
html_title = "Heliograph"
html_show_copyright = False
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_default_options = {"member-order": "bysource"}
suppress_warnings = [
    "misc.highlighting_failure",  # consoles and tracebacks are shown as they are
]


def as_written(*details: Any) -> None:
    """Docstrings are plain text with Markdown's backticks: they are shown as they stand in the code."""
    lines: list[str] = details[-1]
    lines[:] = [f"| {line}" if line.strip() else "" for line in (text.replace("*", r"\*") for text in lines)]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_written)
