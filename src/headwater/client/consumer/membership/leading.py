"""What the leader of a classic group does between JoinGroup and SyncGroup: it divides."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.consumer.membership.assignors.model import Assignor, GroupMember, Topics
from headwater.client.errors import FatalError
from headwater.client.metadata import ClusterMetadata
from headwater.model import TopicPartition
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    owned_partitions,
    read_subscription,
    write_assignment,
)
from headwater.protocol.messages.join_group import JoinGroupResponse


def members_of(response: JoinGroupResponse) -> dict[str, GroupMember]:
    """Who is in this generation, as they describe themselves."""
    members: dict[str, GroupMember] = {}
    for each in response.members:
        try:
            members[each.member_id] = member_of(
                bytes(each.metadata), instance_id=each.group_instance_id
            )
        except DecodeError as error:
            raise FatalError(
                f"member {each.member_id} says what cannot be read ({error}); is it a consumer?"
            ) from error
    return members


def member_of(subscription: bytes, *, instance_id: str | None = None) -> GroupMember:
    """Raises DecodeError if the bytes are not a subscription."""
    read = read_subscription(subscription)
    return GroupMember(
        topics=frozenset(read.topics),
        owned=tuple(owned_partitions(read)),
        generation=read.generation_id,
        instance_id=instance_id,
        rack=read.rack_id or None,
        user_data=None if read.user_data is None else bytes(read.user_data),
    )


def topics_of(metadata: ClusterMetadata, names: frozenset[str]) -> Topics:
    """Those of the topics that exist: for each partition, the racks of its replicas."""
    racks = {node: broker.rack for node, broker in metadata.brokers.items() if broker.rack}
    return {
        name: tuple(
            frozenset(racks[node] for node in each.replicas if node in racks)
            for each in topic.partitions
        )
        for name in sorted(names)
        if (topic := metadata.topics.get(name)) is not None
    }


def divide(
    assignor: Assignor, topics: Topics, members: Mapping[str, GroupMember], *, cooperative: bool
) -> dict[str, bytes]:
    """Everybody's part, as SyncGroup carries it."""
    answer = assignor.assign(topics, members)
    if cooperative:
        _check_cooperative(assignor, answer, members)
    return {member_id: write_assignment(answer.get(member_id, ())) for member_id in members}


def _check_cooperative(
    assignor: Assignor,
    answer: Mapping[str, list[TopicPartition]],
    members: Mapping[str, GroupMember],
) -> None:
    """A partition may not have two owners even for a moment, whatever an assignor says."""
    held: dict[TopicPartition, str] = {}
    for member_id, member in members.items():
        held.update(dict.fromkeys(member.owned, member_id))
    for member_id, mine in answer.items():
        for partition in mine:
            if partition in held and partition not in members[member_id].owned:
                raise FatalError(
                    f"assignor {assignor.name!r} gave {partition} to {member_id} while "
                    f"{held[partition]} still owns it; a cooperative assignor must leave it out"
                )
