"""What a station may be told to listen on and to connect to."""

from __future__ import annotations

import pytest

from heliograph.errors import NotPossible
from heliograph.runtime.endpoints import EndpointAddress, Network, check, parse, why_not_endpoints


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tcp/127.0.0.1:7447", EndpointAddress("tcp", "127.0.0.1", 7447)),
        ("tcp/[::1]:1", EndpointAddress("tcp", "[::1]", 1)),
        ("tcp/radar.example:65535", EndpointAddress("tcp", "radar.example", 65535)),
    ],
)
def test_an_endpoint_is_read(text: str, meant: EndpointAddress) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp",
        "tcp/127.0.0.1",
        "127.0.0.1:7447",
        "tcp/:7447",
        "tcp/a:0",
        "tcp/a:70000",
        "udp/127.0.0.1:7447",
        "tcp/a:1?x=1",
        "tcp/a:1#iface=eth0",
        "tcp/a b:1",
        "tcp/a:1;tcp/b:2",
        7447,
        None,
    ],
)
def test_what_is_no_endpoint_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(NotPossible, match=r"tcp/127\.0\.0\.1:7447|a port from 1 to 65535"):
        parse(text)


@pytest.mark.parametrize("value", ["tcp/127.0.0.1:7447", 1, ["nonsense"], ["tcp/127.0.0.1:1"] * 65])
def test_what_is_no_list_of_endpoints_is_refused(value: object) -> None:
    assert why_not_endpoints(value)


@pytest.mark.parametrize("text", ["tcp/127.0.0.1:1", "tcp/127.9.9.9:1", "tcp/[::1]:1", "tcp/localhost:1"])
def test_loopback_needs_no_encryption(text: str) -> None:
    check(Network((text,), (text,)))


@pytest.mark.parametrize("text", ["tcp/0.0.0.0:1", "tcp/10.0.0.1:1", "tcp/[::]:1", "tcp/radar.example:1"])
@pytest.mark.parametrize("option", ["listen", "connect"])
def test_beyond_this_host_nothing_goes_unencrypted_unless_that_is_said(text: str, option: str) -> None:
    endpoints: tuple[tuple[str, ...], tuple[str, ...]] = (
        ((text,), ()) if option == "listen" else ((), (text,))
    )
    with pytest.raises(NotPossible, match=f"{option}=.*insecure=True"):
        check(Network(*endpoints))
    check(Network(endpoints[0], endpoints[1], insecure=True))
