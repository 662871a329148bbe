"""A classic group: joins, generations, assignments, sessions and leaving."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater.groups.settings import GroupSettings
from headwater.protocol.records.group_offsets import GroupMetadataValue
from tests.support.group_shards import GROUP, SETTINGS, ShardDesk, protocols, subscription


@pytest.fixture
def desk() -> ShardDesk:
    return ShardDesk()


def last_group_record(desk: ShardDesk) -> GroupMetadataValue:
    value = desk.records[-1].value
    assert isinstance(value, GroupMetadataValue)
    return value


# Joining


def test_a_dynamic_member_is_first_told_its_id(desk: ShardDesk) -> None:
    answer = desk.joined(desk.join(client="app"))
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-")
    assert desk.state() == "Empty"


def test_old_versions_join_without_an_id(desk: ShardDesk) -> None:
    token = desk.join(version=3)
    assert desk.waits(token)
    desk.settle()
    assert desk.joined(token).error_code == ErrorCode.NONE


def test_a_member_alone_leads_and_learns_who_is_in_its_generation(desk: ShardDesk) -> None:
    member = desk.new_id()
    token = desk.join(member)
    desk.settle()
    answer = desk.joined(token)
    assert (answer.generation_id, answer.leader, answer.member_id) == (1, member, member)
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [one.member_id for one in answer.members] == [member]
    assert answer.members[0].metadata == subscription("orders")
    assert desk.state() == "CompletingRebalance"


def test_only_the_leader_learns_the_members(desk: ShardDesk) -> None:
    first, second = desk.new_id(), desk.new_id()
    tokens = [desk.join(first), desk.join(second)]
    desk.settle()
    led, followed = map(desk.joined, tokens)
    assert [one.member_id for one in led.members] == [first, second]
    assert followed.members == []
    assert followed.leader == first


def test_a_group_is_written_when_it_is_first_asked_for(desk: ShardDesk) -> None:
    desk.new_id()
    value = last_group_record(desk)
    assert (value.protocol_type, value.generation, value.members) == ("", 0, [])
    assert value.current_state_timestamp == desk.now_ms


@pytest.mark.parametrize("session_ms", [5999, 1_800_001, 0, -1])
def test_a_session_out_of_bounds_is_refused(desk: ShardDesk, session_ms: int) -> None:
    assert desk.join_code(desk.join(session_ms=session_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not desk.records


def test_a_group_without_a_name_is_refused(desk: ShardDesk) -> None:
    assert desk.join_code(desk.join(group="")) == ErrorCode.INVALID_GROUP_ID


def test_an_id_that_was_never_given_out_is_unknown(desk: ShardDesk) -> None:
    assert desk.join_code(desk.join("nobody")) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.new_id()
    assert desk.join_code(desk.join("nobody")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_protocols_is_refused(desk: ShardDesk) -> None:
    assert desk.join_code(desk.join(speaks=[])) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.join_code(desk.join(kind="")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_shares_no_protocol_is_refused(desk: ShardDesk) -> None:
    desk.member(speaks=protocols("range"))
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.join_code(desk.join(speaks=protocols("sticky"))) == refused
    assert desk.join_code(desk.join(kind="connect")) == refused
    assert desk.state() == "Stable"


def test_the_protocol_most_members_like_best_is_chosen_among_those_all_know(
    desk: ShardDesk,
) -> None:
    likes = [("a", "c", "b"), ("c", "b"), ("b", "c")]
    ids = [desk.new_id(speaks=protocols(*names)) for names in likes]
    tokens = [desk.join(m, speaks=protocols(*n)) for m, n in zip(ids, likes, strict=True)]
    desk.settle()
    assert {desk.joined(token).protocol_name for token in tokens} == {"c"}


def test_a_full_group_takes_no_more_members() -> None:
    desk = ShardDesk(GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2))
    first, _ = desk.members(2)
    assert desk.join_code(desk.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.state() == "Stable"
    assert desk.waits(desk.join(first)), "a member is not one too many"


# The first generation


def test_the_first_members_are_waited_for_a_while_longer_with_each() -> None:
    desk = ShardDesk(GroupSettings(initial_rebalance_delay_ms=3000))
    token = desk.join(version=3, rebalance_ms=8000)
    desk.advance(2.0)
    second = desk.join(version=3, rebalance_ms=8000)
    desk.advance(2.0)
    assert desk.waits(token), "the second extended the wait"
    desk.advance(2.0)
    assert len(desk.joined(token).members) == 2
    assert desk.joined(second).generation_id == 1


def test_the_wait_for_first_members_ends_with_the_rebalance_timeout() -> None:
    desk = ShardDesk(GroupSettings(initial_rebalance_delay_ms=3000))
    token = desk.join(version=3, rebalance_ms=5000)
    for _ in range(6):
        desk.advance(1.0)
        desk.join(version=3, rebalance_ms=5000)
    assert not desk.waits(token)


# Rebalances


def test_a_newcomer_makes_everybody_join_again(desk: ShardDesk) -> None:
    first = desk.member()
    second = desk.new_id()
    token = desk.join(second)
    assert desk.state() == "PreparingRebalance"
    assert desk.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.waits(token)
    again = desk.join(first)
    assert desk.joined(again).generation_id == desk.joined(token).generation_id == 2
    assert desk.joined(again).leader == first


def test_a_pending_member_is_waited_for(desk: ShardDesk) -> None:
    first = desk.member()
    pending = desk.new_id()
    token = desk.join(first)  # the leader rejoins
    assert desk.waits(token)
    assert desk.waits(desk.join(pending)) is False
    assert not desk.waits(token)


def test_a_pending_member_that_does_not_come_back_is_forgotten(desk: ShardDesk) -> None:
    first = desk.member(session_ms=30_000)
    pending = desk.new_id(session_ms=6000)
    token = desk.join(first)
    desk.advance(6.0)
    assert desk.joined(token).generation_id == 2
    assert desk.join_code(desk.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_in_time_are_removed(desk: ShardDesk) -> None:
    slow = desk.member(rebalance_ms=400, session_ms=10_000)
    quick = desk.new_id(rebalance_ms=400)
    token = desk.join(quick, rebalance_ms=400)
    desk.advance(0.3)
    assert desk.waits(token)
    desk.advance(0.1)
    answer = desk.joined(token)
    assert (answer.leader, [one.member_id for one in answer.members]) == (quick, [quick])
    assert desk.heartbeat(slow, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_again_unchanged_just_learns_the_generation(
    desk: ShardDesk,
) -> None:
    leader, follower = desk.members(2)
    answer = desk.joined(desk.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert desk.state() == "Stable"


def test_new_metadata_of_a_follower_rebalances(desk: ShardDesk) -> None:
    _, follower = desk.members(2)
    desk.join(follower, speaks=protocols("range", metadata=subscription("other")))
    assert desk.state() == "PreparingRebalance"


def test_a_leader_that_joins_again_rebalances(desk: ShardDesk) -> None:
    leader, _ = desk.members(2)
    desk.join(leader)
    assert desk.state() == "PreparingRebalance"


def test_a_member_that_missed_its_answer_gets_it_again(desk: ShardDesk) -> None:
    member = desk.new_id()
    first = desk.join(member)
    desk.settle()
    assert desk.joined(desk.join(member)) == desk.joined(first)


def test_a_join_that_is_sent_twice_is_answered_twice(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    lost = desk.join(first)
    again = desk.join(first)
    assert desk.join_code(lost) == ErrorCode.REBALANCE_IN_PROGRESS
    desk.join(second)
    assert desk.joined(again).generation_id == 2


def test_new_metadata_while_others_sync_sends_them_back(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    desk.join(first)
    desk.join(second)
    waiting = desk.sync(second, 2)
    desk.join(first, speaks=protocols("range", metadata=subscription("other")))
    assert desk.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.state() == "PreparingRebalance"
    assert [one.member_assignment for one in desk.describe().members] == [b"", b""]


# Syncing


def test_followers_get_their_part_when_the_leader_brings_it(desk: ShardDesk) -> None:
    first, second = desk.new_id(), desk.new_id()
    desk.join(first)
    desk.join(second)
    desk.settle()
    waiting = desk.sync(second, 1)
    assert desk.waits(waiting)
    led = desk.sync(first, 1, {first: b"one", second: b"two", "stranger": b"three"})
    assert desk.synced(waiting).assignment == b"two"
    assert desk.synced(led).assignment == b"one"
    assert desk.synced(led).protocol_name == "range"
    assert desk.state() == "Stable"


def test_a_generation_is_written_when_its_leader_assigns(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    value = last_group_record(desk)
    assert (value.generation, value.protocol, value.leader) == (1, "range", first)
    assert value.protocol_type == "consumer"
    written = [(m.member_id, m.client_id, m.client_host, m.assignment) for m in value.members]
    assert written == [
        (first, "app", "/127.0.0.1", b"part 0"),
        (second, "app", "/127.0.0.1", b"part 1"),
    ]
    assert value.members[0].subscription == subscription("orders")
    assert (value.members[0].session_timeout, value.members[0].rebalance_timeout) == (
        10_000,
        60_000,
    )


def test_a_member_that_the_leader_left_out_gets_nothing(desk: ShardDesk) -> None:
    first, second = desk.new_id(), desk.new_id()
    desk.join(first)
    desk.join(second)
    desk.settle()
    waiting = desk.sync(second, 1)
    desk.sync(first, 1, {first: b"all"})
    answer = desk.synced(waiting)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"")


def test_the_assignment_of_a_stable_group_is_not_replaced(desk: ShardDesk) -> None:
    member = desk.member()
    records = len(desk.records)
    assert desk.synced(desk.sync(member, 1, {member: b"other"})).assignment == b"all"
    assert len(desk.records) == records


def test_a_sync_that_does_not_fit_is_refused(desk: ShardDesk) -> None:
    member = desk.member()

    def code(token: int) -> int:
        return desk.synced(token).error_code

    assert code(desk.sync(member, 0)) == ErrorCode.ILLEGAL_GENERATION
    assert code(desk.sync(member, 9)) == ErrorCode.ILLEGAL_GENERATION
    assert code(desk.sync("nobody", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(desk.sync(member, 1, group="never")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(desk.sync(member, 1, group="")) == ErrorCode.INVALID_GROUP_ID
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(desk.sync(member, 1, kind="connect")) == inconsistent
    assert code(desk.sync(member, 1, protocol="sticky")) == inconsistent
    assert code(desk.sync(member, 1, protocol=None)) == inconsistent
    desk.join(desk.new_id())
    assert code(desk.sync(member, 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_out_after_the_rebalance_timeout(desk: ShardDesk) -> None:
    first, second = desk.new_id(), desk.new_id()
    desk.join(first, rebalance_ms=5000, session_ms=30_000)
    desk.join(second, rebalance_ms=5000, session_ms=30_000)
    desk.settle()
    waiting = desk.sync(second, 1)
    desk.advance(5.0)
    assert desk.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    token = desk.join(second)
    assert desk.joined(token).leader == second


def test_a_member_that_falls_silent_before_it_syncs_is_removed_after_its_session(
    desk: ShardDesk,
) -> None:
    silent, second = desk.new_id(), desk.new_id()
    desk.join(silent, session_ms=6000)
    desk.join(second, session_ms=30_000)
    desk.settle()
    waiting = desk.sync(second, 1)
    desk.advance(6.0)
    assert desk.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert [one.member_id for one in desk.describe().members] == [second]


# Staying and leaving


def test_heartbeats_keep_a_session_and_silence_ends_it(desk: ShardDesk) -> None:
    member = desk.member(session_ms=10_000)
    for _ in range(5):
        desk.advance(9.0)
        assert desk.heartbeat(member, 1) == ErrorCode.NONE
    desk.advance(10.0)
    assert desk.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.state() == "Empty"


def test_a_commit_keeps_a_session_too(desk: ShardDesk) -> None:
    member = desk.member(session_ms=10_000)
    desk.advance(9.0)
    assert desk.commit({("orders", 0): 5}, member, 1) == [ErrorCode.NONE]
    desk.advance(9.0)
    assert desk.heartbeat(member, 1) == ErrorCode.NONE


def test_a_heartbeat_that_does_not_fit_is_refused(desk: ShardDesk) -> None:
    member = desk.member()
    assert desk.heartbeat(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat(member, 9) == ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat(member, -1) == ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat(member, 1, group="never") == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat(member, 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert desk.heartbeat(member, 1, instance="ghost") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_heartbeat_keeps_no_session(desk: ShardDesk) -> None:
    member = desk.member(session_ms=10_000)
    desk.advance(9.0)
    desk.heartbeat(member, 0)
    desk.advance(1.0)
    assert desk.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_a_parked_request_does_not_time_out(desk: ShardDesk) -> None:
    first, second = desk.members(2, session_ms=10_000)
    waiting = desk.join(first)
    for _ in range(4):
        desk.advance(9.0)
        desk.heartbeat(second, 1)
    assert desk.waits(waiting)


def test_a_new_member_that_waits_too_long_is_forgotten(desk: ShardDesk) -> None:
    first = desk.member(rebalance_ms=3_600_000, session_ms=1_800_000)
    waiting = desk.join(desk.new_id(), rebalance_ms=3_600_000)
    desk.advance(299.0)
    desk.heartbeat(first, 1)
    assert desk.waits(waiting)
    desk.advance(1.0)
    assert desk.join_code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_to_leave_empties_the_group(desk: ShardDesk) -> None:
    member = desk.member()
    assert desk.leave_codes((member, None)) == [ErrorCode.NONE]
    assert desk.state() == "Empty"
    value = last_group_record(desk)
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    assert value.protocol_type == "consumer"
    assert value.current_state_timestamp == desk.now_ms
    assert desk.leave_codes((member, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_that_leaves_makes_the_others_rebalance(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    desk.leave((second, None))
    assert desk.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heartbeat(second, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.joined(desk.join(first)).generation_id == 2


def test_leaving_refuses_the_parked_requests_of_the_member(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    waiting = desk.join(first)
    desk.leave((first, None))
    assert desk.join_code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.join(second)
    syncing = desk.sync(second, 2, {second: b"x"})
    assert desk.synced(syncing).error_code == ErrorCode.NONE


def test_leaving_ends_a_sync_too(desk: ShardDesk) -> None:
    first, second = desk.new_id(), desk.new_id()
    desk.join(first)
    desk.join(second)
    desk.settle()
    waiting = desk.sync(second, 1)
    desk.leave((second, None))
    assert desk.synced(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_can_leave(desk: ShardDesk) -> None:
    first = desk.member()
    pending = desk.new_id()
    waiting = desk.join(first)
    assert desk.leave_codes((pending, None)) == [ErrorCode.NONE]
    assert desk.joined(waiting).generation_id == 2


def test_leaves_that_do_not_fit_are_refused_one_by_one(desk: ShardDesk) -> None:
    desk.member()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.leave_codes(("nobody", None), ("", None), ("", "inst")) == [unknown] * 3
    assert desk.leave_codes(("nobody", None), group="never") == [unknown]
    assert desk.leave(("nobody", None), group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert desk.state() == "Stable"


def test_old_versions_of_leave_answer_with_one_code(desk: ShardDesk) -> None:
    member = desk.member()
    refused = desk.leave(("nobody", None), version=2)
    assert (refused.error_code, refused.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    assert desk.leave((member, None), version=0).error_code == ErrorCode.NONE
    assert desk.state() == "Empty"


# A coordinator that moves


def test_members_live_on_under_a_new_coordinator(desk: ShardDesk) -> None:
    first, second = desk.members(2, session_ms=10_000)
    desk.advance(9.0)
    desk.restart()
    desk.advance(9.0)
    assert desk.heartbeat(first, 1) == ErrorCode.NONE
    assert desk.synced(desk.sync(second, 1)).assignment == b"part 1"
    assert desk.state() == "Stable", "sessions began anew"
    desk.advance(1.0)
    assert desk.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS, "the second fell silent"


def test_parked_requests_are_sent_elsewhere_when_the_shard_is_unloaded(desk: ShardDesk) -> None:
    first, second = desk.members(2)
    desk.members(2, group="other")
    joining = desk.join(first)
    leader, follower = desk.members(2, group="third")
    desk.join(leader, group="third")
    desk.join(follower, group="third")
    syncing = desk.sync(follower, 2, group="third")
    desk.carry_out(desk.shard.on_unloaded())
    assert desk.join_code(joining) == ErrorCode.NOT_COORDINATOR
    assert desk.synced(syncing).error_code == ErrorCode.NOT_COORDINATOR
    assert second


def test_a_group_too_large_for_a_lowered_bound_shrinks_after_loading() -> None:
    desk = ShardDesk()
    ids = desk.members(3)
    desk.settings = GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2)
    desk.restart()
    assert desk.state() == "PreparingRebalance"
    tokens = [desk.join(member_id) for member_id in ids]
    desk.advance(60.0)
    codes = [desk.join_code(token) for token in tokens]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_group_of_a_thousand_converges() -> None:
    desk = ShardDesk(SETTINGS)
    desk.members(1000)
    assert len(desk.describe(GROUP).members) == 1000


# What a refused JoinGroup says


@pytest.mark.parametrize(("version", "name"), [(4, ""), (6, ""), (7, None), (9, None)])
def test_a_refused_join_names_no_protocol_from_version_7_on(
    desk: ShardDesk, version: int, name: str | None
) -> None:
    """Compared with Apache Kafka 4.3.1, which is the same for every error."""

    def names(*tokens: int) -> set[str | None]:
        assert all(desk.join_code(token) is not ErrorCode.NONE for token in tokens)
        return {desk.joined(token).protocol_name for token in tokens}

    assert names(
        desk.join(group="", version=version),
        desk.join(session_ms=1, version=version),
        desk.join("nobody", version=version),
        desk.join(speaks=[], version=version),
        desk.join(version=version),  # MEMBER_ID_REQUIRED
    ) == {name}
    (member,) = desk.members(1)
    parked = desk.join(desk.new_id(), version=version)
    assert names(
        desk.join("nobody", version=version),
        desk.join(kind="connect", version=version),
        desk.join(member, speaks=protocols("other"), version=version),
    ) == {name}
    assert desk.waits(parked)
    desk.carry_out(desk.shard.on_unloaded())
    assert names(parked) == {name}


# Lines in the node's log


def test_the_log_names_a_silent_member_that_was_removed_and_none_that_join_and_leave() -> None:
    desk = ShardDesk()
    first, second = desk.members(2)
    desk.leave((second, None))
    token = desk.join(first)
    desk.sync(first, desk.joined(token).generation_id, {first: b"all"})
    assert desk.notes == []
    desk.advance(11)
    assert desk.notes == [f"group billing: removed {first}: sent no heartbeat for 10000 ms"]


def test_the_log_says_that_members_did_not_rejoin_in_time() -> None:
    desk = ShardDesk()
    first, second = desk.members(2, rebalance_ms=1000)
    desk.join(first, rebalance_ms=1000, speaks=protocols("range"))
    desk.advance(1.5)
    assert desk.notes == [
        f"group billing: removed {second}: did not rejoin within the rebalance timeout"
    ]
