"""Describing consumer groups (KIP-848)."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    EMPTY,
    Int8,
    Int16,
    Int32,
    Message,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Message):
    """Describe these groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool


@message(api=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse(Message):
    """The groups with their members."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Message):
    """One of the `groups` of `ConsumerGroupDescribeResponse`."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class Member(Message):
    """One of the `members` of `DescribedGroup`."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: Assignment = EMPTY
    target_assignment: Assignment = EMPTY
    member_type: Annotated[Int8, since(1), ignorable] = -1


class Assignment(Message):
    """The assignment of a member."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid = ZERO_ID
    topic_name: str = ""
    partitions: list[Int32] = []
