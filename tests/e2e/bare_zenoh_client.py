"""A client of bare Zenoh, as it could be written in any language: imports nothing of Heliograph.

    python bare_zenoh_client.py ENDPOINT EVENTS

Says what comes of a channel as JSON and in its stream, and pushes into another channel.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from typing import Any

import zenoh

HEAD = struct.Struct("<B3xIIQ")
"""Of what is put into a stream: kind, stream, count, first number."""


def say(*words: object) -> None:
    print(*words, flush=True)


def opened(endpoint: str) -> zenoh.Session:
    config = zenoh.Config()
    settings = {"mode": "client", "connect/endpoints": [endpoint], "scouting/multicast/enabled": False}
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def cloud_event(number: int, **data: Any) -> bytes:
    event = {"specversion": "1.0", "id": f"bare-{number}", "source": "/bare", "type": "air.track"}
    return json.dumps({**event, "data": data}).encode()


def main(endpoint: str, events: int) -> None:
    seen: list[int] = []
    numbers: list[int] = []
    all_seen = threading.Event()

    def came(sample: zenoh.Sample) -> None:
        document = json.loads(sample.payload.to_bytes())
        seen.append(document["data"]["id"])
        if len(seen) == events:
            all_seen.set()

    def put_live(sample: zenoh.Sample) -> None:
        kind, _, count, first = HEAD.unpack_from(sample.payload.to_bytes())
        if kind == 1:
            numbers.extend(range(first, first + count))

    with opened(endpoint) as session:
        json_out = session.declare_subscriber("hg1/e2e/json/air.tracks/out", came)
        live = session.declare_subscriber("hg1/e2e/live/air.tracks/**", put_live)
        say("ready")
        all_seen.wait(60)
        say("json", seen == list(range(events)), len(seen))
        until = time.monotonic() + 60
        while len(numbers) < events and time.monotonic() < until:
            time.sleep(0.01)
        say("live", numbers == list(range(numbers[0], numbers[0] + events)))
        session.put("hg1/e2e/json/orders/in", cloud_event(1, id=7, speed=1.5))
        for payload in (cloud_event(2, id=8), cloud_event(3, id="eight"), b"{"):
            for reply in session.get("hg1/e2e/json/orders/in", payload=payload, timeout=30):
                if reply.ok is not None:
                    say("pushed", json.loads(reply.ok.payload.to_bytes())["id"])
                elif reply.err is not None:
                    say("refused", reply.err.payload.to_bytes().decode()[:60])
        sys.stdin.read()
        for subscriber in (json_out, live):
            subscriber.undeclare()  # type: ignore[no-untyped-call]  # Zenoh's
    assert not [name for name in sys.modules if name.startswith("heliograph")]
    say("ended")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
