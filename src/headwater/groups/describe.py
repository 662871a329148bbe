"""Descriptions of a shard's groups: members, states, and the liveness of members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater.groups.classic.group import ClassicGroup, State
from headwater.groups.classic.member import Member as ClassicMember
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.group import ConsumerGroup
from headwater.groups.consumer.member import Member
from headwater.groups.consumer.target_assignment import voted_assignor
from headwater.groups.consumer.topics import Topics
from headwater.protocol.liveness import MemberLiveness
from headwater.protocol.messages import consumer_group_describe as described
from headwater.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headwater.protocol.messages.list_groups import ListedGroup

Groups = Mapping[str, ClassicGroup | ConsumerGroup]

# From this version on a group that does not exist is an error, and not only dead (KIP-1043).
_NOT_FOUND_SINCE = 6
# Types of members in ConsumerGroupDescribe.
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe(groups: Groups, group_ids: Iterable[str], *, version: int) -> list[DescribedGroup]:
    """Describes classic groups. A consumer group is reported as missing, as in Kafka."""
    return [_describe(groups.get(group_id), group_id, version) for group_id in group_ids]


def _describe(
    group: ClassicGroup | ConsumerGroup | None, group_id: str, version: int
) -> DescribedGroup:
    if isinstance(group, ClassicGroup):
        is_stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=[
                _describe_member(member, group.protocol if is_stable else None)
                for member in group.members
            ],
        )
    missing = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if version >= _NOT_FOUND_SINCE:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        missing.error_message = (
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a classic group."
        )
    return missing


def _describe_member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def consumer_describe(groups: Groups, group_ids: Iterable[str]) -> list[described.DescribedGroup]:
    found = []
    for group_id in group_ids:
        group = groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            missing = "not found." if group is None else "is not a consumer group."
            found.append(
                described.DescribedGroup(
                    group_id=group_id,
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=f"Group {group_id} {missing}",
                )
            )
        else:
            found.append(_describe_consumer(group))
    return found


def _describe_consumer(group: ConsumerGroup) -> described.DescribedGroup:
    state, topics = group.state, group.topics
    assignor = voted_assignor(state.assignors, group.settings.consumer_assignors)
    return described.DescribedGroup(
        group_id=state.id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=assignor,
        members=[
            _describe_consumer_member(member, state.target.get(member.id, {}), topics)
            for member in state.members.values()
        ],
    )


def _describe_consumer_member(
    member: Member, target: Partitions, topics: Topics
) -> described.Member:
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
        assignment=_describe_partitions(held, topics),
        target_assignment=_describe_partitions(target, topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _describe_partitions(
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


def list_groups(
    groups: Groups, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Returns the groups in one of these states and of one of these types; empty means all."""
    in_states = {state.lower().strip() for state in states}
    of_types = {kind.lower() for kind in types}
    listed = []
    for group_id, group in groups.items():
        if isinstance(group, ClassicGroup):
            kind, state, protocol_type = "classic", group.state.value, group.protocol_type or ""
        else:
            kind, state, protocol_type = "consumer", group.state.name, "consumer"
        if (not in_states or state.lower() in in_states) and (not of_types or kind in of_types):
            listed.append(
                ListedGroup(
                    group_id=group_id,
                    protocol_type=protocol_type,
                    group_state=state,
                    group_type=kind,
                )
            )
    return listed


class GroupSummary(NamedTuple):
    id: str
    kind: str
    state: str
    members: int


def summaries(groups: Groups) -> Iterator[GroupSummary]:
    """Yields a summary of each group that there is now; groups may come and go between two."""
    for group_id, group in tuple(groups.items()):
        if isinstance(group, ClassicGroup):
            yield GroupSummary(group_id, "classic", group.state.value, len(group.members))
        else:
            state = group.state
            yield GroupSummary(group_id, "consumer", state.name, len(state.members))


def liveness(group: ClassicGroup | ConsumerGroup, now: float) -> dict[str, MemberLiveness]:
    """Returns the liveness of each member, by member id."""
    if isinstance(group, ClassicGroup):
        return {
            member.id: MemberLiveness(
                _is_awaited(group, member),
                silent_ms(member.session.deadline, member.session_timeout_ms, now),
                member.session_timeout_ms,
            )
            for member in group.members
        }
    return {
        member_id: MemberLiveness(
            session.is_awaited,
            silent_ms(session.deadline, session.timeout_ms, now),
            session.timeout_ms,
        )
        for member_id, session in group.sessions().items()
    }


def _is_awaited(group: ClassicGroup, member: ClassicMember) -> bool:
    """Whether a rebalance waits for the member: while members gather, for those without a parked
    JoinGroup; after that, for the leader, which assigns."""
    if group.state is State.PREPARING_REBALANCE:
        return member.id not in group.joins
    return group.state is State.COMPLETING_REBALANCE and member.id == group.members.leader


def silent_ms(deadline: float, timeout_ms: int, now: float) -> int | None:
    """Returns how long ago a session was extended to this deadline; None if it is not running."""
    if deadline == inf:
        return None
    return max(0, timeout_ms - round((deadline - now) * 1000))
