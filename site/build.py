"""Builds the site of the documents into build/docs; `make docs` runs it. A warning of Sphinx fails it.

The pages are those of docs/, with README, examples, changelog and the public names beside them. They are
copied into build/docs-source: Sphinx reads one folder, and links of pages outside of docs/ have to follow.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

import heliograph

REPOSITORY = Path(__file__).parents[1]
SOURCE, SITE = REPOSITORY / "build" / "docs-source", REPOSITORY / "build" / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\w+) file=.*$", re.MULTILINE)
COPIED = {
    "README.md": "about.md",
    "examples/README.md": "examples.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/README.md": "index.md",
}
"""Pages that the site has elsewhere than the repository."""
CONTENTS = """
```{toctree}
:hidden:
about
examples
```
"""
PURPOSES = {
    "Tutorial": "tutorial",
    "Guides": "guides",
    "Reference": "reference",
    "Explanation": "explanation",
}


def pages() -> dict[str, str]:
    """Path in the repository to path in the site, of all pages."""
    docs = (path.relative_to(REPOSITORY).as_posix() for path in sorted((REPOSITORY / "docs").rglob("*.md")))
    return {**{path: path.removeprefix("docs/") for path in docs}, **COPIED}


def converted(text: str, source: str, places: dict[str, str]) -> str:
    """A page whose links lead to where the site has the others; what the site has not is named only."""

    def moved(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if "://" in target:
            return link[0]
        here = posixpath.dirname(places[source]) or "."
        if path not in places:
            if (REPOSITORY / path).suffix in (".svg", ".png"):
                return f"[{words}]({posixpath.relpath(path.removeprefix('docs/'), here)})"
            return words
        return f"[{words}]({posixpath.relpath(places[path], here)}{anchor})"

    return FENCE.sub(r"```\1", LINK.sub(moved, text))


def contents(places: dict[str, str]) -> str:
    """The lists of pages by purpose, for the side of each page."""
    lists = [CONTENTS]
    for caption, folder in PURPOSES.items():
        names = sorted(
            place.removesuffix(".md") for place in places.values() if place.startswith(f"{folder}/")
        )
        if folder == "reference":
            names.append("reference/api")
        lists.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n" + "\n".join(names) + "\n```\n")
    others = "adr/README\nchangelog\ncontributing"
    lists.append(f"```{{toctree}}\n:hidden:\n:caption: The project\n{others}\n```\n")
    return "\n".join(lists)


def api_page() -> str:
    """The public names with their docstrings, in the order in which the package lists them."""
    parts = ["# The public names\n\n`import heliograph as hg` gives these; the guides show them at work.\n"]
    for home, names in heliograph._HOMES.items():  # noqa: SLF001 - the one list of public names
        parts.append(f"\n## `heliograph.{home}`\n")
        parts.extend(f"\n```{{eval-rst}}\n{directive(home, name)}\n```\n" for name in names.split())
    return "".join(parts)


def directive(home: str, name: str) -> str:
    """How autodoc is told to show a name."""
    thing = getattr(heliograph, name)
    if isinstance(thing, type):
        members = "" if issubclass(thing, BaseException) else "\n   :members:"
        return f".. autoclass:: heliograph.{home}.{name}{members}"
    return f".. {'autofunction' if callable(thing) else 'autodata'}:: heliograph.{home}.{name}"


def main() -> int:
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs", SOURCE, ignore=shutil.ignore_patterns("*.md"))
    places = pages()
    for source, place in places.items():
        text = converted((REPOSITORY / source).read_text(), source, places)
        if place == "index.md":
            text += contents(places)
        if place == "adr/README.md":
            names = "\n".join(
                sorted(p.removeprefix("adr/")[:-3] for p in places.values() if p.startswith("adr/0"))
            )
            text += f"\n```{{toctree}}\n:hidden:\n{names}\n```\n"
        (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / place).write_text(text)
    (SOURCE / "reference" / "api.md").write_text(api_page())
    options = ["-W", "--keep-going", "-q", "-c", str(Path(__file__).parent), "-j", "2"]
    code = sphinx_build([*options, str(SOURCE), str(SITE)])
    if not code:
        print(f"open {os.path.relpath(SITE / 'index.html')}")
    return code


if __name__ == "__main__":
    sys.exit(main())
