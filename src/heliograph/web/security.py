"""Who may look at a page: the checks of Host, Origin and token that every request passes, and its headers.

A page that is bound to a loopback address can be reached by every user and by every web site that a browser
on this machine has open. So a request needs the token of the link (or the cookie that the page made of it),
names the page itself as its host (a name that an attacker's DNS points here is refused), and comes from no
other site's script. Methods that change something do not exist.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

COOKIE: Final = "heliograph"
LOCAL_NAMES: Final = ("localhost",)
"""Host names beside addresses that need no DNS."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class RequestRefused(Exception):
    """A request is refused: its status, and a sentence for whoever sent it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Guard:
    """Wraps an ASGI application.

    Args:
        app: what answers requests that pass.
        token: without it nothing is answered.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            cookie = check(scope["method"], scope["query_string"], dict(scope["headers"]), self._token)
        except RequestRefused as refusal:
            await _answer(send, refusal.status, str(refusal))
            return
        if cookie:
            # The token leaves the address bar, and with it histories and screenshots.
            name = cookie_name(dict(scope["headers"]))
            made = f"{name}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            # One slash: behind two of them stands a host.
            place = b"/" + quote(scope["path"]).encode().lstrip(b"/")
            moved = [(b"location", place), (b"set-cookie", made.encode())]
            await _answer(send, 303, "", moved)
            return

        async def with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)


def check(method: str, query: bytes, headers: Mapping[bytes, bytes], token: str) -> bool:
    """Whether a cookie is to be made of the token in the query; RequestRefused if it may not pass."""
    if method not in ("GET", "HEAD"):
        raise RequestRefused(405, "the page changes nothing: only GET is answered")
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_own_host(host):
        raise RequestRefused(421, "the host of this request is none of this page's addresses")
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise RequestRefused(403, "this request comes from another site")
    is_own = headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin")
    # A link in a mail or chat may lead here; a script or picture of another site may not.
    if not is_own and headers.get(b"sec-fetch-mode") != b"navigate":
        raise RequestRefused(403, "this request comes from another site")
    given = parse_qs(query.decode("latin-1")).get("token", [""])[-1]
    if given:
        if not _is_same(given, token):
            raise RequestRefused(
                401, "the token of this link is of another run of the station: use the one it printed"
            )
        return True
    bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
    if not (_is_same(_cookie(headers), token) or _is_same(bearer, token)):
        raise RequestRefused(401, "open the link that the station printed: it has a token")
    return False


def is_own_host(host: str) -> bool:
    """Whether a Host header needs no DNS: an address, or this machine's own name for itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in LOCAL_NAMES:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """With the port: a browser keeps cookies by host, and the pages of two stations have one."""
    port = headers.get(b"host", b"").rpartition(b":")[2].decode("latin-1")
    return f"{COOKIE}-{port}" if port.isdecimal() and port.isascii() else COOKIE


def _cookie(headers: Mapping[bytes, bytes]) -> str:
    try:
        cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return ""
    name = cookie_name(headers)
    return cookies[name].value if name in cookies else ""


def _is_same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("latin-1", "replace"), token.encode())


async def _answer(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *(more or ()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
