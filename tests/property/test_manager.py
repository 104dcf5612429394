"""Any sequence of operations, allowed or not: the log folded anew is the state, and both are the model's."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import ChannelError
from heliograph.manager.roster import Activity, Roster
from heliograph.testing import Rig
from tests.manager_model import OWNERS_ONLY, Drawing, Model, Operation, perform, shown
from tests.support import examples

NAMES, USERS = ("wing", "tail"), ("anna", "bert", "carl")


OPERATIONS = st.builds(
    Operation,
    st.sampled_from(("created", "joined", "joined", "left", *OWNERS_ONLY)),
    st.sampled_from(NAMES),
    st.sampled_from(USERS),
    st.sampled_from(("both", "consume", "supply")),
    st.sampled_from(USERS),
)


def decided(roster: Roster, asked: Operation, now: int) -> Activity:
    kind, name, user, access, to = asked
    given_access: Any = access
    match kind:
        case "created":
            return roster.creating(name, user, now, access=given_access)
        case "joined":
            return roster.joining(name, user, now, access=given_access)
        case "left":
            return roster.leaving(name, user, now)
        case "suspended":
            return roster.suspending(name, user, now)
        case "restarted":
            return roster.restarting(name, user, now)
        case "transferred":
            return roster.transferring(name, user, to, now)
    return roster.destroying(name, user, now)


@settings(max_examples=examples(300))
@given(st.lists(OPERATIONS, max_size=40))
def test_the_fold_of_the_log_is_the_state_of_the_model(asked: list[Operation]) -> None:
    model, roster, log = Model(), Roster(), list[Activity]()
    for now, one in enumerate(asked):
        try:
            record = decided(roster, one, now)
        except ChannelError:
            assert not model.allows(one)
            continue
        assert model.allows(one)
        model.do(one)
        roster.apply(record)
        log.append(record)
    assert shown(roster.channels()) == model.shown()
    assert Roster(log) == roster
    assert [record.number for record in log] == list(range(1, len(log) + 1))


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(OPERATIONS, max_size=12))
def test_after_a_power_loss_the_manager_is_where_the_model_is(asked: list[Operation]) -> None:
    model, rig = Model(), Rig()
    manager = rig.station.manager
    for one in asked:
        allowed = model.allows(one)
        try:
            perform(manager, one)
        except ChannelError:
            assert not allowed
        else:
            assert allowed
            model.do(one)
    later = Rig(disk=rig.disk.crash(), seed=1)
    try:
        assert shown(later.station.manager.channels()) == model.shown()
        for name in model.owner:
            channel = later.station.manager.find(name, Drawing)
            try:
                channel.push(Drawing(1))
            except ChannelError:
                assert name in model.suspended
            else:
                assert name not in model.suspended
    finally:
        later.station.close()
