"""A member of a classic group, and its reactions to responses of the coordinator."""

from __future__ import annotations

import re

import pytest

from headwater.client.consumer.membership.assignors import assignors_of
from headwater.client.consumer.membership.classic_member import ClassicMember, Next, Phase
from headwater.client.consumer.membership.member import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    MembershipSettings,
    Revoke,
)
from headwater.client.errors import CommitFailed, FencedInstance, RebalanceInProgress, Refused
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.consumer_protocol import write_assignment
from headwater.protocol.messages.join_group import JoinGroupResponse
from headwater.protocol.messages.sync_group import SyncGroupResponse

T0, T1, T2, U0 = (
    TopicPartition("t", 0),
    TopicPartition("t", 1),
    TopicPartition("t", 2),
    TopicPartition("u", 0),
)


def member(*strategies: str, topics: tuple[str, ...] = ("t",), **settings: object) -> ClassicMember:
    made = ClassicMember(
        MembershipSettings(group_id="g", **settings),  # type: ignore[arg-type]
        assignors_of(strategies or ("range",)),
    )
    made.subscribe(frozenset(topics), None)
    return made


def cooperative() -> ClassicMember:
    return member("cooperative-sticky")


def wants_poll(machine: ClassicMember) -> bool:
    return machine.needs_poll


def beats(machine: ClassicMember) -> bool:
    return machine.keeps_alive


def joined(code: int = 0, *, generation: int = 1, leader: str = "me") -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id="me",
    )


def synced(*partitions: TopicPartition, code: int = 0) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=write_assignment(partitions))


def round_of(machine: ClassicMember, *partitions: TopicPartition, generation: int = 1) -> None:
    """One whole rebalance, with nothing to revoke before it."""
    assert machine.next_step() == JOIN
    machine.on_join_sent()
    assert machine.on_joined(joined(generation=generation), now=0.0) is Next.SYNC
    assert machine.on_synced(synced(*partitions), generation) is Next.STOP


def stable(machine: ClassicMember, *partitions: TopicPartition) -> ClassicMember:
    round_of(machine, *partitions)
    assert isinstance(machine.next_step(), Assign)
    machine.take_over()
    assert machine.next_step() == DONE
    return machine


def test_a_new_member_joins_syncs_and_takes_over() -> None:
    machine = member()
    assert wants_poll(machine)
    assert machine.next_step() == JOIN
    machine.on_join_sent()
    assert machine.next_step() == WAIT
    assert not wants_poll(machine)
    assert machine.on_joined(joined(), now=0.0) is Next.SYNC
    assert machine.on_synced(synced(T0, T1), 1) is Next.STOP
    assert wants_poll(machine)
    assert machine.next_step() == Assign([T0, T1])
    machine.take_over()
    assert machine.owned == {T0, T1}
    assert machine.next_step() == DONE
    assert not wants_poll(machine)


def test_without_a_subscription_nothing_is_due() -> None:
    machine = member(topics=())
    assert machine.next_step() == DONE
    assert not wants_poll(machine)


def test_a_member_id_that_is_given_is_joined_with_at_once() -> None:
    machine = member()
    machine.on_join_sent()
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert machine.on_joined(answer, now=0.0) is Next.AGAIN
    assert machine.member_id == "me"
    assert machine.phase is Phase.JOINING


def test_an_eager_member_gives_everything_back_before_it_joins() -> None:
    machine = stable(member(), T0, T1)
    machine.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, ("me", 1), now=1.0)
    assert wants_poll(machine)
    assert machine.next_step() == Revoke([T0, T1])
    assert machine.identity.generation_or_epoch == 1, "what is given back can be committed"
    machine.on_given_up([T0, T1])
    round_of(machine, T1, generation=2)
    assert machine.next_step() == Assign([T1])


def test_a_cooperative_member_keeps_its_partitions_while_it_joins() -> None:
    machine = stable(cooperative(), T0, T1)
    machine.request_rejoin("why not")
    round_of(machine, T0, generation=2)
    assert machine.owned == {T0, T1}
    assert machine.next_step() == Revoke([T1])
    machine.on_given_up([T1])
    assert machine.next_step() == Assign([])
    machine.take_over()
    assert machine.next_step() == JOIN, "so that what it gave back can go to others"
    assert machine.rejoin_reason == "need to revoke partitions and re-join"


def test_a_cooperative_member_gives_up_topics_it_no_longer_wants_before_it_joins() -> None:
    machine = stable(member("cooperative-sticky", topics=("t", "u")), T0, U0)
    machine.subscribe(frozenset({"t"}), None)
    assert machine.next_step() == Revoke([U0])
    machine.on_given_up([U0])
    assert machine.next_step() == JOIN
    assert machine.owned == {T0}


def test_one_eager_assignor_makes_the_member_eager() -> None:
    assert not member("range", "cooperative-sticky").cooperative
    assert member("cooperative-sticky").cooperative


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_is_thrown_out_has_lost_its_partitions(code: ErrorCode) -> None:
    machine = stable(member(), T0)
    machine.on_heartbeat(code, ("me", 1), now=1.0)
    assert machine.next_step() == Lose([T0])
    with pytest.raises(CommitFailed, match="not a member of group 'g'"):
        _ = machine.identity
    machine.on_given_up([T0])
    assert machine.next_step() == JOIN
    assert machine.member_id == ("me" if code == ErrorCode.ILLEGAL_GENERATION else "")


def test_the_response_to_a_heartbeat_of_an_old_generation_is_ignored() -> None:
    machine = stable(member(), T0)
    machine.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, ("me", 0), now=1.0)
    assert machine.next_step() == DONE
    assert machine.owned == {T0}


def test_a_cooperative_member_that_is_thrown_out_while_it_joins_loses_what_it_kept() -> None:
    machine = stable(cooperative(), T0)
    machine.request_rejoin("why not")
    machine.on_join_sent()
    assert machine.on_joined(joined(ErrorCode.UNKNOWN_MEMBER_ID), now=0.0) is Next.STOP
    assert machine.next_step() == Lose([T0])


def test_a_member_that_owns_nothing_joins_again_without_waiting_for_poll() -> None:
    machine = member()
    machine.on_join_sent()
    assert machine.on_joined(joined(ErrorCode.UNKNOWN_MEMBER_ID), now=0.0) is Next.AGAIN
    assert machine.next_step() == WAIT


def test_a_generation_that_ends_before_it_is_divided_is_joined_again() -> None:
    machine = stable(cooperative(), T0)
    machine.request_rejoin("why not")
    machine.on_join_sent()
    machine.on_joined(joined(generation=2), now=0.0)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.on_synced(SyncGroupResponse(error_code=code), 2) is Next.AGAIN
    assert machine.last is not None
    assert machine.last.generation == 1, "what it owns it was given in the generation before"


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.LATER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Next.ELSEWHERE),
        (ErrorCode.NOT_COORDINATOR, Next.ELSEWHERE),
        (ErrorCode.REBALANCE_IN_PROGRESS, Next.LATER),
    ],
)
def test_a_request_to_a_coordinator_that_moves_or_loads_is_retried(
    code: ErrorCode, following: Next
) -> None:
    machine = member()
    machine.on_join_sent()
    assert machine.on_joined(joined(code), now=0.0) is following
    assert machine.failure is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "partition_assignment_strategy=range"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session_timeout_ms=45000"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
    ],
)
def test_a_refusal_says_what_to_do_and_is_raised_once(code: ErrorCode, says: str) -> None:
    machine = member()
    machine.on_join_sent()
    assert machine.on_joined(joined(code), now=0.0) is Next.STOP
    assert wants_poll(machine)
    failure = machine.take_failure()
    assert isinstance(failure, Refused)
    assert says in str(failure)
    assert machine.take_failure() is None
    assert machine.next_step() == JOIN, "the user may have mended it"


def test_a_fenced_instance_gets_the_error_at_every_poll() -> None:
    machine = stable(member(instance_id="i"), T0)
    machine.on_heartbeat(ErrorCode.FENCED_INSTANCE_ID, ("me", 1), now=1.0)
    for _ in range(2):
        failure = machine.take_failure()
        assert isinstance(failure, FencedInstance)
        assert "'i'" in str(failure)


def test_a_group_of_another_kind_is_refused() -> None:
    machine = member()
    machine.on_join_sent()
    response = joined()
    response.protocol_type = "connect"
    assert machine.on_joined(response, now=0.0) is Next.STOP
    assert "'connect'" in str(machine.take_failure())


def test_an_assignment_of_topics_not_subscribed_to_is_not_taken_over() -> None:
    machine = member()
    round_of(machine, U0)
    assert machine.owned == frozenset()
    assert machine.next_step() == JOIN


def test_a_pattern_takes_the_leaders_word_for_topics_it_has_not_seen() -> None:
    machine = member(topics=())
    machine.subscribe(frozenset({"t"}), re.compile("t|u"))
    round_of(machine, T0, U0)
    assert machine.next_step() == Assign([T0, U0])
    machine.take_over()
    assert machine.next_step() == DONE


def test_a_subscription_that_changes_while_joining_is_joined_with_afterwards() -> None:
    machine = member()
    machine.on_join_sent()
    machine.subscribe(frozenset({"t", "u"}), None)
    machine.on_joined(joined(), now=0.0)
    machine.on_synced(synced(T0), 1)
    assert machine.next_step() == Assign([T0])
    machine.take_over()
    assert machine.next_step() == Revoke([T0])
    assert machine.rejoin_reason == "subscription has changed"


def test_the_leader_rejoins_when_a_topic_it_divided_changes() -> None:
    machine = stable(member(), T0)
    machine.watch({"t": (frozenset(),)})
    machine.on_topics({"t": (frozenset(),)})
    assert machine.next_step() == DONE
    machine.on_topics({"t": (frozenset(), frozenset())})
    assert machine.rejoin_reason == "cached metadata has changed"
    assert machine.next_step() == Revoke([T0])


def test_a_topic_that_changes_while_the_leader_waits_for_its_sync_is_not_forgotten() -> None:
    machine = member()
    machine.on_join_sent()
    machine.on_joined(joined(), now=0.0)
    machine.watch({"t": (frozenset(),)})
    machine.on_topics({"t": (frozenset(), frozenset())})
    machine.on_synced(synced(T0), 1)
    machine.take_over()
    assert machine.next_step() == Revoke([T0])
    assert machine.rejoin_reason == "cached metadata has changed"


def test_commits_are_refused_while_the_group_comes_together() -> None:
    machine = stable(cooperative(), T0)
    machine.request_rejoin("why not")
    machine.on_join_sent()
    assert machine.on_joined(joined(generation=2), now=0.0) is Next.SYNC
    with pytest.raises(RebalanceInProgress):
        _ = machine.identity


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_that_is_refused_tells_of_the_membership(code: ErrorCode) -> None:
    machine = stable(member(), T0)
    identity = machine.identity
    machine.on_commit_refused(code, identity)
    assert machine.next_step() == Lose([T0])
    machine.on_commit_refused(ErrorCode.FENCED_INSTANCE_ID, identity)
    assert machine.failure is None, "that identity is not ours any more"


def test_no_heartbeats_are_sent_while_join_group_waits() -> None:
    machine = member()
    assert not beats(machine)
    machine.on_join_sent()
    assert not beats(machine)
    machine.on_joined(joined(), now=5.0)
    assert beats(machine)
    assert machine.heartbeat_at(backoff=0.1) == 8.0


def test_a_heartbeat_that_failed_is_sent_again_after_the_backoff() -> None:
    machine = stable(member(), T0)
    machine.on_heartbeat_sent(10.0)
    assert machine.heartbeat_at(backoff=0.1) == 13.0
    machine.on_heartbeat_failed(10.0)
    assert machine.heartbeat_at(backoff=0.1) == 10.1
    machine.on_heartbeat(ErrorCode.NONE, ("me", 1), now=11.0)
    assert machine.heartbeat_failures == 0
    assert machine.session_deadline == 56.0


def test_leaving_loses_what_is_still_owned_and_forgets_the_member_id() -> None:
    machine = stable(member(), T0)
    machine.on_left(reason="poll")
    assert machine.member_id == ""
    assert machine.next_step() == Lose([T0])
    assert not beats(machine)


def test_a_response_that_arrives_after_leaving_is_ignored() -> None:
    machine = member()
    machine.on_join_sent()
    machine.on_left(reason="closed")
    assert machine.on_joined(joined(), now=0.0) is Next.STOP
    assert machine.phase is Phase.OUTSIDE
    machine.on_join_sent()
    machine.on_joined(joined(), now=0.0)
    machine.on_left(reason="closed")
    assert machine.on_synced(synced(T0), 1) is Next.STOP
    assert machine.owned == frozenset()


def test_an_assignment_that_cannot_be_read_is_an_error() -> None:
    machine = member()
    machine.on_join_sent()
    machine.on_joined(joined(), now=0.0)
    assert machine.on_synced(SyncGroupResponse(assignment=b"\x00"), 1) is Next.STOP
    assert "unreadable assignment" in str(machine.take_failure())


def test_no_bytes_are_an_empty_assignment() -> None:
    machine = member()
    machine.on_join_sent()
    machine.on_joined(joined(), now=0.0)
    machine.on_synced(SyncGroupResponse(assignment=b""), 1)
    assert machine.next_step() == Assign([])


def test_a_member_that_keeps_partitions_while_it_joins_can_commit_them() -> None:
    machine = stable(cooperative(), T0)
    machine.request_rejoin("somebody came")
    assert machine.next_step() == JOIN
    machine.on_join_sent()
    identity = machine.identity
    assert identity.generation_or_epoch == 1
    # The others may have joined before the commit came; the join that is under way will tell.
    machine.on_commit_refused(ErrorCode.ILLEGAL_GENERATION, identity)
    assert machine.owned == {T0}
    assert machine.next_step() == WAIT
