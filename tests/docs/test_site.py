"""The site of the documents is built without a warning."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_build", REPOSITORY / "site" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_lead_to_where_the_site_has_a_page_and_others_become_text(build: ModuleType) -> None:
    places = build.pages()
    page = "[guide](docs/guides/links.md#stations), [code](src/x.py), [out](https://example.org/a.md)"
    assert build.converted(page, "README.md", places) == (
        "[guide](guides/links.md#stations), code, [out](https://example.org/a.md)"
    )
    assert build.converted("[top](../../README.md)", "docs/guides/links.md", places) == "[top](../about.md)"


@pytest.mark.filterwarnings("default")  # those of Sphinx's own modules
def test_the_site_has_every_page_and_fetches_nothing_from_elsewhere(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "SOURCE", tmp_path / "source")
    monkeypatch.setattr(build, "SITE", tmp_path / "site")
    assert build.main() == 0, "Sphinx has warned"
    for place in build.pages().values():
        text = (tmp_path / "site" / place).with_suffix(".html").read_text()
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"https?:", text)
    assert "heliograph.station.Station" in (tmp_path / "site" / "reference" / "api.html").read_text()
