"""The pure state of owners and members: what may be is decided before it is, and told by named errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from heliograph.errors import EventChannelNotFound, NameAlreadyUsed, NotAMember, NotOwner, NotPossible
from heliograph.manager.roster import Activity, Managed, Membership, Roster

if TYPE_CHECKING:
    from collections.abc import Callable

WING = "project.wing"


def with_members(*users: str) -> Roster:
    """A channel of anna's, with these members."""
    roster = Roster()
    roster.apply(roster.creating(WING, "anna", 1, access="both", types=["drawing"]))
    for user in users:
        roster.apply(roster.joining(WING, user, 2, access="both"))
    return roster


def test_who_creates_a_channel_owns_it_and_is_its_first_member() -> None:
    roster = with_members()
    assert roster.channels() == (
        Managed(WING, "anna", {"anna": Membership("anna", "both", 1)}, types=("drawing",)),
    )


def test_what_is_asked_for_changes_nothing_before_it_is_applied() -> None:
    roster = with_members("bert")
    for record in (
        roster.creating("other", "carl", 3, access="both"),
        roster.joining(WING, "carl", 3, access="consume"),
        roster.leaving(WING, "bert", 3),
        roster.suspending(WING, "anna", 3),
        roster.transferring(WING, "anna", "bert", 3),
        roster.destroying(WING, "anna", 3),
    ):
        assert record.number == 3
    assert roster == with_members("bert")


def test_a_record_says_who_did_what_where_and_when() -> None:
    record = with_members().joining(WING, "bert", 77, access="consume", where="part = 'flap'", begins=9)
    assert record == Activity(
        "consumer", "bert", WING, 77, "joined", 2, [], where="part = 'flap'", begins=9, new_owner=None
    )


@pytest.mark.parametrize(
    ("access", "kind"), [("consume", "consumer"), ("supply", "supplier"), ("both", "both")]
)
def test_the_three_types_of_user(access: Any, kind: str) -> None:
    roster = with_members()
    record = roster.joining(WING, "bert", 2, access=access)
    assert record.user_type == kind
    roster.apply(record)
    assert roster.find(WING).member("bert").access == access


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda r: r.creating(WING, "carl", 3, access="both"), NameAlreadyUsed(WING, "anna")),
        (lambda r: r.joining("other", "carl", 3, access="both"), EventChannelNotFound("other")),
        (lambda r: r.leaving("other", "bert", 3), EventChannelNotFound("other")),
        (lambda r: r.destroying("other", "anna", 3), EventChannelNotFound("other")),
        (lambda r: r.leaving(WING, "carl", 3), NotAMember(WING, "carl")),
        (lambda r: r.transferring(WING, "anna", "carl", 3), NotAMember(WING, "carl")),
        (lambda r: r.suspending(WING, "bert", 3), NotOwner(WING, "bert", "suspend", "anna")),
        (lambda r: r.restarting(WING, "bert", 3), NotOwner(WING, "bert", "restart", "anna")),
        (lambda r: r.transferring(WING, "bert", "bert", 3), NotOwner(WING, "bert", "transfer", "anna")),
        (lambda r: r.destroying(WING, "bert", 3), NotOwner(WING, "bert", "destroy", "anna")),
    ],
)
def test_what_may_not_be_is_told_with_its_facts(ask: Callable[[Roster], object], error: Exception) -> None:
    roster = with_members("bert")
    with pytest.raises(type(error)) as raised:
        ask(roster)
    assert raised.value.args == error.args
    assert roster == with_members("bert")


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda r: r.joining(WING, "bert", 3, access="supply"), "'bert' is a member already, with access="),
        (lambda r: r.joining(WING, "carl", 3, access="admin"), "access='admin': allowed are both, consume"),
        (lambda r: r.joining(WING, "carl", 3, access=["both"]), r"access=\['both'\]: allowed are"),
        (lambda r: r.joining(WING, "carl", 3, access="supply", where="a = 1"), "where= is for who consumes"),
        (lambda r: r.leaving(WING, "anna", 3), "its owner 'anna' cannot leave"),
        (lambda r: r.restarting(WING, "anna", 3), "is not suspended"),
        (lambda r: r.transferring(WING, "anna", "anna", 3), "'anna' owns it already"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(ask: Callable[[Any], object], reason: str) -> None:
    with pytest.raises(NotPossible, match=reason):
        ask(with_members("bert"))


def test_a_suspended_channel_is_not_suspended_again_before_it_is_restarted() -> None:
    roster = with_members()
    roster.apply(roster.suspending(WING, "anna", 3))
    assert roster.find(WING).suspended
    with pytest.raises(NotPossible, match="is suspended already"):
        roster.suspending(WING, "anna", 4)
    roster.apply(roster.restarting(WING, "anna", 4))
    assert not roster.find(WING).suspended


def test_the_old_owner_can_leave_when_there_is_a_new_one() -> None:
    roster = with_members("bert")
    roster.apply(roster.transferring(WING, "anna", "bert", 3))
    roster.apply(roster.leaving(WING, "anna", 4))
    assert roster.find(WING).owner == "bert"
    assert set(roster.find(WING).members) == {"bert"}


def test_the_name_of_a_destroyed_channel_is_free() -> None:
    roster = with_members("bert")
    roster.apply(roster.destroying(WING, "anna", 3))
    assert roster.channels() == ()
    assert roster.had(WING)
    roster.apply(roster.creating(WING, "bert", 4, access="supply"))
    assert roster.find(WING).owner == "bert"


def test_who_leaves_and_joins_again_is_another_member_with_a_place_of_its_own() -> None:
    roster = with_members("bert")
    before = roster.find(WING).member("bert").group
    roster.apply(roster.leaving(WING, "bert", 3))
    roster.apply(roster.joining(WING, "bert", 4, access="consume"))
    assert roster.find(WING).member("bert").group != before


def test_the_longest_names_have_places_of_their_own() -> None:
    groups = {Membership("x" * 255, "both", number).group for number in (1, 2, 1 << 62)}
    assert len(groups) == 3
    assert max(map(len, groups)) <= 255


@pytest.mark.parametrize(
    "record",
    [
        Activity("both", "carl", WING, 3, "created", 9, []),
        Activity("both", "bert", WING, 3, "joined", 9, []),
        Activity("both", "anna", WING, 3, "left", 9, []),
        Activity("both", "anna", WING, 3, "transferred", 9, [], new_owner="carl"),
        Activity("both", "anna", "other", 3, "destroyed", 9, []),
    ],
)
def test_a_record_that_does_not_fit_changes_no_channel(record: Activity) -> None:
    roster = with_members("bert")
    roster.apply(record)
    assert roster.channels() == with_members("bert").channels()


def test_a_record_that_only_a_newer_program_understands_is_not_passed_over() -> None:
    with pytest.raises(NotPossible, match="a record of kind 'merged': a newer program wrote it"):
        with_members().apply(Activity("both", "anna", WING, 3, "merged", 9, []))


def test_the_groups_of_those_who_left_are_known_and_those_of_members_are_not_among_them() -> None:
    roster = with_members("bert", "carl")
    roster.apply(roster.leaving(WING, "bert", 3))
    roster.apply(roster.joining(WING, "bert", 4, access="both"))
    left = roster.groups_left(WING)
    assert "member 2: bert" in left
    assert "member 5: bert" not in left
    assert "member 3: carl" not in left
    roster.apply(roster.destroying(WING, "anna", 5))
    assert all(group in roster.groups_left(WING) for group in ("member 1: anna", "member 3: carl"))
    assert "member 1: anna" not in roster.groups_left("other")
