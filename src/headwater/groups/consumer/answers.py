"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: what is asked for well, and the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.member import LEFT, LEFT_FOR_A_WHILE, Held, Member
from headwater.groups.consumer.state import GroupState
from headwater.groups.consumer.topics import Topics
from headwater.protocol.messages import consumer_group_describe as described
from headwater.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, assignors: Collection[str], *, version: int
) -> None:
    """Raises ApiError for what no group would take, in the order in which Kafka looks."""
    epoch = request.member_epoch
    # Until version 1 a member that joins is given its id by the coordinator.
    if version >= 1 or epoch > 0 or epoch == LEFT:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEFT_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _not_blank(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def owned_partitions(
    topics: Iterable[ConsumerGroupHeartbeatRequestTopicPartitions] | None,
) -> Partitions | None:
    """What a member says it holds; None if it does not say."""
    if topics is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def heartbeat_refused(refusal: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


def assignment(held: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic, partitions=sorted(partitions)
            )
            for topic, partitions in held.items()
        ]
    )


def describe(state: GroupState, topics: Topics, assignor: str) -> described.DescribedGroup:
    return described.DescribedGroup(
        group_id=state.id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=assignor,
        members=[
            _described(member, state.target.get(member.id, {}), topics)
            for member in state.members.values()
        ],
    )


def _described(member: Member, target: Partitions, topics: Topics) -> described.Member:
    held: dict[bytes, set[int]] = {}
    for part in (member.assigned, member.revoking):
        for topic, partitions in part.items():
            held.setdefault(topic, set()).update(partitions)
    return described.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_described_partitions(held, topics),
        target_assignment=_described_partitions(target, topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _described_partitions(
    held: Mapping[bytes, Iterable[int]], topics: Topics
) -> described.Assignment:
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(
                topic_id=topic, topic_name=name, partitions=sorted(partitions)
            )
            for topic, partitions in held.items()
            if (name := topics.name(topic)) is not None
        ]
    )
