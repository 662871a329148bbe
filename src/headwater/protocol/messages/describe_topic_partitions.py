"""Describing topics page by page."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Message, Uuid, ignorable, message


@message(api=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Message):
    """Describe these topics, from the cursor on."""

    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None


class TopicRequest(Message):
    """One of the `topics` of `DescribeTopicPartitionsRequest`."""

    name: str


class DescribeTopicPartitionsRequestCursor(Message):
    """The first partition of the next page."""

    topic_name: str
    partition_index: Int32


@message(api=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse(Message):
    """The partitions, and where to go on."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


class DescribeTopicPartitionsResponseTopic(Message):
    """One of the `topics` of `DescribeTopicPartitionsResponse`."""

    error_code: Int16 = 0
    name: str | None = ""
    topic_id: Annotated[Uuid, ignorable] = ZERO_ID
    is_internal: Annotated[bool, ignorable] = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponsePartition(Message):
    """One of the `partitions` of `DescribeTopicPartitionsResponseTopic`."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, ignorable] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: Annotated[list[Int32], ignorable] = []


class DescribeTopicPartitionsResponseCursor(Message):
    """The first partition of the next page."""

    topic_name: str = ""
    partition_index: Int32 = 0
