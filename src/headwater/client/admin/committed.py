"""How far groups have read: their committed offsets, and moving or forgetting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.client.admin.results import by_topic, only, outcome
from headwater.client.admin.routing import is_lost
from headwater.client.errors import ClientError, UnknownTopic, error_for
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_BY_GROUP_SINCE = 8  # from this version on OffsetFetch asks for groups
# Until this one OffsetFetch and OffsetCommit speak of topics by name. Offsets outlive topics, and
# of a topic that is gone nobody knows the id.
_BY_NAME_UNTIL = 9
_STABLE_SINCE = 7


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Up to where a group has read a partition: the next record is at `offset`."""

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
    """What a group has committed, in these partitions or in all. What has no offset is left out,
    and a group that is not there has none."""
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
    """The same for many groups: `["billing"]`, or `{"billing": [TopicPartition("orders", 0)]}`.
    `require_stable` waits for offsets of transactions that are still to end."""
    given = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
    wanted: dict[str, dict[str, list[int]] | None] = {
        group_id: None if partitions is None else by_topic(partitions)
        for group_id, partitions in given.items()
    }

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
        version = node.version(ApiKey.OFFSET_FETCH)
        least = _STABLE_SINCE if require_stable else None
        if version is not None and version < _BY_GROUP_SINCE:
            return {
                key: _committed(
                    key,
                    await admin.router.ask(
                        node, _one_group(key, wanted[key], require_stable), deadline, at_least=least
                    ),
                )
                for key in keys
            }
        request = OffsetFetchRequest(
            groups=[_group(key, wanted[key]) for key in keys], require_stable=require_stable
        )
        answer = await admin.router.ask(node, request, deadline, at_most=_BY_NAME_UNTIL)
        return {each.group_id: _committed(each.group_id, each) for each in answer.groups}

    return await admin.router.by_coordinator(list(wanted), ask, timeout_ms=timeout_ms)


def _group(group_id: str, topics: dict[str, list[int]] | None) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
    )


def _one_group(
    group_id: str, topics: dict[str, list[int]] | None, require_stable: bool
) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
        require_stable=require_stable,
    )


def _committed(group_id: str, about: Any) -> dict[TopicPartition, CommittedOffset] | ClientError:
    """From an answer for one group, or from its part of an answer for many: they look alike."""
    if about.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return error_for(about.error_code, f"offsets of group {group_id}")
    found = {}
    for topic in about.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                return error_for(each.error_code, f"offset of group {group_id} in {where}")
            if each.committed_offset >= 0:
                found[where] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=None
                    if each.committed_leader_epoch < 0
                    else each.committed_leader_epoch,
                    metadata=each.metadata or "",
                )
    return found


async def alter_group_offsets(
    admin: Admin,
    group_id: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Moves the committed offsets of a group that has no members; it need not exist yet."""
    wanted = {
        TopicPartition(*where): CommittedOffset(to) if isinstance(to, int) else to
        for where, to in offsets.items()
    }
    if not wanted:
        return {}
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _commit(number, wanted[TopicPartition(topic, number)]) for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ],
    )
    return await _of_one_group(admin, group_id, request, timeout_ms, at_most=_BY_NAME_UNTIL)


def _commit(number: int, offset: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


async def delete_group_offsets(
    admin: Admin,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Forgets how far a group has read some partitions, if none of its members reads the topic."""
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
    return await _of_one_group(admin, group_id, request, timeout_ms)


async def _of_one_group(
    admin: Admin,
    group_id: str,
    request: OffsetCommitRequest | OffsetDeleteRequest,
    timeout_ms: int | None,
    *,
    at_most: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Both answer for each partition, and say that the coordinator is another one for all."""

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[TopicPartition, ClientError | None] | ClientError]:
        answer = await admin.router.ask(node, request, deadline, at_most=at_most)
        code = getattr(answer, "error_code", 0)
        if code:
            return {group_id: error_for(code, f"group {group_id}")}
        results: dict[TopicPartition, ClientError | None] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                what = f"offset of group {group_id} in {where}"
                error = outcome(each.error_code, what, _why(each.error_code))
                if error is not None and (is_lost(error) or is_new(where, error)):
                    return {group_id: error}  # all of it goes into the next round
                results[where] = error
        return {group_id: results}

    def is_new(where: TopicPartition, error: ClientError) -> bool:
        return isinstance(error, UnknownTopic) and admin.router.patience(where.topic) > 0

    def patience(_: str) -> float:
        return max((admin.router.patience(topic.name) for topic in request.topics), default=0.0)

    return only(
        await admin.router.by_coordinator([group_id], ask, timeout_ms=timeout_ms, patience=patience)
    )


def _why(code: int) -> str | None:
    """What a code means to somebody who is no member of the group."""
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return "the group has members, which commit themselves: stop them first"
    return None
