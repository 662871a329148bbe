"""OffsetCommit: stores how far a group has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.client.connection import Connection
from headwater.client.errors import ClientError, UnknownTopic, error_for
from headwater.client.requests.routing import Router, by_topic, is_lost
from headwater.errors import ErrorCode
from headwater.model import NO_EPOCH, ZERO_ID, TopicPartition
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# The last version that has the names of topics; later ones have their ids.
_NAMES_UNTIL = 9


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, and a note of the user's."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The group member that commits offsets, by itself or in a transaction: if the group has gone
    on without it, they are refused. Without a member id the group must have no members."""

    group_id: str
    member_id: str = ""
    generation_or_epoch: int = -1
    instance_id: str | None = None


async def commit_offsets(
    router: Router,
    group_id: str,
    offsets: Offsets,
    *,
    timeout_ms: int | None = None,
    deadline: float | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Commits for a group that has no members, and retries until the deadline; returns the error
    of each partition, or None."""
    if not offsets:
        return {}

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, ClientError | None] | ClientError]:
        identity = GroupMetadata(group_id)
        codes = await send_commit(router, node, identity, offsets, deadline=deadline)
        results: dict[TopicPartition, ClientError | None] = {}
        for tp, code in codes.items():
            error = _error(group_id, tp, code)
            if error is not None and (is_lost(error) or is_new(tp, error)):
                return {group_id: error}  # all of it goes into the next round
            results[tp] = error
        return {group_id: results}

    def is_new(tp: TopicPartition, error: ClientError) -> bool:
        return isinstance(error, UnknownTopic) and router.patience(tp.topic) > 0

    def patience(_: str) -> float:
        return max(router.patience(tp.topic) for tp in offsets)

    answers = await router.by_coordinator(
        [group_id], ask, timeout_ms=timeout_ms, deadline=deadline, patience=patience
    )
    result = answers[group_id]
    if isinstance(result, ClientError):
        raise result
    return result


async def send_commit(
    router: Router,
    coordinator: Connection,
    identity: GroupMetadata,
    offsets: Offsets,
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    deadline: float,
) -> dict[TopicPartition, int]:
    """Sends one request to the coordinator; returns the error code of each partition, 0 if stored.

    With the ids of all topics in `topic_ids`, nothing is committed for a topic that was recreated
    meanwhile. Without them topics go by name: offsets outlive topics, and nobody knows the id of a
    topic that is gone.
    """
    grouped = by_topic(offsets)
    ids = topic_ids or {}
    names = {ids.get(topic, ZERO_ID): topic for topic in grouped}
    request = OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_or_epoch,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, ZERO_ID),
                partitions=[
                    _partition(number, offsets[TopicPartition(topic, number)]) for number in numbers
                ],
            )
            for topic, numbers in grouped.items()
        ],
    )
    at_most = _NAMES_UNTIL if ZERO_ID in names else None
    response = await router.ask(coordinator, request, deadline, at_most=at_most)
    return {
        TopicPartition(topic.name or names[topic.topic_id], each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


def _partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _error(group_id: str, tp: TopicPartition, code: int) -> ClientError | None:
    if not code:
        return None
    why = None
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        why = "the group has members, which commit their own offsets; stop them first"
    return error_for(code, f"offset of group {group_id} in {tp}", why)
