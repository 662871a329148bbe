"""A member of a consumer group (KIP-848): its heartbeats, and its reactions to responses."""

from __future__ import annotations

import pytest

from headwater.client.consumer.membership.consumer_member import ConsumerMember, Phase
from headwater.client.consumer.membership.member import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    MembershipSettings,
    Revoke,
)
from headwater.client.errors import CommitFailed, FencedInstance, Refused, UnsupportedVersion
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

TID, UID = b"t" * 16, b"u" * 16
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def member(names: dict[bytes, str] | None = None, **settings: object) -> ConsumerMember:
    known = {TID: "t", UID: "u"} if names is None else names
    machine = ConsumerMember(
        MembershipSettings(group_id="g", **settings),  # type: ignore[arg-type]
        known.get,
    )
    machine.member_id = "me"
    machine.subscribe(frozenset({"t"}))
    return machine


def wants_poll(machine: ConsumerMember) -> bool:
    return machine.needs_poll


def answer(
    *partitions: tuple[bytes, int],
    epoch: int = 1,
    code: int = 0,
    same: bool = False,
    message: str | None = None,
) -> ConsumerGroupHeartbeatResponse:
    topics: dict[bytes, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=message,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=None
        if same
        else Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic, partitions=numbers)
                for topic, numbers in topics.items()
            ]
        ),
    )


def exchange(
    machine: ConsumerMember, response: ConsumerGroupHeartbeatResponse, now: float = 0.0
) -> ConsumerGroupHeartbeatRequest:
    """One heartbeat and its answer; what was said."""
    epoch = machine.epoch
    request, telling = machine.heartbeat(now)
    machine.on_heartbeat(response, telling, sent_epoch=epoch)
    return request


def stable(machine: ConsumerMember, *partitions: tuple[bytes, int]) -> ConsumerMember:
    assert machine.next_step() == JOIN
    machine.on_join_started()
    exchange(machine, answer(*partitions))
    assert isinstance(machine.next_step(), Assign)
    machine.take_over()
    exchange(machine, answer(epoch=1, same=True))
    assert machine.next_step() == DONE
    return machine


def test_a_new_member_sends_all_fields_once() -> None:
    machine = member(rack="r", remote_assignor="uniform")
    machine.on_join_started()
    assert machine.next_step() == WAIT
    assert machine.heartbeat_at(0.0) == 0.0, "at once"
    first = exchange(machine, answer((TID, 0)), now=7.0)
    assert (first.member_id, first.member_epoch) == ("me", 0)
    assert (first.rack_id, first.server_assignor) == ("r", "uniform")
    assert first.rebalance_timeout_ms == 300_000
    assert first.subscribed_topic_names == ["t"]
    assert first.topic_partitions == []
    assert machine.heartbeat_at(0.0) == 12.0, "as often as the broker wants"
    second = exchange(machine, answer(same=True))
    assert second.member_epoch == 1
    assert (second.rack_id, second.server_assignor) == (None, None)
    assert second.subscribed_topic_names is None
    assert second.rebalance_timeout_ms == -1
    assert second.topic_partitions is None


def test_an_assignment_is_taken_over_and_acknowledged_at_once() -> None:
    machine = member()
    machine.on_join_started()
    exchange(machine, answer((TID, 0), (TID, 1)), now=3.0)
    assert wants_poll(machine)
    assert machine.next_step() == Assign([T0, T1])
    machine.take_over()
    assert not wants_poll(machine)
    assert machine.heartbeat_at(0.0) == 3.0, "without waiting for the interval"
    acknowledgement = exchange(machine, answer(same=True))
    assert acknowledgement.topic_partitions is not None
    assert [
        (each.topic_id, list(each.partitions)) for each in acknowledgement.topic_partitions
    ] == [(TID, [0, 1])]


def test_what_is_taken_away_is_revoked_before_what_is_new_is_taken_over() -> None:
    machine = stable(member(), (TID, 0))
    exchange(machine, answer((TID, 1), epoch=2))
    assert machine.next_step() == Revoke([T0])
    assert machine.identity.generation_or_epoch == 2
    machine.on_given_up([T0])
    assert machine.next_step() == Assign([T1])
    machine.take_over()
    assert machine.owned == {T1}


def test_a_target_that_changes_during_a_callback_is_followed() -> None:
    machine = stable(member(), (TID, 0), (TID, 1))
    exchange(machine, answer((TID, 0), epoch=2))
    assert machine.next_step() == Revoke([T1])
    exchange(machine, answer(epoch=3))
    machine.on_given_up([T1])
    assert machine.next_step() == Revoke([T0])
    machine.on_given_up([T0])
    assert machine.next_step() == Assign([])


def test_an_empty_assignment_is_an_assignment() -> None:
    machine = member()
    machine.on_join_started()
    exchange(machine, answer())
    assert machine.next_step() == Assign([])
    machine.take_over()
    assert machine.next_step() == DONE


def test_a_topic_whose_name_is_not_known_yet_waits_for_it() -> None:
    names = {TID: "t"}
    machine = member(names)
    machine.on_join_started()
    exchange(machine, answer((TID, 0), (UID, 0)))
    assert machine.next_step() == Assign([T0])
    machine.take_over()
    assert machine.unresolved() == {UID}
    assert machine.next_step() == DONE
    assert not wants_poll(machine)
    names[UID] = "u"
    assert wants_poll(machine)
    assert machine.next_step() == Assign([U0])
    machine.take_over()
    assert machine.owned == {T0, U0}


def test_a_recreated_topic_is_revoked_and_assigned() -> None:
    names = {TID: "t", UID: "t"}
    machine = stable(member(names), (TID, 0))
    exchange(machine, answer((UID, 0), epoch=2))
    assert machine.next_step() == Revoke([T0])
    machine.on_given_up([T0])
    assert machine.next_step() == Assign([T0])


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_everything_and_joins_again_with_its_id(code: ErrorCode) -> None:
    machine = stable(member(), (TID, 0))
    exchange(machine, answer(code=code))
    assert not machine.keeps_alive
    assert machine.next_step() == Lose([T0])
    with pytest.raises(CommitFailed):
        _ = machine.identity
    machine.on_given_up([T0])
    assert machine.next_step() == JOIN
    machine.on_join_started()
    again = exchange(machine, answer((TID, 0), epoch=5))
    assert (again.member_id, again.member_epoch, again.topic_partitions) == ("me", 0, [])
    assert machine.next_step() == Assign([T0])


def test_after_an_error_a_heartbeat_has_all_fields() -> None:
    machine = stable(member(), (TID, 0))
    machine.on_heartbeat_failed(0.0)
    again = exchange(machine, answer(same=True))
    assert again.member_epoch == 1
    assert again.subscribed_topic_names == ["t"]
    assert again.topic_partitions is not None
    assert again.topic_partitions[0].topic_id == TID


@pytest.mark.parametrize(
    ("code", "elsewhere"),
    [
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
    ],
)
def test_a_coordinator_that_moves_or_loads_costs_nothing(code: ErrorCode, elsewhere: bool) -> None:
    machine = stable(member(), (TID, 0))
    _, telling = machine.heartbeat(1.0)
    assert machine.on_heartbeat(answer(code=code), telling, sent_epoch=1) is elsewhere
    assert machine.owned == {T0}
    assert machine.failure is None
    assert machine.heartbeat_at(0.25) == 1.25


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersion, "group_protocol='classic'"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, FencedInstance, "'i'"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, Refused, "'odd'"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, Refused, "full"),
    ],
)
def test_a_refusal_is_raised_once_and_may_be_tried_again(
    code: ErrorCode, kind: type[Exception], says: str
) -> None:
    machine = member(instance_id="i", remote_assignor="odd")
    machine.on_join_started()
    exchange(machine, answer(code=code, message="full"))
    failure = machine.take_failure()
    assert isinstance(failure, kind)
    assert says in str(failure)
    assert machine.take_failure() is None
    assert machine.next_step() == JOIN


def test_a_fenced_instance_gets_the_error_at_every_poll() -> None:
    machine = stable(member(instance_id="i"), (TID, 0))
    exchange(machine, answer(code=ErrorCode.FENCED_INSTANCE_ID))
    assert isinstance(machine.take_failure(), FencedInstance)
    assert isinstance(machine.take_failure(), FencedInstance)


def test_a_forbidden_topic_is_an_error_and_the_member_stays() -> None:
    machine = stable(member(), (TID, 0))
    exchange(machine, answer(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert machine.take_failure() is not None
    assert machine.phase is Phase.MEMBER
    assert machine.owned == {T0}


def test_a_new_subscription_is_sent_at_once_and_a_pattern_is_withdrawn() -> None:
    machine = stable(member(), (TID, 0))
    machine.subscribe(frozenset(), regex="t.*")
    assert machine.heartbeat_at(0.0) == 0.0
    said = exchange(machine, answer(same=True))
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == ([], "t.*")
    machine.subscribe(frozenset({"u"}))
    said = exchange(machine, answer(same=True))
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (["u"], "")
    said = exchange(machine, answer(same=True))
    assert said.subscribed_topic_names is None


def test_a_pattern_that_matches_nothing_yet_is_a_subscription() -> None:
    machine = ConsumerMember(MembershipSettings(group_id="g"), lambda _: None)
    machine.subscribe(frozenset(), follows_pattern=True)
    assert machine.next_step() == JOIN
    machine.subscribe(frozenset())
    assert machine.next_step() == DONE


@pytest.mark.parametrize(
    ("instance_id", "for_good", "epoch"), [(None, False, -1), ("i", False, -2), ("i", True, -1)]
)
def test_a_static_member_announces_its_return(
    instance_id: str | None, for_good: bool, epoch: int
) -> None:
    machine = stable(member(instance_id=instance_id), (TID, 0))
    request = machine.leave_request(for_good=for_good)
    assert (request.member_id, request.member_epoch) == ("me", epoch)
    machine.on_left()
    assert machine.next_step() == Lose([T0])


def test_a_response_that_arrives_after_leaving_is_ignored() -> None:
    machine = member()
    machine.on_join_started()
    _, telling = machine.heartbeat(0.0)
    machine.on_left()
    machine.on_heartbeat(answer((TID, 0)), telling, sent_epoch=0)
    assert machine.phase is Phase.OUTSIDE


def test_a_refused_commit_makes_the_next_heartbeat_soon() -> None:
    machine = stable(member(), (TID, 0))
    exchange(machine, answer(same=True), now=1.0)
    assert machine.heartbeat_at(0.0) == 6.0
    machine.on_commit_refused(ErrorCode.STALE_MEMBER_EPOCH, machine.identity)
    assert machine.heartbeat_at(0.0) == 1.0
