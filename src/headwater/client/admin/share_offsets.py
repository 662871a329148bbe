"""Offsets of share groups: the first record of each partition that they have not acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.client.admin.results import only, outcome
from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headwater.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headwater.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start of a share group in a partition: records before it are acknowledged. `lag` is None
    if the cluster does not report it."""

    start: int
    leader_epoch: int | None = None
    lag: int | None = None


async def list_share_group_offsets(
    admin: Admin,
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    timeout_ms: int | None = None,
) -> dict[str, dict[TopicPartition, ShareOffset] | ClientError]:
    """Returns the offsets of each share group, in some partitions or in all. Partitions that it has
    not begun to read are left out."""
    given = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
    wanted = {
        group_id: None if partitions is None else by_topic(partitions)
        for group_id, partitions in given.items()
    }
    deadline = admin._router.deadline(timeout_ms)
    await admin._router.require(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, deadline)

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, ShareOffset] | ClientError]:
        request = DescribeShareGroupOffsetsRequest(
            groups=[_group(key, wanted[key]) for key in keys]
        )
        answer = await admin._router.ask(node, request, deadline)
        return {each.group_id: _offsets(each) for each in answer.groups}

    return await admin._router.by_coordinator(list(wanted), ask, deadline=deadline)


def _group(
    group_id: str, topics: dict[str, list[int]] | None
) -> DescribeShareGroupOffsetsRequestGroup:
    return DescribeShareGroupOffsetsRequestGroup(
        group_id=group_id,
        topics=None
        if topics is None
        else [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )


def _offsets(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> dict[TopicPartition, ShareOffset] | ClientError:
    if group.error_code:
        return error_for(group.error_code, f"group {group.group_id}", group.error_message)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                what = f"group {group.group_id} in {where}"
                return error_for(each.error_code, what, each.error_message)
            if each.start_offset >= 0:
                found[where] = ShareOffset(
                    start=each.start_offset,
                    leader_epoch=None if each.leader_epoch < 0 else each.leader_epoch,
                    lag=None if each.lag < 0 else each.lag,
                )
    return found


async def alter_share_group_offsets(
    admin: Admin,
    group_id: str,
    starts: Mapping[TopicPartition, int],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Sets the offsets of a share group that has no members. Returns the error of each, or None."""
    wanted = {TopicPartition(*where): start for where, start in starts.items()}
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=wanted[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ],
    )
    answer = await _ask(admin, group_id, request, timeout_ms)
    results: dict[TopicPartition, ClientError | None] = {}
    for topic in answer.responses:
        for each in topic.partitions:
            where = TopicPartition(topic.topic_name, each.partition_index)
            what = f"group {group_id} in {where}"
            results[where] = outcome(each.error_code, what, each.error_message)
    return results


async def delete_share_group_offsets(
    admin: Admin, group_id: str, topics: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Deletes the offsets of a share group that has no members, for these topics. Returns the error
    of each, or None."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )
    answer = await _ask(admin, group_id, request, timeout_ms)
    return {
        each.topic_name: outcome(
            each.error_code, f"group {group_id} in {each.topic_name}", each.error_message
        )
        for each in answer.responses
    }


async def _ask(
    admin: Admin,
    group_id: str,
    request: AlterShareGroupOffsetsRequest | DeleteShareGroupOffsetsRequest,
    timeout_ms: int | None,
) -> Any:
    async def ask(node: Connection, keys: Sequence[str], deadline: float) -> dict[str, Any]:
        answer = await admin._router.ask(node, request, deadline)
        if answer.error_code:
            error = error_for(answer.error_code, f"group {group_id}", answer.error_message)
            return {group_id: error}
        return {group_id: answer}

    return only(await admin._router.by_coordinator([group_id], ask, timeout_ms=timeout_ms))
