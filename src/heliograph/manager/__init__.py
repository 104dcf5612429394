"""Owners and participants of channels, recorded in a log and known again after a crash.

    manager = station.manager
    manager.create("project.wing", Drawing, owner="anna")
    bert = manager.join("project.wing", "bert", access="consume", where="part = 'flap'")
    bert.subscribe(on_drawing)

`roster` is the pure state: it decides whether something may be, and folds records of what was. `manager` is
the shell around it: it writes each record into the channel `_helio.activity` before anything changes, and
reads them all when a station is opened. `member` is what a participant works with; `domain` asks the manager
of another station.
"""

from __future__ import annotations

from heliograph.manager.manager import Manager
from heliograph.manager.member import Member
from heliograph.manager.roster import Activity, EventRecord, Managed, Membership

__all__ = ["Activity", "EventRecord", "Managed", "Manager", "Member", "Membership"]
