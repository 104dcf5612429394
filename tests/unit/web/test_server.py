"""The page's requests over a real socket: headers, streams, filters, history, why, metrics, bounds."""

from __future__ import annotations

import http.client
import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

import heliograph as hg
from heliograph.cli import station as cli_station
from heliograph.errors import MissingExtra
from heliograph.web import app, server, tail
from tests.e2e.link_support import LIMIT, own_meeting_folder, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Track(hg.Event, name="air.track", key="id"):
    id: int
    speed: float = 0.0


class Answer:
    """One response; a stream's events are (kind, data, id)."""

    def __init__(self, parts: SplitResult, target: str, headers: dict[str, str]) -> None:
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT)
        self._connection.request("GET", target, headers={**headers, "connection": "close"})
        self._response = self._connection.getresponse()
        self.status, self.headers = self._response.status, self._response.headers

    def read(self) -> bytes:
        return self._response.read()

    def __iter__(self) -> Iterator[tuple[str, Any, str]]:
        kind = last = ""
        for line in self._response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                last = value
            elif name == "data":
                yield kind, json.loads(value), last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()


class Client:
    """What a browser would ask, without one."""

    def __init__(self, link: str) -> None:
        self._parts = urlsplit(link)
        self.token = self._parts.query.removeprefix("token=")

    def ask(self, path: str, **values: str) -> Answer:
        headers = {"authorization": f"Bearer {self.token}"}
        if "last" in values:
            headers["last-event-id"] = values.pop("last")
        return Answer(self._parts, f"{path}?{urlencode(values)}", headers)

    def json(self, path: str, **values: str) -> Any:
        with self.ask(path, **values) as answer:
            return json.loads(answer.read())


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[hg.Channel[Track], Client]]:
    with hg.Station(tmp_path, page=0) as station:
        assert station.page is not None
        tracks = station.channel("air.tracks", Track, qos=hg.QoS(durability="persistent"))
        yield tracks, Client(station.page)


def test_every_answer_has_the_headers_that_keep_scripts_and_frames_out(
    kept: tuple[hg.Channel[Track], Client],
) -> None:
    _, client = kept
    for path in ("/", "/assets/page.js", "/metrics", "/api/overview", "/nothing", "/assets/../server.py"):
        with client.ask(path) as response:
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
            response.read()


def test_the_link_is_exchanged_for_a_cookie_and_nothing_is_fetched_from_elsewhere(
    kept: tuple[hg.Channel[Track], Client],
) -> None:
    _, client = kept
    with client.ask("/", token=client.token) as response:
        assert (response.status, response.headers["location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in response.headers["set-cookie"]
    with client.ask("/") as response:
        page = response.read().decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    client.token = "other"
    with client.ask("/api/overview") as response:
        assert response.status == 401


def test_the_overview_and_the_stream_have_channels_with_rates(kept: tuple[hg.Channel[Track], Client]) -> None:
    tracks, client = kept
    tracks.subscribe(lambda _: None, name="billing", where="speed > 3")
    tracks.push_many([Track(n, float(n)) for n in range(10)])
    with client.ask("/api/stream") as stream:
        for _, told, _ in stream:
            (row,) = told["channels"]
            if row["pushed"] == 10 and told["sample"] > 2:
                break
    assert row["rate"] >= 0
    assert [name for name, *_ in row["receivers"]] == ["billing"]
    detail = client.json("/api/channel", channel="air.tracks")
    (one,) = detail["stations"]
    assert one["receivers"][0]["where"] == "speed > 3"
    assert len(one["series"]["time"]) == len(one["series"]["pushed"]) >= 1
    assert client.json("/api/channel", channel="unknown")["stations"] == []


def test_a_tail_goes_on_where_it_was_without_a_gap_or_repeat(kept: tuple[hg.Channel[Track], Client]) -> None:
    tracks, client = kept
    tracks.push_many([Track(n) for n in range(20)])
    seen: list[int] = []
    place = ""
    with client.ask("/api/tail", channel="air.tracks", start="earliest") as stream:
        for _, told, last in stream:
            seen += [one["event"]["id"] for one in told["events"]]
            place = last
            if len(seen) >= 20:
                break
    tracks.push_many([Track(n) for n in range(20, 40)])  # while nobody is connected
    with client.ask("/api/tail", channel="air.tracks", last=place) as stream:
        for _, told, _ in stream:
            seen += [one["event"]["id"] for one in told["events"]]
            if len(seen) >= 40:
                break
    assert seen == list(range(40))
    assert json.loads(place)[tracks.store.partition] == 20  # type: ignore[union-attr]  # it has one


def test_a_tail_filters_and_says_where_an_expression_is_wrong(kept: tuple[hg.Channel[Track], Client]) -> None:
    tracks, client = kept
    tracks.push_many([Track(n, float(n)) for n in range(10)])
    fast = {"channel": "air.tracks", "start": "earliest", "where": "speed > 7"}
    with client.ask("/api/tail", **fast) as stream:
        _, told, _ = next(iter(stream))
        assert [one["event"]["id"] for one in told["events"]] == [8, 9]
    assert client.json("/api/check", channel="air.tracks", where="speed > 7") == {"ok": True}
    wrong = client.json("/api/check", channel="air.tracks", where="id = 1 AND sped > 7")
    assert (wrong["ok"], wrong["column"]) == (False, 12)
    assert "did you mean" in wrong["reason"] or "speed" in wrong["reason"]
    assert client.json("/api/check", channel="air.tracks", where="speed >")["ok"] is False
    assert client.json("/api/tail", channel="air.tracks", where="sped > 7")["column"] == 1
    assert "no station has a channel" in client.json("/api/tail", channel="air.track")["problem"]
    assert "start=" in client.json("/api/tail", channel="air.tracks", start="yesterday")["problem"]


def test_a_tail_that_nobody_reads_holds_no_supplier_up_and_says_what_it_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "QUEUE", 100)
    with hg.Station(page=0) as station:
        assert station.page is not None
        tracks = station.channel("air.tracks", Track)
        client = Client(station.page)
        seen = skipped = 0
        with client.ask("/api/tail", channel="air.tracks") as stream:
            assert wait_until(tracks.receivers)
            for n in range(5_000):
                tracks.push(Track(n))
            for _, told, _ in stream:
                assert len(told["events"]) <= tail.PER_TICK
                seen += len(told["events"])
                skipped += told["skipped"]
                if seen + skipped >= 5_000:
                    break
        assert seen + skipped == 5_000
        assert wait_until(lambda: not tracks.receivers())


def test_hostile_and_huge_events_come_as_data() -> None:
    class Note(hg.Event, name="note"):
        text: str
        value: float = 0.0

    with hg.Station(page=0) as station:
        assert station.page is not None
        notes = station.channel("notes", Note)
        client = Client(station.page)
        found: list[Any] = []
        bad = "<script>\x1b[2J\u2028\n\ndata: x"
        with client.ask("/api/tail", channel="notes") as stream:
            assert wait_until(notes.receivers)
            notes.push_many([Note(bad, float("nan")), Note("x" * 1_000_000, float("inf"))])
            for _, told, _ in stream:
                found += told["events"]
                if len(found) == 2:
                    break
    assert found[0]["event"]["text"] == bad
    assert found[1]["large"] > 1_000_000
    assert len(found[1]["preview"]) == tail.PREVIEW


def test_why_and_the_extent_of_a_history_are_answered(kept: tuple[hg.Channel[Track], Client]) -> None:
    tracks, client = kept
    tracks.subscribe(lambda _: None, name="billing", where="speed > 3")
    tracks.push_many([Track(n, float(n)) for n in range(10)])
    assert tracks.store is not None
    partition = tracks.store.partition
    assert client.json("/api/history", channel="air.tracks") == {"partitions": {partition: [0, 10]}}
    why = client.json("/api/why", channel="air.tracks", event=f"{partition}:2", receiver="billing")
    assert (why["verdict"], why["values"]) == ("stopped", {"speed": "2.0"})
    assert (
        "no event" in client.json("/api/why", channel="air.tracks", event="x", receiver="billing")["problem"]
    )


def test_a_tail_opens_a_channel_that_only_another_station_has_and_closes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_meeting_folder(monkeypatch, tmp_path)
    with hg.Station(domain="a", name="one", page=0) as one, hg.Station(domain="a", name="two") as two:
        assert one.page is not None
        tracks = two.channel("air.tracks", Track)
        assert wait_until(lambda: one.mesh is not None and one.mesh.formats("air.tracks"))
        client = Client(one.page)
        overview = client.json("/api/overview")
        assert [station["name"] for station in overview["stations"]] == ["one", "two"]
        with client.ask("/api/tail", channel="air.tracks") as stream:
            assert tracks.wait_matched(1, LIMIT)
            tracks.push(Track(7))
            _, told, _ = next(iter(stream))
            assert told["events"][0]["event"]["id"] == 7
        assert wait_until(lambda: not one.channels())


def test_while_nobody_looks_nothing_is_sampled() -> None:
    with hg.Station(page=0) as station:
        server = station._page_server
        assert server is not None
        sampler = server._page._sampler
        assert station.page is not None
        client = Client(station.page)
        assert client.json("/api/overview")["channels"] == []
        assert wait_until(lambda: not sampler._runs)
        before = sampler.samples
        with client.ask("/metrics") as answer:
            assert answer.status == 200
        assert sampler.samples == before


def test_an_address_that_cannot_be_is_refused_and_a_page_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wrong in ("here", "host:70000", 70_000, -1, 1.5, None):
        with pytest.raises(hg.NotPossible, match="allowed is"):
            hg.Station(page=wrong)  # type: ignore[arg-type]  # on purpose
    with hg.Station(page=0) as station:
        assert station.page is not None
        port = urlsplit(station.page).port
        with pytest.raises(hg.NotPossible, match="cannot be listened to"):
            hg.Station(page=port or 0)
        with pytest.raises(hg.NotPossible, match="served already"):
            station.serve_page()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"pip install 'heliograph\[page\]'"):
        hg.Station(page=True)


def no_socket(*_: object) -> NoReturn:
    raise hg.NotPossible("page", "no socket")


def test_a_keeper_without_the_extra_keeps_all_the_same_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hg.Station() as station:
        assert cli_station._served(station, page=False) == (None, None)
        link, problem = cli_station._served(station, page="127.0.0.1:0")
        assert (link, problem) == (station.page, None)
    with hg.Station() as station:
        monkeypatch.setattr(server, "_listening", no_socket)
        link, problem = cli_station._served(station, page=True)
        assert (link, problem) == (None, "none; page: no socket")
        with pytest.raises(hg.NotPossible, match="no socket"):
            cli_station._served(station, page="127.0.0.1:0")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with hg.Station() as station:
        link, problem = cli_station._served(station, page=True)
        assert link is None
        assert problem is not None
        assert "pip install 'heliograph[page]'" in problem
        station.channel("air.tracks", Track).push(Track(1))


def test_a_tail_that_is_turned_down_or_left_at_once_leaves_no_receiver(
    kept: tuple[hg.Channel[Track], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracks, client = kept
    for _ in range(20):
        with client.ask("/api/tail", channel="air.tracks"):
            pass
    assert wait_until(lambda: not tracks.stats().consumers)
    monkeypatch.setattr(app, "MAX_STREAMS", 0)
    with client.ask("/api/tail", channel="air.tracks") as response:
        assert response.status == 503
    assert wait_until(lambda: not tracks.stats().consumers)


def test_the_link_leads_to_no_other_host(kept: tuple[hg.Channel[Track], Client]) -> None:
    _, client = kept
    with client.ask("//example.org/%0d%0ax", token=client.token) as response:
        assert response.headers["location"] == "/example.org/%0D%0Ax"


def test_the_pages_of_two_stations_stay_open_in_one_browser() -> None:
    browser = build_opener(HTTPCookieProcessor())
    with hg.Station(page="127.0.0.1:0") as one, hg.Station(page="127.0.0.1:0") as other:
        for link in (one.page, other.page):
            assert link is not None
            browser.open(link).close()
        for link in (one.page, other.page):
            assert link is not None
            with browser.open(link.partition("?")[0]) as response:
                assert response.status == 200
