"""The committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import only, outcome
from headwater.client.errors import ClientError, UnknownTopic, error_for
from headwater.client.requests.offset_commit import OffsetAndMetadata, commit_offsets
from headwater.client.requests.offset_fetch import GroupOffsets, fetch_offsets
from headwater.client.requests.routing import by_topic, is_lost
from headwater.model import NO_EPOCH, TopicPartition
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset: the next record that the group reads is at `offset`."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


async def group_offsets(
    admin: Admin,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """Returns the committed offsets of a group, in these partitions or in all. Partitions without
    an offset are left out; a group that does not exist has none."""
    return only(
        await list_group_offsets(
            admin, {group_id: partitions}, require_stable=require_stable, timeout_ms=timeout_ms
        )
    )


async def list_group_offsets(
    admin: Admin,
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
    """Returns the committed offsets of many groups: `["billing"]`, or `{"billing":
    [TopicPartition("orders", 0)]}`. `require_stable` waits for transactions with pending offset
    commits."""
    wanted = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
    found = await fetch_offsets(
        admin._router, wanted, require_stable=require_stable, timeout_ms=timeout_ms
    )
    return {
        group_id: each if isinstance(each, ClientError) else _committed(each)
        for group_id, each in found.items()
    }


def _committed(offsets: GroupOffsets) -> dict[TopicPartition, CommittedOffset]:
    return {
        tp: CommittedOffset(
            each.offset,
            leader_epoch=None if each.leader_epoch < 0 else each.leader_epoch,
            metadata=each.metadata,
        )
        for tp, each in offsets.items()
        if each is not None
    }


async def alter_group_offsets(
    admin: Admin,
    group_id: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Sets the committed offsets of a group that has no members; it need not exist yet. Returns the
    error of each partition, or None."""
    wanted = {TopicPartition(*where): _offset(to) for where, to in offsets.items()}
    return await commit_offsets(admin._router, group_id, wanted, timeout_ms=timeout_ms)


def _offset(to: int | CommittedOffset) -> OffsetAndMetadata:
    if isinstance(to, int):
        return OffsetAndMetadata(to)
    epoch = NO_EPOCH if to.leader_epoch is None else to.leader_epoch
    return OffsetAndMetadata(to.offset, epoch, to.metadata)


async def delete_group_offsets(
    admin: Admin,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Deletes committed offsets of a group, for topics to which none of its members is subscribed.
    Returns the error of each partition, or None."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, ClientError | None] | ClientError]:
        answer = await admin._router.ask(node, request, deadline)
        if answer.error_code:
            return {group_id: error_for(answer.error_code, f"group {group_id}")}
        results: dict[TopicPartition, ClientError | None] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                error = outcome(each.error_code, f"offset of group {group_id} in {where}")
                if error is not None and (is_lost(error) or is_new(where, error)):
                    return {group_id: error}  # all of it goes into the next round
                results[where] = error
        return {group_id: results}

    def is_new(where: TopicPartition, error: ClientError) -> bool:
        return isinstance(error, UnknownTopic) and admin._router.patience(where.topic) > 0

    def patience(_: str) -> float:
        return max((admin._router.patience(topic.name) for topic in request.topics), default=0.0)

    return only(
        await admin._router.by_coordinator(
            [group_id], ask, timeout_ms=timeout_ms, patience=patience
        )
    )
