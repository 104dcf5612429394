"""The page in a real Chromium: clicked through, looked at in both themes and on a phone, and attacked."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heliograph as hg
from tests.browser import Browser, Page, needs_chromium
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_chromium

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\x1b[31m"


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0
    region: str = "north"


class Note(hg.Event, name="note"):
    text: str = ""
    value: float = 0.0


class Airspace:
    """A domain with something going on: two stations, a history, slow and durable consumers."""

    def __init__(self, folder: Path) -> None:
        self.tower = hg.Station(folder, domain="page", name="tower", page=0)
        self.display = hg.Station(domain="page", name="display")
        qos = hg.QoS(durability="persistent", delivery_records="all", dispatch="deadline", latency=0.5)
        self.tracks = self.tower.channel("air.tracks", Track, qos=qos)
        self.notes = self.tower.channel("notes", Note)
        self.tracks.subscribe(lambda _: None, where="speed > 300 AND region = 'north'", name="billing")
        self.tracks.consumer(name="archive")
        self.notes.consumer(name="slow", queue=5, overflow="drop_oldest")
        self.display.channel("notes", Note).subscribe(lambda _: None, name="screen")
        self.notes.wait_matched(2, LIMIT)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._over.wait(0.02):
            n += 1
            self.tracks.push(Track(n % 50, 200 + 150 * math.sin(n / 50), "north" if n % 3 else "south"))
            if n % 10 == 0:
                self.notes.push(Note(EVIL, math.nan))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.display.close()
        self.tower.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def airspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airspace]:
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        own_meeting_folder(patch, folder)
        made = Airspace(folder / "data")
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def page(airspace: Airspace, browser: Browser) -> Iterator[Page]:
    opened = browser.open()
    opened.prefer("light")
    opened.size(1280, 900)
    assert airspace.tower.page is not None
    opened.goto(airspace.tower.page)
    opened.wait("document.querySelector('#status').textContent === 'live'")
    yield opened
    assert opened.console == []
    opened.goto("about:blank")


def shot(page: Page, name: str) -> None:
    """Kept where the documents want them, when somebody asks: HELIO_SCREENSHOTS=docs/images pytest ..."""
    if folder := os.environ.get("HELIO_SCREENSHOTS"):
        page.screenshot(Path(folder) / f"{name}.png")


def test_channels_are_listed_with_rates_sorted_filtered_and_opened_by_keyboard(page: Page) -> None:
    assert page.evaluate("location.search") == ""  # the token has left the address
    page.wait("[...document.querySelectorAll('tbody tr')].some(r => Number(r.cells[2].textContent) > 0)")
    shot(page, "page-channels")
    names = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent).join()"
    assert page.evaluate(names) == "_helio.deliveries,_helio.ledger,air.tracks,notes,notes"
    page.evaluate("[...document.querySelectorAll('th button')].find(b => b.textContent === 'events').click()")
    assert page.evaluate("document.querySelector('th[aria-sort=descending]').textContent") == "events"
    page.press("/")
    page.call("Input.insertText", text="trac")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.press("Escape")
    page.press("j")
    page.press("Enter")
    page.wait("location.hash === '#/channel/air.tracks'")


def test_the_tail_shows_events_their_details_why_and_plots_fields(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/air.tracks'")
    page.wait("document.querySelectorAll('.tail li').length > 5")
    page.click(".checks input[value=speed]")
    page.wait("document.querySelectorAll('.u-wrap').length === 3")
    page.type("#where", "speed < 200")
    page.wait(
        "[...document.querySelectorAll('.tail span')].every(s => JSON.parse(s.textContent).speed < 200)"
    )
    page.wait("document.querySelectorAll('.tail li').length > 1")
    page.click(".tail button")
    page.wait("document.querySelector('dl dd')")
    page.evaluate("document.querySelector('select').value = 'billing'")
    page.click("button.primary")
    page.wait("document.querySelector('#why').textContent.includes('speed > 300 is false')")
    shot(page, "page-channel")
    assert "billing in tower: stopped" in page.text("#why")
    assert "from the source's time to this page: median" in page.text("main")


def test_a_channel_shows_how_long_its_deliveries_took_and_which_missed_their_deadline(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/air.tracks'")
    page.wait("document.querySelectorAll('svg.bars rect').length")
    facts = page.evaluate("document.querySelector('[aria-label=Latency] p').textContent")
    assert "deliveries · half within" in facts
    assert "missed their deadline" in facts
    shot(page, "page-latency")
    page.evaluate("location.hash = '#/channel/notes'")
    page.wait("document.querySelector('[aria-label=Latency] p').textContent.includes('delivery_records')")


def test_the_filter_box_says_where_an_expression_is_wrong(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/air.tracks'")
    page.type("#where", "id = 1 AND sped > 3")
    page.wait("document.querySelector('#where').getAttribute('aria-invalid') === 'true'")
    problem = page.evaluate("document.querySelector('#where-problem').textContent")
    assert problem.startswith("id = 1 AND sped > 3\n" + " " * 11 + "^ ")
    assert "speed" in problem
    page.type("#where", "id = 1")
    page.wait("document.querySelector('#where-problem').textContent === ''")


def test_time_travel_begins_at_the_earliest_event(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/air.tracks'")
    page.wait("!document.querySelector('input[type=range]').parentElement.hidden")
    page.evaluate("[...document.querySelectorAll('button')].find(b => b.textContent === 'Earliest').click()")
    page.click(".tail button")
    page.press(" ")
    page.wait("document.querySelector('.tail li')")
    assert "from offset 0" in page.text("main")


def test_hostile_text_is_text_in_rows_and_details(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/notes'")
    page.click(".tail button")
    page.wait("document.querySelector('pre').textContent.includes('onerror')")
    assert "\\u001b[31m" in page.evaluate("document.querySelector('pre').textContent")
    assert page.evaluate("document.title") == "Heliograph"
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0


def test_all_views_show_what_they_are_for(page: Page) -> None:
    for view, wanted in (
        ("graph", "tower: billing"),
        ("journal", "archive"),
        ("stations", "display"),
        ("problems", "dropped events"),
    ):
        page.evaluate(f"location.hash = '#/{view}'")
        page.wait(f"document.querySelector('main').textContent.includes({wanted!r})")
        shot(page, f"page-{view}")
    page.evaluate("location.hash = '#/graph'")
    page.wait("document.querySelector('svg.graph a')")
    labels = page.evaluate(
        "[...document.querySelectorAll('svg.graph a')].every(a => a.getAttribute('aria-label'))"
    )
    assert labels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_contrast_and_a_phone_needs_no_sideways_scrolling(page: Page, scheme: str) -> None:
    page.prefer(scheme)
    back, text = page.evaluate(
        "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; })()"
    )
    assert contrast(back, text) > 7
    page.size(390, 844, phone=True)
    for view in ("", "graph", "journal", "stations", "problems", "channel/air.tracks"):
        page.evaluate(f"location.hash = '#/{view}'")
        page.wait("document.querySelector('main').children.length > 1")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    shot(page, f"page-phone-{scheme}")


def test_every_control_has_a_name_for_screen_readers(page: Page) -> None:
    page.evaluate("location.hash = '#/channel/air.tracks'")
    page.click(".tail button")
    page.wait("document.querySelector('select')")
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, a[href], table, nav')].filter(e => !("
        "e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert nameless == []


def test_another_site_cannot_read_the_page_with_the_users_cookie(
    airspace: Airspace, browser: Browser
) -> None:
    address = airspace.tower._page_server.address  # type: ignore[union-attr]  # it has one
    page = browser.open("about:blank")
    reached = page.evaluate(
        f"fetch('{address}/api/overview', {{credentials: 'include', mode: 'no-cors'}})"
        ".then(r => r.type + r.status, e => 'refused')"
    )
    assert reached in ("refused", "opaque0")
    page.goto(address.replace("127.0.0.1", "localhost") + "/")
    assert "has a token" in page.text("body")  # another name of the machine has no cookie


def test_a_page_goes_on_by_itself_when_the_station_comes_back(tmp_path: Path, browser: Browser) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELIO_PAGE_TOKEN", "fixed")
        with hg.Station(page=0) as first:
            assert first.page is not None
            port = int(first.page.split(":")[2].split("/")[0])
            page = browser.open(first.page)
            page.wait("document.querySelector('#status').textContent === 'live'")
        page.wait("document.querySelector('#status').textContent !== 'live'")

        made: list[hg.Station] = []

        def begins_again() -> bool:
            with contextlib.suppress(hg.NotPossible):  # the port is still being let go of
                made.append(hg.Station(page=port, name="second"))
            return bool(made)

        assert wait_until(begins_again)
        with made[0]:
            page.wait("document.querySelector('#about').textContent.includes('second')")
        page.goto("about:blank")


def contrast(first: str, second: str) -> float:
    """By WCAG, of two `rgb(...)`."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
