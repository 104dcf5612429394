"""Participants of managed channels, as processes to be killed."""

from __future__ import annotations

import sys
from typing import Any, cast

import heliograph as hg
from heliograph.errors import HeliographError
from tests.e2e.link_process import say
from tests.e2e.link_support import Track, transport


def take_part(user: str, lease: str) -> None:
    """Do what standard input says: create, join ACCESS, push N, consume, suspend, restart, stats."""
    with hg.Station(domain="e2e", transport=transport(), name=user, on_error=lambda *_: None) as station:
        manager = station.domain_manager
        say("ready")
        for line in sys.stdin:
            call, *words = line.split()
            try:
                if call == "create":
                    manager.create("wing", Track, owner=user, lease=float(lease))
                elif call == "join":
                    manager.find("wing", Track)
                    manager.join("wing", user, access=cast("Any", words[0]), history=True, lease=float(lease))
                elif call == "push":
                    with manager.member("wing", user).supplier() as supplier:
                        for i in range(int(words[0])):
                            supplier.push(Track(supplier.last_sequence + i))
                elif call == "consume":
                    manager.member("wing", user).subscribe(lambda track: say("got", track.id))
                elif call == "plain":
                    station.channel("wing", Track).push(Track(99))
                else:
                    getattr(manager, call)("wing", by=user)
                say("done", *line.split())
            except HeliographError as error:
                say("refused", type(error).__name__, str(error))


if __name__ == "__main__":
    take_part(*sys.argv[1:])
