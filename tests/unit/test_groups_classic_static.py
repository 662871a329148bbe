"""Static members of a classic group: restarts without a rebalance, and fencing."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater.protocol.records.group_offsets import GroupMetadataValue
from tests.support.group_shards import ShardDesk, protocols, subscription


@pytest.fixture
def desk() -> ShardDesk:
    return ShardDesk()


def static_pair(desk: ShardDesk) -> tuple[str, str]:
    """A stable group of two static members, `one` leads."""
    tokens = [desk.join(instance="one"), desk.join(instance="two")]
    desk.settle()
    first, second = (desk.joined(token).member_id for token in tokens)
    desk.sync(second, 1, instance="two")
    desk.sync(first, 1, {first: b"part 0", second: b"part 1"}, instance="one")
    return first, second


def test_a_static_member_needs_no_second_round(desk: ShardDesk) -> None:
    token = desk.join(instance="one")
    desk.settle()
    answer = desk.joined(token)
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id.startswith("one-")


def test_a_restart_takes_the_old_place_without_a_rebalance(desk: ShardDesk) -> None:
    first, second = static_pair(desk)
    answer = desk.joined(desk.join(instance="two"))
    assert answer.member_id not in ("", second)
    assert (answer.error_code, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, first)
    assert not answer.skip_assignment
    assert desk.synced(desk.sync(answer.member_id, 1, instance="two")).assignment == b"part 1"
    assert desk.heartbeat(first, 1, instance="one") == ErrorCode.NONE
    assert desk.state() == "Stable"


def test_a_replacement_is_written(desk: ShardDesk) -> None:
    first, _ = static_pair(desk)
    new = desk.joined(desk.join(instance="two")).member_id
    value = desk.records[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert [m.member_id for m in value.members] == [first, new]
    assert [m.assignment for m in value.members] == [b"part 0", b"part 1"]
    assert value.members[1].group_instance_id == "two"


def test_a_leader_that_restarts_is_told_to_skip_the_assignment(desk: ShardDesk) -> None:
    _, second = static_pair(desk)
    answer = desk.joined(desk.join(instance="one", version=9))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert [one.member_id for one in answer.members] == [answer.member_id, second]


def test_an_old_client_that_led_is_told_that_another_leads(desk: ShardDesk) -> None:
    first, _ = static_pair(desk)
    answer = desk.joined(desk.join(instance="one", version=8))
    assert (answer.leader, answer.members, answer.skip_assignment) == (first, [], False)


def test_the_replaced_one_is_fenced_in_everything(desk: ShardDesk) -> None:
    _, old = static_pair(desk)
    desk.join(instance="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert desk.heartbeat(old, 1, instance="two") == fenced
    assert desk.join_code(desk.join(old, instance="two")) == fenced
    assert desk.synced(desk.sync(old, 1, instance="two")).error_code == fenced
    assert desk.commit({("orders", 0): 5}, old, 1, instance="two") == [fenced]
    assert desk.leave_codes((old, "two")) == [fenced]
    assert desk.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID, "also without its instance id"
    assert desk.committed() == {}


def test_parked_requests_of_a_replaced_member_are_fenced(desk: ShardDesk) -> None:
    first, old = static_pair(desk)
    desk.join(first, instance="one")  # the leader rebalances
    waiting = desk.join(old, instance="two", version=9)
    desk.sync(old, 2, instance="two")
    assert not desk.waits(waiting)
    syncing = desk.sync(old, 2, instance="two")
    new = desk.join(instance="two")
    assert desk.synced(syncing).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert desk.waits(new), "assignments were being made for the old id"
    assert desk.state() == "PreparingRebalance"


def test_a_join_of_the_replaced_one_is_fenced(desk: ShardDesk) -> None:
    _, old = static_pair(desk)
    waiting = desk.join(old, instance="two", speaks=protocols("range"))
    assert desk.waits(waiting)
    desk.join(instance="two")
    answer = desk.joined(waiting)
    assert (answer.error_code, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)
    assert answer.protocol_name is None


def test_a_replacement_that_changes_the_chosen_protocol_rebalances(desk: ShardDesk) -> None:
    static_pair(desk)
    token = desk.join(instance="two", speaks=protocols("roundrobin"))
    assert desk.waits(token)
    assert desk.state() == "PreparingRebalance"


def test_a_replacement_may_want_other_topics(desk: ShardDesk) -> None:
    static_pair(desk)
    desk.commit({("orders", 0): 1}, *_member(desk, "one"), instance="one")
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert desk.delete_offsets("other", 0) == [ErrorCode.NONE]
    desk.join(instance="two", speaks=protocols("range", metadata=subscription("other")))
    assert desk.delete_offsets("other", 0) == [subscribed]


def _member(desk: ShardDesk, instance: str) -> tuple[str, int]:
    members = desk.describe().members
    return next(m.member_id for m in members if m.group_instance_id == instance), 1


def test_an_unknown_instance_id_is_refused(desk: ShardDesk) -> None:
    static_pair(desk)
    token = desk.join("nobody", instance="nine")
    assert desk.join_code(token) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_kept_through_a_rebalance_it_sleeps_through(desk: ShardDesk) -> None:
    tokens = [desk.join(instance=i, session_ms=60_000, rebalance_ms=5000) for i in ("one", "two")]
    desk.settle()
    first, second = (desk.joined(token).member_id for token in tokens)
    desk.sync(second, 1, instance="two")
    desk.sync(first, 1, {}, instance="one")
    token = desk.join(first, instance="one", rebalance_ms=5000, session_ms=60_000)
    desk.advance(5.0)
    assert [one.member_id for one in desk.joined(token).members] == [first, second]


def test_a_rebalance_without_rejoins_waits_for_the_sessions_to_expire(desk: ShardDesk) -> None:
    first, second = static_pair(desk)
    desk.leave((second, "two"))
    desk.advance(9.9)
    assert desk.state() == "PreparingRebalance"
    desk.advance(0.2)
    assert desk.state() == "Empty"
    assert desk.heartbeat(first, 1, instance="one") == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_that_are_silent_with_no_timeout_do_not_spin(desk: ShardDesk) -> None:
    token = desk.join(instance="one", rebalance_ms=0, session_ms=6000)
    desk.settle()
    member = desk.joined(token).member_id
    desk.sync(member, 1, {member: b"x"}, instance="one")
    desk.join(desk.new_id(), rebalance_ms=0)
    desk.advance(7.0)
    assert desk.heartbeat(member, 1, instance="one") == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_static_members_by_their_instance_id(desk: ShardDesk) -> None:
    first, _ = static_pair(desk)
    codes = desk.leave_codes(("", "two"), ("", "three"), ("nobody", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [ErrorCode.NONE, unknown, unknown]
    assert [m.member_id for m in desk.describe().members] == [first]


def test_static_members_are_the_same_after_loading(desk: ShardDesk) -> None:
    _, old = static_pair(desk)
    new = desk.joined(desk.join(instance="two")).member_id
    desk.restart()
    assert desk.heartbeat(old, 1, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert desk.heartbeat(new, 1, instance="two") == ErrorCode.NONE


def test_a_pending_id_cannot_become_static(desk: ShardDesk) -> None:
    pending = desk.new_id()
    token = desk.join(pending, instance="one")
    assert desk.join_code(token) == ErrorCode.UNKNOWN_SERVER_ERROR
