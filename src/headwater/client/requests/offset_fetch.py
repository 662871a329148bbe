"""OffsetFetch: reads back how far groups have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.client.connection import Connection
from headwater.client.errors import ClientError, error_for
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.client.requests.routing import Router, by_topic
from headwater.errors import ErrorCode
from headwater.model import ZERO_ID, TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

_MANY_GROUPS_SINCE = 8  # from this version on a request names groups, and has no place for one
_NAMES_UNTIL = 9  # the last version that has the names of topics; later ones have their ids
_STABLE_SINCE = 7

# The committed offsets of one group; None where nothing is committed.
GroupOffsets = dict[TopicPartition, OffsetAndMetadata | None]
# The partitions to ask about in each group; None for all that have an offset.
Groups = Mapping[str, Iterable[TopicPartition] | None]


async def fetch_offsets(
    router: Router,
    groups: Groups,
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
    deadline: float | None = None,
) -> dict[str, GroupOffsets | ClientError]:
    """Fetches the committed offsets of groups, and retries until the deadline. `require_stable`
    waits for the end of transactions that have offsets to commit. A group that does not exist has
    none."""
    at_least = _STABLE_SINCE if require_stable else None
    wanted = {group_id: None if tps is None else list(tps) for group_id, tps in groups.items()}

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, GroupOffsets | ClientError]:
        return await send_fetch(
            router,
            node,
            {key: wanted[key] for key in keys},
            require_stable=require_stable,
            at_least=at_least,
            deadline=deadline,
        )

    return await router.by_coordinator(wanted, ask, timeout_ms=timeout_ms, deadline=deadline)


async def send_fetch(
    router: Router,
    coordinator: Connection,
    groups: Groups,
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    require_stable: bool = False,
    at_least: int | None = None,
    deadline: float,
) -> dict[str, GroupOffsets | ClientError]:
    """Sends one request to the coordinator (one for each group to an old broker). Topics go by id
    if `topic_ids` has the ids of all; `require_stable` is left out where the broker is too old."""
    wanted = {group_id: None if tps is None else by_topic(tps) for group_id, tps in groups.items()}
    ids = topic_ids or {}
    is_by_id = all(
        topics is not None and all(ids.get(name, ZERO_ID) != ZERO_ID for name in topics)
        for topics in wanted.values()
    )
    at_most = None if is_by_id else _NAMES_UNTIL
    version = coordinator.version(ApiKey.OFFSET_FETCH, at_most=at_most)
    if version is not None and version < _MANY_GROUPS_SINCE:
        stable = require_stable and version >= _STABLE_SINCE
        return {
            group_id: _committed(
                group_id,
                await router.ask(
                    coordinator, _one_group(group_id, topics, stable), deadline, at_least=at_least
                ),
                {},
            )
            for group_id, topics in wanted.items()
        }
    request = OffsetFetchRequest(
        groups=[_group(group_id, topics, ids) for group_id, topics in wanted.items()],
        require_stable=require_stable,
    )
    response = await router.ask(coordinator, request, deadline, at_most=at_most)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {each.group_id: _committed(each.group_id, each, names) for each in response.groups}


def _group(
    group_id: str, topics: dict[str, list[int]] | None, ids: Mapping[str, bytes]
) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                name=name, topic_id=ids.get(name, ZERO_ID), partition_indexes=numbers
            )
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


def _committed(group_id: str, about: Any, names: Mapping[bytes, str]) -> GroupOffsets | ClientError:
    """Reads the response for one group, or one group's part of a response: they look alike."""
    if about.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return error_for(about.error_code, f"offsets of group {group_id}")
    found: GroupOffsets = {}
    for topic in about.topics:
        name = topic.name or names.get(topic.topic_id, "?")
        for each in topic.partitions:
            tp = TopicPartition(name, each.partition_index)
            if each.error_code:
                return error_for(each.error_code, f"offset of group {group_id} in {tp}")
            found[tp] = (
                OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
                if each.committed_offset >= 0
                else None
            )
    return found
