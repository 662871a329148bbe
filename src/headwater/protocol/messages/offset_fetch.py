"""Reading back how far a group has read."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    until,
)


@message(api=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest(Message):
    """Asks for the committed offsets of a group, or of several from version 8 on."""

    group_id: Annotated[str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[bool, since(7)] = False


class OffsetFetchRequestTopic(Message):
    """One of the `topics` of `OffsetFetchRequest`."""

    name: str
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Message):
    """One of the `groups` of `OffsetFetchRequest`."""

    group_id: str
    member_id: Annotated[str | None, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequestTopics(Message):
    """One of the `topics` of `OffsetFetchRequestGroup`."""

    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    partition_indexes: list[Int32] = []


@message(api=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse(Message):
    """The stored offsets."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, since(2), until(7), ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


class OffsetFetchResponseTopic(Message):
    """One of the `topics` of `OffsetFetchResponse`."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartition(Message):
    """One of the `partitions` of `OffsetFetchResponseTopic`."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5), ignorable] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseGroup(Message):
    """One of the `groups` of `OffsetFetchResponse`."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message):
    """One of the `topics` of `OffsetFetchResponseGroup`."""

    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponsePartitions(Message):
    """One of the `partitions` of `OffsetFetchResponseTopics`."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, ignorable] = -1
    metadata: str | None = ""
    error_code: Int16 = 0
