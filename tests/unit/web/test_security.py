"""Who may look at a page: token, Host and Origin, decided without a server."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.web.security import COOKIE, RequestRefused, check, is_own_host
from tests.support import examples

TOKEN = "s3cret"
HOST = {b"host": b"127.0.0.1:8470"}
COOKIES = {b"cookie": f"{COOKIE}-8470={TOKEN}".encode()}


def refused(
    headers: dict[bytes, bytes], *, method: str = "GET", query: bytes = b"", host: bool = True
) -> int | None:
    try:
        check(method, query, {**(HOST if host else {}), **headers}, TOKEN)
    except RequestRefused as refusal:
        return refusal.status
    return None


def test_the_link_makes_a_cookie_and_the_cookie_or_a_bearer_opens_everything() -> None:
    assert check("GET", b"token=s3cret", HOST, TOKEN) is True
    assert check("GET", b"", {**HOST, **COOKIES}, TOKEN) is False
    assert check("GET", b"", {**HOST, b"authorization": b"Bearer s3cret"}, TOKEN) is False


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, b""),
        ({}, b"token=other"),
        ({b"cookie": b"heliograph-8470=other"}, b""),
        ({b"cookie": b"heliograph-8470="}, b""),
        ({b"cookie": b"heliograph-8471=s3cret"}, b""),
        ({b"cookie": b'a b"c;;=\xff'}, b""),
        ({b"authorization": b"Bearer "}, b""),
        (COOKIES, b"token=other"),
    ],
)
def test_without_the_token_nothing_is_answered(headers: dict[bytes, bytes], query: bytes) -> None:
    assert refused(headers, query=query) == 401


def test_nothing_can_be_changed() -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert refused(COOKIES, method=method) == 405


@pytest.mark.parametrize(
    "host", [b"evil.example", b"127.0.0.1.evil.example:8470", b"", b"[::1", b"localhost.evil"]
)
def test_a_name_that_somebody_elses_dns_points_here_is_refused(host: bytes) -> None:
    assert refused({**COOKIES, b"host": host}, host=False) == 421


def test_scripts_of_other_sites_are_refused_and_links_are_not() -> None:
    assert refused({**COOKIES, b"origin": b"http://127.0.0.1:8470"}) is None
    assert refused({**COOKIES, b"origin": b"http://evil.example"}) == 403
    assert refused({**COOKIES, b"origin": b"null"}) == 403
    assert refused({**COOKIES, b"origin": b"http://["}) == 403
    assert refused({**COOKIES, b"origin": b"http://127.0.0.1:9999"}) == 403
    cross = {**COOKIES, b"sec-fetch-site": b"cross-site"}
    assert refused({**cross, b"sec-fetch-mode": b"no-cors"}) == 403
    assert refused({**cross, b"sec-fetch-mode": b"navigate"}) is None
    assert refused({**COOKIES, b"sec-fetch-site": b"same-origin", b"sec-fetch-mode": b"cors"}) is None


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=60))
def test_no_host_without_an_address_passes(host: str) -> None:
    if is_own_host(host):
        assert (
            "localhost" in host.lower() or any(character in "0123456789" for character in host) or ":" in host
        )


NAMES = st.sampled_from([b"cookie", b"authorization", b"origin", b"host"])


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=80)), st.binary(max_size=80))
def test_any_bytes_are_refused_in_order(headers: dict[bytes, bytes], query: bytes) -> None:
    assert refused(headers, query=query) in (401, 403, 421)
