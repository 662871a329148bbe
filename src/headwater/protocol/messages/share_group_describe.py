"""Describing share groups (KIP-932)."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import EMPTY, Int16, Int32, Message, Uuid, message


@message(api=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(Message):
    """Describe these groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool


@message(api=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse(Message):
    """The groups with their members."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Message):
    """One of the `groups` of `ShareGroupDescribeResponse`."""

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
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    assignment: Assignment = EMPTY


class Assignment(Message):
    """The assignment of a member."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid = ZERO_ID
    topic_name: str = ""
    partitions: list[Int32] = []
